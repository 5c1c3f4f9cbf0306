// SPDX-License-Identifier: LGPL-2.1-or-later
#include "hooks/graph_walk.hpp"

#include "hooks/session.hpp"

#include <vector>

namespace emuv::cuda {

bool ask_nodes(CUgraph graph, std::vector<CUgraphNode> &out)
{
    std::size_t count = 0;
    if (EMUV_REAL(cuGraphGetNodes)(graph, nullptr, &count) != CUDA_SUCCESS)
        return false;
    out.resize(count);
    return count == 0 || EMUV_REAL(cuGraphGetNodes)(graph, out.data(),
                                                    &count) == CUDA_SUCCESS;
}

namespace {

template <typename Visit>
void each_child(CUgraph graph, Visit visit)
{
    std::vector<CUgraphNode> nodes;
    if (!ask_nodes(graph, nodes))
        return;
    for (const CUgraphNode node : nodes) {
        CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
        CUgraph child = nullptr;
        if (EMUV_REAL(cuGraphNodeGetType)(node, &type) == CUDA_SUCCESS &&
            type == CU_GRAPH_NODE_TYPE_GRAPH &&
            EMUV_REAL(cuGraphChildGraphNodeGetGraph)(node, &child) ==
                CUDA_SUCCESS)
            visit(node, child);
    }
}

} // namespace

void follow_clone(cut_nodes &nodes, CUgraph original, CUgraph clone)
{
    const auto in_clone = [clone](CUgraphNode node) {
        CUgraphNode there = nullptr;
        return EMUV_REAL(cuGraphNodeFindInClone)(&there, node, clone) ==
                       CUDA_SUCCESS
                   ? there
                   : nullptr;
    };
    for (auto &[node, what] : nodes.all_of(original)) {
        const CUgraphNode there = in_clone(node);
        what.graph = clone;
        for (auto &part : what.parts)
            part.node = in_clone(part.node);
        if (there != nullptr)
            nodes.remember(there, std::move(what));
    }
    each_child(original, [&](CUgraphNode node, CUgraph child) {
        CUgraph copied = nullptr;
        const CUgraphNode there = in_clone(node);
        if (there != nullptr && EMUV_REAL(cuGraphChildGraphNodeGetGraph)(
                                    there, &copied) == CUDA_SUCCESS)
            follow_clone(nodes, child, copied);
    });
}

void forget(cut_nodes &nodes, CUgraph graph)
{
    nodes.drop_all(graph);
    each_child(graph,
               [&nodes](CUgraphNode, CUgraph child) { forget(nodes, child); });
}

void follow_child(CUgraphNode node, CUgraph original)
{
    state *const ours = state_if_ours();
    CUgraph child = nullptr;
    if (ours != nullptr && ours->nodes.any() &&
        EMUV_REAL(cuGraphChildGraphNodeGetGraph)(node, &child) ==
            CUDA_SUCCESS &&
        child != original)
        follow_clone(ours->nodes, original, child);
}

} // namespace emuv::cuda
