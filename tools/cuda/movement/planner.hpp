// SPDX-License-Identifier: LGPL-2.1-or-later
// Decides when to plan anew which units leave VRAM after which uses.
#pragma once

#include "movement/block.hpp"
#include "policy/schedule.hpp"
#include "policy/step_times.hpp"

#include <cstdint>
#include <mutex>
#include <vector>

namespace emuv::cuda {

/// Has plan_absences() make a new plan: soon where the old one no longer fits,
/// and else now and then. The facts behind a plan are learned step by step.
class planner
{
public:
    /// True if it is time to plan. If so, it counts as done.
    /// @param recurs  whether the next round touches what this one touches
    /// @param excess  bytes that do not fit
    bool is_due(const schedule &uses, bool recurs, std::uint64_t excess);

    /// Does what is_due() asked for: chooses the gaps for which each unit
    /// leaves. The lock is let go while they are chosen.
    /// @param blocks, uses, times  guarded by the lock
    /// @param unmaps  whether units that are away may be mapped nowhere
    /// @return bytes of the units that leave at all
    std::uint64_t plan(std::unique_lock<std::mutex> &lock,
                       const std::vector<block_ref> &blocks,
                       const schedule &uses, const step_times &times,
                       bool unmaps);

    /// True once units were planned to leave: rounds are known. A few launches
    /// that happen to come again are no round; their plan is empty.
    bool has_planned() const { return has_planned_; }

    /// The excess is another from here on: a round is enough for the next plan.
    void hurry() { age_ = round_; }

private:
    std::uint64_t round_of(const schedule &uses);

    // The state that the plan was made for.
    std::uint64_t round_ = 0;
    std::uint64_t excess_ = 0;
    std::uint64_t made_at_ = 0; // steps
    bool has_planned_ = false;  // anything to leave
    std::uint64_t age_ = 0;     // until it is made anew
    // The rounds up to the step that looks like now were alike, when they were
    // compared.
    bool alike_ = false;
    std::uint64_t compared_lag_ = 0;
    std::uint64_t compared_at_ = 0; // steps
};

} // namespace emuv::cuda
