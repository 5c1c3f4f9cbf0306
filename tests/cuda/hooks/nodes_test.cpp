// SPDX-License-Identifier: GPL-2.0-or-later
// Nodes that are several of the driver's, as the program enables, updates and
// destroys them.
#include "hooks/fixture.hpp"

#include <utility>
#include <vector>

using namespace emuv::cuda;

namespace {

class CutNodesOfPrograms : public Hooks
{
protected:
    CutNodesOfPrograms()
    {
        destroyed.clear();
        enabled.clear();
        result = CUDA_SUCCESS;
        EMUV_ANSWER(cuGraphNodeSetEnabled,
                    [](CUgraphExec, CUgraphNode one, unsigned on) {
                        enabled.emplace_back(one, on != 0);
                        return result;
                    });
        EMUV_ANSWER(cuGraphNodeGetEnabled,
                    [](CUgraphExec, CUgraphNode, unsigned *on) {
                        *on = 1;
                        return result;
                    });
        EMUV_ANSWER(cuGraphDestroyNode, [](CUgraphNode one) {
            destroyed.push_back(one);
            return result;
        });
        EMUV_ANSWER(cuGraphExecUpdate_v2,
                    [](CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo *) {
                        return result;
                    });
        cut_node cut;
        cut.graph = number<CUgraph>(1);
        cut.parts = {{node(21), 0}, {node(22), 0}, {node(23), 0}};
        ours_.nodes.remember(node(23), std::move(cut));
    }

    static CUgraphNode node(std::uintptr_t is)
    {
        return number<CUgraphNode>(is);
    }
    // So it is after a change that leaves a part nothing to do.
    void make_idle(std::uintptr_t part)
    {
        ours_.nodes.set_use(exec, node(23),
                            {.enabled = true, .idle = {node(part)}});
    }
    unsigned is_enabled()
    {
        unsigned on = 2;
        EXPECT_EQ(cuGraphNodeGetEnabled(exec, node(23), &on), CUDA_SUCCESS);
        return on;
    }

    using switches = std::vector<std::pair<CUgraphNode, bool>>;
    const CUgraphExec exec = number<CUgraphExec>(2);
    static inline std::vector<CUgraphNode> destroyed;
    static inline switches enabled;
    static inline CUresult result; // of the driver
};

} // namespace

TEST_F(CutNodesOfPrograms, AreDisabledAndEnabledWhole)
{
    EXPECT_EQ(is_enabled(), 1U);
    EXPECT_EQ(cuGraphNodeSetEnabled(exec, node(23), 0), CUDA_SUCCESS);
    EXPECT_EQ(
        enabled,
        (switches{{node(21), false}, {node(22), false}, {node(23), false}}));
    EXPECT_EQ(is_enabled(), 0U);
    EXPECT_EQ(cuGraphNodeSetEnabled(exec, node(23), 1), CUDA_SUCCESS);
    EXPECT_EQ(is_enabled(), 1U);
}

TEST_F(CutNodesOfPrograms, AreEnabledButForPartsWithNothingToDo)
{
    make_idle(22);
    EXPECT_EQ(cuGraphNodeSetEnabled(exec, node(23), 1), CUDA_SUCCESS);
    EXPECT_EQ(enabled, (switches{{node(21), true}, {node(23), true}}));
    EXPECT_EQ(ours_.nodes.use_of(exec, node(23)).idle, std::vector{node(22)});
}

TEST_F(CutNodesOfPrograms, ThatTheDriverRefusesToDisableStayAsTheyWere)
{
    result = CUDA_ERROR_INVALID_VALUE;
    EXPECT_EQ(cuGraphNodeSetEnabled(exec, node(23), 0),
              CUDA_ERROR_INVALID_VALUE);
    result = CUDA_SUCCESS;
    EXPECT_EQ(is_enabled(), 1U);
}

TEST_F(CutNodesOfPrograms, HaveSomethingToDoInEachPartAfterAnUpdate)
{
    make_idle(22);
    EXPECT_EQ(cuGraphExecUpdate_v2(exec, number<CUgraph>(1), nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(enabled, (switches{{node(22), true}}));
    EXPECT_TRUE(ours_.nodes.use_of(exec, node(23)).idle.empty());
}

TEST_F(CutNodesOfPrograms, ThatAreDisabledAreSoAfterAnUpdate)
{
    ours_.nodes.set_use(exec, node(23), {.enabled = false, .idle = {node(22)}});
    EXPECT_EQ(cuGraphExecUpdate_v2(exec, number<CUgraph>(1), nullptr),
              CUDA_SUCCESS);
    EXPECT_TRUE(enabled.empty());
    EXPECT_EQ(is_enabled(), 0U);
}

TEST_F(CutNodesOfPrograms, AreDestroyedWholeOrNotAtAll)
{
    result = CUDA_ERROR_INVALID_VALUE;
    EXPECT_EQ(cuGraphDestroyNode(node(23)), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(destroyed, std::vector{node(23)});
    EXPECT_TRUE(ours_.nodes.find(node(23)));
    destroyed.clear();
    result = CUDA_SUCCESS;
    EXPECT_EQ(cuGraphDestroyNode(node(23)), CUDA_SUCCESS);
    EXPECT_EQ(destroyed, (std::vector{node(23), node(21), node(22)}));
    EXPECT_FALSE(ours_.nodes.find(node(23)));
}
