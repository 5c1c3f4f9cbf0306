// SPDX-License-Identifier: GPL-2.0-or-later
// Instances that last: each has a profile of its name in a drop-in file of its
// own, FILE.d/NAME.conf, from which every boot makes it.
#pragma once

#include <emuv/profile.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace emuvctl {

struct environment;

/// All profiles; none where there is no file of them.
/// @param config  --config, or empty
/// @throws emuv::profile_error, usage_error
std::vector<emuv::profile> present_profiles(const std::string &config);

/// The file that `define` writes for a name. @param config  --config, or empty
std::filesystem::path definition_file(const std::string &name,
                                      const std::string &config);

/// Refuses a definition that may not be written. A profile of its name stands
/// elsewhere, or the profiles would have errors with it.
/// @throws failure, emuv::profile_error
void check_definition(const emuv::profile &what, const std::string &config);

/// Writes a profile to the file of its name, in the place of the one before.
/// Readers see the old file or the new one, whole, and so does the next boot if
/// the machine fails meanwhile.
/// @return the file
/// @throws failure, emuv::profile_error, std::system_error
std::filesystem::path write_definition(const emuv::profile &what,
                                       const std::string &config,
                                       const environment &env);

/// The profile of a name.
/// @throws failure there is none, or it stands for several instances
const emuv::profile &find_profile(const std::vector<emuv::profile> &profiles,
                                  const std::string &name);

/// The files that `define` wrote for these names.
/// @throws failure, emuv::profile_error  of one there is none
std::vector<std::filesystem::path>
own_files(const std::vector<std::string> &names, const std::string &config);

/// Removes them, and their folder if that is empty then. Nobody writes a
/// definition between the look at them and that.
/// @throws failure, emuv::profile_error, std::system_error
void remove_definitions(const std::vector<std::string> &names,
                        const std::string &config, const environment &env);

} // namespace emuvctl
