// SPDX-License-Identifier: LGPL-2.1-or-later
// Captures, of which the library only wants to know that there are any.
#include "hooks.hpp"

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

// Before it begins: what is allocated from here on may be the capture's.
void begin()
{
    const entry ours;
    if (ours)
        ours.held().capture_begins();
}

} // namespace

CUresult cuStreamBeginCapture(CUstream stream)
{
    begin();
    return EMUV_REAL(cuStreamBeginCapture)(stream);
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
    begin();
    return EMUV_REAL(cuStreamBeginCapture_ptsz)(stream);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    begin();
    return EMUV_REAL(cuStreamBeginCapture_v2)(stream, mode);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    begin();
    return EMUV_REAL(cuStreamBeginCapture_v2_ptsz)(stream, mode);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                     const CUgraphNode *behind,
                                     const CUgraphEdgeData *edges, size_t count,
                                     CUstreamCaptureMode mode)
{
    begin();
    return EMUV_REAL(cuStreamBeginCaptureToGraph)(stream, graph, behind, edges,
                                                  count, mode);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                          const CUgraphNode *behind,
                                          const CUgraphEdgeData *edges,
                                          size_t count,
                                          CUstreamCaptureMode mode)
{
    begin();
    return EMUV_REAL(cuStreamBeginCaptureToGraph_ptsz)(stream, graph, behind,
                                                       edges, count, mode);
}
