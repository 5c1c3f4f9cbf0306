// SPDX-License-Identifier: GPL-2.0-or-later
// Copies and fills in graphs, as the nodes that the seam of an allocation makes
// of them.
#include "hooks/fixture.hpp"
#include "hooks/node_parts.hpp"

#include <cstring>
#include <vector>

using namespace emuv::cuda;

namespace {

// The driver adds nodes, changes and destroys them.
class NodeParts : public Hooks
{
protected:
    struct added
    {
        CUgraphNode node;
        CUDA_MEMSET_NODE_PARAMS fill;
        std::vector<CUgraphNode> after;
    };

    NodeParts()
    {
        nodes.clear();
        destroyed.clear();
        set.clear();
        enabled.clear();
        edges.clear();
        refused = SIZE_MAX;
        EMUV_ANSWER(cuGraphAddMemsetNode,
                    [](CUgraphNode *node, CUgraph, const CUgraphNode *after,
                       std::size_t count, const CUDA_MEMSET_NODE_PARAMS *fill,
                       CUcontext) {
                        if (nodes.size() == refused)
                            return CUDA_ERROR_OUT_OF_MEMORY;
                        *node = number<CUgraphNode>(100 + nodes.size());
                        nodes.push_back({*node, *fill, {after, after + count}});
                        return CUDA_SUCCESS;
                    });
        EMUV_ANSWER(cuGraphDestroyNode, [](CUgraphNode node) {
            destroyed.push_back(node);
            return CUDA_SUCCESS;
        });
        EMUV_ANSWER(cuGraphMemsetNodeSetParams,
                    [](CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill) {
                        set.emplace_back(node, fill->dst);
                        return CUDA_SUCCESS;
                    });
        EMUV_ANSWER(cuGraphExecMemsetNodeSetParams,
                    [](CUgraphExec, CUgraphNode node,
                       const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext) {
                        set.emplace_back(node, fill->dst);
                        return CUDA_SUCCESS;
                    });
        EMUV_ANSWER(cuGraphNodeSetEnabled,
                    [](CUgraphExec, CUgraphNode node, unsigned on) {
                        enabled.emplace_back(node, on != 0);
                        return CUDA_SUCCESS;
                    });
        EMUV_ANSWER(cuGraphAddDependencies,
                    [](CUgraph, const CUgraphNode *from, const CUgraphNode *to,
                       std::size_t count) {
                        for (std::size_t i = 0; i < count; i++)
                            edges.emplace_back(from[i], to[i]);
                        return CUDA_SUCCESS;
                    });
        EMUV_ANSWER(cuGraphNodeGetDependencies,
                    [](CUgraphNode node, CUgraphNode *out, std::size_t *count) {
                        for (const added &each : nodes)
                            if (each.node == node) {
                                *count = each.after.size();
                                for (std::size_t i = 0;
                                     out != nullptr && i < *count; i++)
                                    out[i] = each.after[i];
                            }
                        return CUDA_SUCCESS;
                    });
    }

    static CUDA_MEMSET_NODE_PARAMS fill_of(CUdeviceptr at, std::size_t bytes)
    {
        CUDA_MEMSET_NODE_PARAMS fill{};
        fill.dst = at;
        fill.elementSize = 1;
        fill.width = bytes;
        fill.height = 1;
        return fill;
    }
    static CUDA_MEMCPY3D copy_of(CUdeviceptr to, CUdeviceptr from,
                                 std::size_t bytes)
    {
        CUDA_MEMCPY3D copy{};
        copy.dstMemoryType = copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = to;
        copy.srcDevice = from;
        copy.WidthInBytes = bytes;
        copy.Height = copy.Depth = 1;
        return copy;
    }

    CUresult add(CUgraphNode &node, const CUDA_MEMSET_NODE_PARAMS &fill)
    {
        const CUgraphNode before = number<CUgraphNode>(7);
        return cuGraphAddMemsetNode(&node, graph, &before, 1, &fill, nullptr);
    }

    const CUgraph graph = number<CUgraph>(1);
    const CUgraphExec exec = number<CUgraphExec>(2);
    static inline std::vector<added> nodes;
    static inline std::vector<CUgraphNode> destroyed;
    static inline std::vector<std::pair<CUgraphNode, CUdeviceptr>> set;
    static inline std::vector<std::pair<CUgraphNode, bool>> enabled;
    static inline std::vector<std::pair<CUgraphNode, CUgraphNode>> edges;
    static inline std::size_t refused; // the add behind so many
};

} // namespace

