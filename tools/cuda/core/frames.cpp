// SPDX-License-Identifier: LGPL-2.1-or-later
// VRAM that holds nothing at the moment, for what comes next.
#include "frames.hpp"

#include "mapping.hpp"
#include "store.hpp"

#include <algorithm>

namespace emuv::cuda {

bool frames::take(std::uint64_t bytes, frame &out)
{
    const auto same =
        std::find_if(free_.begin(), free_.end(),
                     [&](const frame &each) { return each.bytes == bytes; });
    if (same != free_.end()) {
        out = *same;
        free_.erase(same);
    } else {
        // Frames of other sizes make room, the largest first.
        while (!limits_.charge_physical(bytes)) {
            if (free_.empty() ||
                limits_.read().physical_free_bytes() + this->bytes() < bytes)
                return false;
            const auto largest = std::max_element(
                free_.begin(), free_.end(), [](const frame &a, const frame &b) {
                    return a.bytes < b.bytes;
                });
            drop(*largest);
            free_.erase(largest);
        }
        out = {0, 0, bytes};
        const auto properties =
            properties_of(CU_MEM_LOCATION_TYPE_DEVICE, device_);
        if (calls_.cuMemCreate(&out.handle, bytes, &properties, 0) !=
            CUDA_SUCCESS) {
            limits_.uncharge_physical(bytes);
            return false;
        }
    }
    if (out.alias == 0)
        out.alias = map_alias(calls_, out.handle, bytes, device_);
    if (out.alias != 0)
        return true;
    drop(out);
    out = {};
    return false;
}

void frames::drop(const frame &which)
{
    unmap_alias(calls_, which.alias, which.bytes);
    calls_.cuMemRelease(which.handle);
    limits_.uncharge_physical(which.bytes);
}

void frames::drop(const std::vector<frame> &all)
{
    for (const frame &each : all)
        drop(each);
}

std::uint64_t frames::bytes() const
{
    std::uint64_t sum = 0;
    for (const frame &each : free_)
        sum += each.bytes;
    return sum;
}

} // namespace emuv::cuda
