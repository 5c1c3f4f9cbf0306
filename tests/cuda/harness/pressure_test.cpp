// SPDX-License-Identifier: GPL-2.0-or-later
// More and more memory, every byte of it checked.
#include "fixture.hpp"

#include <algorithm>

namespace harness {
namespace {

struct buffer
{
    CUdeviceptr at = 0;
    std::size_t words = 0;
    std::uint32_t seed = 0;
    std::uint32_t added = 0;
};

// In per cent of the physical budget.
class Pressure : public Cuda, public testing::WithParamInterface<int>
{
protected:
    void check(const buffer &p)
    {
        std::vector<std::uint32_t> got(p.words);
        OK(cuda().cuMemcpyDtoH(got.data(), p.at, p.words * 4));
        const std::size_t i =
            first_other_word(got.data(), p.words, p.seed, p.added);
        if (i < p.words)
            FAIL() << "word " << i << " of " << p.words << " is " << got[i];
        // A kernel reads the same bytes as a copy.
        const std::uint64_t expected = sum_of_words(got.data(), p.words);
        std::uint64_t sum = 0;
        OK(cuda().cuMemsetD8(sum_, 0, 8));
        OK(checksum(p.at, p.words, sum_));
        OK(cuda().cuMemcpyDtoH(&sum, sum_, 8));
        EXPECT_EQ(sum, expected);
    }
    CUdeviceptr sum_ = 0;
};

TEST_P(Pressure, EveryByteIsKeptAndEverythingCanBeFreed)
{
    const std::size_t target =
        physical() / 100 * static_cast<std::size_t>(GetParam());
    if (target > reachable())
        GTEST_SKIP() << "more than can be had here";
    std::mt19937 random(seed() + 20 + static_cast<unsigned>(GetParam()));
    OK(cuda().cuMemAlloc(&sum_, 8));

    std::vector<buffer> buffers;
    std::size_t held = 0;
    while (held < target) {
        // In words: from half a chunk to a part of the budget, odd ends too,
        // and several of them however they turn out.
        std::uniform_int_distribution<std::size_t> size(
            MiB / 4, std::min(physical() / 16, target / 12));
        buffer p;
        p.words = std::min(size(random), (target - held) / 4 + 1);
        p.seed = static_cast<std::uint32_t>(random());
        OK(cuda().cuMemAlloc(&p.at, p.words * 4));
        held += p.words * 4;
        if (buffers.size() % 2) {
            OK(fill(p.at, p.words, p.seed));
        } else {
            std::vector<std::uint32_t> data(p.words);
            fill_words(data.data(), p.words, p.seed);
            OK(cuda().cuMemcpyHtoD(p.at, data.data(), p.words * 4));
        }
        buffers.push_back(p);
    }
    ASSERT_GT(buffers.size(), 2u);
    for (buffer &p : buffers) {
        p.added = static_cast<std::uint32_t>(random());
        OK(add(p.at, p.words, p.added));
    }
    for (const buffer &p : buffers)
        ASSERT_NO_FATAL_FAILURE(check(p));

    // Half of it goes, in any order. Neither the other half nor the memory in
    // its place must notice.
    std::shuffle(buffers.begin(), buffers.end(), random);
    const std::size_t half = buffers.size() / 2;
    for (std::size_t i = 0; i < half; ++i)
        OK(cuda().cuMemFree(buffers[i].at));
    for (std::size_t i = 0; i < half; ++i) {
        buffer &p = buffers[i];
        p.seed += 1;
        p.added = 0;
        OK(cuda().cuMemAlloc(&p.at, p.words * 4));
        OK(fill(p.at, p.words, p.seed));
    }
    std::shuffle(buffers.begin(), buffers.end(), random);
    for (const buffer &p : buffers)
        ASSERT_NO_FATAL_FAILURE(check(p));
    for (const buffer &p : buffers)
        OK(cuda().cuMemFree(p.at));
    OK(cuda().cuMemFree(sum_));
}

// Within the budget, and past it.
INSTANTIATE_TEST_SUITE_P(Within, Pressure, testing::Values(30, 80));
INSTANTIATE_TEST_SUITE_P(Beyond, Pressure, testing::Values(110, 150, 200, 400));

using Limit = Cuda;

TEST_F(Limit, WhatCannotBeHadIsOutOfMemoryAndTheRestGoesOn)
{
    std::vector<CUdeviceptr> all;
    CUdeviceptr at = 0;
    CUresult last = CUDA_SUCCESS;
    const std::size_t step = physical() / 8;
    // A card without a limit has more than the tests reckon with.
    const std::size_t most = beyond() ? reachable() : 16 * physical();
    while (all.size() * step <= most &&
           (last = cuda().cuMemAlloc(&at, step)) == CUDA_SUCCESS)
        all.push_back(at);
    if (beyond() || cuda().simulated) {
        EXPECT_EQ(last, CUDA_ERROR_OUT_OF_MEMORY);
        EXPECT_GE((all.size() + 1) * step, reachable());
    }
    EXPECT_EQ(cuda().cuMemAlloc(&at, std::size_t{1} << 50),
              CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_GT(all.size(), 2u);
    OK(fill(all[1], step / 4, 5));
    std::uint32_t got = 0;
    OK(cuda().cuMemcpyDtoH(&got, all[1] + 4, 4));
    EXPECT_EQ(got, pattern(5, 1));
    OK(cuda().cuMemFree(all.back()));
    OK(cuda().cuMemAlloc(&all.back(), step));
    for (CUdeviceptr one : all)
        OK(cuda().cuMemFree(one));
}

using Info = Cuda;

TEST_F(Info, TotalIsWhatCanBeHad)
{
    std::size_t free = 0, total = 0, of_device = 0;
    OK(cuda().cuMemGetInfo(&free, &total));
    OK(cuda().cuDeviceTotalMem(&of_device, 0));
    EXPECT_LE(free, total);
    EXPECT_GE(total, reachable());
    if (std::getenv("EMUV_TEST_TOTAL")) {
        EXPECT_EQ(total, reachable());
        EXPECT_EQ(of_device, reachable());
    }
}

TEST_F(Info, FreeFollowsEveryAllocation)
{
    std::size_t before = 0, now = 0, total = 0;
    OK(cuda().cuMemGetInfo(&before, &total));
    std::vector<CUdeviceptr> all;
    const std::size_t step = physical() / 8;
    for (std::size_t held = step; held + step <= reachable() * 3 / 4;
         held += step) {
        CUdeviceptr at = 0;
        OK(cuda().cuMemAlloc(&at, step));
        all.push_back(at);
        OK(cuda().cuMemGetInfo(&now, &total));
        EXPECT_LE(now, before - held);
        EXPECT_GE(now + held + 2 * MiB * all.size(), before);
    }
    ASSERT_GE(all.size(), 4u);
    for (CUdeviceptr one : all)
        OK(cuda().cuMemFree(one));
    OK(cuda().cuMemGetInfo(&now, &total));
    EXPECT_EQ(now, before);
}

TEST_F(Info, AnAddressInsideAnAllocationNamesTheWholeOfIt)
{
    const std::size_t bytes =
        beyond() ? physical() + physical() / 2 : physical() / 2;
    CUdeviceptr at = 0;
    OK(cuda().cuMemAlloc(&at, bytes));
    for (std::size_t offset :
         {std::size_t{0}, bytes / 3, bytes / 2, bytes - 1}) {
        CUdeviceptr base = 0;
        std::size_t size = 0;
        OK(cuda().cuMemGetAddressRange(&base, &size, at + offset));
        EXPECT_EQ(base, at) << offset;
        EXPECT_EQ(size, bytes) << offset;
        unsigned type = 0;
        OK(cuda().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        at + offset));
        EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
        OK(cuda().cuPointerGetAttribute(
            &base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at + offset));
        EXPECT_EQ(base, at) << offset;
        OK(cuda().cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                        at + offset));
        EXPECT_EQ(size, bytes) << offset;
    }
    OK(cuda().cuMemFree(at));
}

} // namespace
} // namespace harness
