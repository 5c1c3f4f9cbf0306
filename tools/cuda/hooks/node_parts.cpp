// SPDX-License-Identifier: LGPL-2.1-or-later
// The parts that a copy or a fill in a graph is cut into.
#include "hooks/node_parts.hpp"

#include "interpose/message.hpp"

#include <atomic>

namespace emuv::cuda {

bool in_system_ram(memory &table, const described_side &side)
{
    return (side.type == CU_MEMORYTYPE_DEVICE ||
            side.type == CU_MEMORYTYPE_UNIFIED) &&
           in_system_ram(table, side.at + side.y * side.pitch + side.x);
}

std::vector<node_part<CUDA_MEMCPY3D>> cut(memory &table,
                                          const CUDA_MEMCPY3D &asked)
{
    std::vector<node_part<CUDA_MEMCPY3D>> parts;
    memory *const seams = with_seams(&table);
    as_described(seams, &asked, [&](const CUDA_MEMCPY3D *part) {
        CUDA_MEMCPY3D copy = *part;
        memory_kinds kinds = 0;
        if (seams != nullptr && in_system_ram(table, destination_of(copy)))
            kinds |= to_system_ram;
        if (seams != nullptr && in_system_ram(table, source_of(copy)))
            kinds |= from_system_ram;
        parts.push_back({copy, kinds});
        return CUDA_SUCCESS;
    });
    return parts;
}

std::vector<node_part<CUDA_MEMSET_NODE_PARAMS>>
cut(memory &table, const CUDA_MEMSET_NODE_PARAMS &asked)
{
    std::vector<node_part<CUDA_MEMSET_NODE_PARAMS>> parts;
    memory *const seams = with_seams(&table);
    // With one row its pitch means nothing.
    as_filled(seams, asked.dst, asked.height > 1 ? asked.pitch : 0,
              asked.elementSize, asked.width, asked.height,
              [&](CUdeviceptr to, std::size_t width, std::size_t height) {
                  CUDA_MEMSET_NODE_PARAMS fill = asked;
                  fill.dst = to;
                  fill.width = width;
                  fill.height = height;
                  parts.push_back(
                      {fill, seams != nullptr && in_system_ram(table, to)
                                 ? to_system_ram
                                 : 0});
                  return CUDA_SUCCESS;
              });
    return parts;
}

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

CUresult refuse()
{
    static std::atomic<bool> said;
    if (!said.exchange(true))
        say("a node of a graph cannot be changed to cross from VRAM into "
            "registered pages if it did not before. Instantiate the graph "
            "anew, or use EMUV_STORE=numa");
    return CUDA_ERROR_INVALID_VALUE;
}

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

std::size_t rows_of(const CUDA_MEMCPY3D &copy)
{
    return copy.Height * copy.Depth;
}

std::size_t rows_of(const CUDA_MEMSET_NODE_PARAMS &fill)
{
    return fill.height;
}

} // namespace emuv::cuda
