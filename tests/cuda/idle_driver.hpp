// SPDX-License-Identifier: GPL-2.0-or-later
// A driver that does nothing and succeeds, for tests that need no more of it.
#pragma once

#include "base/driver.hpp"

#include <cstdint>
#include <cstdlib>

/// Answers any call with success.
template <typename... Arguments>
CUresult succeed(Arguments...)
{
    return CUDA_SUCCESS;
}

/// Lets every call that has no answer yet succeed.
inline void succeed_otherwise(emuv::cuda::driver &calls)
{
#define EMUV_SUCCEED(name)                                                     \
    if (calls.name == nullptr)                                                 \
        calls.name = succeed;
    EMUV_DRIVER_CALLS(EMUV_SUCCEED)
#undef EMUV_SUCCEED
}

/// A driver with one device and one context. Its handles have numbers of their
/// own; for one thread only.
inline emuv::cuda::driver idle_driver()
{
    static std::uint64_t next_number = 1;
    emuv::cuda::driver calls{};
    succeed_otherwise(calls);
    calls.cuCtxGetCurrent = [](CUcontext *context) {
        *context = reinterpret_cast<CUcontext>(0x10);
        return CUDA_SUCCESS;
    };
    calls.cuCtxGetDevice = [](CUdevice *device) {
        *device = 0;
        return CUDA_SUCCESS;
    };
    calls.cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus *status) {
        *status = CU_STREAM_CAPTURE_STATUS_NONE;
        return CUDA_SUCCESS;
    };
    calls.cuMemAddressReserve = [](CUdeviceptr *at, std::size_t bytes,
                                   std::size_t, CUdeviceptr,
                                   unsigned long long) {
        static CUdeviceptr next = CUdeviceptr{0x2100} << 32;
        *at = next;
        next += bytes;
        return CUDA_SUCCESS;
    };
    calls.cuMemCreate = [](CUmemGenericAllocationHandle *handle, std::size_t,
                           const CUmemAllocationProp *, unsigned long long) {
        *handle = next_number++;
        return CUDA_SUCCESS;
    };
    calls.cuMemAlloc_v2 = [](CUdeviceptr *at, std::size_t) {
        *at = next_number++ << 12;
        return CUDA_SUCCESS;
    };
    calls.cuMemHostAlloc = [](void **at, std::size_t bytes, unsigned) {
        *at = std::calloc(1, bytes);
        return CUDA_SUCCESS;
    };
    calls.cuMemFreeHost = [](void *at) {
        std::free(at);
        return CUDA_SUCCESS;
    };
    calls.cuEventCreate = [](CUevent *event, unsigned) {
        *event = reinterpret_cast<CUevent>(next_number++);
        return CUDA_SUCCESS;
    };
    calls.cuStreamCreateWithPriority = [](CUstream *stream, unsigned, int) {
        *stream = reinterpret_cast<CUstream>(next_number++);
        return CUDA_SUCCESS;
    };
    return calls;
}
