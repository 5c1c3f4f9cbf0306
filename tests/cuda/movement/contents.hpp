// SPDX-License-Identifier: GPL-2.0-or-later
// Bytes for blocks, which tell each block from all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

/// Words that no other number has, nor at another place. Sanitizers are not
/// told of each: that would be most of a test's time.
__attribute__((noinline, optimize("O3"),
               no_sanitize("address", "thread"))) inline void
write_contents(std::uint32_t *to, std::size_t words, std::uint32_t which)
{
    const std::uint32_t first = which * 2654435761u;
    for (std::size_t i = 0; i < words; i++)
        to[i] = first + static_cast<std::uint32_t>(i + 1) * 0x9e3779b9u;
}

/// @param which  the number of these contents
inline std::vector<std::uint32_t> contents(std::uint32_t which,
                                           std::uint64_t bytes)
{
    std::vector<std::uint32_t> out(bytes / sizeof(std::uint32_t));
    write_contents(out.data(), out.size(), which);
    return out;
}
