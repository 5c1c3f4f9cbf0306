// SPDX-License-Identifier: GPL-2.0-or-later
// Two devices, each with memory of its own that is larger than its budget:
// traffic between them, with and without access to each other's.
#include "fixture.hpp"
#include "mirror.hpp"

namespace harness {
namespace {

class Peers : public Cuda
{
protected:
    void SetUp() override
    {
        Cuda::SetUp();
        int devices = 0;
        OK(cuda().cuDeviceGetCount(&devices));
        if (devices < 2)
            GTEST_SKIP() << "one device";
        OK(cuda().cuDevicePrimaryCtxRetain(&other, 1));
        OK(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    }
    void TearDown() override
    {
        if (other) {
            OK(cuda().cuStreamDestroy(stream));
            OK(cuda().cuDevicePrimaryCtxRelease(1));
        }
        Cuda::TearDown();
    }

    // More than the budget of one device, if there is more to be had.
    std::size_t bytes() const
    {
        return (beyond() ? physical() + physical() / 4 : physical() / 2) / 4 *
                   4 +
               12;
    }
    void allocate_there(mirror &there, std::uint32_t kind)
    {
        OK(cuda().cuCtxPushCurrent(other));
        ASSERT_NO_FATAL_FAILURE(there.allocate(bytes(), kind));
        OK(cuda().cuCtxPopCurrent(nullptr));
    }
    void check_there(const mirror &there)
    {
        OK(cuda().cuCtxPushCurrent(other));
        ASSERT_NO_FATAL_FAILURE(there.check());
        OK(cuda().cuCtxPopCurrent(nullptr));
    }
    void free_there(mirror &there)
    {
        OK(cuda().cuCtxPushCurrent(other));
        ASSERT_NO_FATAL_FAILURE(there.free());
        OK(cuda().cuCtxPopCurrent(nullptr));
    }
    bool can_access()
    {
        int can = 0, can_back = 0;
        EXPECT_EQ(cuda().cuDeviceCanAccessPeer(&can, 0, 1), CUDA_SUCCESS);
        EXPECT_EQ(cuda().cuDeviceCanAccessPeer(&can_back, 1, 0), CUDA_SUCCESS);
        return can != 0 && can_back != 0;
    }
    // This device writes the other's memory: by a copy of its own, and by a
    // kernel.
    void write_there(mirror &there)
    {
        std::vector<unsigned char> data(bytes(), 0x3c);
        OK(cuda().cuMemcpyHtoDAsync(there.at(), data.data(), data.size(),
                                    stream));
        there.model = data;
        OK(add(there.at(), there.bytes() / 4, 5, stream));
        OK(cuda().cuStreamSynchronize(stream));
        there.add(5);
    }

    CUcontext other = nullptr;
    CUstream stream = nullptr;
};

TEST_F(Peers, CopyToEachOtherWithoutAccess)
{
    mirror here, there;
    ASSERT_NO_FATAL_FAILURE(here.allocate(bytes(), 1));
    ASSERT_NO_FATAL_FAILURE(allocate_there(there, 2));
    OK(cuda().cuMemcpyDtoD(there.at(), here.at(), bytes()));
    OK(cuda().cuCtxSynchronize());
    there.model = here.model;
    ASSERT_NO_FATAL_FAILURE(check_there(there));
    OK(cuda().cuMemsetD8(here.at(), 7, bytes()));
    OK(cuda().cuCtxSynchronize());
    OK(cuda().cuMemcpyAsync(here.at(), there.at(), bytes(), stream));
    OK(cuda().cuStreamSynchronize(stream));
    ASSERT_NO_FATAL_FAILURE(here.check());
    OK(cuda().cuMemcpyDtoDAsync(there.at() + 4, here.at(), bytes() - 4,
                                stream));
    OK(cuda().cuStreamSynchronize(stream));
    std::copy(here.model.begin(), here.model.end() - 4,
              there.model.begin() + 4);
    ASSERT_NO_FATAL_FAILURE(check_there(there));
    ASSERT_NO_FATAL_FAILURE(here.free());
    ASSERT_NO_FATAL_FAILURE(free_there(there));
}

TEST_F(Peers, CopyBetweenContextsInEveryWay)
{
    mirror here, there;
    ASSERT_NO_FATAL_FAILURE(here.allocate(bytes(), 3));
    ASSERT_NO_FATAL_FAILURE(allocate_there(there, 4));
    OK(cuda().cuMemcpyPeer(there.at(), other, here.at(), context, bytes()));
    OK(cuda().cuCtxSynchronize());
    there.model = here.model;
    ASSERT_NO_FATAL_FAILURE(check_there(there));
    const std::size_t pitch = MiB + 64, rows = bytes() / pitch;
    CUDA_MEMCPY3D_PEER block{};
    block.srcMemoryType = block.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    block.srcContext = other;
    block.dstContext = context;
    block.srcDevice = there.at();
    block.dstDevice = here.at();
    block.srcPitch = block.dstPitch = pitch;
    block.WidthInBytes = pitch - 99;
    block.Height = rows;
    block.Depth = 1;
    OK(cuda().cuMemsetD8(here.at(), 9, bytes()));
    OK(cuda().cuCtxSynchronize());
    OK(cuda().cuMemcpy3DPeerAsync(&block, stream));
    OK(cuda().cuStreamSynchronize(stream));
    std::fill(here.model.begin(), here.model.end(),
              static_cast<unsigned char>(9));
    for (std::size_t y = 0; y < rows; ++y) {
        const auto at = static_cast<std::ptrdiff_t>(y * pitch);
        std::copy_n(there.model.begin() + at, pitch - 99,
                    here.model.begin() + at);
    }
    ASSERT_NO_FATAL_FAILURE(here.check());
    ASSERT_NO_FATAL_FAILURE(here.free());
    ASSERT_NO_FATAL_FAILURE(free_there(there));
}

TEST_F(Peers, ReachWhatWasAllocatedBeforeAccessWasGiven)
{
    if (!can_access())
        GTEST_SKIP() << "the devices cannot reach each other";
    mirror there;
    ASSERT_NO_FATAL_FAILURE(allocate_there(there, 5));
    OK(cuda().cuCtxEnablePeerAccess(other, 0));
    ASSERT_NO_FATAL_FAILURE(write_there(there));
    ASSERT_NO_FATAL_FAILURE(check_there(there));
    OK(cuda().cuCtxDisablePeerAccess(other));
    ASSERT_NO_FATAL_FAILURE(free_there(there));
}

TEST_F(Peers, ReachWhatIsAllocatedAfterAccessWasGiven)
{
    if (!can_access())
        GTEST_SKIP() << "the devices cannot reach each other";
    mirror there;
    OK(cuda().cuCtxEnablePeerAccess(other, 0));
    ASSERT_NO_FATAL_FAILURE(allocate_there(there, 6));
    ASSERT_NO_FATAL_FAILURE(write_there(there));
    ASSERT_NO_FATAL_FAILURE(check_there(there));
    OK(cuda().cuCtxDisablePeerAccess(other));
    ASSERT_NO_FATAL_FAILURE(free_there(there));
}

// The launch does not tell that memory of the other device is in use.
TEST_F(Peers, GraphsThatRunOnTheOtherDeviceFindItsMemory)
{
    if (2 * physical() > reachable())
        GTEST_SKIP() << "more than can be had here";
    constexpr std::size_t count = 8;
    constexpr std::size_t rounds = 10;
    const std::size_t words = 2 * physical() / count / 4 / 1024 * 1024;
    std::vector<CUdeviceptr> at(count);
    CUstream graphs = nullptr;
    CUstream others = nullptr;
    CUmodule there = nullptr;
    CUfunction fills = nullptr;
    CUfunction adds = nullptr;
    const auto run = [&](CUfunction what, std::size_t i, std::uint32_t value,
                         CUstream where) {
        return launch(what, at[i], words, &value, where);
    };
    OK(cuda().cuCtxPushCurrent(other));
    OK(cuda().cuModuleLoadData(&there, kernel_image(cuda().simulated)));
    OK(cuda().cuModuleGetFunction(&fills, there, "fill"));
    OK(cuda().cuModuleGetFunction(&adds, there, "add"));
    OK(cuda().cuStreamCreate(&graphs, CU_STREAM_NON_BLOCKING));
    OK(cuda().cuStreamCreate(&others, CU_STREAM_NON_BLOCKING));
    for (std::size_t i = 0; i < count; ++i) {
        OK(cuda().cuMemAlloc(&at[i], words * 4));
        OK(run(fills, i, static_cast<std::uint32_t>(i), nullptr));
    }
    OK(cuda().cuCtxSynchronize());
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    OK(cuda().cuStreamBeginCapture(graphs, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (std::size_t i = 0; i < 4 * count; ++i)
        OK(run(adds, i % count, 1, graphs));
    OK(cuda().cuStreamEndCapture(graphs, &graph));
    OK(cuda().cuGraphInstantiate(&exec, graph, 0));
    CUevent used = nullptr;
    CUevent launched = nullptr;
    OK(cuda().cuEventCreate(&used, CU_EVENT_DISABLE_TIMING));
    OK(cuda().cuCtxPopCurrent(nullptr));
    OK(cuda().cuEventCreate(&launched, CU_EVENT_DISABLE_TIMING));
    for (std::size_t round = 0; round < rounds; ++round) {
        // The other device's memory moves for its own work in rounds ...
        OK(cuda().cuCtxPushCurrent(other));
        for (std::size_t i = 0; i < count; ++i)
            OK(run(adds, i, 1, others));
        OK(cuda().cuEventRecord(used, others));
        OK(cuda().cuCtxPopCurrent(nullptr));
        // ... and then for a launch on a stream of this device.
        OK(cuda().cuStreamWaitEvent(stream, used, 0));
        OK(cuda().cuGraphLaunch(exec, stream));
        OK(cuda().cuEventRecord(launched, stream));
        OK(cuda().cuStreamWaitEvent(others, launched, 0));
    }
    OK(cuda().cuStreamSynchronize(stream));
    OK(cuda().cuEventDestroy(launched));
    OK(cuda().cuCtxPushCurrent(other));
    OK(cuda().cuEventDestroy(used));
    std::vector<std::uint32_t> got(words);
    for (std::size_t i = 0; i < count; ++i) {
        OK(cuda().cuMemcpyDtoH(got.data(), at[i], words * 4));
        for (std::size_t j = 0; j < words; ++j)
            ASSERT_EQ(got[j],
                      pattern(static_cast<std::uint32_t>(i), j) + 5 * rounds);
        OK(cuda().cuMemFree(at[i]));
    }
    OK(cuda().cuGraphExecDestroy(exec));
    OK(cuda().cuGraphDestroy(graph));
    OK(cuda().cuStreamDestroy(graphs));
    OK(cuda().cuStreamDestroy(others));
    OK(cuda().cuModuleUnload(there));
    OK(cuda().cuCtxPopCurrent(nullptr));
}

TEST_F(Peers, HaveABudgetEach)
{
    std::size_t free_here = 0, free_there = 0, total = 0;
    mirror here;
    OK(cuda().cuCtxPushCurrent(other));
    OK(cuda().cuMemGetInfo(&free_there, &total));
    OK(cuda().cuCtxPopCurrent(nullptr));
    OK(cuda().cuMemGetInfo(&free_here, &total));
    ASSERT_NO_FATAL_FAILURE(here.allocate(bytes(), 7));
    std::size_t now_here = 0, now_there = 0;
    OK(cuda().cuMemGetInfo(&now_here, &total));
    OK(cuda().cuCtxPushCurrent(other));
    OK(cuda().cuMemGetInfo(&now_there, &total));
    OK(cuda().cuCtxPopCurrent(nullptr));
    EXPECT_LE(now_here + bytes(), free_here);
    // Others may use a card at the same time.
    if (cuda().simulated || std::getenv("EMUV_TEST_TOTAL")) {
        EXPECT_EQ(now_there, free_there);
    }
    ASSERT_NO_FATAL_FAILURE(here.free());
}

} // namespace
} // namespace harness
