// SPDX-License-Identifier: LGPL-2.1-or-later
// Functions of a driver that is newer than our headers. A runtime asks for all
// that it knows of, and calls few. So each that matters is behind a stub, which
// tells of the first call, or of each.
#include "hooks/session.hpp"
#include "interpose/message.hpp"

#include <atomic>
#include <cstring>

// Generated: the stubs, and the function that each goes on to.
extern "C" {
[[gnu::visibility("hidden")]] extern void *const emuv_newer_stubs[];
[[gnu::visibility("hidden")]] extern void *emuv_newer[];
}

namespace emuv::cuda {

namespace {

struct newer
{
    char name[64] = {};
    newer_does does{};
    std::atomic<void *> real = nullptr; // written last
};

newer all[EMUV_NEWER_STUBS];
std::atomic<unsigned> taken;

void tell_uncounted(const char *name)
{
    static std::atomic<bool> said;
    if (!said.exchange(true))
        say("%s is newer than this library: what it allocates is not counted",
            name);
}

void called(const char *name, newer_does what)
{
    if (what.allocate)
        tell_uncounted(name);
    if (what.work)
        work_unseen(name);
    if (!what.wait)
        return;
    const entry ours;
    if (ours)
        ours->stream_waits();
}

} // namespace

void *newer_function(const char *name, void *real, newer_does what)
{
    // Two threads may make two stubs for one function, which is as good.
    for (unsigned i = 0; i < EMUV_NEWER_STUBS && i < taken; i++)
        if (all[i].real.load(std::memory_order_acquire) == real)
            return emuv_newer_stubs[i];
    const unsigned mine = taken.fetch_add(1);
    if (mine >= EMUV_NEWER_STUBS) {
        taken = EMUV_NEWER_STUBS;
        what.work = what.work || what.wait; // nobody sees its calls
        what.wait = false;
        called("a function", what);
        return real;
    }
    std::strncpy(all[mine].name, name, sizeof all[mine].name - 1);
    all[mine].does = what;
    all[mine].real.store(real, std::memory_order_release);
    return emuv_newer_stubs[mine];
}

} // namespace emuv::cuda

using namespace emuv::cuda;

extern "C" {
void *emuv_resolve_newer(unsigned index);
void *emuv_resolve_newer(unsigned index)
{
    const newer &which = all[index];
    void *const real = which.real.load(std::memory_order_acquire);
    called(which.name, which.does);
    if (!which.does.wait)
        __atomic_store_n(&emuv_newer[index], real, __ATOMIC_RELAXED);
    return real;
}
}
