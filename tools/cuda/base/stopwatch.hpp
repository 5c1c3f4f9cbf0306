// SPDX-License-Identifier: LGPL-2.1-or-later
// Times copies on the device.
#pragma once

#include "base/driver.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace emuv::cuda {

/// Times copies on a stream of their own. The first ones wake the link up, and
/// find the memory untouched, so they do not count.
/// @param times  the runs that count; the fastest is taken, since others may
///   use the link
/// @param enqueue  (CUstream): enqueues the copies, once; true if the driver
///   has taken them
/// @return milliseconds, 0 if they could not be timed; all copies have ended
///   either way
template <typename Enqueue>
float fastest_ms(const driver &calls, std::size_t times, Enqueue enqueue)
{
    CUstream stream = nullptr;
    std::vector<CUevent> events(times + 1);
    bool timed =
        calls.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    for (CUevent &event : events)
        timed = timed && calls.cuEventCreate(&event, 0) == CUDA_SUCCESS;
    for (const CUevent event : events)
        timed = timed && enqueue(stream) &&
                calls.cuEventRecord(event, stream) == CUDA_SUCCESS;
    timed = stream != nullptr &&
            calls.cuStreamSynchronize(stream) == CUDA_SUCCESS && timed;
    float least_ms = 0;
    for (std::size_t i = 1; timed && i < events.size(); i++) {
        float ms = 0;
        timed = calls.cuEventElapsedTime(&ms, events[i - 1], events[i]) ==
                CUDA_SUCCESS;
        least_ms = i == 1 ? ms : std::min(least_ms, ms);
    }
    for (const CUevent event : events)
        if (event != nullptr)
            calls.cuEventDestroy_v2(event);
    if (stream != nullptr)
        calls.cuStreamDestroy_v2(stream);
    return timed && least_ms > 0 ? least_ms : 0;
}

} // namespace emuv::cuda
