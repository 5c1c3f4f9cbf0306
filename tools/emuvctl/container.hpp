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
    std::vector<std::string> variables; ///< "NAME=VALUE"
};

/// The part that all instances have in common: the CUDA library.
/// @param folder  where it is on this machine
/// @throws failure it is no library's folder
container_part library_part(const std::filesystem::path &folder);

/// The part of its own: the nodes, and their numbers by device.
/// @param ids  the first device's instance, the second's, ...
container_part instance_part(std::span<const int> ids, const environment &env);

} // namespace emuvctl
