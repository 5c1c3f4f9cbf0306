// SPDX-License-Identifier: GPL-2.0-or-later
// Start-up, the way into entry points, and the interface for tests.
#include "state.hpp"

#include "array.hpp"
#include "graph.hpp"
#include "module.hpp"

#include <cstdlib>
#include <cstring>
#include <string_view>

#include <pthread.h>

namespace sim {

namespace {

std::atomic<bool> forked = false;

std::size_t size_from(const char *name, std::size_t otherwise)
{
    const char *text = std::getenv(name);
    if (!text || !*text)
        return otherwise;
    char *end = nullptr;
    std::size_t value = std::strtoull(text, &end, 10);
    switch (*end) {
    case 'G':
    case 'g':
        return value << 30;
    case 'M':
    case 'm':
        return value << 20;
    case 'K':
    case 'k':
        return value << 10;
    default:
        return value;
    }
}

// "cuMemcpyHtoD_v2_ptds" is cuMemcpyHtoD to everybody.
std::string_view plain(std::string_view name)
{
    for (std::string_view suffix : {"_ptsz", "_ptds"})
        if (name.ends_with(suffix))
            name.remove_suffix(suffix.size());
    if (name.size() > 3 && name[name.size() - 3] == '_' &&
        name[name.size() - 2] == 'v')
        name.remove_suffix(3);
    return name;
}

bool takes_memory(std::string_view name)
{
    for (std::string_view one :
         {"cuMemAlloc", "cuMemAllocPitch", "cuMemAllocManaged",
          "cuMemAllocHost", "cuMemHostAlloc", "cuMemHostRegister",
          "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemAddressReserve",
          "cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemPoolCreate",
          "cuArrayCreate", "cuArray3DCreate", "cuMemImportFromShareableHandle"})
        if (name == one)
            return true;
    return false;
}

} // namespace

state::state() : host("emuv-sim-host-store", 1U << 19, true) {}

state &the()
{
    // Never destroyed: streams' threads may outlive main().
    static state *one = new state;
    return *one;
}

CUresult state::initialise()
{
    if (initialised)
        return CUDA_SUCCESS;
    const std::size_t vram =
        size_from("EMUV_SIM_VRAM", std::size_t{256} << 20) / frame_bytes *
        frame_bytes;
    const std::size_t count = size_from("EMUV_SIM_DEVICES", 1);
    host_numa = size_from("EMUV_SIM_HOST_NUMA", 1) != 0;
    apart = static_cast<int>(size_from("EMUV_SIM_APART", 16));
    context_frames =
        round_up(size_from("EMUV_SIM_CONTEXT", 0), frame_bytes) / frame_bytes;
    lag = std::chrono::microseconds(size_from("EMUV_SIM_LAG", 0));
    if (vram == 0 || count == 0 || count > 16)
        return CUDA_ERROR_NO_DEVICE;
    space.open();
    for (std::size_t i = 0; i < count; ++i)
        devices.push_back(std::make_unique<device>(static_cast<int>(i), vram));
    pthread_atfork(nullptr, nullptr, [] { forked = true; });
    initialised = true;
    return CUDA_SUCCESS;
}

call::call(const char *name, need what)
{
    if (forked) { // as with a card: the child has no driver
        error = CUDA_ERROR_NOT_INITIALIZED;
        return;
    }
    state &s = the();
    lock = std::unique_lock(s.mutex);
    const std::string_view known = plain(name);
    auto found = s.calls.find(known);
    if (found == s.calls.end())
        found = s.calls.emplace(known, 0).first;
    ++found->second;

    if (what != need::nothing && !s.initialised) {
        error = CUDA_ERROR_NOT_INITIALIZED;
        return;
    }
    if (s.fail_in &&
        (s.fail_name.empty() ? takes_memory(known) : known == s.fail_name) &&
        --s.fail_in == 0) {
        error = s.fail_with;
        return;
    }
    auto &stack = context_stack();
    if (!stack.empty())
        current = stack.back();
    if (what != need::context)
        return;
    if (!current)
        error = CUDA_ERROR_INVALID_CONTEXT;
    else if (!current->alive)
        error = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    else
        error = current->lost;
}

} // namespace sim

const emuv_sim_api *emuv_sim_get()
{
    using namespace sim;
    static const emuv_sim_api api = {
        [](const char *name) -> std::uint64_t {
            std::lock_guard lock(the().mutex);
            auto found = the().calls.find(std::string_view(name));
            return found == the().calls.end() ? 0 : found->second;
        },
        [](emuv_sim_copied *out) {
            std::lock_guard lock(the().mutex);
            *out = the().copied;
        },
        [](const char *name, unsigned nth, int result) {
            std::lock_guard lock(the().mutex);
            the().fail_name = name ? name : "";
            the().fail_in = nth;
            the().fail_with = static_cast<CUresult>(result);
        },
        [](int ordinal) -> std::uint64_t {
            std::lock_guard lock(the().mutex);
            const device *one = the().device_at(ordinal);
            return one ? one->vram.used() * frame_bytes : 0;
        },
        []() -> std::uint64_t {
            std::lock_guard lock(the().mutex);
            return the().host.used() * frame_bytes;
        },
        []() -> std::size_t {
            std::lock_guard lock(the().mutex);
            return the().space.reservation_count();
        },
        []() -> std::size_t {
            std::lock_guard lock(the().mutex);
            return the().space.mappings.size();
        },
    };
    return &api;
}
