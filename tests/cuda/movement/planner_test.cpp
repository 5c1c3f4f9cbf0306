// SPDX-License-Identifier: GPL-2.0-or-later
// When a plan is due, and which units it lets leave VRAM.
#include "circle.hpp"
#include "movement/planner.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

struct PlannerTest : Circle
{
    void plan(bool unmaps = false)
    {
        std::unique_lock lock(mutex);
        made.plan(lock, blocks, uses, times, unmaps);
        EXPECT_TRUE(lock.owns_lock());
    }

    void plan_for_eight(bool unmaps = false)
    {
        ASSERT_TRUE(made.is_due(uses, true, 8 * unit_bytes));
        plan(unmaps);
    }

    // As many units, each in a block of its own.
    void add_others()
    {
        for (std::uint64_t i = 1; i <= units; i++)
            add_block(i * units * unit_bytes, 1);
    }

    // Rounds of several parts, of which part 1 takes nearly all the time. In
    // the parts named, all units are used, one after the other. After each unit
    // of the first block, one of the others is used, if there are any.
    void in_parts(std::uint64_t parts, const std::set<std::uint64_t> &used)
    {
        const std::uint64_t each = blocks.size() > 1 ? 2 : 1;
        for (std::uint64_t i = 0; i < 3 * parts * units; i++) {
            const std::uint64_t part = i / units % parts;
            const auto unit = static_cast<std::uint32_t>(i % units);
            for (std::uint64_t of = 0; of < each; of++) {
                const touch given = of == 0
                                        ? touch{0, unit, unit}
                                        : touch{blocks[1 + unit]->base, 0, 0};
                uses.note(1000 * (each * part + of + 1) + unit, &given,
                          used.count(part));
                times.add(uses.steps(), part == 1 ? 1000000 : 100, 0);
            }
        }
    }

    void leaves_for_parts_but_not(std::uint32_t leaves, std::uint32_t stays)
    {
        EXPECT_GT(leaving(), 0u);
        for (slot &each : blocks[0]->slots) {
            if (each.leaves_for == never_leaves)
                continue;
            each.next.gap = leaves * units;
            EXPECT_TRUE(each.passes());
            each.next.gap = stays * units;
            EXPECT_FALSE(each.passes());
        }
    }

    static std::uint64_t leaving_of(const block &one, std::uint64_t from = 0)
    {
        std::uint64_t bytes = 0;
        for (std::uint64_t i = from; i < one.slots.size(); i++)
            bytes += one.slots[i].leaves_for != never_leaves ? unit_bytes : 0;
        return bytes;
    }

    // Bytes of the first block that leave.
    std::uint64_t leaving(std::uint64_t from = 0) const
    {
        return leaving_of(*blocks[0], from);
    }

    std::uint64_t others_leaving() const
    {
        std::uint64_t bytes = 0;
        for (std::size_t i = 1; i < blocks.size(); i++)
            bytes += leaving_of(*blocks[i]);
        return bytes;
    }

    step_times times;
    planner made;
};

TEST_F(PlannerTest, IsNotDueWhereThePastShowsNoWay)
{
    EXPECT_FALSE(made.is_due(uses, true, unit_bytes));
    step(10);
    EXPECT_FALSE(made.is_due(uses, true, unit_bytes));
}

TEST_F(PlannerTest, AsMuchLeavesAsDoesNotFit)
{
    step(3 * units);
    ASSERT_TRUE(made.is_due(uses, true, 8 * unit_bytes));
    plan();
    EXPECT_GE(leaving(), 8 * unit_bytes);
    EXPECT_LE(leaving(), 12 * unit_bytes);
}

TEST_F(PlannerTest, WhatLeavesIsSpreadOverTheRoundsTimeNotItsSteps)
{
    step(3 * units);
    // The second half of the steps take a hundredth of the time.
    for (std::uint64_t i = 0; i < 3 * units; i++)
        times.add(i + 1, i % units < units / 2 ? 1000000 : 10000, 0);
    ASSERT_TRUE(made.is_due(uses, true, 8 * unit_bytes));
    plan();
    EXPECT_GE(leaving(), 8 * unit_bytes);
    EXPECT_LE(leaving(units / 2), unit_bytes);
}

