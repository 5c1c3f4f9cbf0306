// SPDX-License-Identifier: LGPL-2.1-or-later
// Allocations in stream order, and the pools that they come from.
#include "hooks/session.hpp"

using namespace emuv::cuda;

namespace {

// @param bytes  in, out: what @p real is to ask for
// @param stream  with the default streams named
template <typename Call>
CUresult allocate(CUdeviceptr *pointer, std::size_t &bytes, CUstream stream,
                  Call real)
{
    const entry ours;
    if (!ours || pointer == nullptr || bytes == 0 || !ours.has_context())
        return real();
    bytes = ours.table().in_order().size_for(bytes, nullptr, stream);
    return ours.table().allocate_async(pointer, bytes, nullptr, stream, real);
}

template <typename Call>
CUresult allocate_from(CUmemoryPool pool, CUdeviceptr *pointer,
                       std::size_t &bytes, CUstream stream, Call real)
{
    const entry ours;
    if (!ours || pointer == nullptr || bytes == 0 || pool == nullptr ||
        !ours.has_context())
        return real();
    bytes = ours.table().in_order().size_for(bytes, pool, stream);
    return ours.table().allocate_async(pointer, bytes, pool, stream, real);
}

template <typename Call>
CUresult free_in_order(CUdeviceptr pointer, CUstream stream, Call real)
{
    const entry ours;
    if (!ours || pointer == 0)
        return real();
    return ours.table().free_async(pointer, stream, real);
}

} // namespace

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return allocate(pointer, bytes, legacy(stream), [&] {
        return EMUV_REAL(cuMemAllocAsync)(pointer, bytes, stream);
    });
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes,
                              CUstream stream)
{
    return allocate(pointer, bytes, per_thread(stream), [&] {
        return EMUV_REAL(cuMemAllocAsync_ptsz)(pointer, bytes, stream);
    });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes,
                                 CUmemoryPool pool, CUstream stream)
{
    return allocate_from(pool, pointer, bytes, legacy(stream), [&] {
        return EMUV_REAL(cuMemAllocFromPoolAsync)(pointer, bytes, pool, stream);
    });
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes,
                                      CUmemoryPool pool, CUstream stream)
{
    return allocate_from(pool, pointer, bytes, per_thread(stream), [&] {
        return EMUV_REAL(cuMemAllocFromPoolAsync_ptsz)(pointer, bytes, pool,
                                                       stream);
    });
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    return free_in_order(pointer, legacy(stream), [&] {
        return EMUV_REAL(cuMemFreeAsync)(pointer, stream);
    });
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    return free_in_order(pointer, per_thread(stream), [&] {
        return EMUV_REAL(cuMemFreeAsync_ptsz)(pointer, stream);
    });
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *wanted)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuMemPoolCreate)(pool, wanted);
    if (ours && result == CUDA_SUCCESS)
        ours->shares->stream_pools().created(*pool, wanted->location,
                                             wanted->allocType);
    return result;
}

namespace {

// Follows a pool that the driver has by itself, or that was made for a place.
CUresult names_pool(const CUmemoryPool *pool, const CUmemLocation *where,
                    CUmemAllocationType type, CUresult result)
{
    const entry ours;
    if (ours && result == CUDA_SUCCESS && pool != nullptr && where != nullptr)
        ours->shares->stream_pools().named(*pool, *where, type);
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
        ours.table().in_order().pool_is_set();
    return result;
}

CUresult cuMemSetMemPool(CUmemLocation *where, CUmemAllocationType type,
                         CUmemoryPool pool)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuMemSetMemPool)(where, type, pool);
    if (ours)
        ours.table().in_order().pool_is_set();
    return result;
}

// Memory that is kept follows its pool: it is opened to the same devices. As
// nobody follows those devices' work, it does not move any more. It is of
// devices' default pools alone.
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access,
                            size_t count)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuMemPoolSetAccess)(pool, access, count);
    if (!ours || result != CUDA_SUCCESS)
        return result;
    for (size_t i = 0; i < count; i++) {
        const int reader = access[i].location.id;
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            continue;
        const bool opens = access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
        const int device =
            ours.table().in_order().pool_is_shared(pool, reader, opens);
        if (device >= 0)
            ours.table().peer_enabled(reader, device, reads_by::pool, opens);
    }
    return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    const entry ours;
    const auto real = [&] { return EMUV_REAL(cuMemPoolDestroy)(pool); };
    return ours && pool != nullptr
               ? ours->shares->stream_pools().destroy(pool, real)
               : real();
}

namespace {

std::uint64_t value_of(const stream_order::pool_use &ours,
                       CUmemPool_attribute which)
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
    const stream_order::pool_use use = ours.table().in_order().use_of(pool);
    if (const std::uint64_t more = value_of(use, which); more > 0)
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
        ours.table().in_order().reset_high(
            pool, which == CU_MEMPOOL_ATTR_USED_MEM_HIGH);
    return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    const entry ours;
    if (ours) // kept memory of the driver's goes back to it
        ours.table().trim_ours(pool, keep);
    return EMUV_REAL(cuMemPoolTrimTo)(pool, keep);
}
