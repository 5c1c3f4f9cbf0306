// SPDX-License-Identifier: GPL-2.0-or-later
// Compares profiles with instances: finds those that are there, missing,
// different or too many.
#pragma once

#include <emuv/profile.hpp>
#include <emuv/types.hpp>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace emuvctl {

/// One wanted instance, and the one that the machine has in its place.
struct plan_item
{
    const emuv::profile *from = nullptr;
    emuv::instance_spec wanted;
    /// The instance that it is, or that stands where it should be.
    std::optional<emuv::instance_info> found;
    /// True if found is as wanted.
    bool matches = false;
    /// True if found is called by the profile's name.
    bool named = false;

    [[nodiscard]] bool missing() const { return !found.has_value(); }
    [[nodiscard]] bool differs() const { return found && !matches; }
};

/// How a machine and its profiles relate.
struct plan
{
    std::vector<plan_item> items;           ///< in the profiles' order
    std::vector<emuv::instance_info> extra; ///< what no profile asks for
};

/// Finds for each wanted instance its own. A profile with an instance_id is
/// matched by that id. Then come those whose name an instance has. The rest are
/// matched by their values: each takes the lowest instance that has them and
/// that no other has taken.
/// @param names  as read_names() gives them
plan match(std::span<const emuv::profile> profiles,
           std::span<const emuv::instance_info> instances,
           const std::map<std::string, std::string> &names);

/// True if an instance is as a profile wants it.
bool fits(const emuv::instance_spec &wanted, const emuv::instance_info &has);

} // namespace emuvctl
