// SPDX-License-Identifier: LGPL-2.1-or-later
// System RAM for units, whether they are there at the moment or not.
#include "rooms.hpp"

#include "mapping.hpp"
#include "store.hpp"
#include "thread.hpp"

#include <algorithm>

namespace emuv::cuda {

namespace {

constexpr std::uint64_t ask_again_ns = 1000000000;

} // namespace

bool rooms::make(std::uint64_t bytes, room &of)
{
    const bool is_new = of.handle == 0;
    if (!is_new || create(bytes, of)) {
        if (of.alias == 0)
            of.alias = map_alias(calls_, of.handle, bytes, device_);
        if (of.alias != 0)
            return true;
        if (is_new)
            drop(bytes, of);
    }
    refused_bytes_.store(std::min(bytes, below()));
    refused_ns_.store(now_ns());
    return false;
}

bool rooms::create(std::uint64_t bytes, room &of)
{
    if (!limits_.charge_virtual(bytes, of.token))
        return false;
    const auto properties = properties_of(CU_MEM_LOCATION_TYPE_HOST_NUMA,
                                          numa_node_of(calls_, device_));
    of.charged =
        calls_.cuMemCreate(&of.handle, bytes, &properties, 0) == CUDA_SUCCESS;
    if (!of.charged) {
        limits_.uncharge_virtual(bytes, of.token);
        of = {};
    }
    return of.charged;
}

void rooms::drop(std::uint64_t bytes, room &which)
{
    unmap_alias(calls_, which.alias, bytes);
    calls_.cuMemRelease(which.handle);
    if (which.charged)
        limits_.uncharge_virtual(bytes, which.token);
    which = {};
}

std::uint64_t rooms::below() const
{
    return now_ns() - refused_ns_.load() > ask_again_ns ? UINT64_MAX
                                                        : refused_bytes_.load();
}

} // namespace emuv::cuda
