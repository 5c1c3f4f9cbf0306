// SPDX-License-Identifier: GPL-2.0-or-later
// The next owner of memory that was freed in stream order.
#include "memory/vacancies.hpp"

#include <algorithm>
#include <vector>

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
    return found ? found->cut.base : 0;
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
        const CUdeviceptr next = found ? found->cut.base : ++made;
        const std::uint64_t next_size =
            found ? found->cut.bytes : vacancies::size_for(bytes);
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
    EXPECT_TRUE(free.take_idle(0).empty());
    for (std::uint64_t i = 0; i < vacancies::asks_between_looks; i++)
        taken(free, 2 * MiB);
    const auto idle = free.take_idle(0);
    ASSERT_EQ(idle.size(), 1u);
    EXPECT_EQ(idle[0].base, 1u);
    EXPECT_EQ(free.bytes(), 8 * MiB);
}

TEST(Vacancies, InExcessThoseThatAreIdleLongestLeaveFirst)
{
    vacancies free;
    free.put({1, 8 * MiB, one});
    free.put({2, 16 * MiB, one});
    free.put({3, MiB, one}); // the driver's
    taken(free, 64 * MiB);
    free.put({4, 32 * MiB, one});
    for (std::uint64_t i = 0; i < vacancies::least_idle_asks; i++)
        taken(free, 64 * MiB);
    EXPECT_TRUE(free.take_idle(0).empty());
    const auto first = free.take_idle(4 * MiB);
    ASSERT_EQ(first.size(), 1u);
    EXPECT_EQ(first[0].base, 1u);
    EXPECT_EQ(free.take_idle(64 * MiB).size(), 1u) << "the last is not idle";
    EXPECT_EQ(free.bytes(), 33 * MiB);
}

// Asks for what is not there until a vacancy in excess leaves.
static std::uint64_t asks_until_it_leaves(vacancies &free)
{
    free.put({1, 8 * MiB, one});
    for (std::uint64_t asks = 1; asks < 100000; asks++) {
        taken(free, 64 * MiB);
        if (!free.take_idle(MiB).empty())
            return asks;
    }
    return 0;
}

