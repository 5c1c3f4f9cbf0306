// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory whose units come and go, and the parts of it that work touches.
#pragma once

#include "base/counted.hpp"
#include "base/driver.hpp"
#include "movement/digests.hpp"
#include "movement/known.hpp"
#include "movement/packed.hpp"
#include "movement/rooms.hpp"
#include "policy/advice.hpp"
#include "policy/heat.hpp"
#include "policy/reuse.hpp"
#include "policy/schedule.hpp"
#include "policy/view.hpp"
#include "store/placement.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
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
    unsigned lots = 1;     ///< allocations in it that are not vacant
    bool read = false;     ///< vacant, and may be read: see block::vacate()
    bool renewed = false;  ///< allocated again, and no work was given it since
    bool made = false;     ///< in VRAM, where it awaits its next allocation
    bool cancel = false;   ///< its copy no longer counts
    bool rehoused = false; ///< on its way from one room to another
    /// In the file, or made there: it is away, counts as in system RAM, and has
    /// no room there.
    bool on_file = false;
    bool no_way = false;    ///< back from the file, when that was tried last
    std::uint64_t file = 0; ///< its place there; 0: no contents
    unsigned kept = 0;      ///< by threads that want it out of the file
    unsigned waiting = 0;   ///< launches
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
    coded_copy coded;    ///< of contents that it may have
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
    bool is_made() const
    {
        return made || (blank && where == place::fetching && !rehoused);
    }
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
    reuse::memory again; ///< when it is used again
    /// Work that was given its allocation, but for work on all of the block.
    unsigned in_flight = 0;
};

/// Units side by side, from the first up to the end.
struct segment
{
    std::uint32_t first = 0;
    std::uint32_t end = 0;

    bool has(std::size_t index) const { return index - first < end - first; }
    friend bool operator==(const segment &, const segment &) = default;
};

/// An allocation in a block. Several may share a unit.
struct lot
{
    std::uint64_t begin = 0; ///< offset into the block
    std::uint64_t end = 0;
    std::uint64_t identity = 0; ///< its mover gives no two the same
    bool vacant = false;        ///< freed, to be allocated again
};

/// The authority on how a block is divided into lots.
enum class division : std::uint8_t
{
    by_us,
    by_program, ///< by its own allocator: see mover::hand_out()
    by_nobody,  ///< it did, and its word counts no more
};

/// Memory made as one: an allocation, or several by turns. A mover's lock
/// guards it.
struct block : counted
{
    CUdeviceptr base = 0;
    std::uint64_t bytes = 0;
    std::uint64_t unit_bytes = 0; ///< of the first unit
    std::size_t alike = 0;        ///< units of that size, from the first on
    std::vector<slot> slots;
    std::vector<use_mark> marks; ///< of each of them
    std::vector<lot> lots;       ///< all bytes of it, in order
    unsigned in_flight = 0;      ///< work that was given all of its units
    unsigned renewed = 0;        ///< units: see slot::renewed
    /// Every address that work was given. Safety depends on them: see give().
    known_offsets given;
    /// Offsets at which tensors probably begin, and others end. A guess, begun
    /// anew when there are too many.
    std::vector<std::uint64_t> starts;
    static constexpr std::size_t max_starts = 4096;
    // Crossed the link: see figures.
    std::uint64_t fetched_bytes = 0;
    std::uint64_t evicted_bytes = 0;
    // Counts of units, since every launch asks for them:
    unsigned moving = 0; ///< on their way
    unsigned in_ram = 0; ///< in system RAM; see add() and put()
    unsigned away = 0;   ///< mapped nowhere
    unsigned on_file = 0;
    unsigned fresh = 0; ///< fetched, and no use of the block has ended since
    unsigned told = 0;  ///< advice about them is pending
    bool small = false; ///< not worth moving, and predicts nothing
    bool fixed = false;
    bool in_table = false; ///< see gate::note_in_table()
    bool is_new = false;   ///< came mapped nowhere, and no work was given it
    bool dead = false;     ///< units may be: see discard()
    division divided = division::by_us;
    unsigned taken_back = 0; ///< parts: see mover::take_back()

