// SPDX-License-Identifier: LGPL-2.1-or-later
// One step of a graph: a launch, a copy or a fill.
#include "hooks/graph_step.hpp"

#include "base/kernel_parameters.hpp"
#include "hooks/graph_walk.hpp"
#include "hooks/session.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <utility>

namespace emuv::cuda {

namespace {

// The kernel that is launched, as the driver takes it: the CUkernel where there
// is no function.
CUfunction function_of(const CUDA_KERNEL_NODE_PARAMS &params)
{
    return params.func != nullptr ? params.func
                                  : reinterpret_cast<CUfunction>(params.kern);
}

// True if a launch has to be told: the node does not have the default.
bool says_something(CUlaunchAttributeID which, const CUlaunchAttributeValue &is)
{
    switch (which) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return is.accessPolicyWindow.num_bytes != 0;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        return is.cooperative != 0;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        return is.clusterDim.x != 0;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        return is.clusterSchedulingPolicyPreference !=
               CU_CLUSTER_SCHEDULING_POLICY_DEFAULT;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        return is.memSyncDomain != CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        return is.preferredClusterDim.x != 0;
    default:
        return false;
    }
}

// All that is asked of a kernel's node. Priorities are left out: the steps
// follow each other. So are preferences that change no result.
constexpr std::array attributes{
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
};

bool ask_attribute(CUgraphNode node, CUlaunchAttributeID which,
                   CUlaunchAttributeValue &out)
{
    out = {};
    return EMUV_REAL(cuGraphKernelNodeGetAttribute)(node, which, &out) ==
           CUDA_SUCCESS;
}

// Drivers before 11.8 know no clusters; all others know these.
bool has_to_be_known(CUlaunchAttributeID which)
{
    return which == CU_LAUNCH_ATTRIBUTE_COOPERATIVE ||
           which == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
}

// An attribute of a function, or of a CUkernel on the current device.
bool ask_function(CUfunction which, CUfunction_attribute attribute, int &value)
{
    CUdevice device = 0;
    return EMUV_REAL(cuFuncGetAttribute)(&value, attribute, which) ==
               CUDA_SUCCESS ||
           (EMUV_REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS &&
            EMUV_REAL(cuKernelGetAttribute)(&value, attribute,
                                            reinterpret_cast<CUkernel>(which),
                                            device) == CUDA_SUCCESS);
}

// All kernels have that many bytes and blocks, whatever their functions are set
// to.
constexpr unsigned shared_bytes_of_all = 48 << 10;
constexpr unsigned cluster_of_all = 8;

// True if a copy reads or writes there as the device does: at that time, and
// not as the copy is handed over.
bool is_pageable(CUmemorytype type, const void *host, CUdeviceptr device)
{
    if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY)
        return false;
    const CUdeviceptr at = type == CU_MEMORYTYPE_HOST
                               ? reinterpret_cast<CUdeviceptr>(host)
                               : device;
    unsigned kind = 0;
    return EMUV_REAL(cuPointerGetAttribute)(
               &kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) != CUDA_SUCCESS ||
           kind == 0;
}

// True if a copy can be handed over by itself, to be made at that time.
bool may_be_a_step(const CUDA_MEMCPY3D &copy)
{
    return copy.reserved0 == nullptr && copy.reserved1 == nullptr &&
           !is_pageable(copy.srcMemoryType, copy.srcHost, copy.srcDevice) &&
           !is_pageable(copy.dstMemoryType, copy.dstHost, copy.dstDevice);
}

// The address of a side of a copy that is one row.
CUdeviceptr address(CUmemorytype type, const void *host, CUdeviceptr device,
                    std::size_t in_row)
{
    return (type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host)
                                       : device) +
           in_row;
}

CUresult make(const CUDA_MEMCPY3D &copy, CUstream stream)
{
    // The driver may tell of a long row as of a pitch that no copy has.
    const bool row = copy.Height <= 1 && copy.Depth <= 1 &&
                     copy.srcMemoryType != CU_MEMORYTYPE_ARRAY &&
                     copy.dstMemoryType != CU_MEMORYTYPE_ARRAY &&
                     copy.srcY + copy.srcZ + copy.dstY + copy.dstZ == 0;
    return row ? cuMemcpyAsync(address(copy.dstMemoryType, copy.dstHost,
                                       copy.dstDevice, copy.dstXInBytes),
                               address(copy.srcMemoryType, copy.srcHost,
                                       copy.srcDevice, copy.srcXInBytes),
                               copy.WidthInBytes, stream)
               : cuMemcpy3DAsync_v2(&copy, stream);
}

