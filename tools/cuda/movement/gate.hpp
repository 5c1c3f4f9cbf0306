// SPDX-License-Identifier: LGPL-2.1-or-later
// Decides what may be unmapped, and when work may go ahead.
#pragma once

#include "movement/block.hpp"
#include "movement/blocks.hpp"
#include "movement/pinned.hpp"

#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// The one class that decides this: the parts that move units ask it, and the
/// parts that choose units only guess. A touch of an unmapped address ends the
/// program's context, and a write beside a unit's copy is lost. So a unit is
/// unmapped, or a copy is taken for the unit, only while
///
/// - its block is not fixed (fix()),
/// - no work in flight was given an address of its allocation (hold()),
/// - no work in flight may find one in a table (note_in_table()),
/// - no untrusted work runs, nor may begin to (begin()), and
/// - all of that has been so since the unit began to move (slot::cancel).
///
/// Work goes ahead once all memory that it may reach is mapped:
/// block::mapped(), or all_mapped() for untrusted work. Work that may read
/// tables waits for in_tables(), too. The mover's lock guards the gate.
class gate
{
public:
    /// @param all  all blocks
    /// @param host  where kernels may find addresses; may be null
    /// Both outlive this object.
    gate(blocks &all, const pinned *host) : blocks_(all), host_(host) {}
    gate(const gate &) = delete;
    gate &operator=(const gate &) = delete;

    // ---- Work

    /// The device may begin the work, as soon as all is mapped. If it is not
    /// trusted, nothing moves from here on.
    void begin(bool trusted);
    /// The work may reach an allocation, and write to it: these units of a
    /// block. They are let go together.
    void hold(block &of, const segment &those);
    /// The same, for work that changes nothing.
    void hold_as_is(block &of, const segment &those);
    void let_go(block &of, const segment &those);
    /// The work has ended, and let go of its blocks.
    void end(bool trusted) { untrusted_ -= trusted ? 0 : 1; }

    bool all_trusted() const { return untrusted_ == 0; }
    /// True if all blocks are mapped at this moment.
    bool all_mapped() const { return all_mapped_but(0); }
    /// The same, but for so many units that are away.
    bool all_mapped_but(unsigned away) const
    {
        return unmapped_ == 0 && away_ <= away;
    }

    // ---- What stays

    /// Fixes a block for good. The caller may have to wait until it is mapped.
    void fix(block &of)
    {
        of.revive(of.all());
        of.hold_still();
    }

    /// True if a number is an address by which kernels may reach a block: its
    /// base, or an address that work was given.
    bool is_address(CUdeviceptr word);

    /// A table of addresses in memory names the block. From here on the block
    /// stays while work is in flight that may read tables. It counts for good:
    /// there may be copies of the table. If is_read(), the caller has to wait
    /// until the block is mapped.
    void note_in_table(block &of);
    /// The blocks that tables name.
    const std::vector<block_ref> &in_tables() const { return in_tables_; }
    /// The block is no longer one of all.
    void forget(const block &of);

    /// Work may begin that is trusted by a name alone: it may read tables. All
    /// that they name has to be mapped first.
    /// @param any_dead  the program may have called units dead
    void begin_reading(bool any_dead = true);
    void end_reading() { reading_--; }
    bool is_read() const { return reading_ > 0; }
    /// True if work in flight may find an address of the block in a table.
    bool may_be_found(const block &of) const
    {
        return of.in_table && reading_ > 0;
    }
    /// True if such work is in flight, or began a moment ago. More of it would
    /// call off what moves meanwhile.
    bool is_found_lately(const block &of) const;

    /// Calls @p use for each block with such an address that is not known to be
    /// named by a table, or has to be mapped.
    template <typename Use>
    void each_unsettled(CUdeviceptr word, Use use)
    {
        blocks_.meant_by(word).each([&](block &of) {
            if (of.is_given(word) && !of.is_settled() &&
                (!of.in_table || (is_read() && !of.mapped())))
                use(of);
        });
    }

    /// Follows a table of addresses in the host's memory, which work is given.
    /// The blocks that it names are noted, and added to @p reached, the blocks
    /// that the work may reach.
    enum class table
    {
        followed,
        unknown, ///< it may name anything
        denied,  ///< the same, and so may all others
    };
    table follow_table(CUdeviceptr at, std::vector<touched> &reached);

    // ---- Movement

    /// True if a unit may not begin to move.
    bool must_stay(const block &of, std::size_t index) const
    {
        return !of.is_idle(index) || is_found_lately(of) || untrusted_ > 0 ||
               closed_ > 0;
    }
    /// A unit begins to move.
    /// @param in_vain  true: it is called off at once
    void begin_move(block &of, std::size_t index, bool in_vain);
    /// True if the unit may be unmapped, and a copy of it counts.
    bool may_move(const block &of, std::size_t index) const
    {
        return !of.slots[index].cancel && untrusted_ == 0 &&
               !of.is_in_flight(index) && !may_be_found(of);
    }
    void end_move(block &of, slot &one);
    /// Until reopen(), as often as this, nothing begins to move; what moves
    /// goes on.
    void close() { closed_++; }
    void reopen() { closed_--; }
    bool is_closed() const { return closed_ > 0; }
    /// Calls off all motions.
    void call_off_all();

    /// Another thread is about to map the unit elsewhere, and has done so.
    void begin_remap(slot &one);
    void end_remap(slot &one);

    /// From here on nothing is mapped at a unit's address, or something is
    /// again.
    void set_away(block &of, slot &one, bool away);
    unsigned away() const { return away_; }

    /// True if a unit was out of reach at any time since then.
    bool any_out_of_reach_since(std::uint64_t ns) const
    {
        return away_ + unmapped_ > 0 || all_mapped_ns_ > ns;
    }

private:
    static void may_write(block &of, const segment &those);
    static void count(block &of, const segment &those, unsigned change);

    blocks &blocks_;
    const pinned *const host_;
    std::vector<block_ref> in_tables_;
    std::vector<slot *> moving_;
    unsigned closed_ = 0;
    unsigned untrusted_ = 0;          // work in flight
    unsigned reading_ = 0;            // ... that may read tables
    std::uint64_t reading_ns_ = 0;    // when such work began last
    unsigned unmapped_ = 0;           // units, perhaps, at this moment
    unsigned away_ = 0;               // units mapped nowhere
    std::uint64_t all_mapped_ns_ = 0; // since when; 0: always
};

} // namespace emuv::cuda
