// SPDX-License-Identifier: LGPL-2.1-or-later
// The functions of the driver that the library has its own version of: who is
// asked, in which order. What they do to memory is the core's affair.
#include "hooks/session.hpp"
#include "interpose/message.hpp"

#include <algorithm>
#include <atomic>

using namespace emuv::cuda;

// ---- Starting, and what there is

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
        ours.held().show_total(device, *bytes);
    return result;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuMemGetInfo_v2)(free, total);
    if (ours && result == CUDA_SUCCESS && free != nullptr && total != nullptr)
        ours.held().show_info(ours.held().current_device(), *free, *total);
    return result;
}

// ---- Allocations

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    const entry ours;
    if (!ours || pointer == nullptr || bytes == 0 || !ours.has_context())
        return EMUV_REAL(cuMemAlloc_v2)(pointer, bytes);
    return ours.held().allocate(pointer, bytes);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width,
                            size_t height, unsigned element_bytes)
{
    const entry ours;
    if (!ours || pointer == nullptr || pitch == nullptr || width == 0 ||
        height == 0 || !ours.has_context())
        return EMUV_REAL(cuMemAllocPitch_v2)(pointer, pitch, width, height,
                                             element_bytes);
    return ours.held().allocate_pitch(pointer, pitch, width, height,
                                      element_bytes);
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    const entry ours;
    if (!ours || pointer == 0)
        return EMUV_REAL(cuMemFree_v2)(pointer);
    // Managed memory, before somebody else is given it.
    void *const at = reinterpret_cast<void *>(pointer);
    const auto was = ours->host.remove(at);
    const CUresult result = ours.held().free(pointer);
    if (was.bytes > 0 && result != CUDA_SUCCESS)
        ours->host.add(at, was.bytes, was.managed);
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
        ours.held().allocate_counted(pointer, bytes, true, real);
    // The program may write addresses there, and kernels find them.
    if (result == CUDA_SUCCESS && !ours->movers.empty())
        ours->host.add(reinterpret_cast<void *>(*pointer), bytes, true);
    return result;
}

// ---- In stream order

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    const entry ours;
    const auto real = [&] {
        return EMUV_REAL(cuMemAllocAsync)(pointer, bytes, stream);
    };
    if (!ours || pointer == nullptr || bytes == 0 || !ours.has_context())
        return real();
    return ours.held().allocate_async(pointer, bytes, nullptr, legacy(stream),
                                      real);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes,
                              CUstream stream)
{
    const entry ours;
    const auto real = [&] {
        return EMUV_REAL(cuMemAllocAsync_ptsz)(pointer, bytes, stream);
    };
    if (!ours || pointer == nullptr || bytes == 0 || !ours.has_context())
        return real();
    return ours.held().allocate_async(pointer, bytes, nullptr,
                                      per_thread(stream), real);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes,
                                 CUmemoryPool pool, CUstream stream)
{
    const entry ours;
    const auto real = [&] {
        return EMUV_REAL(cuMemAllocFromPoolAsync)(pointer, bytes, pool, stream);
    };
    if (!ours || pointer == nullptr || bytes == 0 || pool == nullptr ||
        !ours.has_context())
        return real();
    return ours.held().allocate_async(pointer, bytes, pool, legacy(stream),
                                      real);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes,
                                      CUmemoryPool pool, CUstream stream)
{
    const entry ours;
    const auto real = [&] {
        return EMUV_REAL(cuMemAllocFromPoolAsync_ptsz)(pointer, bytes, pool,
                                                       stream);
    };
    if (!ours || pointer == nullptr || bytes == 0 || pool == nullptr ||
        !ours.has_context())
        return real();
    return ours.held().allocate_async(pointer, bytes, pool, per_thread(stream),
                                      real);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    const entry ours;
    const auto real = [&] {
        return EMUV_REAL(cuMemFreeAsync)(pointer, stream);
    };
    if (!ours || pointer == 0)
        return real();
    return ours.held().free_async(pointer, legacy(stream), real);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    const entry ours;
    const auto real = [&] {
        return EMUV_REAL(cuMemFreeAsync_ptsz)(pointer, stream);
    };
    if (!ours || pointer == 0)
        return real();
    return ours.held().free_async(pointer, per_thread(stream), real);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *wanted)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuMemPoolCreate)(pool, wanted);
    if (ours && result == CUDA_SUCCESS)
        ours.held().stream_pools().created(*pool, wanted->location,
                                           wanted->allocType);
    return result;
}

