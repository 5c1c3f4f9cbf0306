// SPDX-License-Identifier: GPL-2.0-or-later
// The container that a process runs in, by its control group.
#pragma once

#include <string>
#include <string_view>

namespace emuvctl {

struct environment;

/// A container, as its engine calls it. Both are empty for a process in none.
struct process_container
{
    std::string engine; ///< "podman", "docker", "containerd", ...
    std::string id;     ///< 64 hexadecimal digits, or a name

    /// "podman 1f3a5c7e9b2d": as engines list it; empty for none.
    [[nodiscard]] std::string text() const;
};

/// Reads /proc/PID/cgroup.
/// @param text  the file's
process_container parse_cgroup(std::string_view text);

/// The container of a process; none where the process is gone.
process_container container_of(int pid, const environment &env);

} // namespace emuvctl
