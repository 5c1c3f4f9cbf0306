// SPDX-License-Identifier: LGPL-2.1-or-later
// VRAM that holds nothing at the moment, for the units that come next.
#include "movement/frames.hpp"

#include "base/thread.hpp"
#include "store/mapping.hpp"
#include "store/store.hpp"

#include <algorithm>

namespace emuv::cuda {

std::uint64_t frames::below() const
{
    const std::uint64_t then = refused_ns_.load();
    const bool lately = then != 0 && now_ns() - then < ask_again_ns_;
    return lately ? refused_bytes_.load() : UINT64_MAX;
}

bool frames::take(std::uint64_t bytes, frame &out, std::vector<frame> &gone)
{
    const auto same =
        std::find_if(free_.begin(), free_.end(),
                     [&](const frame &each) { return each.bytes == bytes; });
    if (same != free_.end()) {
        out = *same;
        free_.erase(same);
        return true;
    }
    std::uint64_t free_bytes =
        budget_.ledger_of(device_).read().physical_free_bytes();
    if (bytes >= below() || free_bytes + this->bytes() < bytes)
        return false;
    while (free_bytes < bytes) {
        // The smallest that is enough, else the largest.
        const auto first = std::min_element(
            free_.begin(), free_.end(), [&](const frame &a, const frame &b) {
                const bool enough = free_bytes + a.bytes >= bytes;
                if (enough != (free_bytes + b.bytes >= bytes))
                    return enough;
                return enough ? a.bytes < b.bytes : a.bytes > b.bytes;
            });
        free_bytes += first->bytes;
        gone.push_back(*first);
        free_.erase(first);
    }
    out = {0, 0, bytes};
    return true;
}

bool frames::complete(frame &of, const std::vector<frame> &gone, bool filled)
{
    drop(gone);
    if (of.handle == 0) {
        if (!budget_.charge_free_vram(device_, of.bytes))
            return refuse(of);
        const auto properties =
            properties_of(CU_MEM_LOCATION_TYPE_DEVICE, device_);
        if (calls_.cuMemCreate(&of.handle, of.bytes, &properties, 0) !=
            CUDA_SUCCESS) {
            budget_.uncharge_vram(device_, of.bytes);
            return refuse(of);
        }
    }
    if (!filled || of.alias != 0)
        return true;
    of.alias = map_alias(calls_, of.handle, of.bytes, device_);
    if (of.alias != 0)
        return true;
    drop(of);
    return refuse(of);
}

// Takes note of the size that was refused.
bool frames::refuse(frame &which)
{
    refused_bytes_.store(which.bytes);
    refused_ns_.store(now_ns());
    which = {};
    return false;
}

void frames::drop(const frame &which)
{
    unmap_alias(calls_, which.alias, which.bytes);
    calls_.cuMemRelease(which.handle);
    budget_.uncharge_vram(device_, which.bytes);
}

void frames::drop(const std::vector<frame> &all)
{
    for (const frame &each : all)
        drop(each);
}

std::uint64_t frames::bytes(std::uint64_t size) const
{
    std::uint64_t sum = 0;
    for (const frame &each : free_)
        sum += each.bytes == size ? size : 0;
    return sum;
}

std::uint64_t frames::bytes() const
{
    std::uint64_t sum = 0;
    for (const frame &each : free_)
        sum += each.bytes;
    return sum;
}

} // namespace emuv::cuda