TEST_F(PlannerTest, ItLeavesForAGapThatTakesLongNotForOneOfMoreSteps)
{
    in_parts(6, {0, 2});
    plan_for_eight();
    leaves_for_parts_but_not(2, 4);
}

TEST_F(PlannerTest, WorkThatWasNeverSeenBeforeMakesNoGap)
{
    // Such work counts as part of the step before it, which uses the same unit.
    for (std::uint64_t i = 0; i < 3 * units; i++) {
        step(1);
        const auto unit = static_cast<std::uint32_t>((at - 1) % units);
        const touch part{0, unit, unit};
        uses.note(10000 + i, &part, 1);
    }
    ASSERT_TRUE(made.is_due(uses, true, 8 * unit_bytes));
    plan();
    EXPECT_GT(leaving(), 0u);
    for (const slot &each : blocks[0]->slots)
        EXPECT_GE(each.leaves_for, units / 2);
}

TEST_F(PlannerTest, ItStaysForAGapOfMoreStepsThatIsShortInAnyMeasure)
{
    in_parts(200, {0, 2, 5});
    plan_for_eight();
    leaves_for_parts_but_not(2, 3);
}

TEST_F(PlannerTest, WhatIsFixedDoesNotLeave)
{
    step(3 * units);
    blocks[0]->fixed = true;
    ASSERT_TRUE(made.is_due(uses, true, 8 * unit_bytes));
    plan();
    EXPECT_EQ(leaving(), 0u);
}

TEST_F(PlannerTest, WhatHasToBeWrittenBackStaysWhereOthersAreEnough)
{
    for (std::uint64_t i = 0; i < units; i += 2)
        blocks[0]->slots[i].gets_dirty = true;
    step(3 * units);
    plan_for_eight();
    EXPECT_GE(leaving(), 8 * unit_bytes);
    for (const slot &each : blocks[0]->slots)
        EXPECT_FALSE(each.gets_dirty && each.leaves_for != never_leaves);
}

TEST_F(PlannerTest, WhatWouldBeMappedMeanwhileStaysWhereOthersAreEnough)
{
    add_others();
    in_parts(3, {0, 2}); // a round has the long gap within
    plan_for_eight(true);
    EXPECT_EQ(leaving(), 0u);
    EXPECT_GE(others_leaving(), 8 * unit_bytes);
}

TEST_F(PlannerTest, SoItDoesWhereItIsAwayFromOneRoundToTheNext)
{
    add_others();
    in_parts(4, {2, 3});
    plan_for_eight(true);
    // A few leave that the others do not cover, where the round begins.
    EXPECT_LE(leaving(), 2 * unit_bytes);
    EXPECT_GE(others_leaving(), 8 * unit_bytes);
}

TEST_F(PlannerTest, WhereAllThatIsAwayIsMappedItMakesNoDifference)
{
    add_others();
    in_parts(3, {0, 2});
    plan_for_eight();
    EXPECT_GE(leaving(), 8 * unit_bytes);
}

TEST_F(PlannerTest, InAHurryIsDueAfterARoundHoweverLittleHasChanged)
{
    step(3 * units);
    for (int i = 0; i < 8; i++) {
        made.is_due(uses, true, 8 * unit_bytes);
        step(units);
    }
    step(15 * units);
    ASSERT_TRUE(made.is_due(uses, true, 8 * unit_bytes));
    step(units);
    ASSERT_FALSE(made.is_due(uses, true, 8 * unit_bytes));
    made.hurry();
    EXPECT_TRUE(made.is_due(uses, true, 8 * unit_bytes));
}

