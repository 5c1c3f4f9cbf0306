// SPDX-License-Identifier: GPL-2.0-or-later
// Virtual memory management of the simulated driver.
#include "fixture.hpp"

#include <numeric>

#include <sys/mman.h>
#include <unistd.h>

namespace sim_test {
namespace {

class Vmm : public Sim
{
protected:
    void SetUp() override
    {
        Sim::SetUp();
        OK(cuMemAddressReserve(&at, 8 * frame, 0, 0, 0));
    }
    void TearDown() override
    {
        OK(cuMemAddressFree(at, 8 * frame));
        Sim::TearDown();
    }
    CUdeviceptr at = 0;
};

TEST_F(Vmm, OneMemoryAtTwoAddressesIsTheSameMemory)
{
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp prop = on_device();
    OK(cuMemCreate(&handle, frame, &prop, 0));
    OK(cuMemMap(at, frame, 0, handle, 0));
    OK(cuMemMap(at + 4 * frame, frame, 0, handle, 0));
    const CUmemAccessDesc access = access_of();
    OK(cuMemSetAccess(at, frame, &access, 1));
    OK(cuMemSetAccess(at + 4 * frame, frame, &access, 1));
    OK(cuMemsetD32(at, 17, frame / 4));
    unsigned got = 0;
    OK(cuMemcpyDtoH(&got, at + 5 * frame - 4, 4));
    EXPECT_EQ(got, 17u);
    OK(cuMemUnmap(at, frame));
    OK(cuMemRelease(handle));
    EXPECT_GE(api->vram_used(0), frame); // the other mapping keeps it
    OK(cuMemUnmap(at + 4 * frame, frame));
}

TEST_F(Vmm, MovingBetweenVramAndHostKeepsTheAddress)
{
    OK(put(at, frame, on_host()));
    EXPECT_EQ(api->host_used(), frame);
    OK(cuMemsetD8(at, 9, frame));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(at, frame));
    EXPECT_EQ(api->host_used(), 0u);
    OK(put(at, frame, on_device()));
    OK(launch_add(at, 16, 1));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(at, frame));
}

TEST_F(Vmm, CopiesCrossFromDeviceToHostHandles)
{
    OK(put(at, frame, on_device()));
    OK(put(at + frame, frame, on_host()));
    std::vector<unsigned> in(2 * frame / 4), out(2 * frame / 4);
    std::iota(in.begin(), in.end(), 1u);
    OK(cuMemcpyHtoD(at, in.data(), 2 * frame));
    OK(cuMemcpyDtoH(out.data(), at, 2 * frame));
    EXPECT_EQ(in, out);
    OK(cuMemsetD8(at + frame - 16, 0, 32));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(at, 2 * frame));
}

TEST_F(Vmm, CopiesDoNotCrossFromDeviceHandlesToRegisteredPages)
{
    OK(put(at, frame, on_device()));
    void *pages = mmap(reinterpret_cast<void *>(at + frame), frame,
                       PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    OK(cuMemHostRegister(pages, frame, 0));
    CUdeviceptr there = 0;
    OK(cuMemHostGetDevicePointer(&there, pages, 0));
    EXPECT_EQ(there, at + frame);
    std::vector<char> data(64, 1);
    const CUdeviceptr seam = at + frame - 32;
    EXPECT_EQ(cuMemcpyHtoD(seam, data.data(), 64), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemcpyDtoH(data.data(), seam, 64), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemsetD8(seam, 0, 64), CUDA_ERROR_INVALID_VALUE);
    // Each side by itself, and a kernel over both.
    OK(cuMemcpyHtoD(seam, data.data(), 32));
    OK(cuMemcpyHtoD(at + frame, data.data(), 32));
    OK(launch_add(seam, 16, 1));
    OK(cuCtxSynchronize());
    OK(cuMemHostUnregister(pages));
    // Device memory may follow at the same address.
    OK(put(at + frame, frame, on_device()));
    OK(cuMemsetD8(seam, 0, 64));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(at, 2 * frame));
}

TEST_F(Vmm, TouchingWhatIsNotMappedLosesTheContextForGood)
{
    CUcontext other = nullptr;
    OK(cuCtxCreate(&other, nullptr, 0, 0));
    CUmodule kernels_there = nullptr;
    CUfunction touch_there = nullptr;
    const emuv_sim_module given = image();
    OK(cuModuleLoadData(&kernels_there, &given));
    OK(cuModuleGetFunction(&touch_there, kernels_there, "touch"));
    void *params[] = {&at};
    OK(cuLaunchKernel(touch_there, 1, 1, 1, 1, 1, 1, 0, nullptr, params,
                      nullptr));
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CUdeviceptr more = 0;
    EXPECT_EQ(cuMemAlloc(&more, 64), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuCtxDestroy(other));
    // Other contexts are not concerned.
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&more, 64));
    OK(launch_touch(more));
    OK(cuCtxSynchronize());
    OK(cuMemFree(more));
}

TEST_F(Vmm, MappedMemoryWithoutAccessFaultsToo)
{
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp prop = on_device();
    OK(cuMemCreate(&handle, frame, &prop, 0));
    OK(cuMemMap(at, frame, 0, handle, 0));
    OK(cuMemRelease(handle));
    EXPECT_EQ(cuMemsetD8(at, 0, 16), CUDA_ERROR_INVALID_VALUE);
    OK(launch_touch(at));
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuMemUnmap(at, frame));
    OK(cuDevicePrimaryCtxReset(0)); // clears the error
    CUdeviceptr more = 0;
    OK(cuMemAlloc(&more, 64));
    OK(cuMemFree(more));
}

