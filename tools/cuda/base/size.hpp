// SPDX-License-Identifier: LGPL-2.1-or-later
// Sizes in bytes, and as text.
#pragma once

#include "../../lib/size_text.hpp"

#include <cstdint>

namespace emuv::cuda {

/// The unit of the virtual memory management calls, and of the driver's
/// regions: 2 MiB. Allocations below it are left as the driver makes them.
inline constexpr std::uint64_t chunk_bytes = std::uint64_t{2} << 20;

/// @p value rounded up to a multiple of @p unit, a power of two. Values within
/// @p unit of 2^64 give 0.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit)
{
    return (value + unit - 1) & ~(unit - 1);
}

} // namespace emuv::cuda
