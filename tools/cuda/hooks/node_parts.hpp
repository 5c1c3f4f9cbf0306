// SPDX-License-Identifier: LGPL-2.1-or-later
// Copies and fills in graphs, as however many nodes the seams of an allocation
// take: cut into parts, added, changed and shown as one.
#pragma once

#include "hooks/cut_nodes.hpp"
#include "hooks/parts.hpp"
#include "hooks/session.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace emuv::cuda {

/// A part that crosses no seam, and the kinds of memory that it lies between.
template <typename Params>
struct node_part
{
    Params params;
    memory_kinds kinds = 0;
};

/// True if one side of a copy begins in system RAM.
bool in_system_ram(memory &table, const described_side &side);

/// Cuts a copy, or a fill, at the seams of the allocations that it names.
std::vector<node_part<CUDA_MEMCPY3D>> cut(memory &table,
                                          const CUDA_MEMCPY3D &asked);

std::vector<node_part<CUDA_MEMSET_NODE_PARAMS>>
cut(memory &table, const CUDA_MEMSET_NODE_PARAMS &asked);

/// Fixes the memory that a node names: a graph holds addresses as they are.
void stay(const state &ours, const CUDA_MEMCPY3D &asked);

void stay(const state &ours, const CUDA_MEMSET_NODE_PARAMS &asked);

/// The context itself, or the current one for null.
CUcontext or_current(const state &ours, CUcontext context);

/// Says once that a node cannot come to cross a seam, and answers so.
CUresult refuse();

/// The nodes before @p node, other parts of the same node left out. The driver
/// refuses if an edge has data.
CUresult before_node(CUgraphNode node, const cut_node &what,
                     std::vector<CUgraphNode> &all);

/// Adds one part of a node to its graph.
CUresult add_one(CUgraphNode *node, const cut_node &what,
                 const std::vector<CUgraphNode> &after,
                 const CUDA_MEMCPY3D &copy);

CUresult add_one(CUgraphNode *node, const cut_node &what,
                 const std::vector<CUgraphNode> &after,
                 const CUDA_MEMSET_NODE_PARAMS &fill);

/// How many rows are copied, or filled.
std::size_t rows_of(const CUDA_MEMCPY3D &copy);

std::size_t rows_of(const CUDA_MEMSET_NODE_PARAMS &fill);

// Adds a copy or a fill, as however many nodes it takes.
// @param add  makes one: out, the nodes before it, with the data of these edges
//   or null, and its part
template <typename Params, typename Add>
CUresult add_node(CUgraphNode *node, CUgraph graph, CUcontext context,
                  const CUgraphNode *after, const CUgraphEdgeData *edges,
                  std::size_t count, const Params *asked, Add add)
{
    state *const ours = state_if_ours();
    if (ours == nullptr || node == nullptr || asked == nullptr ||
        (count > 0 && after == nullptr))
        return add(node, after, edges, count, asked);
    stay(*ours, *asked);
    const auto parts = cut(*ours->table, *asked);
    cut_node made;
    made.graph = graph;
    made.context = or_current(*ours, context);
    made.asked = *asked;
    std::vector<CUgraphNode> before(after, after + count);
    std::vector<CUgraphEdgeData> data;
    if (edges != nullptr)
        data.assign(edges, edges + count);
    for (const auto &each : parts) {
        const bool last = &each == &parts.back();
        CUgraphNode one = nullptr;
        const CUresult result =
            last ? add(&one, before.data(), edges ? data.data() : nullptr,
                       before.size(), &each.params)
                 : add(&one, after, edges, count, &each.params);
        if (result != CUDA_SUCCESS) {
            for (const auto &part : made.parts)
                EMUV_REAL(cuGraphDestroyNode)(part.node);
            return result;
        }
        made.parts.push_back({one, each.kinds});
        before.push_back(one);
        data.push_back({});
    }
    *node = made.parts.back().node;
    ours->nodes.remember(*node, std::move(made));
    return CUDA_SUCCESS;
}

