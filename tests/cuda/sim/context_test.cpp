// SPDX-License-Identifier: GPL-2.0-or-later
// Contexts, devices and entry points of the simulated driver.
#include "fixture.hpp"

#include <string>

#include <sys/wait.h>
#include <unistd.h>

namespace sim_test {
namespace {

using Context = Sim;

TEST_F(Context, CallsNeedACurrentContext)
{
    CUdeviceptr at = 0;
    OK(cuCtxSetCurrent(nullptr));
    EXPECT_EQ(cuMemAlloc(&at, 64), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxSetCurrent(context));
}

TEST_F(Context, DestroyingOneFreesAllItOwned)
{
    const std::uint64_t before = api->vram_used(0);
    CUcontext other = nullptr;
    OK(cuCtxCreate(&other, nullptr, 0, 0));
    CUdeviceptr at = 0;
    OK(cuMemAlloc(&at, 4 * frame));
    CUstream stream = nullptr;
    OK(cuStreamCreate(&stream, 0));
    OK(cuMemsetD8Async(at, 1, 4 * frame, stream));
    EXPECT_EQ(api->vram_used(0), before + 4 * frame);
    OK(cuCtxDestroy(other));
    EXPECT_EQ(api->vram_used(0), before);
    OK(cuCtxSetCurrent(context));
    EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuMemFree(at), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuCtxSetCurrent(other), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Context, TheStackOfContextsIsTheThreadsOwn)
{
    std::thread other([] {
        CUcontext there = reinterpret_cast<CUcontext>(1);
        EXPECT_EQ(cuCtxGetCurrent(&there), CUDA_SUCCESS);
        EXPECT_EQ(there, nullptr);
    });
    other.join();
    OK(cuCtxPushCurrent(context));
    CUcontext popped = nullptr;
    OK(cuCtxPopCurrent(&popped));
    EXPECT_EQ(popped, context);
}

TEST_F(Context, PrimaryIsCountedAndEndsAtTheLastRelease)
{
    CUcontext again = nullptr;
    unsigned flags = 0;
    int active = 0;
    OK(cuDevicePrimaryCtxRetain(&again, 1));
    OK(cuDevicePrimaryCtxRetain(&again, 1));
    OK(cuDevicePrimaryCtxRelease(1));
    OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
    EXPECT_EQ(active, 1);
    OK(cuDevicePrimaryCtxRelease(1));
    OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
    EXPECT_EQ(active, 0);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(1), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Context, AResetFreesTheMemoryAndKeepsTheHandle)
{
    CUdeviceptr at = 0;
    OK(cuMemAlloc(&at, 4 * frame));
    OK(cuDevicePrimaryCtxReset(0));
    EXPECT_EQ(api->vram_used(0), 0u);
    OK(cuMemAlloc(&at, 64));
    OK(cuMemFree(at));
}

TEST_F(Context, DevicesSayWhatTheyAre)
{
    int count = 0, version = 0, yes = 0;
    OK(cuDeviceGetCount(&count));
    EXPECT_EQ(count, 2);
    OK(cuDriverGetVersion(&version));
    EXPECT_EQ(version, 13000);
    char name[64] = {};
    OK(cuDeviceGetName(name, sizeof name, 0));
    EXPECT_NE(std::string(name).find("Simulated"), std::string::npos);
    OK(cuDeviceGetAttribute(
        &yes, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    EXPECT_EQ(yes, 1);
    CUuuid first{}, second{};
    OK(cuDeviceGetUuid(&first, 0));
    OK(cuDeviceGetUuid(&second, 1));
    EXPECT_NE(std::memcmp(&first, &second, sizeof first), 0);
    CUdevice none = 0;
    EXPECT_EQ(cuDeviceGet(&none, 2), CUDA_ERROR_INVALID_DEVICE);
    const char *text = nullptr;
    OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
    EXPECT_EQ(cuGetErrorName(CUDA_SUCCESS, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Context, EntryPointsComeInTheVersionAskedFor)
{
    void *old_one = nullptr, *new_one = nullptr;
    CUdriverProcAddressQueryResult status{};
    OK(cuGetProcAddress("cuGetProcAddress", &old_one, 11030, 0, &status));
    OK(cuGetProcAddress("cuGetProcAddress", &new_one, 12000, 0, &status));
    EXPECT_NE(old_one, new_one);
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
    void *found = nullptr;
    OK(cuGetProcAddress("cuMemAlloc", &found, 13000, 0, nullptr));
    EXPECT_EQ(found, reinterpret_cast<void *>(&cuMemAlloc));
    EXPECT_EQ(cuGetProcAddress("cuNoSuchThing", &found, 13000, 0, &status),
              CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT_EQ(found, nullptr);
}

TEST_F(Context, WhatIsNotSimulatedSaysSo)
{
    CUgreenCtx green = nullptr;
    EXPECT_EQ(cuGreenCtxDestroy(green), CUDA_ERROR_NOT_SUPPORTED);
    const void *table = nullptr;
    CUuuid any{};
    EXPECT_EQ(cuGetExportTable(&table, &any), CUDA_ERROR_NOT_FOUND);
}

TEST_F(Context, AForkedChildHasNoDriver)
{
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        int count = 0;
        _exit(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Context, CopiedBytesAreCountedByDirection)
{
    emuv_sim_copied before{}, after{};
    CUdeviceptr at = 0;
    char here[1000] = {};
    OK(cuMemAlloc(&at, 4096));
    api->copied(&before);
    OK(cuMemcpyHtoD(at, here, 1000));
    OK(cuMemcpyDtoH(here, at, 500));
    OK(cuMemcpyDtoD(at + 2048, at, 200));
    api->copied(&after);
    EXPECT_EQ(after.host_to_device - before.host_to_device, 1000u);
    EXPECT_EQ(after.device_to_host - before.device_to_host, 500u);
    EXPECT_EQ(after.device_to_device - before.device_to_device, 200u);
    OK(cuMemFree(at));
}

// A fault outside the arena is the program's own affair.
TEST(ContextDeathTest, FaultsOfTheProgramStayItsOwn)
{
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_DEATH(
        {
            cuInit(0);
            volatile int *nowhere = nullptr;
            *nowhere = 1;
        },
        "");
}

} // namespace
} // namespace sim_test
