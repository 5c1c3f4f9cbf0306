// SPDX-License-Identifier: LGPL-2.1-or-later
// Copies and fills that a program adds to graphs by hand. Where one crosses a
// seam of an allocation it becomes several nodes: what the program holds is the
// last of them, a node of the kind it asked for.
#include "hooks/cut_nodes.hpp"
#include "hooks/parts.hpp"
#include "hooks/session.hpp"
#include "interpose/message.hpp"

#include <algorithm>
#include <atomic>

using namespace emuv::cuda;

namespace {

template <typename Params>
struct piece
{
    Params params;
    memory_kinds kinds = 0;
};

bool in_system_ram(memory &held, const described_side &side)
{
    return (side.type == CU_MEMORYTYPE_DEVICE ||
            side.type == CU_MEMORYTYPE_UNIFIED) &&
           held.in_system_ram(side.at + side.y * side.pitch + side.x);
}

std::vector<piece<CUDA_MEMCPY3D>> cut(memory &held, const CUDA_MEMCPY3D &asked)
{
    std::vector<piece<CUDA_MEMCPY3D>> pieces;
    memory *const seams = with_seams(&held);
    as_described(seams, &asked, [&](const CUDA_MEMCPY3D *part) {
        CUDA_MEMCPY3D copy = *part;
        memory_kinds kinds = 0;
        if (seams != nullptr && in_system_ram(held, destination_of(copy)))
            kinds |= to_system_ram;
        if (seams != nullptr && in_system_ram(held, source_of(copy)))
            kinds |= from_system_ram;
        pieces.push_back({copy, kinds});
        return CUDA_SUCCESS;
    });
    return pieces;
}

std::vector<piece<CUDA_MEMSET_NODE_PARAMS>>
cut(memory &held, const CUDA_MEMSET_NODE_PARAMS &asked)
{
    std::vector<piece<CUDA_MEMSET_NODE_PARAMS>> pieces;
    memory *const seams = with_seams(&held);
    // With one row its pitch means nothing.
    as_filled(seams, asked.dst, asked.height > 1 ? asked.pitch : 0,
              asked.elementSize, asked.width, asked.height,
              [&](CUdeviceptr to, std::size_t width, std::size_t height) {
                  CUDA_MEMSET_NODE_PARAMS fill = asked;
                  fill.dst = to;
                  fill.width = width;
                  fill.height = height;
                  pieces.push_back(
                      {fill, seams != nullptr && held.in_system_ram(to)
                                 ? to_system_ram
                                 : 0});
                  return CUDA_SUCCESS;
              });
    return pieces;
}

// What a graph holds is for the memory as it lies.
void stay(const state &ours, const CUDA_MEMCPY3D &asked)
{
    CUDA_MEMCPY3D copy = asked;
    for (const auto &side : {destination_of(copy), source_of(copy)})
        if (side.type == CU_MEMORYTYPE_DEVICE ||
            side.type == CU_MEMORYTYPE_UNIFIED)
            ours.fix(side.at);
}

void stay(const state &ours, const CUDA_MEMSET_NODE_PARAMS &asked)
{
    ours.fix(asked.dst);
}

CUcontext or_current(const state &ours, CUcontext context)
{
    if (context == nullptr)
        ours.calls.cuCtxGetCurrent(&context);
    return context;
}

// Adds what is asked for, as however many nodes it takes.
// @param add  makes one: its place, what it comes after, with the data of these
//   edges or null, and its piece
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
    const auto pieces = cut(*ours->held, *asked);
    cut_node made;
    made.graph = graph;
    made.context = or_current(*ours, context);
    made.asked = *asked;
    std::vector<CUgraphNode> before(after, after + count);
    std::vector<CUgraphEdgeData> data;
    if (edges != nullptr)
        data.assign(edges, edges + count);
    for (const auto &each : pieces) {
        const bool last = &each == &pieces.back();
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

CUresult refuse()
{
    static std::atomic<bool> said;
    if (!said.exchange(true))
        say("a node of a graph cannot be changed to cross from VRAM into "
            "registered pages where it did not when it was added: instantiate "
            "the graph anew, or use EMUV_STORE=numa");
    return CUDA_ERROR_INVALID_VALUE;
}

// What a node comes after, without the other parts of it. Where there is more
// to say of an edge than its ends, the driver refuses.
CUresult before_node(CUgraphNode node, const cut_node &what,
                     std::vector<CUgraphNode> &all)
{
    std::size_t count = 0;
    CUresult result =
        EMUV_REAL(cuGraphNodeGetDependencies)(node, nullptr, &count);
    if (result == CUDA_SUCCESS && count > 0) {
        all.resize(count);
        result =
            EMUV_REAL(cuGraphNodeGetDependencies)(node, all.data(), &count);
    }
    std::erase_if(all, [&what](CUgraphNode each) {
        return std::any_of(
            what.parts.begin(), what.parts.end(),
            [each](const auto &part) { return part.node == each; });
    });
    return result;
}

CUresult add_one(CUgraphNode *node, const cut_node &what,
                 const std::vector<CUgraphNode> &after,
                 const CUDA_MEMCPY3D &copy)
{
    return EMUV_REAL(cuGraphAddMemcpyNode)(node, what.graph, after.data(),
                                           after.size(), &copy, what.context);
}

CUresult add_one(CUgraphNode *node, const cut_node &what,
                 const std::vector<CUgraphNode> &after,
                 const CUDA_MEMSET_NODE_PARAMS &fill)
{
    return EMUV_REAL(cuGraphAddMemsetNode)(node, what.graph, after.data(),
                                           after.size(), &fill, what.context);
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
    const auto pieces = cut(*ours->held, *asked);
    auto found = ours->nodes.find(node);
    // A captured one: in which graph it is, nobody says.
    if (!found || !std::holds_alternative<Params>(found->asked))
        return pieces.size() == 1 ? set(node, &pieces.front().params)
                                  : refuse();
    cut_node next = *found;
    next.asked = *asked;
    auto &parts = next.parts;
    const std::size_t had = parts.size();
    std::vector<CUgraphNode> after;
    if (had < pieces.size())
        if (const CUresult result = before_node(node, *found, after);
            result != CUDA_SUCCESS)
            return result;
    while (parts.size() < pieces.size()) {
        const auto &each = pieces[parts.size() - 1];
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
    while (parts.size() > pieces.size()) {
        EMUV_REAL(cuGraphDestroyNode)(parts[parts.size() - 2].node);
        parts.erase(parts.end() - 2);
    }
    CUresult result = CUDA_SUCCESS;
    for (std::size_t i = 0; i < parts.size() && result == CUDA_SUCCESS; i++) {
        parts[i].kinds = pieces[i].kinds;
        result = set(parts[i].node, &pieces[i].params);
    }
    ours->nodes.remember(node, std::move(next));
    return result;
}

std::size_t rows_of(const CUDA_MEMCPY3D &copy)
{
    return copy.Height * copy.Depth;
}

std::size_t rows_of(const CUDA_MEMSET_NODE_PARAMS &fill)
{
    return fill.height;
}

// The same in an executable graph, which has the parts it has: one that has
// nothing to do any more is disabled, and each of the others goes on between
// the kinds of memory it was made for.
template <typename Params, typename Set>
CUresult set_executable(CUgraphExec exec, CUgraphNode node, const Params *asked,
                        Set set)
{
    state *const ours = state_if_ours();
    if (ours == nullptr || asked == nullptr)
        return set(node, asked);
    stay(*ours, *asked);
    const auto pieces = cut(*ours->held, *asked);
    const auto found = ours->nodes.find(node);
    if (!found || found->parts.size() == 1 ||
        !std::holds_alternative<Params>(found->asked))
        return pieces.size() == 1 ? set(node, &pieces.front().params)
                                  : refuse();
    // The driver changes what has one row, into the same. A part may have one
    // where the whole has more.
    if (!found->one_row() || rows_of(*asked) != 1)
        return CUDA_ERROR_INVALID_VALUE;
    std::vector<const Params *> next(found->parts.size());
    for (const auto &each : pieces) {
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

// ---- Graphs as a whole

template <typename Visit>
void each_child(CUgraph graph, Visit visit)
{
    std::size_t count = 0;
    if (EMUV_REAL(cuGraphGetNodes)(graph, nullptr, &count) != CUDA_SUCCESS ||
        count == 0)
        return;
    std::vector<CUgraphNode> nodes(count);
    if (EMUV_REAL(cuGraphGetNodes)(graph, nodes.data(), &count) != CUDA_SUCCESS)
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

// What stands for several nodes does so in a copy of the graph, too.
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

// A child graph is a copy, or what it was made from, moved.
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

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D *copy,
                                        CUcontext context)
{
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
    return set_executable(
        exec, node, fill,
        [&](CUgraphNode one, const CUDA_MEMSET_NODE_PARAMS *part) {
            return EMUV_REAL(cuGraphExecMemsetNodeSetParams)(exec, one, part,
                                                             context);
        });
}

namespace {

// @param change  set_node() or set_executable(): takes what is asked for, and
//   what changes one of the driver's nodes
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
CUresult updated(CUgraphExec exec, CUresult real)
{
    state *const ours = state_if_ours();
    if (ours == nullptr || real != CUDA_SUCCESS)
        return real;
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
        exec, EMUV_REAL(cuGraphExecUpdate)(exec, graph, wrong_node, result));
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                              CUgraphExecUpdateResultInfo *result)
{
    return updated(exec, EMUV_REAL(cuGraphExecUpdate_v2)(exec, graph, result));
}

// ---- Edges

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