CUresult fill(const CUDA_MEMSET_NODE_PARAMS &what, CUstream stream)
{
    const bool rows = what.height > 1;
    switch (what.elementSize) {
    case 1: {
        const auto value = static_cast<unsigned char>(what.value);
        return rows ? cuMemsetD2D8Async(what.dst, what.pitch, value, what.width,
                                        what.height, stream)
                    : cuMemsetD8Async(what.dst, value, what.width, stream);
    }
    case 2: {
        const auto value = static_cast<unsigned short>(what.value);
        return rows ? cuMemsetD2D16Async(what.dst, what.pitch, value,
                                         what.width, what.height, stream)
                    : cuMemsetD16Async(what.dst, value, what.width, stream);
    }
    default:
        return rows
                   ? cuMemsetD2D32Async(what.dst, what.pitch, what.value,
                                        what.width, what.height, stream)
                   : cuMemsetD32Async(what.dst, what.value, what.width, stream);
    }
}

CUgraphNodeType type_of(CUgraphNode node)
{
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    return EMUV_REAL(cuGraphNodeGetType)(node, &type) == CUDA_SUCCESS
               ? type
               : CU_GRAPH_NODE_TYPE_EMPTY;
}

// The kernels of a node: of one that is a graph, all of that.
std::size_t kernels_of(CUgraphNode node)
{
    const CUgraphNodeType type = type_of(node);
    CUgraph child = nullptr;
    std::vector<CUgraphNode> nodes;
    if (type != CU_GRAPH_NODE_TYPE_GRAPH ||
        EMUV_REAL(cuGraphChildGraphNodeGetGraph)(node, &child) !=
            CUDA_SUCCESS ||
        !ask_nodes(child, nodes))
        return type == CU_GRAPH_NODE_TYPE_KERNEL ? 1 : 0;
    std::size_t count = 0;
    for (const CUgraphNode each : nodes)
        count += kernels_of(each);
    return count;
}

constexpr const char *not_told = "a graph of which the driver tells too little";

// Finds the nodes of a graph, each behind all that it depends on.
// @return why the graph has to run as a whole; or null
const char *put_in_order(CUgraph graph, std::vector<CUgraphNode> &out)
{
    std::vector<CUgraphNode> nodes;
    std::size_t edges = 0;
    if (!ask_nodes(graph, nodes) ||
        EMUV_REAL(cuGraphGetEdges_v2)(graph, nullptr, nullptr, nullptr,
                                      &edges) != CUDA_SUCCESS)
        return not_told;
    std::vector<CUgraphNode> from(edges);
    std::vector<CUgraphNode> to(edges);
    std::vector<CUgraphEdgeData> data(edges);
    if (edges > 0 &&
        EMUV_REAL(cuGraphGetEdges_v2)(graph, from.data(), to.data(),
                                      data.data(), &edges) != CUDA_SUCCESS)
        return not_told;
    const std::size_t count = nodes.size();
    std::map<CUgraphNode, std::size_t> indices;
    for (std::size_t i = 0; i < count; i++)
        indices[nodes[i]] = i;
    std::vector<std::vector<std::size_t>> then(count);
    std::vector<std::size_t> waits_for(count);
    for (std::size_t i = 0; i < edges; i++) {
        const auto first = indices.find(from[i]);
        const auto second = indices.find(to[i]);
        if (first == indices.end() || second == indices.end())
            return not_told;
        then[first->second].push_back(second->second);
        waits_for[second->second]++;
    }
    // As they were made, where edges leave a choice.
    std::set<std::size_t> ready;
    for (std::size_t i = 0; i < count; i++)
        if (waits_for[i] == 0)
            ready.insert(i);
    // On the longest path to each node, which has all kernels if there is one
    // that has.
    std::vector<std::size_t> kernels_before(count);
    std::size_t kernels = 0;
    std::size_t longest = 0;
    while (!ready.empty()) {
        const std::size_t next = *ready.begin();
        ready.erase(ready.begin());
        out.push_back(nodes[next]);
        const std::size_t one = kernels_of(nodes[next]);
        kernels += one;
        const std::size_t with_it = kernels_before[next] + one;
        longest = std::max(longest, with_it);
        for (const std::size_t each : then[next]) {
            kernels_before[each] = std::max(kernels_before[each], with_it);
            if (--waits_for[each] == 0)
                ready.insert(each);
        }
    }
    if (out.size() != count)
        return not_told;
    // One of two may wait for what the other one writes.
    return longest == kernels ? nullptr
                              : "a graph that leaves the order of kernels open";
}

