// SPDX-License-Identifier: LGPL-2.1-or-later
// What may be unmapped, and when work may go ahead.
#pragma once

#include "movement/block.hpp"
#include "movement/blocks.hpp"
#include "movement/pinned.hpp"

#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// The one place that says so: whoever moves units asks, whoever chooses them
/// only guesses. A touch of an address that is not mapped ends the program's
/// context, and what is written beside a copy of it is lost. So a unit is
/// unmapped, or a copy of it taken for it, only while
///
/// - nobody has said that its block stays (fix()),
/// - nothing in flight was given an address of its block (hold()),
/// - all that is in flight is vouched for (begin()), and
/// - all of that has been so since the unit began to move (slot::cancel).
///
/// Work goes ahead once all that it may reach is mapped (block::mapped(), or
/// all_mapped() where nobody vouches for it). The mover's lock guards it.
class gate
{
public:
    /// @param all  what there is
    /// @param host  where kernels may find addresses; may be null
    /// Both outlive this object.
    gate(blocks &all, const pinned *host) : blocks_(all), host_(host) {}
    gate(const gate &) = delete;
    gate &operator=(const gate &) = delete;

    // ---- Work

    /// Work begins: from here on nothing moves if nobody vouches for it.
    void begin(bool vouched);
    /// It may reach a block, and write to it.
    void hold(block &of);
    void let_go(block &of) { of.in_flight--; }
    /// It has ended, and let go of what it held.
    void end(bool vouched) { unvouched_ -= vouched ? 0 : 1; }

    bool all_vouched() const { return unvouched_ == 0; }
    /// Of all blocks, at this moment.
    bool all_mapped() const { return unmapped_ == 0 && away_ == 0; }

    // ---- What stays

    /// For good. It may have to be waited for until it is mapped.
    void fix(block &of) { of.hold_still(); }

    /// Whether a number is an address by which kernels may reach a block: one
    /// that work was given, or a block's base.
    bool is_address(CUdeviceptr word);

    /// The same of a block that need yet be waited for, or fixed.
    template <typename Use>
    void each_unsettled(CUdeviceptr word, Use use)
    {
        blocks_.meant_by(word).each([&](block &of) {
            if (of.is_given(word) && !of.is_settled())
                use(of);
        });
    }

    /// A table of addresses in the host's memory, which work is given. What it
    /// names stays, for whoever is given a copy of it, and is added to what the
    /// work may reach.
    enum class table
    {
        followed,
        unknown, ///< it may name anything
        denied,  ///< the same, and so will all others
    };
    table follow_table(CUdeviceptr at, std::vector<touched> &reached);

    // ---- Movement

    /// Whether nothing of a block is to begin to move.
    bool must_stay(const block &of) const
    {
        return !of.is_idle() || unvouched_ > 0;
    }
    /// A unit begins to move.
    /// @param in_vain  it is called off at once
    void begin_move(block &of, slot &one, bool in_vain);
    /// Whether it may be unmapped, and a copy of it counts.
    bool may_move(const block &of, const slot &one) const
    {
        return !one.cancel && unvouched_ == 0 && of.in_flight == 0;
    }
    void end_move(block &of, slot &one);
    /// What moves is called off, whatever it is of.
    void call_off_all();

    /// Another thread is about to map it elsewhere, and has.
    void begin_remap(slot &one);
    void end_remap(slot &one);

    /// Nothing is mapped at a unit's address from here on, or something again.
    void set_away(block &of, slot &one, bool away);
    unsigned away() const { return away_; }

private:
    blocks &blocks_;
    const pinned *const host_;
    std::vector<slot *> moving_;
    unsigned unvouched_ = 0; // work in flight
    unsigned unmapped_ = 0;  // units, perhaps, at this moment
    unsigned away_ = 0;      // units, until they are wanted
};

} // namespace emuv::cuda
