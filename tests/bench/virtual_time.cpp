// SPDX-License-Identifier: GPL-2.0-or-later
// Time and threads of a simulation, in place of the system's
// (base/thread.cpp). One thread runs at a time, and time stands still
// meanwhile. Once all of them wait, time is that of the first wait to end. So a
// run takes the same course each time, however busy the machine is.
//
// All threads of a program that links this come from emuv::cuda::thread. A
// thread that sleeps may hold a mutex. So the program is linked with --wrap for
// the two functions below.
#include "virtual_time.hpp"

#include "base/thread.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

// As the linker names them.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" int __real_pthread_mutex_unlock(pthread_mutex_t *which);
extern "C" int __wrap_pthread_mutex_lock(pthread_mutex_t *which);
extern "C" int __wrap_pthread_mutex_unlock(pthread_mutex_t *which);
// NOLINTEND(bugprone-reserved-identifier)

namespace {

constexpr std::uint64_t never = UINT64_MAX;

// From a notification until the thread runs. With none, two threads that wait
// and notify each other would keep time from going on.
constexpr std::uint64_t wake_ns = 1000;

// A thread. All of them belong to the one that runs.
struct runner
{
    std::atomic<std::uint32_t> turn{0}; // 1: it is this one's
    const void *awaits = nullptr;       // a word, a mutex, a thread's end
    std::uint64_t wakes_ns = never;
    bool over = false;
    void *(*run)(void *) = nullptr;
    void *argument = nullptr;
    pthread_t id{};
};

runner first; // the program's own
std::vector<runner *> all{&first};
std::deque<runner *> ready; // those that wait for nothing but their turn
std::uint64_t time_ns = 1000000000;
unsigned locking = 0; // how many wait for a mutex
std::uint64_t turn_count = 0;
thread_local runner *self = &first;

void make_ready(runner &which)
{
    which.awaits = nullptr;
    which.wakes_ns = never;
    ready.push_back(&which);
}

void wake(const void *awaited)
{
    for (runner *each : all)
        if (each->awaits == awaited)
            make_ready(*each);
}

// The thread whose turn is next; time goes on if need be.
runner &take_next()
{
    if (ready.empty()) {
        std::uint64_t until = never;
        for (const runner *each : all)
            until = std::min(until, each->wakes_ns);
        if (until == never) {
            std::fputs("virtual time: all threads wait for each other\n",
                       stderr);
            std::abort();
        }
        time_ns = until;
        for (runner *each : all)
            if (each->wakes_ns == until)
                make_ready(*each);
    }
    runner &next = *ready.front();
    ready.pop_front();
    turn_count++;
    return next;
}

void give_turn(runner &next)
{
    next.turn.store(1);
    syscall(SYS_futex, &next.turn, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
            nullptr, 0);
}

void await_turn()
{
    while (self->turn.exchange(0) == 0)
        syscall(SYS_futex, &self->turn, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr,
                0);
}

// So much later; never, if that is beyond all time.
std::uint64_t after(std::uint64_t ns)
{
    return time_ns + std::min(ns, never - time_ns);
}

// Has the others run until something is woken, or it is so late.
void await(const void *what, std::uint64_t until_ns)
{
    self->awaits = what;
    self->wakes_ns = until_ns;
    runner &next = take_next();
    if (&next == self)
        return;
    give_turn(next);
    await_turn();
}

void *run(void *which)
{
    self = static_cast<runner *>(which);
    await_turn();
    void *const out = self->run(self->argument);
    self->over = true;
    wake(self);
    give_turn(take_next());
    return out;
}

} // namespace

std::uint64_t bench::turns()
{
    return turn_count;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *which)
{
    int result = 0;
    while ((result = pthread_mutex_trylock(which)) == EBUSY) {
        locking++;
        await(which, never);
        locking--;
    }
    return result;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *which)
{
    const int result = __real_pthread_mutex_unlock(which);
    if (locking > 0)
        wake(which);
    return result;
}

namespace emuv::cuda {

std::uint64_t now_ns()
{
    return time_ns;
}

void sleep_ns(std::uint64_t ns)
{
    await(nullptr, after(ns));
}

void sleep_on(std::atomic<std::uint32_t> &word, std::uint32_t value,
              std::uint64_t most_ns)
{
    if (word.load() == value)
        await(&word, after(most_ns));
}

void wake_all(std::atomic<std::uint32_t> &word)
{
    for (runner *each : all)
        if (each->awaits == &word) {
            each->awaits = nullptr;
            each->wakes_ns = std::min(each->wakes_ns, after(wake_ns));
        }
}

bool thread::start(void *(*begin)(void *), void *argument)
{
    auto *const made = new runner; // until it is joined
    made->run = begin;
    made->argument = argument;
    running_ = pthread_create(&thread_, nullptr, run, made) == 0;
    if (!running_) {
        delete made;
        return false;
    }
    made->id = thread_;
    all.push_back(made);
    make_ready(*made);
    return true;
}

void thread::join()
{
    if (!running_)
        return;
    const auto which =
        std::find_if(all.begin(), all.end(), [this](const runner *each) {
            return pthread_equal(each->id, thread_) != 0;
        });
    runner *const gone = *which;
    if (!gone->over)
        await(gone, never);
    pthread_join(thread_, nullptr);
    std::erase(all, gone);
    delete gone;
    running_ = false;
}

} // namespace emuv::cuda
