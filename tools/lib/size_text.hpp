// SPDX-License-Identifier: LGPL-2.1-or-later
// Sizes as text, for libemuv and for the CUDA library: without exceptions, and
// without allocating.
#pragma once

#include <cstdint>
#include <string_view>

namespace emuv {

/// Why a text is no size.
enum class size_problem
{
    none,
    not_a_size,
    unknown_unit,
    unit_given, ///< though the number alone counts units
    too_large,  ///< 2^64 and more
    not_whole,  ///< not a whole number of bytes
};

struct size_reading
{
    size_problem problem;
    std::uint64_t bytes = 0;
    std::string_view unit = {}; ///< the unknown one, a part of the text
};

/// Reads digits, perhaps a fraction, and perhaps a unit K, M, G, T or P, alone
/// or followed by B or iB, in any case. Units are powers of 1024.
/// @param unit_shift  a number counts 1 << unit_shift bytes. If it is not 0, no
///   unit may be written. At most 50
size_reading read_size(std::string_view text, unsigned unit_shift = 0);

/// Text of at most 24 characters and its NUL, in a buffer of its own.
struct size_text
{
    char text[25];
};

/// "1.5 GiB", "512 MiB", "17 bytes": rounded to a tenth of the unit.
size_text show_size(std::uint64_t bytes);

} // namespace emuv
