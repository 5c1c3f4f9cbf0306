// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory whose units come and go, and the parts of it that work touches.
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
    use_mark mark;
    mark.bytes = one.bytes;
    marks.push_back(mark);
    in_ram += one.in_ram() ? 1 : 0;
    if (lots.empty())
        lots.emplace_back();
    lots.back().end += one.bytes;
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

void block::used(const segment &those)
{
    for (std::size_t i = those.first; fresh > 0 && i < those.end; i++) {
        fresh -= slots[i].fresh ? 1 : 0;
        slots[i].fresh = false;
    }
}

bool block::mapped(const segment &those) const
{
    if (away == 0 && moving == 0)
        return true;
    for (std::size_t i = those.first; i < those.end; i++)
        if (slots[i].away || slots[i].unmapped)
            return false;
    return true;
}

void block::call_off(const segment &those)
{
    for (std::size_t i = those.first; moving > 0 && i < those.end; i++)
        slots[i].cancel = true;
}

void block::hold_still()
{
    fixed = true;
    call_off(all());
}

void block::may_change(const segment &those)
{
    for (std::size_t i = those.first; in_ram > 0 && i < those.end; i++)
        if (slots[i].in_ram())
            slots[i].room_is_known = false;
}

void block::discard(slot &one)
{
    dead = true;
    one.blank = true;
    one.room_is_known = false;
}

void block::revive(const segment &those)
{
    if (!dead)
        return;
    dead = those != all(); // others may be dead still
    for (std::size_t i = those.first; i < those.end; i++) {
        slot &each = slots[i];
        if (!each.blank || (each.lots == 0 && !each.read))
            continue;
        // As in occupy(): it must not leave without its contents.
        each.cancel = each.cancel || each.where == place::evicting;
        each.blank = each.away;
    }
}

std::size_t block::vacate(const lot &freed, bool read)
{
    std::size_t units = 0;
    const segment those = units_of(freed);
    for (std::size_t i = those.first; i < those.end; i++) {
        slot &each = slots[i];
        if (--each.lots > 0)
            continue;
        units++;
        renewed -= each.renewed ? 1 : 0;
        each.renewed = false;
        each.read = read;
        if (read)
            continue;
        each.blank = true;
        each.room_is_known = false;
    }
    auto at = lots.begin() + (&freed - lots.data());
    at->vacant = true;
    const auto join = [this](auto one) { // with the next one
        const auto next = std::next(one);
        if (next == lots.end() || !one->vacant || !next->vacant)
            return;
        one->end = next->end;
        lots.erase(next);
    };
    join(at);
    if (at != lots.begin())
        join(std::prev(at));
    return units;
}

std::size_t block::occupy(std::uint64_t begin, std::uint64_t end,
                          std::uint64_t identity)
{
    lot &around = lot_at(base + begin);
    const lot rest = around;
    around = {begin, end, identity, false};
    auto at = lots.begin() + (&around - lots.data());
    if (rest.end > end)
        at = std::prev(
            lots.insert(std::next(at), {end, rest.end, rest.identity, true}));
    if (rest.begin < begin)
        lots.insert(at, {rest.begin, begin, rest.identity, true});
    // The next one is divided in its own way.
    starts.erase(std::lower_bound(starts.begin(), starts.end(), begin),
                 std::lower_bound(starts.begin(), starts.end(), end));
    std::size_t units = 0;
    const segment those{unit_at(begin), unit_at(end - 1) + 1};
    for (std::size_t i = those.first; i < those.end; i++) {
        slot &each = slots[i];
        if (each.lots++ > 0)
            continue;
        units++;
        // A unit on its way out would leave without its contents, which count
        // from here on.
        each.cancel = each.cancel || each.where == place::evicting;
        each.blank = each.blank && each.away; // see vacate()
        each.made = false;
        each.read = false;
        each.gets_dirty = true;
        renewed += each.renewed ? 0 : 1;
        each.renewed = true;
    }
    return units;
}

std::size_t block::unite(std::uint64_t identity)
{
    std::size_t units = 0;
    for (std::size_t i = 0; i < lots.size(); i++)
        if (lots[i].vacant)
            units += occupy(lots[i].begin, lots[i].end, identity);
    lots.assign(1, {0, lots.back().end, identity, false});
    for (slot &each : slots)
        each.lots = 1;
    return units;
}

segment block::neighbours_of(std::size_t index) const
{
    const std::uint64_t begin = slots[index].at - base;
    auto one = std::prev(std::upper_bound(
        std::next(lots.begin()), lots.end(), begin,
        [](std::uint64_t at, const lot &each) { return at < each.begin; }));
    segment out{static_cast<std::uint32_t>(index),
                static_cast<std::uint32_t>(index) + 1};
    for (; one != lots.end() && one->begin < begin + slots[index].bytes; ++one)
        if (!one->vacant) {
            const segment those = units_of(*one);
            out.first = std::min(out.first, those.first);
            out.end = std::max(out.end, those.end);
        }
    return out;
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
    const std::uint64_t bound = lot_at(address).end;
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
    const std::uint64_t end =
        std::min(next == starts.end() ? bytes : *next, bound);
    return {base, unit_at(offset), unit_at(end - 1)};
}

void block::give(CUdeviceptr address)
{
    is_new = false;
    if (!fixed && address != base)
        given.add(address - base, bytes);
}

bool block::is_given(CUdeviceptr address) const
{
    if (is_new || address == base || given.has(address - base))
        return true;
    const lot &one = std::as_const(*this).lot_at(address);
    return !one.vacant && one.begin == address - base;
}

std::uint64_t block::ram_bytes(std::size_t first, std::size_t end) const
{
    std::uint64_t sum = 0;
    for (std::size_t i = first; in_ram > 0 && i < end; i++)
        sum += slots[i].in_ram() ? slots[i].bytes : 0;
    return sum;
}

touched::touched(block &around, CUdeviceptr address)
    : of(&around), given{around.base, UINT32_MAX, 0}
{
    const lot &one = around.lot_at(address);
    begin = around.base + one.begin;
    bytes = one.end - one.begin;
    whole = around.units_of(one);
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
