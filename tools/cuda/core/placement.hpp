// SPDX-License-Identifier: LGPL-2.1-or-later
// How an allocation is cut, and which part of it the card gets.
#pragma once

#include "size.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace emuv::cuda {

inline constexpr std::uint64_t max_unit_bytes = std::uint64_t{64} << 20;

/// The size of the handles that back an allocation. The driver's calls cost by
/// handle, so there are few of them; what may move later moves by handle, so
/// there are several.
/// @param bytes  the allocation, a multiple of chunk_bytes, above 0
constexpr std::uint64_t unit_for(std::uint64_t bytes)
{
    return std::clamp(std::bit_floor(bytes / 4), chunk_bytes, max_unit_bytes);
}

/// How much of @p bytes goes to VRAM when @p free_bytes of the budget are left:
/// all that fits, in whole chunks.
constexpr std::uint64_t device_share(std::uint64_t bytes,
                                     std::uint64_t free_bytes)
{
    return std::min(bytes, free_bytes & ~(chunk_bytes - 1));
}

} // namespace emuv::cuda
