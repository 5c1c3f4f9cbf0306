// SPDX-License-Identifier: LGPL-2.1-or-later
// The ledger that an instance's driver keeps.
#include "account/ledger.hpp"
#include "base/glibc.hpp"
#include "base/size.hpp"
#include "base/thread.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <linux/emuv.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

__asm__(".symver pthread_sigmask, pthread_sigmask@" EMUV_OLDEST_GLIBC);

namespace emuv::cuda {

namespace {

// How long a thread rests that may not wait in the driver, and one whose cgroup
// or kernel has no room, since these wake nobody.
constexpr std::uint64_t crowd_pause_ns = 10'000'000;
constexpr std::uint64_t cgroup_pause_ns = 1'000'000;

template <typename Argument>
Argument argument()
{
    Argument zeroed;
    // Reserved fields and padding must be zero.
    std::memset(&zeroed, 0, sizeof zeroed);
    zeroed.size = sizeof zeroed;
    return zeroed;
}

} // namespace

const instance_calls system_instance_calls = {
    [](const char *path, int flags) { return ::open(path, flags); },
    [](int fd, unsigned long request, void *data) {
        return ::ioctl(fd, request, data);
    },
    [](int fd) { return ::close(fd); },
    [](int fd, int ms) {
        pollfd what{fd, POLLPRI, 0};
        const int found = ::poll(&what, 1, ms);
        return found > 0 ? what.revents : found;
    },
};

instance_ledger::~instance_ledger()
{
    close_after_fork();
}

void instance_ledger::close_after_fork()
{
    if (fd_ >= 0)
        calls_.close(fd_);
    fd_ = -1;
}

bool instance_ledger::open(int id, char *why, std::size_t length)
{
    char path[32];
    std::snprintf(path, sizeof path, "/dev/emuv%d", id);
    const int fd = calls_.open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        std::snprintf(why, length, "%s: %s", path, std::strerror(errno));
        return false;
    }
    auto version = argument<emuv_version>();
    if (calls_.ioctl(fd, EMUV_IOC_VERSION, &version) == -1)
        std::snprintf(why, length, "%s: not an emuV node: %s", path,
                      std::strerror(errno));
    else if (version.abi != EMUV_ABI_VERSION ||
             version.chunk_bytes != EMUV_CHUNK_BYTES)
        std::snprintf(why, length,
                      "%s: the module (version %.31s) speaks ABI %u, this "
                      "library %u",
                      path, version.module_version, version.abi,
                      unsigned{EMUV_ABI_VERSION});
    else {
        fd_ = fd;
        return true;
    }
    calls_.close(fd);
    return false;
}

bool instance_ledger::take_physical(std::uint64_t bytes)
{
    auto charge = argument<emuv_charge>();
    charge.bytes = bytes;
    return calls_.ioctl(fd_, EMUV_IOC_CHARGE, &charge) == 0;
}

bool instance_ledger::take_physical_within(std::uint64_t bytes,
                                           std::uint64_t ns)
{
    auto charge = argument<emuv_charge>();
    charge.flags = EMUV_CHARGE_WAIT;
    charge.bytes = bytes;
    charge.deadline_ns = now_ns() + ns;
    // A handler would cost the place in the queue. Signals that people send to
    // end a program are worth it.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    for (const int number : {SIGINT, SIGTERM, SIGQUIT, SIGHUP})
        sigdelset(&all, number);
    const bool blocked = pthread_sigmask(SIG_BLOCK, &all, &before) == 0;
    const bool taken = calls_.ioctl(fd_, EMUV_IOC_CHARGE, &charge) == 0;
    const int why = taken ? 0 : errno;
    if (blocked)
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (taken)
        return true;
    if (why == EAGAIN || why == ENOSPC || why == ENOMEM) {
        // As many threads of this process wait as may: their turn comes first.
        // Or its device-memory cgroup is full, or the kernel cannot count in
        // it for want of memory. The caller decides whether to try again.
        const auto pause = why == EAGAIN ? crowd_pause_ns : cgroup_pause_ns;
        const timespec length{0, static_cast<long>(std::min(ns, pause))};
        nanosleep(&length, nullptr);
        return false;
    }
    // The driver is older than EMUV_CHARGE_WAIT, or the call fails at once: the
    // caller must not spin.
    if (why != ETIMEDOUT && why != EINTR && why != ECANCELED)
        can_wait_ = false;
    return !can_wait_ && take_physical(bytes);
}

void instance_ledger::call_off_waits()
{
    auto charge = argument<emuv_charge>();
    charge.flags = EMUV_UNCHARGE_CANCEL;
    calls_.ioctl(fd_, EMUV_IOC_UNCHARGE, &charge);
}

void instance_ledger::give_physical(std::uint64_t bytes)
{
    auto charge = argument<emuv_charge>();
    charge.bytes = bytes;
    calls_.ioctl(fd_, EMUV_IOC_UNCHARGE, &charge);
}

bool instance_ledger::take_virtual(std::uint64_t bytes, std::uint64_t &token)
{
    auto region = argument<emuv_alloc>();
    region.bytes = bytes;
    if (calls_.ioctl(fd_, EMUV_IOC_ALLOC, &region) == -1)
        return false;
    token = region.offset;
    return true;
}

void instance_ledger::give_virtual(std::uint64_t, std::uint64_t token)
{
    auto region = argument<emuv_free>();
    region.offset = token;
    calls_.ioctl(fd_, EMUV_IOC_FREE, &region);
}

bool instance_ledger::ask(emuv_query_instance &query) const
{
    query = argument<emuv_query_instance>();
    if (calls_.ioctl(fd_, EMUV_IOC_QUERY_INSTANCE, &query) == -1)
        return false;
    others_wait_ = (query.state & EMUV_STATE_WAITERS) != 0;
    return true;
}

usage instance_ledger::read() const
{
    usage now;
    emuv_query_instance query;
    if (!ask(query))
        return now;
    now.physical_bytes = query.physical_bytes;
    now.virtual_bytes = query.virtual_bytes;
    now.physical_used_bytes = query.physical_used_bytes;
    now.spoken_for = query.waiters > 0 && (query.state & EMUV_STATE_ROOM) == 0;
    now.virtual_used_bytes = query.virtual_used_bytes;
    return now;
}

// The driver has news for an open file, not for a thread: another thread's
// read() may have been told. So this one looks once a second.
bool instance_ledger::await_others()
{
    while (true) {
        const int events = calls_.poll(fd_, 1000);
        if (events < 0 ? errno != EINTR
                       : (events & (POLLERR | POLLHUP | POLLNVAL)) != 0)
            return false;
        if (events <= 0 && !others_wait_)
            continue;
        emuv_query_instance query;
        if (!ask(query)) // the program has closed the file
            return false;
        if ((query.state & EMUV_STATE_WAITERS) != 0)
            return true;
    }
}

void instance_ledger::report(const counters &since_last_report) const
{
    auto report = argument<emuv_report>();
    report.fetched_bytes = since_last_report.fetched_bytes;
    report.evicted_bytes = since_last_report.evicted_bytes;
    report.spills = since_last_report.spills;
    report.faults = since_last_report.faults;
    report.hit_bytes = since_last_report.hit_bytes;
    report.miss_bytes = since_last_report.miss_bytes;
    report.stalled_ns = since_last_report.stalled_ns;
    calls_.ioctl(fd_, EMUV_IOC_REPORT, &report);
}

} // namespace emuv::cuda
