// SPDX-License-Identifier: LGPL-2.1-or-later
// Textures and handles of ranges keep an address beyond one launch. The memory
// there stays where it is.
#include "hooks/session.hpp"

using namespace emuv::cuda;

namespace {

// The current device's memory there stays where it is.
// @return false where it cannot come from the file
bool stays(const entry &ours, CUdeviceptr at)
{
    mover *const moves = ours ? ours.moving() : nullptr;
    return moves == nullptr || moves->fix(at);
}

} // namespace

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address,
                                       size_t bytes, CUmemRangeHandleType type,
                                       unsigned long long flags)
{
    const entry ours;
    if (ours && !ours->fix(address))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return EMUV_REAL(cuMemGetHandleForAddressRange)(handle, address, bytes,
                                                    type, flags);
}

CUresult cuTexObjectCreate(CUtexObject *object,
                           const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *texture,
                           const CUDA_RESOURCE_VIEW_DESC *view)
{
    const entry ours;
    bool done = true;
    if (resource != nullptr && resource->resType == CU_RESOURCE_TYPE_LINEAR)
        done = stays(ours, resource->res.linear.devPtr);
    else if (resource != nullptr &&
             resource->resType == CU_RESOURCE_TYPE_PITCH2D)
        done = stays(ours, resource->res.pitch2D.devPtr);
    if (!done)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return EMUV_REAL(cuTexObjectCreate)(object, resource, texture, view);
}

CUresult cuTexRefSetAddress_v2(size_t *offset, CUtexref reference,
                               CUdeviceptr address, size_t bytes)
{
    const entry ours;
    if (!stays(ours, address))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return EMUV_REAL(cuTexRefSetAddress_v2)(offset, reference, address, bytes);
}

CUresult cuTexRefSetAddress2D_v3(CUtexref reference,
                                 const CUDA_ARRAY_DESCRIPTOR *array,
                                 CUdeviceptr address, size_t pitch)
{
    const entry ours;
    if (!stays(ours, address))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return EMUV_REAL(cuTexRefSetAddress2D_v3)(reference, array, address, pitch);
}

CUresult cuTexRefSetAddress2D_v2(CUtexref reference,
                                 const CUDA_ARRAY_DESCRIPTOR *array,
                                 CUdeviceptr address, size_t pitch)
{
    const entry ours;
    if (!stays(ours, address))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return EMUV_REAL(cuTexRefSetAddress2D_v2)(reference, array, address, pitch);
}
