// SPDX-License-Identifier: GPL-2.0-or-later
// The options that say what an instance is to be, for several verbs.
#pragma once

#include "verb.hpp"

#include <emuv/profile.hpp>

#include <string>
#include <vector>

namespace emuvctl {

/// The text of each option; empty where it was left out.
struct instance_options
{
    std::string gpu_model;
    std::string physical;
    std::string virtual_size;
    std::string client_virtual;
    std::string id;
    std::string numa_node;
    std::string pci_device_id;
    std::string swap;
    std::string tier;
    bool overcommit = false;
    bool guaranteed = false;
    bool numa_bind = false;
};

/// Those options whose values a profile, or another instance, has as well.
std::vector<std::string> options_of_a_profile();

/// The options that fill @p into, which has to outlive them.
std::vector<option> options_of_an_instance(instance_options &into);

/// A profile without a name that says what the options do. The model and the
/// physical VRAM are marked as not given where no option has them.
/// @throws usage_error a value cannot be, or --virtual is missing
emuv::profile read_instance_options(const instance_options &options);

/// Adds those options that may stand beside a profile: the id, the swap file,
/// the tiers and the flags.
/// @throws usage_error
void add_to_profile(const instance_options &options, emuv::profile &what);

/// Throws a usage_error if two options contradict each other.
void check_together(const emuv::instance_spec &spec);

} // namespace emuvctl
