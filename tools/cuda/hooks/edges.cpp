// SPDX-License-Identifier: LGPL-2.1-or-later
// Edges of graphs: one to a node of several parts leads to each of them.
#include "hooks/session.hpp"

#include <vector>

using namespace emuv::cuda;

namespace {

// An edge to a node of several parts is one to each of them.
// @param call  adds, or removes, edges: their ends, the numbers of the edges
//   they stand for, and how many
template <typename Call>
CUresult change_edges(const CUgraphNode *from, const CUgraphNode *to,
                      std::size_t count, CUresult real, Call call)
{
    state *const ours = state_if_ours();
    if (ours == nullptr || real != CUDA_SUCCESS || from == nullptr ||
        to == nullptr || !ours->nodes.any())
        return real;
    std::vector<CUgraphNode> more_from;
    std::vector<CUgraphNode> more_to;
    std::vector<std::size_t> like;
    for (std::size_t i = 0; i < count; i++)
        if (const auto found = ours->nodes.find(to[i]))
            for (const auto &part : found->parts)
                if (part.node != to[i]) {
                    more_from.push_back(from[i]);
                    more_to.push_back(part.node);
                    like.push_back(i);
                }
    return like.empty() ? real : call(more_from, more_to, like);
}

std::vector<CUgraphEdgeData> pick(const CUgraphEdgeData *data,
                                  const std::vector<std::size_t> &like)
{
    std::vector<CUgraphEdgeData> picked;
    for (const std::size_t i : like)
        if (data != nullptr)
            picked.push_back(data[i]);
    return picked;
}

} // namespace

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from,
                                const CUgraphNode *to, size_t count)
{
    return change_edges(
        from, to, count,
        EMUV_REAL(cuGraphAddDependencies)(graph, from, to, count),
        [&](const auto &more_from, const auto &more_to, const auto &like) {
            return EMUV_REAL(cuGraphAddDependencies)(
                graph, more_from.data(), more_to.data(), like.size());
        });
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from,
                                   const CUgraphNode *to,
                                   const CUgraphEdgeData *data, size_t count)
{
    return change_edges(
        from, to, count,
        EMUV_REAL(cuGraphAddDependencies_v2)(graph, from, to, data, count),
        [&](const auto &more_from, const auto &more_to, const auto &like) {
            const auto picked = pick(data, like);
            return EMUV_REAL(cuGraphAddDependencies_v2)(
                graph, more_from.data(), more_to.data(),
                data != nullptr ? picked.data() : nullptr, like.size());
        });
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from,
                                   const CUgraphNode *to, size_t count)
{
    return change_edges(
        from, to, count,
        EMUV_REAL(cuGraphRemoveDependencies)(graph, from, to, count),
        [&](const auto &more_from, const auto &more_to, const auto &like) {
            return EMUV_REAL(cuGraphRemoveDependencies)(
                graph, more_from.data(), more_to.data(), like.size());
        });
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from,
                                      const CUgraphNode *to,
                                      const CUgraphEdgeData *data, size_t count)
{
    return change_edges(
        from, to, count,
        EMUV_REAL(cuGraphRemoveDependencies_v2)(graph, from, to, data, count),
        [&](const auto &more_from, const auto &more_to, const auto &like) {
            const auto picked = pick(data, like);
            return EMUV_REAL(cuGraphRemoveDependencies_v2)(
                graph, more_from.data(), more_to.data(),
                data != nullptr ? picked.data() : nullptr, like.size());
        });
}
