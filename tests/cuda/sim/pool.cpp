// SPDX-License-Identifier: GPL-2.0-or-later
// Memory pools. Allocating and freeing in a stream's order are called from
// per_stream/pool.cpp.
#include "pool.hpp"

#include "graph.hpp"
#include "state.hpp"

#include <algorithm>

namespace sim {

CUresult pool_allocate(pool &from, stream &on, std::size_t bytes,
                       CUdeviceptr *out)
{
    if (on.capture) {
        if (on.capture->broken)
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        operation op;
        if (CUresult r = make_memory(*on.owner, bytes, op))
            return r;
        *out = op.address;
        return submit(on, std::move(op));
    }
    std::uintptr_t base = from.memory.allocate(bytes);
    if (!base) {
        for (auto &[key, other] : the().pools)
            other->memory.trim(0);
        base = from.memory.allocate(bytes);
    }
    if (!base)
        return CUDA_ERROR_OUT_OF_MEMORY;
    from.reserved_high =
        std::max<std::uint64_t>(from.reserved_high, from.memory.reserved());
    from.used_high =
        std::max<std::uint64_t>(from.used_high, from.memory.used());
    mapping m;
    m.base = base;
    m.bytes = bytes;
    m.what = kind::pooled;
    m.owner = on.owner;
    m.from = &from;
    m.device = from.dev.ordinal;
    m.reads = m.writes = (1U << m.device) | from.access;
    the().space.add(m);
    *out = base;
    return CUDA_SUCCESS;
}

CUresult pool_free(stream &on, CUdeviceptr address)
{
    const mapping *m = the().space.find(address);
    const bool capturing = on.capture != nullptr;
    if (!m && capturing) { // of an allocation node, not yet mapped
        operation op;
        op.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
        op.address = address;
        op.run = [] {};
        return submit(on, std::move(op));
    }
    if (!m || m->base != address ||
        (m->what != kind::pooled && m->what != kind::device))
        return CUDA_ERROR_INVALID_VALUE;
    if (capturing)
        return CUDA_ERROR_INVALID_VALUE;
    operation op;
    const std::uint64_t id = m->id;
    op.run = [address, id] {
        std::lock_guard lock(the().mutex);
        mapping *now = the().space.find(address);
        if (!now || now->id != id)
            return;
        if (now->what == kind::pooled) {
            pool_release(now->base);
        } else {
            const mapping gone = *now;
            the().space.remove(gone.base);
            gone.owner->memory.release(gone.base, gone.bytes);
            gone.owner->memory.trim(0);
        }
    };
    return submit(on, std::move(op));
}

void pool_release(std::uintptr_t base)
{
    const mapping gone = *the().space.find(base);
    if (!gone.from) // a graph's own: it stays with the graph
        return;
    the().space.remove(base);
    gone.from->memory.release(gone.base, gone.bytes);
    if (gone.from->destroyed) {
        gone.from->memory.trim(0);
        if (gone.from->memory.used() == 0)
            the().pools.remove(gone.from);
    }
}

void pools_trim()
{
    for (auto &[key, one] : the().pools)
        one->memory.trim(one->threshold);
}

namespace {

std::shared_ptr<pool> find(CUmemoryPool handle)
{
    auto found = the().pools.find(handle);
    return found && !found->destroyed ? found : nullptr;
}

CUmemoryPool handle(const std::shared_ptr<pool> &which)
{
    return reinterpret_cast<CUmemoryPool>(which.get());
}

} // namespace
} // namespace sim

using namespace sim;

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
    SIM_ENTER(init);
    if (!pool_out)
        return CUDA_ERROR_INVALID_VALUE;
    const device *on = the().device_at(dev);
    if (!on)
        return CUDA_ERROR_INVALID_DEVICE;
    *pool_out = handle(on->default_pool);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    SIM_ENTER(init);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    const device *on = the().device_at(dev);
    if (!on)
        return CUDA_ERROR_INVALID_DEVICE;
    *pool = handle(on->current_pool);
    return CUDA_SUCCESS;
}

// There are pools of devices' VRAM only.
static CUresult pool_at(CUmemoryPool *pool, const CUmemLocation *location,
                        CUmemAllocationType type,
                        CUresult (*of_device)(CUmemoryPool *, CUdevice))
{
    SIM_ENTER(init);
    if (!pool || !location || type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    return of_device(pool, location->id);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                CUmemAllocationType type)
{
    return pool_at(pool_out, location, type, cuDeviceGetDefaultMemPool);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location,
                         CUmemAllocationType type)
{
    return pool_at(pool, location, type, cuDeviceGetMemPool);
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    SIM_ENTER(init);
    device *on = the().device_at(dev);
    if (!on)
        return CUDA_ERROR_INVALID_DEVICE;
    auto found = find(pool);
    if (!found || &found->dev != on)
        return CUDA_ERROR_INVALID_VALUE;
    on->current_pool = found;
    return CUDA_SUCCESS;
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type,
                         CUmemoryPool pool)
{
    SIM_ENTER(init);
    if (!location || type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    return cuDeviceSetMemPool(location->id, pool);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    SIM_ENTER(init);
    if (!pool || !poolProps ||
        poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_NOT_SUPPORTED;
    device *on = the().device_at(poolProps->location.id);
    if (!on)
        return CUDA_ERROR_INVALID_DEVICE;
    *pool = the().pools.add<CUmemoryPool>(std::make_shared<sim::pool>(*on));
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    SIM_ENTER(init);
    auto found = find(pool);
    if (!found || found == found->dev.default_pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (found->dev.current_pool == found)
        found->dev.current_pool = found->dev.default_pool;
    found->destroyed = true;
    found->memory.trim(0);
    if (found->memory.used() == 0)
        the().pools.remove(pool);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    SIM_ENTER(init);
    auto found = find(pool);
    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    found->memory.trim(minBytesToKeep);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr,
                               void *value)
{
    SIM_ENTER(init);
    auto found = find(pool);
    if (!found || !value)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        found->reuse[attr - 1] = *static_cast<int *>(value);
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        found->threshold = *static_cast<std::uint64_t *>(value);
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*static_cast<std::uint64_t *>(value) != 0)
            return CUDA_ERROR_INVALID_VALUE;
        (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? found->used_high
                                               : found->reserved_high) = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr,
                               void *value)
{
    SIM_ENTER(init);
    auto found = find(pool);
    if (!found || !value)
        return CUDA_ERROR_INVALID_VALUE;
    auto *wide = static_cast<std::uint64_t *>(value);
    switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *static_cast<int *>(value) = found->reuse[attr - 1];
        break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *wide = found->threshold;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *wide = found->memory.reserved();
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *wide = found->reserved_high;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *wide = found->memory.used();
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *wide = found->used_high;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map,
                            size_t count)
{
    SIM_ENTER(init);
    auto found = find(pool);
    if (!found || !map || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < count; ++i) {
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            !the().device_at(map[i].location.id))
            return CUDA_ERROR_INVALID_DEVICE;
        const std::uint32_t bit = 1U << map[i].location.id;
        const bool none = map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
        found->access = none ? found->access & ~bit : found->access | bit;
        for (auto &[base, m] : the().space.mappings)
            if (m.from == found.get())
                m.reads = m.writes = (1U << m.device) | found->access;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool,
                            CUmemLocation *location)
{
    SIM_ENTER(init);
    auto found = find(memPool);
    if (!flags || !found || !location ||
        location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!the().device_at(location->id))
        return CUDA_ERROR_INVALID_DEVICE;
    const bool reaches = location->id == found->dev.ordinal ||
                         (found->access >> location->id & 1);
    *flags = reaches ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                     : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}
