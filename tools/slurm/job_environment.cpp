// SPDX-License-Identifier: GPL-2.0-or-later
// The variables of a job's tasks, as the prolog has kept them.
#include "job_environment.hpp"

#include <emuv/unique_fd.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emuv_slurm {

namespace {

[[noreturn]] void cannot_read(const std::string &path)
{
    throw std::system_error(errno, std::generic_category(), path);
}

std::string content_of(int fd, const std::string &path)
{
    std::string content;
    std::array<char, 4096> part{};
    for (;;) {
        const ssize_t got = ::read(fd, part.data(), part.size());
        if (got == 0)
            return content;
        if (got > 0)
            content.append(part.data(), static_cast<std::size_t>(got));
        else if (errno != EINTR)
            cannot_read(path);
    }
}

} // namespace

std::optional<variables> read_environment(const std::string &path)
{
    const emuv::unique_fd fd(
        ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) {
        if (errno == ENOENT)
            return std::nullopt;
        cannot_read(path);
    }
    // Its writer decides which libraries the tasks load.
    struct stat about = {};
    if (::fstat(fd.get(), &about) != 0)
        cannot_read(path);
    if (about.st_uid != 0 && about.st_uid != ::geteuid())
        throw std::runtime_error(path + ": its owner is not root");
    variables found;
    const std::string content = content_of(fd.get(), path);
    for (std::string_view rest = content; !rest.empty();) {
        const auto end = std::min(rest.find('\n'), rest.size());
        const std::string_view line = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        const auto sign = line.find('=');
        if (sign == std::string_view::npos || sign == 0)
            throw std::runtime_error(path + ": a line is not NAME=VALUE");
        found.emplace_back(line.substr(0, sign), line.substr(sign + 1));
    }
    return found;
}

std::string joined_value(const std::string &name, const std::string &value,
                         const std::string &before)
{
    const bool of_tiers = name == "EMUV_TIER";
    if (before.empty() || before == value || name == "EMUV_INSTANCE" ||
        (of_tiers && before != "none"))
        return value;
    if (name != "LD_PRELOAD")
        return before;
    return before.starts_with(value + ":") ? before : value + ":" + before;
}

} // namespace emuv_slurm
