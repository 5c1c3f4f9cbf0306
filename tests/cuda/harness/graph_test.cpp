// SPDX-License-Identifier: GPL-2.0-or-later
// Copies and fills as nodes that are added to graphs by hand, and in batches:
// the bytes are right, also across seams.
#include "fixture.hpp"
#include "mirror.hpp"

#include <algorithm>

namespace harness {
namespace {

// Two buffers, each of a size that, past the budget, must be split.
class AcrossAllocations : public Cuda
{
protected:
    void SetUp() override
    {
        Cuda::SetUp();
        OK(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        OK(cuda().cuMemAlloc(&spare, 4 * MiB));
        if (!beyond()) {
            const std::size_t bytes = physical() * 2 / 5 / 4 * 4 + 12;
            ASSERT_NO_FATAL_FAILURE(to.allocate(bytes, 1));
            ASSERT_NO_FATAL_FAILURE(from.allocate(bytes, 2));
            return;
        }
        // Each begins in a half of the budget, and ends beyond it.
        CUdeviceptr half = 0;
        const std::size_t bytes = physical() * 3 / 4 + 12;
        OK(cuda().cuMemAlloc(&half, physical() / 2 - 4 * MiB));
        ASSERT_NO_FATAL_FAILURE(to.allocate(bytes, 1));
        OK(cuda().cuMemFree(half));
        ASSERT_NO_FATAL_FAILURE(from.allocate(bytes, 2));
    }
    void TearDown() override
    {
        ASSERT_NO_FATAL_FAILURE(to.free());
        ASSERT_NO_FATAL_FAILURE(from.free());
        OK(cuda().cuMemFree(spare));
        OK(cuda().cuStreamDestroy(stream));
        Cuda::TearDown();
    }

    // A copy of so many bytes, in so many rows.
    CUDA_MEMCPY3D copy(std::size_t at, std::size_t width, std::size_t rows = 1,
                       std::size_t pitch = 0) const
    {
        CUDA_MEMCPY3D out{};
        out.srcMemoryType = out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        out.srcDevice = from.at() + at;
        out.dstDevice = to.at() + at;
        out.WidthInBytes = width;
        out.Height = rows;
        out.Depth = 1;
        out.srcPitch = out.dstPitch = pitch;
        return out;
    }
    void expect_copy(std::size_t at, std::size_t width, std::size_t rows = 1,
                     std::size_t pitch = 0)
    {
        for (std::size_t y = 0; y < rows; ++y)
            std::copy_n(from.model.begin() +
                            static_cast<std::ptrdiff_t>(at + y * pitch),
                        width,
                        to.model.begin() +
                            static_cast<std::ptrdiff_t>(at + y * pitch));
    }
    // A fill of whole words.
    CUDA_MEMSET_NODE_PARAMS fill_of(std::size_t at, std::size_t bytes,
                                    unsigned value) const
    {
        CUDA_MEMSET_NODE_PARAMS out{};
        out.dst = to.at() + at;
        out.value = value;
        out.elementSize = 4;
        out.width = bytes / 4;
        out.height = 1;
        return out;
    }
    void expect_fill(std::size_t at, std::size_t bytes, unsigned value)
    {
        for (std::size_t i = 0; i < bytes; ++i)
            to.model[at + i] = static_cast<unsigned char>(value >> (i % 4 * 8));
    }
    // Fills the destination with bytes that nothing here writes.
    void wipe()
    {
        OK(cuda().cuMemsetD8(to.at(), 0xee, to.bytes()));
        OK(cuda().cuCtxSynchronize());
        std::fill(to.model.begin(), to.model.end(),
                  static_cast<unsigned char>(0xee));
    }
    void launch(CUgraphExec exec)
    {
        OK(cuda().cuGraphLaunch(exec, stream));
        OK(cuda().cuStreamSynchronize(stream));
    }
    void launch_once(CUgraph graph)
    {
        CUgraphExec exec = nullptr;
        OK(cuda().cuGraphInstantiate(&exec, graph, 0));
        ASSERT_NO_FATAL_FAILURE(launch(exec));
        OK(cuda().cuGraphExecDestroy(exec));
    }
    std::size_t all() const { return to.bytes(); }

    mirror to, from;
    CUstream stream = nullptr;
    CUdeviceptr spare = 0; // VRAM that a test may have
    std::size_t count_ = 0;
};

using Nodes = AcrossAllocations;

TEST_F(Nodes, CopyAndFillWhateverTheyCross)
{
    CUgraph graph = nullptr;
    CUgraphNode fill = nullptr, line = nullptr, rows = nullptr;
    OK(cuda().cuGraphCreate(&graph, 0));
    const auto whole = fill_of(0, all(), 0x01020304);
    OK(cuda().cuGraphAddMemsetNode(&fill, graph, nullptr, 0, &whole, context));
    // All but the ends, so that the fill shows.
    const auto middle = copy(1001, all() / 2);
    OK(cuda().cuGraphAddMemcpyNode(&line, graph, &fill, 1, &middle, context));
    const std::size_t pitch = MiB + 512, count = all() / 2 / pitch;
    const auto block = copy(all() / 2 - 5, 70000, count, pitch);
    OK(cuda().cuGraphAddMemcpyNode(&rows, graph, &line, 1, &block, context));
    CUgraphExec exec = nullptr;
    OK(cuda().cuGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; ++round) {
        ASSERT_NO_FATAL_FAILURE(wipe());
        ASSERT_NO_FATAL_FAILURE(launch(exec));
        expect_fill(0, all(), 0x01020304);
        expect_copy(1001, all() / 2);
        expect_copy(all() / 2 - 5, 70000, count, pitch);
        ASSERT_NO_FATAL_FAILURE(to.check());
    }
    OK(cuda().cuGraphExecDestroy(exec));
    OK(cuda().cuGraphDestroy(graph));
}

TEST_F(Nodes, AreOfTheKindAndTheParametersTheyWereAddedWith)
{
    CUgraph graph = nullptr;
    CUgraphNode set = nullptr, line = nullptr;
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    OK(cuda().cuGraphCreate(&graph, 0));
    const auto fill = fill_of(0, all(), 7);
    const auto whole = copy(0, all());
    OK(cuda().cuGraphAddMemsetNode(&set, graph, nullptr, 0, &fill, context));
    OK(cuda().cuGraphAddMemcpyNode(&line, graph, &set, 1, &whole, context));
    CUDA_MEMSET_NODE_PARAMS got_fill{};
    CUDA_MEMCPY3D got{};
    OK(cuda().cuGraphNodeGetType(set, &type));
    EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_MEMSET);
    OK(cuda().cuGraphMemsetNodeGetParams(set, &got_fill));
    EXPECT_EQ(got_fill.dst, fill.dst);
    EXPECT_EQ(got_fill.width, fill.width);
    EXPECT_EQ(got_fill.value, fill.value);
    OK(cuda().cuGraphNodeGetType(line, &type));
    EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_MEMCPY);
    OK(cuda().cuGraphMemcpyNodeGetParams(line, &got));
    EXPECT_EQ(got.dstDevice, whole.dstDevice);
    EXPECT_EQ(got.srcDevice, whole.srcDevice);
    EXPECT_EQ(got.WidthInBytes, whole.WidthInBytes);
    OK(cuda().cuGraphDestroy(graph));
}

TEST_F(Nodes, CanBeChangedInTheirGraph)
{
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr, set = nullptr;
    OK(cuda().cuGraphCreate(&graph, 0));
    const auto fill = fill_of(0, 4, 1);
    OK(cuda().cuGraphAddMemsetNode(&set, graph, nullptr, 0, &fill, context));
    const auto first = copy(0, 16);
    OK(cuda().cuGraphAddMemcpyNode(&node, graph, &set, 1, &first, context));
    struct
    {
        std::size_t at, bytes;
    } const courses[] = {{0, all()}, {all() - 64, 64}, {8, all() - 8}, {0, 64}};
    for (const auto &[at, bytes] : courses) {
        const auto next = copy(at, bytes);
        const auto next_fill = fill_of(0, all(), 0x55667788);
        OK(cuda().cuGraphMemcpyNodeSetParams(node, &next));
        OK(cuda().cuGraphMemsetNodeSetParams(set, &next_fill));
        ASSERT_NO_FATAL_FAILURE(wipe());
        ASSERT_NO_FATAL_FAILURE(launch_once(graph));
        expect_fill(0, all(), 0x55667788);
        expect_copy(at, bytes);
        ASSERT_NO_FATAL_FAILURE(to.check());
    }
    OK(cuda().cuGraphDestroy(graph));
}

TEST_F(Nodes, CanBeChangedWhereTheyAreExecutable)
{
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr, set = nullptr;
    CUgraphExec exec = nullptr;
    OK(cuda().cuGraphCreate(&graph, 0));
    const auto fill = fill_of(0, all(), 1);
    OK(cuda().cuGraphAddMemsetNode(&set, graph, nullptr, 0, &fill, context));
    const auto first = copy(0, all());
    OK(cuda().cuGraphAddMemcpyNode(&node, graph, &set, 1, &first, context));
    OK(cuda().cuGraphInstantiate(&exec, graph, 0));
    struct
    {
        std::size_t at, bytes;
    } const courses[] = {
        {0, 64}, {all() - 64, 64}, {8, all() - 8}, {4096, 4096}, {0, all()}};
    unsigned value = 0x01010101;
    for (const auto &[at, bytes] : courses) {
        const auto next = copy(at, bytes);
        // Of a fill, more than its value may not be changed.
        const auto next_fill = fill_of(0, all(), value);
        OK(cuda().cuGraphExecMemcpyNodeSetParams(exec, node, &next, context));
        OK(cuda().cuGraphExecMemsetNodeSetParams(exec, set, &next_fill,
                                                 context));
        ASSERT_NO_FATAL_FAILURE(wipe());
        ASSERT_NO_FATAL_FAILURE(launch(exec));
        expect_fill(0, all(), value);
        expect_copy(at, bytes);
        ASSERT_NO_FATAL_FAILURE(to.check());
        value += 0x01010101;
    }
    OK(cuda().cuGraphExecDestroy(exec));
    OK(cuda().cuGraphDestroy(graph));
}

TEST_F(Nodes, DoTheSameByTheirGenericNames)
{
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr, set = nullptr;
    CUgraphExec exec = nullptr;
    OK(cuda().cuGraphCreate(&graph, 0));
    CUgraphNodeParams fill{};
    fill.type = CU_GRAPH_NODE_TYPE_MEMSET;
    fill.memset.dst = to.at();
    fill.memset.elementSize = 4;
    fill.memset.width = all() / 4;
    fill.memset.height = 1;
    fill.memset.value = 3;
    fill.memset.ctx = context;
    OK(cuda().cuGraphAddNode(&set, graph, nullptr, nullptr, 0, &fill));
    CUgraphNodeParams line{};
    line.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    line.memcpy.copyCtx = context;
    line.memcpy.copyParams = copy(0, 16);
    OK(cuda().cuGraphAddNode(&node, graph, &set, nullptr, 1, &line));
    line.memcpy.copyParams = copy(4, all() - 4);
    OK(cuda().cuGraphNodeSetParams(node, &line));
    OK(cuda().cuGraphInstantiate(&exec, graph, 0));
    ASSERT_NO_FATAL_FAILURE(wipe());
    ASSERT_NO_FATAL_FAILURE(launch(exec));
    expect_fill(0, all(), 3);
    expect_copy(4, all() - 4);
    ASSERT_NO_FATAL_FAILURE(to.check());
    line.memcpy.copyParams = copy(0, all() / 2);
    OK(cuda().cuGraphExecNodeSetParams(exec, node, &line));
    ASSERT_NO_FATAL_FAILURE(launch(exec));
    expect_fill(0, all(), 3);
    expect_copy(0, all() / 2);
    ASSERT_NO_FATAL_FAILURE(to.check());
    OK(cuda().cuGraphExecDestroy(exec));
    OK(cuda().cuGraphDestroy(graph));
}

TEST_F(Nodes, ComeAfterWhateverIsPutBeforeThemLater)
{
    CUgraph graph = nullptr;
    CUgraphNode line = nullptr, set = nullptr;
    OK(cuda().cuGraphCreate(&graph, 0));
    const auto whole = copy(0, all());
    OK(cuda().cuGraphAddMemcpyNode(&line, graph, nullptr, 0, &whole, context));
    const auto fill = fill_of(0, all(), 9);
    OK(cuda().cuGraphAddMemsetNode(&set, graph, nullptr, 0, &fill, context));
    OK(cuda().cuGraphAddDependencies(graph, &set, &line, nullptr, 1));
    ASSERT_NO_FATAL_FAILURE(wipe());
    ASSERT_NO_FATAL_FAILURE(launch_once(graph));
    expect_copy(0, all());
    ASSERT_NO_FATAL_FAILURE(to.check());
    // And the other way round.
    OK(cuda().cuGraphRemoveDependencies(graph, &set, &line, nullptr, 1));
    OK(cuda().cuGraphAddDependencies(graph, &line, &set, nullptr, 1));
    ASSERT_NO_FATAL_FAILURE(wipe());
    ASSERT_NO_FATAL_FAILURE(launch_once(graph));
    expect_fill(0, all(), 9);
    ASSERT_NO_FATAL_FAILURE(to.check());
    OK(cuda().cuGraphDestroy(graph));
}

TEST_F(Nodes, AreWholeInACopyOfTheirGraph)
{
    CUgraph graph = nullptr, clone = nullptr;
    CUgraphNode line = nullptr, there = nullptr;
    OK(cuda().cuGraphCreate(&graph, 0));
    const auto whole = copy(0, all());
    OK(cuda().cuGraphAddMemcpyNode(&line, graph, nullptr, 0, &whole, context));
    OK(cuda().cuGraphClone(&clone, graph));
    OK(cuda().cuGraphDestroy(graph));
    OK(cuda().cuGraphGetNodes(clone, nullptr, &count_));
    ASSERT_GE(count_, 1u);
    // The copy that the program knows is the last to be reached.
    std::vector<CUgraphNode> nodes(count_);
    OK(cuda().cuGraphGetNodes(clone, nodes.data(), &count_));
    CUDA_MEMCPY3D got{};
    for (CUgraphNode one : nodes)
        if (cuda().cuGraphMemcpyNodeGetParams(one, &got) == CUDA_SUCCESS &&
            got.WidthInBytes == all())
            there = one;
    ASSERT_NE(there, nullptr);
    const auto part = copy(100, all() - 100);
    OK(cuda().cuGraphMemcpyNodeSetParams(there, &part));
    ASSERT_NO_FATAL_FAILURE(wipe());
    ASSERT_NO_FATAL_FAILURE(launch_once(clone));
    expect_copy(100, all() - 100);
    ASSERT_NO_FATAL_FAILURE(to.check());
    OK(cuda().cuGraphDestroy(clone));
}

TEST_F(Nodes, GoWhole)
{
    CUgraph graph = nullptr;
    CUgraphNode line = nullptr;
    OK(cuda().cuGraphCreate(&graph, 0));
    const auto whole = copy(0, all());
    OK(cuda().cuGraphAddMemcpyNode(&line, graph, nullptr, 0, &whole, context));
    OK(cuda().cuGraphDestroyNode(line));
    OK(cuda().cuGraphGetNodes(graph, nullptr, &count_));
    EXPECT_EQ(count_, 0u);
    OK(cuda().cuGraphDestroy(graph));
}

TEST_F(Nodes, CanBeDisabledAndEnabledAgain)
{
    CUgraph graph = nullptr;
    CUgraphNode line = nullptr;
    CUgraphExec exec = nullptr;
    unsigned enabled = 9;
    OK(cuda().cuGraphCreate(&graph, 0));
    const auto whole = copy(0, all());
    OK(cuda().cuGraphAddMemcpyNode(&line, graph, nullptr, 0, &whole, context));
    OK(cuda().cuGraphInstantiate(&exec, graph, 0));
    const auto part = copy(0, 64);
    OK(cuda().cuGraphExecMemcpyNodeSetParams(exec, line, &part, context));
    OK(cuda().cuGraphNodeGetEnabled(exec, line, &enabled));
    EXPECT_EQ(enabled, 1u);
    OK(cuda().cuGraphNodeSetEnabled(exec, line, 0));
    OK(cuda().cuGraphNodeGetEnabled(exec, line, &enabled));
    EXPECT_EQ(enabled, 0u);
    ASSERT_NO_FATAL_FAILURE(wipe());
    ASSERT_NO_FATAL_FAILURE(launch(exec));
    ASSERT_NO_FATAL_FAILURE(to.check());
    OK(cuda().cuGraphNodeSetEnabled(exec, line, 1));
    ASSERT_NO_FATAL_FAILURE(launch(exec));
    expect_copy(0, 64);
    ASSERT_NO_FATAL_FAILURE(to.check());
    // As the graph has it again.
    CUgraphExecUpdateResultInfo result{};
    OK(cuda().cuGraphExecUpdate(exec, graph, &result));
    ASSERT_NO_FATAL_FAILURE(launch(exec));
    expect_copy(0, all());
    ASSERT_NO_FATAL_FAILURE(to.check());
    OK(cuda().cuGraphExecDestroy(exec));
    OK(cuda().cuGraphDestroy(graph));
}

using Batches = AcrossAllocations;

TEST_F(Batches, CopyWhateverTheyCross)
{
    // Three of them, under two sets of attributes, the second one whole.
    const std::size_t third = all() / 3;
    std::vector<unsigned char> host(third);
    for (std::size_t i = 0; i < third; ++i)
        host[i] = static_cast<unsigned char>(i * 7);
    CUdeviceptr dsts[] = {to.at(), to.at() + third, to.at() + 2 * third};
    CUdeviceptr srcs[] = {from.at() + third,
                          reinterpret_cast<CUdeviceptr>(host.data()),
                          from.at() + 3};
    std::size_t sizes[] = {third, third, third};
    CUmemcpyAttributes attributes[2] = {};
    attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    std::size_t firsts[] = {0, 1};
    ASSERT_NO_FATAL_FAILURE(wipe());
    OK(cuda().cuMemcpyBatchAsync(dsts, srcs, sizes, 3, attributes, firsts, 2,
                                 stream));
    OK(cuda().cuStreamSynchronize(stream));
    const auto n = static_cast<std::ptrdiff_t>(third);
    std::copy_n(from.model.begin() + n, n, to.model.begin());
    std::copy_n(host.begin(), n, to.model.begin() + n);
    std::copy_n(from.model.begin() + 3, n, to.model.begin() + 2 * n);
    ASSERT_NO_FATAL_FAILURE(to.check());
}

TEST_F(Batches, OfSeveralDimensionsCopyWhateverTheyCross)
{
    const std::size_t pitch = MiB / 2 + 64, rows = 3;
    const std::size_t planes = all() / (pitch * rows);
    CUDA_MEMCPY3D_BATCH_OP list[1] = {};
    list[0].src.type = list[0].dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    list[0].src.op.ptr.ptr = from.at();
    list[0].dst.op.ptr.ptr = to.at();
    list[0].src.op.ptr.rowLength = list[0].dst.op.ptr.rowLength = pitch;
    list[0].src.op.ptr.layerHeight = list[0].dst.op.ptr.layerHeight = rows;
    list[0].extent = {pitch - 33, rows - 1, planes};
    list[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    ASSERT_NO_FATAL_FAILURE(wipe());
    OK(cuda().cuMemcpy3DBatchAsync(1, list, 0, stream));
    OK(cuda().cuStreamSynchronize(stream));
    for (std::size_t z = 0; z < planes; ++z)
        expect_copy(z * rows * pitch, pitch - 33, rows - 1, pitch);
    ASSERT_NO_FATAL_FAILURE(to.check());
}

TEST_F(Batches, ReadAndWriteArraysAcrossAnyPlace)
{
    CUDA_ARRAY_DESCRIPTOR shape{};
    shape.Width = 64;
    shape.Height = 2;
    shape.Format = CU_AD_FORMAT_UNSIGNED_INT32;
    shape.NumChannels = 2;
    CUarray array = nullptr;
    OK(cuda().cuMemFree(spare));
    OK(cuda().cuArrayCreate(&array, &shape));
    ASSERT_NO_FATAL_FAILURE(wipe());
    // Two rows of 64 elements of 8 bytes, over every chunk's edge.
    for (std::size_t edge = 2 * MiB; edge + 2048 < all(); edge += 2 * MiB) {
        CUDA_MEMCPY3D_BATCH_OP there{};
        there.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
        there.src.op.ptr.ptr = from.at() + edge - 256;
        there.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
        there.dst.op.array.array = array;
        there.extent = {64, 2, 1};
        there.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        CUDA_MEMCPY3D_BATCH_OP back = there;
        std::swap(back.src, back.dst);
        back.dst.op.ptr.ptr = to.at() + edge - 256;
        OK(cuda().cuMemcpy3DBatchAsync(1, &there, 0, stream));
        OK(cuda().cuMemcpy3DBatchAsync(1, &back, 0, stream));
        expect_copy(edge - 256, 1024);
    }
    OK(cuda().cuStreamSynchronize(stream));
    ASSERT_NO_FATAL_FAILURE(to.check());
    OK(cuda().cuArrayDestroy(array));
    OK(cuda().cuMemAlloc(&spare, 4 * MiB));
}

} // namespace
} // namespace harness