TEST(Vacancies, OneThatIsAskedForAgainStaysTwiceAsLong)
{
    vacancies free;
    std::uint64_t before = asks_until_it_leaves(free);
    EXPECT_EQ(before, vacancies::least_idle_asks + 1);
    for (int i = 0; i < 4; i++) {
        taken(free, 8 * MiB); // in vain
        const std::uint64_t now = asks_until_it_leaves(free);
        EXPECT_EQ(now - 1, 2 * (before - 1)) << i;
        before = now;
    }
    EXPECT_EQ(asks_until_it_leaves(free), before) << "nobody asked";
    for (int i = 0; i < 10; i++) {
        taken(free, 8 * MiB);
        before = asks_until_it_leaves(free);
    }
    EXPECT_EQ(before, vacancies::max_idle_asks + 1) << "no longer than others";
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

namespace {

constexpr std::uint64_t step = 64 << 10; // between parts

// A range that several may share, all of it vacant.
vacancies::vacancy range_at(CUdeviceptr base, std::uint64_t bytes)
{
    return {base, bytes, one, {base, bytes}};
}

} // namespace

TEST(Vacancies, WhatWasMadeForOneIsTakenRatherThanAPartOfASharedRange)
{
    vacancies free;
    free.put({1 << 30, 36 * MiB, one});
    free.put(range_at(2u << 30, 33 * MiB));
    EXPECT_EQ(taken(free, 32 * MiB), 1u << 30);
    EXPECT_EQ(taken(free, 32 * MiB), 2u << 30);
}

TEST(Vacancies, WhatWasMadeForOneIsNotDivided)
{
    vacancies free;
    free.put({1 << 30, 50 * MiB, one});
    EXPECT_EQ(taken(free, 8 * MiB), 0u);
}

TEST(Vacancies, TheLargestThatWereMadeForOneAreReplaced)
{
    vacancies free;
    for (const CUdeviceptr mib : {10, 20, 30, 40})
        free.put({mib << 32, mib * MiB, one});
    free.put({1, MiB, one});                  // the driver's
    free.put(range_at(1ull << 40, 25 * MiB)); // shared
    free.put({1ull << 41, 50 * MiB, other});
    const auto gone = free.take_replaced(65 * MiB, one);
    ASSERT_EQ(gone.size(), 2u);
    EXPECT_EQ(gone[0].bytes, 40 * MiB);
    EXPECT_EQ(gone[1].bytes, 20 * MiB);
    EXPECT_EQ(free.bytes(), 116 * MiB);
}

TEST(Vacancies, OfASharedRangeAPartIsTakenAndTheRestIsTakenNext)
{
    vacancies free;
    free.put(range_at(1 << 30, 64 * MiB));
    for (CUdeviceptr i = 0; i < 3; i++)
        EXPECT_EQ(taken(free, 20 * MiB), (1u << 30) + i * (20 * MiB + step));
    EXPECT_EQ(taken(free, 20 * MiB), 0u);
    EXPECT_EQ(free.bytes(), 4 * MiB - 3 * step);
}

TEST(Vacancies, NoPartIsFilledToItsEnd)
{
    vacancies free;
    free.put(range_at(1 << 30, 64 * MiB));
    const auto first = free.take(32 * MiB, one);
    ASSERT_TRUE(first);
    EXPECT_GT(first->cut.bytes, 32 * MiB);
    // A hole between two parts, of the very size.
    EXPECT_EQ(taken(free, first->left_bytes), 0u);
    EXPECT_EQ(taken(free, first->left_bytes - 1), 0u);
    EXPECT_EQ(taken(free, first->left_bytes - step), first->cut.end());
}

TEST(Vacancies, PartsGrowTogetherAgainInWhateverOrderTheyAreFreed)
{
    for (unsigned order = 0; order < 6; order++) {
        vacancies free;
        free.put(range_at(1 << 30, 60 * MiB));
        std::vector<vacancies::vacancy> cuts;
        for (int i = 0; i < 3; i++)
            cuts.push_back(free.take(20 * MiB - step, one)->cut);
        EXPECT_EQ(free.bytes(), 0u);
        std::sort(cuts.begin(), cuts.end(),
                  [](const auto &a, const auto &b) { return a.base < b.base; });
        for (unsigned i = 0; i < order; i++)
            std::next_permutation(
                cuts.begin(), cuts.end(),
                [](const auto &a, const auto &b) { return a.base < b.base; });
        free.put(cuts[0]);
        free.put(cuts[1]);
        EXPECT_EQ(free.take_if([](const vacancies::vacancy &each) {
                          return each.is_whole();
                      })
                      .size(),
                  0u);
        const auto all = free.put(cuts[2]);
        EXPECT_TRUE(all.is_whole());
        EXPECT_EQ(all.base, 1u << 30);
        EXPECT_EQ(all.bytes, 60 * MiB);
    }
}

TEST(Vacancies, PartsOfTwoRangesOrOfTwoStreamsStayApart)
{
    vacancies free;
    free.put(range_at(1 << 30, 20 * MiB));
    free.put(range_at((1 << 30) + 20 * MiB, 20 * MiB));
    EXPECT_EQ(taken(free, 30 * MiB), 0u);
    vacancies::vacancy left = range_at(2u << 30, 40 * MiB);
    vacancies::vacancy right = left;
    left.bytes = right.bytes = 20 * MiB;
    right.base += 20 * MiB;
    right.behind = other;
    free.put(left);
    EXPECT_EQ(free.put(right).bytes, 20 * MiB);
}

TEST(Vacancies, WhatIsIdleGoesBackOnlyAsAWhole)
{
    vacancies free;
    free.put(range_at(1 << 30, 64 * MiB));
    const auto some = free.take(8 * MiB, one);
    for (std::uint64_t i = 0;
         i <= vacancies::max_idle_asks + vacancies::asks_between_looks; i++)
        taken(free, 100 * MiB);
    EXPECT_TRUE(free.take_idle(0).empty());
    free.put(some->cut);
    for (std::uint64_t i = 0;
         i <= vacancies::max_idle_asks + vacancies::asks_between_looks; i++)
        taken(free, 100 * MiB);
    EXPECT_EQ(free.take_idle(0).size(), 1u);
}

TEST(Vacancies, ASizeThatWrapsFitsNowhere)
{
    vacancies free;
    free.put(range_at(1 << 30, 64 * MiB));
    for (const std::uint64_t bytes : {~0ull, ~0ull - 100, 1ull << 63}) {
        EXPECT_EQ(taken(free, bytes), 0u);
        EXPECT_EQ(vacancies::shared_for(bytes, 1ull << 40), 0u);
    }
}

TEST(Vacancies, SharedRangesHaveRoomForFourAndAreAnEighthOfAllAtMost)
{
    EXPECT_EQ(vacancies::shared_for(8 * MiB, 200 * MiB), 0u);
    EXPECT_EQ(vacancies::shared_for(8 * MiB - step, 256 * MiB), 32 * MiB);
    EXPECT_EQ(vacancies::shared_for(8 * MiB, 256 * MiB), 0u);
    EXPECT_EQ(vacancies::shared_for(8 * MiB, 100ull << 30), 512 * MiB);
    EXPECT_EQ(vacancies::shared_for(128 * MiB, 100ull << 30), 0u);
}
