// SPDX-License-Identifier: LGPL-2.1-or-later
// Time, a thread, and a condition to wait for: those of the standard library
// need a newer glibc than the library may. All time and all waits of movement
// come from here, so a simulation can put its own in their place
// (tests/bench/virtual_time.cpp).
#pragma once

#include "base/glibc.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>

#include <pthread.h>

__asm__(
    ".symver pthread_mutex_trylock, pthread_mutex_trylock@" EMUV_OLDEST_GLIBC);

namespace emuv::cuda {

/// Nanoseconds of the monotonic clock.
std::uint64_t now_ns();

/// Sleeps for so long.
void sleep_ns(std::uint64_t ns);

/// Sleeps while a word has this value, until it is woken. May also return for
/// no reason.
/// @param most_ns  at most so long; UINT64_MAX for no limit
void sleep_on(std::atomic<std::uint32_t> &word, std::uint32_t value,
              std::uint64_t most_ns);

/// Wakes all threads that sleep on a word.
void wake_all(std::atomic<std::uint32_t> &word);

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
            wake_all(turn_);
    }

    /// @param ns  at most so long
    void wait_for(std::unique_lock<std::mutex> &lock, std::uint64_t ns)
    {
        sleep(lock, ns);
    }

    template <typename Predicate>
    void wait(std::unique_lock<std::mutex> &lock, Predicate done)
    {
        while (!done())
            sleep(lock, UINT64_MAX);
    }

private:
    // Sleeps until the next turn, or wakes for no reason.
    void sleep(std::unique_lock<std::mutex> &lock, std::uint64_t most_ns)
    {
        waiters_.fetch_add(1);
        const std::uint32_t seen = turn_.load();
        lock.unlock();
        sleep_on(turn_, seen, most_ns);
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

    bool start(void *(*run)(void *), void *argument);
    void join();

private:
    pthread_t thread_{};
    bool running_ = false;
};

} // namespace emuv::cuda
