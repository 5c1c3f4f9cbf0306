// SPDX-License-Identifier: GPL-2.0-or-later
// Pinned host memory: made by the driver, or the program's own, registered.
#include "state.hpp"

#include <cerrno>

#include <sys/mman.h>

using namespace sim;

namespace {

constexpr std::size_t page_bytes = 4096;

// Pinning makes the pages present, and cannot if there are none.
bool pin(std::uintptr_t base, std::size_t bytes, bool read_only)
{
    const std::uintptr_t first = base / page_bytes * page_bytes;
    const std::size_t length = round_up(base + bytes, page_bytes) - first;
    int result = 0;
    do
        result = madvise(reinterpret_cast<void *>(first), length,
                         read_only ? MADV_POPULATE_READ : MADV_POPULATE_WRITE);
    while (result != 0 && errno == EINTR);
    if (result == 0)
        return true;
    // A kernel before 5.14 says EINVAL to the advice itself, and so does a
    // newer one to a range without access.
    static const bool known = [] {
        void *probe = mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        const bool works = madvise(probe, page_bytes, MADV_POPULATE_WRITE) == 0;
        munmap(probe, page_bytes);
        return works;
    }();
    return !known;
}

} // namespace

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned Flags)
{
    SIM_ENTER(context);
    if (!pp || (Flags & ~7U))
        return CUDA_ERROR_INVALID_VALUE;
    if (bytesize == 0) { // as a card's driver answers it
        *pp = nullptr;
        return CUDA_SUCCESS;
    }
    if (CUresult r = refuse_during_capture())
        return r;
    void *got =
        mmap(nullptr, round_up(bytesize, page_bytes), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapping m;
    m.base = reinterpret_cast<std::uintptr_t>(got);
    m.bytes = bytesize;
    m.what = kind::host;
    m.owner = entered.current;
    m.device = entered.current->dev.ordinal;
    m.flags = Flags | CU_MEMHOSTALLOC_DEVICEMAP;
    m.reads = m.writes = ~0U;
    the().space.add(m);
    *pp = got;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocHost(void **pp, size_t bytesize)
{
    return cuMemHostAlloc(pp, bytesize, 0);
}

CUresult cuMemFreeHost(void *p)
{
    SIM_ENTER(context);
    const auto base = reinterpret_cast<std::uintptr_t>(p);
    mapping *m = the().space.find(base);
    if (!m || m->base != base || m->what != kind::host)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult r = refuse_during_capture())
        return r;
    wait_device(entered.lock, m->device);
    m = the().space.find(base);
    if (!m || m->base != base)
        return CUDA_ERROR_INVALID_VALUE;
    const std::size_t bytes = m->bytes;
    the().space.remove(base);
    munmap(p, round_up(bytes, page_bytes));
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned Flags)
{
    SIM_ENTER(context);
    const auto base = reinterpret_cast<std::uintptr_t>(p);
    if (!p || bytesize == 0 || (Flags & ~15U))
        return CUDA_ERROR_INVALID_VALUE;
    if (the().space.any(base, bytesize))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (!pin(base, bytesize, Flags & CU_MEMHOSTREGISTER_READ_ONLY))
        return CUDA_ERROR_INVALID_VALUE;
    mapping m;
    m.base = base;
    m.bytes = bytesize;
    m.what = kind::registered;
    m.owner = entered.current;
    m.device = entered.current->dev.ordinal;
    m.flags = Flags | CU_MEMHOSTREGISTER_DEVICEMAP;
    m.reads = ~0U;
    m.writes = Flags & CU_MEMHOSTREGISTER_READ_ONLY ? host_bit : ~0U;
    the().space.add(m);
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *p)
{
    SIM_ENTER(context);
    const auto base = reinterpret_cast<std::uintptr_t>(p);
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    mapping *m = the().space.find(base);
    if (!m || m->base != base || m->what != kind::registered)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    wait_device(entered.lock, m->device);
    m = the().space.find(base);
    if (!m || m->base != base || m->what != kind::registered)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    the().space.remove(base);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *pdptr, void *p, unsigned Flags)
{
    SIM_ENTER(context);
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    if (!pdptr || Flags)
        return CUDA_ERROR_INVALID_VALUE;
    const mapping *m = the().space.find(address);
    if (!m || !m->on_host())
        return CUDA_ERROR_INVALID_VALUE;
    *pdptr = address;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned *pFlags, void *p)
{
    SIM_ENTER(context);
    const mapping *m = the().space.find(reinterpret_cast<std::uintptr_t>(p));
    if (!pFlags || !m || !m->on_host())
        return CUDA_ERROR_INVALID_VALUE;
    *pFlags = m->flags;
    return CUDA_SUCCESS;
}
