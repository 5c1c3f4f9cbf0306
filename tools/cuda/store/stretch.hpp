// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory of one kind, from an address on.
#pragma once

#include <cstdint>

namespace emuv::cuda {

/// Memory of one kind, from an address on: VRAM, or system RAM.
struct stretch
{
    std::uint64_t bytes = 0; ///< to the next seam; UINT64_MAX: there is none
    std::uint64_t left = 0;  ///< to the end of the allocation
    bool in_ram = false;
};

} // namespace emuv::cuda