// Why a graph with such a node runs as a whole.
const char *name_of_kind(CUgraphNodeType type)
{
    switch (type) {
    case CU_GRAPH_NODE_TYPE_HOST:
        return "a graph that calls a function of the host";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return "a graph with events";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return "a graph that allocates memory";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return "a graph with conditions";
    default:
        return "a graph with a node of another kind";
    }
}

const char *add_steps(CUgraph graph, CUcontext context,
                      std::vector<graph_step> &to);

// Adds the steps of a graph in a graph.
const char *add_child(CUgraphNode node, CUcontext context,
                      std::vector<graph_step> &to)
{
    CUgraph child = nullptr;
    const std::size_t before = to.size();
    if (EMUV_REAL(cuGraphChildGraphNodeGetGraph)(node, &child) != CUDA_SUCCESS)
        return not_told;
    const char *const whole = add_steps(child, context, to);
    for (std::size_t i = before; i < to.size(); i++)
        to[i].child = node;
    return whole;
}

// Adds the step of a node, unless it is an empty one.
// @return why the graph has to run as a whole; or null
const char *add_step(CUgraphNode node, CUcontext context,
                     std::vector<graph_step> &to)
{
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (EMUV_REAL(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS)
        return not_told;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return nullptr;
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        auto kernel = kernel_step::of(node);
        if (!kernel)
            return not_told;
        if (!kernel->is_for(context))
            return "a graph of another context";
        to.push_back({.node = node, .what = std::move(*kernel)});
        return nullptr;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
        CUDA_MEMCPY3D copy{};
        if (EMUV_REAL(cuGraphMemcpyNodeGetParams)(node, &copy) != CUDA_SUCCESS)
            return not_told;
        to.push_back({.node = node, .what = copy});
        return may_be_a_step(copy) ? nullptr
                                   : "a graph that copies pageable memory";
    }
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS filling{};
        to.push_back({.node = node, .what = filling});
        return EMUV_REAL(cuGraphMemsetNodeGetParams)(
                   node, std::get_if<CUDA_MEMSET_NODE_PARAMS>(
                             &to.back().what)) == CUDA_SUCCESS
                   ? nullptr
                   : not_told;
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return add_child(node, context, to);
    default:
        return name_of_kind(type);
    }
}

const char *add_steps(CUgraph graph, CUcontext context,
                      std::vector<graph_step> &to)
{
    std::vector<CUgraphNode> nodes;
    const char *whole = put_in_order(graph, nodes);
    for (const CUgraphNode each : nodes)
        if (whole == nullptr)
            whole = add_step(each, context, to);
    return whole;
}

} // namespace

std::optional<kernel_step> kernel_step::of(CUgraphNode node)
{
    CUDA_KERNEL_NODE_PARAMS params{};
    CUlaunchAttributeValue value{};
    if (EMUV_REAL(cuGraphKernelNodeGetParams_v2)(node, &params) !=
            CUDA_SUCCESS ||
        (ask_attribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE,
                       value) &&
         value.deviceUpdatableKernelNode.deviceUpdatable != 0))
        return {};
    // Of a node that was made of a CUkernel, that: it tells the library, and so
    // the code. The driver tells its own function for it as well.
    if (params.kern != nullptr)
        params.func = nullptr;
    kernel_step made;
    if (!made.take(params))
        return {};
    for (const CUlaunchAttributeID which : attributes) {
        if (!ask_attribute(node, which, value)) {
            if (has_to_be_known(which))
                return {};
            continue;
        }
        if (!says_something(which, value))
            continue;
        CUlaunchAttribute one{};
        one.id = which;
        one.value = value;
        made.attributes_.push_back(one);
        if (which == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            made.cluster_ =
                value.clusterDim.x * value.clusterDim.y * value.clusterDim.z;
    }
    return made;
}

