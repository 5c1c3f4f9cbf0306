// SPDX-License-Identifier: GPL-2.0-or-later
// The instances that lend to a program: the tiers of its own one, as the CUDA
// library takes them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace emuvctl {

class asked_settings;
struct environment;

/// The instances of a program, as it begins.
struct program_instances
{
    std::vector<int> ids;   ///< one a device; those that lend come last
    std::string tier;       ///< for EMUV_TIER; empty where it stays unset
    std::uint64_t lent = 0; ///< bytes of all tiers

    /// EMUV_INSTANCE, and EMUV_TIER where there is one.
    [[nodiscard]] std::vector<std::pair<std::string, std::string>>
    variables() const;
};

/// Instances with those that lend to the first of them by its tiers. Those that
/// are not named yet are those of the next cards.
/// @param ids  that are named
/// @throws failure  one that lends is not there, or lends twice
program_instances with_tiers(std::vector<int> ids, const environment &env);

/// As with_tiers(), unless the program has tiers of its own or does without the
/// library.
/// @throws usage_error, failure
program_instances with_lenders(std::vector<int> ids,
                               const asked_settings &settings,
                               const environment &env);

} // namespace emuvctl
