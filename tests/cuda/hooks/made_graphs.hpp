// SPDX-License-Identifier: GPL-2.0-or-later
// Graphs that the tests make, as the driver tells of them.
#pragma once

#include "hooks/fixture.hpp"

#include <cstring>
#include <map>
#include <utility>
#include <vector>

/// The driver knows graphs: their nodes, kinds, edges and parameters.
class MadeGraphs : public Hooks
{
protected:
    struct made_node
    {
        CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
        CUgraph child = nullptr;
        CUDA_MEMCPY3D copy{};
        CUDA_MEMSET_NODE_PARAMS fill{};
        CUDA_KERNEL_NODE_PARAMS kernel{};
    };
    struct made_graph
    {
        std::vector<CUgraphNode> nodes; // as they were made
        std::vector<std::pair<CUgraphNode, CUgraphNode>> edges;
    };

    MadeGraphs()
    {
        graphs.clear();
        nodes.clear();
        clones.clear();
        EMUV_ANSWER(cuGraphGetNodes, get_nodes);
        EMUV_ANSWER(cuGraphGetEdges_v2, get_edges);
        EMUV_ANSWER(cuGraphNodeGetType,
                    [](CUgraphNode of, CUgraphNodeType *type) {
                        *type = nodes[of].type;
                        return CUDA_SUCCESS;
                    });
        EMUV_ANSWER(cuGraphChildGraphNodeGetGraph,
                    [](CUgraphNode of, CUgraph *child) {
                        *child = nodes[of].child;
                        return CUDA_SUCCESS;
                    });
        EMUV_ANSWER(cuGraphMemcpyNodeGetParams,
                    [](CUgraphNode of, CUDA_MEMCPY3D *copy) {
                        *copy = nodes[of].copy;
                        return CUDA_SUCCESS;
                    });
        EMUV_ANSWER(cuGraphMemsetNodeGetParams,
                    [](CUgraphNode of, CUDA_MEMSET_NODE_PARAMS *fill) {
                        *fill = nodes[of].fill;
                        return CUDA_SUCCESS;
                    });
        EMUV_ANSWER(cuGraphKernelNodeGetParams_v2,
                    [](CUgraphNode of, CUDA_KERNEL_NODE_PARAMS *kernel) {
                        *kernel = nodes[of].kernel;
                        return CUDA_SUCCESS;
                    });
        EMUV_ANSWER(cuGraphKernelNodeGetAttribute,
                    [](CUgraphNode, CUlaunchAttributeID,
                       CUlaunchAttributeValue *value) {
                        *value = {};
                        return CUDA_SUCCESS;
                    });
        EMUV_ANSWER(cuGraphNodeFindInClone,
                    [](CUgraphNode *there, CUgraphNode of, CUgraph clone) {
                        const auto found = clones.find({of, clone});
                        if (found == clones.end())
                            return CUDA_ERROR_INVALID_VALUE;
                        *there = found->second;
                        return CUDA_SUCCESS;
                    });
    }

    static CUgraph graph(std::uintptr_t is) { return number<CUgraph>(is); }
    static CUgraphNode node(std::uintptr_t is)
    {
        return number<CUgraphNode>(is);
    }

    // Adds a node of a kind to a graph, behind another one or none.
    static made_node &add(CUgraph to, std::uintptr_t is, CUgraphNodeType type)
    {
        graphs[to].nodes.push_back(node(is));
        made_node &made = nodes[node(is)];
        made.type = type;
        return made;
    }
    static made_node &add_child(CUgraph to, std::uintptr_t is, CUgraph child)
    {
        made_node &made = add(to, is, CU_GRAPH_NODE_TYPE_GRAPH);
        made.child = child;
        graphs[child]; // it has no nodes so far
        return made;
    }
    // A fill of a byte at an address.
    static made_node &add_fill(CUgraph to, std::uintptr_t is, CUdeviceptr at)
    {
        made_node &made = add(to, is, CU_GRAPH_NODE_TYPE_MEMSET);
        made.fill.dst = at;
        made.fill.elementSize = 1;
        made.fill.width = 1;
        made.fill.height = 1;
        return made;
    }
    static void add_edge(CUgraph to, std::uintptr_t from, std::uintptr_t then)
    {
        graphs[to].edges.emplace_back(node(from), node(then));
    }

    static inline std::map<CUgraph, made_graph> graphs;
    static inline std::map<CUgraphNode, made_node> nodes;
    // A node of a graph, in a clone of that.
    static inline std::map<std::pair<CUgraphNode, CUgraph>, CUgraphNode> clones;

private:
    static CUresult get_nodes(CUgraph of, CUgraphNode *out, std::size_t *count)
    {
        const auto found = graphs.find(of);
        if (found == graphs.end())
            return CUDA_ERROR_INVALID_VALUE;
        *count = found->second.nodes.size();
        for (std::size_t i = 0; out != nullptr && i < *count; i++)
            out[i] = found->second.nodes[i];
        return CUDA_SUCCESS;
    }
    static CUresult get_edges(CUgraph of, CUgraphNode *from, CUgraphNode *to,
                              CUgraphEdgeData *data, std::size_t *count)
    {
        const auto found = graphs.find(of);
        if (found == graphs.end())
            return CUDA_ERROR_INVALID_VALUE;
        *count = found->second.edges.size();
        for (std::size_t i = 0; from != nullptr && i < *count; i++) {
            from[i] = found->second.edges[i].first;
            to[i] = found->second.edges[i].second;
            data[i] = {};
        }
        return CUDA_SUCCESS;
    }
};
