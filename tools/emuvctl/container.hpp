// SPDX-License-Identifier: GPL-2.0-or-later
// All that a container is handed of an instance: its node, the CUDA library and
// the variables that put programs under it.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace emuvctl {

struct environment;

/// The folder in which a container finds the CUDA library. Always the same, so
/// that images and compose files need not know the host's.
inline constexpr const char *container_library_folder = "/usr/lib/emuv";

/// A folder that a container sees, read-only.
struct container_mount
{
    std::string host;
    std::string inside;
};

struct container_part
{
    std::vector<std::string> nodes; ///< the same path in and out
    std::vector<container_mount> mounts;
    /// "NAME=VALUE". Engines set those of a file above those of its user, so a
    /// setting is there as its default alone: EMUV_MOVE_DEFAULT.
    std::vector<std::string> variables;
    std::string without_tiers = {}; ///< why the instance's tiers are left out
};

/// The part that all instances have in common: the CUDA library, under which
/// memory moves.
/// @param folder  where it is on this machine
/// @throws failure it is no library's folder
container_part library_part(const std::filesystem::path &folder);

/// The part of its own: the nodes, and their numbers by device, with those that
/// lend to the first.
/// @param ids  the first device's instance, the second's, ...
container_part instance_part(std::span<const int> ids, const environment &env);

/// Tells the user if tiers are left out.
void say_without_tiers(const container_part &part, const environment &env);

} // namespace emuvctl
