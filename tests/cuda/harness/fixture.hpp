// SPDX-License-Identifier: GPL-2.0-or-later
// Shared by the harness's tests.
//
// One binary for every driver. It reads:
//   EMUV_TEST_PHYSICAL  bytes of VRAM that the tests may count on (64 MiB);
//                       the card, or the limit, must have them
//   EMUV_TEST_TOTAL     bytes that can be had altogether; unset, VRAM only
//   EMUV_TEST_SEED      another course for the tests' random choices (0)
#pragma once

#include "driver.hpp"
#include "kernels.hpp"

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

// A statement of its own, also behind an `if` without braces.
#define OK(call)                                                               \
    do                                                                         \
        ASSERT_EQ(call, CUDA_SUCCESS) << "in " << #call;                       \
    while (false)

namespace harness {

inline constexpr std::size_t MiB = std::size_t{1} << 20;

inline std::size_t number_from(const char *name, std::size_t otherwise)
{
    const char *text = std::getenv(name);
    return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// The VRAM that tests reckon with.
inline std::size_t physical()
{
    return number_from("EMUV_TEST_PHYSICAL", 64 * MiB) / (2 * MiB) * (2 * MiB);
}
// All that can be had.
inline std::size_t reachable()
{
    return number_from("EMUV_TEST_TOTAL", physical());
}
// Added by each test to a seed of its own.
inline unsigned seed()
{
    return static_cast<unsigned>(number_from("EMUV_TEST_SEED", 0));
}
// The number of random repeats. ThreadSanitizer looks at every byte of a copy,
// for races that a fifth of the copies shows as well.
constexpr int repeats(int wanted)
{
#ifdef __SANITIZE_THREAD__
    return wanted / 5;
#else
    return wanted;
#endif
}
// True if more can be had than VRAM has.
inline bool beyond()
{
    return reachable() > physical();
}

class Cuda : public testing::Test
{
protected:
    void SetUp() override
    {
        OK(cuda().cuDevicePrimaryCtxRetain(&context, 0));
        OK(cuda().cuCtxSetCurrent(context));
        OK(cuda().cuModuleLoadData(&module, kernel_image(cuda().simulated)));
        OK(cuda().cuModuleGetFunction(&fill_, module, "fill"));
        OK(cuda().cuModuleGetFunction(&add_, module, "add"));
        OK(cuda().cuModuleGetFunction(&checksum_, module, "checksum"));
    }
    void TearDown() override
    {
        // The context is sound after any test.
        EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
        EXPECT_EQ(cuda().cuModuleUnload(module), CUDA_SUCCESS);
        EXPECT_EQ(cuda().cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    }

    CUresult launch(CUfunction what, CUdeviceptr at, std::uint64_t words,
                    void *third, CUstream stream) const
    {
        void *params[] = {&at, &words, third};
        const auto blocks =
            static_cast<unsigned>((words + block_threads - 1) / block_threads);
        return cuda().cuLaunchKernel(what, blocks, 1, 1, block_threads, 1, 1, 0,
                                     stream, params, nullptr);
    }
    CUresult fill(CUdeviceptr at, std::uint64_t words, std::uint32_t seed,
                  CUstream stream = nullptr) const
    {
        return launch(fill_, at, words, &seed, stream);
    }
    CUresult add(CUdeviceptr at, std::uint64_t words, std::uint32_t value,
                 CUstream stream = nullptr) const
    {
        return launch(add_, at, words, &value, stream);
    }
    CUresult checksum(CUdeviceptr at, std::uint64_t words, CUdeviceptr sum,
                      CUstream stream = nullptr) const
    {
        return launch(checksum_, at, words, &sum, stream);
    }

    CUcontext context = nullptr;
    CUmodule module = nullptr;

private:
    CUfunction fill_ = nullptr, add_ = nullptr, checksum_ = nullptr;
};

} // namespace harness