TEST_F(NodeParts, AFillIsCutWhereSystemRamBegins)
{
    const CUdeviceptr at = allocate_across();
    const CUdeviceptr seam = at + vram_bytes;
    const auto parts = cut(table_, fill_of(seam - 100, 300));
    ASSERT_EQ(parts.size(), 2U);
    EXPECT_EQ(parts[0].params.dst, seam - 100);
    EXPECT_EQ(parts[0].params.width, 100U);
    EXPECT_EQ(parts[0].kinds, 0U);
    EXPECT_EQ(parts[1].params.dst, seam);
    EXPECT_EQ(parts[1].params.width, 200U);
    EXPECT_EQ(parts[1].kinds, to_system_ram);
    EXPECT_EQ(cut(table_, fill_of(at, vram_bytes)).size(), 1U);
    const auto beyond = cut(table_, fill_of(seam, 300));
    ASSERT_EQ(beyond.size(), 1U);
    EXPECT_EQ(beyond[0].kinds, to_system_ram);
}

TEST_F(NodeParts, ACopyIsCutWhereEitherSideComesToSystemRam)
{
    const CUdeviceptr at = allocate_across();
    const CUdeviceptr seam = at + vram_bytes;
    const auto from = cut(table_, copy_of(at, seam - 100, 300));
    ASSERT_EQ(from.size(), 2U);
    EXPECT_EQ(from[0].kinds, 0U);
    EXPECT_EQ(from[1].kinds, from_system_ram);
    EXPECT_EQ(from[1].params.dstDevice, at + 100);
    // Both sides, at different places.
    const auto both = cut(table_, copy_of(seam - 200, seam - 100, 300));
    ASSERT_EQ(both.size(), 3U);
    EXPECT_EQ(both[0].kinds, 0U);
    EXPECT_EQ(both[1].kinds, from_system_ram);
    EXPECT_EQ(both[2].kinds, from_system_ram | to_system_ram);
    std::size_t bytes = 0;
    for (const auto &each : both) {
        EXPECT_EQ(each.params.dstDevice, seam - 200 + bytes);
        EXPECT_EQ(each.params.srcDevice, seam - 100 + bytes);
        bytes += each.params.WidthInBytes;
    }
    EXPECT_EQ(bytes, 300U);
}

TEST_F(NodeParts, TheProgramsNodeComesBehindAllOthersOfIt)
{
    const CUdeviceptr seam = allocate_across() + vram_bytes;
    CUgraphNode node = nullptr;
    ASSERT_EQ(add(node, fill_of(seam - 100, 300)), CUDA_SUCCESS);
    ASSERT_EQ(nodes.size(), 2U);
    EXPECT_EQ(node, nodes[1].node);
    const CUgraphNode before = number<CUgraphNode>(7);
    EXPECT_EQ(nodes[0].after, std::vector{before});
    EXPECT_EQ(nodes[1].after, (std::vector{before, nodes[0].node}));
    const auto known = ours_.nodes.find(node);
    ASSERT_TRUE(known);
    EXPECT_EQ(known->graph, graph);
    EXPECT_EQ(known->parts.size(), 2U);
    CUDA_MEMSET_NODE_PARAMS shown{};
    EXPECT_EQ(show(node, &shown, CUDA_SUCCESS), CUDA_SUCCESS);
    EXPECT_EQ(shown.width, 300U) << "it is one to the program";
}

