// SPDX-License-Identifier: GPL-2.0-or-later
// The tiers of instances: VRAM of other cards that their programs may take
// before system RAM. The driver does not know them; /run/emuv/tiers has a file
// for each instance that has some, under its UUID. They are what 'emuvctl run'
// begins with, and no limit: those that lend charge what is taken. A number may
// become another's, so the file has the UUID of the instance that it meant.
#pragma once

#include <emuv/profile.hpp>

#include <set>
#include <string>
#include <vector>

namespace emuvctl {

struct environment;
class names_lock;

/// A tier as an instance was given it.
struct given_tier
{
    emuv::tier tier;
    std::string lender; ///< its UUID; empty by a name, or with none there yet
    bool holds = true;  ///< false if another has the lender's number now
};

/// The tiers of the instance with a UUID; none where nobody gave it any, or the
/// file makes no sense.
std::vector<given_tier> given_tiers(const std::string &uuid,
                                    const environment &env);
/// Those of them that hold.
std::vector<emuv::tier> tiers_of_instance(const std::string &uuid,
                                          const environment &env);

/// Gives an instance these tiers in place of those of before, also where it is
/// offered to containers.
/// @throws std::system_error
void give_tiers(const std::vector<emuv::tier> &tiers, const std::string &uuid,
                const environment &env);

/// Has tiers mean the instances that have their numbers by now, where there
/// were none before.
void note_lenders(const names_lock &held, const environment &env) noexcept;

/// Removes the tiers of all instances but those with these UUIDs. Any that
/// cannot be removed stay, and mean nothing.
void forget_tiers(const std::set<std::string> &there,
                  const environment &env) noexcept;

} // namespace emuvctl
