// SPDX-License-Identifier: LGPL-2.1-or-later
// Executable graphs that allocate memory by their own nodes.
#include "account/graph_memory.hpp"

#include "base/size.hpp"

namespace emuv::cuda {

std::vector<graphs::need> graphs::needs_of(CUgraph graph) const
{
    std::vector<need> needs;
    std::size_t count = 0;
    if (calls_.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS)
        return needs;
    std::vector<CUgraphNode> nodes(count);
    if (count == 0 ||
        calls_.cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS)
        return needs;
    nodes.resize(count);
    const auto add = [&needs](const need &more) {
        for (need &each : needs)
            if (each.device == more.device) {
                each.bytes += more.bytes;
                return;
            }
        needs.push_back(more);
    };
    for (const CUgraphNode node : nodes) {
        CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
        CUDA_MEM_ALLOC_NODE_PARAMS wanted;
        CUgraph child = nullptr;
        if (calls_.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
            continue;
        if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
            calls_.cuGraphMemAllocNodeGetParams(node, &wanted) == CUDA_SUCCESS)
            add({wanted.poolProps.location.id,
                 round_up(wanted.bytesize, chunk_bytes)});
        else if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
                 calls_.cuGraphChildGraphNodeGetGraph(node, &child) ==
                     CUDA_SUCCESS)
            for (const need &each : needs_of(child))
                add(each);
    }
    return needs;
}

std::vector<graphs::need> graphs::needs_of(CUgraphExec which)
{
    const std::lock_guard guard(lock_);
    const auto found = needs_.find(which);
    return found == needs_.end() ? std::vector<need>() : found->second;
}

void graphs::remember(CUgraphExec which, std::vector<need> needs)
{
    const std::lock_guard guard(lock_);
    needs_[which] = std::move(needs);
    any_.store(true, std::memory_order_release);
}

std::vector<graphs::need> graphs::forget(CUgraphExec which)
{
    const std::lock_guard guard(lock_);
    const auto found = needs_.extract(which);
    return found.empty() ? std::vector<need>() : std::move(found.mapped());
}

bool graphs::begin(const std::vector<need> &needs)
{
    for (std::size_t i = 0; i < needs.size(); i++) {
        const pools::source from{needs[i].device, nullptr};
        if (!taken_.begin(from, needs[i].bytes) &&
            !(taken_.trim(from.device) && taken_.begin(from, needs[i].bytes))) {
            end(needs, i);
            return false;
        }
    }
    return true;
}

void graphs::end(const std::vector<need> &needs, std::size_t count)
{
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < count; i++)
        taken_.end({needs[i].device, nullptr}, needs[i].bytes, true, number);
}

} // namespace emuv::cuda
