// SPDX-License-Identifier: LGPL-2.1-or-later
// The driver's functions by which an executable graph is made, launched and
// destroyed.
#include "hooks/watch.hpp"

using namespace emuv::cuda;

namespace {

template <typename Call>
CUresult instantiate(CUgraphExec *made, CUgraph from, unsigned long long flags,
                     Call real)
{
    const entry ours;
    if (!ours || made == nullptr)
        return real();
    const CUresult result = ours->executable->instantiate(made, from, real);
    if (result == CUDA_SUCCESS && !ours->movers.empty())
        ours->unrolled.instantiated(*made, from, flags);
    return result;
}

template <typename Call>
CUresult with_memory(CUgraphExec which, Call real)
{
    const state *const ours = state_if_ours();
    return ours != nullptr ? ours->executable->launch(which, real) : real();
}

mover *mover_of_device()
{
    const entry ours;
    return ours ? ours.moving() : nullptr;
}

unsigned long long flags_of(const CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    return params != nullptr ? params->flags : 0;
}

// @param stream  with the default streams named
template <typename Call>
CUresult launch(CUgraphExec which, CUstream stream, Call real)
{
    state *const ours = state_if_ours();
    const auto whole = [&] { return with_memory(which, real); };
    return ours != nullptr
               ? ours->unrolled.launch(which, stream, mover_of_device(), whole)
               : whole();
}

} // namespace

CUresult cuGraphInstantiate(CUgraphExec *made, CUgraph from,
                            CUgraphNode *wrong_node, char *log, size_t length)
{
    return instantiate(made, from, 0, [&] {
        return EMUV_REAL(cuGraphInstantiate)(made, from, wrong_node, log,
                                             length);
    });
}

CUresult cuGraphInstantiate_v2(CUgraphExec *made, CUgraph from,
                               CUgraphNode *wrong_node, char *log,
                               size_t length)
{
    return instantiate(made, from, 0, [&] {
        return EMUV_REAL(cuGraphInstantiate_v2)(made, from, wrong_node, log,
                                                length);
    });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph from,
                                     unsigned long long flags)
{
    return instantiate(made, from, flags, [&] {
        return EMUV_REAL(cuGraphInstantiateWithFlags)(made, from, flags);
    });
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *made, CUgraph from,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    return instantiate(made, from, flags_of(params), [&] {
        return EMUV_REAL(cuGraphInstantiateWithParams)(made, from, params);
    });
}

CUresult
cuGraphInstantiateWithParams_ptsz(CUgraphExec *made, CUgraph from,
                                  CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    return instantiate(made, from, flags_of(params), [&] {
        return EMUV_REAL(cuGraphInstantiateWithParams_ptsz)(made, from, params);
    });
}

CUresult cuGraphUpload(CUgraphExec which, CUstream stream)
{
    return with_memory(which,
                       [&] { return EMUV_REAL(cuGraphUpload)(which, stream); });
}

CUresult cuGraphUpload_ptsz(CUgraphExec which, CUstream stream)
{
    return with_memory(
        which, [&] { return EMUV_REAL(cuGraphUpload_ptsz)(which, stream); });
}

CUresult cuGraphLaunch(CUgraphExec which, CUstream stream)
{
    return launch(which, legacy(stream),
                  [&] { return EMUV_FOLLOWED(cuGraphLaunch)(which, stream); });
}

CUresult cuGraphLaunch_ptsz(CUgraphExec which, CUstream stream)
{
    return launch(which, per_thread(stream), [&] {
        return EMUV_FOLLOWED(cuGraphLaunch_ptsz)(which, stream);
    });
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object,
                                 unsigned count, unsigned flags)
{
    if (state *const ours = state_if_ours())
        ours->unrolled.ties_objects();
    return EMUV_REAL(cuGraphRetainUserObject)(graph, object, count, flags);
}

CUresult cuGraphExecDestroy(CUgraphExec which)
{
    const entry ours;
    if (ours)
        ours->unrolled.goes(which);
    const auto real = [&] { return EMUV_REAL(cuGraphExecDestroy)(which); };
    if (ours && ours->nodes.any())
        ours->nodes.take_uses(which);
    return ours ? ours->executable->destroy(which, real) : real();
}