// Makes a node do something else, with more or fewer parts if need be.
// @param set  does so to one of the driver's
template <typename Params, typename Set>
CUresult set_node(CUgraphNode node, const Params *asked, Set set)
{
    state *const ours = state_if_ours();
    if (ours == nullptr || asked == nullptr)
        return set(node, asked);
    stay(*ours, *asked);
    const auto wanted = cut(*ours->table, *asked);
    auto found = ours->nodes.find(node);
    // A captured one: the driver does not tell its graph.
    if (!found || !std::holds_alternative<Params>(found->asked))
        return wanted.size() == 1 ? set(node, &wanted.front().params)
                                  : refuse();
    cut_node next = *found;
    next.asked = *asked;
    auto &parts = next.parts;
    const std::size_t had = parts.size();
    std::vector<CUgraphNode> after;
    if (had < wanted.size())
        if (const CUresult result = before_node(node, *found, after);
            result != CUDA_SUCCESS)
            return result;
    while (parts.size() < wanted.size()) {
        const auto &each = wanted[parts.size() - 1];
        CUgraphNode one = nullptr;
        CUresult result = add_one(&one, *found, after, each.params);
        if (result == CUDA_SUCCESS) {
            parts.insert(parts.end() - 1, {one, each.kinds});
            result =
                EMUV_REAL(cuGraphAddDependencies)(found->graph, &one, &node, 1);
        }
        if (result != CUDA_SUCCESS) {
            for (std::size_t i = had - 1; i + 1 < parts.size(); i++)
                EMUV_REAL(cuGraphDestroyNode)(parts[i].node);
            return result;
        }
    }
    while (parts.size() > wanted.size()) {
        EMUV_REAL(cuGraphDestroyNode)(parts[parts.size() - 2].node);
        parts.erase(parts.end() - 2);
    }
    CUresult result = CUDA_SUCCESS;
    for (std::size_t i = 0; i < parts.size() && result == CUDA_SUCCESS; i++) {
        parts[i].kinds = wanted[i].kinds;
        result = set(parts[i].node, &wanted[i].params);
    }
    ours->nodes.remember(node, std::move(next));
    return result;
}

// The same in an executable graph, whose parts are given. A part that has
// nothing to do any more is disabled. Each of the others goes on between the
// kinds of memory it was made for.
template <typename Params, typename Set>
CUresult set_executable(CUgraphExec exec, CUgraphNode node, const Params *asked,
                        Set set)
{
    state *const ours = state_if_ours();
    if (ours == nullptr || asked == nullptr)
        return set(node, asked);
    stay(*ours, *asked);
    const auto parts = cut(*ours->table, *asked);
    const auto found = ours->nodes.find(node);
    if (!found || found->parts.size() == 1 ||
        !std::holds_alternative<Params>(found->asked))
        return parts.size() == 1 ? set(node, &parts.front().params) : refuse();
    // The driver changes a node of one row only into one of one row. A part may
    // have one row though the whole has more.
    if (!found->one_row() || rows_of(*asked) != 1)
        return CUDA_ERROR_INVALID_VALUE;
    std::vector<const Params *> next(found->parts.size());
    for (const auto &each : parts) {
        const auto part = std::find_if(
            found->parts.begin(), found->parts.end(),
            [&each](const auto &one) { return one.kinds == each.kinds; });
        if (part == found->parts.end())
            return refuse();
        next[static_cast<std::size_t>(part - found->parts.begin())] =
            &each.params;
    }
    const auto was = ours->nodes.use_of(exec, node);
    auto now = was;
    now.idle.clear();
    CUresult result = CUDA_SUCCESS;
    const auto enable = [&](bool on) {
        for (std::size_t i = 0; i < next.size() && was.enabled; i++) {
            const CUgraphNode part = found->parts[i].node;
            if ((next[i] != nullptr) == on && result == CUDA_SUCCESS)
                result = EMUV_REAL(cuGraphNodeSetEnabled)(exec, part, on);
        }
    };
    for (std::size_t i = 0; i < next.size(); i++)
        if (next[i] == nullptr)
            now.idle.push_back(found->parts[i].node);
    enable(false);
    for (std::size_t i = 0; i < next.size() && result == CUDA_SUCCESS; i++)
        if (next[i] != nullptr)
            result = set(found->parts[i].node, next[i]);
    if (!was.idle.empty() || result != CUDA_SUCCESS)
        enable(true);
    ours->nodes.set_use(exec, node, std::move(now));
    return result;
}

template <typename Params>
CUresult show(CUgraphNode node, Params *out, CUresult real)
{
    state *const ours = state_if_ours();
    if (ours == nullptr || real != CUDA_SUCCESS)
        return real;
    if (const auto found = ours->nodes.find(node))
        if (const auto *asked = std::get_if<Params>(&found->asked))
            *out = *asked;
    return real;
}

} // namespace emuv::cuda
