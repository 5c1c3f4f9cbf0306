// SPDX-License-Identifier: LGPL-2.1-or-later
// PyTorch's caching allocator makes large allocations, divides them, and frees
// none. It reports each part that it hands out or takes back to its profiler,
// by a function of another library. So the function here is found first.
#include "hooks/callers.hpp"
#include "hooks/session.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <dlfcn.h>

using namespace emuv::cuda;

namespace c10 {

/// PyTorch's: two small numbers, which arrive in one register and go on so.
struct Device
{
    std::uint64_t bits;
};

/// PyTorch 1.13 and later.
/// @param bytes  of the part at @p at; below 0 where it is taken back
[[gnu::visibility("default")]] void
reportMemoryUsageToProfiler(void *at, std::int64_t bytes, std::size_t allocated,
                            std::size_t reserved, Device device);

/// The same of earlier ones.
[[gnu::visibility("default")]] void
reportMemoryUsageToProfiler(void *at, std::int64_t bytes, Device device);

} // namespace c10

namespace {

// The library of PyTorch's own functions. They are looked for once, at the
// first report: of the host's memory, long before anybody waits for the
// allocator.
constexpr const char *owner = "libc10.so";

template <typename Function>
Function *look_up(std::atomic<Function *> &known, const char *symbol)
{
    Function *found = known.load(std::memory_order_acquire);
    if (found != nullptr)
        return found;
    void *const library = dlopen(owner, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr)
        return nullptr;
    found = reinterpret_cast<Function *>(dlsym(library, symbol));
    dlclose(library); // whoever calls this has it open
    known.store(found, std::memory_order_release);
    return found;
}

// Others report, too: of the host's memory, and of memory that they share.
void note(const void *caller, void *at, std::int64_t bytes)
{
    if (!is_in_caching_allocator(caller))
        return;
    const entry ours;
    if (!ours || ours->asked.cached == cached_kind::used)
        return;
    const auto address = reinterpret_cast<CUdeviceptr>(at);
    for (mover *each : ours->movers)
        if (bytes > 0)
            each->hand_out(address, static_cast<std::uint64_t>(bytes));
        else
            each->take_back(address, static_cast<std::uint64_t>(-bytes));
}

using report = void(void *, std::int64_t, std::size_t, std::size_t,
                    c10::Device);
using earlier_report = void(void *, std::int64_t, c10::Device);
constinit std::atomic<report *> real{nullptr};
constinit std::atomic<earlier_report *> earlier_real{nullptr};

} // namespace

void c10::reportMemoryUsageToProfiler(void *at, std::int64_t bytes,
                                      std::size_t allocated,
                                      std::size_t reserved, Device device)
{
    note(__builtin_return_address(0), at, bytes);
    if (report *const call = look_up(
            real, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"))
        call(at, bytes, allocated, reserved, device);
}

void c10::reportMemoryUsageToProfiler(void *at, std::int64_t bytes,
                                      Device device)
{
    note(__builtin_return_address(0), at, bytes);
    if (earlier_report *const call =
            look_up(earlier_real,
                    "_ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE"))
        call(at, bytes, device);
}
