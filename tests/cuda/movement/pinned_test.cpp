// SPDX-License-Identifier: GPL-2.0-or-later
// Memory of the host's that kernels can read.
#include "movement/pinned.hpp"

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
    EXPECT_EQ(all.bytes_from(address_of(&memory[0])), 0u);
    all.add(&memory[100], 50);
    all.add(&memory[200], 50);
    EXPECT_EQ(all.bytes_from(address_of(&memory[99])), 0u);
    EXPECT_EQ(all.bytes_from(address_of(&memory[100])), 50u);
    EXPECT_EQ(all.bytes_from(address_of(&memory[149])), 1u);
    EXPECT_EQ(all.bytes_from(address_of(&memory[150])), 0u);
    EXPECT_EQ(all.bytes_from(address_of(&memory[210])), 40u);
    EXPECT_EQ(all.remove(&memory[200]), 50u);
    EXPECT_EQ(all.bytes_from(address_of(&memory[210])), 0u);
    EXPECT_EQ(all.bytes_from(address_of(&memory[110])), 40u);
}

TEST(PinnedTest, WhatWasNeverPinnedIsLetGoWithoutHarm)
{
    pinned all;
    EXPECT_EQ(all.remove(&all), 0u);
    all.add(&all, 8);
    EXPECT_EQ(all.remove(&all + 1), 0u);
    EXPECT_EQ(all.bytes_from(address_of(&all)), 8u);
}

TEST(TableTest, IsReadToItsLastWholeAddress)
{
    const std::array<CUdeviceptr, 3> words{7, 8, 9};
    EXPECT_EQ(read_table(words.data(), 23), (std::vector<CUdeviceptr>{7, 8}));
    EXPECT_TRUE(read_table(words.data(), 7).empty());
}

TEST(TableTest, ThatIsNotThereIsNone)
{
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void *const at = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    ASSERT_EQ(munmap(static_cast<char *>(at) + page, page), 0);
    EXPECT_EQ(read_table(at, page).size(), page / 8);
    EXPECT_TRUE(read_table(at, 2 * page).empty());
    EXPECT_TRUE(read_table(nullptr, page).empty());
    ASSERT_EQ(munmap(at, page), 0);
}

} // namespace
