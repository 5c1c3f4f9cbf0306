// SPDX-License-Identifier: GPL-2.0-or-later
// Nodes that are several of the driver's, as their graph is copied and goes.
#include "hooks/graph_walk.hpp"
#include "hooks/made_graphs.hpp"

using namespace emuv::cuda;

namespace {

class GraphWalk : public MadeGraphs
{
protected:
    // A copy that is two nodes, the first of which has the number before.
    void add_cut(CUgraph to, std::uintptr_t is)
    {
        add(to, is - 1, CU_GRAPH_NODE_TYPE_MEMCPY);
        add(to, is, CU_GRAPH_NODE_TYPE_MEMCPY);
        cut_node cut;
        cut.graph = to;
        cut.parts = {{node(is - 1), to_system_ram}, {node(is), 0}};
        ours_.nodes.remember(node(is), std::move(cut));
    }

    // A clone's nodes have numbers higher by 100.
    static void clone(CUgraph from, CUgraph to)
    {
        graphs[to];
        for (const CUgraphNode each : graphs[from].nodes) {
            const auto is = reinterpret_cast<std::uintptr_t>(each) + 100;
            add(to, is, nodes[each].type);
            clones[{each, to}] = node(is);
            if (nodes[each].child == nullptr)
                continue;
            const CUgraph child = graph(
                reinterpret_cast<std::uintptr_t>(nodes[each].child) + 100);
            nodes[node(is)].child = child;
            clone(nodes[each].child, child);
        }
    }
};

} // namespace

TEST_F(GraphWalk, FindsNoNodesWhereTheDriverTellsNone)
{
    std::vector<CUgraphNode> found;
    EXPECT_FALSE(ask_nodes(graph(1), found));
    graphs[graph(1)];
    EXPECT_TRUE(ask_nodes(graph(1), found));
    EXPECT_TRUE(found.empty());
    add(graph(1), 7, CU_GRAPH_NODE_TYPE_EMPTY);
    add(graph(1), 3, CU_GRAPH_NODE_TYPE_EMPTY);
    EXPECT_TRUE(ask_nodes(graph(1), found));
    EXPECT_EQ(found, (std::vector{node(7), node(3)}));
}

TEST_F(GraphWalk, ACloneHasTheCutNodesOfItsGraphAndOfTheGraphsInIt)
{
    add_cut(graph(1), 12);
    add_child(graph(1), 13, graph(2));
    add_cut(graph(2), 22);
    clone(graph(1), graph(101));
    follow_clone(ours_.nodes, graph(1), graph(101));
    const auto outer = ours_.nodes.find(node(112));
    ASSERT_TRUE(outer);
    EXPECT_EQ(outer->graph, graph(101));
    ASSERT_EQ(outer->parts.size(), 2U);
    EXPECT_EQ(outer->parts[0].node, node(111));
    EXPECT_EQ(outer->parts[0].kinds, to_system_ram);
    EXPECT_EQ(outer->parts[1].node, node(112));
    EXPECT_EQ(ours_.nodes.find(node(12))->graph, graph(1));
    // The clone of a child is looked for in that child's own.
    const auto inner = ours_.nodes.find(node(122));
    ASSERT_TRUE(inner);
    EXPECT_EQ(inner->graph, graph(102));
    EXPECT_EQ(inner->parts[0].node, node(121));
}

TEST_F(GraphWalk, ANodeThatTheCloneLacksIsNotFollowed)
{
    add_cut(graph(1), 12);
    graphs[graph(101)];
    follow_clone(ours_.nodes, graph(1), graph(101));
    EXPECT_TRUE(ours_.nodes.all_of(graph(101)).empty());
    EXPECT_FALSE(ours_.nodes.find(nullptr));
}

TEST_F(GraphWalk, AGraphThatGoesTakesTheGraphsInItAlong)
{
    add_cut(graph(1), 12);
    add_child(graph(1), 13, graph(2));
    add_cut(graph(2), 22);
    add_child(graph(2), 23, graph(3));
    add_cut(graph(3), 32);
    add_cut(graph(4), 42);
    forget(ours_.nodes, graph(1));
    for (const std::uintptr_t gone : {12, 22, 32})
        EXPECT_FALSE(ours_.nodes.find(node(gone))) << gone;
    EXPECT_TRUE(ours_.nodes.find(node(42)));
}

TEST_F(GraphWalk, AChildThatIsACopyHasTheCutNodesOfItsOriginal)
{
    add_cut(graph(2), 22);
    clone(graph(2), graph(102));
    add_child(graph(1), 11, graph(102)).child = graph(102);
    follow_child(node(11), graph(2));
    EXPECT_TRUE(ours_.nodes.find(node(122)));
    // One that is the original itself has them already.
    nodes[node(11)].child = graph(2);
    clones[{node(22), graph(2)}] = node(99);
    clones[{node(21), graph(2)}] = node(98);
    follow_child(node(11), graph(2));
    EXPECT_FALSE(ours_.nodes.find(node(99)));
}
