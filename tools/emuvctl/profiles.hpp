// SPDX-License-Identifier: GPL-2.0-or-later
// Reads profiles, and makes rows of them, for several verbs.
#pragma once

#include "output.hpp"

#include <emuv/profile.hpp>

#include <span>
#include <string>
#include <vector>

namespace emuvctl {

struct environment;

/// The profiles of a file, or of the default one if @p config is empty.
/// @throws emuv::profile_error
std::vector<emuv::profile> read_profiles(const std::string &config);

/// The same, each with the model and VRAM of this machine's card where it
/// leaves them out. @throws emuv::profile_error, failure
std::vector<emuv::profile> complete_profiles(const std::string &config,
                                             const environment &env);

/// The columns of a profile, for profile and export.
std::span<const column> profile_columns();
/// One profile in those columns.
row profile_row(const emuv::profile &what);

} // namespace emuvctl
