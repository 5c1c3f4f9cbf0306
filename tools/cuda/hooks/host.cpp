// SPDX-License-Identifier: LGPL-2.1-or-later
// Host memory that the program has the driver pin: kernels may find addresses
// there.
#include "base/current.hpp"
#include "hooks/session.hpp"

using namespace emuv::cuda;

namespace {

// The record of pinned host memory, if memory moves at all; else null.
pinned *known(const entry &ours)
{
    return ours && !ours->movers.empty() ? &ours->host : nullptr;
}

template <typename Call>
CUresult pin(void *const *at, std::size_t bytes, Call real)
{
    const entry ours;
    const CUresult result = real();
    if (pinned *const all = known(ours);
        all != nullptr && result == CUDA_SUCCESS && bytes > 0)
        all->add(*at, bytes, false, current_context(ours->calls));
    return result;
}

template <typename Call>
CUresult let_go(const void *at, Call real)
{
    const entry ours;
    pinned *const all = known(ours);
    // Before it is given out anew.
    const auto was = all != nullptr ? all->remove(at) : pinned::area{};
    const CUresult result = real();
    if (was.bytes > 0 && result != CUDA_SUCCESS)
        all->add(at, was.bytes, was.managed, was.context);
    return result;
}

} // namespace

CUresult cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
    return pin(at, bytes,
               [&] { return EMUV_REAL(cuMemHostAlloc)(at, bytes, flags); });
}

CUresult cuMemAllocHost(void **at, unsigned bytes)
{
    return pin(at, bytes, [&] { return EMUV_REAL(cuMemAllocHost)(at, bytes); });
}

CUresult cuMemAllocHost_v2(void **at, size_t bytes)
{
    return pin(at, bytes,
               [&] { return EMUV_REAL(cuMemAllocHost_v2)(at, bytes); });
}

CUresult cuMemHostRegister(void *at, size_t bytes, unsigned flags)
{
    return pin(&at, bytes,
               [&] { return EMUV_REAL(cuMemHostRegister)(at, bytes, flags); });
}

CUresult cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags)
{
    return pin(&at, bytes, [&] {
        return EMUV_REAL(cuMemHostRegister_v2)(at, bytes, flags);
    });
}

CUresult cuMemFreeHost(void *at)
{
    return let_go(at, [&] { return EMUV_REAL(cuMemFreeHost)(at); });
}

CUresult cuMemHostUnregister(void *at)
{
    return let_go(at, [&] { return EMUV_REAL(cuMemHostUnregister)(at); });
}
