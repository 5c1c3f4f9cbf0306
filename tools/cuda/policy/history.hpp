// SPDX-License-Identifier: LGPL-2.1-or-later
// The remembered uses of an allocation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace emuv::cuda {

/// Part of an allocation that one work is given: units first to last of
/// the block that begins at base.
struct touch
{
    std::uint64_t base = 0;
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    bool anew =
        false; ///< since the last time it was freed, and allocated again
};

/// No step of the past.
constexpr std::uint32_t no_step = UINT32_MAX;

/// The steps of a program at which parts of an allocation were touched.
struct history
{
    struct use
    {
        std::uint32_t step;
        std::uint32_t first;
        std::uint32_t last : 31;
        bool anew : 1;

        /// True if this use covers the first unit of @p given.
        bool touches(const touch &given) const
        {
            return given.first >= first && given.first <= last;
        }
        /// True if both use the same units, and both or none of them anew.
        bool is_like(const use &other) const
        {
            return first == other.first && last == other.last &&
                   anew == other.anew;
        }
    };

    std::vector<use> uses;
    std::uint64_t noted = 0; ///< the work that touched it last
    int trust = 0;           ///< see landmarks

    /// The first use at that step or later.
    std::vector<use>::const_iterator from(std::uint64_t step) const
    {
        return std::lower_bound(uses.begin(), uses.end(), step,
                                [](const use &one, std::uint64_t other) {
                                    return one.step < other;
                                });
    }
    /// The first use after that step.
    std::vector<use>::const_iterator after(std::uint32_t step) const
    {
        return from(std::uint64_t{step} + 1);
    }
};

/// The history of each allocation, by its first address.
using histories = std::map<std::uint64_t, history>;

} // namespace emuv::cuda
