// SPDX-License-Identifier: LGPL-2.1-or-later
// How an allocation is cut, and which part of it the card gets.
#pragma once

#include "base/size.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace emuv::cuda {

inline constexpr std::uint64_t max_unit_bytes = std::uint64_t{64} << 20;
/// Of what moves, as much as possible is of this size.
inline constexpr std::uint64_t usual_unit_bytes = std::uint64_t{32} << 20;

/// The size of the handles that back an allocation, but for what is left over
/// at its end. The driver's calls cost by handle, so there are few of them, and
/// what is larger than the largest is cut evenly. What moves, moves by handle,
/// and one that has left VRAM makes room for any other of its size: so there
/// are few sizes, powers of two.
/// @param bytes  the allocation, a multiple of chunk_bytes, above 0
/// @param moves  whether it may move
constexpr std::uint64_t unit_for(std::uint64_t bytes, bool moves = false)
{
    if (moves)
        return std::min(std::bit_floor(bytes), usual_unit_bytes);
    const std::uint64_t pieces = (bytes + max_unit_bytes - 1) / max_unit_bytes;
    return round_up((bytes + pieces - 1) / pieces, chunk_bytes);
}

/// The size of the next handle, of those that are to be as large as unit_for()
/// says, where so much is left.
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
