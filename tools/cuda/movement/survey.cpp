// SPDX-License-Identifier: LGPL-2.1-or-later
// The view of a device's memory that choices are made by.
#include "movement/mover.hpp"

#include <algorithm>
#include <utility>

namespace emuv::cuda {

namespace {

// A look at very many units takes time, and launches wait for the lock: they
// are let in after so many units, a few microseconds.
constexpr std::size_t let_in_after = 64;

} // namespace

std::uint64_t mover::next_use_of(block &of, std::size_t index) const
{
    if (of.slots[index].waiting > 0)
        return 0;
    if (fetches_on_demand())
        return reuse_.tells() ? reuse_.next_use(of.marks[index].again)
                              : schedule::never;
    return schedule_.next_use(of.base, static_cast<std::uint32_t>(index),
                              of.slots[index].next);
}

// True if no unit of its allocations is used sooner.
bool mover::is_first_of_lot(block &of, std::size_t index) const
{
    const std::uint64_t use = next_use_of(of, index);
    const segment mine = of.neighbours_of(index);
    for (std::size_t i = mine.first; i < mine.end; i++)
        if (next_use_of(of, i) < use)
            return false;
    return true;
}

void mover::look_at_traffic()
{
    traffic &out = seen_.under_way;
    auto sizes = std::move(out.leaving_sizes); // to use its memory again
    sizes.clear();
    out = {};
    out.leaving_sizes = std::move(sizes);
    for (const motion &each : motions_) {
        const std::uint64_t bytes = each.unit().bytes;
        if (each.rehouses)
            continue;
        if (each.evicts) {
            out.evicting++;
            out.leaving_bytes += bytes;
            out.leaving_sizes.push_back(bytes);
        } else {
            out.fetching++;
            (each.at == stage::fetch ? out.coming_bytes : out.arrived_bytes) +=
                bytes;
        }
    }
}

// Describes all but the units.
void mover::look_around()
{
    const usage share = limits_.read();
    look_at_traffic();
    // Buffers hold no unit.
    seen_.vram.share_bytes =
        share.physical_bytes -
        std::min(share.physical_bytes,
                 packed_.buffers() * packed_.buffer_bytes());
    seen_.vram.free_bytes = share.physical_free_bytes();
    seen_.vram.frames_below = frames_.below();
    seen_.vram.frames.clear();
    for (const frame &each : frames_.all())
        seen_.vram.frames.push_back(each.bytes);
    keep_for_buffers(seen_.vram);
    seen_.rooms = {rooms_.below(), rooms_.maps()};
    seen_.host_bytes = host_bytes_;
    seen_.headroom_bytes = headroom_.bytes();
    seen_.wanted_bytes = wanted_bytes_;
    seen_.moves = pace_.moves();
    seen_.arranges = pace_.arranges();
    seen_.launch_waits = waiters_ > 0;
    seen_.on_demand = fetches_on_demand() && has_fetched_;
    seen_.any_vacant = vacant_ > 0;
    seen_.may_digest = digests_.any_free();
}

unit_view mover::describe(block &of, std::size_t index) const
{
    const slot &one = of.slots[index];
    unit_view out;
    out.bytes = one.bytes;
    if (!of.fixed || one.fresh)
        out.next_use = next_use_of(of, index);
    out.gap = one.next.gap;
    out.idle = of.marks[index].uses.idle(uses_);
    out.where = one.where;
    out.small = of.small;
    out.fixed = of.fixed;
    out.busy = of.is_in_flight(index) || gate_.is_found_lately(of);
    out.vacant = one.lots == 0;
    out.blank = one.blank;
    out.made = one.is_made();
    out.fresh = one.fresh;
    // A plan is of rounds whose steps come again.
    const bool planned = !fetches_on_demand();
    out.leaves = planned && one.leaves_for != never_leaves;
    out.passes = planned && one.passes();
    out.stays_away = one.stays_away;
    out.has_frame = one.vram != 0;
    out.has_room = one.host.handle != 0;
    out.room_is_charged = one.host.charged;
    out.room_has_alias = one.host.alias != 0;
    out.room_is_proven = one.room_is_known && one.proven;
    out.said = one.said.at(uses_);
    return out;
}

// Describes the units: those of large blocks, and those of small ones that a
// launch waits for. Lets launches in meanwhile.
// @param heats  true if exchanges are to be chosen
// @return false if blocks have come or gone meanwhile
bool mover::look_at_units(std::unique_lock<std::mutex> &lock, bool heats)
{
    const std::uint64_t version = blocks_.version();
    seen_.units.clear();
    seen_units_.clear();
    std::uint32_t number = 0;
    for (const auto *list : {&awaited_, &large_})
        for (const block_ref &each : *list) {
            for (std::size_t i = 0; i < each->slots.size(); i++) {
                if (list == &large_ && seen_.units.size() % let_in_after == 0) {
                    let_in(lock);
                    if (version != blocks_.version())
                        return false;
                }
                number += i == 0 || each->is_divided() ? 1 : 0;
                seen_.units.push_back(describe(*each, i));
                seen_.units.back().allocation = number;
                if (heats)
                    seen_.units.back().heat = each->marks[i].uses.at(uses_);
                seen_units_.emplace_back(&*each, i);
            }
        }
    return true;
}

// A unit of the view. Its block is there, if look_at_units() said so and the
// lock has been held since, or no block has gone.
candidate mover::seen_unit(std::size_t number) const
{
    const auto &[of, index] = seen_units_[number];
    return {block_ref(of), index, seen_.units[number].next_use};
}

} // namespace emuv::cuda
