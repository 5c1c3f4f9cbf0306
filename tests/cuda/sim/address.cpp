// SPDX-License-Identifier: GPL-2.0-or-later
// The arena of device addresses.
#include "address.hpp"

#include "fault.hpp"
#include "state.hpp"

#include <cstdio>
#include <cstdlib>

#include <sys/mman.h>

namespace sim {

void address_space::open()
{
    void *got = mmap(nullptr, arena_bytes + frame_bytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) {
        std::perror("simulated CUDA driver: addresses");
        std::abort();
    }
    arena_ = round_up(reinterpret_cast<std::uintptr_t>(got), frame_bytes);
    next_ = arena_;
    catch_faults(arena_, arena_bytes);
}

std::uintptr_t address_space::reserve(std::size_t bytes, std::size_t alignment,
                                      std::uintptr_t wanted, bool by_user)
{
    const std::uintptr_t arena_end = arena_ + arena_bytes;
    auto fits = [&](std::uintptr_t base) {
        if (base < arena_ || base > arena_end || arena_end - base < bytes)
            return false;
        auto after = reserved_.lower_bound(base);
        if (after != reserved_.end() && after->first - base < bytes)
            return false;
        if (after == reserved_.begin())
            return true;
        const range &before = std::prev(after)->second;
        return before.base + before.bytes <= base;
    };
    auto take = [&](std::uintptr_t base) {
        reserved_[base] = range{base, bytes, by_user};
        return base;
    };
    if (wanted != 0 && wanted % alignment == 0 && fits(wanted))
        return take(wanted);

    for (std::uintptr_t start : {next_, arena_}) {
        std::uintptr_t base = round_up(start, alignment);
        while (base < arena_end && arena_end - base >= bytes) {
            if (fits(base)) {
                // A gap after each range shows a run over its end, even if
                // another begins soon after.
                next_ = base + bytes + frame_bytes;
                return take(base);
            }
            auto after = reserved_.upper_bound(base);
            std::uintptr_t past = base + alignment;
            if (after != reserved_.begin()) {
                const range &before = std::prev(after)->second;
                past = std::max(past, before.base + before.bytes);
            }
            if (after != reserved_.end() && after->first - base < bytes)
                past = std::max(past, after->first + after->second.bytes);
            base = round_up(past, alignment);
        }
    }
    return 0;
}

void address_space::unreserve(std::uintptr_t base)
{
    auto found = reserved_.find(base);
    clear(base, found->second.bytes);
    reserved_.erase(found);
}

address_space::range address_space::reservation(std::uintptr_t address) const
{
    auto after = reserved_.upper_bound(address);
    if (after == reserved_.begin())
        return {};
    const range &candidate = std::prev(after)->second;
    return address - candidate.base < candidate.bytes ? candidate : range{};
}

void address_space::clear(std::uintptr_t base, std::size_t bytes)
{
    if (!map_at(base, bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)) {
        std::perror("simulated CUDA driver: unmap");
        std::abort();
    }
}

mapping *address_space::find(std::uintptr_t address)
{
    auto after = mappings.upper_bound(address);
    if (after == mappings.begin())
        return nullptr;
    mapping &candidate = std::prev(after)->second;
    return address < candidate.end() ? &candidate : nullptr;
}

bool address_space::any(std::uintptr_t base, std::size_t bytes)
{
    if (find(base))
        return true;
    auto next = mappings.lower_bound(base);
    return next != mappings.end() && next->first - base < bytes;
}

mapping &address_space::add(mapping m)
{
    m.id = the().next_id();
    return mappings[m.base] = std::move(m);
}

} // namespace sim
