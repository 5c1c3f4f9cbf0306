// SPDX-License-Identifier: GPL-2.0-or-later
// The moves that come of what a program says of its memory. The program has
// twelve blocks of a unit each, eight of them in VRAM, against a driver of
// tables. Copies and kernels are over at once.
#include "movement/block_maker.hpp"
#include "movement/units_fixture.hpp"
#include "wait_until.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

using namespace emuv::cuda;

namespace {

class AdvisedMoves : public Units
{
protected:
    void SetUp() override
    {
        ASSERT_NO_FATAL_FAILURE(Units::SetUp());
        maker_ = std::make_unique<block_maker>(
            block_maker::options{.calls = card_.calls,
                                 .host = *host_,
                                 .shares = *shares_,
                                 .moves = *moves_});
        for (std::size_t i = 0; i < units_.size(); i++) {
            ASSERT_EQ(maker_->allocate(&units_[i], unit_bytes), CUDA_SUCCESS);
            subranges_.push_back(
                {units_[i], unit_bytes, moves_->identify(units_[i])});
            ASSERT_EQ(moves_->rank(subranges_[i], 0), mover::answer::done);
        }
    }

    void TearDown() override
    {
        for (const CUdeviceptr each : units_)
            if (each != 0) {
                EXPECT_EQ(maker_->free(each), CUDA_SUCCESS);
            }
        Units::TearDown();
    }

    // The program gives a unit another priority.
    void rank(std::size_t unit, int priority)
    {
        moves_->forget_advice(subranges_[unit], said_[unit]);
        said_[unit] = {.priority = priority};
        ASSERT_EQ(moves_->rank(subranges_[unit], priority),
                  mover::answer::done);
    }

    void tell(std::size_t unit, hint what)
    {
        ASSERT_EQ(moves_->advise(subranges_[unit], what), mover::answer::done);
        if (what == hint::pin || what == hint::unpin)
            said_[unit].pinned = what == hint::pin;
    }

    bool is_in_vram(std::size_t unit)
    {
        const auto found = moves_->find(subranges_[unit]);
        EXPECT_TRUE(found);
        EXPECT_EQ(found->vram_bytes + found->ram_bytes, unit_bytes);
        return found->vram_bytes == unit_bytes;
    }
    moves moved(std::size_t unit)
    {
        const auto found = moves_->find(subranges_[unit]);
        EXPECT_TRUE(found);
        return found->moved;
    }

    // Does a step again and again, with a pause behind it, until something
    // holds.
    template <typename Condition, typename Step>
    static bool wait_until(Condition holds, Step step)
    {
        return ::wait_until(holds, [&] {
            step();
            usleep(500);
        });
    }
    template <typename Condition>
    static bool wait_until(Condition holds)
    {
        return wait_until(holds, [] {});
    }

    // Has a unit leave VRAM, by the program's wish.
    void send_away(std::size_t unit)
    {
        ASSERT_TRUE(wait_until([&] { return !is_in_vram(unit); },
                               [&] { tell(unit, hint::demote); }));
    }

    std::unique_ptr<block_maker> maker_;
    std::vector<mover::subrange> subranges_; // each a unit
    std::vector<mover::lasting> said_ =
        std::vector<mover::lasting>(units_.size()); // of each
};

} // namespace

TEST_F(AdvisedMoves, PrefetchedMemoryComesWithoutAnyUse)
{
    ASSERT_FALSE(is_in_vram(9));
    tell(9, hint::prefetch);
    EXPECT_TRUE(wait_until([&] { return is_in_vram(9); }));
    EXPECT_EQ(moved(9).fetches, 1U);
    EXPECT_EQ(moved(9).fetched_bytes, unit_bytes);
}

TEST_F(AdvisedMoves, DemotedMemoryLeavesAndComesBackAsAsked)
{
    ASSERT_TRUE(is_in_vram(3));
    ASSERT_NO_FATAL_FAILURE(send_away(3));
    EXPECT_EQ(moved(3).evictions, 1U);
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
    EXPECT_EQ(moves_->advise(subranges_[6], hint::pin),
              mover::answer::too_much);
    tell(0, hint::unpin);
    tell(6, hint::pin);
    EXPECT_EQ(moves_->advise(subranges_[0], hint::pin),
              mover::answer::too_much);
    ASSERT_EQ(maker_->free(units_[1]), CUDA_SUCCESS);
    units_[1] = 0;
    tell(0, hint::pin);
    moves_->forget_advice(subranges_[2], said_[2]);
    said_[2] = {};
    tell(7, hint::pin);
}

