// SPDX-License-Identifier: GPL-2.0-or-later
// Graphs: work written down, by hand or by capturing streams, to be done many
// times.
#pragma once

#include "address.hpp"
#include "stream.hpp"

namespace sim {

struct graph;

struct node
{
    graph *owner = nullptr;
    operation op;
    std::vector<node *> after;
    const node *original = nullptr; // only a key, of a clone's
};

struct graph
{
    std::vector<std::unique_ptr<node>> nodes; // in the order of making
    bool contains(const node *which) const;
};

// Memory of an allocation node: its address is fixed when the node is made,
// its frames are taken while an executable graph lives.
struct graph_memory
{
    context *owner = nullptr;
    std::uintptr_t base = 0;
    std::size_t bytes = 0;
    unsigned users = 0;
    std::shared_ptr<physical> memory;

    ~graph_memory();
    bool take();
    void drop();
};

struct graph_exec
{
    struct step
    {
        node *from; // only a key: the graph may be gone
        operation op;
        bool enabled = true;
    };
    context *owner = nullptr;
    unsigned long long flags = 0;
    std::vector<step> steps; // in an order that dependencies allow
    // For updates: by step, the steps it comes after.
    std::vector<std::vector<std::size_t>> after;
    mark last; // of its newest launch: it never runs beside itself

    ~graph_exec();
    step *find(const node *which);
};

struct capture
{
    std::shared_ptr<graph> into;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::uint64_t thread = 0;
    std::uint64_t id = 0;
    bool broken = false;
    bool ended = false;
    stream *origin = nullptr;
    std::vector<std::weak_ptr<stream>> streams;
};

// Null when a dependency is not of this graph.
node *add_node(graph &to, operation op, const std::vector<node *> &after);
// The allocation node of a capture or of cuGraphAddMemAllocNode.
CUresult make_memory(context &owner, std::size_t bytes, operation &out);
// A copy, and copies of the graphs in it, which are found from then on.
std::shared_ptr<graph> clone(const graph &of);
// The graph of a node that is one; or null.
graph *child_of(const operation &op);
// Nodes and their dependencies, as an executable graph. A graph in it is its
// steps, and one that does nothing behind them. Out of memory when an
// allocation node finds no VRAM.
CUresult instantiate(context &owner, const graph &from,
                     std::shared_ptr<graph_exec> &out);

std::uint64_t this_thread();
CUstreamCaptureMode &thread_capture_mode();

} // namespace sim
