// SPDX-License-Identifier: LGPL-2.1-or-later
// Sizes in bytes as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace emuv {

/// Reads a size: digits, with an optional fraction and an optional unit. The
/// unit is K, M, G, T or P, alone or followed by B or iB, in any case. Units
/// are powers of 1024. "12G", "1.5 GiB" and "512m" are sizes; so is "4096", in
/// bytes.
/// @param unit_shift  a number without a unit counts 1 << unit_shift bytes. A
///   shift other than 0 forbids a unit.
/// @throws std::invalid_argument  The message names the mistake. Mistakes
///   are no number, an unknown unit, a part of a byte, and 2^64 or more.
std::uint64_t parse_size(std::string_view text, unsigned unit_shift = 0);

/// For tables: three or four digits and a unit, "12G", "1.5G", "900M", "0".
/// Rounded to a tenth.
std::string format_size(std::uint64_t bytes);

/// For sentences: "12 GiB", "1.5 GiB", "512 bytes". The result is exact: a size
/// that a larger unit would round gets a smaller one.
std::string format_size_exact(std::uint64_t bytes);

/// Bytes as a decimal number of units of 1 << shift bytes, exact: "1.5".
std::string format_decimal(std::uint64_t bytes, unsigned shift);

} // namespace emuv
