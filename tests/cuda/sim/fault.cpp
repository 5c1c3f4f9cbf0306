// SPDX-License-Identifier: GPL-2.0-or-later
// The signal handler behind CUDA_ERROR_ILLEGAL_ADDRESS.
#include "fault.hpp"

#include <csetjmp>
#include <csignal>

namespace sim {

namespace {

// Written once, before any thread can fault.
std::uintptr_t range_base;
std::size_t range_bytes;
struct sigaction before_segv;
struct sigaction before_bus;

thread_local sigjmp_buf *way_out;

void handle(int number, siginfo_t *info, void *ucontext)
{
    auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    if (way_out && address - range_base < range_bytes)
        siglongjmp(*way_out, 1);

    const struct sigaction &before =
        number == SIGBUS ? before_bus : before_segv;
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(number, info, ucontext);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(number);
    else
        // The access is made again on return, and now takes its course.
        sigaction(number, &before, nullptr);
}

} // namespace

void catch_faults(std::uintptr_t base, std::size_t bytes)
{
    range_base = base;
    range_bytes = bytes;
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &before_segv);
    sigaction(SIGBUS, &action, &before_bus);
}

bool run_guarded(const std::function<void()> &work)
{
    sigjmp_buf here;
    if (sigsetjmp(here, 1) != 0) {
        way_out = nullptr;
        return false;
    }
    way_out = &here;
    work();
    way_out = nullptr;
    return true;
}

} // namespace sim
