// SPDX-License-Identifier: GPL-2.0-or-later
// Device and host memory of the simulated driver.
#include "fixture.hpp"

#include <sys/mman.h>

namespace sim_test {
namespace {

using Memory = Sim;

TEST_F(Memory, InfoCountsWholeFramesOfWhatIsTaken)
{
    std::size_t before = 0, after = 0, total = 0;
    OK(cuMemGetInfo(&before, &total));
    EXPECT_EQ(total, std::size_t{64} << 20);
    CUdeviceptr at = 0;
    OK(cuMemAlloc(&at, frame + 1));
    OK(cuMemGetInfo(&after, &total));
    EXPECT_EQ(before - after, 2 * frame);
    OK(cuMemFree(at));
    OK(cuMemGetInfo(&after, &total));
    EXPECT_EQ(before, after);
}

TEST_F(Memory, FullVramIsOutOfMemoryAndNothingElseBreaks)
{
    std::vector<CUdeviceptr> all;
    CUdeviceptr at = 0;
    CUresult last = CUDA_SUCCESS;
    while ((last = cuMemAlloc(&at, 4 * frame)) == CUDA_SUCCESS)
        all.push_back(at);
    EXPECT_EQ(last, CUDA_ERROR_OUT_OF_MEMORY);
    // One frame has the module's variables.
    EXPECT_EQ(all.size(), 7u);
    OK(cuMemFree(all.back()));
    OK(cuMemAlloc(&all.back(), 4 * frame));
    for (CUdeviceptr one : all)
        OK(cuMemFree(one));
}

TEST_F(Memory, SmallAllocationsShareAFrameAndDoNotOverlap)
{
    const std::uint64_t before = api->vram_used(0);
    std::vector<CUdeviceptr> all(100);
    for (unsigned i = 0; i < all.size(); ++i) {
        OK(cuMemAlloc(&all[i], 100));
        EXPECT_EQ(all[i] % 512, 0u);
        OK(cuMemsetD8(all[i], static_cast<unsigned char>(i), 100));
    }
    EXPECT_LE(api->vram_used(0) - before, frame);
    for (unsigned i = 0; i < all.size(); ++i) {
        unsigned char got[100];
        OK(cuMemcpyDtoH(got, all[i], sizeof got));
        for (unsigned char byte : got)
            ASSERT_EQ(byte, i);
        OK(cuMemFree(all[i]));
    }
}

TEST_F(Memory, BadArgumentsAreRefused)
{
    CUdeviceptr at = 0;
    EXPECT_EQ(cuMemAlloc(nullptr, 8), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAlloc(&at, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAlloc(&at, ~std::size_t{0}), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(cuMemAllocManaged(&at, ~std::size_t{0}, CU_MEM_ATTACH_GLOBAL),
              CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(cuMemFree(64), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemFree(0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemGetAddressRange(&at, nullptr, 0), CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(cuMemGetInfo(nullptr, nullptr), CUDA_SUCCESS);
    void *host = &at;
    EXPECT_EQ(cuMemHostAlloc(&host, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(host, nullptr);
    OK(cuMemAlloc(&at, 1024));
    EXPECT_EQ(cuMemFree(at + 512), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(at));
    EXPECT_EQ(cuMemFree(at), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, AddressRangeIsThatOfTheAllocation)
{
    CUdeviceptr at = 0, base = 0;
    std::size_t bytes = 0;
    OK(cuMemAlloc(&at, 5000));
    OK(cuMemGetAddressRange(&base, &bytes, at + 4999));
    EXPECT_EQ(base, at);
    EXPECT_EQ(bytes, 5000u);
    OK(cuMemFree(at));
}

TEST_F(Memory, PitchedRowsAreAlignedAndWhole)
{
    CUdeviceptr at = 0;
    std::size_t pitch = 0;
    OK(cuMemAllocPitch(&at, &pitch, 1000, 10, 4));
    EXPECT_GE(pitch, 1000u);
    EXPECT_EQ(pitch % 512, 0u);
    OK(cuMemsetD2D8(at, pitch, 3, 1000, 10));
    OK(cuMemFree(at));
}

TEST_F(Memory, PointerAttributesTellDeviceFromHostFromUnknown)
{
    CUdeviceptr at = 0;
    void *host = nullptr;
    OK(cuMemAlloc(&at, 4096));
    OK(cuMemHostAlloc(&host, 4096, 0));
    unsigned type = 0;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                             reinterpret_cast<CUdeviceptr>(host)));
    EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
    int local = 0;
    EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    reinterpret_cast<CUdeviceptr>(&local)),
              CUDA_ERROR_INVALID_VALUE);
    CUcontext owner = nullptr;
    OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, at));
    EXPECT_EQ(owner, context);
    OK(cuMemFreeHost(host));
    OK(cuMemFree(at));
}

TEST_F(Memory, RegisteredPagesHaveTheirOwnAddressOnTheDevice)
{
    std::vector<unsigned> mine(4096, 5);
    OK(cuMemHostRegister(mine.data(), mine.size() * 4, 0));
    EXPECT_EQ(cuMemHostRegister(mine.data(), 64, 0),
              CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CUdeviceptr at = 0;
    OK(cuMemHostGetDevicePointer(&at, mine.data(), 0));
    EXPECT_EQ(at, reinterpret_cast<CUdeviceptr>(mine.data()));
    OK(launch_add(at, 4096, 2));
    OK(cuCtxSynchronize());
    EXPECT_EQ(mine[4095], 7u);
    OK(cuMemHostUnregister(mine.data()));
    EXPECT_EQ(cuMemHostUnregister(mine.data()),
              CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST_F(Memory, PagesThatAreNotThereCannotBeRegistered)
{
    void *none =
        mmap(nullptr, frame, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_EQ(cuMemHostRegister(none, frame, 0), CUDA_ERROR_INVALID_VALUE);
    munmap(none, frame);
}

TEST_F(Memory, FreeingAndUnregisteringWaitForRunningWork)
{
    CUstream stream = nullptr;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr at = 0;
    std::vector<char> mine(8192);
    OK(cuMemAlloc(&at, 4096));
    OK(cuMemHostRegister(mine.data(), mine.size(), 0));
    occupy(stream);
    std::atomic<int> done = 0;
    std::thread waiting([&] {
        cuCtxSetCurrent(context);
        EXPECT_EQ(cuMemFree(at), CUDA_SUCCESS);
        ++done;
        EXPECT_EQ(cuMemHostUnregister(mine.data()), CUDA_SUCCESS);
        ++done;
    });
    // Allocating does not wait, or this would never come to an end.
    CUdeviceptr other = 0;
    EXPECT_EQ(cuMemAlloc(&other, 4096), CUDA_SUCCESS);
    EXPECT_EQ(done, 0);
    EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    release();
    waiting.join();
    EXPECT_EQ(done, 2);
    OK(cuMemFree(other));
    OK(cuStreamDestroy(stream));
}

TEST_F(Memory, AnOrderedFailureComesAtTheNthCallAndOnce)
{
    CUdeviceptr at = 0, other = 0;
    api->fail("cuMemAlloc", 2, CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc(&at, 64));
    EXPECT_EQ(cuMemAlloc(&other, 64), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc(&other, 64));
    OK(cuMemFree(at));
    OK(cuMemFree(other));
}

TEST_F(Memory, ManagedMemoryIsReadAndWrittenFromBothSides)
{
    CUdeviceptr at = 0;
    OK(cuMemAllocManaged(&at, 4096, CU_MEM_ATTACH_GLOBAL));
    auto *here = reinterpret_cast<unsigned *>(at);
    here[1023] = 1;
    OK(launch_add(at, 1024, 41));
    OK(cuCtxSynchronize());
    EXPECT_EQ(here[1023], 42u);
    OK(cuMemFree(at));
}

TEST_F(Memory, ArraysTakeVramAndKeepWhatIsCopiedIn)
{
    CUDA_ARRAY_DESCRIPTOR shape{};
    shape.Width = 64;
    shape.Height = 16;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 1;
    CUarray array = nullptr;
    OK(cuArrayCreate(&array, &shape));
    std::vector<float> in(64 * 16), out(64 * 16);
    for (std::size_t i = 0; i < in.size(); ++i)
        in[i] = static_cast<float>(i);
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = in.data();
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    copy.WidthInBytes = 256;
    copy.Height = 16;
    OK(cuMemcpy2D(&copy));
    OK(cuMemcpyAtoH(out.data(), array, 0, 64 * 16 * 4));
    EXPECT_EQ(in, out);
    OK(cuArrayDestroy(array));
    EXPECT_EQ(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
}

} // namespace
} // namespace sim_test
