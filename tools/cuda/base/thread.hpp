// SPDX-License-Identifier: LGPL-2.1-or-later
// A thread and a condition to wait for: those of the standard library need a
// newer glibc than the library may.
#pragma once

#include "base/glibc.hpp"

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>
#include <mutex>

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

__asm__(".symver pthread_create, pthread_create@" EMUV_OLDEST_GLIBC);
__asm__(".symver pthread_join, pthread_join@" EMUV_OLDEST_GLIBC);
__asm__(
    ".symver pthread_mutex_trylock, pthread_mutex_trylock@" EMUV_OLDEST_GLIBC);
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

/// For a loop that waits for another processor for a moment.
inline void pause_cpu()
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/// Locks a mutex that others hold for a moment. A thread that sleeps at once
/// costs the holder a system call to wake it, on the path of launches.
/// @param tries  before it sleeps after all; 100 take a few microseconds
inline void lock_soon(std::unique_lock<std::mutex> &lock, unsigned tries = 100)
{
    for (unsigned i = 0; i < tries; i++) {
        if (lock.try_lock())
            return;
        pause_cpu();
    }
    lock.lock();
}

/// The same, for as long as the returned lock is kept.
[[nodiscard]] inline std::unique_lock<std::mutex> lock_soon(std::mutex &what)
{
    std::unique_lock lock(what, std::defer_lock);
    lock_soon(lock);
    return lock;
}

/// As std::condition_variable, but a woken thread locks like any other. POSIX's
/// takes the mutex as if others slept for it, and wakes them in vain at each
/// unlock.
class condition
{
public:
    void notify_all()
    {
        turn_.fetch_add(1);
        if (waiters_.load() > 0)
            syscall(SYS_futex, &turn_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
                    nullptr, 0);
    }

    /// @param ns  at most so long
    void wait_for(std::unique_lock<std::mutex> &lock, std::uint64_t ns)
    {
        const timespec most{static_cast<time_t>(ns / 1000000000u),
                            static_cast<long>(ns % 1000000000u)};
        sleep(lock, &most);
    }

    template <typename Predicate>
    void wait(std::unique_lock<std::mutex> &lock, Predicate done)
    {
        while (!done())
            sleep(lock, nullptr);
    }

private:
    // Sleeps until the next turn, or wakes for no reason.
    void sleep(std::unique_lock<std::mutex> &lock, const timespec *most)
    {
        waiters_.fetch_add(1);
        const std::uint32_t seen = turn_.load();
        lock.unlock();
        syscall(SYS_futex, &turn_, FUTEX_WAIT_PRIVATE, seen, most, nullptr, 0);
        waiters_.fetch_sub(1);
        lock_soon(lock);
    }

    std::atomic<std::uint32_t> turn_{0};
    std::atomic<std::uint32_t> waiters_{0};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

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
