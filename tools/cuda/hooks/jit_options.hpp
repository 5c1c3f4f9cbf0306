// SPDX-License-Identifier: LGPL-2.1-or-later
// The options with which code is loaded.
#pragma once

#include <algorithm>

#include <cuda.h>

namespace emuv::cuda {

/// True if the driver only tells of what it does, by these options. Others may
/// have it compile text in place of code.
inline bool only_tell(unsigned count, const CUjit_option *options)
{
    const auto tells = [](CUjit_option one) {
        switch (one) {
        case CU_JIT_WALL_TIME:
        case CU_JIT_INFO_LOG_BUFFER:
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        case CU_JIT_ERROR_LOG_BUFFER:
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        case CU_JIT_LOG_VERBOSE:
            return true;
        default:
            return false;
        }
    };
    return options == nullptr || std::all_of(options, options + count, tells);
}

} // namespace emuv::cuda
