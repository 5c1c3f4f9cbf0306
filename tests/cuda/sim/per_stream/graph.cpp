// SPDX-License-Identifier: GPL-2.0-or-later
// Graphs captured from streams, and launched on them.
#include "../graph.hpp"

#include "per_stream.hpp"

#include <set>

using namespace sim;

#define SIM_ON_STREAM(handle)                                                  \
    SIM_ENTER(context);                                                        \
    auto on = resolve(*entered.current, handle, per_thread);                   \
    if (!on)                                                                   \
    return CUDA_ERROR_INVALID_HANDLE

namespace {

CUresult begin(const std::shared_ptr<stream> &on, std::shared_ptr<graph> into,
               CUstreamCaptureMode mode)
{
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
        mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (on->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (on->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    auto made = std::make_shared<capture>();
    made->into = std::move(into);
    made->mode = mode;
    made->thread = this_thread();
    made->id = the().next_id();
    made->origin = on.get();
    made->streams.push_back(on);
    on->capture = made;
    on->leaves.clear();
    std::erase_if(the().captures,
                  [](const auto &weak) { return weak.expired(); });
    the().captures.push_back(made);
    return CUDA_SUCCESS;
}

// True if all work of other streams in the capture was joined again.
bool joined(const capture &of, const stream &origin)
{
    std::set<const node *> before;
    std::vector<const node *> open(origin.leaves.begin(), origin.leaves.end());
    while (!open.empty()) {
        const node *one = open.back();
        open.pop_back();
        if (before.insert(one).second)
            open.insert(open.end(), one->after.begin(), one->after.end());
    }
    for (const auto &weak : of.streams)
        if (auto other = weak.lock())
            for (const node *leaf : other->leaves)
                if (!before.contains(leaf))
                    return false;
    return true;
}

} // namespace

CUresult cuStreamBeginCapture(CUstream hStream, CUstreamCaptureMode mode)
{
    SIM_ON_STREAM(hStream);
    auto into = std::make_shared<graph>();
    if (CUresult r = begin(on, into, mode))
        return r;
    the().graphs.add<CUgraph>(into);
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *,
                                     size_t numDependencies,
                                     CUstreamCaptureMode mode)
{
    SIM_ON_STREAM(hStream);
    auto into = the().graphs.find(hGraph);
    if (!into || (numDependencies && !dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult r = begin(on, into, mode))
        return r;
    for (std::size_t i = 0; i < numDependencies; ++i)
        on->leaves.push_back(reinterpret_cast<node *>(dependencies[i]));
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    SIM_ON_STREAM(hStream);
    if (!phGraph)
        return CUDA_ERROR_INVALID_VALUE;
    *phGraph = nullptr;
    auto what = on->capture;
    if (!what)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (what->origin != on.get())
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (what->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        what->thread != this_thread())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    CUresult result = CUDA_SUCCESS;
    if (what->broken)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!joined(*what, *on))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    what->ended = true;
    for (const auto &weak : what->streams)
        if (auto one = weak.lock()) {
            one->capture = nullptr;
            one->leaves.clear();
        }
    if (result == CUDA_SUCCESS)
        *phGraph = reinterpret_cast<CUgraph>(what->into.get());
    else
        the().graphs.remove(what->into.get());
    return result;
}

CUresult cuStreamIsCapturing(CUstream hStream,
                             CUstreamCaptureStatus *captureStatus)
{
    SIM_ON_STREAM(hStream);
    if (!captureStatus)
        return CUDA_ERROR_INVALID_VALUE;
    *captureStatus = !on->capture ? CU_STREAM_CAPTURE_STATUS_NONE
                     : on->capture->broken
                         ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                         : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream hStream,
                                CUstreamCaptureStatus *captureStatus_out,
                                cuuint64_t *id_out, CUgraph *graph_out,
                                const CUgraphNode **dependencies_out,
                                const CUgraphEdgeData **edgeData_out,
                                size_t *numDependencies_out)
{
    SIM_ON_STREAM(hStream);
    if (!captureStatus_out)
        return CUDA_ERROR_INVALID_VALUE;
    const capture *what = on->capture.get();
    *captureStatus_out = !what          ? CU_STREAM_CAPTURE_STATUS_NONE
                         : what->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                        : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (!what || what->broken)
        return CUDA_SUCCESS;
    if (id_out)
        *id_out = what->id;
    if (graph_out)
        *graph_out = reinterpret_cast<CUgraph>(what->into.get());
    if (dependencies_out)
        *dependencies_out =
            reinterpret_cast<const CUgraphNode *>(on->leaves.data());
    if (edgeData_out)
        *edgeData_out = nullptr;
    if (numDependencies_out)
        *numDependencies_out = on->leaves.size();
    return CUDA_SUCCESS;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream,
                                           CUgraphNode *dependencies,
                                           const CUgraphEdgeData *,
                                           size_t numDependencies,
                                           unsigned flags)
{
    SIM_ON_STREAM(hStream);
    if (!on->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (numDependencies && !dependencies)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        on->leaves.clear();
    for (std::size_t i = 0; i < numDependencies; ++i)
        on->leaves.push_back(reinterpret_cast<node *>(dependencies[i]));
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    params->hErrNode_out = nullptr;
    const CUresult r =
        cuGraphInstantiateWithFlags(phGraphExec, hGraph, params->flags);
    params->result_out =
        r ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return r;
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
{
    SIM_ON_STREAM(hStream);
    return the().execs.find(hGraphExec) ? CUDA_SUCCESS
                                        : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    SIM_ON_STREAM(hStream);
    auto exec = the().execs.find(hGraphExec);
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    // One after the other is an order that the dependencies allow.
    auto runs = std::make_shared<std::vector<std::function<void()>>>();
    for (const auto &step : exec->steps)
        if (step.enabled && step.op.run)
            runs->push_back(step.op.run);
    operation op;
    op.type = CU_GRAPH_NODE_TYPE_GRAPH;
    op.run = [runs] {
        for (const auto &run : *runs)
            run();
    };
    if (on->capture)
        return submit(*on, std::move(op));
    if (exec->last && !exec->last->done)
        enqueue_after(*on, exec->last);
    const CUresult result = submit(*on, std::move(op));
    exec->last = on->last;
    return result;
}
