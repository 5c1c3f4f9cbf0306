// SPDX-License-Identifier: GPL-2.0-or-later
// The CUDA driver as an application sees it: the libcuda.so.1 found at run
// time. That is a card's, the simulated one, or the library in front.
#pragma once

#include <cuda.h>

namespace harness {

#define HARNESS_CALLS(X)                                                       \
    X(cuInit)                                                                  \
    X(cuDeviceGet)                                                             \
    X(cuDeviceGetCount)                                                        \
    X(cuDeviceCanAccessPeer)                                                   \
    X(cuDeviceGetName)                                                         \
    X(cuDeviceTotalMem)                                                        \
    X(cuDeviceGetMemPool)                                                      \
    X(cuMemGetDefaultMemPool)                                                  \
    X(cuMemGetMemPool)                                                         \
    X(cuDeviceGetDefaultMemPool)                                               \
    X(cuDevicePrimaryCtxRetain)                                                \
    X(cuDevicePrimaryCtxRelease)                                               \
    X(cuDevicePrimaryCtxReset)                                                 \
    X(cuCtxSetCurrent)                                                         \
    X(cuCtxPushCurrent)                                                        \
    X(cuCtxPopCurrent)                                                         \
    X(cuCtxSynchronize)                                                        \
    X(cuCtxEnablePeerAccess)                                                   \
    X(cuCtxDisablePeerAccess)                                                  \
    X(cuModuleLoadData)                                                        \
    X(cuModuleLoadDataEx)                                                      \
    X(cuModuleLoadFatBinary)                                                   \
    X(cuModuleLoad)                                                            \
    X(cuModuleGetFunction)                                                     \
    X(cuModuleEnumerateFunctions)                                              \
    X(cuLibraryLoadData)                                                       \
    X(cuLibraryLoadFromFile)                                                   \
    X(cuLibraryGetKernel)                                                      \
    X(cuLibraryGetModule)                                                      \
    X(cuLibraryUnload)                                                         \
    X(cuLibraryEnumerateKernels)                                               \
    X(cuKernelGetFunction)                                                     \
    X(cuModuleUnload)                                                          \
    X(cuLaunchKernel)                                                          \
    X(cuLaunchKernelEx)                                                        \
    X(cuLaunchCooperativeKernel)                                               \
    X(cuEventCreate)                                                           \
    X(cuEventDestroy)                                                          \
    X(cuEventRecord)                                                           \
    X(cuStreamWaitEvent)                                                       \
    X(cuLaunchHostFunc)                                                        \
    X(cuTexObjectCreate)                                                       \
    X(cuTexRefSetAddress)                                                      \
    X(cuTexRefSetAddress2D)                                                    \
    X(cuMemGetHandleForAddressRange)                                           \
    X(cuMemGetInfo)                                                            \
    X(cuMemAlloc)                                                              \
    X(cuMemAllocPitch)                                                         \
    X(cuMemAllocManaged)                                                       \
    X(cuMemFree)                                                               \
    X(cuMemAllocAsync)                                                         \
    X(cuMemFreeAsync)                                                          \
    X(cuMemAllocFromPoolAsync)                                                 \
    X(cuMemPoolCreate)                                                         \
    X(cuMemPoolDestroy)                                                        \
    X(cuDeviceSetMemPool)                                                      \
    X(cuMemSetMemPool)                                                         \
    X(cuMemPoolGetAttribute)                                                   \
    X(cuMemPoolSetAccess)                                                      \
    X(cuMemPoolSetAttribute)                                                   \
    X(cuMemPoolTrimTo)                                                         \
    X(cuMemHostAlloc)                                                          \
    X(cuMemFreeHost)                                                           \
    X(cuMemHostRegister)                                                       \
    X(cuMemHostUnregister)                                                     \
    X(cuMemGetAccess)                                                          \
    X(cuMemGetAddressRange)                                                    \
    X(cuPointerGetAttribute)                                                   \
    X(cuPointerGetAttributes)                                                  \
    X(cuPointerSetAttribute)                                                   \
    X(cuMemcpy)                                                                \
    X(cuMemcpyAsync)                                                           \
    X(cuMemcpyHtoD)                                                            \
    X(cuMemcpyHtoDAsync)                                                       \
    X(cuMemcpyDtoH)                                                            \
    X(cuMemcpyDtoHAsync)                                                       \
    X(cuMemcpyDtoD)                                                            \
    X(cuMemcpyDtoDAsync)                                                       \
    X(cuMemcpyPeer)                                                            \
    X(cuMemcpyPeerAsync)                                                       \
    X(cuMemcpy2D)                                                              \
    X(cuMemcpy2DAsync)                                                         \
    X(cuMemcpy2DUnaligned)                                                     \
    X(cuMemcpy3D)                                                              \
    X(cuMemcpy3DAsync)                                                         \
    X(cuMemcpy3DPeer)                                                          \
    X(cuMemcpy3DPeerAsync)                                                     \
    X(cuMemcpyBatchAsync)                                                      \
    X(cuMemcpy3DBatchAsync)                                                    \
    X(cuMemcpyAtoD)                                                            \
    X(cuMemcpyDtoA)                                                            \
    X(cuMemsetD8)                                                              \
    X(cuMemsetD16)                                                             \
    X(cuMemsetD32)                                                             \
    X(cuMemsetD8Async)                                                         \
    X(cuMemsetD16Async)                                                        \
    X(cuMemsetD32Async)                                                        \
    X(cuMemsetD2D8)                                                            \
    X(cuMemsetD2D8Async)                                                       \
    X(cuMemsetD2D16)                                                           \
    X(cuMemsetD2D16Async)                                                      \
    X(cuMemsetD2D32)                                                           \
    X(cuMemsetD2D32Async)                                                      \
    X(cuMemAddressReserve)                                                     \
    X(cuMemAddressFree)                                                        \
    X(cuMemCreate)                                                             \
    X(cuMemRelease)                                                            \
    X(cuMemMap)                                                                \
    X(cuMemUnmap)                                                              \
    X(cuMemSetAccess)                                                          \
    X(cuMemGetAllocationGranularity)                                           \
    X(cuMemGetAllocationPropertiesFromHandle)                                  \
    X(cuMemRetainAllocationHandle)                                             \
    X(cuIpcGetMemHandle)                                                       \
    X(cuIpcOpenMemHandle)                                                      \
    X(cuIpcCloseMemHandle)                                                     \
    X(cuMemImportFromShareableHandle)                                          \
    X(cuImportExternalMemory)                                                  \
    X(cuDestroyExternalMemory)                                                 \
    X(cuArrayCreate)                                                           \
    X(cuArray3DCreate)                                                         \
    X(cuArrayDestroy)                                                          \
    X(cuMipmappedArrayCreate)                                                  \
    X(cuMipmappedArrayDestroy)                                                 \
    X(cuStreamCreate)                                                          \
    X(cuStreamDestroy)                                                         \
    X(cuStreamSynchronize)                                                     \
    X(cuStreamBeginCapture)                                                    \
    X(cuStreamEndCapture)                                                      \
    X(cuGraphCreate)                                                           \
    X(cuGraphClone)                                                            \
    X(cuGraphNodeFindInClone)                                                  \
    X(cuGraphAddKernelNode)                                                    \
    X(cuGraphAddMemcpyNode)                                                    \
    X(cuGraphAddMemsetNode)                                                    \
    X(cuGraphAddNode)                                                          \
    X(cuGraphAddChildGraphNode)                                                \
    X(cuGraphAddHostNode)                                                      \
    X(cuGraphMemcpyNodeGetParams)                                              \
    X(cuGraphMemcpyNodeSetParams)                                              \
    X(cuGraphMemsetNodeGetParams)                                              \
    X(cuGraphMemsetNodeSetParams)                                              \
    X(cuGraphNodeSetParams)                                                    \
    X(cuGraphExecMemcpyNodeSetParams)                                          \
    X(cuGraphExecMemsetNodeSetParams)                                          \
    X(cuGraphExecNodeSetParams)                                                \
    X(cuGraphChildGraphNodeGetGraph)                                           \
    X(cuGraphExecChildGraphNodeSetParams)                                      \
    X(cuGraphExecKernelNodeSetParams)                                          \
    X(cuGraphExecUpdate)                                                       \
    X(cuGraphNodeSetEnabled)                                                   \
    X(cuGraphNodeGetEnabled)                                                   \
    X(cuGraphNodeGetType)                                                      \
    X(cuGraphGetNodes)                                                         \
    X(cuGraphAddDependencies)                                                  \
    X(cuGraphRemoveDependencies)                                               \
    X(cuGraphDestroyNode)                                                      \
    X(cuGraphRetainUserObject)                                                 \
    X(cuGraphInstantiate)                                                      \
    X(cuGraphInstantiateWithParams)                                            \
    X(cuGraphUpload)                                                           \
    X(cuGraphLaunch)                                                           \
    X(cuGraphExecDestroy)                                                      \
    X(cuGraphDestroy)                                                          \
    X(cuGetErrorName)

struct driver
{
#define HARNESS_MEMBER(name) decltype(&::name) name = nullptr;
    HARNESS_CALLS(HARNESS_MEMBER)
#undef HARNESS_MEMBER
    bool simulated = false; // device 0 is not a card
};

// Loads and initialises it once. Ends the process with a message when there
// is none: a harness without a driver must not look like one that passed.
const driver &cuda();

} // namespace harness
