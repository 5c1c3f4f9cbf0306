// SPDX-License-Identifier: LGPL-2.1-or-later
// The steps of a program, as its user would count them.
#pragma once

#include "policy/schedule.hpp"

#include <cstdint>

namespace emuv::cuda {

/// Tells where a step of the program ends: a round of the schedule, where one
/// is known. Otherwise a step ends where the device has nothing to run, but is
/// no shorter than shortest_ns.
class rhythm
{
public:
    static constexpr std::uint64_t shortest_ns = 10'000'000;

    /// One work has ended.
    /// @param lag  how many works a round has, by the schedule; 0: it
    ///   does not know. Perhaps of several rounds
    /// @return true if a step of the program has ended with it
    bool ended(std::uint64_t lag)
    {
        if (lag == 0) {
            // One doubt is not the end of a rhythm.
            if (round_ > 0 && ++unknown_ > round_)
                round_ = count_ = 0;
        } else {
            unknown_ = 0;
            if (round_ == 0 || !is_same(lag)) {
                round_ = lag;
                count_ = 0;
                return false;
            }
        }
        if (round_ == 0 || ++count_ < round_)
            return false;
        count_ = 0;
        return true;
    }

    /// The device has nothing to run.
    /// @return true if a step has ended so
    bool empties(std::uint64_t now)
    {
        if (round_ > 0 || now - since_ns_ < shortest_ns)
            return false;
        since_ns_ = now;
        return true;
    }

    /// Work in a step; 0 where no rhythm is known.
    std::uint64_t round() const { return round_; }

private:
    // True if @p lag is of such rounds, one or several. If it is the shorter
    // one, a round is shorter than was thought.
    bool is_same(std::uint64_t lag) const
    {
        return same_round(lag, round_) ||
               (lag > round_ && same_kind_of_round(lag, round_));
    }

    std::uint64_t round_ = 0;
    std::uint64_t count_ = 0;
    std::uint64_t unknown_ = 0; // work in a row of which no round is known
    std::uint64_t since_ns_ = 0;
};

} // namespace emuv::cuda