TEST_F(Vmm, NothingOfItWaitsForRunningWork)
{
    CUstream stream = nullptr;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    occupy(stream);
    // All of this comes back while the kernel still runs.
    OK(put(at, frame, on_device()));
    OK(cuMemUnmap(at, frame));
    OK(put(at, frame, on_host()));
    OK(cuMemUnmap(at, frame));
    EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    release();
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy(stream));
}

TEST_F(Vmm, BadArgumentsAreRefused)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp prop = on_device();
    EXPECT_EQ(cuMemCreate(&handle, 0, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemCreate(&handle, 4096, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemCreate(nullptr, frame, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    prop.location.id = 7;
    EXPECT_EQ(cuMemCreate(&handle, frame, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
    prop = on_device();
    OK(cuMemCreate(&handle, 2 * frame, &prop, 0));
    EXPECT_EQ(cuMemMap(at + 4096, frame, 0, handle, 0),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemMap(at, 4 * frame, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    // A handle is mapped whole. Seen on an H200 with driver 580.159.
    EXPECT_EQ(cuMemMap(at, frame, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(cuMemMap(at, frame, frame, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuMemMap(at, 2 * frame, 0, handle, 0));
    EXPECT_EQ(cuMemMap(at, 2 * frame, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemUnmap(at, frame), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAddressFree(at, 8 * frame), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(at, 2 * frame));
    EXPECT_EQ(cuMemUnmap(at, 2 * frame), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(handle));
    EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Vmm, VramIsLimitedAndHostMemoryIsNot)
{
    CUmemGenericAllocationHandle handle = 0, more = 0;
    CUmemAllocationProp prop = on_device();
    OK(cuMemCreate(&handle, 31 * frame, &prop, 0));
    EXPECT_EQ(cuMemCreate(&more, frame, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    prop = on_host();
    OK(cuMemCreate(&more, 100 * frame, &prop, 0));
    OK(cuMemRelease(more));
    OK(cuMemRelease(handle));
}

TEST_F(Vmm, ExportedMemoryComesBackAsTheSame)
{
    CUmemAllocationProp prop = on_device();
    CUmemGenericAllocationHandle handle = 0, back = 0;
    int fd = -1;
    OK(cuMemCreate(&handle, frame, &prop, 0));
    EXPECT_EQ(cuMemExportToShareableHandle(
                  &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
              CUDA_ERROR_INVALID_VALUE); // was not asked for at creation
    OK(cuMemRelease(handle));
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    OK(cuMemCreate(&handle, frame, &prop, 0));
    OK(cuMemExportToShareableHandle(
        &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    const std::uint64_t used = api->vram_used(0);
    OK(cuMemImportFromShareableHandle(
        &back, reinterpret_cast<void *>(static_cast<std::intptr_t>(fd)),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    EXPECT_EQ(api->vram_used(0), used);
    close(fd);
    OK(cuMemMap(at, frame, 0, handle, 0));
    OK(cuMemMap(at + frame, frame, 0, back, 0));
    const CUmemAccessDesc access = access_of();
    OK(cuMemSetAccess(at, 2 * frame, &access, 1));
    OK(cuMemsetD32(at, 23, 1));
    unsigned got = 0;
    OK(cuMemcpyDtoH(&got, at + frame, 4));
    EXPECT_EQ(got, 23u);
    OK(cuMemUnmap(at, 2 * frame));
    OK(cuMemRelease(handle));
    OK(cuMemRelease(back));
}

TEST_F(Vmm, HandlesAndAccessCanBeAskedFor)
{
    OK(put(at, frame, on_host()));
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemRetainAllocationHandle(&handle,
                                   reinterpret_cast<void *>(at + 100)));
    CUmemAllocationProp prop{};
    OK(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
    EXPECT_EQ(prop.location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
    OK(cuMemRelease(handle));
    CUmemLocation device{};
    device.type = CU_MEM_LOCATION_TYPE_DEVICE;
    unsigned long long flags = 0;
    OK(cuMemGetAccess(&flags, &device, at));
    EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    device.id = 1;
    OK(cuMemGetAccess(&flags, &device, at));
    EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    // The base that is named on the host half is not one to go by.
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    OK(cuMemGetAddressRange(&base, &bytes, at));
    EXPECT_NE(base, at);
    EXPECT_EQ(bytes, frame);
    OK(cuMemUnmap(at, frame));
}

TEST_F(Vmm, ACreateThatIsToldToFailTakesNothing)
{
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp prop = on_device();
    const std::uint64_t used = api->vram_used(0);
    api->fail(nullptr, 1, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(cuMemCreate(&handle, frame, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(api->vram_used(0), used);
    const std::uint64_t calls = api->calls("cuMemCreate");
    OK(cuMemCreate(&handle, frame, &prop, 0));
    EXPECT_EQ(api->calls("cuMemCreate"), calls + 1);
    OK(cuMemRelease(handle));
}

TEST_F(Vmm, TheWishForAnAddressIsHeardWhereItIsFree)
{
    CUdeviceptr first = 0, again = 0;
    OK(cuMemAddressReserve(&first, frame, 0, 0, 0));
    OK(cuMemAddressFree(first, frame));
    OK(cuMemAddressReserve(&again, frame, 0, first, 0));
    EXPECT_EQ(again, first);
    CUdeviceptr elsewhere = 0;
    OK(cuMemAddressReserve(&elsewhere, frame, 64 * frame, first, 0));
    EXPECT_NE(elsewhere, first);
    EXPECT_EQ(elsewhere % (64 * frame), 0u);
    OK(cuMemAddressFree(again, frame));
    OK(cuMemAddressFree(elsewhere, frame));
}

} // namespace
} // namespace sim_test
