// SPDX-License-Identifier: LGPL-2.1-or-later
// The driver is asked for memory: allocations that may spill, and how much
// there is.
#include "hooks/session.hpp"

using namespace emuv::cuda;

CUresult cuInit(unsigned flags)
{
    const CUresult result = EMUV_REAL(cuInit)(flags);
    return result == CUDA_SUCCESS ? start() : result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuDeviceTotalMem_v2)(bytes, device);
    if (ours && result == CUDA_SUCCESS && bytes != nullptr)
        ours->shares->show_total(device, *bytes);
    return result;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuMemGetInfo_v2)(free, total);
    if (ours && result == CUDA_SUCCESS && free != nullptr && total != nullptr)
        ours.table().show_info(current_device(ours->calls), *free, *total);
    return result;
}

// ---- Allocations

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    const entry ours;
    if (!ours || pointer == nullptr || bytes == 0 || !ours.has_context())
        return EMUV_REAL(cuMemAlloc_v2)(pointer, bytes);
    return ours.table().allocate(pointer, bytes);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width,
                            size_t height, unsigned element_bytes)
{
    const entry ours;
    if (!ours || pointer == nullptr || pitch == nullptr || width == 0 ||
        height == 0 || !ours.has_context())
        return EMUV_REAL(cuMemAllocPitch_v2)(pointer, pitch, width, height,
                                             element_bytes);
    return ours.table().allocate_pitch(pointer, pitch, width, height,
                                       element_bytes);
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    const entry ours;
    if (!ours || pointer == 0)
        return EMUV_REAL(cuMemFree_v2)(pointer);
    // Managed memory, before it is given out anew.
    void *const at = reinterpret_cast<void *>(pointer);
    const auto was = ours->host.remove(at);
    const CUresult result = ours.table().free(pointer);
    if (was.bytes > 0 && result != CUDA_SUCCESS)
        ours->host.add(at, was.bytes, was.managed, was.context);
    return result;
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags)
{
    const entry ours;
    const auto real = [&] {
        return EMUV_REAL(cuMemAllocManaged)(pointer, bytes, flags);
    };
    if (!ours || pointer == nullptr || bytes == 0 || !ours.has_context())
        return real();
    const CUresult result =
        ours.table().allocate_counted(pointer, bytes, true, real);
    // The program may write addresses there, and kernels find them.
    if (result == CUDA_SUCCESS && !ours->movers.empty())
        ours->host.add(reinterpret_cast<void *>(*pointer), bytes, true,
                       current_context(ours->calls));
    return result;
}
