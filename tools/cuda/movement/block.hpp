// SPDX-License-Identifier: LGPL-2.1-or-later
// Allocations whose units come and go, and what work touches of them.
#pragma once

#include "base/driver.hpp"
#include "movement/digests.hpp"
#include "movement/known.hpp"
#include "movement/rooms.hpp"
#include "policy/heat.hpp"
#include "policy/schedule.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace emuv::cuda {

/// Where a unit is.
enum class place
{
    host,
    vram,
    fetching, ///< in system RAM, a copy to a frame under way
    evicting, ///< in VRAM, on its way out
};

/// For a unit that is not to leave at all.
constexpr std::uint32_t never_leaves = UINT32_MAX;

/// A unit's address, and what is known of it.
struct slot
{
    CUdeviceptr at = 0;
    std::uint64_t bytes = 0;
    place where = place::host;
    bool unmapped = false; ///< at this moment, perhaps
    bool away = false;  ///< in system RAM, and nothing is mapped at its address
    bool blank = false; ///< what it holds is of no use: see block::vacate()
    bool made = false;  ///< it has come for who allocates it, and waits
    bool cancel = false;  ///< its copy no longer counts
    unsigned waiting = 0; ///< launches
    CUmemGenericAllocationHandle vram = 0;
    CUdeviceptr vram_alias = 0;
    room host;
    schedule::memo next;
    /// As planned: for gaps at least as long as the first, in steps, and
    /// shorter than the second.
    std::uint32_t leaves_for = never_leaves;
    std::uint32_t stays_for = never_leaves;
    bool stays_away = false; ///< as arranged: from VRAM
    bool fresh = false;      ///< see block::fresh
    bool digested = false;   ///< of what its room holds
    bool changes = false;    ///< between its stays there, as far as was seen
    digests::value digest{};

    bool in_ram() const
    {
        return where == place::host || where == place::fetching;
    }
    /// Whether it is there, or on its way, for who allocates it.
    bool is_made() const { return made || (blank && where == place::fetching); }
    /// Whether there is room for it in system RAM, and it is in VRAM.
    bool has_idle_room() const
    {
        return where == place::vram && host.handle != 0;
    }
    /// Takes over the room in system RAM of one in VRAM, of the same size.
    void take_room_of(slot &other);
    /// Whether it is planned to be away between its last use and its next. A
    /// step too few in between makes no difference.
    bool passes() const
    {
        return leaves_for != never_leaves &&
               next.gap + next.gap / 16 >= leaves_for && next.gap < stays_for;
    }
};

/// What each use of a unit changes: apart from the rest, which another thread
/// looks through all the time.
struct use_mark
{
    std::uint64_t bytes = 0;
    std::uint64_t step = 0; ///< of the schedule, at the last one; 0: none yet
    heat uses;
};

/// An allocation. A mover's lock guards it.
struct block
{
    CUdeviceptr base = 0;
    std::uint64_t bytes = 0;
    std::uint64_t unit_bytes = 0; ///< of the first unit ...
    std::size_t alike = 0;        ///< ... and of so many from there on
    std::vector<slot> slots;
    std::vector<use_mark> marks; ///< of each of them
    /// Every address that work was given. Safety rests on it: see give().
    known_offsets given;
    /// Where tensors probably begin, and others end. A guess, begun anew when
    /// there are too many.
    std::vector<std::uint64_t> starts;
    static constexpr std::size_t max_starts = 4096;
    unsigned in_flight = 0;
    // Units, counted since every launch asks:
    unsigned moving = 0; ///< on their way
    unsigned in_ram = 0; ///< in system RAM; see add() and put()
    unsigned away = 0;   ///< of those, mapped nowhere
    unsigned fresh = 0;  ///< fetched, and no use of the block has ended since
    bool small = false;  ///< not worth it, nor a sign of anything
    bool fixed = false;
    bool vacant = false;  ///< freed, to be allocated again
    bool renewed = false; ///< allocated again, and no work was given it since
    std::atomic<unsigned> holders{0};

    void add(const slot &one);
    /// One of its units is there from here on.
    void put(slot &one, place where);
    /// One of them has been fetched.
    void has_come(slot &one);
    /// A use of it has ended.
    void used();
    /// Whether it need not stay, and nothing in flight was given it.
    bool is_idle() const { return !fixed && in_flight == 0; }
    /// All of it, at this moment.
    bool mapped() const;
    /// All of it, for good: nobody need wait for it any more.
    bool is_settled() const { return fixed && mapped(); }
    /// What moves is called off.
    void call_off();
    /// From here on it stays as it is, and nothing of it moves.
    void hold_still();
    /// What lies in system RAM may be written there, over the link: what is
    /// known of it holds no more.
    void may_change();
    /// It is freed: nobody needs what it holds any more, nor will write there
    /// before occupy().
    void vacate();
    /// It is allocated again. From here on somebody may write wherever it is
    /// mapped; what is mapped nowhere holds nothing before it is.
    void occupy();
    /// One of its units is mapped again.
    void has_been_mapped(slot &one) { one.blank = one.blank && vacant; }
    /// Work is given an address in it, or its end: from here on whoever finds
    /// that number in a table may reach the block.
    void give(CUdeviceptr address);
    /// Whether a number in a table is an address of the block's: its base, or
    /// what work was ever given.
    bool is_given(CUdeviceptr address) const;
    /// The units from an address in it to where the next thing begins that was
    /// named, as far as is known.
    touch touched_from(CUdeviceptr address);
    /// What of the units from @p first on, up to @p end, is in system RAM.
    std::uint64_t ram_bytes(std::size_t first, std::size_t end) const;
};

/// As std::shared_ptr, which needs a newer glibc.
class block_ref
{
public:
    block_ref() = default;
    explicit block_ref(block *which) : block_(which) { hold(); }
    block_ref(const block_ref &other) : block_(other.block_) { hold(); }
    block_ref(block_ref &&other) noexcept
        : block_(std::exchange(other.block_, nullptr))
    {}
    block_ref &operator=(block_ref other) noexcept
    {
        std::swap(block_, other.block_);
        return *this;
    }
    ~block_ref()
    {
        if (block_ != nullptr && block_->holders.fetch_sub(1) == 1)
            delete block_;
    }
    block *operator->() const { return block_; }
    block &operator*() const { return *block_; }
    bool operator==(const block_ref &other) const = default;
    explicit operator bool() const { return block_ != nullptr; }

private:
    void hold()
    {
        if (block_ != nullptr)
            block_->holders.fetch_add(1);
    }
    block *block_ = nullptr;
};

/// One unit, and how many steps away its next use is.
struct candidate
{
    block_ref of;
    std::size_t index = 0;
    std::uint64_t next_use = 0;

    slot &unit() const { return of->slots[index]; }
};

/// What work touches of a block: units, or whatever of it, where none can be
/// named.
struct touched
{
    block_ref of;
    touch part;
    std::uint64_t work = 0;   ///< which, and of which block: see reach
    std::uint64_t beyond = 0; ///< bytes in system RAM it was not given
    bool complete = false;    ///< what it is taken to reach is in VRAM

    bool names_units() const { return part.first <= part.last; }
    /// Whether it says what has to be in VRAM: of a large block, only units do.
    bool says_what() const { return of->small || names_units(); }
    /// The units that it is known or taken to touch: from the first, up to the
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

/// What work that touches these should have in VRAM and has not, in bytes.
std::uint64_t missing_bytes(const std::vector<touched> &all);

} // namespace emuv::cuda
