// SPDX-License-Identifier: GPL-2.0-or-later
// CUDA arrays, made and described.
#include "array.hpp"

#include "state.hpp"

namespace sim {

array::~array()
{
    if (!base)
        return;
    the().space.remove(base);
    owner->memory.release(base, bytes());
    owner->memory.trim(0);
}

namespace {

std::size_t element_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 0;
    }
}

CUresult create(context &where, const CUDA_ARRAY3D_DESCRIPTOR &shape,
                CUarray *out)
{
    const std::size_t element = element_bytes(shape.Format);
    if (element == 0 || shape.Width == 0 ||
        (shape.NumChannels != 1 && shape.NumChannels != 2 &&
         shape.NumChannels != 4))
        return CUDA_ERROR_INVALID_VALUE;
    auto made = std::make_shared<array>();
    made->owner = &where;
    made->shape = shape;
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(shape.Width, element * shape.NumChannels,
                               &made->row_bytes) ||
        __builtin_mul_overflow(made->row_bytes, made->rows(), &bytes) ||
        __builtin_mul_overflow(bytes, made->planes(), &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    made->base = where.memory.allocate(made->bytes());
    if (!made->base)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapping m;
    m.base = made->base;
    m.bytes = made->bytes();
    m.what = kind::device;
    m.owner = &where;
    m.device = where.dev.ordinal;
    m.reads = m.writes = ~host_bit;
    the().space.add(m);
    *out = the().arrays.add<CUarray>(made);
    return CUDA_SUCCESS;
}

} // namespace
} // namespace sim

using namespace sim;

CUresult cuArrayCreate(CUarray *pHandle,
                       const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
    SIM_ENTER(context);
    if (!pHandle || !pAllocateArray)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR shape{};
    shape.Width = pAllocateArray->Width;
    shape.Height = pAllocateArray->Height;
    shape.Format = pAllocateArray->Format;
    shape.NumChannels = pAllocateArray->NumChannels;
    return create(*entered.current, shape, pHandle);
}

CUresult cuArray3DCreate(CUarray *pHandle,
                         const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
    SIM_ENTER(context);
    if (!pHandle || !pAllocateArray)
        return CUDA_ERROR_INVALID_VALUE;
    return create(*entered.current, *pAllocateArray, pHandle);
}

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor,
                              CUarray hArray)
{
    SIM_ENTER(context);
    auto found = the().arrays.find(hArray);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pArrayDescriptor)
        return CUDA_ERROR_INVALID_VALUE;
    *pArrayDescriptor = {found->shape.Width, found->shape.Height,
                         found->shape.Format, found->shape.NumChannels};
    return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor,
                                CUarray hArray)
{
    SIM_ENTER(context);
    auto found = the().arrays.find(hArray);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pArrayDescriptor)
        return CUDA_ERROR_INVALID_VALUE;
    *pArrayDescriptor = found->shape;
    return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray hArray)
{
    SIM_ENTER(context);
    auto found = the().arrays.find(hArray);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    wait_device(entered.lock, found->owner->dev.ordinal);
    the().arrays.remove(hArray);
    return CUDA_SUCCESS;
}
