// SPDX-License-Identifier: LGPL-2.1-or-later
// PyTorch's caching allocator makes large allocations, divides them, and frees
// none. It reports each part that it hands out or takes back to its profiler,
// by a function of another library. So the function here is found first.
#include "base/glibc.hpp"
#include "hooks/callers.hpp"
#include "hooks/recording.hpp"
#include "hooks/session.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <dlfcn.h>

using namespace emuv::cuda;

namespace c10 {

/// PyTorch's: a kind and an index, of a byte each. They arrive in one register,
/// and go on so.
struct Device
{
    std::uint64_t bits;
};

/// PyTorch 2.0 and later. Earlier ones that report the addresses of parts have
/// signed numbers in the middle.
/// @param bytes  of the part at @p at; below 0 where it is taken back
[[gnu::visibility("default")]] void
reportMemoryUsageToProfiler(void *at, std::int64_t bytes, std::size_t allocated,
                            std::size_t reserved, Device device);
[[gnu::visibility("default")]] void
reportMemoryUsageToProfiler(void *at, std::int64_t bytes,
                            std::int64_t allocated, std::int64_t reserved,
                            Device device);

} // namespace c10

namespace {

using report = void(void *, std::int64_t, std::size_t, std::size_t,
                    c10::Device);
using earlier_report = void(void *, std::int64_t, std::int64_t, std::int64_t,
                            c10::Device);
constinit std::atomic<report *> real{nullptr};
constinit std::atomic<earlier_report *> earlier_real{nullptr};
constexpr const char *name =
    "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
constexpr const char *earlier_name =
    "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE";

// PyTorch's own function: in the library that has it by its usual name, or in
// one that the caller names. That stays open, as PyTorch does.
template <typename Function>
Function *look_up(std::atomic<Function *> &known, const char *symbol,
                  const void *caller)
{
    Function *found = known.load(std::memory_order_acquire);
    if (found != nullptr)
        return found;
    Dl_info from{};
    void *library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr && caller != nullptr && dladdr(caller, &from) != 0 &&
        from.dli_fname != nullptr)
        library = dlopen(from.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr)
        return nullptr;
    found = reinterpret_cast<Function *>(dlsym(library, symbol));
    known.store(found, std::memory_order_release);
    return found;
}

// The mover of a device, or all of them.
void note(const state &ours, unsigned device, CUdeviceptr at,
          std::int64_t bytes)
{
    const bool is_known = device < ours.movers.size();
    for (std::size_t i = is_known ? device : 0;
         i < (is_known ? device + 1 : ours.movers.size()); i++)
        if (bytes > 0)
            ours.movers[i]->hand_out(at, static_cast<std::uint64_t>(bytes));
        else
            ours.movers[i]->take_back(at, static_cast<std::uint64_t>(-bytes));
}

// Others report, too: of the host's memory, and of memory that they share.
void note(const void *caller, void *at, std::int64_t bytes, c10::Device device)
{
    if (!is_in_caching_allocator(caller))
        return;
    const entry ours;
    record_part(reinterpret_cast<CUdeviceptr>(at), bytes);
    if (ours && ours->asked.cached == cached_kind::free)
        note(*ours.operator->(), device.bits >> 8 & 0xff,
             reinterpret_cast<CUdeviceptr>(at), bytes);
}

} // namespace

void emuv::cuda::prepare_frameworks()
{
    look_up(real, name, nullptr);
    look_up(earlier_real, earlier_name, nullptr);
}

void c10::reportMemoryUsageToProfiler(void *at, std::int64_t bytes,
                                      std::size_t allocated,
                                      std::size_t reserved, Device device)
{
    const void *const caller = __builtin_return_address(0);
    note(caller, at, bytes, device);
    if (report *const call = look_up(real, name, caller))
        call(at, bytes, allocated, reserved, device);
}

void c10::reportMemoryUsageToProfiler(void *at, std::int64_t bytes,
                                      std::int64_t allocated,
                                      std::int64_t reserved, Device device)
{
    const void *const caller = __builtin_return_address(0);
    note(caller, at, bytes, device);
    if (earlier_report *const call =
            look_up(earlier_real, earlier_name, caller))
        call(at, bytes, allocated, reserved, device);
}
