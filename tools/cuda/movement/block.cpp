// SPDX-License-Identifier: LGPL-2.1-or-later
// Allocations whose units come and go, and the parts of them that work touches.
#include "movement/block.hpp"

#include "base/size.hpp"

namespace emuv::cuda {

void slot::take_room_of(slot &other)
{
    host = std::exchange(other.host, {});
    room_is_known = other.room_is_known = false;
}

void block::add(const slot &one)
{
    if (slots.empty())
        unit_bytes = one.bytes;
    alike += alike == slots.size() && one.bytes == unit_bytes ? 1 : 0;
    slots.push_back(one);
    marks.push_back({one.bytes, 0, {}});
    in_ram += one.in_ram() ? 1 : 0;
}

void block::put(slot &one, place where)
{
    in_ram -= one.in_ram() ? 1 : 0;
    one.where = where;
    in_ram += one.in_ram() ? 1 : 0;
}

void block::has_come(slot &one)
{
    fresh += one.fresh ? 0 : 1;
    one.fresh = true;
}

void block::used()
{
    if (fresh == 0)
        return;
    fresh = 0;
    for (slot &each : slots)
        each.fresh = false;
}

bool block::mapped() const
{
    return away == 0 && (moving == 0 || std::none_of(slots.begin(), slots.end(),
                                                     [](const slot &each) {
                                                         return each.unmapped;
                                                     }));
}

void block::call_off()
{
    if (moving == 0)
        return;
    for (slot &each : slots)
        each.cancel = true;
}

void block::hold_still()
{
    fixed = true;
    call_off();
}

void block::may_change()
{
    if (in_ram == 0)
        return;
    for (slot &each : slots)
        if (each.in_ram())
            each.room_is_known = false;
}

void block::discard(slot &one)
{
    dead = true;
    one.blank = true;
    one.room_is_known = false;
}

void block::revive()
{
    if (!dead)
        return;
    dead = false;
    for (slot &each : slots) {
        // As in occupy(): it must not leave without its contents.
        each.cancel =
            each.cancel || (each.blank && each.where == place::evicting);
        each.blank = each.blank && each.away;
    }
}

void block::vacate()
{
    vacant = true;
    renewed = dead = false;
    for (slot &each : slots) {
        each.blank = true;
        each.room_is_known = false;
    }
}

void block::occupy()
{
    vacant = false;
    renewed = true;
    starts.clear(); // the next one is divided in its own way
    for (slot &each : slots) {
        // A unit on its way out would leave without its contents, which count
        // from here on.
        each.cancel = each.cancel || each.where == place::evicting;
        each.blank = each.away;
        each.made = false;
        each.gets_dirty = true;
    }
}

std::uint32_t block::unit_at(std::uint64_t offset) const
{
    if (offset / unit_bytes < alike)
        return static_cast<std::uint32_t>(offset / unit_bytes);
    const auto after =
        std::upper_bound(slots.begin(), slots.end(), base + offset,
                         [](CUdeviceptr a, const slot &b) { return a < b.at; });
    return static_cast<std::uint32_t>(after - slots.begin() - 1);
}

touch block::touched_from(CUdeviceptr address)
{
    const std::uint64_t offset = address - base;
    auto next = std::upper_bound(starts.begin(), starts.end(), offset);
    if (next == starts.begin() || *std::prev(next) != offset) {
        // Offsets that never come again tell of no end.
        if (starts.size() >= max_starts) {
            starts.clear();
            next = starts.begin();
        }
        next = std::next(starts.insert(next, offset));
    }
    // A view of a matrix's columns begins within a row.
    const std::uint64_t near = std::min(chunk_bytes, unit_bytes / 16);
    next = std::lower_bound(next, starts.end(), offset + near);
    const std::uint64_t end = next == starts.end() ? bytes : *next;
    return {base, unit_at(offset), unit_at(end - 1)};
}

void block::give(CUdeviceptr address)
{
    if (!fixed && address != base)
        given.add(address - base, bytes);
}

bool block::is_given(CUdeviceptr address) const
{
    return address == base || given.has(address - base);
}

std::uint64_t block::ram_bytes(std::size_t first, std::size_t end) const
{
    std::uint64_t sum = 0;
    for (std::size_t i = first; in_ram > 0 && i < end; i++)
        sum += slots[i].in_ram() ? slots[i].bytes : 0;
    return sum;
}

std::uint64_t missing_bytes(const std::vector<touched> &all)
{
    std::uint64_t bytes = 0;
    for (const touched &each : all) {
        if (each.of->fixed || !each.says_what())
            continue;
        const auto [first, end] = each.units();
        bytes += each.of->ram_bytes(first, end);
    }
    return bytes;
}

} // namespace emuv::cuda
