// SPDX-License-Identifier: GPL-2.0-or-later
// Shared by the tests of the simulated driver: a context, a module of kernels,
// and the balance afterwards.
#pragma once

#include "sim.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <cuda.h>
#include <gtest/gtest.h>

#define OK(call) ASSERT_EQ(call, CUDA_SUCCESS)

namespace sim_test {

inline constexpr std::size_t frame = EMUV_SIM_FRAME_BYTES;

template <typename T>
const T &param(void *const *params, std::size_t index)
{
    return *static_cast<const T *>(params[index]);
}

// The state of "hold", a kernel that runs until it is let go.
inline std::atomic<bool> stalled;
inline std::atomic<int> holding;

inline void add(const emuv_sim_launch *, void *const *params)
{
    auto *at = reinterpret_cast<unsigned *>(param<CUdeviceptr>(params, 0));
    for (std::size_t i = 0; i < param<unsigned>(params, 1); ++i)
        at[i] += param<unsigned>(params, 2);
}

inline void hold(const emuv_sim_launch *, void *const *)
{
    ++holding;
    while (stalled)
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    --holding;
}

inline void touch(const emuv_sim_launch *, void *const *params)
{
    auto *at = reinterpret_cast<volatile char *>(param<CUdeviceptr>(params, 0));
    *at = *at;
}

inline const emuv_sim_param add_params[] = {{0, 8}, {8, 4}, {12, 4}};
inline const emuv_sim_param touch_params[] = {{0, 8}};
inline const emuv_sim_kernel kernels[] = {
    {"add", add, add_params, 3},
    {"hold", hold, nullptr, 0},
    {"touch", touch, touch_params, 1},
};
inline const unsigned seven = 7;
inline const emuv_sim_global globals[] = {
    {"seven", sizeof seven, &seven},
    {"zeros", 4096, nullptr},
};
inline emuv_sim_module image()
{
    emuv_sim_module out{};
    std::memcpy(out.magic, EMUV_SIM_MODULE_MAGIC, sizeof out.magic);
    out.kernels = kernels;
    out.kernel_count = std::size(kernels);
    out.globals = globals;
    out.global_count = std::size(globals);
    return out;
}

class Sim : public testing::Test
{
protected:
    void SetUp() override
    {
        OK(cuInit(0));
        reservations_ = api->reservations();
        mappings_ = api->mappings();
        OK(cuDevicePrimaryCtxRetain(&context, 0));
        OK(cuCtxSetCurrent(context));
        const emuv_sim_module given = image();
        OK(cuModuleLoadData(&module, &given));
        OK(cuModuleGetFunction(&add_, module, "add"));
        OK(cuModuleGetFunction(&hold_, module, "hold"));
        OK(cuModuleGetFunction(&touch_, module, "touch"));
    }

    // After any test its work went well, and the driver holds nothing of it.
    void TearDown() override
    {
        stalled = false;
        api->fail(nullptr, 0, 0);
        OK(cuCtxSetCurrent(context));
        EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
        OK(cuDevicePrimaryCtxRelease(0));
        OK(cuCtxSetCurrent(nullptr));
        EXPECT_EQ(api->vram_used(0), 0u);
        EXPECT_EQ(api->host_used(), 0u);
        EXPECT_EQ(api->reservations(), reservations_);
        EXPECT_EQ(api->mappings(), mappings_);
    }

    CUresult launch_add(CUdeviceptr at, unsigned count, unsigned value,
                        CUstream stream = nullptr)
    {
        void *params[] = {&at, &count, &value};
        return cuLaunchKernel(add_, 1, 1, 1, 1, 1, 1, 0, stream, params,
                              nullptr);
    }
    CUresult launch_touch(CUdeviceptr at, CUstream stream = nullptr)
    {
        void *params[] = {&at};
        return cuLaunchKernel(touch_, 1, 1, 1, 1, 1, 1, 0, stream, params,
                              nullptr);
    }
    // Keeps a stream busy until release().
    void occupy(CUstream stream)
    {
        stalled = true;
        OK(cuLaunchKernel(hold_, 1, 1, 1, 1, 1, 1, 0, stream, nullptr,
                          nullptr));
        while (holding == 0)
            std::this_thread::yield();
    }
    static void release() { stalled = false; }

    static CUmemAllocationProp on_device(int device = 0)
    {
        CUmemAllocationProp prop{};
        prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        prop.location.id = device;
        return prop;
    }
    static CUmemAllocationProp on_host()
    {
        CUmemAllocationProp prop = on_device();
        prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
        return prop;
    }
    static CUmemAccessDesc access_of(int device = 0)
    {
        CUmemAccessDesc out{};
        out.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        out.location.id = device;
        out.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        return out;
    }
    // Creates, maps and gives access; the mapping alone keeps the memory.
    static CUresult put(CUdeviceptr at, std::size_t bytes,
                        const CUmemAllocationProp &prop)
    {
        CUmemGenericAllocationHandle handle = 0;
        if (CUresult r = cuMemCreate(&handle, bytes, &prop, 0))
            return r;
        if (CUresult r = cuMemMap(at, bytes, 0, handle, 0))
            return r;
        if (CUresult r = cuMemRelease(handle))
            return r;
        const CUmemAccessDesc access = access_of();
        return cuMemSetAccess(at, bytes, &access, 1);
    }

    const emuv_sim_api *api = emuv_sim_get();
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction add_ = nullptr, hold_ = nullptr, touch_ = nullptr;

private:
    std::size_t reservations_ = 0, mappings_ = 0;
};

} // namespace sim_test
