// SPDX-License-Identifier: GPL-2.0-or-later
// The tiers of instances: VRAM of other cards that their programs may take
// before system RAM. The driver does not know them; /run/emuv/tiers has a file
// for each instance that has some, under its UUID. They are what 'emuvctl run'
// begins with, and no limit: those that lend charge what is taken.
#pragma once

#include <emuv/profile.hpp>

#include <set>
#include <string>
#include <vector>

namespace emuvctl {

struct environment;

/// The tiers of the instance with a UUID; none where nobody gave it any, or the
/// file makes no sense.
std::vector<emuv::tier> tiers_of_instance(const std::string &uuid,
                                          const environment &env);

/// Gives an instance these tiers in place of those of before, also where it is
/// offered to containers.
/// @throws std::system_error
void give_tiers(const std::vector<emuv::tier> &tiers, const std::string &uuid,
                const environment &env);

/// Removes the tiers of all instances but those with these UUIDs. Any that
/// cannot be removed stay, and mean nothing.
void forget_tiers(const std::set<std::string> &there,
                  const environment &env) noexcept;

} // namespace emuvctl
