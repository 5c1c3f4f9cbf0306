// SPDX-License-Identifier: LGPL-2.1-or-later
// Answers to the program's questions about an address.
#pragma once

#include "base/driver.hpp"

#include <cstdint>

namespace emuv::cuda {

/// An allocation of the program's that the library answers for.
struct allocation_view
{
    CUdeviceptr base = 0;
    std::uint64_t bytes = 0; ///< as the program asked for it
    int device = 0;
    CUcontext context = nullptr; ///< null where the driver says null, too
    /// The driver mapped another extent than the program asked for.
    bool split = false;
    bool host = false; ///< some of it lies in system RAM
    /// A number of our own for the allocation; 0 where the driver's is right.
    std::uint64_t serial = 0;
};

} // namespace emuv::cuda
