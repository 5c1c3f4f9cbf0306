// SPDX-License-Identifier: GPL-2.0-or-later
// The moves that come of what a program says of its memory.
#include "advised.hpp"

using emuv::cuda::hint;

namespace {

class AdvisedMoves : public Advice
{
protected:
    // Has a unit leave VRAM, by the program's wish.
    void send_away(std::size_t unit)
    {
        ASSERT_TRUE(wait_until([&] { return !is_in_vram(unit); },
                               [&] { tell(unit, hint::demote); }));
    }
};

} // namespace

TEST_F(AdvisedMoves, PrefetchedMemoryComesWithoutAnyUse)
{
    ASSERT_FALSE(is_in_vram(9));
    tell(9, hint::prefetch);
    EXPECT_TRUE(wait_until([&] { return is_in_vram(9); }));
    EXPECT_EQ(stats(key(9)).fetches, 1U);
    EXPECT_EQ(stats(key(9)).fetched_bytes, unit_bytes);
}

TEST_F(AdvisedMoves, DemotedMemoryLeavesAndComesBackAsAsked)
{
    ASSERT_TRUE(is_in_vram(3));
    ASSERT_NO_FATAL_FAILURE(send_away(3));
    EXPECT_EQ(stats(key(3)).evictions, 1U);
    tell(3, hint::promote);
    EXPECT_TRUE(wait_until([&] { return is_in_vram(3); }));
}

TEST_F(AdvisedMoves, MemoryOfALowerPriorityLeavesForWhatIsPrefetched)
{
    for (std::size_t i = 0; i < units_.size(); i++)
        ASSERT_EQ(keys_->add(key(i), units_[i], unit_bytes, i == 5 ? -1 : 0),
                  EMUV_ADVICE_OK);
    tell(10, hint::prefetch);
    ASSERT_TRUE(wait_until([&] { return is_in_vram(10); }));
    EXPECT_FALSE(is_in_vram(5));
}

TEST_F(AdvisedMoves, MemoryOfAHigherPriorityStays)
{
    for (std::size_t i = 0; i < units_.size(); i++)
        ASSERT_EQ(keys_->add(key(i), units_[i], unit_bytes, i < 8 ? 1 : 0),
                  EMUV_ADVICE_OK);
    tell(10, hint::prefetch);
    // A look at the wish for the other one comes after that of this one.
    ASSERT_EQ(keys_->add(key(11), units_[11], unit_bytes, 1), EMUV_ADVICE_OK);
    tell(11, hint::prefetch);
    ASSERT_TRUE(wait_until([&] { return is_in_vram(11); }));
    EXPECT_FALSE(is_in_vram(10));
}

TEST_F(AdvisedMoves, PinnedMemoryComesAndStays)
{
    tell(8, hint::pin);
    ASSERT_TRUE(wait_until([&] { return is_in_vram(8); }));
    for (std::size_t i = 0; i < units_.size(); i++)
        if (i != 8) {
            tell(i, hint::promote);
            ASSERT_TRUE(wait_until([&] { return is_in_vram(i); },
                                   [&] {
                                       launch((i + 5) % units_.size());
                                       tell(i, hint::promote);
                                   }));
            EXPECT_TRUE(is_in_vram(8)) << "for " << i;
        }
    tell(8, hint::demote);
    EXPECT_TRUE(is_in_vram(8));
    tell(8, hint::unpin);
    ASSERT_NO_FATAL_FAILURE(send_away(8));
}

TEST_F(AdvisedMoves, AtMostThreeQuartersOfTheShareArePinned)
{
    for (std::size_t i = 0; i < 6; i++)
        tell(i, hint::pin);
    EXPECT_EQ(keys_->tell(key(6), hint::pin), EMUV_ADVICE_PINNED);
    tell(0, hint::pin); // again: that changes nothing
    tell(0, hint::unpin);
    tell(6, hint::pin);
    EXPECT_EQ(keys_->tell(key(0), hint::pin), EMUV_ADVICE_PINNED);
    ASSERT_EQ(held_->free(units_[1]), CUDA_SUCCESS);
    units_[1] = 0;
    tell(0, hint::pin);
    ASSERT_EQ(keys_->forget(key(2)), EMUV_ADVICE_OK);
    tell(7, hint::pin);
}

TEST_F(AdvisedMoves, WhatIsDeadIsNotCopied)
{
    tell(2, hint::discard);
    ASSERT_NO_FATAL_FAILURE(send_away(2));
    EXPECT_EQ(stats(key(2)).evicted_bytes, 0U);
    tell(2, hint::discard);
    tell(2, hint::prefetch);
    ASSERT_TRUE(wait_until([&] { return is_in_vram(2); }));
    EXPECT_EQ(stats(key(2)).fetched_bytes, 0U);
    ASSERT_NO_FATAL_FAILURE(send_away(3));
    EXPECT_EQ(stats(key(3)).evicted_bytes, unit_bytes) << "it was not dead";
}

TEST_F(AdvisedMoves, WhatWasDeadCountsOnceWorkIsGivenIt)
{
    tell(2, hint::discard);
    launch(2);
    ASSERT_NO_FATAL_FAILURE(send_away(2));
    EXPECT_EQ(stats(key(2)).evicted_bytes, unit_bytes);
}

TEST_F(AdvisedMoves, WhatWasDeadCountsOnceUntrustedWorkRuns)
{
    tell(2, hint::discard);
    launch(1, false);
    ASSERT_NO_FATAL_FAILURE(send_away(2));
    EXPECT_EQ(stats(key(2)).evicted_bytes, unit_bytes);
}

TEST_F(AdvisedMoves, WhatIsOftenAccessedComes)
{
    ASSERT_FALSE(is_in_vram(9));
    EXPECT_TRUE(wait_until([&] { return is_in_vram(9); },
                           [&] { tell(9, hint::access); }));
}

TEST_F(AdvisedMoves, APartOfAUnitNeitherLeavesNorDies)
{
    ASSERT_EQ(keys_->add(100, units_[4], unit_bytes / 2, 0), EMUV_ADVICE_OK);
    ASSERT_EQ(keys_->tell(100, hint::discard), EMUV_ADVICE_OK);
    ASSERT_EQ(keys_->tell(100, hint::demote), EMUV_ADVICE_OK);
    ASSERT_NO_FATAL_FAILURE(send_away(3));
    EXPECT_TRUE(is_in_vram(4));
    ASSERT_NO_FATAL_FAILURE(send_away(4));
    EXPECT_EQ(stats(key(4)).evicted_bytes, unit_bytes);
}
