// SPDX-License-Identifier: LGPL-2.1-or-later
// CUDA arrays: VRAM that is charged and cannot spill.
#include "hooks/session.hpp"

#include <algorithm>

using namespace emuv::cuda;

namespace {

std::uint64_t format_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X4:
    // Video in more than 8 bits.
    case CU_AD_FORMAT_P010:
    case CU_AD_FORMAT_P016:
    case CU_AD_FORMAT_P210:
    case CU_AD_FORMAT_P216:
    case CU_AD_FORMAT_Y210:
    case CU_AD_FORMAT_Y216:
    case CU_AD_FORMAT_Y416:
    case CU_AD_FORMAT_Y444_PLANAR10:
    case CU_AD_FORMAT_YUV444_16bit_SemiPlanar:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        // 8 bits, and compressed formats and other video, which take no more.
        return 1;
    }
}

std::uint64_t array_bytes(std::uint64_t width, std::uint64_t height,
                          std::uint64_t depth, CUarray_format format,
                          unsigned channels)
{
    return width * std::max<std::uint64_t>(height, 1) *
           std::max<std::uint64_t>(depth, 1) * format_bytes(format) * channels;
}

// Arrays without memory of their own: memory that is mapped into them is
// counted when it is made.
bool has_memory(const CUDA_ARRAY3D_DESCRIPTOR &wanted)
{
    return (wanted.Flags &
            (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) == 0;
}

} // namespace

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *wanted)
{
    const entry ours;
    const auto real = [&] {
        return EMUV_REAL(cuArrayCreate_v2)(array, wanted);
    };
    if (!ours || array == nullptr || wanted == nullptr || !ours.has_context())
        return real();
    return ours.table().create_array(array,
                                     array_bytes(wanted->Width, wanted->Height,
                                                 1, wanted->Format,
                                                 wanted->NumChannels),
                                     real);
}

CUresult cuArray3DCreate_v2(CUarray *array,
                            const CUDA_ARRAY3D_DESCRIPTOR *wanted)
{
    const entry ours;
    const auto real = [&] {
        return EMUV_REAL(cuArray3DCreate_v2)(array, wanted);
    };
    if (!ours || array == nullptr || wanted == nullptr ||
        !has_memory(*wanted) || !ours.has_context())
        return real();
    return ours.table().create_array(array,
                                     array_bytes(wanted->Width, wanted->Height,
                                                 wanted->Depth, wanted->Format,
                                                 wanted->NumChannels),
                                     real);
}

CUresult cuArrayDestroy(CUarray array)
{
    const entry ours;
    const auto real = [&] { return EMUV_REAL(cuArrayDestroy)(array); };
    return ours ? ours.table().destroy_array(array, real) : real();
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array,
                                const CUDA_ARRAY3D_DESCRIPTOR *wanted,
                                unsigned levels)
{
    const entry ours;
    const auto real = [&] {
        return EMUV_REAL(cuMipmappedArrayCreate)(array, wanted, levels);
    };
    if (!ours || array == nullptr || wanted == nullptr ||
        !has_memory(*wanted) || !ours.has_context())
        return real();
    // Layers, and the faces of a cube, are no fewer on any level.
    const bool layered =
        (wanted->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    std::uint64_t bytes = 0;
    for (unsigned level = 0; level < std::min(levels, 32u); level++)
        bytes += array_bytes(std::max<std::uint64_t>(wanted->Width >> level, 1),
                             wanted->Height >> level,
                             wanted->Depth >> (layered ? 0 : level),
                             wanted->Format, wanted->NumChannels);
    return ours.table().create_array(array, bytes, real);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    const entry ours;
    const auto real = [&] { return EMUV_REAL(cuMipmappedArrayDestroy)(array); };
    return ours ? ours.table().destroy_array(array, real) : real();
}
