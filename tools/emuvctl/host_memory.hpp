// SPDX-License-Identifier: GPL-2.0-or-later
// The host's RAM, and how much of it instances can be promised.
#pragma once

#include <cstdint>
#include <optional>

namespace emuvctl {

struct environment;

struct host_memory
{
    std::uint64_t total_bytes = 0;
    std::uint64_t available_bytes = 0;
    std::uint64_t floor_bytes = 0; ///< what backing leaves free

    /// The bytes that instances can be promised without overcommit.
    [[nodiscard]] std::uint64_t promisable() const
    {
        return total_bytes < floor_bytes ? 0 : total_bytes - floor_bytes;
    }
};

/// From /proc/meminfo and the module's host_floor_mb; nullopt if the former
/// cannot be read.
std::optional<host_memory> read_host_memory(const environment &env);

} // namespace emuvctl
