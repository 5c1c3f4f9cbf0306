// SPDX-License-Identifier: GPL-2.0-or-later
// Streams, events, pools, modules and graphs of the simulated driver.
#include "fixture.hpp"

#include <string>

namespace sim_test {
namespace {

class Stream : public Sim
{
protected:
    void SetUp() override
    {
        Sim::SetUp();
        OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
        OK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
        OK(cuMemAlloc(&at, 4096));
        OK(cuMemsetD32(at, 0, 1024));
        OK(cuCtxSynchronize());
    }
    void TearDown() override
    {
        release();
        OK(cuMemFree(at));
        OK(cuStreamDestroy(one));
        OK(cuStreamDestroy(two));
        Sim::TearDown();
    }
    unsigned read(std::size_t index = 0)
    {
        unsigned got = 0;
        EXPECT_EQ(cuMemcpyDtoH(&got, at + 4 * index, 4), CUDA_SUCCESS);
        return got;
    }
    CUstream one = nullptr, two = nullptr;
    CUdeviceptr at = 0;
};

TEST_F(Stream, WorkOnAStreamIsDoneInOrder)
{
    OK(launch_add(at, 1, 5, one));
    OK(cuMemsetD32Async(at, 100, 1, one));
    OK(launch_add(at, 1, 5, one));
    OK(cuStreamSynchronize(one));
    EXPECT_EQ(read(), 105u);
}

TEST_F(Stream, StreamsDoNotWaitForEachOther)
{
    occupy(one);
    OK(launch_add(at, 1, 1, two));
    OK(cuStreamSynchronize(two));
    EXPECT_EQ(cuStreamQuery(one), CUDA_ERROR_NOT_READY);
}

TEST_F(Stream, AnEventMakesOneStreamWaitForAnother)
{
    CUevent event = nullptr;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventQuery(event)); // nothing to wait for yet
    occupy(one);
    OK(launch_add(at, 1, 1, one));
    OK(cuEventRecord(event, one));
    OK(cuStreamWaitEvent(two, event, 0));
    OK(cuMemsetD32Async(at, 50, 1, two));
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(cuStreamQuery(two), CUDA_ERROR_NOT_READY);
    release();
    OK(cuEventSynchronize(event));
    OK(cuStreamSynchronize(two));
    EXPECT_EQ(read(), 50u);
    OK(cuEventDestroy(event));
    EXPECT_EQ(cuEventDestroy(event), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Stream, EventsTellTheTimeBetweenThem)
{
    CUevent start = nullptr, end = nullptr;
    float ms = -1;
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    EXPECT_EQ(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventRecord(start, one));
    OK(cuEventRecord(end, one));
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime(&ms, start, end));
    EXPECT_GE(ms, 0.0f);
    OK(cuEventDestroy(start));
    OK(cuEventDestroy(end));
}

TEST_F(Stream, TheLegacyStreamAndBlockingStreamsWaitForEachOther)
{
    CUstream blocking = nullptr;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    occupy(blocking);
    OK(launch_add(at, 1, 1)); // legacy
    OK(launch_add(at, 1, 1, blocking));
    EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
    // Not so the non-blocking one.
    OK(cuStreamSynchronize(one));
    release();
    OK(cuStreamSynchronize(blocking));
    EXPECT_EQ(read(), 2u);
    OK(cuStreamDestroy(blocking));
}

TEST_F(Stream, EachThreadHasADefaultStreamOfItsOwn)
{
    unsigned long long here = 0, there = 0, legacy = 0;
    OK(cuStreamGetId(CU_STREAM_PER_THREAD, &here));
    OK(cuStreamGetId(nullptr, &legacy));
    std::thread other([&] {
        cuCtxSetCurrent(context);
        EXPECT_EQ(cuStreamGetId(CU_STREAM_PER_THREAD, &there), CUDA_SUCCESS);
    });
    other.join();
    EXPECT_NE(here, there);
    EXPECT_NE(here, legacy);
}

TEST_F(Stream, EntryPointsForThePerThreadStreamTakeZeroForIt)
{
    void *legacy = nullptr, *own = nullptr;
    OK(cuGetProcAddress("cuStreamGetId", &legacy, 13000,
                        CU_GET_PROC_ADDRESS_LEGACY_STREAM, nullptr));
    OK(cuGetProcAddress("cuStreamGetId", &own, 13000,
                        CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                        nullptr));
    ASSERT_NE(legacy, own);
    using get_id = CUresult (*)(CUstream, unsigned long long *);
    unsigned long long by_handle = 0, by_name = 0;
    OK(cuStreamGetId(CU_STREAM_PER_THREAD, &by_handle));
    OK(reinterpret_cast<get_id>(own)(nullptr, &by_name));
    EXPECT_EQ(by_handle, by_name);
}

TEST_F(Stream, HostFunctionsAndCallbacksComeInTurn)
{
    std::string order;
    OK(cuLaunchHostFunc(
        one, [](void *p) { *static_cast<std::string *>(p) += 'a'; }, &order));
    OK(cuStreamAddCallback(
        one,
        [](CUstream, CUresult status, void *p) {
            *static_cast<std::string *>(p) += status ? '!' : 'b';
        },
        &order, 0));
    OK(cuStreamSynchronize(one));
    EXPECT_EQ(order, "ab");
}

TEST_F(Stream, AsynchronousCopiesTakePageableSourcesAtOnce)
{
    unsigned value = 3;
    occupy(one);
    OK(cuMemcpyHtoDAsync(at, &value, 4, one));
    value = 4;
    release();
    OK(cuStreamSynchronize(one));
    EXPECT_EQ(read(), 3u);
}

TEST_F(Stream, ValuesInMemoryHoldAStreamAndLetItGo)
{
    OK(cuStreamWaitValue32(one, at, 7, CU_STREAM_WAIT_VALUE_EQ));
    OK(launch_add(at, 1, 10, one));
    EXPECT_EQ(cuStreamQuery(one), CUDA_ERROR_NOT_READY);
    OK(cuStreamWriteValue32(two, at, 7, 0));
    OK(cuStreamSynchronize(one));
    EXPECT_EQ(read(), 17u);
    EXPECT_EQ(cuStreamWriteValue32(two, at + 1, 7, 0),
              CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Stream, ThreeDimensionalCopiesTakeEveryRowAndNoMore)
{
    // A box of 5 x 3 x 2 bytes at (2, 1, 1) in planes of 16 x 8.
    std::vector<unsigned char> in(16 * 8 * 4);
    for (std::size_t i = 0; i < in.size(); ++i)
        in[i] = static_cast<unsigned char>(i);
    OK(cuMemsetD8(at, 0xee, 1024));
    OK(cuCtxSynchronize()); // stream one does not wait for the legacy one
    CUDA_MEMCPY3D c{};
    c.srcMemoryType = CU_MEMORYTYPE_HOST;
    c.srcHost = in.data();
    c.srcPitch = 16;
    c.srcHeight = 8;
    c.srcXInBytes = 2;
    c.srcY = c.srcZ = 1;
    c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c.dstDevice = at;
    c.dstPitch = 32;
    c.dstHeight = 4;
    c.WidthInBytes = 5;
    c.Height = 3;
    c.Depth = 2;
    OK(cuMemcpy3DAsync(&c, one));
    OK(cuStreamSynchronize(one));
    std::vector<unsigned char> out(1024);
    OK(cuMemcpyDtoH(out.data(), at, out.size()));
    for (std::size_t z = 0; z < 8; ++z)
        for (std::size_t y = 0; y < 4; ++y)
            for (std::size_t x = 0; x < 32; ++x) {
                const bool inside = z < 2 && y < 3 && x < 5;
                const unsigned char expected =
                    inside ? in[(z + 1) * 128 + (y + 1) * 16 + x + 2] : 0xee;
                ASSERT_EQ(out[z * 128 + y * 32 + x], expected);
            }
}

TEST_F(Stream, CopiesReachTheOtherDevice)
{
    CUcontext other = nullptr;
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxPushCurrent(other));
    CUdeviceptr there = 0;
    OK(cuMemAlloc(&there, 4096));
    OK(cuCtxPopCurrent(nullptr));
    OK(cuMemsetD32(at, 12, 1024));
    OK(cuMemcpyPeer(there, other, at, context, 4096));
    OK(cuMemsetD32(at, 0, 1024));
    OK(cuCtxSynchronize());
    OK(cuMemcpyPeerAsync(at, context, there, other, 4096, one));
    OK(cuStreamSynchronize(one));
    EXPECT_EQ(read(1023), 12u);
    OK(cuDevicePrimaryCtxRelease(1));
    EXPECT_EQ(api->vram_used(1), 0u);
}

TEST_F(Stream, PoolsKeepWhatIsFreedUntilASynchronisation)
{
    CUmemoryPool pool = nullptr;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    auto ask = [&](CUmemPool_attribute what) {
        cuuint64_t value = 0;
        EXPECT_EQ(cuMemPoolGetAttribute(pool, what, &value), CUDA_SUCCESS);
        return value;
    };
    CUdeviceptr small = 0;
    OK(cuMemAllocAsync(&small, 3 * frame, one));
    OK(launch_add(small, 16, 1, one));
    EXPECT_EQ(ask(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 3 * frame);
    OK(cuMemFreeAsync(small, one));
    OK(cuStreamSynchronize(one));
    EXPECT_EQ(ask(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
    cuuint64_t keep = 8 * frame;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    OK(cuMemAllocAsync(&small, frame, one));
    OK(cuMemFreeAsync(small, one));
    OK(cuStreamSynchronize(one));
    EXPECT_EQ(ask(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), frame);
    OK(cuMemPoolTrimTo(pool, 0));
    EXPECT_EQ(ask(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
    keep = 0;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    EXPECT_EQ(cuMemAllocAsync(&small, 100 * frame, one),
              CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(Stream, ModulesHaveFunctionsParametersAndVariables)
{
    CUfunction none = nullptr;
    EXPECT_EQ(cuModuleGetFunction(&none, module, "no such"),
              CUDA_ERROR_NOT_FOUND);
    std::size_t offset = 0, size = 0;
    OK(cuFuncGetParamInfo(add_, 2, &offset, &size));
    EXPECT_EQ(offset, 12u);
    EXPECT_EQ(size, 4u);
    EXPECT_EQ(cuFuncGetParamInfo(add_, 3, &offset, &size),
              CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr variable = 0;
    OK(cuModuleGetGlobal(&variable, &size, module, "seven"));
    unsigned got = 0;
    OK(cuMemcpyDtoH(&got, variable, size));
    EXPECT_EQ(got, 7u);
    CUmodule bad = nullptr;
    EXPECT_EQ(cuModuleLoadData(&bad, ".version 8.0"), CUDA_ERROR_INVALID_IMAGE);
    EXPECT_EQ(cuLaunchKernel(add_, 0, 1, 1, 1, 1, 1, 0, one, nullptr, nullptr),
              CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Stream, ParametersMayComeAsOneBuffer)
{
    struct
    {
        CUdeviceptr where;
        unsigned count, value;
    } values = {at, 4, 6};
    std::size_t bytes = sizeof values;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &values,
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = one;
    OK(cuLaunchKernelEx(&config, add_, nullptr, extra));
    OK(cuStreamSynchronize(one));
    EXPECT_EQ(read(3), 6u);
}

TEST_F(Stream, ACapturedGraphIsDoneEachTimeItIsLaunched)
{
    CUevent fork = nullptr, join = nullptr;
    OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(launch_add(at, 1, 1, one));
    OK(cuEventRecord(fork, one));
    OK(cuStreamWaitEvent(two, fork, 0));
    OK(launch_add(at + 4, 1, 10, two));
    OK(cuEventRecord(join, two));
    OK(cuStreamWaitEvent(one, join, 0));
    OK(launch_add(at, 2, 100, one));
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture(one, &graph));
    EXPECT_EQ(read(), 0u); // nothing was done yet
    std::size_t nodes = 0;
    OK(cuGraphGetNodes(graph, nullptr, &nodes));
    EXPECT_EQ(nodes, 3u);
    CUgraphExec exec = nullptr;
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < 3; ++i)
        OK(cuGraphLaunch(exec, one));
    OK(cuStreamSynchronize(one));
    EXPECT_EQ(read(0), 303u);
    EXPECT_EQ(read(1), 330u);
    OK(cuGraphExecDestroy(exec));
    OK(cuEventDestroy(fork));
    OK(cuEventDestroy(join));
}

TEST_F(Stream, CallsThatMayStallBreakACapture)
{
    CUgraph graph = nullptr;
    CUdeviceptr more = 0;
    OK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_EQ(cuMemAlloc(&more, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(cuStreamEndCapture(one, &graph),
              CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAlloc(&more, 64));
    OK(cuStreamEndCapture(one, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(more));
}

TEST_F(Stream, MemoryNodesHoldVramWhileTheExecutableGraphLives)
{
    const std::uint64_t before = api->vram_used(0);
    OK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUdeviceptr inside = 0;
    OK(cuMemAllocAsync(&inside, frame, one));
    OK(cuMemsetD32Async(at, 0, 1, one));
    OK(cuMemFreeAsync(inside, one));
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture(one, &graph));
    EXPECT_EQ(api->vram_used(0), before);
    CUgraphExec exec = nullptr;
    OK(cuGraphInstantiate(&exec, graph, 0));
    EXPECT_EQ(api->vram_used(0), before + frame);
    OK(cuGraphLaunch(exec, one));
    OK(cuStreamSynchronize(one));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    EXPECT_EQ(api->vram_used(0), before);
}

TEST_F(Stream, AnExecutableGraphTakesNewParameters)
{
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    OK(cuGraphCreate(&graph, 0));
    unsigned count = 1, value = 1;
    void *params[] = {&at, &count, &value};
    CUDA_KERNEL_NODE_PARAMS p{};
    p.func = add_;
    p.gridDimX = p.gridDimY = p.gridDimZ = 1;
    p.blockDimX = p.blockDimY = p.blockDimZ = 1;
    p.kernelParams = params;
    OK(cuGraphAddKernelNode(&node, graph, nullptr, 0, &p));
    CUgraphExec exec = nullptr;
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, one));
    value = 50;
    OK(cuGraphExecKernelNodeSetParams(exec, node, &p));
    OK(cuGraphLaunch(exec, one));
    OK(cuStreamSynchronize(one));
    EXPECT_EQ(read(), 51u);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

} // namespace
} // namespace sim_test
