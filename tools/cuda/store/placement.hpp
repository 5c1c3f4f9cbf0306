// SPDX-License-Identifier: LGPL-2.1-or-later
// The cut of an allocation into units, and the part of it that is VRAM.
#pragma once

#include "base/size.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace emuv::cuda {

inline constexpr std::uint64_t max_unit_bytes = std::uint64_t{64} << 20;
/// As much memory that moves as possible is in units of this size.
inline constexpr std::uint64_t usual_unit_bytes = std::uint64_t{32} << 20;

/// The size of the handles that back an allocation, but for the rest at its
/// end. The driver's calls cost by handle, so handles are few: an allocation
/// above the largest size is cut evenly. Memory moves by handle, and an evicted
/// one makes room for any other of its size: so sizes are few, powers of two.
/// @param bytes  the allocation, a multiple of chunk_bytes, above 0
/// @param moves  true if it may move
constexpr std::uint64_t unit_for(std::uint64_t bytes, bool moves = false)
{
    if (moves)
        return std::min(std::bit_floor(bytes), usual_unit_bytes);
    const std::uint64_t pieces = (bytes + max_unit_bytes - 1) / max_unit_bytes;
    return round_up((bytes + pieces - 1) / pieces, chunk_bytes);
}

/// The size of the next handle.
/// @param left_bytes  the part of the allocation that has no handle yet
/// @param unit_bytes  the size that unit_for() gave
constexpr std::uint64_t next_unit(std::uint64_t left_bytes,
                                  std::uint64_t unit_bytes)
{
    if (left_bytes >= unit_bytes)
        return unit_bytes;
    return unit_bytes <= usual_unit_bytes && std::has_single_bit(unit_bytes)
               ? std::bit_floor(left_bytes)
               : left_bytes;
}

} // namespace emuv::cuda
