// SPDX-License-Identifier: LGPL-2.1-or-later
// Copies and fills that a program adds to graphs by hand. One that crosses a
// seam of an allocation becomes several nodes. The program holds the last of
// them, a node of the kind it asked for.
#include "hooks/graph_walk.hpp"
#include "hooks/node_parts.hpp"
#include "hooks/session.hpp"

#include <algorithm>

using namespace emuv::cuda;

// ---- Adding

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph,
                              const CUgraphNode *after, size_t count,
                              const CUDA_MEMCPY3D *copy, CUcontext context)
{
    return add_node(
        node, graph, context, after, nullptr, count, copy,
        [&](CUgraphNode *one, const CUgraphNode *before,
            const CUgraphEdgeData *, std::size_t n, const CUDA_MEMCPY3D *part) {
            return EMUV_REAL(cuGraphAddMemcpyNode)(one, graph, before, n, part,
                                                   context);
        });
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph,
                              const CUgraphNode *after, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS *fill,
                              CUcontext context)
{
    return add_node(node, graph, context, after, nullptr, count, fill,
                    [&](CUgraphNode *one, const CUgraphNode *before,
                        const CUgraphEdgeData *, std::size_t n,
                        const CUDA_MEMSET_NODE_PARAMS *part) {
                        return EMUV_REAL(cuGraphAddMemsetNode)(
                            one, graph, before, n, part, context);
                    });
}

namespace {

CUDA_MEMSET_NODE_PARAMS fill_of(const CUgraphNodeParams &params)
{
    const auto &fill = params.memset;
    return {fill.dst,         fill.pitch, fill.value,
            fill.elementSize, fill.width, fill.height};
}

CUgraphNodeParams with(const CUgraphNodeParams &params,
                       const CUDA_MEMCPY3D &copy)
{
    CUgraphNodeParams changed = params;
    changed.memcpy.copyParams = copy;
    return changed;
}

CUgraphNodeParams with(const CUgraphNodeParams &params,
                       const CUDA_MEMSET_NODE_PARAMS &fill)
{
    CUgraphNodeParams changed = params;
    changed.memset.dst = fill.dst;
    changed.memset.width = fill.width;
    changed.memset.height = fill.height;
    return changed;
}

// @param add  makes a node of any kind
template <typename Add>
CUresult add_any(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                 const CUgraphEdgeData *edges, std::size_t count,
                 CUgraphNodeParams *params, Add add)
{
    const auto add_part = [&](CUgraphNode *one, const CUgraphNode *before,
                              const CUgraphEdgeData *data, std::size_t n,
                              const auto *part) {
        CUgraphNodeParams changed = with(*params, *part);
        return add(one, before, data, n, &changed);
    };
    if (params != nullptr && params->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        return add_node(node, graph, params->memcpy.copyCtx, after, edges,
                        count, &params->memcpy.copyParams, add_part);
    if (params != nullptr && params->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        const CUDA_MEMSET_NODE_PARAMS fill = fill_of(*params);
        return add_node(node, graph, params->memset.ctx, after, edges, count,
                        &fill, add_part);
    }
    const CUgraph child =
        params != nullptr && params->type == CU_GRAPH_NODE_TYPE_GRAPH
            ? params->graph.graph
            : nullptr;
    const CUresult result = add(node, after, edges, count, params);
    if (child != nullptr && result == CUDA_SUCCESS)
        follow_child(*node, child);
    return result;
}

} // namespace

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph,
                        const CUgraphNode *after, size_t count,
                        CUgraphNodeParams *params)
{
    return add_any(
        node, graph, after, nullptr, count, params,
        [&](CUgraphNode *one, const CUgraphNode *before,
            const CUgraphEdgeData *, std::size_t n, CUgraphNodeParams *part) {
            return EMUV_REAL(cuGraphAddNode)(one, graph, before, n, part);
        });
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph,
                           const CUgraphNode *after,
                           const CUgraphEdgeData *edges, size_t count,
                           CUgraphNodeParams *params)
{
    return add_any(node, graph, after, edges, count, params,
                   [&](CUgraphNode *one, const CUgraphNode *before,
                       const CUgraphEdgeData *data, std::size_t n,
                       CUgraphNodeParams *part) {
                       return EMUV_REAL(cuGraphAddNode_v2)(one, graph, before,
                                                           data, n, part);
                   });
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph,
                                  const CUgraphNode *after, size_t count,
                                  CUgraph child)
{
    const CUresult result =
        EMUV_REAL(cuGraphAddChildGraphNode)(node, graph, after, count, child);
    if (result == CUDA_SUCCESS)
        follow_child(*node, child);
    return result;
}

