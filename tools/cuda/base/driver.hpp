// SPDX-License-Identifier: LGPL-2.1-or-later
// The calls of the CUDA driver that the core makes, so that tests can answer
// them. Only this file includes cuda.h, with every version of each call
// declared, under its own name.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#pragma GCC visibility push(default)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <cuda.h>
#pragma GCC diagnostic pop
#pragma GCC visibility pop

namespace emuv::cuda {

/// X(name): a call under the name it has in the driver's symbol table.
#define EMUV_DRIVER_CALLS(X)                                                   \
    X(cuCtxGetCurrent)                                                         \
    X(cuCtxGetDevice)                                                          \
    X(cuCtxGetStreamPriorityRange)                                             \
    X(cuCtxPopCurrent_v2)                                                      \
    X(cuCtxPushCurrent_v2)                                                     \
    X(cuCtxSynchronize)                                                        \
    X(cuDeviceCanAccessPeer)                                                   \
    X(cuDeviceGetAttribute)                                                    \
    X(cuDeviceGetDefaultMemPool)                                               \
    X(cuDeviceGetGraphMemAttribute)                                            \
    X(cuDeviceGetMemPool)                                                      \
    X(cuDeviceGraphMemTrim)                                                    \
    X(cuDevicePrimaryCtxGetState)                                              \
    X(cuDeviceTotalMem_v2)                                                     \
    X(cuEventCreate)                                                           \
    X(cuEventDestroy_v2)                                                       \
    X(cuEventElapsedTime)                                                      \
    X(cuEventQuery)                                                            \
    X(cuEventRecord)                                                           \
    X(cuEventSynchronize)                                                      \
    X(cuFuncGetName)                                                           \
    X(cuFuncGetParamInfo)                                                      \
    X(cuKernelGetName)                                                         \
    X(cuKernelGetParamInfo)                                                    \
    X(cuLaunchKernel)                                                          \
    X(cuGraphChildGraphNodeGetGraph)                                           \
    X(cuGraphGetNodes)                                                         \
    X(cuGraphMemAllocNodeGetParams)                                            \
    X(cuGraphNodeGetType)                                                      \
    X(cuMemAddressFree)                                                        \
    X(cuMemAddressReserve)                                                     \
    X(cuMemAllocPitch_v2)                                                      \
    X(cuMemAlloc_v2)                                                           \
    X(cuMemCreate)                                                             \
    X(cuMemFreeHost)                                                           \
    X(cuMemFreeAsync)                                                          \
    X(cuMemFree_v2)                                                            \
    X(cuMemGetInfo_v2)                                                         \
    X(cuMemHostAlloc)                                                          \
    X(cuMemHostGetDevicePointer_v2)                                            \
    X(cuMemHostRegister_v2)                                                    \
    X(cuMemHostUnregister)                                                     \
    X(cuMemMap)                                                                \
    X(cuMemPoolGetAttribute)                                                   \
    X(cuMemPoolTrimTo)                                                         \
    X(cuMemRelease)                                                            \
    X(cuMemSetAccess)                                                          \
    X(cuMemUnmap)                                                              \
    X(cuMemcpyAsync)                                                           \
    X(cuMemcpyDtoDAsync_v2)                                                    \
    X(cuMemsetD8Async)                                                         \
    X(cuModuleGetFunction)                                                     \
    X(cuModuleLoadData)                                                        \
    X(cuModuleUnload)                                                          \
    X(cuPointerGetAttribute)                                                   \
    X(cuStreamCreate)                                                          \
    X(cuStreamCreateWithPriority)                                              \
    X(cuStreamDestroy_v2)                                                      \
    X(cuStreamIsCapturing)                                                     \
    X(cuStreamGetCtx)                                                          \
    X(cuStreamSynchronize)                                                     \
    X(cuStreamWaitEvent)                                                       \
    X(cuStreamWaitValue32_v2)                                                  \
    X(cuStreamWriteValue32_v2)                                                 \
    X(cuThreadExchangeStreamCaptureMode)

/// The real driver, or a test's own.
struct driver
{
#define EMUV_DRIVER_MEMBER(name) decltype(&::name) name;
    EMUV_DRIVER_CALLS(EMUV_DRIVER_MEMBER)
#undef EMUV_DRIVER_MEMBER
};

} // namespace emuv::cuda
