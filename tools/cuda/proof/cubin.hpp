// SPDX-License-Identifier: LGPL-2.1-or-later
// Files of machine code for one architecture: cubins.
#pragma once

#include "proof/bytes.hpp"
#include "proof/prover.hpp"

#include <vector>

namespace emuv::cuda::proof {

struct cubin
{
    unsigned sm = 0;
    std::vector<kernel_code> kernels; ///< they point into the file
};

/// @return nothing if it is none, or does not make sense
std::optional<cubin> read_cubin(bytes file);

} // namespace emuv::cuda::proof