// ---- Reading and changing

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *copy)
{
    return show(node, copy, EMUV_REAL(cuGraphMemcpyNodeGetParams)(node, copy));
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node,
                                    CUDA_MEMSET_NODE_PARAMS *fill)
{
    return show(node, fill, EMUV_REAL(cuGraphMemsetNodeGetParams)(node, fill));
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *copy)
{
    return set_node(node, copy, [](CUgraphNode one, const CUDA_MEMCPY3D *part) {
        return EMUV_REAL(cuGraphMemcpyNodeSetParams)(one, part);
    });
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node,
                                    const CUDA_MEMSET_NODE_PARAMS *fill)
{
    return set_node(node, fill,
                    [](CUgraphNode one, const CUDA_MEMSET_NODE_PARAMS *part) {
                        return EMUV_REAL(cuGraphMemsetNodeSetParams)(one, part);
                    });
}

namespace {

// The executable graph is one whole from now on. Seldom is one changed so.
void is_whole(CUgraphExec exec)
{
    if (state *const ours = state_if_ours())
        ours->unrolled.is_whole(exec);
}

} // namespace

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D *copy,
                                        CUcontext context)
{
    is_whole(exec);
    return set_executable(exec, node, copy,
                          [&](CUgraphNode one, const CUDA_MEMCPY3D *part) {
                              return EMUV_REAL(cuGraphExecMemcpyNodeSetParams)(
                                  exec, one, part, context);
                          });
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *fill,
                                        CUcontext context)
{
    is_whole(exec);
    return set_executable(
        exec, node, fill,
        [&](CUgraphNode one, const CUDA_MEMSET_NODE_PARAMS *part) {
            return EMUV_REAL(cuGraphExecMemsetNodeSetParams)(exec, one, part,
                                                             context);
        });
}

namespace {

// @param change  set_node() or set_executable(): takes the new parameters, and
// a
//   call that changes one of the driver's nodes
// @param set  changes a node of any kind
template <typename Change, typename Set>
CUresult set_any(CUgraphNode node, CUgraphNodeParams *params, Change change,
                 Set set)
{
    const auto set_part = [&](CUgraphNode one, const auto *part) {
        CUgraphNodeParams changed = with(*params, *part);
        return set(one, &changed);
    };
    if (params != nullptr && params->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        return change(&params->memcpy.copyParams, set_part);
    if (params != nullptr && params->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        const CUDA_MEMSET_NODE_PARAMS fill = fill_of(*params);
        return change(&fill, set_part);
    }
    return set(node, params);
}

} // namespace

// ---- Changing kernels of executable graphs

namespace {

// @param real  the driver's answer
CUresult set_kernel(CUgraphExec exec, CUgraphNode node,
                    const CUDA_KERNEL_NODE_PARAMS &to, CUresult real)
{
    state *const ours = state_if_ours();
    if (ours != nullptr && real == CUDA_SUCCESS)
        ours->unrolled.changed(exec, node, to);
    return real;
}

} // namespace

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *to)
{
    const CUresult real =
        EMUV_REAL(cuGraphExecKernelNodeSetParams)(exec, node, to);
    return to == nullptr
               ? real
               : set_kernel(exec, node,
                            {to->func, to->gridDimX, to->gridDimY, to->gridDimZ,
                             to->blockDimX, to->blockDimY, to->blockDimZ,
                             to->sharedMemBytes, to->kernelParams, to->extra,
                             nullptr, nullptr},
                            real);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *to)
{
    const CUresult real =
        EMUV_REAL(cuGraphExecKernelNodeSetParams_v2)(exec, node, to);
    return to == nullptr ? real : set_kernel(exec, node, *to, real);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            CUgraph child)
{
    const CUresult real =
        EMUV_REAL(cuGraphExecChildGraphNodeSetParams)(exec, node, child);
    state *const ours = state_if_ours();
    if (ours != nullptr && real == CUDA_SUCCESS)
        ours->unrolled.changed(exec, node, child);
    return real;
}

