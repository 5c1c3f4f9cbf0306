// SPDX-License-Identifier: LGPL-2.1-or-later
// Kernels that a fault was seen with, from one run of a program to the next.
#include "movement/remembered.hpp"

#include "base/file_status.hpp"
#include "proof/cache.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace emuv::cuda {

namespace {

constexpr std::string_view heading =
    "# Kernels that were in flight when the device reported a fault, while "
    "emuV moved memory.\n"
    "# They are not trusted. Take a line out to have its kernel trusted "
    "again.\n";

class descriptor
{
public:
    explicit descriptor(int number) : number_(number) {}
    descriptor(const descriptor &) = delete;
    descriptor &operator=(const descriptor &) = delete;
    ~descriptor()
    {
        if (number_ >= 0)
            close(number_);
    }
    int operator*() const { return number_; }

private:
    const int number_;
};

// True if it is a plain file that only this user can write.
bool is_private(int file, std::size_t &bytes)
{
    struct stat is = {};
    if (file < 0 || !status_of(file, is) || !S_ISREG(is.st_mode) ||
        is.st_uid != geteuid() || (is.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return false;
    bytes = static_cast<std::size_t>(is.st_size);
    return true;
}

// Names hold no spaces, and nothing but text.
bool is_name(std::string_view line)
{
    return !line.empty() && line.size() <= remembered::max_name_bytes &&
           line.front() != '#' &&
           std::all_of(line.begin(), line.end(),
                       [](char each) { return each > ' ' && each < 0x7f; });
}

void append(std::vector<char> &to, std::string_view text)
{
    to.insert(to.end(), text.begin(), text.end());
}

// The end of the path of the folder that a path is in.
std::size_t folder_end(const char *path, std::size_t end)
{
    const auto slash = std::string_view(path, end).rfind('/');
    return slash != std::string_view::npos ? slash : 0;
}

// A folder that is there stays as it is.
void make_folder(const char *path, std::size_t end)
{
    remembered::path_buffer folder;
    std::memcpy(folder.text, path, end);
    mkdir(folder.text, 0700);
}

} // namespace

bool remembered::contents::has(std::string_view name) const
{
    return std::binary_search(names.begin(), names.end(), name);
}

remembered::contents remembered::read_file(const char *path)
{
    contents out;
    // A pipe of that name is not waited for.
    const descriptor file(
        open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    std::size_t bytes = 0;
    if (!is_private(*file, bytes))
        return out;
    out.text.resize(std::min(bytes, max_file_bytes));
    const ssize_t got = read(*file, out.text.data(), out.text.size());
    std::string_view rest(out.text.data(),
                          got > 0 ? static_cast<std::size_t>(got) : 0);
    // A last line without an end was cut off.
    for (std::size_t end = 0; (end = rest.find('\n')) != rest.npos;
         rest.remove_prefix(end + 1))
        if (std::string_view line = rest.substr(0, end); !line.empty()) {
            if (line.back() == '\r')
                line.remove_suffix(1);
            if (is_name(line))
                out.names.push_back(line);
        }
    std::sort(out.names.begin(), out.names.end());
    return out;
}

remembered::remembered(const path_buffer &path)
    : path_(path), there_(read_file(path_.text))
{}

remembered::path_buffer remembered::usual_file()
{
    path_buffer out;
    const auto folder = proof::cache::usual_folder();
    if (folder.path[0] == '\0')
        return out;
    const int length =
        std::snprintf(out.text, sizeof out.text, "%s/untrusted", folder.path);
    if (length < 0 || length >= static_cast<int>(sizeof out.text))
        out.text[0] = '\0';
    return out;
}

bool remembered::has(std::string_view name) const
{
    return there_.has(name);
}

bool remembered::add(const std::vector<const char *> &names) const
{
    const std::size_t folder = folder_end(path_.text, std::strlen(path_.text));
    make_folder(path_.text, folder_end(path_.text, folder));
    make_folder(path_.text, folder);
    const descriptor file(
        open(path_.text,
             O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
             0600));
    std::size_t bytes = 0;
    if (!is_private(*file, bytes))
        return false;
    // Another process may have added some of them since the start.
    const contents there = read_file(path_.text);
    std::vector<char> lines;
    char last = '\n';
    if (bytes == 0)
        append(lines, heading);
    else if (pread(*file, &last, 1, static_cast<off_t>(bytes - 1)) == 1 &&
             last != '\n')
        append(lines, "\n"); // behind a line that was cut off
    bool all = true;
    for (const char *const name : names) {
        all = all && is_name(name);
        if (!is_name(name) || there.has(name))
            continue;
        append(lines, name);
        append(lines, "\n");
    }
    // In one write, so that those of two processes do not mix.
    return bytes + lines.size() <= max_file_bytes &&
           write(*file, lines.data(), lines.size()) ==
               static_cast<ssize_t>(lines.size()) &&
           all;
}

} // namespace emuv::cuda
