// SPDX-License-Identifier: LGPL-2.1-or-later
// The cut of an allocation into units, and the part of it that is VRAM.
#pragma once

#include "base/size.hpp"

#include <algorithm>
#include <cstdint>

namespace emuv::cuda {

inline constexpr std::uint64_t max_unit_bytes = std::uint64_t{64} << 20;
/// The largest unit that moves: several have to be on their way at once.
inline constexpr std::uint64_t max_moving_bytes = max_unit_bytes / 2;

/// Bytes between two allocations that share memory, which neither has. An
/// address there is meant for none of them.
inline constexpr std::uint64_t guard_bytes = std::uint64_t{64} << 10;

/// The size of the handles that back an allocation, but for the rest at its
/// end. The driver's calls cost by handle, so handles are few: an allocation
/// above the largest size is cut evenly. Memory moves by handle, and one that
/// is evicted makes room for any other of its size: tensors of one size do.
/// Cut into powers of two any would, but the calls for the smaller ones cost
/// more than that saves (docs/results/programs-past-h200.json).
/// @param bytes  the allocation, a multiple of chunk_bytes, above 0
/// @param moves  true if it may move
constexpr std::uint64_t unit_for(std::uint64_t bytes, bool moves = false)
{
    const std::uint64_t most = moves ? max_moving_bytes : max_unit_bytes;
    const std::uint64_t units = (bytes + most - 1) / most;
    return round_up((bytes + units - 1) / units, chunk_bytes);
}

/// The size of the next handle.
/// @param left_bytes  the part of the allocation that has no handle yet
/// @param unit_bytes  the size that unit_for() gave
constexpr std::uint64_t next_unit(std::uint64_t left_bytes,
                                  std::uint64_t unit_bytes)
{
    return std::min(left_bytes, unit_bytes);
}

/// The longest part of an allocation, from its begin, that has whole handles
/// and at most @p most_bytes. So the parts in VRAM and in system RAM are cut as
/// the whole would be, and no handle is smaller than it need be.
constexpr std::uint64_t whole_units(std::uint64_t bytes,
                                    std::uint64_t unit_bytes,
                                    std::uint64_t most_bytes)
{
    return most_bytes >= bytes ? bytes : most_bytes / unit_bytes * unit_bytes;
}

} // namespace emuv::cuda
