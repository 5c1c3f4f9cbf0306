// SPDX-License-Identifier: LGPL-2.1-or-later
// A thread and a condition to wait for, by POSIX alone: those of the standard
// library need a newer glibc than the library may.
#pragma once

#include "../glibc.hpp"

#include <cstdint>
#include <ctime>
#include <mutex>

#include <pthread.h>
#include <signal.h>

__asm__(".symver pthread_create, pthread_create@" EMUV_OLDEST_GLIBC);
__asm__(".symver pthread_join, pthread_join@" EMUV_OLDEST_GLIBC);
__asm__(
    ".symver pthread_mutex_trylock, pthread_mutex_trylock@" EMUV_OLDEST_GLIBC);
__asm__(".symver pthread_cond_clockwait, pthread_cond_clockwait@GLIBC_2.30");
__asm__(".symver pthread_sigmask, pthread_sigmask@" EMUV_OLDEST_GLIBC);

namespace emuv::cuda {

/// Nanoseconds of the monotonic clock.
inline std::uint64_t now_ns()
{
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000u +
           static_cast<std::uint64_t>(now.tv_nsec);
}

/// As std::condition_variable.
class condition
{
public:
    void notify_all() { pthread_cond_broadcast(&condition_); }

    /// @param ns  at most so long
    void wait_for(std::unique_lock<std::mutex> &lock, std::uint64_t ns)
    {
        timespec until{};
        clock_gettime(CLOCK_MONOTONIC, &until);
        ns += static_cast<std::uint64_t>(until.tv_nsec);
        until.tv_sec += static_cast<time_t>(ns / 1000000000u);
        until.tv_nsec = static_cast<long>(ns % 1000000000u);
        pthread_cond_clockwait(&condition_, lock.mutex()->native_handle(),
                               CLOCK_MONOTONIC, &until);
    }

    template <typename Predicate>
    void wait(std::unique_lock<std::mutex> &lock, Predicate done)
    {
        while (!done())
            pthread_cond_wait(&condition_, lock.mutex()->native_handle());
    }

private:
    pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
};

/// A thread that gets no signals: those are the program's affair.
class thread
{
public:
    bool running() const { return running_; }

    bool start(void *(*run)(void *), void *argument)
    {
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        running_ = pthread_create(&thread_, nullptr, run, argument) == 0;
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return running_;
    }

    void join()
    {
        if (running_)
            pthread_join(thread_, nullptr);
        running_ = false;
    }

private:
    pthread_t thread_{};
    bool running_ = false;
};

} // namespace emuv::cuda
