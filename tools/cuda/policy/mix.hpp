// SPDX-License-Identifier: LGPL-2.1-or-later
// The mixing of a hash's bits.
#pragma once

#include <cstdint>

namespace emuv::cuda {

/// Has each bit of a number reach many others, the upper half above all.
inline std::uint64_t mix(std::uint64_t value)
{
    value ^= value >> 32;
    value *= 0xd6e8feb86659fd93u;
    value ^= value >> 32;
    return value;
}

} // namespace emuv::cuda
