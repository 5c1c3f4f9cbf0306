// SPDX-License-Identifier: LGPL-2.1-or-later
// When to plan anew which units leave VRAM after which uses.
#pragma once

#include "movement/block.hpp"
#include "policy/schedule.hpp"
#include "policy/step_times.hpp"

#include <cstdint>
#include <mutex>
#include <vector>

namespace emuv::cuda {

/// Has plan_absences() made again where what was planned no longer fits, soon,
/// and else now and then, since what it rests on is learned by and by.
class planner
{
public:
    /// Whether it is time to. If so, it counts as done.
    /// @param recurs  whether what a round touches comes again in the next
    /// @param excess  bytes that do not fit
    bool is_due(const schedule &uses, bool recurs, std::uint64_t excess);

    /// What is_due() was about: chooses for which gaps each unit leaves, with
    /// the lock let go for that.
    /// @param blocks, uses, times  what the lock guards
    /// @param unmaps  whether what is away may be mapped nowhere
    /// @return bytes of the units that leave at all
    std::uint64_t plan(std::unique_lock<std::mutex> &lock,
                       const std::vector<block_ref> &blocks,
                       const schedule &uses, const step_times &times,
                       bool unmaps);

    /// What the excess is has changed: a round is enough for the next.
    void hurry() { age_ = round_; }

private:
    // What it was made for.
    std::uint64_t round_ = 0;
    std::uint64_t excess_ = 0;
    std::uint64_t made_at_ = 0; // steps
    std::uint64_t age_ = 0;     // at which it is made anew
};

} // namespace emuv::cuda
