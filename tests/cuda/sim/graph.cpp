// SPDX-License-Identifier: GPL-2.0-or-later
// Graphs built by hand, and made executable. Launching and capturing are in
// per_stream/graph.cpp.
#include "graph.hpp"

#include "copy.hpp"
#include "module.hpp"
#include "state.hpp"

#include <algorithm>

#include <sys/mman.h>

namespace sim {

bool graph::contains(const node *which) const
{
    return std::any_of(nodes.begin(), nodes.end(),
                       [&](const auto &n) { return n.get() == which; });
}

graph_memory::~graph_memory()
{
    if (base)
        the().space.unreserve(base);
}

bool graph_memory::take()
{
    if (users++ != 0)
        return true;
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = owner->dev.ordinal;
    const std::size_t whole = round_up(bytes, frame_bytes);
    memory = physical::create(owner->dev.vram, whole, prop);
    if (!memory || !memory->map(base, whole, PROT_READ | PROT_WRITE)) {
        memory.reset();
        --users;
        return false;
    }
    owner->dev.graph_bytes += whole;
    mapping m;
    m.base = base;
    m.bytes = bytes;
    m.what = kind::pooled;
    m.owner = owner;
    m.device = owner->dev.ordinal;
    m.reads = m.writes = ~host_bit;
    the().space.add(m);
    return true;
}

void graph_memory::drop()
{
    if (--users != 0)
        return;
    the().space.remove(base);
    the().space.clear(base, round_up(bytes, frame_bytes));
    memory.reset();
    owner->dev.graph_bytes -= round_up(bytes, frame_bytes);
}

namespace {

graph_memory *memory_of(const operation &op)
{
    return op.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC
               ? static_cast<graph_memory *>(op.params.get())
               : nullptr;
}

} // namespace

graph_exec::~graph_exec()
{
    for (const step &s : steps)
        if (graph_memory *memory = memory_of(s.op))
            memory->drop();
}

graph_exec::step *graph_exec::find(const node *which)
{
    for (step &s : steps)
        if (s.from == which)
            return &s;
    return nullptr;
}

node *add_node(graph &to, operation op, const std::vector<node *> &after)
{
    for (const node *one : after)
        if (!to.contains(one))
            return nullptr;
    auto made = std::make_unique<node>();
    made->owner = &to;
    made->op = std::move(op);
    made->after = after;
    to.nodes.push_back(std::move(made));
    return to.nodes.back().get();
}

CUresult make_memory(context &owner, std::size_t bytes, operation &out)
{
    if (bytes > address_space::arena_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    auto memory = std::make_shared<graph_memory>();
    memory->owner = &owner;
    memory->bytes = bytes;
    memory->base = the().space.reserve(round_up(bytes, frame_bytes),
                                       frame_bytes, 0, false);
    if (!memory->base)
        return CUDA_ERROR_OUT_OF_MEMORY;
    out.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    out.address = memory->base;
    out.bytes = bytes;
    out.params = memory;
    out.run = [] {};
    return CUDA_SUCCESS;
}

graph *child_of(const operation &op)
{
    return op.type == CU_GRAPH_NODE_TYPE_GRAPH
               ? static_cast<graph *>(op.params.get())
               : nullptr;
}

namespace {

operation child_operation(const graph &child)
{
    operation op;
    op.type = CU_GRAPH_NODE_TYPE_GRAPH;
    op.run = [] {};
    auto copy = clone(child);
    the().graphs.add<CUgraph>(copy);
    op.params = std::move(copy);
    return op;
}

// It goes, and the graphs in it.
void forget(const operation &op)
{
    if (const graph *const child = child_of(op)) {
        for (const auto &one : child->nodes)
            forget(one->op);
        the().graphs.remove(child);
    }
}

// @param before  the steps that all of it comes after
// @param ends  out: the steps after which all of it is done
CUresult append(graph_exec &out, const graph &from,
                const std::vector<std::size_t> &before,
                std::vector<std::size_t> &ends)
{
    std::map<const node *, std::size_t> number;
    while (number.size() < from.nodes.size()) {
        bool moved = false;
        for (const auto &one : from.nodes) {
            if (number.contains(one.get()) ||
                !std::all_of(one->after.begin(), one->after.end(),
                             [&](node *n) { return number.contains(n); }))
                continue;
            if (graph_memory *memory = memory_of(one->op))
                if (!memory->take())
                    return CUDA_ERROR_OUT_OF_MEMORY;
            std::vector<std::size_t> after = before;
            for (const node *n : one->after)
                after.push_back(number[n]);
            if (const graph *child = child_of(one->op)) {
                const std::vector<std::size_t> first = after;
                if (CUresult r = append(out, *child, first, after))
                    return r;
            }
            number[one.get()] = out.steps.size();
            ends.push_back(out.steps.size());
            out.steps.push_back({one.get(), one->op});
            out.after.push_back(std::move(after));
            moved = true;
        }
        if (!moved) // a circle
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

} // namespace

std::shared_ptr<graph> clone(const graph &of)
{
    auto made = std::make_shared<graph>();
    std::map<const node *, node *> clones;
    for (const auto &one : of.nodes) {
        const graph *const child = child_of(one->op);
        node *copy =
            add_node(*made, child ? child_operation(*child) : one->op, {});
        copy->original = one.get();
        clones[one.get()] = copy;
    }
    for (const auto &one : of.nodes)
        for (const node *before : one->after)
            clones[one.get()]->after.push_back(clones[before]);
    return made;
}

CUresult instantiate(context &owner, const graph &from,
                     std::shared_ptr<graph_exec> &out)
{
    out = std::make_shared<graph_exec>();
    out->owner = &owner;
    std::vector<std::size_t> ends;
    return append(*out, from, {}, ends);
}

namespace {

// Nodes are looked for in all graphs: they belong to the graph, not to us.
node *find_node(CUgraphNode handle)
{
    const auto *which = reinterpret_cast<const node *>(handle);
    for (auto &[key, one] : the().graphs)
        for (const auto &n : one->nodes)
            if (n.get() == which)
                return n.get();
    return nullptr;
}

CUgraphNode handle(const node *which)
{
    return reinterpret_cast<CUgraphNode>(const_cast<node *>(which));
}

CUresult add(CUgraphNode *out, CUgraph to, const CUgraphNode *dependencies,
             std::size_t count, operation op)
{
    auto found = the().graphs.find(to);
    if (!out || !found || (count && !dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    std::vector<node *> after;
    for (std::size_t i = 0; i < count; ++i)
        after.push_back(reinterpret_cast<node *>(dependencies[i]));
    node *made = add_node(*found, std::move(op), after);
    if (!made)
        return CUDA_ERROR_INVALID_VALUE;
    *out = handle(made);
    return CUDA_SUCCESS;
}

// The usual answer with a list: its length, or as much of it as has room.
template <typename List>
CUresult give(const List &list, CUgraphNode *out, std::size_t *count)
{
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    if (out)
        for (std::size_t i = 0; i < *count; ++i)
            out[i] = i < list.size() ? handle(list[i]) : nullptr;
    *count = out ? std::min(*count, list.size()) : list.size();
    return CUDA_SUCCESS;
}

operation host_operation(const CUDA_HOST_NODE_PARAMS &params)
{
    operation op;
    op.type = CU_GRAPH_NODE_TYPE_HOST;
    op.params = std::make_shared<CUDA_HOST_NODE_PARAMS>(params);
    op.run = [params] { params.fn(params.userData); };
    return op;
}

CUresult replace(CUgraphExec exec, CUgraphNode which, CUgraphNodeType type,
                 operation op)
{
    auto found = the().execs.find(exec);
    graph_exec::step *step =
        found ? found->find(reinterpret_cast<const node *>(which)) : nullptr;
    if (!step || step->op.type != type)
        return CUDA_ERROR_INVALID_VALUE;
    // As documented: copies and fills of one row, between the same kinds of
    // memory.
    if ((type == CU_GRAPH_NODE_TYPE_MEMCPY ||
         type == CU_GRAPH_NODE_TYPE_MEMSET) &&
        (!op.one_row || !step->op.one_row || op.dst_kind != step->op.dst_kind ||
         op.src_kind != step->op.src_kind))
        return CUDA_ERROR_INVALID_VALUE;
    step->op = std::move(op);
    return CUDA_SUCCESS;
}

CUresult operation_of(context &where, const CUDA_MEMCPY3D *params,
                      operation &op)
{
    block_copy what;
    bool now = false;
    if (CUresult r = from_api(params, what))
        return r;
    return make(where, what, false, op, now);
}

CUresult operation_of(context &where, const CUDA_MEMSET_NODE_PARAMS *params,
                      operation &op)
{
    fill what;
    if (CUresult r = from_api(params, what))
        return r;
    return make(where, what, op);
}

// Of a node of any kind: of those that are simulated.
CUresult operation_of(context &where, const CUgraphNodeParams *params,
                      operation &op)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        return operation_of(where, &params->memcpy.copyParams, op);
    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        const auto &kernel = params->kernel;
        const CUDA_KERNEL_NODE_PARAMS as_v2 = {
            kernel.func,      kernel.gridDimX,       kernel.gridDimY,
            kernel.gridDimZ,  kernel.blockDimX,      kernel.blockDimY,
            kernel.blockDimZ, kernel.sharedMemBytes, kernel.kernelParams,
            kernel.extra,     kernel.kern,           kernel.ctx};
        return from_api(where, &as_v2, op);
    }
    if (params->type != CU_GRAPH_NODE_TYPE_MEMSET)
        return CUDA_ERROR_NOT_SUPPORTED;
    const auto &fill = params->memset;
    const CUDA_MEMSET_NODE_PARAMS as_v1 = {fill.dst,   fill.pitch,
                                           fill.value, fill.elementSize,
                                           fill.width, fill.height};
    return operation_of(where, &as_v1, op);
}

// Makes a node of a kind do something else.
template <typename Params>
CUresult change(context &where, CUgraphNode which, const Params *params)
{
    node *found = find_node(which);
    operation op;
    if (CUresult r = operation_of(where, params, op))
        return r;
    if (!found || found->op.type != op.type)
        return CUDA_ERROR_INVALID_VALUE;
    found->op = std::move(op);
    return CUDA_SUCCESS;
}

} // namespace
} // namespace sim

using namespace sim;

CUresult cuGraphCreate(CUgraph *phGraph, unsigned flags)
{
    SIM_ENTER(init);
    if (!phGraph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *phGraph = the().graphs.add<CUgraph>(std::make_shared<graph>());
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph hGraph)
{
    SIM_ENTER(init);
    const auto found = the().graphs.find(hGraph);
    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    for (const auto &one : found->nodes)
        forget(one->op);
    the().graphs.remove(hGraph);
    return CUDA_SUCCESS;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                             const CUgraphNode *dependencies,
                             size_t numDependencies)
{
    SIM_ENTER(context);
    operation op;
    op.run = [] {};
    return add(phGraphNode, hGraph, dependencies, numDependencies, op);
}

CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies,
                              size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(context);
    operation op;
    if (CUresult r = from_api(*entered.current, nodeParams, op))
        return r;
    return add(phGraphNode, hGraph, dependencies, numDependencies, op);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode,
                                    CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(context);
    node *found = find_node(hNode);
    if (!nodeParams || !found || found->op.type != CU_GRAPH_NODE_TYPE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    auto *request = static_cast<kernel_request *>(found->op.params.get());
    *nodeParams = {};
    nodeParams->func = reinterpret_cast<CUfunction>(request->what.get());
    nodeParams->gridDimX = request->shape.grid[0];
    nodeParams->gridDimY = request->shape.grid[1];
    nodeParams->gridDimZ = request->shape.grid[2];
    nodeParams->blockDimX = request->shape.block[0];
    nodeParams->blockDimY = request->shape.block[1];
    nodeParams->blockDimZ = request->shape.block[2];
    nodeParams->sharedMemBytes = request->shape.shared_bytes;
    nodeParams->kernelParams = request->pointers.data();
    return CUDA_SUCCESS;
}

// No node has any but the default.
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode,
                                       CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue *value_out)
{
    SIM_ENTER(context);
    node *found = find_node(hNode);
    if (!value_out || !found || found->op.type != CU_GRAPH_NODE_TYPE_KERNEL ||
        attr == CU_LAUNCH_ATTRIBUTE_IGNORE)
        return CUDA_ERROR_INVALID_VALUE;
    *value_out = {};
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                    const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(context);
    node *found = find_node(hNode);
    if (!found || found->op.type != CU_GRAPH_NODE_TYPE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    operation op;
    if (CUresult r = from_api(*entered.current, nodeParams, op))
        return r;
    found->op = op;
    return CUDA_SUCCESS;
}

CUresult
cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                               const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(context);
    operation op;
    if (CUresult r = from_api(*entered.current, nodeParams, op))
        return r;
    return replace(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_KERNEL, op);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies,
                              size_t numDependencies,
                              const CUDA_MEMCPY3D *copyParams, CUcontext)
{
    SIM_ENTER(context);
    operation op;
    if (CUresult r = operation_of(*entered.current, copyParams, op))
        return r;
    return add(phGraphNode, hGraph, dependencies, numDependencies, op);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode,
                                    CUDA_MEMCPY3D *nodeParams)
{
    SIM_ENTER(context);
    node *found = find_node(hNode);
    if (!nodeParams || !found || found->op.type != CU_GRAPH_NODE_TYPE_MEMCPY ||
        !found->op.params)
        return CUDA_ERROR_INVALID_VALUE;
    *nodeParams = *static_cast<CUDA_MEMCPY3D *>(found->op.params.get());
    return CUDA_SUCCESS;
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec,
                                        CUgraphNode hNode,
                                        const CUDA_MEMCPY3D *copyParams,
                                        CUcontext)
{
    SIM_ENTER(context);
    operation op;
    if (CUresult r = operation_of(*entered.current, copyParams, op))
        return r;
    return replace(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMCPY, op);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies,
                              size_t numDependencies,
                              const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                              CUcontext)
{
    SIM_ENTER(context);
    operation op;
    if (CUresult r = operation_of(*entered.current, memsetParams, op))
        return r;
    return add(phGraphNode, hGraph, dependencies, numDependencies, op);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode,
                                    CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(context);
    node *found = find_node(hNode);
    if (!nodeParams || !found || found->op.type != CU_GRAPH_NODE_TYPE_MEMSET ||
        !found->op.params)
        return CUDA_ERROR_INVALID_VALUE;
    *nodeParams =
        *static_cast<CUDA_MEMSET_NODE_PARAMS *>(found->op.params.get());
    return CUDA_SUCCESS;
}

CUresult
cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                               const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                               CUcontext)
{
    SIM_ENTER(context);
    operation op;
    if (CUresult r = operation_of(*entered.current, memsetParams, op))
        return r;
    return replace(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMSET, op);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode,
                                    const CUDA_MEMCPY3D *nodeParams)
{
    SIM_ENTER(context);
    return change(*entered.current, hNode, nodeParams);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode,
                                    const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(context);
    return change(*entered.current, hNode, nodeParams);
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                        const CUgraphNode *dependencies,
                        const CUgraphEdgeData *, size_t numDependencies,
                        CUgraphNodeParams *nodeParams)
{
    SIM_ENTER(context);
    operation op;
    if (CUresult r = operation_of(*entered.current, nodeParams, op))
        return r;
    return add(phGraphNode, hGraph, dependencies, numDependencies, op);
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
    SIM_ENTER(context);
    return change(*entered.current, hNode, nodeParams);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                  CUgraphNodeParams *nodeParams)
{
    SIM_ENTER(context);
    operation op;
    if (CUresult r = operation_of(*entered.current, nodeParams, op))
        return r;
    return replace(hGraphExec, hNode, op.type, op);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                  const CUgraphNode *dependencies,
                                  size_t numDependencies, CUgraph childGraph)
{
    SIM_ENTER(init);
    auto child = the().graphs.find(childGraph);
    if (!child || !the().graphs.find(hGraph))
        return CUDA_ERROR_INVALID_VALUE;
    operation op = child_operation(*child);
    const CUresult r =
        add(phGraphNode, hGraph, dependencies, numDependencies, op);
    if (r != CUDA_SUCCESS)
        forget(op);
    return r;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
    SIM_ENTER(init);
    node *found = find_node(hNode);
    graph *child = found ? child_of(found->op) : nullptr;
    if (!phGraph || !child)
        return CUDA_ERROR_INVALID_VALUE;
    *phGraph = reinterpret_cast<CUgraph>(child);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec,
                                            CUgraphNode hNode,
                                            CUgraph childGraph)
{
    SIM_ENTER(context);
    auto exec = the().execs.find(hGraphExec);
    auto child = the().graphs.find(childGraph);
    graph_exec::step *const last =
        exec ? exec->find(reinterpret_cast<const node *>(hNode)) : nullptr;
    if (!child || !last || !child_of(last->op))
        return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<graph_exec> other;
    if (CUresult r = instantiate(*entered.current, *child, other))
        return r;
    // Those before it are its own, one for each node.
    const auto count = other->steps.size();
    graph_exec::step *const first = last - count;
    if (static_cast<std::size_t>(last - exec->steps.data()) < count)
        return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < count; ++i)
        if (first[i].op.type != other->steps[i].op.type)
            return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < count; ++i)
        first[i].op = other->steps[i].op;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                            const CUgraphNode *dependencies,
                            size_t numDependencies,
                            const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(context);
    if (!nodeParams || !nodeParams->fn)
        return CUDA_ERROR_INVALID_VALUE;
    return add(phGraphNode, hGraph, dependencies, numDependencies,
               host_operation(*nodeParams));
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode,
                                  CUDA_HOST_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(context);
    node *found = find_node(hNode);
    if (!nodeParams || !found || found->op.type != CU_GRAPH_NODE_TYPE_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    *nodeParams = *static_cast<CUDA_HOST_NODE_PARAMS *>(found->op.params.get());
    return CUDA_SUCCESS;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                const CUgraphNode *dependencies,
                                size_t numDependencies,
                                CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(context);
    if (!nodeParams || nodeParams->bytesize == 0)
        return CUDA_ERROR_INVALID_VALUE;
    operation op;
    if (CUresult r = make_memory(*entered.current, nodeParams->bytesize, op))
        return r;
    nodeParams->dptr = op.address;
    return add(phGraphNode, hGraph, dependencies, numDependencies, op);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode,
                                      CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
    SIM_ENTER(context);
    node *found = find_node(hNode);
    if (!params_out || !found || found->op.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    *params_out = {};
    params_out->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params_out->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params_out->poolProps.location.id =
        memory_of(found->op)->owner->dev.ordinal;
    params_out->bytesize = found->op.bytes;
    params_out->dptr = found->op.address;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                               const CUgraphNode *dependencies,
                               size_t numDependencies, CUdeviceptr dptr)
{
    SIM_ENTER(context);
    if (!dptr)
        return CUDA_ERROR_INVALID_VALUE;
    operation op;
    op.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    op.address = dptr;
    op.run = [] {};
    return add(phGraphNode, hGraph, dependencies, numDependencies, op);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
    SIM_ENTER(context);
    node *found = find_node(hNode);
    if (!dptr_out || !found || found->op.type != CU_GRAPH_NODE_TYPE_MEM_FREE)
        return CUDA_ERROR_INVALID_VALUE;
    *dptr_out = found->op.address;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    SIM_ENTER(init);
    node *found = find_node(hNode);
    if (!type || !found)
        return CUDA_ERROR_INVALID_VALUE;
    *type = found->op.type;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    SIM_ENTER(init);
    auto found = the().graphs.find(hGraph);
    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    std::vector<const node *> all;
    for (const auto &one : found->nodes)
        all.push_back(one.get());
    return give(all, nodes, numNodes);
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes,
                             size_t *numRootNodes)
{
    SIM_ENTER(init);
    auto found = the().graphs.find(hGraph);
    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    std::vector<const node *> roots;
    for (const auto &one : found->nodes)
        if (one->after.empty())
            roots.push_back(one.get());
    return give(roots, rootNodes, numRootNodes);
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to,
                         CUgraphEdgeData *edgeData, size_t *numEdges)
{
    SIM_ENTER(init);
    auto found = the().graphs.find(hGraph);
    if (!found || !numEdges || !from != !to)
        return CUDA_ERROR_INVALID_VALUE;
    std::vector<const node *> before, after;
    for (const auto &one : found->nodes)
        for (const node *each : one->after) {
            before.push_back(each);
            after.push_back(one.get());
        }
    size_t count = *numEdges;
    CUresult r = give(before, from, numEdges);
    if (r == CUDA_SUCCESS && to)
        r = give(after, to, &count);
    if (r == CUDA_SUCCESS && from && edgeData)
        std::fill_n(edgeData, *numEdges, CUgraphEdgeData{});
    return r;
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode,
                                    CUgraphNode *dependencies,
                                    CUgraphEdgeData *edgeData,
                                    size_t *numDependencies)
{
    SIM_ENTER(init);
    node *found = find_node(hNode);
    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = give(found->after, dependencies, numDependencies);
    if (r == CUDA_SUCCESS && dependencies && edgeData)
        std::fill_n(edgeData, *numDependencies, CUgraphEdgeData{});
    return r;
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from,
                                const CUgraphNode *to, const CUgraphEdgeData *,
                                size_t numDependencies)
{
    SIM_ENTER(init);
    auto found = the().graphs.find(hGraph);
    if (!found || (numDependencies && (!from || !to)))
        return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < numDependencies; ++i) {
        auto *before = reinterpret_cast<node *>(from[i]);
        auto *after = reinterpret_cast<node *>(to[i]);
        if (before == after || !found->contains(before) ||
            !found->contains(after))
            return CUDA_ERROR_INVALID_VALUE;
        after->after.push_back(before);
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from,
                                   const CUgraphNode *to,
                                   const CUgraphEdgeData *,
                                   size_t numDependencies)
{
    SIM_ENTER(init);
    auto found = the().graphs.find(hGraph);
    if (!found || (numDependencies && (!from || !to)))
        return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < numDependencies; ++i) {
        auto *before = reinterpret_cast<node *>(from[i]);
        auto *after = reinterpret_cast<node *>(to[i]);
        if (!found->contains(before) || !found->contains(after) ||
            !std::erase(after->after, before))
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    SIM_ENTER(init);
    auto found = the().graphs.find(originalGraph);
    if (!phGraphClone || !found)
        return CUDA_ERROR_INVALID_VALUE;
    *phGraphClone = the().graphs.add<CUgraph>(clone(*found));
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode,
                                CUgraph hClonedGraph)
{
    SIM_ENTER(init);
    auto found = the().graphs.find(hClonedGraph);
    if (!phNode || !found)
        return CUDA_ERROR_INVALID_VALUE;
    for (const auto &one : found->nodes)
        if (one->original &&
            one->original == reinterpret_cast<const node *>(hOriginalNode)) {
            *phNode = handle(one.get());
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphDestroyNode(CUgraphNode hNode)
{
    SIM_ENTER(init);
    node *found = find_node(hNode);
    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    auto &nodes = found->owner->nodes;
    forget(found->op);
    for (const auto &one : nodes)
        std::erase(one->after, found);
    std::erase_if(nodes, [&](const auto &n) { return n.get() == found; });
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph,
                            unsigned long long flags)
{
    SIM_ENTER(context);
    auto found = the().graphs.find(hGraph);
    if (!phGraphExec || !found)
        return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<graph_exec> made;
    if (CUresult r = instantiate(*entered.current, *found, made))
        return r;
    made->flags = flags;
    *phGraphExec = the().execs.add<CUgraphExec>(made);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec,
                                          CUgraph hGraph, CUgraphNode *, char *,
                                          size_t)
{
    return cuGraphInstantiateWithFlags(phGraphExec, hGraph, 0);
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
    SIM_ENTER(init);
    auto found = the().execs.find(hGraphExec);
    if (!flags || !found)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = found->flags;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph,
                           CUgraphExecUpdateResultInfo *resultInfo)
{
    SIM_ENTER(context);
    auto exec = the().execs.find(hGraphExec);
    auto from = the().graphs.find(hGraph);
    if (!exec || !from || !resultInfo)
        return CUDA_ERROR_INVALID_VALUE;
    *resultInfo = {};
    auto refuse = [&](CUgraphExecUpdateResult why) {
        resultInfo->result = why;
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    };
    // Memory is bound to an executable graph.
    for (const auto &s : exec->steps)
        if (memory_of(s.op))
            return refuse(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
    std::shared_ptr<graph_exec> other;
    if (CUresult r = instantiate(*entered.current, *from, other))
        return r;
    if (exec->after != other->after)
        return refuse(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    for (std::size_t i = 0; i < exec->steps.size(); ++i)
        if (exec->steps[i].op.type != other->steps[i].op.type)
            return refuse(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    exec->steps.swap(other->steps);
    resultInfo->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                               unsigned isEnabled)
{
    SIM_ENTER(init);
    auto found = the().execs.find(hGraphExec);
    auto *step =
        found ? found->find(reinterpret_cast<const node *>(hNode)) : nullptr;
    if (!step)
        return CUDA_ERROR_INVALID_VALUE;
    step->enabled = isEnabled != 0;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                               unsigned *isEnabled)
{
    SIM_ENTER(init);
    auto found = the().execs.find(hGraphExec);
    auto *step =
        found ? found->find(reinterpret_cast<const node *>(hNode)) : nullptr;
    if (!step || !isEnabled)
        return CUDA_ERROR_INVALID_VALUE;
    *isEnabled = step->enabled;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    SIM_ENTER(init);
    auto found = the().execs.find(hGraphExec);
    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    wait_all(entered.lock, *found->owner);
    the().execs.remove(hGraphExec);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice dev)
{
    SIM_ENTER(init);
    return the().device_at(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// Executable graphs keep their memory, so all of it is in use.
CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attr,
                                      void *value)
{
    SIM_ENTER(init);
    const device *on = the().device_at(dev);
    if (!on)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || (attr != CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT &&
                   attr != CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT))
        return CUDA_ERROR_INVALID_VALUE;
    *static_cast<cuuint64_t *>(value) = on->graph_bytes;
    return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    SIM_ENTER(init);
    if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
        *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    std::swap(*mode, thread_capture_mode());
    return CUDA_SUCCESS;
}

// The first versions, which say nothing of edges.

#undef cuGraphAddNode
SIM_EXPORT CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                   const CUgraphNode *dependencies,
                                   size_t numDependencies,
                                   CUgraphNodeParams *nodeParams)
{
    return cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, nullptr,
                             numDependencies, nodeParams);
}

#undef cuGraphNodeGetDependencies
SIM_EXPORT CUresult cuGraphNodeGetDependencies(CUgraphNode hNode,
                                               CUgraphNode *dependencies,
                                               size_t *numDependencies)
{
    return cuGraphNodeGetDependencies_v2(hNode, dependencies, nullptr,
                                         numDependencies);
}

#undef cuGraphAddDependencies
SIM_EXPORT CUresult cuGraphAddDependencies(CUgraph hGraph,
                                           const CUgraphNode *from,
                                           const CUgraphNode *to,
                                           size_t numDependencies)
{
    return cuGraphAddDependencies_v2(hGraph, from, to, nullptr,
                                     numDependencies);
}

#undef cuGraphRemoveDependencies
SIM_EXPORT CUresult cuGraphRemoveDependencies(CUgraph hGraph,
                                              const CUgraphNode *from,
                                              const CUgraphNode *to,
                                              size_t numDependencies)
{
    return cuGraphRemoveDependencies_v2(hGraph, from, to, nullptr,
                                        numDependencies);
}
