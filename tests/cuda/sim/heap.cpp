// SPDX-License-Identifier: GPL-2.0-or-later
// First fit, with neighbours joined when they are freed.
#include "heap.hpp"

#include "state.hpp"

#include <sys/mman.h>

namespace sim {

std::uintptr_t heap::allocate(std::size_t bytes)
{
    if (bytes > address_space::arena_bytes) // rounding up would wrap around
        return 0;
    bytes = round_up(bytes, piece_bytes);
    for (auto &[base, s] : segments_) {
        for (auto &[at, room] : s.free) {
            if (room < bytes)
                continue;
            const std::uintptr_t block = at;
            const std::size_t rest = room - bytes;
            s.free.erase(at);
            if (rest)
                s.free[block + bytes] = rest;
            used_ += bytes;
            return block;
        }
    }

    segment fresh;
    fresh.bytes = round_up(bytes, frame_bytes);
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device_.ordinal;
    fresh.memory = physical::create(device_.vram, fresh.bytes, prop);
    if (!fresh.memory)
        return 0;
    std::uintptr_t base =
        the().space.reserve(fresh.bytes, frame_bytes, 0, false);
    if (!base)
        return 0;
    if (!fresh.memory->map(base, fresh.bytes, PROT_READ | PROT_WRITE)) {
        the().space.unreserve(base);
        return 0;
    }
    if (fresh.bytes != bytes)
        fresh.free[base + bytes] = fresh.bytes - bytes;
    reserved_ += fresh.bytes;
    used_ += bytes;
    segments_[base] = std::move(fresh);
    return base;
}

void heap::release(std::uintptr_t base, std::size_t bytes)
{
    bytes = round_up(bytes, piece_bytes);
    segment &s = std::prev(segments_.upper_bound(base))->second;
    used_ -= bytes;
    auto after = s.free.lower_bound(base);
    if (after != s.free.end() && after->first == base + bytes) {
        bytes += after->second;
        after = s.free.erase(after);
    }
    if (after != s.free.begin()) {
        auto before = std::prev(after);
        if (before->first + before->second == base) {
            before->second += bytes;
            return;
        }
    }
    s.free[base] = bytes;
}

heap::location heap::location_at(std::uintptr_t at) const
{
    const auto &[base, s] = *std::prev(segments_.upper_bound(at));
    return {s.memory, at - base};
}

heap::segments::iterator heap::drop(segments::iterator which)
{
    reserved_ -= which->second.bytes;
    the().space.unreserve(which->first);
    return segments_.erase(which);
}

void heap::trim(std::size_t keep)
{
    for (auto s = segments_.begin();
         s != segments_.end() && reserved_ > keep;) {
        const auto &free = s->second.free;
        const bool empty =
            free.size() == 1 && free.begin()->second == s->second.bytes;
        s = empty ? drop(s) : std::next(s);
    }
}

void heap::clear()
{
    for (auto s = segments_.begin(); s != segments_.end();)
        s = drop(s);
    used_ = 0;
}

} // namespace sim
