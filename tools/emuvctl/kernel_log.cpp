// SPDX-License-Identifier: GPL-2.0-or-later
// Reads what the kernel says about the module while a command is at work.
#include "kernel_log.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

namespace emuvctl {

kernel_log::kernel_log(const std::filesystem::path &kmsg, from where)
    : file_(::open(kmsg.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC))
{
    if (file_ && where == from::now && ::lseek(file_.get(), 0, SEEK_END) < 0)
        file_.reset();
}

std::vector<std::string> kernel_log::lines()
{
    std::vector<std::string> found;
    std::array<char, 8192> record; // as large as the kernel's own
    while (file_) {
        const ssize_t got = ::read(file_.get(), record.data(), record.size());
        if (got < 0 && (errno == EINTR || errno == EPIPE))
            continue; // EPIPE: records were overwritten before they were read
        if (got <= 0)
            break;
        // "PRIORITY,SEQUENCE,TIME,FLAGS;TEXT\n", a record a read
        std::string_view text(record.data(), static_cast<std::size_t>(got));
        text.remove_prefix(std::min(text.size(), text.find(';') + 1));
        text = text.substr(0, text.find('\n'));
        if (text.starts_with("emuv"))
            found.emplace_back(text);
    }
    return found;
}

} // namespace emuvctl
