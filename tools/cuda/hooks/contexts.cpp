// SPDX-License-Identifier: LGPL-2.1-or-later
// Contexts end, with all memory in them; peers read our memory.
#include "hooks/session.hpp"

using namespace emuv::cuda;

namespace {

template <typename Call>
CUresult ends_context(CUcontext context, Call real)
{
    const entry ours;
    if (!ours || context == nullptr)
        return real();
    ours.table().context_ends(context);
    const std::uint64_t before = ours.table().next_serial();
    const std::uint64_t pinned_before = ours->host.next();
    const CUresult result = real();
    if (result != CUDA_SUCCESS) {
        ours.table().context_stays(context);
        return result;
    }
    ours->kernels->gone(context);
    ours->host.gone(context, pinned_before);
    ours->unrolled.gone(context);
    ours->attached.gone(context);
    ours.table().context_gone(context, before);
    return result;
}

} // namespace

CUresult cuCtxAttach(CUcontext *context, unsigned flags)
{
    const entry ours;
    const CUresult result = EMUV_REAL(cuCtxAttach)(context, flags);
    if (ours && result == CUDA_SUCCESS && context != nullptr)
        ours->attached.add(*context);
    return result;
}

CUresult cuCtxDetach(CUcontext context)
{
    const auto real = [context] { return EMUV_REAL(cuCtxDetach)(context); };
    {
        const entry ours;
        if (ours && ours->attached.remove(context)) {
            const CUresult result = real();
            if (result != CUDA_SUCCESS)
                ours->attached.add(context);
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

// Runs a call that may end a device's primary context, and follows it. Only by
// retaining the context can its handle be had, so it is retained across.
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
    ours.table().context_ends(context);
    const std::uint64_t before = ours.table().next_serial();
    const std::uint64_t pinned_before = ours->host.next();
    const CUresult result = real();
    EMUV_REAL(cuDevicePrimaryCtxRelease_v2)(device);
    if (ours->calls.cuDevicePrimaryCtxGetState(device, &flags, &alive) !=
        CUDA_SUCCESS)
        alive = 1;
    if (result != CUDA_SUCCESS || (!resets && alive != 0)) {
        ours.table().context_stays(context);
        return result;
    }
    ours->kernels->gone(context);
    ours->host.gone(context, pinned_before);
    ours->unrolled.gone(context);
    ours->attached.gone(context);
    ours.table().context_gone(context, before);
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
    const int device = current_device(ours->calls);
    CUdevice other = 0;
    CUcontext popped = nullptr;
    if (ours->calls.cuCtxPushCurrent_v2(peer) != CUDA_SUCCESS)
        return result;
    other = current_device(ours->calls);
    ours->calls.cuCtxPopCurrent_v2(&popped);
    ours.table().peer_enabled(device, other, reads_by::context, enabled);
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
