// SPDX-License-Identifier: LGPL-2.1-or-later
// Allocations whose units come and go, and the parts of them that work touches.
#pragma once

#include "base/counted.hpp"
#include "base/driver.hpp"
#include "movement/digests.hpp"
#include "movement/known.hpp"
#include "movement/rooms.hpp"
#include "policy/advice.hpp"
#include "policy/heat.hpp"
#include "policy/schedule.hpp"
#include "policy/view.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// The leaves_for of a unit that never leaves.
constexpr std::uint32_t never_leaves = UINT32_MAX;

/// The moves of units that came to their end.
struct moves
{
    std::uint64_t fetches = 0;
    std::uint64_t evictions = 0;
    std::uint64_t fetched_bytes = 0; ///< copied to VRAM
    std::uint64_t evicted_bytes = 0; ///< copied to system RAM
    std::uint64_t ns = 0;            ///< from their begin to their end

    moves &operator+=(const moves &more)
    {
        fetches += more.fetches;
        evictions += more.evictions;
        fetched_bytes += more.fetched_bytes;
        evicted_bytes += more.evicted_bytes;
        ns += more.ns;
        return *this;
    }
    moves &operator-=(const moves &less)
    {
        fetches -= less.fetches;
        evictions -= less.evictions;
        fetched_bytes -= less.fetched_bytes;
        evicted_bytes -= less.evicted_bytes;
        ns -= less.ns;
        return *this;
    }
};

/// A unit's address, and its state.
struct slot
{
    CUdeviceptr at = 0;
    std::uint64_t bytes = 0;
    place where = place::host;
    bool unmapped = false; ///< perhaps, at this moment
    bool away = false;     ///< in system RAM or on its way, and mapped nowhere
    bool blank = false;    ///< its contents are of no use: see block::vacate()
    bool made = false;     ///< in VRAM, where it awaits its next allocation
    bool cancel = false;   ///< its copy no longer counts
    unsigned waiting = 0;  ///< launches
    CUmemGenericAllocationHandle vram = 0;
    CUdeviceptr vram_alias = 0;
    room host;
    schedule::memo next;
    /// The plan: the unit leaves for gaps of at least leaves_for steps, but of
    /// fewer than stays_for.
    std::uint32_t leaves_for = never_leaves;
    std::uint32_t stays_for = never_leaves;
    bool stays_away = false;    ///< as arranged: in system RAM
    bool fresh = false;         ///< see block::fresh
    bool room_is_known = false; ///< the digest is of its room's contents
    /// The room was mapped since the digest was taken, so that work that nobody
    /// announced may have written there.
    bool exposed = false;
    /// An eviction wrote that room, or found it equal. A digest of the arrived
    /// copy alone says nothing about later evictions.
    bool proven = false;
    bool gets_dirty = false; ///< contents seen to change between evictions
    digests::value digest{};
    advice said;         ///< by the program; see mover::advise()
    ranks ranked;        ///< of the parts of it that are registered
    unsigned pins = 0;   ///< how many parts of it the program has pinned
    unsigned seldom = 0; ///< ... has called seldom written
    moves moved;         ///< of this unit, ever

    bool in_ram() const
    {
        return where == place::host || where == place::fetching;
    }
    /// True if it is in VRAM, or on its way there, for its next allocation.
    bool is_made() const { return made || (blank && where == place::fetching); }
    /// True if it is in VRAM, and has room in system RAM.
    bool has_idle_room() const
    {
        return where == place::vram && host.handle != 0;
    }
    /// Takes over the room of @p other, a unit in VRAM of the same size.
    void take_room_of(slot &other);
    /// True if the plan has it away between its last use and its next. A gap
    /// that is a sixteenth too short still counts.
    bool passes() const
    {
        return leaves_for != never_leaves &&
               next.gap + next.gap / 16 >= leaves_for && next.gap < stays_for;
    }
};

/// The part of a unit's state that each use changes. It lies apart from the
/// slots, which another thread reads all the time.
struct use_mark
{
    std::uint64_t bytes = 0;
    std::uint64_t step = 0; ///< of the schedule, at the last one; 0: none yet
    heat uses;
};

