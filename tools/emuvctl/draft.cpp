// SPDX-License-Identifier: GPL-2.0-or-later
// Small files that are written beside their place, and put there whole.
#include "draft.hpp"

#include <emuv/unique_fd.hpp>

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emuvctl {

namespace {

[[noreturn]] void cannot_write(const std::filesystem::path &path)
{
    throw std::system_error(errno, std::generic_category(), path.string());
}

// A disk that is full takes a part, and says why at the next one.
bool write_all(int file, std::string_view text)
{
    while (!text.empty()) {
        const ssize_t done = ::write(file, text.data(), text.size());
        if (done >= 0)
            text.remove_prefix(static_cast<std::size_t>(done));
        else if (errno != EINTR)
            return false;
    }
    return true;
}

} // namespace

void put_file(const std::filesystem::path &file,
              const std::filesystem::path &draft, std::string_view text,
              lasting how)
{
    try {
        {
            const emuv::unique_fd out(::open(
                draft.c_str(),
                O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
            if (!out || ::fchmod(out.get(), 0644) != 0 ||
                !write_all(out.get(), text) ||
                (how == lasting::for_good && ::fsync(out.get()) != 0))
                cannot_write(draft);
        }
        if (::rename(draft.c_str(), file.c_str()) != 0)
            cannot_write(file);
    } catch (...) {
        ::unlink(draft.c_str());
        throw;
    }
}

void make_folder(const std::filesystem::path &path)
{
    if (::mkdir(path.c_str(), 0755) == 0 ? ::chmod(path.c_str(), 0755) != 0
                                         : errno != EEXIST)
        cannot_write(path);
}

void sync_folder(const std::filesystem::path &folder)
{
    const emuv::unique_fd opened(
        ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!opened || ::fsync(opened.get()) != 0)
        cannot_write(folder);
}

} // namespace emuvctl
