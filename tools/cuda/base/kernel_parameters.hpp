// SPDX-License-Identifier: LGPL-2.1-or-later
// How a kernel's parameters lie, as the driver tells.
#pragma once

#include "base/driver.hpp"

#include <cstddef>
#include <vector>

namespace emuv::cuda {

/// A parameter's offset among the bytes of all of them.
struct kernel_parameter
{
    std::size_t offset = 0;
    std::size_t bytes = 0;
};

/// Asks the driver about a kernel's parameters, in their order. The driver may
/// load the kernel.
/// @param which  a function; or a CUkernel, which launches take as well
/// @return false if not all of them are known
inline bool ask_parameters(const driver &calls, CUfunction which,
                           std::vector<kernel_parameter> &out)
{
    const auto kernel = reinterpret_cast<CUkernel>(which);
    CUresult answer = CUDA_SUCCESS;
    const auto ask = [&](bool as_kernel) {
        kernel_parameter next;
        const std::size_t i = out.size();
        answer = as_kernel ? calls.cuKernelGetParamInfo(kernel, i, &next.offset,
                                                        &next.bytes)
                           : calls.cuFuncGetParamInfo(which, i, &next.offset,
                                                      &next.bytes);
        if (answer == CUDA_SUCCESS)
            out.push_back(next);
        return answer == CUDA_SUCCESS;
    };
    // The first question tells which of the two it is.
    bool as_kernel = false;
    if (!ask(false)) {
        const CUresult first = answer;
        as_kernel = ask(true);
        if (!as_kernel && first == CUDA_ERROR_INVALID_VALUE)
            answer = first;
    }
    if (answer == CUDA_SUCCESS)
        while (ask(as_kernel)) {
        }
    // Only the answer that there are no more completes them.
    return answer == CUDA_ERROR_INVALID_VALUE;
}

} // namespace emuv::cuda
