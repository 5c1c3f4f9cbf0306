// SPDX-License-Identifier: GPL-2.0-or-later
// Stream-ordered allocation.
#include "per_stream.hpp"

using namespace sim;

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    SIM_ENTER(context);
    if (!dptr || bytesize == 0)
        return CUDA_ERROR_INVALID_VALUE;
    auto on = resolve(*entered.current, hStream, per_thread);
    if (!on)
        return CUDA_ERROR_INVALID_HANDLE;
    return pool_allocate(*on->owner->dev.current_pool, *on, bytesize, dptr);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize,
                                 CUmemoryPool pool, CUstream hStream)
{
    SIM_ENTER(context);
    auto from = the().pools.find(pool);
    if (!dptr || bytesize == 0 || !from || from->destroyed)
        return CUDA_ERROR_INVALID_VALUE;
    auto on = resolve(*entered.current, hStream, per_thread);
    if (!on)
        return CUDA_ERROR_INVALID_HANDLE;
    return pool_allocate(*from, *on, bytesize, dptr);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    SIM_ENTER(context);
    auto on = resolve(*entered.current, hStream, per_thread);
    if (!on)
        return CUDA_ERROR_INVALID_HANDLE;
    if (dptr == 0)
        return CUDA_SUCCESS;
    return pool_free(*on, dptr);
}
