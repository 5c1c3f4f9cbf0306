// SPDX-License-Identifier: GPL-2.0-or-later
// Graphs as their steps: which graphs come apart, in what order, and what each
// step does.
#include "hooks/graph_step.hpp"
#include "hooks/made_graphs.hpp"

#include <string>
#include <vector>

using namespace emuv::cuda;

namespace {

class GraphSteps : public MadeGraphs
{
protected:
    GraphSteps()
    {
        memory_type = CU_MEMORYTYPE_HOST;
        calls.clear();
        given.clear();
        most_shared = 0;
        // Two parameters of eight bytes, one behind the other.
        ours_.calls.cuFuncGetParamInfo = [](CUfunction, std::size_t index,
                                            std::size_t *offset,
                                            std::size_t *bytes) {
            if (index >= 2)
                return CUDA_ERROR_INVALID_VALUE;
            *offset = 8 * index;
            *bytes = 8;
            return CUDA_SUCCESS;
        };
        EMUV_ANSWER(cuPointerGetAttribute, [](void *out, CUpointer_attribute,
                                              CUdeviceptr) {
            *static_cast<unsigned *>(out) = memory_type;
            return memory_type != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        });
        EMUV_ANSWER(cuFuncGetAttribute,
                    [](int *value, CUfunction_attribute, CUfunction) {
                        *value = most_shared;
                        return CUDA_SUCCESS;
                    });
        EMUV_ANSWER(cuLaunchKernelEx, [](const CUlaunchConfig *, CUfunction,
                                         void **parameters, void **) {
            for (int i = 0; i < 2; i++)
                given.push_back(
                    *static_cast<const std::uint64_t *>(parameters[i]));
            return CUDA_SUCCESS;
        });
        EMUV_ANSWER(cuMemcpyAsync, [](CUdeviceptr, CUdeviceptr, std::size_t,
                                      CUstream) { return note("row"); });
        EMUV_ANSWER(cuMemcpy3DAsync_v2, [](const CUDA_MEMCPY3D *, CUstream) {
            return note("rows");
        });
        EMUV_ANSWER(cuMemsetD8Async, [](CUdeviceptr, unsigned char, std::size_t,
                                        CUstream) { return note("D8"); });
        EMUV_ANSWER(cuMemsetD16Async,
                    [](CUdeviceptr, unsigned short, std::size_t, CUstream) {
                        return note("D16");
                    });
        EMUV_ANSWER(cuMemsetD32Async, [](CUdeviceptr, unsigned, std::size_t,
                                         CUstream) { return note("D32"); });
        EMUV_ANSWER(cuMemsetD2D8Async,
                    [](CUdeviceptr, std::size_t, unsigned char, std::size_t,
                       std::size_t, CUstream) { return note("D2D8"); });
        EMUV_ANSWER(cuMemsetD2D16Async,
                    [](CUdeviceptr, std::size_t, unsigned short, std::size_t,
                       std::size_t, CUstream) { return note("D2D16"); });
        EMUV_ANSWER(cuMemsetD2D32Async,
                    [](CUdeviceptr, std::size_t, unsigned, std::size_t,
                       std::size_t, CUstream) { return note("D2D32"); });
    }

    static CUresult note(const char *call)
    {
        calls.emplace_back(call);
        return CUDA_SUCCESS;
    }

    made_node &add_kernel(CUgraph to, std::uintptr_t is)
    {
        made_node &made = add(to, is, CU_GRAPH_NODE_TYPE_KERNEL);
        made.kernel.func = number<CUfunction>(0x50);
        made.kernel.kernelParams = parameters_;
        return made;
    }
    static made_node &add_copy(CUgraph to, std::uintptr_t is)
    {
        made_node &made = add(to, is, CU_GRAPH_NODE_TYPE_MEMCPY);
        made.copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        made.copy.srcHost = &made;
        made.copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        made.copy.WidthInBytes = 8;
        made.copy.Height = made.copy.Depth = 1;
        return made;
    }

