// SPDX-License-Identifier: LGPL-2.1-or-later
// Nodes of graphs that copy or fill, and that are several where an allocation
// has a seam.
#include "hooks/cut_nodes.hpp"

namespace emuv::cuda {

void cut_nodes::remember(CUgraphNode node, cut_node what)
{
    const std::lock_guard guard(lock_);
    nodes_.insert_or_assign(node, std::move(what));
    any_.store(true, std::memory_order_release);
}

std::optional<cut_node> cut_nodes::find(CUgraphNode node)
{
    const std::lock_guard guard(lock_);
    const auto found = nodes_.find(node);
    return found == nodes_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<cut_node> cut_nodes::take(CUgraphNode node)
{
    const std::lock_guard guard(lock_);
    auto found = nodes_.extract(node);
    return found.empty() ? std::nullopt
                         : std::optional(std::move(found.mapped()));
}

std::vector<std::pair<CUgraphNode, cut_node>> cut_nodes::all_of(CUgraph graph)
{
    const std::lock_guard guard(lock_);
    std::vector<std::pair<CUgraphNode, cut_node>> found;
    for (const auto &each : nodes_)
        if (each.second.graph == graph)
            found.emplace_back(each);
    return found;
}

void cut_nodes::drop_all(CUgraph graph)
{
    const std::lock_guard guard(lock_);
    std::erase_if(nodes_, [graph](const auto &each) {
        return each.second.graph == graph;
    });
}

cut_nodes::use cut_nodes::use_of(CUgraphExec exec, CUgraphNode node)
{
    const std::lock_guard guard(lock_);
    const auto found = uses_.find(exec);
    if (found == uses_.end())
        return {};
    const auto how = found->second.find(node);
    return how == found->second.end() ? use() : how->second;
}

void cut_nodes::set_use(CUgraphExec exec, CUgraphNode node, use how)
{
    const std::lock_guard guard(lock_);
    uses_[exec].insert_or_assign(node, std::move(how));
}

std::map<CUgraphNode, cut_nodes::use> cut_nodes::take_uses(CUgraphExec exec)
{
    const std::lock_guard guard(lock_);
    auto found = uses_.extract(exec);
    return found.empty() ? std::map<CUgraphNode, use>()
                         : std::move(found.mapped());
}

} // namespace emuv::cuda
