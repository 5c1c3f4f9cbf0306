// SPDX-License-Identifier: GPL-2.0-or-later
// Streams asked about and waited for, events on them, host functions.
#include "../graph.hpp"
#include "per_stream.hpp"

#include <algorithm>

using namespace sim;

#define SIM_ON_STREAM(handle)                                                  \
    SIM_ENTER(context);                                                        \
    auto on = resolve(*entered.current, handle, per_thread);                   \
    if (!on)                                                                   \
    return CUDA_ERROR_INVALID_HANDLE

CUresult cuStreamQuery(CUstream hStream)
{
    SIM_ON_STREAM(hStream);
    if (on->capture) {
        on->capture->broken = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (CUresult r = refuse_during_capture())
        return r;
    return on->idle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream hStream)
{
    SIM_ON_STREAM(hStream);
    if (on->capture) {
        on->capture->broken = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (CUresult r = refuse_during_capture())
        return r;
    if (on->legacy)
        // It comes after all blocking streams, also with nothing of its own.
        enqueue(*on, nullptr);
    wait(entered.lock, mark(on->last));
    pools_trim();
    return on->owner->lost;
}

CUresult cuStreamGetPriority(CUstream hStream, int *priority)
{
    SIM_ON_STREAM(hStream);
    if (!priority)
        return CUDA_ERROR_INVALID_VALUE;
    *priority = on->priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned *flags)
{
    SIM_ON_STREAM(hStream);
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = on->flags;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
    SIM_ON_STREAM(hStream);
    if (!streamId)
        return CUDA_ERROR_INVALID_VALUE;
    *streamId = on->id;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
    SIM_ON_STREAM(hStream);
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = on->owner->dev.ordinal;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
    SIM_ON_STREAM(hStream);
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    *pctx = reinterpret_cast<CUcontext>(on->owner);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx,
                           CUgreenCtx *pGreenCtx)
{
    if (pGreenCtx)
        *pGreenCtx = nullptr;
    return cuStreamGetCtx(hStream, pCtx);
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t,
                                unsigned)
{
    SIM_ON_STREAM(hStream);
    const mapping *m = the().space.find(dptr);
    return m && m->what == kind::managed ? CUDA_SUCCESS
                                         : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUmemLocation,
                            unsigned, CUstream hStream)
{
    SIM_ON_STREAM(hStream);
    const mapping *m = the().space.find(devPtr);
    return count && m && m->what == kind::managed ? CUDA_SUCCESS
                                                  : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    SIM_ON_STREAM(hStream);
    if (!fn)
        return CUDA_ERROR_INVALID_VALUE;
    operation op;
    op.type = CU_GRAPH_NODE_TYPE_HOST;
    CUDA_HOST_NODE_PARAMS params{};
    params.fn = fn;
    params.userData = userData;
    op.params = std::make_shared<CUDA_HOST_NODE_PARAMS>(params);
    op.run = [fn, userData] { fn(userData); };
    return submit(*on, std::move(op));
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback,
                             void *userData, unsigned flags)
{
    SIM_ON_STREAM(hStream);
    if (!callback || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (on->capture) {
        on->capture->broken = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    const context *where = on->owner;
    enqueue(
        *on,
        [=] {
            CUresult status = CUDA_SUCCESS;
            {
                std::lock_guard lock(the().mutex);
                status = where->lost;
            }
            callback(hStream, status, userData);
        },
        true);
    return CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned)
{
    SIM_ON_STREAM(hStream);
    auto what = the().events.find(hEvent);
    if (!what)
        return CUDA_ERROR_INVALID_HANDLE;
    if (on->capture) {
        if (on->capture->broken)
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        what->capture = on->capture;
        what->nodes = on->leaves;
        what->recorded = nullptr;
        return CUDA_SUCCESS;
    }
    what->capture = nullptr;
    what->recorded = enqueue(*on, nullptr);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
    return cuEventRecordWithFlags(hEvent, hStream, 0);
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned)
{
    SIM_ON_STREAM(hStream);
    auto what = the().events.find(hEvent);
    if (!what)
        return CUDA_ERROR_INVALID_HANDLE;
    if (what->capture && !what->capture->ended) {
        if (on->capture && on->capture != what->capture) {
            on->capture->broken = what->capture->broken = true;
            return CUDA_ERROR_STREAM_CAPTURE_MERGE;
        }
        if (what->capture->broken)
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        if (on->legacy)
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        if (!on->capture) { // the stream joins the capture
            on->capture = what->capture;
            on->leaves.clear();
            on->capture->streams.push_back(on);
        }
        for (node *one : what->nodes)
            if (std::find(on->leaves.begin(), on->leaves.end(), one) ==
                on->leaves.end())
                on->leaves.push_back(one);
        return CUDA_SUCCESS;
    }
    if (on->capture) {
        if (!what->recorded)
            return CUDA_SUCCESS;
        on->capture->broken = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (what->recorded && !what->recorded->done)
        enqueue_after(*on, what->recorded);
    return CUDA_SUCCESS;
}
