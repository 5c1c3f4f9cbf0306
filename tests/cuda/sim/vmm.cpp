// SPDX-License-Identifier: GPL-2.0-or-later
// Virtual memory management: addresses, memory and mappings apart.
//
// None of this waits for running work, as on a card: work that touches memory
// unmapped under it is lost, and its context with it.
#include "state.hpp"

#include <algorithm>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace sim {

namespace {

bool whole_frames(std::uintptr_t address, std::size_t bytes)
{
    return bytes != 0 && address % frame_bytes == 0 && bytes % frame_bytes == 0;
}

CUresult check(const CUmemAllocationProp *prop)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    switch (prop->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        if (!the().device_at(prop->location.id))
            return CUDA_ERROR_INVALID_DEVICE;
        break;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        if (prop->location.id < 0)
            return CUDA_ERROR_INVALID_VALUE;
        [[fallthrough]];
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        if (!the().host_numa)
            return CUDA_ERROR_NOT_SUPPORTED;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    const unsigned types = prop->requestedHandleTypes;
    if (types &
        ~static_cast<unsigned>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

CUmemGenericAllocationHandle new_handle(std::shared_ptr<physical> memory)
{
    const auto key = CUmemGenericAllocationHandle{the().next_id()};
    the().handles[key] = {std::move(memory), 1};
    return key;
}

physical *memory_of(CUmemGenericAllocationHandle handle)
{
    auto found = the().handles.find(handle);
    return found == the().handles.end() ? nullptr : found->second.memory.get();
}

// The mappings that together are exactly this range, or none.
std::vector<mapping *> exactly(std::uintptr_t base, std::size_t bytes)
{
    std::vector<mapping *> out;
    const std::uintptr_t end = base + bytes;
    while (base < end) {
        mapping *m = the().space.find(base);
        if (!m || m->what != kind::vmm || m->base != base || m->end() > end)
            return {};
        out.push_back(m);
        base = m->end();
    }
    return out;
}

} // namespace
} // namespace sim

using namespace sim;

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment,
                             CUdeviceptr addr, unsigned long long flags)
{
    SIM_ENTER(init);
    if (!ptr || size == 0 || size % frame_bytes || flags ||
        (alignment & (alignment - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    const std::uintptr_t base =
        the().space.reserve(size, std::max(alignment, frame_bytes), addr, true);
    if (!base)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ptr = base;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    SIM_ENTER(init);
    const auto range = the().space.reservation(ptr);
    if (!range.by_user || range.base != ptr || range.bytes != size ||
        the().space.any(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    the().space.unreserve(ptr);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity,
                                       const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    SIM_ENTER(init);
    if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                         option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult r = check(prop))
        return r;
    *granularity = frame_bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    SIM_ENTER(init);
    if (!handle || size == 0 || size % frame_bytes || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult r = check(prop))
        return r;
    frame_store &store = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE
                             ? the().device_at(prop->location.id)->vram
                             : the().host;
    auto made = physical::create(store, size, *prop);
    if (!made) {
        pools_trim();
        made = physical::create(store, size, *prop);
    }
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (made->file() >= 0)
        the().exported.push_back(made);
    *handle = new_handle(std::move(made));
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    SIM_ENTER(init);
    auto found = the().handles.find(handle);
    if (found == the().handles.end())
        return CUDA_ERROR_INVALID_VALUE;
    if (--found->second.count == 0)
        the().handles.erase(found);
    return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle,
                                     void *addr)
{
    SIM_ENTER(init);
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    const mapping *m = the().space.find(reinterpret_cast<std::uintptr_t>(addr));
    if (!m || m->what != kind::vmm)
        return CUDA_ERROR_INVALID_VALUE;
    for (auto &[key, known] : the().handles)
        if (known.memory == m->memory) {
            ++known.count;
            *handle = key;
            return CUDA_SUCCESS;
        }
    *handle = new_handle(m->memory);
    return CUDA_SUCCESS;
}

CUresult
cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                       CUmemGenericAllocationHandle handle)
{
    SIM_ENTER(init);
    const physical *memory = memory_of(handle);
    if (!prop || !memory)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = memory->prop();
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    SIM_ENTER(init);
    auto found = the().handles.find(handle);
    if (found == the().handles.end() || flags || !whole_frames(ptr, size) ||
        size > found->second.memory->bytes() ||
        offset > found->second.memory->bytes() - size)
        return CUDA_ERROR_INVALID_VALUE;
    if (size < found->second.memory->bytes())
        return CUDA_ERROR_NOT_SUPPORTED;
    const auto range = the().space.reservation(ptr);
    if (!range.by_user || range.base + range.bytes - ptr < size ||
        the().space.any(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    // Until access is given, nobody has any.
    if (!found->second.memory->map(ptr, size, PROT_NONE))
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapping m;
    m.base = ptr;
    m.bytes = size;
    m.what = kind::vmm;
    m.memory = found->second.memory;
    m.device = m.memory->on_device() ? m.memory->prop().location.id : -1;
    the().space.add(m);
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    SIM_ENTER(init);
    if (!whole_frames(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    const auto parts = exactly(ptr, size);
    if (parts.empty())
        return CUDA_ERROR_INVALID_VALUE;
    for (const mapping *m : parts)
        the().space.remove(m->base);
    the().space.clear(ptr, size);
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size,
                        const CUmemAccessDesc *desc, size_t count)
{
    SIM_ENTER(init);
    if (!desc || count == 0 || !whole_frames(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    const auto parts = exactly(ptr, size);
    if (parts.empty())
        return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < count; ++i) {
        const bool host = desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE;
        if (!host && !the().device_at(desc[i].location.id))
            return CUDA_ERROR_INVALID_DEVICE;
        if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (mapping *m : parts) {
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint32_t bit =
                desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE
                    ? 1U << desc[i].location.id
                    : host_bit;
            const auto flags = static_cast<unsigned>(desc[i].flags);
            m->reads = flags & CU_MEM_ACCESS_FLAGS_PROT_READ ? m->reads | bit
                                                             : m->reads & ~bit;
            m->writes = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                            ? m->writes | bit
                            : m->writes & ~bit;
        }
        const int protection = m->writes  ? PROT_READ | PROT_WRITE
                               : m->reads ? PROT_READ
                                          : PROT_NONE;
        mprotect(reinterpret_cast<void *>(m->base), m->bytes, protection);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long *flags,
                        const CUmemLocation *location, CUdeviceptr ptr)
{
    SIM_ENTER(init);
    if (!flags || !location)
        return CUDA_ERROR_INVALID_VALUE;
    const mapping *m = the().space.find(ptr);
    if (!m || m->what != kind::vmm)
        return CUDA_ERROR_INVALID_VALUE;
    std::uint32_t bit = host_bit;
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        if (!the().device_at(location->id))
            return CUDA_ERROR_INVALID_DEVICE;
        bit = 1U << location->id;
    }
    *flags = m->writes & bit  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : m->reads & bit ? CU_MEM_ACCESS_FLAGS_PROT_READ
                              : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shareableHandle,
                                      CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags)
{
    SIM_ENTER(init);
    const physical *memory = memory_of(handle);
    if (!shareableHandle || !memory || flags ||
        handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        memory->file() < 0)
        return CUDA_ERROR_INVALID_VALUE;
    const int fd = fcntl(memory->file(), F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *static_cast<int *>(shareableHandle) = fd;
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                        void *osHandle,
                                        CUmemAllocationHandleType shHandleType)
{
    SIM_ENTER(init);
    if (!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    auto memory = physical::import(
        static_cast<int>(reinterpret_cast<std::intptr_t>(osHandle)));
    if (!memory)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = new_handle(std::move(memory));
    return CUDA_SUCCESS;
}
