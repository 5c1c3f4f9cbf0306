// SPDX-License-Identifier: LGPL-2.1-or-later
// Nodes of graphs that copy or fill across a seam of an allocation, and so are
// several.
#pragma once

#include "base/driver.hpp"

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace emuv::cuda {

/// The kinds of memory that a part of a copy goes between: a bit for each side,
/// set if that is in system RAM. The driver changes a node of an executable
/// graph only from one address to another of the same kind.
using memory_kinds = unsigned;
inline constexpr memory_kinds to_system_ram = 1;
inline constexpr memory_kinds from_system_ram = 2;

/// A copy or a fill that the program has added to a graph by hand. The program
/// holds the last of the parts as the node. That one comes after all the
/// others, which depend on all that the node depends on.
struct cut_node
{
    struct part
    {
        CUgraphNode node = nullptr;
        memory_kinds kinds = 0;
    };
    CUgraph graph = nullptr;
    CUcontext context = nullptr; ///< in which it runs
    /// The parameters that the program gave.
    std::variant<CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS> asked;
    std::vector<part> parts;

    /// True if it can be changed in an executable graph at all.
    bool one_row() const
    {
        if (const auto *copy = std::get_if<CUDA_MEMCPY3D>(&asked))
            return copy->Height <= 1 && copy->Depth <= 1;
        return std::get<CUDA_MEMSET_NODE_PARAMS>(asked).height <= 1;
    }
};

/// All of them, and what was changed of them in executable graphs. Every call
/// may come from any thread; none calls the driver.
class cut_nodes
{
public:
    /// True if there ever was one: most programs add none.
    bool any() const { return any_.load(std::memory_order_acquire); }
    void remember(CUgraphNode node, cut_node what);
    std::optional<cut_node> find(CUgraphNode node);
    /// Takes it out, as its node goes.
    std::optional<cut_node> take(CUgraphNode node);
    /// All of a graph's, by their nodes.
    std::vector<std::pair<CUgraphNode, cut_node>> all_of(CUgraph graph);
    /// Drops them, as the graph goes.
    void drop_all(CUgraph graph);

    /// The state of a node of several parts in one executable graph.
    struct use
    {
        bool enabled = true;
        std::vector<CUgraphNode> idle; ///< parts with nothing to do, disabled
    };
    use use_of(CUgraphExec exec, CUgraphNode node);
    void set_use(CUgraphExec exec, CUgraphNode node, use how);
    /// Forgets all changes since the graph was made executable.
    std::map<CUgraphNode, use> take_uses(CUgraphExec exec);

private:
    std::atomic<bool> any_{false};
    std::mutex lock_; // guards all below
    std::map<CUgraphNode, cut_node> nodes_;
    std::map<CUgraphExec, std::map<CUgraphNode, use>> uses_;
};

} // namespace emuv::cuda