namespace {

// Of a pool that the driver has by itself, or that was made for a place.
CUresult names_pool(const CUmemoryPool *pool, const CUmemLocation *where,
                    CUmemAllocationType type, CUresult result)
{
    const entry ours;
    if (ours && result == CUDA_SUCCESS && pool != nullptr && where != nullptr)
        ours.held().stream_pools().named(*pool, *where, type);
    return result;
}

CUresult names_pool(const CUmemoryPool *pool, CUdevice device, CUresult result)
{
    CUmemLocation where{};
    where.type = CU_MEM_LOCATION_TYPE_DEVICE;
    where.id = device;
    return names_pool(pool, &where, CU_MEM_ALLOCATION_TYPE_PINNED, result);
}

} // namespace

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    return names_pool(pool, device,
                      EMUV_REAL(cuDeviceGetDefaultMemPool)(pool, device));
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    return names_pool(pool, device,
                      EMUV_REAL(cuDeviceGetMemPool)(pool, device));
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *where,
                                CUmemAllocationType type)
{
    return names_pool(pool, where, type,
                      EMUV_REAL(cuMemGetDefaultMemPool)(pool, where, type));
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *where,
                         CUmemAllocationType type)
{
    return names_pool(pool, where, type,
                      EMUV_REAL(cuMemGetMemPool)(pool, where, type));
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuDeviceSetMemPool)(device, pool);
    if (ours)
        ours.held().pool_is_set();
    return result;
}

CUresult cuMemSetMemPool(CUmemLocation *where, CUmemAllocationType type,
                         CUmemoryPool pool)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuMemSetMemPool)(where, type, pool);
    if (ours)
        ours.held().pool_is_set();
    return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    const entry ours;
    const auto real = [&] { return EMUV_REAL(cuMemPoolDestroy)(pool); };
    return ours && pool != nullptr
               ? ours.held().stream_pools().destroy(pool, real)
               : real();
}

namespace {

std::uint64_t part_of(const memory::pool_use &ours, CUmemPool_attribute which)
{
    switch (which) {
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return ours.used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return ours.used_high;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return ours.reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return ours.reserved_high;
    default:
        return 0;
    }
}

} // namespace

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute which,
                               void *value)
{
    const entry ours;
    const CUresult result =
        EMUV_REAL(cuMemPoolGetAttribute)(pool, which, value);
    if (!ours || result != CUDA_SUCCESS)
        return result;
    const memory::pool_use use = ours.held().use_of(pool);
    if (const std::uint64_t more = part_of(use, which); more > 0)
        *static_cast<cuuint64_t *>(value) += more;
    if (which == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
        *static_cast<cuuint64_t *>(value) -= use.kept;
    return result;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute which,
                               void *value)
{
    const entry ours;
    const CUresult result =
        EMUV_REAL(cuMemPoolSetAttribute)(pool, which, value);
    if (ours && result == CUDA_SUCCESS &&
        (which == CU_MEMPOOL_ATTR_USED_MEM_HIGH ||
         which == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH))
        ours.held().reset_high(pool, which == CU_MEMPOOL_ATTR_USED_MEM_HIGH);
    return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    const entry ours;
    if (ours) // what is kept of the driver's goes back to it
        ours.held().trim_ours(pool, keep);
    return EMUV_REAL(cuMemPoolTrimTo)(pool, keep);
}

// ---- The program's own handles

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties,
                     unsigned long long flags)
{
    const entry ours;
    // Wrong properties must not become memory of ours where the share is used
    // up.
    if (!ours || handle == nullptr || properties == nullptr || bytes == 0 ||
        properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        properties->location.id < 0 || properties->location.id >= ours->devices)
        return EMUV_REAL(cuMemCreate)(handle, bytes, properties, flags);
    return ours.held().create_handle(handle, bytes, *properties, flags);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    const entry ours;
    const auto real = [&] { return EMUV_REAL(cuMemRelease)(handle); };
    return ours ? ours.held().release_handle(handle, real) : real();
}

CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    const entry ours;
    const CUresult result =
        EMUV_REAL(cuMemMap)(at, bytes, offset, handle, flags);
    if (ours && result == CUDA_SUCCESS)
        ours.held().handle_mapped(at, bytes, handle);
    return result;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t bytes)
{
    const entry ours;
    if (ours && ours.held().is_allocation(at, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    const auto real = [&] { return EMUV_REAL(cuMemUnmap)(at, bytes); };
    return ours ? ours.held().unmap_handles(at, bytes, real) : real();
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes,
                        const CUmemAccessDesc *access, size_t count)
{
    const entry ours;
    if (ours && ours.held().is_allocation(at, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return EMUV_REAL(cuMemSetAccess)(at, bytes, access, count);
}

CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes)
{
    const entry ours;
    if (ours && ours.held().is_allocation(at, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return EMUV_REAL(cuMemAddressFree)(at, bytes);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle,
                                     void *at)
{
    const entry ours;
    if (ours && ours.held().is_allocation(reinterpret_cast<CUdeviceptr>(at), 1))
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = EMUV_REAL(cuMemRetainAllocationHandle)(handle, at);
    if (ours && result == CUDA_SUCCESS)
        ours.held().handle_retained(*handle, reinterpret_cast<CUdeviceptr>(at));
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
        ours.held().show_properties(handle, *properties);
    return result;
}

// ---- Arrays

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

// Arrays without memory of their own: what is mapped into them is counted
// where it is made.
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
    return ours.held().create_array(array,
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
    return ours.held().create_array(array,
                                    array_bytes(wanted->Width, wanted->Height,
                                                wanted->Depth, wanted->Format,
                                                wanted->NumChannels),
                                    real);
}

CUresult cuArrayDestroy(CUarray array)
{
    const entry ours;
    const auto real = [&] { return EMUV_REAL(cuArrayDestroy)(array); };
    return ours ? ours.held().destroy_array(array, real) : real();
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
    return ours.held().create_array(array, bytes, real);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    const entry ours;
    const auto real = [&] { return EMUV_REAL(cuMipmappedArrayDestroy)(array); };
    return ours ? ours.held().destroy_array(array, real) : real();
}

// ---- Questions about addresses

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes,
                                 CUdeviceptr address)
{
    const entry ours;
    range_view view;
    if (!ours || !ours.held().find(address, view) || !(view.split || view.host))
        return EMUV_REAL(cuMemGetAddressRange_v2)(base, bytes, address);
    if (base != nullptr)
        *base = view.base;
    if (bytes != nullptr)
        *bytes = view.bytes;
    return CUDA_SUCCESS;
}

namespace {

// Asks the driver about an address, at which there may be nothing just now.
template <typename Call>
CUresult while_mapped(const entry &ours, CUdeviceptr address, Call ask)
{
    range_view view;
    if (!ours || ours->movers.empty() || !ours.held().find(address, view))
        return ask();
    mover *const moves = ours.held().mover_of(view.device);
    return moves != nullptr ? moves->while_mapped(address, ask) : ask();
}

// Answers one attribute of a range that the driver sees as several pieces, or
// as host memory. False: the driver's answer is right.
bool answer(const range_view &view, CUpointer_attribute attribute,
            CUdeviceptr address, void *data, CUresult &result)
{
    result = CUDA_SUCCESS;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        if (!view.split)
            return false;
        *static_cast<CUcontext *>(data) = view.context;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned *>(data) = CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *static_cast<CUdeviceptr *>(data) = address;
        return true;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        // Device memory has none.
        *static_cast<void **>(data) = nullptr;
        result = CUDA_ERROR_INVALID_VALUE;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int *>(data) = view.device;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr *>(data) = view.base;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<std::size_t *>(data) = view.bytes;
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        // The driver has a number for each of its mappings, counted from 1.
        if (view.serial == 0)
            return false;
        *static_cast<unsigned long long *>(data) = view.serial | 1ull << 63;
        return true;
    default:
        return false;
    }
}

} // namespace

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                               CUdeviceptr address)
{
    const entry ours;
    range_view view;
    CUresult result = CUDA_SUCCESS;
    if (ours && data != nullptr && ours.held().find(address, view) &&
        (view.split || view.host) &&
        answer(view, attribute, address, data, result))
        return result;
    return while_mapped(ours, address, [&] {
        return EMUV_REAL(cuPointerGetAttribute)(data, attribute, address);
    });
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes,
                                void **data, CUdeviceptr address)
{
    const entry ours;
    // The driver's answer comes first: it knows what it refuses.
    const CUresult result = while_mapped(ours, address, [&] {
        return EMUV_REAL(cuPointerGetAttributes)(count, attributes, data,
                                                 address);
    });
    range_view view;
    if (!ours || result != CUDA_SUCCESS || attributes == nullptr ||
        data == nullptr || !ours.held().find(address, view) ||
        !(view.split || view.host))
        return result;
    for (unsigned i = 0; i < count; i++) {
        CUresult each = CUDA_SUCCESS;
        if (data[i] != nullptr)
            answer(view, attributes[i], address, data[i], each);
    }
    return result;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                               CUdeviceptr address)
{
    const entry ours;
    range_view view;
    // Of handles the driver says that nothing can be set; of its own
    // allocations, that this cannot.
    if (ours && value != nullptr &&
        attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS &&
        ours.held().find(address, view) && view.split)
        return CUDA_ERROR_INVALID_VALUE;
    // It is the memory's that is there now, and would not go with it.
    if (ours)
        ours->fix(address);
    return EMUV_REAL(cuPointerSetAttribute)(value, attribute, address);
}

CUresult cuMemGetAccess(unsigned long long *flags,
                        const CUmemLocation *location, CUdeviceptr address)
{
    const entry ours;
    return while_mapped(ours, address, [&] {
        return EMUV_REAL(cuMemGetAccess)(flags, location, address);
    });
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    const entry ours;
    range_view view;
    if (!ours || handle == nullptr || !ours.held().find(address, view) ||
        !view.split)
        return EMUV_REAL(cuIpcGetMemHandle)(handle, address);
    static std::atomic<bool> said;
    if (!said.exchange(true))
        say(ours->asked.ipc
                ? "cuIpcGetMemHandle: memory in system RAM has no IPC handle"
                : "cuIpcGetMemHandle: allocations of 2 MiB and more have an "
                  "IPC handle only with EMUV_IPC=1");
    // What the driver says of any memory that is mapped from handles.
    return CUDA_ERROR_INVALID_VALUE;
}

// ---- Contexts and peers

namespace {

template <typename Call>
CUresult ends_context(CUcontext context, Call real)
{
    const entry ours;
    if (!ours || context == nullptr)
        return real();
    ours.held().context_ends(context);
    const std::uint64_t before = ours.held().next_serial();
    const CUresult result = real();
    if (result != CUDA_SUCCESS) {
        ours.held().context_stays(context);
        return result;
    }
    ours->kernels->gone(context);
    ours.held().context_gone(context, before);
    return result;
}

} // namespace

CUresult cuCtxAttach(CUcontext *context, unsigned flags)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuCtxAttach)(context, flags);
    if (ours && result == CUDA_SUCCESS && context != nullptr)
        ours.held().context_attached(*context);
    return result;
}

