// SPDX-License-Identifier: LGPL-2.1-or-later
// Which units are to be away from VRAM, and when.
#pragma once

#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// The time between two uses of a unit, in a round that comes again and again.
/// All times are in parts of it, however long those are.
struct idle_gap
{
    std::uint32_t unit = 0;
    std::uint32_t from = 0;   ///< the moment of the first use, in the round
    std::uint32_t length = 0; ///< to the next; the whole round, where there is
                              ///< one use in it
    std::uint32_t steps = 0;  ///< that it is long, by which it is told from
                              ///< others, but for a sixteenth of them
    bool anew = false;        ///< nothing of what it held is needed after that
    std::uint32_t cost = 1; ///< of leaving for it and coming back: a gap twice
                            ///< as long is worth twice as much; at least 1
};

/// What plan_absences() weighs of a unit.
struct planned_unit
{
    std::uint64_t bytes = 0;
    bool chosen = false; ///< by an earlier plan: again costs least
    bool usual = false;  ///< of a size that most have: it makes room for them
};

/// No gap is chosen that is not longer than the round divided by this.
constexpr std::uint32_t round_parts = 32;

/// Chooses during which gaps units are away, such that at every moment as many
/// bytes are as do not fit, and as few as possible move.
///
/// What nothing is copied for costs nothing, and comes first. Else long gaps
/// cost least, as each is one way out and one back. But what leaves
/// at the same time must share the link, which then has nothing to do
/// elsewhere. So among gaps of about the same length for their cost, those of
/// units of the usual size first, those are preferred that are
/// furthest apart, as many of each moment, those chosen before first among
/// them, and no part of the round takes more than its share for as long as that
/// is enough.
/// @param round  its length; at least 1
/// @param excess  bytes that do not fit
/// @return for each gap whether its unit leaves for it
std::vector<bool> plan_absences(const std::vector<idle_gap> &gaps,
                                const std::vector<planned_unit> &units,
                                std::uint32_t round, std::uint64_t excess);

} // namespace emuv::cuda