TEST_F(AdvisedMoves, WhatIsDeadIsNotCopied)
{
    tell(2, hint::discard);
    ASSERT_NO_FATAL_FAILURE(send_away(2));
    EXPECT_EQ(moved(2).evicted_bytes, 0U);
    tell(2, hint::discard);
    tell(2, hint::prefetch);
    ASSERT_TRUE(wait_until([&] { return is_in_vram(2); }));
    EXPECT_EQ(moved(2).fetched_bytes, 0U);
    ASSERT_NO_FATAL_FAILURE(send_away(3));
    EXPECT_EQ(moved(3).evicted_bytes, unit_bytes) << "it was not dead";
}

TEST_F(AdvisedMoves, WhatWasDeadCountsOnceWorkIsGivenIt)
{
    tell(2, hint::discard);
    launch(2);
    ASSERT_NO_FATAL_FAILURE(send_away(2));
    EXPECT_EQ(moved(2).evicted_bytes, unit_bytes);
}

TEST_F(AdvisedMoves, WhatWasDeadCountsOnceUntrustedWorkRuns)
{
    tell(2, hint::discard);
    launch(1, false);
    ASSERT_NO_FATAL_FAILURE(send_away(2));
    EXPECT_EQ(moved(2).evicted_bytes, unit_bytes);
}

// A kernel that is trusted by its name alone may find the unit in a table, as
// another one before it may.
TEST_F(AdvisedMoves, WhatWasDeadCountsOnceMoreWorkMayFindItInATable)
{
    moves_->note_table({units_[2]});
    const auto read = [&](auto meanwhile) {
        moves_->run(
            reinterpret_cast<CUstream>(0x20),
            [&](work &out) {
                out.what = next_what_++;
                out.trusted = true;
                out.kernel = "reads";
                out.add(units_[1]);
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
    EXPECT_EQ(moved(2).evicted_bytes, unit_bytes);
}

// The program frees memory in one thread, and another one still says of it that
// it is dead. Meanwhile it has been allocated again.
TEST_F(AdvisedMoves, WhatIsSaidOfFreedMemoryIsNotSaidOfItsNextOwner)
{
    const mover::subrange before{units_[2], unit_bytes,
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
    const mover::subrange now{units_[2], unit_bytes,
                              moves_->identify(units_[2])};
    EXPECT_NE(now.identity, before.identity);
    // It counts, and it is not pinned.
    ASSERT_TRUE(wait_until([&] { return moves_->find(now)->ram_bytes > 0; },
                           [&] { moves_->advise(now, hint::demote); }));
    EXPECT_EQ(moves_->moved().evicted_bytes, unit_bytes);
}

TEST_F(AdvisedMoves, OfThePartsOfAUnitTheHighestPriorityCountsWhileItIsThere)
{
    for (std::size_t i = 0; i < share_units; i++)
        rank(i, 1);
    const mover::subrange low{units_[5], unit_bytes / 2,
                              subranges_[5].identity};
    ASSERT_EQ(moves_->rank(low, -5), mover::answer::done);
    ASSERT_EQ(moves_->rank(subranges_[5], 1), mover::answer::done);
    moves_->forget_advice(subranges_[5], {.priority = 1});
    tell(10, hint::prefetch);
    rank(11, 1);
    tell(11, hint::prefetch);
    ASSERT_TRUE(wait_until([&] { return is_in_vram(11); }));
    EXPECT_FALSE(is_in_vram(10)) << "nothing lies lower than it";
    EXPECT_TRUE(is_in_vram(5)) << "others were there before";
    moves_->forget_advice(subranges_[5], said_[5]);
    tell(10, hint::prefetch);
    ASSERT_TRUE(wait_until([&] { return is_in_vram(10); }));
    const auto found = moves_->find(low);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->vram_bytes, 0U) << "its other parts say nothing any more";
}

TEST_F(AdvisedMoves, WhatIsOftenAccessedComes)
{
    ASSERT_FALSE(is_in_vram(9));
    EXPECT_TRUE(
        wait_until([&] { return is_in_vram(9); },
                   [&] { ASSERT_TRUE(moves_->access(subranges_[9])); }));
}

TEST_F(AdvisedMoves, APartOfAUnitNeitherLeavesNorDies)
{
    const mover::subrange half{units_[4], unit_bytes / 2,
                               subranges_[4].identity};
    ASSERT_EQ(moves_->rank(half, 0), mover::answer::done);
    ASSERT_EQ(moves_->advise(half, hint::discard), mover::answer::done);
    ASSERT_EQ(moves_->advise(half, hint::demote), mover::answer::done);
    ASSERT_NO_FATAL_FAILURE(send_away(3));
    EXPECT_TRUE(is_in_vram(4));
    ASSERT_NO_FATAL_FAILURE(send_away(4));
    EXPECT_EQ(moved(4).evicted_bytes, unit_bytes);
}
