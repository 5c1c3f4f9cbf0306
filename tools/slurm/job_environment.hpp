// SPDX-License-Identifier: GPL-2.0-or-later
// The variables of a job's tasks, as the prolog has kept them.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace emuv_slurm {

using variables = std::vector<std::pair<std::string, std::string>>;

/// Reads lines of NAME=VALUE. @return nullopt if there is no such file
/// @throws std::system_error  it cannot be read
/// @throws std::runtime_error  a line is something else, or the file's owner is
///   neither root nor this user
std::optional<variables> read_environment(const std::string &path);

/// The value of a variable where the job has one already. Libraries that the
/// job preloads come behind ours, which stand there once.
/// The instance and its tiers are the prolog's to choose; a job may have no
/// tiers (none). All else is the job's own where it says something.
/// @param before  the job's own value, empty if there is none
std::string joined_value(const std::string &name, const std::string &value,
                         const std::string &before);

} // namespace emuv_slurm
