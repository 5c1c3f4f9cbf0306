// SPDX-License-Identifier: GPL-2.0-or-later
// The items of a batch: what its command is run for.
#include "batch/items.hpp"

#include "lib/utf8.hpp"

#include <emuv/unique_fd.hpp>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <unordered_set>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace emuvctl::batch {

namespace {

constexpr std::string_view place = "{}";

bool is_utf8(std::string_view text)
{
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
        if (length == 0)
            return false;
        text.remove_prefix(length);
    }
    return true;
}

// Puts items into a list, each once.
class collector
{
public:
    void add(std::string item)
    {
        if (item.empty())
            return;
        const std::size_t number = found_.list.size() + found_.repeated + 1;
        if (item.find('\0') != std::string::npos)
            throw std::invalid_argument("item " + std::to_string(number) +
                                        " has a zero byte in it; --null is for "
                                        "lists whose items end in one");
        if (found_.not_utf8 == 0 && !is_utf8(item))
            found_.not_utf8 = number;
        if (!seen_.insert(item).second)
            found_.repeated++;
        else
            found_.list.push_back(std::move(item));
    }
    items take() { return std::move(found_); }

private:
    items found_;
    std::unordered_set<std::string> seen_;
};

std::string read_all(int fd, const std::string &name)
{
    std::string text;
    char block[65536];
    for (;;) {
        const ssize_t got = ::read(fd, block, sizeof(block));
        if (got == 0)
            return text;
        if (got > 0)
            text.append(block, static_cast<std::size_t>(got));
        else
            throw std::system_error(errno, std::generic_category(), name);
    }
}

items read_folder(const std::string &from)
{
    std::vector<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator(from)) {
        const std::string name = entry.path().filename().string();
        if (!name.starts_with('.') && entry.is_regular_file())
            names.push_back(entry.path().string());
    }
    std::sort(names.begin(), names.end());
    collector found;
    for (auto &name : names)
        found.add(std::move(name));
    return found.take();
}

} // namespace

items split_items(std::string_view text, char separator)
{
    collector found;
    while (!text.empty()) {
        const auto end = std::min(text.find(separator), text.size());
        found.add(std::string(text.substr(0, end)));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return found.take();
}

items read_items(const std::string &from, char separator)
{
    if (from == "-")
        return split_items(read_all(STDIN_FILENO, "the standard input"),
                           separator);
    std::error_code ignored;
    if (std::filesystem::is_directory(from, ignored))
        return read_folder(from);
    const emuv::unique_fd file(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file)
        throw std::system_error(errno, std::generic_category(), from);
    return split_items(read_all(file.get(), from), separator);
}

std::vector<std::string> command_for(const std::vector<std::string> &command,
                                     const std::string &item)
{
    std::vector<std::string> words;
    bool placed = false;
    for (const auto &word : command) {
        std::string made;
        std::size_t start = 0;
        for (std::size_t at = 0;
             (at = word.find(place, start)) != std::string::npos;
             start = at + place.size()) {
            made += word.substr(start, at - start) + item;
            placed = true;
        }
        words.push_back(made + word.substr(start));
    }
    if (!placed)
        words.push_back(item);
    return words;
}

} // namespace emuvctl::batch
