// SPDX-License-Identifier: GPL-2.0-or-later
// Edges to nodes that are several of the driver's.
#include "hooks/fixture.hpp"

#include <tuple>
#include <vector>

using namespace emuv::cuda;

namespace {

class Edges : public Hooks
{
protected:
    struct edge
    {
        CUgraphNode from, to;
        unsigned char port;
        bool operator==(const edge &) const = default;
    };

    Edges()
    {
        calls.clear();
        result = CUDA_SUCCESS;
        EMUV_ANSWER(
            cuGraphAddDependencies,
            [](CUgraph, const CUgraphNode *from, const CUgraphNode *to,
               std::size_t count) { return note(from, to, nullptr, count); });
        EMUV_ANSWER(cuGraphAddDependencies_v2,
                    [](CUgraph, const CUgraphNode *from, const CUgraphNode *to,
                       const CUgraphEdgeData *data, std::size_t count) {
                        return note(from, to, data, count);
                    });
        EMUV_ANSWER(
            cuGraphRemoveDependencies,
            [](CUgraph, const CUgraphNode *from, const CUgraphNode *to,
               std::size_t count) { return note(from, to, nullptr, count); });
        EMUV_ANSWER(cuGraphRemoveDependencies_v2,
                    [](CUgraph, const CUgraphNode *from, const CUgraphNode *to,
                       const CUgraphEdgeData *data, std::size_t count) {
                        return note(from, to, data, count);
                    });
    }

    static CUresult note(const CUgraphNode *from, const CUgraphNode *to,
                         const CUgraphEdgeData *data, std::size_t count)
    {
        std::vector<edge> &all = calls.emplace_back();
        for (std::size_t i = 0; i < count; i++)
            all.push_back({from[i], to[i],
                           data != nullptr ? data[i].from_port
                                           : static_cast<unsigned char>(0)});
        return result;
    }

    static CUgraphNode node(std::uintptr_t is)
    {
        return number<CUgraphNode>(is);
    }

    // A node that is three of the driver's, 21, 22 and itself.
    void add_cut_node()
    {
        cut_node cut;
        cut.graph = graph;
        cut.parts = {{node(21), 0}, {node(22), 0}, {node(23), 0}};
        ours_.nodes.remember(node(23), std::move(cut));
    }

    const CUgraph graph = number<CUgraph>(1);
    static inline std::vector<std::vector<edge>> calls;
    static inline CUresult result;
};

} // namespace

TEST_F(Edges, ToOrdinaryNodesAreTheProgramsAlone)
{
    const CUgraphNode from[]{node(1), node(2)};
    const CUgraphNode to[]{node(3), node(4)};
    EXPECT_EQ(cuGraphAddDependencies(graph, from, to, 2), CUDA_SUCCESS);
    add_cut_node();
    EXPECT_EQ(cuGraphAddDependencies(graph, from, to, 2), CUDA_SUCCESS);
    const std::vector<edge> asked{{node(1), node(3), 0}, {node(2), node(4), 0}};
    EXPECT_EQ(calls, (std::vector{asked, asked}));
}

TEST_F(Edges, ToANodeOfSeveralPartsLeadToEachOfThem)
{
    add_cut_node();
    const CUgraphNode from[]{node(1), node(2)};
    const CUgraphNode to[]{node(3), node(23)};
    EXPECT_EQ(cuGraphAddDependencies(graph, from, to, 2), CUDA_SUCCESS);
    ASSERT_EQ(calls.size(), 2U);
    EXPECT_EQ(calls[1], (std::vector<edge>{{node(2), node(21), 0},
                                           {node(2), node(22), 0}}));
}

TEST_F(Edges, ToThePartsHaveTheDataOfTheEdgeTheyStandFor)
{
    add_cut_node();
    const CUgraphNode from[]{node(1), node(2)};
    const CUgraphNode to[]{node(3), node(23)};
    CUgraphEdgeData data[2]{};
    data[0].from_port = 5;
    data[1].from_port = 7;
    const std::vector<edge> more{{node(2), node(21), 7},
                                 {node(2), node(22), 7}};
    EXPECT_EQ(cuGraphAddDependencies_v2(graph, from, to, data, 2),
              CUDA_SUCCESS);
    EXPECT_EQ(cuGraphRemoveDependencies_v2(graph, from, to, data, 2),
              CUDA_SUCCESS);
    ASSERT_EQ(calls.size(), 4U);
    EXPECT_EQ(calls[1], more);
    EXPECT_EQ(calls[3], more);
}

TEST_F(Edges, ThatAreRemovedAreRemovedFromEachPart)
{
    add_cut_node();
    const CUgraphNode from = node(1);
    const CUgraphNode to = node(23);
    EXPECT_EQ(cuGraphRemoveDependencies(graph, &from, &to, 1), CUDA_SUCCESS);
    ASSERT_EQ(calls.size(), 2U);
    EXPECT_EQ(calls[1], (std::vector<edge>{{node(1), node(21), 0},
                                           {node(1), node(22), 0}}));
}

TEST_F(Edges, ThatTheDriverRefusesLeadToNoPart)
{
    add_cut_node();
    result = CUDA_ERROR_INVALID_VALUE;
    const CUgraphNode from = node(1);
    const CUgraphNode to = node(23);
    EXPECT_EQ(cuGraphAddDependencies(graph, &from, &to, 1),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuGraphAddDependencies_v2(graph, &from, &to, nullptr, 1),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(calls.size(), 2U);
}
