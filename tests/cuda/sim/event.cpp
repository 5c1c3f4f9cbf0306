// SPDX-License-Identifier: GPL-2.0-or-later
// Events. Recording and waiting on a stream are in per_stream/stream.cpp.
#include "graph.hpp"
#include "state.hpp"

using namespace sim;

CUresult cuEventCreate(CUevent *phEvent, unsigned Flags)
{
    SIM_ENTER(context);
    if (!phEvent || (Flags & ~7U) ||
        ((Flags & CU_EVENT_INTERPROCESS) && !(Flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    auto made = std::make_shared<event>();
    made->flags = Flags;
    *phEvent = the().events.add<CUevent>(made);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent hEvent)
{
    SIM_ENTER(init);
    return the().events.remove(hEvent) ? CUDA_SUCCESS
                                       : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventQuery(CUevent hEvent)
{
    SIM_ENTER(context);
    auto found = the().events.find(hEvent);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    if (found->capture && !found->capture->ended)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (CUresult r = refuse_during_capture())
        return r;
    return !found->recorded || found->recorded->done ? CUDA_SUCCESS
                                                     : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent hEvent)
{
    SIM_ENTER(context);
    auto found = the().events.find(hEvent);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    if (found->capture && !found->capture->ended)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (CUresult r = refuse_during_capture())
        return r;
    mark end = found->recorded;
    wait(entered.lock, end);
    pools_trim();
    return entered.current->lost;
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    SIM_ENTER(context);
    if (!pMilliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    auto start = the().events.find(hStart);
    auto end = the().events.find(hEnd);
    if (!start || !end || !start->recorded || !end->recorded ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!start->recorded->done || !end->recorded->done)
        return CUDA_ERROR_NOT_READY;
    *pMilliseconds = std::chrono::duration<float, std::milli>(
                         end->recorded->when - start->recorded->when)
                         .count();
    return CUDA_SUCCESS;
}

#undef cuEventElapsedTime
SIM_EXPORT CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart,
                                       CUevent hEnd)
{
    return cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}