TEST_F(PlannerTest, IsDueLessAndLessOftenWhileNothingChanges)
{
    step(3 * units);
    ASSERT_TRUE(made.is_due(uses, true, 8 * unit_bytes));
    std::vector<std::uint64_t> waits;
    std::uint64_t waited = 0;
    for (std::uint64_t i = 0; i < 64 * units; i++) {
        step(1);
        waited++;
        if (!made.is_due(uses, true, 8 * unit_bytes))
            continue;
        waits.push_back(waited);
        waited = 0;
    }
    ASSERT_GE(waits.size(), 5u);
    EXPECT_LT(waits.front(), waits.back());
    EXPECT_TRUE(std::is_sorted(waits.begin(), waits.end()));
    EXPECT_LE(waits.back(), 16 * units);
}

TEST_F(PlannerTest, IsDueSoonWhereMoreDoesNotFit)
{
    step(3 * units);
    ASSERT_TRUE(made.is_due(uses, true, 8 * unit_bytes));
    step(units / 2);
    EXPECT_FALSE(made.is_due(uses, true, 8 * unit_bytes));
    EXPECT_TRUE(made.is_due(uses, true, 16 * unit_bytes));
}

TEST_F(PlannerTest, IsNotDueWhereMemoryDoesNotComeAgain)
{
    // A model's layers all look alike at first.
    step(3 * units);
    EXPECT_FALSE(made.is_due(uses, false, 8 * unit_bytes));
    EXPECT_TRUE(made.is_due(uses, true, 8 * unit_bytes));
}

// A program that writes to two places in turn makes rounds look so, now and
// then.
TEST_F(PlannerTest, RoundsThatLookLikeOneAreNoOther)
{
    constexpr std::uint32_t rounds = 3;
    schedule several; // its lag is so many rounds
    const auto note = [&](std::uint64_t count) {
        for (std::uint64_t i = 0; i < count; i++) {
            const std::uint64_t now = several.steps();
            const auto unit = static_cast<std::uint32_t>(now % units);
            const touch part{0, unit, unit};
            several.note(1000 + now % (rounds * units), &part, 1);
        }
    };
    step(8 * units); // the first are new, and count for none
    ASSERT_TRUE(made.is_due(uses, true, 8 * unit_bytes));
    while (several.steps() < 7 * units + units / 2)
        note(1);
    ASSERT_EQ(several.lag(), rounds * units);
    EXPECT_FALSE(made.is_due(several, true, 8 * unit_bytes));
    note(units);
    EXPECT_TRUE(made.is_due(several, true, 8 * unit_bytes));
    std::unique_lock lock(mutex);
    made.plan(lock, blocks, several, times, false);
    EXPECT_GE(leaving(), 8 * unit_bytes);
    for (const slot &each : blocks[0]->slots)
        if (each.leaves_for != never_leaves) {
            EXPECT_EQ(each.leaves_for, units);
        }
}

// Rounds that look alike at their ends, and use other units in turns.
TEST_F(PlannerTest, RoundsThatUseOtherMemoryInTurnsArePlannedTogether)
{
    constexpr std::uint32_t rounds = 2;
    add_block(units * unit_bytes, units);
    schedule turns;  // its lag is so many rounds
    step(8 * units); // the first are new, and count for none
    ASSERT_TRUE(made.is_due(uses, true, 8 * unit_bytes));
    while (turns.steps() < 10 * units) {
        const std::uint64_t now = turns.steps();
        const auto unit = static_cast<std::uint32_t>(now % units);
        const touch part{blocks[now / units % rounds]->base, unit, unit};
        turns.note(1000 + now % (rounds * units), &part, 1);
    }
    ASSERT_EQ(turns.lag(), rounds * units);
    ASSERT_TRUE(made.is_due(turns, true, 8 * unit_bytes));
    std::unique_lock lock(mutex);
    made.plan(lock, blocks, turns, times, false);
    EXPECT_GE(leaving() + others_leaving(), 8 * unit_bytes);
    for (const block_ref &each : blocks)
        for (const slot &one : each->slots)
            if (one.leaves_for != never_leaves) {
                EXPECT_EQ(one.leaves_for, rounds * units);
            }
}

} // namespace