CUresult cuCtxDetach(CUcontext context)
{
    const auto real = [context] { return EMUV_REAL(cuCtxDetach)(context); };
    {
        const entry ours;
        if (ours && ours.held().context_detached(context)) {
            const CUresult result = real();
            if (result != CUDA_SUCCESS)
                ours.held().context_attached(context);
            return result;
        }
    }
    return ends_context(context, real);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    return ends_context(
        context, [context] { return EMUV_REAL(cuCtxDestroy_v2)(context); });
}

CUresult cuCtxDestroy(CUcontext context)
{
    return ends_context(context,
                        [context] { return EMUV_REAL(cuCtxDestroy)(context); });
}

namespace {

// Runs a call that may end a device's primary context, and follows it. The
// context's handle is only to be had by holding it, so it is held across.
template <typename Call>
CUresult ends_primary(CUdevice device, bool resets, Call real)
{
    const entry ours;
    unsigned flags = 0;
    int alive = 0;
    CUcontext context = nullptr;
    if (!ours ||
        ours->calls.cuDevicePrimaryCtxGetState(device, &flags, &alive) !=
            CUDA_SUCCESS ||
        alive == 0 ||
        EMUV_REAL(cuDevicePrimaryCtxRetain)(&context, device) != CUDA_SUCCESS)
        return real();
    ours.held().context_ends(context);
    const std::uint64_t before = ours.held().next_serial();
    const CUresult result = real();
    EMUV_REAL(cuDevicePrimaryCtxRelease_v2)(device);
    if (ours->calls.cuDevicePrimaryCtxGetState(device, &flags, &alive) !=
        CUDA_SUCCESS)
        alive = 1;
    if (result != CUDA_SUCCESS || (!resets && alive != 0)) {
        ours.held().context_stays(context);
        return result;
    }
    ours->kernels->gone(context);
    ours.held().context_gone(context, before);
    return result;
}

} // namespace

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return ends_primary(device, false, [device] {
        return EMUV_REAL(cuDevicePrimaryCtxRelease)(device);
    });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return ends_primary(device, false, [device] {
        return EMUV_REAL(cuDevicePrimaryCtxRelease_v2)(device);
    });
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return ends_primary(device, true, [device] {
        return EMUV_REAL(cuDevicePrimaryCtxReset)(device);
    });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return ends_primary(device, true, [device] {
        return EMUV_REAL(cuDevicePrimaryCtxReset_v2)(device);
    });
}

namespace {

template <typename Call>
CUresult changes_peer(CUcontext peer, bool enabled, Call real)
{
    const entry ours;
    const CUresult result = real();
    if (!ours || result != CUDA_SUCCESS)
        return result;
    const int device = ours.held().current_device();
    CUdevice other = 0;
    CUcontext popped = nullptr;
    if (ours->calls.cuCtxPushCurrent_v2(peer) != CUDA_SUCCESS)
        return result;
    other = ours.held().current_device();
    ours->calls.cuCtxPopCurrent_v2(&popped);
    ours.held().peer_enabled(device, other, enabled);
    return result;
}

} // namespace

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    return changes_peer(peer, true, [&] {
        return EMUV_REAL(cuCtxEnablePeerAccess)(peer, flags);
    });
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    return changes_peer(
        peer, false, [&] { return EMUV_REAL(cuCtxDisablePeerAccess)(peer); });
}
