// SPDX-License-Identifier: LGPL-2.1-or-later
// Time and threads, as the system has them.
#include "base/thread.hpp"

#include <climits>
#include <ctime>

#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

__asm__(".symver pthread_create, pthread_create@" EMUV_OLDEST_GLIBC);
__asm__(".symver pthread_join, pthread_join@" EMUV_OLDEST_GLIBC);
__asm__(".symver pthread_sigmask, pthread_sigmask@" EMUV_OLDEST_GLIBC);

namespace emuv::cuda {

namespace {

timespec as_time(std::uint64_t ns)
{
    return {static_cast<time_t>(ns / 1000000000u),
            static_cast<long>(ns % 1000000000u)};
}

} // namespace

std::uint64_t now_ns()
{
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000u +
           static_cast<std::uint64_t>(now.tv_nsec);
}

void sleep_ns(std::uint64_t ns)
{
    const timespec most = as_time(ns);
    nanosleep(&most, nullptr);
}

void sleep_on(std::atomic<std::uint32_t> &word, std::uint32_t value,
              std::uint64_t most_ns)
{
    const timespec most = as_time(most_ns);
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value,
            most_ns != UINT64_MAX ? &most : nullptr, nullptr, 0);
}

void wake_all(std::atomic<std::uint32_t> &word)
{
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

bool thread::start(void *(*run)(void *), void *argument)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    running_ = pthread_create(&thread_, nullptr, run, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return running_;
}

void thread::join()
{
    if (running_)
        pthread_join(thread_, nullptr);
    running_ = false;
}

} // namespace emuv::cuda