TEST_F(NodeParts, ANodeThatCannotBeAddedWholeIsNotAdded)
{
    const CUdeviceptr seam = allocate_across() + vram_bytes;
    refused = 1;
    CUgraphNode node = nullptr;
    EXPECT_EQ(add(node, fill_of(seam - 100, 300)), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(node, nullptr);
    ASSERT_EQ(nodes.size(), 1U);
    EXPECT_EQ(destroyed, std::vector{nodes[0].node});
    EXPECT_FALSE(ours_.nodes.any());
}

TEST_F(NodeParts, TheNodesBeforeANodeAreNoneOfItsOwn)
{
    const CUdeviceptr seam = allocate_across() + vram_bytes;
    CUgraphNode node = nullptr;
    ASSERT_EQ(add(node, fill_of(seam - 100, 300)), CUDA_SUCCESS);
    std::vector<CUgraphNode> found;
    EXPECT_EQ(before_node(node, *ours_.nodes.find(node), found), CUDA_SUCCESS);
    EXPECT_EQ(found, std::vector{number<CUgraphNode>(7)});
}

TEST_F(NodeParts, AChangedNodeHasAsManyPartsAsItNeeds)
{
    const CUdeviceptr seam = allocate_across() + vram_bytes;
    CUgraphNode node = nullptr;
    ASSERT_EQ(add(node, fill_of(seam - 300, 300)), CUDA_SUCCESS);
    ASSERT_EQ(nodes.size(), 1U);
    const auto across = fill_of(seam - 100, 300);
    ASSERT_EQ(cuGraphMemsetNodeSetParams(node, &across), CUDA_SUCCESS);
    ASSERT_EQ(nodes.size(), 2U);
    const CUgraphNode more = nodes[1].node;
    EXPECT_EQ(nodes[1].after, std::vector{number<CUgraphNode>(7)});
    EXPECT_EQ(edges, (std::vector{std::pair(more, node)}));
    EXPECT_EQ(set, (std::vector<std::pair<CUgraphNode, CUdeviceptr>>{
                       {more, seam - 100}, {node, seam}}));
    ASSERT_EQ(ours_.nodes.find(node)->parts.size(), 2U);
    // And back.
    set.clear();
    const auto beyond = fill_of(seam, 300);
    ASSERT_EQ(cuGraphMemsetNodeSetParams(node, &beyond), CUDA_SUCCESS);
    EXPECT_EQ(destroyed, std::vector{more});
    EXPECT_EQ(set, (std::vector{std::pair(node, seam)}));
    ASSERT_EQ(ours_.nodes.find(node)->parts.size(), 1U);
    EXPECT_EQ(ours_.nodes.find(node)->parts[0].kinds, to_system_ram);
}

TEST_F(NodeParts, AnExecutablePartWithNothingToDoIsDisabledUntilItHas)
{
    const CUdeviceptr seam = allocate_across() + vram_bytes;
    CUgraphNode node = nullptr;
    ASSERT_EQ(add(node, fill_of(seam - 100, 300)), CUDA_SUCCESS);
    const CUgraphNode first = nodes[0].node;
    const auto within = fill_of(seam - 300, 300);
    ASSERT_EQ(cuGraphExecMemsetNodeSetParams(exec, node, &within, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(enabled, (std::vector{std::pair(node, false)}));
    EXPECT_EQ(set, (std::vector{std::pair(first, seam - 300)}));
    EXPECT_EQ(ours_.nodes.use_of(exec, node).idle, std::vector{node});
    enabled.clear();
    const auto across = fill_of(seam - 50, 300);
    ASSERT_EQ(cuGraphExecMemsetNodeSetParams(exec, node, &across, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(enabled,
              (std::vector{std::pair(first, true), std::pair(node, true)}));
    EXPECT_TRUE(ours_.nodes.use_of(exec, node).idle.empty());
}

TEST_F(NodeParts, AnExecutableNodeOfOnePartCannotComeToHaveTwo)
{
    const CUdeviceptr seam = allocate_across() + vram_bytes;
    CUgraphNode node = nullptr;
    ASSERT_EQ(add(node, fill_of(seam - 300, 300)), CUDA_SUCCESS);
    const auto across = fill_of(seam - 100, 300);
    EXPECT_EQ(cuGraphExecMemsetNodeSetParams(exec, node, &across, nullptr),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_TRUE(set.empty());
}

TEST_F(NodeParts, AnExecutableNodeOfSeveralPartsStaysOneRow)
{
    const CUdeviceptr seam = allocate_across() + vram_bytes;
    CUgraphNode node = nullptr;
    ASSERT_EQ(add(node, fill_of(seam - 100, 300)), CUDA_SUCCESS);
    auto rows = fill_of(seam - 300, 100);
    rows.pitch = 100;
    rows.height = 2;
    EXPECT_EQ(rows_of(rows), 2U);
    EXPECT_EQ(cuGraphExecMemsetNodeSetParams(exec, node, &rows, nullptr),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_TRUE(set.empty());
}
