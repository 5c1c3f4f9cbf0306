// SPDX-License-Identifier: LGPL-2.1-or-later
// The program's streams: whether any is captured, and which are about to go.
#include "base/captures.hpp"
#include "hooks/session.hpp"

#include <mutex>
#include <set>

using namespace emuv::cuda;

extern "C" {
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream,
                                      CUstreamCaptureMode mode);
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                          const CUgraphNode *behind,
                                          const CUgraphEdgeData *edges,
                                          size_t count,
                                          CUstreamCaptureMode mode);
}

namespace {

// The streams that are captured, with the default streams named: that of each
// thread is one of them as often as it is captured.
std::mutex lock;
constinit std::multiset<CUstream> *captured = nullptr; // made once, and kept

template <typename Call>
CUresult begins(CUstream stream, Call real)
{
    // Before it begins: an allocation from here on may be the capture's.
    const entry ours;
    // A caching allocator may not ask again then, on other threads either, nor
    // after a capture that failed.
    if (ours)
        ours->shares->refuse_no_more();
    open_captures++;
    if (ours)
        ours->stream_waits();
    const CUresult result = real();
    if (result != CUDA_SUCCESS) {
        open_captures--;
        return result;
    }
    const std::lock_guard guard(lock);
    if (captured == nullptr)
        captured = new std::multiset<CUstream>;
    captured->insert(stream);
    return result;
}

// A capture that has failed ends all the same.
template <typename Call>
CUresult ends(CUstream stream, Call real)
{
    const CUresult result = real();
    const std::lock_guard guard(lock);
    if (captured == nullptr)
        return result;
    if (const auto found = captured->find(stream); found != captured->end()) {
        captured->erase(found);
        open_captures--;
    }
    return result;
}

} // namespace

CUresult cuStreamBeginCapture(CUstream stream)
{
    return begins(legacy(stream),
                  [&] { return EMUV_REAL(cuStreamBeginCapture)(stream); });
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
    return begins(per_thread(stream),
                  [&] { return EMUV_REAL(cuStreamBeginCapture_ptsz)(stream); });
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    return begins(legacy(stream), [&] {
        return EMUV_REAL(cuStreamBeginCapture_v2)(stream, mode);
    });
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    return begins(per_thread(stream), [&] {
        return EMUV_REAL(cuStreamBeginCapture_v2_ptsz)(stream, mode);
    });
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                     const CUgraphNode *behind,
                                     const CUgraphEdgeData *edges, size_t count,
                                     CUstreamCaptureMode mode)
{
    return begins(legacy(stream), [&] {
        return EMUV_REAL(cuStreamBeginCaptureToGraph)(stream, graph, behind,
                                                      edges, count, mode);
    });
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                          const CUgraphNode *behind,
                                          const CUgraphEdgeData *edges,
                                          size_t count,
                                          CUstreamCaptureMode mode)
{
    return begins(per_thread(stream), [&] {
        return EMUV_REAL(cuStreamBeginCaptureToGraph_ptsz)(
            stream, graph, behind, edges, count, mode);
    });
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    return ends(legacy(stream),
                [&] { return EMUV_REAL(cuStreamEndCapture)(stream, graph); });
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    return ends(per_thread(stream), [&] {
        return EMUV_REAL(cuStreamEndCapture_ptsz)(stream, graph);
    });
}

// ---- Their ends

namespace {

template <typename Call>
CUresult goes(CUstream stream, Call real)
{
    const entry ours;
    if (ours) {
        ours.table().in_order().stream_goes(stream);
        for (mover *each : ours->movers)
            each->stream_goes(stream);
    }
    return real();
}

} // namespace

CUresult cuStreamDestroy_v2(CUstream stream)
{
    return goes(stream,
                [stream] { return EMUV_REAL(cuStreamDestroy_v2)(stream); });
}

CUresult cuStreamDestroy(CUstream stream)
{
    return goes(stream,
                [stream] { return EMUV_REAL(cuStreamDestroy)(stream); });
}
