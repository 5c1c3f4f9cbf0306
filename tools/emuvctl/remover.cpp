// SPDX-License-Identifier: GPL-2.0-or-later
// A process that removes what others leave behind, however they end.
#include "remover.hpp"

#include <cerrno>
#include <system_error>

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace emuvctl {

emuv::unique_fd end_of_this_process()
{
    emuv::unique_fd self(
        static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    if (!self)
        throw std::system_error(errno, std::generic_category(), "pidfd_open");
    return self;
}

void remove_at_end(const std::vector<std::filesystem::path> &doomed,
                   const emuv::unique_fd &when)
{
    const pid_t first = ::fork();
    if (first < 0)
        throw std::system_error(errno, std::generic_category(), "fork");
    if (first > 0) {
        while (::waitpid(first, nullptr, 0) < 0 && errno == EINTR) {
        }
        return;
    }
    if (::fork() != 0)
        ::_exit(0);
    ::setsid();
    // Nothing of the program's may stay open here: a reader of its output waits
    // for the end of it.
    if (when.get() > 0)
        ::close_range(0, static_cast<unsigned>(when.get()) - 1, 0);
    ::close_range(static_cast<unsigned>(when.get()) + 1, ~0U, 0);
    pollfd ended{when.get(), POLLIN, 0};
    while (::poll(&ended, 1, -1) < 0 && errno == EINTR) {
    }
    std::error_code ignored;
    for (const auto &each : doomed)
        std::filesystem::remove_all(each, ignored);
    ::_exit(0);
}

} // namespace emuvctl
