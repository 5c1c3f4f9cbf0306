// SPDX-License-Identifier: LGPL-2.1-or-later
// Cuts copies and fills at seams. The driver refuses calls that cross from
// handles to registered pages in one range.
#pragma once

#include "base/driver.hpp"

#include <algorithm>
#include <cstdint>

namespace emuv::cuda {

/// The source or the destination of a copy. Without an address it has no seams:
/// memory of the host, or an array.
struct copy_side
{
    CUdeviceptr at = 0;
    std::uint64_t pitch = 0; ///< bytes from row to row
    std::uint64_t slice = 0; ///< and from plane to plane
};

/// A part of a copy: its start in bytes, rows and planes, and its size.
struct copy_part
{
    std::uint64_t x = 0;
    std::uint64_t y = 0;
    std::uint64_t z = 0;
    std::uint64_t width = 0;
    std::uint64_t height = 1;
    std::uint64_t depth = 1;
};

/// The first address of a part, and the bytes from there to the end of its last
/// row. The driver looks at several rows as a whole, with the bytes between
/// them.
constexpr CUdeviceptr start_of(const copy_side &side, const copy_part &part)
{
    return side.at + part.z * side.slice + part.y * side.pitch + part.x;
}
constexpr std::uint64_t extent_of(const copy_side &side, const copy_part &part)
{
    const std::uint64_t last = part.height > 1 || part.depth > 1
                                   ? std::max(side.pitch, part.width)
                                   : part.width;
    return (part.depth - 1) * side.slice + (part.height - 1) * side.pitch +
           last;
}

/// Cuts @p whole, none of whose sizes is 0, and calls @p emit with each part,
/// in order, until one fails.
/// @param run  tells how many bytes from an address on have no seam in them
/// @param emit  makes the call for one part
template <typename Run, typename Emit>
CUresult cut_at_seams(const copy_side &to, const copy_side &from,
                      const copy_part &whole, Run run, Emit emit)
{
    // True if no side of the part has a seam.
    const auto smooth = [&](const copy_part &part) {
        for (const copy_side *side : {&to, &from})
            if (side->at != 0 &&
                run(start_of(*side, part)) < extent_of(*side, part))
                return false;
        return true;
    };
    // Whole rows, or bytes of one row, that come before a seam.
    const auto before_seam = [&](const copy_part &part, bool rows) {
        std::uint64_t most = rows ? part.height : part.width;
        for (const copy_side *side : {&to, &from}) {
            if (side->at == 0)
                continue;
            const std::uint64_t bytes = run(start_of(*side, part));
            if (!rows)
                most = std::min(most, bytes);
            else if (bytes < part.width)
                most = 0;
            else if (side->pitch > 0)
                most = std::min(
                    most, std::max(bytes / side->pitch, std::uint64_t{1}));
        }
        return most;
    };
    const auto cut_row = [&](copy_part row) {
        const std::uint64_t end = row.x + row.width;
        CUresult result = CUDA_SUCCESS;
        while (result == CUDA_SUCCESS && row.x < end) {
            row.width = end - row.x;
            row.width = before_seam(row, false);
            result = emit(row);
            row.x += row.width;
        }
        return result;
    };
    const auto cut_plane = [&](copy_part rows) {
        const std::uint64_t end = rows.y + rows.height;
        CUresult result = CUDA_SUCCESS;
        while (result == CUDA_SUCCESS && rows.y < end) {
            rows.height = end - rows.y;
            const std::uint64_t whole_rows = before_seam(rows, true);
            rows.height = std::max(whole_rows, std::uint64_t{1});
            result = whole_rows > 0 ? emit(rows) : cut_row(rows);
            rows.y += rows.height;
        }
        return result;
    };
    if (smooth(whole))
        return emit(whole);
    CUresult result = CUDA_SUCCESS;
    for (std::uint64_t z = 0; result == CUDA_SUCCESS && z < whole.depth; z++) {
        copy_part plane = whole;
        plane.z += z;
        plane.depth = 1;
        result = smooth(plane) ? emit(plane) : cut_plane(plane);
    }
    return result;
}

} // namespace emuv::cuda
