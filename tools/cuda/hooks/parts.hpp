// SPDX-License-Identifier: LGPL-2.1-or-later
// Cuts the driver's copies and fills, in each of the ways they are described,
// at the seams of allocations, into parts that the driver takes.
#pragma once

#include "memory/memory.hpp"
#include "store/seam.hpp"

namespace emuv::cuda {

/// The table that the functions here take: @p table if there are seams to look
/// for, else null.
inline memory *with_seams(memory *table)
{
    return table != nullptr && table->has_seams() ? table : nullptr;
}

/// True if any of the allocation lies in system RAM, or may at any moment.
inline bool touches_ram(memory &table, CUdeviceptr at)
{
    allocation_view view;
    return table.find(at, view) && (view.host || !table.moving().empty());
}

// These hold for memory that stays as it is.

/// The bytes from @p at to the next seam; UINT64_MAX where there is none.
inline std::uint64_t seam_after(memory &table, CUdeviceptr at)
{
    const auto found = table.stretch_at(at);
    return found ? found->bytes : UINT64_MAX;
}
/// True if a seam lies inside these bytes, all of one allocation.
inline bool crosses_seam(memory &table, CUdeviceptr at, std::uint64_t bytes)
{
    const auto found = table.stretch_at(at);
    return found && bytes <= found->left && found->bytes < bytes;
}
/// True if the memory allocated there is in system RAM.
inline bool in_system_ram(memory &table, CUdeviceptr at)
{
    const auto found = table.stretch_at(at);
    return found && found->in_ram;
}

/// Calls @p real with one part of the request after the other. If no seam is
/// in the way, that is all of it at once.
template <typename Real>
CUresult in_parts(memory *table, const copy_side &to, const copy_side &from,
                  const copy_part &whole, Real real)
{
    if (table == nullptr || whole.width == 0 || whole.height == 0 ||
        whole.depth == 0)
        return real(whole);
    const auto crosses = [&](const copy_side &side) {
        return side.at != 0 && crosses_seam(*table, start_of(side, whole),
                                            extent_of(side, whole));
    };
    if (!crosses(to) && !crosses(from))
        return real(whole);
    return cut_at_seams(
        to, from, whole, [&](CUdeviceptr at) { return seam_after(*table, at); },
        real);
}

/// In one dimension: @p real takes an offset and a number of bytes.
template <typename Real>
CUresult in_line(memory *table, CUdeviceptr to, CUdeviceptr from,
                 std::size_t bytes, Real real)
{
    copy_part whole;
    whole.width = bytes;
    return in_parts(table, {to, 0, 0}, {from, 0, 0}, whole,
                    [&](const copy_part &part) {
                        return real(static_cast<std::size_t>(part.x),
                                    static_cast<std::size_t>(part.width));
                    });
}

/// A description's own fields that describe one side of a copy.
struct described_side
{
    CUmemorytype type;
    CUdeviceptr &at;
    std::size_t &x;
    std::size_t &y;
    std::size_t &pitch;
    std::size_t *z = nullptr; ///< these two in three dimensions only
    std::size_t *height = nullptr;
};

/// CUDA_MEMCPY2D has no planes; CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER have.
template <typename Copy>
inline constexpr bool has_planes = requires(Copy copy)
{
    copy.Depth;
};

template <typename Copy>
described_side destination_of(Copy &copy)
{
    described_side side{copy.dstMemoryType, copy.dstDevice, copy.dstXInBytes,
                        copy.dstY, copy.dstPitch};
    if constexpr (has_planes<Copy>) {
        side.z = &copy.dstZ;
        side.height = &copy.dstHeight;
    }
    return side;
}

template <typename Copy>
described_side source_of(Copy &copy)
{
    described_side side{copy.srcMemoryType, copy.srcDevice, copy.srcXInBytes,
                        copy.srcY, copy.srcPitch};
    if constexpr (has_planes<Copy>) {
        side.z = &copy.srcZ;
        side.height = &copy.srcHeight;
    }
    return side;
}

/// Corrects the kind of a side that is said to be the host's and is not. The
/// driver finds out, too.
template <typename Copy>
void find_sides(memory &table, Copy &copy)
{
    allocation_view view;
    const auto source = reinterpret_cast<CUdeviceptr>(copy.srcHost);
    if (copy.srcMemoryType == CU_MEMORYTYPE_HOST && table.find(source, view)) {
        copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
        copy.srcDevice = source;
    }
    const auto destination = reinterpret_cast<CUdeviceptr>(copy.dstHost);
    if (copy.dstMemoryType == CU_MEMORYTYPE_HOST &&
        table.find(destination, view)) {
        copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
        copy.dstDevice = destination;
    }
}

/// One side as it is cut. A copy's own defaults for the distances between rows
/// and planes depend on its size, and so are written down before.
inline copy_side side_of(const described_side &asked, const copy_part &whole)
{
    if (asked.pitch == 0)
        asked.pitch = asked.x + whole.width;
    if (asked.height != nullptr && *asked.height == 0)
        *asked.height = asked.y + whole.height;
    copy_side side;
    if (asked.type != CU_MEMORYTYPE_DEVICE &&
        asked.type != CU_MEMORYTYPE_UNIFIED)
        return side;
    side.pitch = asked.pitch;
    side.slice = asked.height != nullptr ? asked.pitch * *asked.height : 0;
    side.at = asked.at + (asked.z != nullptr ? *asked.z * side.slice : 0) +
              asked.y * asked.pitch + asked.x;
    return side;
}

/// Makes a description's side that of one part.
inline void narrow(const described_side &asked, const copy_side &side,
                   const copy_part &part)
{
    if (side.at == 0) {
        asked.x += part.x;
        asked.y += part.y;
        if (asked.z != nullptr)
            *asked.z += part.z;
        return;
    }
    // The driver looks at all memory between the address it is given and the
    // last byte. So it is told no more than what is touched.
    asked.at = start_of(side, part);
    asked.x = asked.y = 0;
    if (asked.z != nullptr)
        *asked.z = 0;
    if (part.height == 1 && part.depth == 1) {
        asked.pitch = part.width;
        if (asked.height != nullptr)
            *asked.height = 1;
    }
}

/// By a description, of two or three dimensions: @p real takes such a one.
template <typename Copy, typename Real>
CUresult as_described(memory *table, const Copy *asked, Real real)
{
    if (asked == nullptr || table == nullptr)
        return real(asked);
    Copy copy = *asked;
    find_sides(*table, copy);
    copy_part whole;
    whole.width = copy.WidthInBytes;
    whole.height = copy.Height;
    if constexpr (has_planes<Copy>)
        whole.depth = copy.Depth;
    const copy_side to = side_of(destination_of(copy), whole);
    const copy_side from = side_of(source_of(copy), whole);
    return in_parts(table, to, from, whole, [&](const copy_part &part) {
        Copy narrowed = copy;
        narrow(destination_of(narrowed), to, part);
        narrow(source_of(narrowed), from, part);
        narrowed.WidthInBytes = part.width;
        narrowed.Height = part.height;
        if constexpr (has_planes<Copy>)
            narrowed.Depth = part.depth;
        return real(static_cast<const Copy *>(&narrowed));
    });
}

/// A fill, in elements of some bytes: @p real takes an address, a width and a
/// height. An address that is no multiple of an element is wrong, and one that
/// is has no element across a seam.
template <typename Real>
CUresult as_filled(memory *table, CUdeviceptr to, std::size_t pitch,
                   std::size_t element, std::size_t width, std::size_t height,
                   Real real)
{
    copy_part whole;
    whole.height = height;
    if (element == 0 || to % element != 0 || pitch % element != 0 ||
        __builtin_mul_overflow(width, element, &whole.width))
        return real(to, width, height);
    return in_parts(
        table, {to, pitch, 0}, {}, whole, [&](const copy_part &part) {
            return real(to + part.y * pitch + part.x,
                        static_cast<std::size_t>(part.width / element),
                        static_cast<std::size_t>(part.height));
        });
}

} // namespace emuv::cuda