    void add(const slot &one);
    /// Sets the place of one of its units.
    void put(slot &one, place where);
    /// One of its units has been fetched.
    void has_come(slot &one);
    /// A use of these units has ended.
    void used(const segment &those);
    segment all() const
    {
        return {0, static_cast<std::uint32_t>(slots.size())};
    }
    /// The allocation that an address is meant for. The end of the block is
    /// meant for the last one. No other one is used to its end.
    const lot &lot_at(CUdeviceptr address) const
    {
        return *std::prev(std::upper_bound(
            std::next(lots.begin()), lots.end(), address - base,
            [](std::uint64_t at, const lot &each) { return at < each.begin; }));
    }
    lot &lot_at(CUdeviceptr address)
    {
        return const_cast<lot &>(std::as_const(*this).lot_at(address));
    }
    /// True if an address lies in an allocation, or is the end of one. Others
    /// lie between two, or in one that is freed.
    /// All of what the program divides is its own memory.
    bool is_in_use(CUdeviceptr address) const
    {
        const lot &one = lot_at(address);
        return !is_divided() || divided == division::by_program ||
               (!one.vacant && address - base + guard_bytes <= one.end);
    }
    /// The units in which it has bytes.
    segment units_of(const lot &one) const
    {
        return {unit_at(one.begin), unit_at(one.end - 1) + 1};
    }
    /// All units of the allocations that have bytes in a unit. Work that is
    /// given one of those may reach these.
    segment neighbours_of(std::size_t index) const;
    /// True if it has several allocations, or room for them.
    bool is_divided() const { return lots.size() > 1; }
    /// True if it is not fixed, and no work in flight was given the unit's
    /// allocation.
    bool is_idle(std::size_t index) const
    {
        return !fixed && !is_in_flight(index);
    }
    bool is_in_flight(std::size_t index) const
    {
        return in_flight > 0 || marks[index].in_flight > 0;
    }
    /// True if all of these are mapped at this moment.
    bool mapped(const segment &those) const;
    bool mapped() const { return mapped(all()); }
    /// True if all of it is mapped for good: nobody need wait for it any more.
    bool is_settled() const { return fixed && mapped(); }
    /// Calls off the motions of these units.
    void call_off(const segment &those);
    /// Fixes it: from here on none of its units moves.
    void hold_still();
    /// Units in system RAM may be written there, over the link. Their digests
    /// hold no more.
    void may_change(const segment &those);
    /// The program says of one of its units that its contents are dead. Nobody
    /// needs them, until work that may write to the block is about to begin:
    /// see revive().
    void discard(slot &one);
    /// From here on all contents of these units count, but for vacant ones.
    void revive(const segment &those);
    /// An allocation is freed. Nobody needs its contents any more, and nobody
    /// writes to it before occupy(). Those beside it that are vacant, too,
    /// become one with it.
    /// @param read  work that has not begun may read it, without being given
    ///   its address
    /// @return units that are vacant from here on
    std::size_t vacate(const lot &freed, bool read = false);
    /// A part of a vacant allocation is allocated again. From here on the
    /// program may write to its units that are mapped. A unit that is away
    /// holds nothing until it is mapped.
    /// @return units of which nothing was needed
    std::size_t occupy(std::uint64_t begin, std::uint64_t end,
                       std::uint64_t identity);
    /// All of it becomes one allocation again, whose contents count.
    /// @return units of which nothing was needed
    std::size_t unite(std::uint64_t identity);
    /// One of its units is mapped again.
    void has_been_mapped(slot &one)
    {
        one.blank = one.blank && one.lots == 0 && !one.read;
    }
    /// Work is given an address in the block, or the address of its end. From
    /// here on a kernel that finds this number in a table may reach the block.
    void give(CUdeviceptr address);
    /// True if a number in a table is an address of the block: its base, or one
    /// that work was given. Before that, it may be any.
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
    /// True if work in flight was given its allocation.
    bool in_flight() const { return of->is_in_flight(index); }
};

/// The part of an allocation that work touches: units, or an unknown part where
/// none can be known.
struct touched
{
    /// An unknown part of the allocation that an address is meant for.
    touched(block &around, CUdeviceptr address);

    block_ref of;
    CUdeviceptr begin = 0; ///< of the allocation
    std::uint64_t bytes = 0;
    segment whole; ///< all of its units
    touch given;
    std::uint64_t work = 0;   ///< which work, on which block: see reach
    std::uint64_t beyond = 0; ///< bytes in system RAM behind the known units
    bool complete = false;    ///< the part it is taken to reach is in VRAM

    bool knows_units() const { return given.first <= given.last; }
    /// True if it says what has to be in VRAM. In a large block, only known
    /// units do.
    bool says_what() const { return of->small || knows_units(); }
    /// The units that it is known or taken to touch: from the first up to the
    /// second.
    std::pair<std::size_t, std::size_t> units() const
    {
        return of->small || !knows_units()
                   ? std::pair<std::size_t, std::size_t>{whole.first, whole.end}
                   : std::pair<std::size_t, std::size_t>{
                         given.first,
                         std::min<std::size_t>(given.last + std::size_t{1},
                                               whole.end)};
    }
};

/// Bytes that work which touches these should have in VRAM, and has not.
std::uint64_t missing_bytes(const std::vector<touched> &all);

} // namespace emuv::cuda
