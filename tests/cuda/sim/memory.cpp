// SPDX-License-Identifier: GPL-2.0-or-later
// Device memory by cuMemAlloc and its kin, and the attributes of an address.
#include "state.hpp"

#include <cstring>

#include <sys/mman.h>

namespace sim {

namespace {

CUresult allocate(context &where, std::size_t bytes, CUdeviceptr *out)
{
    std::uintptr_t base = where.memory.allocate(bytes);
    if (!base) {
        pools_trim();
        base = where.memory.allocate(bytes);
    }
    if (!base)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapping m;
    m.base = base;
    m.bytes = bytes;
    m.what = kind::device;
    m.owner = &where;
    m.device = where.dev.ordinal;
    m.reads = m.writes = ~host_bit;
    the().space.add(m);
    *out = base;
    return CUDA_SUCCESS;
}

// The current context may do so much there.
CUmemAccess_flags access_to(const mapping &m)
{
    const context *current =
        context_stack().empty() ? nullptr : context_stack().back();
    const std::uint32_t bit = current != nullptr ? current->bit() : 0;
    if ((m.writes & bit) != 0)
        return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return (m.reads & bit) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

// Gives one attribute of an address; false if the address has none such.
// @param there  null where nothing is mapped
bool attribute(const mapping *there, CUpointer_attribute which,
               std::uintptr_t address, void *data)
{
    static const mapping nothing;
    const mapping &m = there != nullptr ? *there : nothing;
    const bool any = there != nullptr;
    const auto put = [&](bool has, auto value) {
        // The zero of its type tells that there is none.
        const decltype(value) given = any ? value : decltype(value){};
        std::memcpy(data, &given, sizeof given);
        return any && has;
    };
    switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return put(m.owner != nullptr, m.owner);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return put(true,
                   static_cast<unsigned>(m.in_vram() || m.what == kind::managed
                                             ? CU_MEMORYTYPE_DEVICE
                                             : CU_MEMORYTYPE_HOST));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return put(true, CUdeviceptr{address});
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return put(!m.in_vram(), m.in_vram() ? std::uintptr_t{0} : address);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return put(true, false);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        return put(true, m.id);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return put(true, m.memory ? m.memory->id() : m.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return put(true, m.what == kind::managed);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: {
        const int ordinal = any ? m.device : -2;
        std::memcpy(data, &ordinal, sizeof ordinal);
        return any;
    }
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return put(true, m.what == kind::device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return put(true, CUdeviceptr{m.base});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        return put(true, m.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        put(true, true);
        return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return put(true,
                   m.memory
                       ? std::uint64_t{m.memory->prop().requestedHandleTypes}
                       : std::uint64_t{0});
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return put(true, access_to(m));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return put(m.from != nullptr, m.from);
    default:
        return false;
    }
}

} // namespace
} // namespace sim

using namespace sim;

CUresult cuMemGetInfo(size_t *free, size_t *total)
{
    SIM_ENTER(context);
    // Either may be left out, on a card too.
    const frame_store &vram = entered.current->dev.vram;
    if (free)
        *free = (vram.capacity() - vram.used()) * frame_bytes;
    if (total)
        *total = vram.capacity() * frame_bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *dptr, size_t bytesize)
{
    SIM_ENTER(context);
    if (!dptr || bytesize == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult r = refuse_during_capture())
        return r;
    return allocate(*entered.current, bytesize, dptr);
}

CUresult cuMemAllocPitch(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
                         size_t Height, unsigned ElementSizeBytes)
{
    SIM_ENTER(context);
    if (!dptr || !pPitch || WidthInBytes == 0 || Height == 0 ||
        (ElementSizeBytes != 4 && ElementSizeBytes != 8 &&
         ElementSizeBytes != 16))
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult r = refuse_during_capture())
        return r;
    const std::size_t pitch = round_up(WidthInBytes, 512);
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(pitch, Height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pPitch = pitch;
    return allocate(*entered.current, bytes, dptr);
}

// Managed memory lies in host memory: a card moves pages there and back, but a
// program sees the same bytes.
CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned flags)
{
    SIM_ENTER(context);
    if (!dptr || bytesize == 0 ||
        (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult r = refuse_during_capture())
        return r;
    if (bytesize > address_space::arena_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const std::size_t bytes = round_up(bytesize, 4096);
    void *got = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapping m;
    m.base = reinterpret_cast<std::uintptr_t>(got);
    m.bytes = bytesize;
    m.what = kind::managed;
    m.owner = entered.current;
    m.device = entered.current->dev.ordinal;
    m.reads = m.writes = ~0U;
    the().space.add(m);
    *dptr = m.base;
    return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr dptr)
{
    SIM_ENTER(context);
    if (dptr == 0)
        return CUDA_SUCCESS;
    mapping *m = the().space.find(dptr);
    if (!m || m->base != dptr ||
        (m->what != kind::device && m->what != kind::pooled &&
         m->what != kind::managed))
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult r = refuse_during_capture())
        return r;
    wait_device(entered.lock, m->device);
    if (entered.current->lost != CUDA_SUCCESS)
        return entered.current->lost;
    m = the().space.find(dptr); // another thread may have been as quick
    if (!m || m->base != dptr)
        return CUDA_ERROR_INVALID_VALUE;
    const mapping gone = *m;
    if (gone.what == kind::pooled) {
        pool_release(gone.base);
        pools_trim();
        return CUDA_SUCCESS;
    }
    the().space.remove(gone.base);
    if (gone.what == kind::managed) {
        munmap(reinterpret_cast<void *>(gone.base), round_up(gone.bytes, 4096));
        return CUDA_SUCCESS;
    }
    gone.owner->memory.release(gone.base, gone.bytes);
    gone.owner->memory.trim(0);
    return CUDA_SUCCESS;
}

// As on a card: for host memory that was mapped by handle, the answer is a base
// nowhere near the address that was asked about.
CUresult cuMemGetAddressRange(CUdeviceptr *pbase, size_t *psize,
                              CUdeviceptr dptr)
{
    SIM_ENTER(context);
    const mapping *m = the().space.find(dptr);
    if (!m)
        return CUDA_ERROR_NOT_FOUND;
    if (pbase)
        *pbase = m->what == kind::vmm && !m->in_vram()
                     ? CUdeviceptr{m->memory->id() * frame_bytes}
                     : CUdeviceptr{m->base};
    if (psize)
        *psize = m->bytes;
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute which,
                               CUdeviceptr ptr)
{
    SIM_ENTER(init);
    if (!data || which <= 0 ||
        which > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE)
        return CUDA_ERROR_INVALID_VALUE;
    const mapping *m = the().space.find(ptr);
    alignas(16) unsigned char value[16] = {};
    if (!attribute(m, which, ptr, value))
        return CUDA_ERROR_INVALID_VALUE;
    attribute(m, which, ptr, data);
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned numAttributes,
                                CUpointer_attribute *attributes, void **data,
                                CUdeviceptr ptr)
{
    SIM_ENTER(init);
    if (!numAttributes || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    const mapping *m = the().space.find(ptr);
    for (unsigned i = 0; i < numAttributes; ++i)
        attribute(m, attributes[i], ptr, data[i]);
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute which,
                               CUdeviceptr ptr)
{
    SIM_ENTER(init);
    const mapping *m = the().space.find(ptr);
    if (!value || !m)
        return CUDA_ERROR_INVALID_VALUE;
    if (m->what == kind::vmm)
        return CUDA_ERROR_NOT_SUPPORTED;
    return which == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ? CUDA_SUCCESS
                                                     : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise,
                     CUmemLocation)
{
    SIM_ENTER(context);
    const mapping *m = the().space.find(devPtr);
    return count && m && m->what == kind::managed ? CUDA_SUCCESS
                                                  : CUDA_ERROR_INVALID_VALUE;
}

// As a driver has them that is newer than anybody's headers.

SIM_EXPORT CUresult cuMemAllocOfTomorrow(CUdeviceptr *dptr, size_t bytesize)
{
    return cuMemAlloc(dptr, bytesize);
}

// With arguments in registers of both kinds, and behind them.
SIM_EXPORT CUresult cuMemcpyOfTomorrow(CUdeviceptr to, CUdeviceptr from,
                                       size_t bytes, int fourth, int fifth,
                                       int sixth, double half, int seventh)
{
    if (fourth != 4 || fifth != 5 || sixth != 6 || half != 0.5 || seventh != 7)
        return CUDA_ERROR_INVALID_VALUE;
    return cuMemcpyDtoD(to, from, bytes);
}

SIM_EXPORT CUresult cuMemPokeOfTomorrow()
{
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGetPokesOfTomorrow()
{
    return CUDA_SUCCESS;
}

// New ones of names that there are.

SIM_EXPORT CUresult cuMulticastBindAddrOfTomorrow()
{
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuLaunchHostFuncOfTomorrow(CUstream stream, CUhostFn call,
                                               void *with, unsigned)
{
    return cuLaunchHostFunc(stream, call, with);
}