// ---- Changing any node

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
    return set_any(
        node, params,
        [&](const auto *asked, auto set) { return set_node(node, asked, set); },
        [](CUgraphNode one, CUgraphNodeParams *part) {
            return EMUV_REAL(cuGraphNodeSetParams)(one, part);
        });
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                  CUgraphNodeParams *params)
{
    if (params != nullptr && params->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        const auto &to = params->kernel;
        return set_kernel(
            exec, node,
            {to.func, to.gridDimX, to.gridDimY, to.gridDimZ, to.blockDimX,
             to.blockDimY, to.blockDimZ, to.sharedMemBytes, to.kernelParams,
             to.extra, to.kern, to.ctx},
            EMUV_REAL(cuGraphExecNodeSetParams)(exec, node, params));
    }
    is_whole(exec);
    return set_any(
        node, params,
        [&](const auto *asked, auto set) {
            return set_executable(exec, node, asked, set);
        },
        [exec](CUgraphNode one, CUgraphNodeParams *part) {
            return EMUV_REAL(cuGraphExecNodeSetParams)(exec, one, part);
        });
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node,
                               unsigned enabled)
{
    is_whole(exec);
    state *const ours = state_if_ours();
    const auto found = ours != nullptr && ours->nodes.any()
                           ? ours->nodes.find(node)
                           : std::nullopt;
    if (!found || found->parts.size() == 1)
        return EMUV_REAL(cuGraphNodeSetEnabled)(exec, node, enabled);
    auto how = ours->nodes.use_of(exec, node);
    for (const auto &part : found->parts) {
        if (std::find(how.idle.begin(), how.idle.end(), part.node) !=
            how.idle.end())
            continue;
        const CUresult result =
            EMUV_REAL(cuGraphNodeSetEnabled)(exec, part.node, enabled);
        if (result != CUDA_SUCCESS)
            return result;
    }
    how.enabled = enabled != 0;
    ours->nodes.set_use(exec, node, std::move(how));
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node,
                               unsigned *enabled)
{
    state *const ours = state_if_ours();
    const CUresult result =
        EMUV_REAL(cuGraphNodeGetEnabled)(exec, node, enabled);
    if (ours == nullptr || result != CUDA_SUCCESS || !ours->nodes.any())
        return result;
    const auto found = ours->nodes.find(node);
    if (found && found->parts.size() > 1)
        *enabled = ours->nodes.use_of(exec, node).enabled;
    return result;
}

namespace {

// After an update every part has something to do again.
CUresult updated(CUgraphExec exec, CUgraph from, CUresult real)
{
    state *const ours = state_if_ours();
    if (ours == nullptr)
        return real;
    if (real != CUDA_SUCCESS) {
        ours->unrolled.is_whole(exec);
        return real;
    }
    ours->unrolled.updated(exec, from);
    for (auto &[node, how] : ours->nodes.take_uses(exec)) {
        if (how.enabled) {
            for (const CUgraphNode part : how.idle)
                EMUV_REAL(cuGraphNodeSetEnabled)(exec, part, 1);
        } else {
            ours->nodes.set_use(exec, node, {false, {}});
        }
    }
    return real;
}

} // namespace

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph,
                           CUgraphNode *wrong_node,
                           CUgraphExecUpdateResult *result)
{
    return updated(
        exec, graph,
        EMUV_REAL(cuGraphExecUpdate)(exec, graph, wrong_node, result));
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                              CUgraphExecUpdateResultInfo *result)
{
    return updated(exec, graph,
                   EMUV_REAL(cuGraphExecUpdate_v2)(exec, graph, result));
}

// ---- Copying and ending

CUresult cuGraphClone(CUgraph *clone, CUgraph original)
{
    const CUresult result = EMUV_REAL(cuGraphClone)(clone, original);
    state *const ours = state_if_ours();
    if (ours != nullptr && result == CUDA_SUCCESS && ours->nodes.any())
        follow_clone(ours->nodes, original, *clone);
    return result;
}

CUresult cuGraphDestroyNode(CUgraphNode node)
{
    state *const ours = state_if_ours();
    auto found = ours != nullptr ? ours->nodes.take(node) : std::nullopt;
    const CUresult result = EMUV_REAL(cuGraphDestroyNode)(node);
    if (!found)
        return result;
    if (result != CUDA_SUCCESS) {
        ours->nodes.remember(node, std::move(*found));
        return result;
    }
    for (const auto &part : found->parts)
        if (part.node != node)
            EMUV_REAL(cuGraphDestroyNode)(part.node);
    return result;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    state *const ours = state_if_ours();
    if (ours != nullptr && ours->nodes.any())
        forget(ours->nodes, graph);
    return EMUV_REAL(cuGraphDestroy)(graph);
}
