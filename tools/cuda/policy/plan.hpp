// SPDX-License-Identifier: LGPL-2.1-or-later
// The plan of the units that leave VRAM, and of the times they are away.
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
    std::uint32_t length = 0; ///< to the next use; the whole round, if there
                              ///< is one use in it
    std::uint32_t steps = 0;  ///< its length in steps: gaps that differ by up
                              ///< to a sixteenth are the same
    bool anew = false;        ///< the unit's content is not needed after it
    std::uint32_t cost = 1;   ///< to leave for it and come back: a gap twice as
                              ///< long is worth twice as much; at least 1
};

/// A unit as plan_absences() weighs it.
struct planned_unit
{
    std::uint64_t bytes = 0;
    bool chosen = false; ///< by an earlier plan: to choose it again costs least
    bool large = false;  ///< its copies take longer than the driver's calls
};

/// A gap must be longer than the round divided by this to be chosen.
constexpr std::uint32_t round_bins = 32;

/// Chooses the gaps during which units are away. At every moment @p excess
/// bytes should be away, and as few as possible should move.
///
/// Gaps that need no copy cost nothing, and come first. Long gaps come next, as
/// each costs one way out and one back. But units that leave at the same time
/// share the link, which then idles at other times. So gaps of about the same
/// length for their cost are ordered further. Large units come first, then
/// gaps that are furthest apart, equally many of each moment. Within a moment,
/// units chosen before come first. No bin of the round takes more than its
/// share for as long as that is enough.
/// @param round  its length; at least 1
/// @param excess  bytes that do not fit
/// @return for each gap, true if its unit leaves for it
std::vector<bool> plan_absences(const std::vector<idle_gap> &gaps,
                                const std::vector<planned_unit> &units,
                                std::uint32_t round, std::uint64_t excess);

} // namespace emuv::cuda
