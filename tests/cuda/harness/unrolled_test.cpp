// SPDX-License-Identifier: GPL-2.0-or-later
// Executable graphs over more memory than VRAM has. The bytes are right, as a
// whole and step by step.
#include "fixture.hpp"

#include <algorithm>
#include <vector>

namespace harness {
namespace {

class GraphSteps : public Cuda
{
protected:
    void SetUp() override
    {
        Cuda::SetUp();
        for (CUstream &each : streams)
            OK(cuda().cuStreamCreate(&each, CU_STREAM_NON_BLOCKING));
        OK(cuda().cuModuleGetFunction(&add_to, module, "add"));
        // Twice of what VRAM has, where there is as much.
        const std::size_t all =
            2 * physical() <= reachable() ? 2 * physical() : physical() / 2;
        const std::size_t bytes = all / count / (2 * MiB) * (2 * MiB);
        words = bytes / 4;
        for (std::uint32_t i = 0; i < count; ++i) {
            CUdeviceptr at = 0;
            OK(cuda().cuMemAlloc(&at, bytes));
            OK(fill(at, words, i));
            buffers.push_back(at);
            expected.push_back(0);
        }
        OK(cuda().cuCtxSynchronize());
    }
    void TearDown() override
    {
        for (const CUdeviceptr each : buffers)
            OK(cuda().cuMemFree(each));
        for (CUstream each : streams)
            OK(cuda().cuStreamDestroy(each));
        Cuda::TearDown();
    }

    // Every buffer has what it was filled with, and what was added.
    void check() const
    {
        OK(cuda().cuCtxSynchronize());
        for (std::uint32_t i = 0; i < count; ++i) {
            std::vector<std::uint32_t> got(words);
            OK(cuda().cuMemcpyDtoH(got.data(), buffers[i], words * 4));
            const std::size_t at =
                first_other_word(got.data(), words, i, expected[i]);
            if (at < words)
                FAIL() << "word " << at << " of buffer " << i << " is "
                       << got[at] << ", not " << pattern(i, at) + expected[i];
        }
    }

    template <typename Work>
    void capture(CUgraph &graph, Work work) const
    {
        OK(cuda().cuStreamBeginCapture(streams[0],
                                       CU_STREAM_CAPTURE_MODE_RELAXED));
        ASSERT_NO_FATAL_FAILURE(work());
        OK(cuda().cuStreamEndCapture(streams[0], &graph));
    }
    // A graph that adds to each buffer its number and @p more.
    void capture_adds(CUgraph &graph, std::uint32_t more) const
    {
        capture(graph, [&] {
            for (std::uint32_t i = 0; i < count; ++i)
                OK(add(buffers[i], words, i + more, streams[0]));
        });
    }
    void expect_adds(std::uint32_t more)
    {
        for (std::uint32_t i = 0; i < count; ++i)
            expected[i] += i + more;
    }

    // The parameters of a node that adds. They stay while they are used.
    struct adding
    {
        CUdeviceptr at;
        std::uint64_t words;
        std::uint32_t value;
        void *each[3] = {&at, &words, &value};

        CUDA_KERNEL_NODE_PARAMS params(CUfunction function)
        {
            CUDA_KERNEL_NODE_PARAMS out{};
            out.func = function;
            out.gridDimX = static_cast<unsigned>((words + block_threads - 1) /
                                                 block_threads);
            out.gridDimY = out.gridDimZ = 1;
            out.blockDimX = block_threads;
            out.blockDimY = out.blockDimZ = 1;
            out.kernelParams = each;
            return out;
        }
    };
    void add_node(CUgraph graph, const std::vector<CUgraphNode> &after,
                  std::size_t buffer, std::uint32_t value, CUgraphNode &made)
    {
        adding given{buffers[buffer], words, value};
        const CUDA_KERNEL_NODE_PARAMS params = given.params(add_to);
        OK(cuda().cuGraphAddKernelNode(&made, graph, after.data(), after.size(),
                                       &params));
    }
    CUDA_MEMCPY3D copy_of(std::size_t to, std::size_t from) const
    {
        CUDA_MEMCPY3D out{};
        out.srcMemoryType = out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        out.srcDevice = buffers[from];
        out.dstDevice = buffers[to];
        out.WidthInBytes = words * 4;
        out.Height = out.Depth = 1;
        return out;
    }