bool kernel_step::take(const CUDA_KERNEL_NODE_PARAMS &params)
{
    const state *const ours = current_state();
    std::vector<unsigned char> values;
    std::vector<std::size_t> offsets;
    if (params.kernelParams != nullptr) {
        std::vector<kernel_parameter> layout;
        if (ours == nullptr ||
            !ask_parameters(ours->calls, function_of(params), layout))
            return false;
        for (std::size_t i = 0; i < layout.size(); i++) {
            offsets.push_back(values.size());
            const auto *const from =
                static_cast<const unsigned char *>(params.kernelParams[i]);
            values.insert(values.end(), from, from + layout[i].bytes);
        }
    }
    const void *buffer = nullptr;
    std::size_t bytes = 0;
    if (params.kernelParams == nullptr)
        for (void **at = params.extra;
             at != nullptr && *at != CU_LAUNCH_PARAM_END; at += 2) {
            if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER)
                buffer = at[1];
            else if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE)
                bytes = *static_cast<const std::size_t *>(at[1]);
            else
                return false;
        }
    if (buffer != nullptr) {
        const auto *const from = static_cast<const unsigned char *>(buffer);
        values.assign(from, from + bytes);
    }
    params_ = params;
    params_.kernelParams = params_.extra = nullptr;
    values_ = std::move(values);
    offsets_ = std::move(offsets);
    packed_ = buffer != nullptr;
    return true;
}

bool kernel_step::may_run() const
{
    int value = 0;
    return (params_.sharedMemBytes <= shared_bytes_of_all ||
            (ask_function(function_of(params_),
                          CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                          value) &&
             params_.sharedMemBytes <= static_cast<unsigned>(value))) &&
           (cluster_ <= cluster_of_all ||
            (ask_function(function_of(params_),
                          CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
                          value) &&
             value != 0));
}

CUresult kernel_step::run(CUstream stream)
{
    CUlaunchConfig config{};
    config.gridDimX = params_.gridDimX;
    config.gridDimY = params_.gridDimY;
    config.gridDimZ = params_.gridDimZ;
    config.blockDimX = params_.blockDimX;
    config.blockDimY = params_.blockDimY;
    config.blockDimZ = params_.blockDimZ;
    config.sharedMemBytes = params_.sharedMemBytes;
    config.hStream = stream;
    config.attrs = attributes_.data();
    config.numAttrs = static_cast<unsigned>(attributes_.size());
    arguments given;
    give(given);
    return cuLaunchKernelEx(&config, function_of(params_), given.parameters(),
                            given.buffer());
}

void kernel_step::give(arguments &out)
{
    out.packed = packed_;
    out.bytes = values_.size();
    out.extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
    out.extra[1] = values_.data();
    out.extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
    out.extra[3] = &out.bytes;
    out.extra[4] = CU_LAUNCH_PARAM_END;
    for (const std::size_t offset : offsets_)
        out.each.push_back(values_.data() + offset);
}

void kernel_step::add_addresses(std::vector<CUdeviceptr> &out,
                                std::vector<CUdeviceptr> &left)
{
    const state *const ours = current_state();
    if (ours == nullptr || ours->kernels == nullptr)
        return;
    arguments given;
    give(given);
    work reached;
    ours->kernels->scan(ours->calls, function_of(params_), given.parameters(),
                        given.buffer(), reached);
    out.insert(out.end(), reached.addresses.begin(),
               reached.addresses.begin() + reached.count);
    left.insert(left.end(), reached.addresses.begin(),
                reached.addresses.begin() + reached.left);
}

CUresult graph_step::run(CUstream stream)
{
    if (auto *const kernel = std::get_if<kernel_step>(&what))
        return kernel->run(stream);
    if (const auto *const copy = std::get_if<CUDA_MEMCPY3D>(&what))
        return make(*copy, stream);
    return fill(*std::get_if<CUDA_MEMSET_NODE_PARAMS>(&what), stream);
}

void graph_step::add_addresses(std::vector<CUdeviceptr> &out,
                               std::vector<CUdeviceptr> &left)
{
    if (auto *const kernel = std::get_if<kernel_step>(&what)) {
        kernel->add_addresses(out, left);
    } else if (const auto *const copy = std::get_if<CUDA_MEMCPY3D>(&what)) {
        out.push_back(copy->srcDevice);
        out.push_back(copy->dstDevice);
    } else {
        out.push_back(std::get_if<CUDA_MEMSET_NODE_PARAMS>(&what)->dst);
    }
}

graph_steps steps_of(CUgraph graph, CUcontext context)
{
    graph_steps made;
    made.whole = add_steps(graph, context, made.all);
    return made;
}

} // namespace emuv::cuda
