// SPDX-License-Identifier: GPL-2.0-or-later
// Pinned and managed memory, which kernels can read.
#include "movement/pinned.hpp"
#include "reading_denied.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace emuv::cuda;

namespace {

CUdeviceptr address_of(const void *at)
{
    return reinterpret_cast<CUdeviceptr>(at);
}

TEST(PinnedTest, KnowsHowFarItReachesFromWhereverInIt)
{
    const std::array<char, 300> memory{};
    pinned all;
    EXPECT_EQ(all.from(address_of(&memory[0])).bytes, 0u);
    all.add(&memory[100], 50);
    all.add(&memory[200], 50);
    EXPECT_EQ(all.from(address_of(&memory[99])).bytes, 0u);
    EXPECT_EQ(all.from(address_of(&memory[100])).bytes, 50u);
    EXPECT_EQ(all.from(address_of(&memory[149])).bytes, 1u);
    EXPECT_EQ(all.from(address_of(&memory[150])).bytes, 0u);
    EXPECT_EQ(all.from(address_of(&memory[210])).bytes, 40u);
    EXPECT_EQ(all.remove(&memory[200]).bytes, 50u);
    EXPECT_EQ(all.from(address_of(&memory[210])).bytes, 0u);
    EXPECT_EQ(all.from(address_of(&memory[110])).bytes, 40u);
}

TEST(PinnedTest, WhatWasNeverPinnedIsLetGoWithoutHarm)
{
    pinned all;
    EXPECT_EQ(all.remove(&all).bytes, 0u);
    all.add(&all, 8);
    EXPECT_EQ(all.remove(&all + 1).bytes, 0u);
    EXPECT_EQ(all.from(address_of(&all)).bytes, 8u);
}

TEST(PinnedTest, MemoryGoesWithItsContextAndNoLaterMemoryDoes)
{
    const std::array<char, 400> memory{};
    const auto context = reinterpret_cast<CUcontext>(0x10);
    const auto other = reinterpret_cast<CUcontext>(0x20);
    pinned all;
    all.add(&memory[0], 100, false, context);
    all.add(&memory[100], 100, true, context);
    all.add(&memory[200], 100, false, other);
    const std::uint64_t before = all.next();
    all.add(&memory[300], 100, false, context); // of the next of that name
    all.gone(context, before);
    EXPECT_EQ(all.from(address_of(&memory[0])).bytes, 0u);
    EXPECT_EQ(all.from(address_of(&memory[100])).bytes, 0u);
    EXPECT_EQ(all.from(address_of(&memory[200])).bytes, 100u);
    EXPECT_EQ(all.from(address_of(&memory[300])).bytes, 100u);
}

TEST(PinnedTest, KnowsWhatTheDriverMayMove)
{
    const std::array<char, 300> memory{};
    pinned all;
    all.add(&memory[0], 100);
    all.add(&memory[100], 100, true);
    EXPECT_FALSE(all.from(address_of(&memory[99])).managed);
    EXPECT_TRUE(all.from(address_of(&memory[150])).managed);
    EXPECT_FALSE(all.from(address_of(&memory[200])).managed);
    EXPECT_TRUE(all.remove(&memory[100]).managed);
}

using table = std::vector<CUdeviceptr>;

TEST(TableTest, IsReadToItsLastWholeAddress)
{
    const std::array<CUdeviceptr, 3> words{7, 8, 9};
    table got;
    EXPECT_EQ(read_table(words.data(), 23, got), reading::done);
    EXPECT_EQ(got, (table{7, 8}));
    EXPECT_EQ(read_table(words.data(), 7, got), reading::done);
    EXPECT_TRUE(got.empty());
}

TEST(TableTest, ThatIsNotThereIsAbsent)
{
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void *const at = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    ASSERT_EQ(munmap(static_cast<char *>(at) + page, page), 0);
    table got;
    EXPECT_EQ(read_table(at, page, got), reading::done);
    EXPECT_EQ(got.size(), page / 8);
    EXPECT_EQ(read_table(at, 2 * page, got), reading::absent);
    EXPECT_TRUE(got.empty());
    EXPECT_EQ(read_table(nullptr, page, got), reading::absent);
    ASSERT_EQ(munmap(at, page), 0);
}

TEST(TableTest, ThatNobodyMayReadIsNotTakenToBeAbsent)
{
    const std::array<CUdeviceptr, 3> words{7, 8, 9};
    table got;
    reading all = reading::done;
    reading some = reading::done;
    if (!with_reading_denied([&] {
            all = read_table(words.data(), sizeof words, got);
            some = sample_table(words.data(), sizeof words, got);
        }))
        GTEST_SKIP() << "no filters of system calls";
    EXPECT_EQ(all, reading::denied);
    EXPECT_EQ(some, reading::denied);
    EXPECT_TRUE(got.empty());
}

TEST(TableTest, SamplesAreOfAllParts)
{
    table words(10 * table_window_bytes / sizeof(CUdeviceptr));
    for (std::size_t i = 0; i < words.size(); i++)
        words[i] = i;
    table got;
    EXPECT_EQ(sample_table(words.data(), words.size() * sizeof words[0], got),
              reading::done);
    EXPECT_LT(got.size(), words.size() / 10);
    for (std::size_t i = 0; i < 10; i++)
        EXPECT_TRUE(std::any_of(got.begin(), got.end(), [&](CUdeviceptr each) {
            return each / (words.size() / 10) == i;
        })) << i;
}

} // namespace