    graph_steps steps() { return steps_of(graph(1), context_); }
    std::vector<CUgraphNode> order()
    {
        std::vector<CUgraphNode> found;
        for (const graph_step &each : steps().all)
            found.push_back(each.node);
        return found;
    }
    std::string whole()
    {
        const char *const why = steps().whole;
        return why != nullptr ? why : "";
    }

    const CUcontext context_ = number<CUcontext>(0x10);
    std::uint64_t values_[2] = {11, 12};
    void *parameters_[2] = {&values_[0], &values_[1]};
    static inline unsigned memory_type; // of all but the device's; 0: unknown
    static inline int most_shared;      // bytes that a function is set to
    static inline std::vector<std::string> calls;
    static inline std::vector<std::uint64_t> given; // to a kernel
};

} // namespace

TEST_F(GraphSteps, ComeBehindAllThatTheyDependOn)
{
    for (std::uintptr_t i = 11; i < 16; i++)
        add_fill(graph(1), i, i);
    add_edge(graph(1), 15, 11);
    add_edge(graph(1), 11, 13);
    add_edge(graph(1), 14, 13);
    EXPECT_EQ(whole(), "");
    // As they were made, where edges leave a choice.
    EXPECT_EQ(order(),
              (std::vector{node(12), node(14), node(15), node(11), node(13)}));
}

TEST_F(GraphSteps, OfACircleAreNone)
{
    add_fill(graph(1), 11, 1);
    add_fill(graph(1), 12, 1);
    add_edge(graph(1), 11, 12);
    add_edge(graph(1), 12, 11);
    EXPECT_EQ(whole(), "a graph of which the driver tells too little");
}

TEST_F(GraphSteps, OfKernelsWhoseOrderIsOpenAreNone)
{
    add_kernel(graph(1), 11);
    add_kernel(graph(1), 12);
    add_fill(graph(1), 13, 1);
    EXPECT_EQ(whole(), "a graph that leaves the order of kernels open");
    // By way of the fill, the second one waits for the first.
    add_edge(graph(1), 11, 13);
    EXPECT_EQ(whole(), "a graph that leaves the order of kernels open");
    add_edge(graph(1), 13, 12);
    EXPECT_EQ(whole(), "");
    EXPECT_EQ(order(), (std::vector{node(11), node(13), node(12)}));
}

TEST_F(GraphSteps, OfKernelsInAGraphBesideAnotherAreNone)
{
    add_kernel(graph(1), 11);
    add_child(graph(1), 12, graph(2));
    add_kernel(graph(2), 21);
    EXPECT_EQ(whole(), "a graph that leaves the order of kernels open");
    add_edge(graph(1), 12, 11);
    EXPECT_EQ(whole(), "");
}

TEST_F(GraphSteps, OfAGraphInAGraphNameItsNode)
{
    add_fill(graph(1), 11, 1);
    add_child(graph(1), 12, graph(2));
    add_fill(graph(2), 21, 1);
    add_fill(graph(2), 22, 1);
    add(graph(1), 13, CU_GRAPH_NODE_TYPE_EMPTY);
    const graph_steps found = steps();
    ASSERT_EQ(found.all.size(), 3U) << "an empty node is none";
    EXPECT_EQ(found.all[0].child, nullptr);
    EXPECT_EQ(found.all[1].child, node(12));
    EXPECT_EQ(found.all[2].child, node(12));
    EXPECT_EQ(found.all[2].node, node(22));
}

TEST_F(GraphSteps, OfOtherKindsAreNoneAndTheKindIsSaid)
{
    const std::pair<CUgraphNodeType, const char *> kinds[]{
        {CU_GRAPH_NODE_TYPE_HOST, "a graph that calls a function of the host"},
        {CU_GRAPH_NODE_TYPE_WAIT_EVENT, "a graph with events"},
        {CU_GRAPH_NODE_TYPE_EVENT_RECORD, "a graph with events"},
        {CU_GRAPH_NODE_TYPE_MEM_ALLOC, "a graph that allocates memory"},
        {CU_GRAPH_NODE_TYPE_MEM_FREE, "a graph that allocates memory"},
        {CU_GRAPH_NODE_TYPE_CONDITIONAL, "a graph with conditions"},
        {CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
         "a graph with a node of another kind"},
    };
    for (const auto &[kind, why] : kinds) {
        graphs.clear();
        add(graph(1), 11, kind);
        EXPECT_EQ(whole(), why);
    }
}

