// SPDX-License-Identifier: LGPL-2.1-or-later
// System RAM for units, whether they are there at the moment or not.
#include "movement/rooms.hpp"

#include "base/thread.hpp"
#include "store/mapping.hpp"
#include "store/store.hpp"

namespace emuv::cuda {

bool rooms::make(std::uint64_t bytes, room &of)
{
    const bool is_new = of.handle == 0;
    if (is_new && !create(bytes, of))
        return false;
    if (of.alias == 0)
        of.alias = map_alias(calls_, of.handle, bytes, device_);
    if (of.alias != 0)
        return true;
    not_mapped_ns_.store(now_ns());
    if (is_new)
        drop(bytes, of);
    return false;
}

bool rooms::create(std::uint64_t bytes, room &of)
{
    if (bytes >= below())
        return false;
    while (const auto taken = budget_.charge_ram(device_, bytes)) {
        const auto properties = beyond_share(calls_, device_, taken->token);
        of.charged =
            create_handle(calls_, properties, bytes, of.handle) == CUDA_SUCCESS;
        of.token = taken->token;
        of.peer = peer_of(taken->token);
        if (of.charged)
            return true;
        if (!budget_.uncharge_lacking(device_, *taken))
            break;
    }
    of = {};
    refused_bytes_.store(bytes);
    refused_ns_.store(now_ns());
    return false;
}

void rooms::drop(std::uint64_t bytes, room &which)
{
    unmap_alias(calls_, which.alias, bytes);
    calls_.cuMemRelease(which.handle);
    if (which.charged)
        budget_.uncharge_ram(device_, {bytes, which.token});
    which = {};
}

bool rooms::is_recent(const std::atomic<std::uint64_t> &refused_ns) const
{
    const std::uint64_t then = refused_ns.load();
    return then != 0 && now_ns() - then <= ask_again_ns_;
}

std::uint64_t rooms::below() const
{
    return is_recent(refused_ns_) ? refused_bytes_.load() : UINT64_MAX;
}

bool rooms::maps() const
{
    return !is_recent(not_mapped_ns_);
}

} // namespace emuv::cuda