    static constexpr std::uint32_t count = 8;
    static constexpr int rounds = 12;
    CUstream streams[2] = {};
    CUfunction add_to = nullptr;
    std::size_t words = 0; // of each buffer
    std::vector<CUdeviceptr> buffers;
    std::vector<std::uint32_t> expected; // added to each
};

} // namespace

TEST_F(GraphSteps, AddUpWhatTheirStepsWould)
{
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    ASSERT_NO_FATAL_FAILURE(capture_adds(graph, 3));
    OK(cuda().cuGraphInstantiate(&exec, graph, 0));
    OK(cuda().cuGraphDestroy(graph));
    for (int round = 0; round < rounds; ++round) {
        OK(cuda().cuGraphLaunch(exec, streams[0]));
        expect_adds(3);
    }
    ASSERT_NO_FATAL_FAILURE(check());
    OK(cuda().cuGraphExecDestroy(exec));
}

TEST_F(GraphSteps, TakeOverTheParametersOfOthers)
{
    CUgraph first = nullptr, second = nullptr;
    CUgraphExec exec = nullptr;
    ASSERT_NO_FATAL_FAILURE(capture_adds(first, 3));
    ASSERT_NO_FATAL_FAILURE(capture_adds(second, 40));
    OK(cuda().cuGraphInstantiate(&exec, first, 0));
    for (int round = 0; round < rounds; ++round) {
        const bool odd = round % 2 != 0;
        CUgraphExecUpdateResultInfo how{};
        OK(cuda().cuGraphExecUpdate(exec, odd ? second : first, &how));
        OK(cuda().cuGraphLaunch(exec, streams[0]));
        expect_adds(odd ? 40 : 3);
    }
    ASSERT_NO_FATAL_FAILURE(check());
    OK(cuda().cuGraphExecDestroy(exec));
    OK(cuda().cuGraphDestroy(first));
    OK(cuda().cuGraphDestroy(second));
}

TEST_F(GraphSteps, TakeOverAKernelsParameters)
{
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    OK(cuda().cuGraphCreate(&graph, 0));
    std::vector<CUgraphNode> nodes;
    for (std::uint32_t i = 0; i < count; ++i) {
        CUgraphNode made = nullptr;
        const std::vector<CUgraphNode> after(
            nodes.end() - std::min<std::ptrdiff_t>(1, i), nodes.end());
        ASSERT_NO_FATAL_FAILURE(add_node(graph, after, i, 1, made));
        nodes.push_back(made);
    }
    OK(cuda().cuGraphInstantiate(&exec, graph, 0));
    for (std::uint32_t round = 0; round < rounds; ++round) {
        // Another value, and another buffer.
        const std::size_t which = round % count;
        const std::size_t other = (which + 1) % count;
        {
            adding given{buffers[other], words, 100 + round};
            const CUDA_KERNEL_NODE_PARAMS params = given.params(add_to);
            if (round % 2 == 0) {
                OK(cuda().cuGraphExecKernelNodeSetParams(exec, nodes[which],
                                                         &params));
            } else {
                CUgraphNodeParams any{};
                any.type = CU_GRAPH_NODE_TYPE_KERNEL;
                any.kernel.func = params.func;
                any.kernel.gridDimX = params.gridDimX;
                any.kernel.gridDimY = any.kernel.gridDimZ = 1;
                any.kernel.blockDimX = params.blockDimX;
                any.kernel.blockDimY = any.kernel.blockDimZ = 1;
                any.kernel.kernelParams = params.kernelParams;
                OK(cuda().cuGraphExecNodeSetParams(exec, nodes[which], &any));
            }
            given.value = 9999; // taken over by now
        }
        OK(cuda().cuGraphLaunch(exec, streams[0]));
        for (std::size_t i = 0; i < count; ++i)
            if (i != which)
                expected[i] += 1;
        expected[other] += 100 + round;
        adding back{buffers[which], words, 1};
        const CUDA_KERNEL_NODE_PARAMS params = back.params(add_to);
        OK(cuda().cuGraphExecKernelNodeSetParams(exec, nodes[which], &params));
    }
    ASSERT_NO_FATAL_FAILURE(check());
    OK(cuda().cuGraphExecDestroy(exec));
    OK(cuda().cuGraphDestroy(graph));
}

// As libraries do whose work others capture, a part at a time.
TEST_F(GraphSteps, RunTheGraphsInThem)
{
    CUgraph inner = nullptr, middle = nullptr, outer = nullptr;
    CUgraphExec exec = nullptr;
    ASSERT_NO_FATAL_FAILURE(capture_adds(inner, 3));
    CUgraphNode first = nullptr, second = nullptr, third = nullptr;
    OK(cuda().cuGraphCreate(&middle, 0));
    OK(cuda().cuGraphAddChildGraphNode(&first, middle, nullptr, 0, inner));
    ASSERT_NO_FATAL_FAILURE(add_node(middle, {first}, 1, 7, second));
    OK(cuda().cuGraphCreate(&outer, 0));
    ASSERT_NO_FATAL_FAILURE(add_node(outer, {}, 0, 5, first));
    OK(cuda().cuGraphAddChildGraphNode(&second, outer, &first, 1, middle));
    OK(cuda().cuGraphAddChildGraphNode(&third, outer, &second, 1, inner));
    OK(cuda().cuGraphInstantiate(&exec, outer, 0));
    for (CUgraph each : {inner, middle, outer})
        OK(cuda().cuGraphDestroy(each));
    for (int round = 0; round < rounds; ++round) {
        OK(cuda().cuGraphLaunch(exec, streams[0]));
        expect_adds(3);
        expect_adds(3);
        expected[0] += 5;
        expected[1] += 7;
    }
    ASSERT_NO_FATAL_FAILURE(check());
    OK(cuda().cuGraphExecDestroy(exec));
}

TEST_F(GraphSteps, TakeOverAnotherGraphForOneInThem)
{
    CUgraph some = nullptr, others = nullptr, outer = nullptr;
    CUgraphExec exec = nullptr;
    ASSERT_NO_FATAL_FAILURE(capture_adds(some, 3));
    ASSERT_NO_FATAL_FAILURE(capture_adds(others, 40));
    CUgraphNode first = nullptr, second = nullptr, third = nullptr;
    OK(cuda().cuGraphCreate(&outer, 0));
    OK(cuda().cuGraphAddChildGraphNode(&first, outer, nullptr, 0, some));
    ASSERT_NO_FATAL_FAILURE(add_node(outer, {first}, 0, 5, second));
    OK(cuda().cuGraphAddChildGraphNode(&third, outer, &second, 1, some));
    OK(cuda().cuGraphInstantiate(&exec, outer, 0));
    for (int round = 0; round < rounds; ++round) {
        const bool odd = round % 2 != 0;
        OK(cuda().cuGraphExecChildGraphNodeSetParams(exec, third,
                                                     odd ? others : some));
        OK(cuda().cuGraphLaunch(exec, streams[0]));
        expect_adds(3);
        expect_adds(odd ? 40 : 3);
        expected[0] += 5;
    }
    // And for one kernel of one of them.
    CUgraph inner = nullptr;
    OK(cuda().cuGraphChildGraphNodeGetGraph(first, &inner));
    CUgraphNode nodes[count] = {};
    std::size_t got = count;
    OK(cuda().cuGraphGetNodes(inner, nodes, &got));
    ASSERT_EQ(got, std::size_t{count});
    adding given{buffers[0], words, 500};
    const CUDA_KERNEL_NODE_PARAMS params = given.params(add_to);
    OK(cuda().cuGraphExecKernelNodeSetParams(exec, nodes[0], &params));
    OK(cuda().cuGraphLaunch(exec, streams[0]));
    expect_adds(3);
    expect_adds(40);
    expected[0] += 5 + 500 - 3;
    ASSERT_NO_FATAL_FAILURE(check());
    OK(cuda().cuGraphExecDestroy(exec));
    for (CUgraph each : {some, others, outer})
        OK(cuda().cuGraphDestroy(each));
}

// The driver never runs an executable graph beside itself.
TEST_F(GraphSteps, LaunchedOnTwoStreamsFollowEachOther)
{
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    ASSERT_NO_FATAL_FAILURE(capture(graph, [&] {
        for (std::uint32_t i = 0; i < count; ++i) {
            OK(fill(buffers[i], words, i, streams[0]));
            OK(add(buffers[i], words, i + 1, streams[0]));
        }
    }));
    OK(cuda().cuGraphInstantiate(&exec, graph, 0));
    OK(cuda().cuGraphDestroy(graph));
    for (int round = 0; round < 2 * rounds; ++round)
        OK(cuda().cuGraphLaunch(exec, streams[round % 2]));
    for (std::uint32_t i = 0; i < count; ++i)
        expected[i] = i + 1;
    ASSERT_NO_FATAL_FAILURE(check());
    OK(cuda().cuGraphExecDestroy(exec));
}

TEST_F(GraphSteps, RunBothBranchesBeforeWhatFollowsThem)
{
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    OK(cuda().cuGraphCreate(&graph, 0));
    CUgraphNode joined = nullptr;
    CUgraphNode copied = nullptr;
    CUgraphNode filled = nullptr;
    CUgraphNode added = nullptr;
    // Made last to first, so their order is not the one that they run in.
    const CUDA_MEMCPY3D copy = copy_of(2, 0);
    OK(cuda().cuGraphAddMemcpyNode(&copied, graph, nullptr, 0, &copy, context));
    ASSERT_NO_FATAL_FAILURE(add_node(graph, {}, 0, 5, added));
    CUDA_MEMSET_NODE_PARAMS filling{};
    filling.dst = buffers[3];
    filling.elementSize = 4;
    filling.value = 77;
    filling.width = words;
    filling.height = 1;
    OK(cuda().cuGraphAddMemsetNode(&filled, graph, nullptr, 0, &filling,
                                   context));
    const std::vector<CUgraphNode> both{copied, filled};
    ASSERT_NO_FATAL_FAILURE(add_node(graph, both, 3, 6, joined));
    OK(cuda().cuGraphAddDependencies(graph, &added, &copied, nullptr, 1));
    OK(cuda().cuGraphInstantiate(&exec, graph, 0));
    OK(cuda().cuGraphDestroy(graph));
    for (int round = 0; round < rounds; ++round) {
        OK(cuda().cuGraphLaunch(exec, streams[0]));
        expected[0] += 5;
    }
    OK(cuda().cuCtxSynchronize());
    std::vector<std::uint32_t> got(words);
    OK(cuda().cuMemcpyDtoH(got.data(), buffers[2], words * 4));
    for (std::size_t i = 0; i < words; ++i)
        ASSERT_EQ(got[i], pattern(0, i) + expected[0]) << "word " << i;
    OK(cuda().cuMemcpyDtoH(got.data(), buffers[3], words * 4));
    for (std::size_t i = 0; i < words; ++i)
        ASSERT_EQ(got[i], 77u + 6u) << "word " << i;
    // As at first, for the check of all.
    OK(fill(buffers[2], words, 2));
    OK(fill(buffers[3], words, 3));
    ASSERT_NO_FATAL_FAILURE(check());
    OK(cuda().cuGraphExecDestroy(exec));
}

TEST_F(GraphSteps, LeaveOutWhatIsDisabled)
{
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    OK(cuda().cuGraphCreate(&graph, 0));
    CUgraphNode first = nullptr, second = nullptr;
    ASSERT_NO_FATAL_FAILURE(add_node(graph, {}, 0, 5, first));
    ASSERT_NO_FATAL_FAILURE(add_node(graph, {first}, 1, 6, second));
    OK(cuda().cuGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < rounds; ++round) {
        // At first as it was made.
        const bool runs = round < 3 || round % 3 != 0;
        if (round >= 3)
            OK(cuda().cuGraphNodeSetEnabled(exec, second, runs));
        OK(cuda().cuGraphLaunch(exec, streams[0]));
        expected[0] += 5;
        expected[1] += runs ? 6 : 0;
    }
    ASSERT_NO_FATAL_FAILURE(check());
    OK(cuda().cuGraphExecDestroy(exec));
    OK(cuda().cuGraphDestroy(graph));
}

TEST_F(GraphSteps, GoOnWithTheirStepsOnceTheyAreDestroyed)
{
    for (int round = 0; round < rounds; ++round) {
        CUgraph graph = nullptr;
        CUgraphExec exec = nullptr;
        ASSERT_NO_FATAL_FAILURE(capture_adds(graph, 3));
        OK(cuda().cuGraphInstantiate(&exec, graph, 0));
        OK(cuda().cuGraphLaunch(exec, streams[0]));
        expect_adds(3);
        OK(cuda().cuGraphExecDestroy(exec));
        OK(cuda().cuGraphDestroy(graph));
    }
    ASSERT_NO_FATAL_FAILURE(check());
}

// The function of a host's node may tell the program what has been done.
TEST_F(GraphSteps, WithAHostsFunctionRunAsAWhole)
{
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    OK(cuda().cuGraphCreate(&graph, 0));
    CUgraphNode first = nullptr, called = nullptr, second = nullptr;
    int calls = 0;
    ASSERT_NO_FATAL_FAILURE(add_node(graph, {}, 0, 5, first));
    CUDA_HOST_NODE_PARAMS host{};
    host.fn = [](void *given) { ++*static_cast<int *>(given); };
    host.userData = &calls;
    OK(cuda().cuGraphAddHostNode(&called, graph, &first, 1, &host));
    ASSERT_NO_FATAL_FAILURE(add_node(graph, {called}, 1, 6, second));
    OK(cuda().cuGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < rounds; ++round) {
        OK(cuda().cuGraphLaunch(exec, streams[round % 2]));
        expected[0] += 5;
        expected[1] += 6;
    }
    ASSERT_NO_FATAL_FAILURE(check());
    EXPECT_EQ(calls, rounds);
    OK(cuda().cuGraphExecDestroy(exec));
    OK(cuda().cuGraphDestroy(graph));
}

} // namespace harness