TEST_F(GraphSteps, ThatCopyPageableMemoryAreNone)
{
    add_copy(graph(1), 11);
    EXPECT_EQ(whole(), "");
    memory_type = 0;
    EXPECT_EQ(whole(), "a graph that copies pageable memory");
    nodes[node(11)].copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    EXPECT_EQ(whole(), "");
    nodes[node(11)].copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    EXPECT_EQ(whole(), "a graph that copies pageable memory");
}

TEST_F(GraphSteps, OfAnotherContextAreNone)
{
    add_kernel(graph(1), 11).kernel.ctx = number<CUcontext>(0x11);
    EXPECT_EQ(whole(), "a graph of another context");
    nodes[node(11)].kernel.ctx = context_;
    EXPECT_EQ(whole(), "");
}

TEST_F(GraphSteps, OfAKernelThatTheDeviceMayChangeAreNone)
{
    EMUV_ANSWER(cuGraphKernelNodeGetAttribute,
                [](CUgraphNode, CUlaunchAttributeID which,
                   CUlaunchAttributeValue *value) {
                    *value = {};
                    if (which ==
                        CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
                        value->deviceUpdatableKernelNode.deviceUpdatable = 1;
                    return CUDA_SUCCESS;
                });
    add_kernel(graph(1), 11);
    EXPECT_EQ(whole(), "a graph of which the driver tells too little");
}

TEST_F(GraphSteps, FillByTheirElementsAndRows)
{
    add_fill(graph(1), 11, 1);
    for (const unsigned bytes : {1U, 2U, 4U})
        for (const std::size_t height : {1U, 3U}) {
            nodes[node(11)].fill.elementSize = bytes;
            nodes[node(11)].fill.height = height;
            EXPECT_EQ(steps().all.front().run(nullptr), CUDA_SUCCESS);
        }
    EXPECT_EQ(calls, (std::vector<std::string>{"D8", "D2D8", "D16", "D2D16",
                                               "D32", "D2D32"}));
}

TEST_F(GraphSteps, CopyRowsAsRowsAndOneRowByItself)
{
    add_copy(graph(1), 11);
    EXPECT_EQ(steps().all.front().run(nullptr), CUDA_SUCCESS);
    nodes[node(11)].copy.Height = 2;
    EXPECT_EQ(steps().all.front().run(nullptr), CUDA_SUCCESS);
    nodes[node(11)].copy.Height = 1;
    nodes[node(11)].copy.srcY = 1;
    EXPECT_EQ(steps().all.front().run(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(calls, (std::vector<std::string>{"row", "rows", "rows"}));
}

TEST_F(GraphSteps, OfAKernelHaveTheValuesThatItsNodeHadThen)
{
    add_kernel(graph(1), 11);
    graph_steps found = steps();
    ASSERT_EQ(found.all.size(), 1U);
    values_[0] = 99;
    EXPECT_EQ(found.all[0].run(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(given, (std::vector<std::uint64_t>{11, 12}));
    // Until it takes over others.
    auto &kernel = std::get<kernel_step>(found.all[0].what);
    EXPECT_TRUE(kernel.take(nodes[node(11)].kernel));
    values_[0] = 0;
    given.clear();
    EXPECT_EQ(found.all[0].run(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(given, (std::vector<std::uint64_t>{99, 12}));
}

TEST_F(GraphSteps, OfAKernelMayRunWithTheMemoryThatItsFunctionIsSetTo)
{
    add_kernel(graph(1), 11).kernel.sharedMemBytes = 48 << 10;
    const auto may_run = [this] {
        return std::get<kernel_step>(steps().all.front().what).may_run();
    };
    EXPECT_TRUE(may_run()) << "all functions have as much";
    nodes[node(11)].kernel.sharedMemBytes = 64 << 10;
    EXPECT_FALSE(may_run());
    most_shared = 64 << 10;
    EXPECT_TRUE(may_run());
}
