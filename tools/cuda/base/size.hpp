// SPDX-License-Identifier: LGPL-2.1-or-later
// Sizes in bytes, as settings write them and as sentences show them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace emuv::cuda {

/// The unit of the virtual memory management calls, and of the driver's
/// regions: 2 MiB. Allocations below it are left as the driver makes them.
inline constexpr std::uint64_t chunk_bytes = std::uint64_t{2} << 20;

/// Reads digits, perhaps a fraction, and perhaps a unit K, M, G, T or P, alone
/// or followed by B or iB, in any case; units are powers of 1024.
/// @return nothing when @p text is no size, is not a whole number of bytes, or
///   is 2^64 and more
std::optional<std::uint64_t> parse_size(std::string_view text);

/// Text of at most 24 characters and its NUL, in a buffer of its own.
struct size_text
{
    char text[25];
};

/// "1.5 GiB", "512 MiB", "17 bytes": rounded to a tenth of the unit.
size_text show_size(std::uint64_t bytes);

/// @p value rounded up to a multiple of @p unit, a power of two. Values within
/// @p unit of 2^64 give 0.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit)
{
    return (value + unit - 1) & ~(unit - 1);
}

} // namespace emuv::cuda
