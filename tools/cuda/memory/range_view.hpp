// SPDX-License-Identifier: LGPL-2.1-or-later
// What the program may ask about an address.
#pragma once

#include "base/driver.hpp"

#include <cstdint>

namespace emuv::cuda {

/// An address range of the program's that the library answers for.
struct range_view
{
    CUdeviceptr base = 0;
    std::uint64_t bytes = 0; ///< as the program asked for it
    int device = 0;
    CUcontext context = nullptr; ///< null where the driver says null, too
    bool split = false; ///< what the program asked for and what the driver
                        ///< mapped for it differ in extent
    bool host = false;  ///< some of it lies in host memory
    /// A number of our own for the allocation; 0 where the driver has a right
    /// one.
    std::uint64_t serial = 0;
};

} // namespace emuv::cuda
