// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory under a second address, and other memory under the same one.
#include "store/mapping.hpp"

#include "base/size.hpp"
#include "store/store.hpp"

namespace emuv::cuda {

bool map_at(const driver &calls, CUdeviceptr at, std::uint64_t bytes,
            CUmemGenericAllocationHandle handle, int device)
{
    const auto access = access_of(device);
    if (calls.cuMemMap(at, bytes, 0, handle, 0) != CUDA_SUCCESS)
        return false;
    if (calls.cuMemSetAccess(at, bytes, &access, 1) == CUDA_SUCCESS)
        return true;
    calls.cuMemUnmap(at, bytes);
    return false;
}

CUdeviceptr map_alias(const driver &calls, CUmemGenericAllocationHandle handle,
                      std::uint64_t bytes, int device)
{
    CUdeviceptr at = 0;
    if (calls.cuMemAddressReserve(&at, bytes, chunk_bytes, 0, 0) !=
        CUDA_SUCCESS)
        return 0;
    if (map_at(calls, at, bytes, handle, device))
        return at;
    calls.cuMemAddressFree(at, bytes);
    return 0;
}

void unmap_alias(const driver &calls, CUdeviceptr at, std::uint64_t bytes)
{
    if (at == 0)
        return;
    calls.cuMemUnmap(at, bytes);
    calls.cuMemAddressFree(at, bytes);
}

} // namespace emuv::cuda
