// SPDX-License-Identifier: GPL-2.0-or-later
// The next owner of memory that was freed in stream order.
#include "memory/vacancies.hpp"

#include <gtest/gtest.h>

using emuv::cuda::vacancies;

namespace {

constexpr std::uint64_t MiB = 1ull << 20;
const vacancies::stream_of one{reinterpret_cast<CUcontext>(0x10),
                               reinterpret_cast<CUstream>(0x20)};
const vacancies::stream_of other{reinterpret_cast<CUcontext>(0x10),
                                 reinterpret_cast<CUstream>(0x30)};

CUdeviceptr taken(vacancies &from, std::uint64_t bytes,
                  const vacancies::stream_of &behind = one)
{
    const auto found = from.take(bytes, behind);
    return found ? found->base : 0;
}

} // namespace

TEST(Vacancies, TheLowestAddressIsTakenInWhateverOrderTheyWereFreed)
{
    vacancies free;
    for (const CUdeviceptr base : {3, 1, 2})
        free.put({base, 8 * MiB, one});
    for (const CUdeviceptr base : {1, 2, 3})
        EXPECT_EQ(taken(free, 8 * MiB), base);
    EXPECT_EQ(taken(free, 8 * MiB), 0u);
}

TEST(Vacancies, WhatFitsBestIsTakenAndNothingMuchLarger)
{
    vacancies free;
    free.put({1, 20 * MiB, one});
    free.put({2, 18 * MiB, one});
    free.put({3, 15 * MiB, one});
    EXPECT_EQ(taken(free, 16 * MiB), 2u);
    EXPECT_EQ(taken(free, 16 * MiB), 0u);
    EXPECT_EQ(taken(free, 18 * MiB), 1u);
    EXPECT_EQ(free.bytes(), 15 * MiB);
}

TEST(Vacancies, WhatGrowsALittleEachTimeMostlyFitsWhereItWas)
{
    vacancies free;
    unsigned made = 0;
    CUdeviceptr mine = 0;
    std::uint64_t size = 0;
    for (std::uint64_t bytes = MiB; bytes < MiB + MiB / 4; bytes += 2048) {
        const auto found = free.take(vacancies::size_for(bytes), one);
        const CUdeviceptr next = found ? found->base : ++made;
        const std::uint64_t next_size =
            found ? found->bytes : vacancies::size_for(bytes);
        EXPECT_GE(next_size, bytes);
        if (mine != 0)
            free.put({mine, size, one});
        mine = next;
        size = next_size;
    }
    // Two in each of five sizes: the last and the next.
    EXPECT_LE(made, 10u);
}

TEST(Vacancies, NoSizeIsASixteenthLargerThanWasAskedForBut512Bytes)
{
    for (std::uint64_t bytes = 1; bytes < 3 * MiB; bytes += 509) {
        const std::uint64_t size = vacancies::size_for(bytes);
        EXPECT_GE(size, bytes);
        EXPECT_LT(size, bytes + std::max<std::uint64_t>(512, bytes / 16 + 1));
    }
    EXPECT_EQ(vacancies::size_for(2 * MiB), 2 * MiB);
    EXPECT_EQ(vacancies::size_for(2 * MiB + 1), 2 * MiB + 1);
}

TEST(Vacancies, WhatWasFreedInAnotherStreamIsNotTaken)
{
    vacancies free;
    free.put({1, 8 * MiB, other});
    EXPECT_EQ(taken(free, 8 * MiB), 0u);
    EXPECT_EQ(taken(free, 8 * MiB, other), 1u);
}

TEST(Vacancies, OnlyWhatNobodyAskedForInALongTimeIsIdle)
{
    vacancies free;
    free.put({1, 8 * MiB, one});
    for (std::uint64_t i = 0; i < vacancies::max_idle_asks; i++)
        taken(free, 2 * MiB);
    free.put({2, 8 * MiB, one});
    EXPECT_TRUE(free.take_idle().empty());
    for (std::uint64_t i = 0; i < vacancies::asks_between_looks; i++)
        taken(free, 2 * MiB);
    const auto idle = free.take_idle();
    ASSERT_EQ(idle.size(), 1u);
    EXPECT_EQ(idle[0].base, 1u);
    EXPECT_EQ(free.bytes(), 8 * MiB);
}

TEST(Vacancies, ThoseThatAreAskedForByOtherMeansAreGone)
{
    vacancies free;
    free.put({1, 8 * MiB, one});
    free.put({2, 4 * MiB, other});
    const auto gone = free.take_if(
        [](const vacancies::vacancy &each) { return each.behind == other; });
    ASSERT_EQ(gone.size(), 1u);
    EXPECT_EQ(gone[0].base, 2u);
    EXPECT_EQ(gone[0].bytes, 4 * MiB);
    EXPECT_EQ(free.bytes(), 8 * MiB);
}
