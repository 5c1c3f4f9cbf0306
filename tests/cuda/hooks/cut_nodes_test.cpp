// SPDX-License-Identifier: GPL-2.0-or-later
// Nodes of graphs that are several of the driver's, and what became of them.
#include "hooks/cut_nodes.hpp"

#include <cstdint>
#include <initializer_list>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

CUgraph graph(std::uintptr_t number)
{
    return reinterpret_cast<CUgraph>(number);
}
CUgraphExec executable(std::uintptr_t number)
{
    return reinterpret_cast<CUgraphExec>(number);
}
CUgraphNode node(std::uintptr_t number)
{
    return reinterpret_cast<CUgraphNode>(number);
}

cut_node copy_in(CUgraph which, std::initializer_list<std::uintptr_t> parts)
{
    cut_node made;
    made.graph = which;
    made.asked = CUDA_MEMCPY3D{};
    for (const std::uintptr_t each : parts)
        made.parts.push_back({node(each), 0});
    return made;
}

cut_node copy_of(std::size_t height, std::size_t depth)
{
    cut_node made;
    CUDA_MEMCPY3D copy{};
    copy.Height = height;
    copy.Depth = depth;
    made.asked = copy;
    return made;
}

} // namespace

TEST(CutNodes, AreKnownUntilTheyAreTaken)
{
    cut_nodes all;
    EXPECT_FALSE(all.any());
    EXPECT_FALSE(all.find(node(2)));
    EXPECT_FALSE(all.take(node(2)));
    all.remember(node(2), copy_in(graph(1), {1, 2}));
    EXPECT_TRUE(all.any());
    const auto found = all.find(node(2));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->parts.size(), 2U);
    EXPECT_FALSE(all.find(node(1))) << "a part is no node of the program's";
    const auto taken = all.take(node(2));
    ASSERT_TRUE(taken);
    EXPECT_EQ(taken->parts.size(), 2U);
    EXPECT_FALSE(all.find(node(2)));
    EXPECT_TRUE(all.any()) << "there was one";
}

TEST(CutNodes, AreWhatTheyWereChangedInto)
{
    cut_nodes all;
    all.remember(node(2), copy_in(graph(1), {1, 2}));
    all.remember(node(2), copy_in(graph(1), {3, 4, 2}));
    EXPECT_EQ(all.find(node(2))->parts.size(), 3U);
    EXPECT_EQ(all.all_of(graph(1)).size(), 1U);
}

TEST(CutNodes, GoWithTheirGraphAndNoOther)
{
    cut_nodes all;
    all.remember(node(2), copy_in(graph(1), {1, 2}));
    all.remember(node(4), copy_in(graph(1), {3, 4}));
    all.remember(node(6), copy_in(graph(2), {5, 6}));
    EXPECT_EQ(all.all_of(graph(1)).size(), 2U);
    all.drop_all(graph(1));
    EXPECT_TRUE(all.all_of(graph(1)).empty());
    EXPECT_FALSE(all.find(node(2)));
    EXPECT_FALSE(all.find(node(4)));
    ASSERT_EQ(all.all_of(graph(2)).size(), 1U);
    EXPECT_EQ(all.all_of(graph(2)).front().first, node(6));
}

TEST(CutNodes, AreChangedInOneExecutableGraphAlone)
{
    cut_nodes all;
    EXPECT_TRUE(all.use_of(executable(1), node(2)).enabled);
    all.set_use(executable(1), node(2), {.enabled = false, .idle = {node(1)}});
    all.set_use(executable(1), node(4), {.enabled = true, .idle = {node(3)}});
    EXPECT_FALSE(all.use_of(executable(1), node(2)).enabled);
    EXPECT_EQ(all.use_of(executable(1), node(4)).idle.size(), 1U);
    EXPECT_TRUE(all.use_of(executable(2), node(2)).enabled);
    EXPECT_TRUE(all.use_of(executable(2), node(4)).idle.empty());
    EXPECT_EQ(all.take_uses(executable(1)).size(), 2U);
    EXPECT_TRUE(all.use_of(executable(1), node(2)).enabled);
    EXPECT_TRUE(all.take_uses(executable(1)).empty());
}

TEST(CutNodes, OfOneRowAreThoseWithoutRowsOrPlanesToCount)
{
    EXPECT_TRUE(copy_of(1, 1).one_row());
    EXPECT_TRUE(copy_of(0, 0).one_row());
    EXPECT_FALSE(copy_of(2, 1).one_row());
    EXPECT_FALSE(copy_of(1, 2).one_row());
    CUDA_MEMSET_NODE_PARAMS fill{};
    cut_node made;
    fill.height = 1;
    made.asked = fill;
    EXPECT_TRUE(made.one_row());
    fill.height = 2;
    made.asked = fill;
    EXPECT_FALSE(made.one_row());
}
