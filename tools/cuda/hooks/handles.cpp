// SPDX-License-Identifier: LGPL-2.1-or-later
// The program's own handles of memory (cuMemCreate), and their mappings.
#include "hooks/session.hpp"

using namespace emuv::cuda;

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties,
                     unsigned long long flags)
{
    const entry ours;
    // Wrong properties must not become memory of ours if the share is used up.
    if (!ours || handle == nullptr || properties == nullptr || bytes == 0 ||
        properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        properties->location.id < 0 || properties->location.id >= ours->devices)
        return EMUV_REAL(cuMemCreate)(handle, bytes, properties, flags);
    return ours.table().create_handle(handle, bytes, *properties, flags);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    const entry ours;
    const auto real = [&] { return EMUV_REAL(cuMemRelease)(handle); };
    if (!ours)
        return real();
    return ours.table().others().close(
        {foreign::key::kind::handle, handle},
        [&] { return ours.table().own_handles().release(handle, real); });
}

CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    const entry ours;
    const foreign::key opened{foreign::key::kind::handle, handle};
    const CUresult result =
        EMUV_REAL(cuMemMap)(at, bytes, offset, handle, flags);
    if (!ours || result != CUDA_SUCCESS)
        return result;
    // Only the mapping tells how large the handle's memory is.
    if (!ours.table().others().grow(opened, offset + bytes)) {
        EMUV_REAL(cuMemUnmap)(at, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ours.table().own_handles().mapped(at, bytes, handle);
    ours.table().others().mapped(at, bytes, opened);
    return result;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t bytes)
{
    const entry ours;
    if (ours && ours.table().is_allocation(at, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    const auto real = [&] { return EMUV_REAL(cuMemUnmap)(at, bytes); };
    if (!ours)
        return real();
    return ours.table().own_handles().unmap(at, bytes, [&] {
        return ours.table().others().unmap(at, bytes, real);
    });
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes,
                        const CUmemAccessDesc *access, size_t count)
{
    const entry ours;
    if (ours && ours.table().is_allocation(at, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return EMUV_REAL(cuMemSetAccess)(at, bytes, access, count);
}

CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes)
{
    const entry ours;
    if (ours && ours.table().is_allocation(at, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return EMUV_REAL(cuMemAddressFree)(at, bytes);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle,
                                     void *at)
{
    const entry ours;
    if (ours &&
        ours.table().is_allocation(reinterpret_cast<CUdeviceptr>(at), 1))
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = EMUV_REAL(cuMemRetainAllocationHandle)(handle, at);
    if (ours && result == CUDA_SUCCESS) {
        ours.table().own_handles().retained(*handle,
                                            reinterpret_cast<CUdeviceptr>(at));
        ours.table().others().open_again({foreign::key::kind::handle, *handle},
                                         reinterpret_cast<CUdeviceptr>(at));
    }
    return result;
}

CUresult
cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                       CUmemGenericAllocationHandle handle)
{
    const entry ours;
    const CUresult result =
        EMUV_REAL(cuMemGetAllocationPropertiesFromHandle)(properties, handle);
    if (ours && result == CUDA_SUCCESS && properties != nullptr)
        ours.table().own_handles().show_properties(handle, *properties);
    return result;
}
