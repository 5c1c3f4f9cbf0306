// SPDX-License-Identifier: LGPL-2.1-or-later
// Asks the driver for the calling thread's device, context and captures.
#pragma once

#include "base/driver.hpp"

namespace emuv::cuda {

/// The device of the current context; 0 where there is none.
inline int current_device(const driver &calls)
{
    CUdevice device = 0;
    return calls.cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : 0;
}

/// Null where there is none.
inline CUcontext current_context(const driver &calls)
{
    CUcontext context = nullptr;
    return calls.cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

/// True if work for a stream becomes part of a graph just now.
inline bool is_capturing(const driver &calls, CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return calls.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

} // namespace emuv::cuda
