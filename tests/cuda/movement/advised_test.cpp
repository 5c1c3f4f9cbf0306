// SPDX-License-Identifier: GPL-2.0-or-later
// The moves that come of what a program says of its memory.
#include "advised.hpp"

using emuv::cuda::hint;
using emuv::cuda::mover;

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
    rank(5, -1);
    tell(10, hint::prefetch);
    ASSERT_TRUE(wait_until([&] { return is_in_vram(10); }));
    EXPECT_FALSE(is_in_vram(5));
}

TEST_F(AdvisedMoves, MemoryOfAHigherPriorityStays)
{
    for (std::size_t i = 0; i < share_units; i++)
        rank(i, 1);
    tell(10, hint::prefetch);
    // A look at the wish for the other one comes after that of this one.
    rank(11, 1);
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

// A kernel that is trusted by its name alone may find the unit in a table, as
// another one before it may.
TEST_F(AdvisedMoves, WhatWasDeadCountsOnceMoreWorkMayFindItInATable)
{
    moves_->note_table({units_[2]});
    const auto read = [&](auto meanwhile) {
        moves_->run(
            reinterpret_cast<CUstream>(0x20),
            [&](emuv::cuda::work &out) {
                out.what = next_what_++;
                out.trusted = true;
                out.kernel = "reads";
                out.name(units_[1]);
            },
            [&] {
                meanwhile();
                return CUDA_SUCCESS;
            });
    };
    read([&] {
        tell(2, hint::discard);
        read([] {});
    });
    ASSERT_NO_FATAL_FAILURE(send_away(2));
    EXPECT_EQ(stats(key(2)).evicted_bytes, unit_bytes);
}

// The program frees memory in one thread, and another one still says of it that
// it is dead. Meanwhile it has been allocated again.
TEST_F(AdvisedMoves, WhatIsSaidOfFreedMemoryIsNotSaidOfItsNextOwner)
{
    const mover::part before{units_[2], unit_bytes,
                             moves_->identify(units_[2])};
    ASSERT_NE(before.identity, 0U);
    ASSERT_EQ(moves_->advise(before, hint::pin), mover::answer::done);
    moves_->vacate(units_[2]);
    EXPECT_EQ(moves_->advise(before, hint::discard), mover::answer::gone);
    moves_->occupy(units_[2], unit_bytes);
    for (const hint each :
         {hint::prefetch, hint::promote, hint::demote, hint::discard,
          hint::read_mostly, hint::pin, hint::unpin})
        EXPECT_EQ(moves_->advise(before, each), mover::answer::gone);
    EXPECT_EQ(moves_->rank(before, 5), mover::answer::gone);
    EXPECT_FALSE(moves_->find(before));
    EXPECT_FALSE(moves_->access(before));
    const mover::part now{units_[2], unit_bytes, moves_->identify(units_[2])};
    EXPECT_NE(now.identity, before.identity);
    // It counts, and it is not pinned.
    ASSERT_TRUE(wait_until([&] { return moves_->find(now)->ram_bytes > 0; },
                           [&] { moves_->advise(now, hint::demote); }));
    EXPECT_EQ(moves_->moved().evicted_bytes, unit_bytes);
    EXPECT_EQ(keys_->tell(key(2), hint::access), EMUV_ADVICE_FREED);
}

TEST_F(AdvisedMoves, OfTheKeysOfAUnitTheHighestPriorityCountsWhileItIsThere)
{
    for (std::size_t i = 0; i < share_units; i++)
        rank(i, 1);
    std::uint64_t low = 0;
    std::uint64_t again = 0;
    ASSERT_EQ(keys_->add(units_[5], unit_bytes / 2, -5, low), EMUV_ADVICE_OK);
    ASSERT_EQ(keys_->add(units_[5], unit_bytes, 1, again), EMUV_ADVICE_OK);
    ASSERT_EQ(keys_->forget(again), EMUV_ADVICE_OK);
    tell(10, hint::prefetch);
    rank(11, 1);
    tell(11, hint::prefetch);
    ASSERT_TRUE(wait_until([&] { return is_in_vram(11); }));
    EXPECT_FALSE(is_in_vram(10)) << "nothing lies lower than it";
    EXPECT_TRUE(is_in_vram(5)) << "others were there before";
    ASSERT_EQ(keys_->forget(key(5)), EMUV_ADVICE_OK);
    tell(10, hint::prefetch);
    ASSERT_TRUE(wait_until([&] { return is_in_vram(10); }));
    emuv_advice_place found{};
    ASSERT_EQ(keys_->where(low, found), EMUV_ADVICE_OK);
    EXPECT_EQ(found.bytes[EMUV_TIER_VRAM], 0U) << "its other keys are gone";
    ASSERT_EQ(keys_->add(units_[5], unit_bytes, 0, of_units_[5]),
              EMUV_ADVICE_OK);
}

TEST_F(AdvisedMoves, WhatIsOftenAccessedComes)
{
    ASSERT_FALSE(is_in_vram(9));
    EXPECT_TRUE(wait_until([&] { return is_in_vram(9); },
                           [&] { tell(9, hint::access); }));
}

TEST_F(AdvisedMoves, APartOfAUnitNeitherLeavesNorDies)
{
    std::uint64_t half = 0;
    ASSERT_EQ(keys_->add(units_[4], unit_bytes / 2, 0, half), EMUV_ADVICE_OK);
    ASSERT_EQ(keys_->tell(half, hint::discard), EMUV_ADVICE_OK);
    ASSERT_EQ(keys_->tell(half, hint::demote), EMUV_ADVICE_OK);
    ASSERT_NO_FATAL_FAILURE(send_away(3));
    EXPECT_TRUE(is_in_vram(4));
    ASSERT_NO_FATAL_FAILURE(send_away(4));
    EXPECT_EQ(stats(key(4)).evicted_bytes, unit_bytes);
}
