// SPDX-License-Identifier: GPL-2.0-or-later
// nvdisasm's reading of an instruction, beside the decoder's.
#pragma once

#include "proof/sass.hpp"

#include <cstdint>
#include <optional>
#include <string>

/// An instruction, and the text that nvdisasm makes of it.
struct reading
{
    unsigned sm = 0;
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    std::string text;
    /// The way of a branch in bytes, from the instruction behind it, where that
    /// is known.
    std::optional<std::int64_t> distance;
};

/// Compares the operation, its condition, what it writes, its address, and the
/// memory that it reaches.
/// @return the first difference, or nothing
std::string difference(const reading &from);