/// An allocation. A mover's lock guards it.
struct block : counted
{
    CUdeviceptr base = 0;
    std::uint64_t bytes = 0;
    /// Of the allocation that it is now. Its mover gives no two the same.
    std::uint64_t identity = 0;
    std::uint64_t unit_bytes = 0; ///< of the first unit
    std::size_t alike = 0;        ///< units of that size, from the first on
    std::vector<slot> slots;
    std::vector<use_mark> marks; ///< of each of them
    /// Every address that work was given. Safety depends on them: see give().
    known_offsets given;
    /// Offsets at which tensors probably begin, and others end. A guess, begun
    /// anew when there are too many.
    std::vector<std::uint64_t> starts;
    static constexpr std::size_t max_starts = 4096;
    // Crossed the link: see figures.
    std::uint64_t fetched_bytes = 0;
    std::uint64_t evicted_bytes = 0;
    unsigned in_flight = 0;
    // Counts of units, since every launch asks for them:
    unsigned moving = 0; ///< on their way
    unsigned in_ram = 0; ///< in system RAM; see add() and put()
    unsigned away = 0;   ///< mapped nowhere
    unsigned fresh = 0;  ///< fetched, and no use of the block has ended since
    unsigned told = 0;   ///< advice about them is pending
    bool small = false;  ///< not worth moving, and predicts nothing
    bool fixed = false;
    bool in_table = false; ///< see gate::note_in_table()
    bool dead = false;     ///< see discard()
    bool vacant = false;   ///< freed, to be allocated again
    bool renewed = false;  ///< allocated again, and no work was given it since

    void add(const slot &one);
    /// Sets the place of one of its units.
    void put(slot &one, place where);
    /// One of its units has been fetched.
    void has_come(slot &one);
    /// A use of the block has ended.
    void used();
    /// True if it is not fixed, and no work in flight was given it.
    bool is_idle() const { return !fixed && in_flight == 0; }
    /// True if all of it is mapped at this moment.
    bool mapped() const;
    /// True if all of it is mapped for good: nobody need wait for it any more.
    bool is_settled() const { return fixed && mapped(); }
    /// Calls off the motions of its units.
    void call_off();
    /// Fixes it: from here on none of its units moves.
    void hold_still();
    /// Units in system RAM may be written there, over the link. Their digests
    /// hold no more.
    void may_change();
    /// The program says of one of its units that its contents are dead. Nobody
    /// needs them, until work that may write to the block is about to begin:
    /// see revive().
    void discard(slot &one);
    /// From here on all contents count.
    void revive();
    /// The block is freed. Nobody needs its contents any more, and nobody
    /// writes to it before occupy().
    void vacate();
    /// The block is allocated again. From here on the program may write to its
    /// mapped units. A unit that is away holds nothing until it is mapped.
    void occupy();
    /// One of its units is mapped again.
    void has_been_mapped(slot &one) { one.blank = one.blank && vacant; }
    /// Work is given an address in the block, or the address of its end. From
    /// here on a kernel that finds this number in a table may reach the block.
    void give(CUdeviceptr address);
    /// True if a number in a table is an address of the block: its base, or one
    /// that work was given.
    bool is_given(CUdeviceptr address) const;
    /// The units from an address in the block up to the next address that work
    /// named, as far as is known.
    touch touched_from(CUdeviceptr address);
    /// The unit around an offset into the block.
    std::uint32_t unit_at(std::uint64_t offset) const;
    /// Bytes in system RAM of the units from @p first up to @p end.
    std::uint64_t ram_bytes(std::size_t first, std::size_t end) const;
};

using block_ref = counted_ref<block>;

/// A unit, and the number of steps until its next use.
struct candidate
{
    block_ref of;
    std::size_t index = 0;
    std::uint64_t next_use = 0;

    slot &unit() const { return of->slots[index]; }
};

/// The part of a block that work touches: units, or an unknown part where none
/// can be named.
struct touched
{
    block_ref of;
    touch part;
    std::uint64_t work = 0;   ///< which work, on which block: see reach
    std::uint64_t beyond = 0; ///< bytes in system RAM behind the named units
    bool complete = false;    ///< the part it is taken to reach is in VRAM

    bool names_units() const { return part.first <= part.last; }
    /// True if it says what has to be in VRAM. In a large block, only named
    /// units do.
    bool says_what() const { return of->small || names_units(); }
    /// The units that it is known or taken to touch: from the first up to the
    /// second.
    std::pair<std::size_t, std::size_t> units() const
    {
        return of->small || !names_units()
                   ? std::pair<std::size_t, std::size_t>{0, of->slots.size()}
                   : std::pair<std::size_t, std::size_t>{
                         part.first, std::min(part.last + std::size_t{1},
                                              of->slots.size())};
    }
};

/// Bytes that work which touches these should have in VRAM, and has not.
std::uint64_t missing_bytes(const std::vector<touched> &all);

} // namespace emuv::cuda
