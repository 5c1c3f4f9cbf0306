// SPDX-License-Identifier: GPL-2.0-or-later
// The plan of the units that leave VRAM, and of the times they are away.
#include "policy/plan.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

using emuv::cuda::idle_gap;
using emuv::cuda::plan_absences;
using emuv::cuda::planned_unit;

namespace {

constexpr std::uint64_t size = 64;
// Of a unit that leaves for no gap.
constexpr std::uint32_t never_leaves = UINT32_MAX;

// Units that are each used once in a round, one a step.
std::vector<idle_gap> circle(std::uint32_t units)
{
    std::vector<idle_gap> gaps;
    for (std::uint32_t i = 0; i < units; i++)
        gaps.push_back({i, i, units, units});
    return gaps;
}

// Units used forth and back, as the layers of a model in training.
std::vector<idle_gap> forth_and_back(std::uint32_t units)
{
    std::vector<idle_gap> gaps;
    for (std::uint32_t i = 0; i < units; i++) {
        const std::uint32_t back = 2 * units - 1 - i;
        gaps.push_back({i, i, back - i, back - i});
        const std::uint32_t on = 2 * units - back + i;
        gaps.push_back({i, back, on, on});
    }
    return gaps;
}

// For each unit the length of the shortest gap for which it leaves.
std::vector<std::uint32_t> chosen(const std::vector<idle_gap> &gaps,
                                  const std::vector<planned_unit> &units,
                                  std::uint32_t round, std::uint64_t excess)
{
    const auto leaves = plan_absences(gaps, units, round, excess);
    EXPECT_EQ(leaves.size(), gaps.size());
    std::vector<std::uint32_t> shortest(units.size(), never_leaves);
    for (std::size_t i = 0; i < gaps.size(); i++)
        if (leaves[i])
            shortest[gaps[i].unit] =
                std::min(shortest[gaps[i].unit], gaps[i].length);
    return shortest;
}

std::vector<std::uint32_t> chosen(const std::vector<idle_gap> &gaps,
                                  std::uint32_t units, std::uint32_t round,
                                  std::uint64_t excess)
{
    return chosen(gaps, std::vector<planned_unit>(units, {size, false, false}),
                  round, excess);
}

std::size_t leave(const std::vector<std::uint32_t> &all)
{
    return all.size() - static_cast<std::size_t>(
                            std::count(all.begin(), all.end(), never_leaves));
}

// Bytes away at a step, and bytes that leave in a round.
struct outcome
{
    std::vector<std::uint64_t> away;
    std::uint64_t moved = 0;

    outcome(const std::vector<idle_gap> &gaps,
            const std::vector<std::uint32_t> &all, std::uint32_t round)
        : away(round)
    {
        for (const idle_gap &each : gaps) {
            if (all[each.unit] == never_leaves || each.length < all[each.unit])
                continue;
            moved += size;
            for (std::uint32_t i = 1; i < each.length; i++)
                away[(each.from + i) % round] += size;
        }
    }
    std::uint64_t least() const
    {
        return *std::min_element(away.begin(), away.end());
    }
};

} // namespace

TEST(Plan, NothingLeavesWhereAllFits)
{
    EXPECT_EQ(leave(chosen(circle(100), 100, 100, 0)), 0u);
}

TEST(Plan, NothingIsUsedSoNothingIsPlanned)
{
    EXPECT_EQ(leave(chosen({}, 5, 10, 3 * size)), 0u);
    EXPECT_TRUE(chosen({}, 0, 1, size).empty());
}

TEST(Plan, InACircleAsManyLeaveAsDoNotFitAndEvenlySpread)
{
    for (const std::uint32_t units : {36u, 144u, 1000u}) {
        SCOPED_TRACE(units);
        const std::uint32_t excess = units / 6;
        const auto gaps = circle(units);
        const auto all = chosen(gaps, units, units, excess * size);
        EXPECT_GE(leave(all), excess);
        EXPECT_LE(leave(all), excess + units / 16 + 1);
        // No sixth of the circle has twice its share.
        for (std::uint32_t i = 0; i + units / 6 <= units; i += units / 6) {
            const auto part = std::vector<std::uint32_t>(
                all.begin() + i, all.begin() + i + units / 6);
            EXPECT_LE(leave(part), 2 * (excess / 6 + 1));
            EXPECT_GE(leave(part), excess / 12);
        }
    }
}

// All units of a layer are used at the same moment. They can be away at all
// others, but for the time it takes to leave.
TEST(Plan, AsManyOfEachLayerLeaveAndNoMoreThanDoNotFitBesideOne)
{
    constexpr std::uint32_t layers = 24;
    constexpr std::uint32_t each = 12;
    constexpr std::uint32_t excess = 100;
    std::vector<idle_gap> gaps;
    for (std::uint32_t i = 0; i < layers * each; i++)
        gaps.push_back({i, i / each * 10, layers * 10, layers * 10});
    // However many of which layer left before.
    std::vector<planned_unit> units(gaps.size(), {size, false, false});
    for (std::size_t i = 2 * units.size() / 3; i < units.size(); i++)
        units[i].chosen = true;
    const auto all = chosen(gaps, units, layers * 10, excess * size);
    EXPECT_GE(leave(all), excess);
    EXPECT_LE(leave(all), excess + excess / layers + 2);
    for (std::size_t i = 0; i < all.size(); i += each) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i);
        const auto layer = std::vector<std::uint32_t>(begin, begin + each);
        EXPECT_GE(leave(layer), excess / layers) << i / each;
        EXPECT_LE(leave(layer), excess / layers + 1) << i / each;
    }
}

// Of a round that is two of the program's, a part is twice as long.
TEST(Plan, WhatIsBackWithinAPartIsNotMadeUpForByOthers)
{
    constexpr std::uint32_t units = 640;
    constexpr std::uint32_t excess = 320;
    std::vector<idle_gap> gaps;
    for (std::uint32_t i = 0; i < units; i++)
        for (const std::uint32_t from : {i, i + units})
            gaps.push_back({i, from, units, units});
    const auto all = chosen(gaps, units, 2 * units, excess * size);
    EXPECT_GE(leave(all), excess);
    EXPECT_LE(leave(all), excess + excess / 64);
}

// Results that are written to one of two places in turn make two rounds one.
// Both halves last equally long, but for the clock's error.
TEST(Plan, TwoRoundsThatAreNearlyOneMoveNoMoreThanOne)
{
    constexpr std::uint32_t units = 448;
    std::vector<idle_gap> gaps;
    for (std::uint32_t i = 0; i < units; i++) {
        const std::uint32_t half = units + i % 7 * units / 64 - units / 20;
        gaps.push_back({i, i, half, units - i % 2});
        gaps.push_back(
            {i, (i + half) % (2 * units), 2 * units - half, units + i % 2});
    }
    constexpr std::uint32_t excess = 60;
    const auto all = chosen(gaps, units, 2 * units, excess * size);
    EXPECT_GE(leave(all), excess);
    EXPECT_LE(leave(all), excess * 5 / 4);
}

// A short gap that is chosen with a long one of as many steps says nothing of
// gaps in between. Here one unit may leave in each part of the round.
TEST(Plan, AGapOfOtherStepsIsChosenForItself)
{
    std::vector<idle_gap> gaps;
    for (std::uint32_t i = 0; i < 32; i++) {
        const std::uint32_t at = i * 10;
        gaps.push_back({i, at, 180, 100});
        gaps.push_back({i, (at + 180) % 320, 20, 96});
        gaps.push_back({i, (at + 200) % 320, 120, 50});
    }
    const auto leaves =
        plan_absences(gaps, std::vector<planned_unit>(32, {size, false, false}),
                      320, 4 * size);
    std::size_t longer = 0;
    std::size_t between = 0;
    for (std::size_t i = 0; i < gaps.size(); i += 3) {
        EXPECT_EQ(leaves[i], leaves[i + 1]) << "not to be told apart";
        longer += leaves[i] ? 1 : 0;
        between += leaves[i + 2] ? 1 : 0;
    }
    EXPECT_GE(longer, 4u);
    EXPECT_LT(between, longer);
}

TEST(Plan, ForthAndBackItIsTheLongGapsThatAreChosen)
{
    const auto gaps = forth_and_back(128);
    const auto all = chosen(gaps, 128, 256, 20 * size);
    const outcome made(gaps, all, 256);
    EXPECT_GE(made.least(), 19 * size);
    // A unit that left at each use would move twice that.
    EXPECT_LE(made.moved, 2 * 32 * size);
    for (const std::uint32_t shortest : all)
        EXPECT_GE(shortest, 256u / 3);
}

// They cost fewer calls a byte.
TEST(Plan, LargeOnesLeaveFirst)
{
    std::vector<planned_unit> units(144, {size, false, false});
    for (std::size_t i = 0; i < units.size(); i += 3)
        units[i].large = true;
    const auto gaps = circle(144);
    const auto all = chosen(gaps, units, 144, 24 * size);
    EXPECT_GE(leave(all), 24u);
    for (std::size_t i = 0; i < all.size(); i++)
        EXPECT_TRUE(units[i].large || all[i] == never_leaves) << i;
    // ... and others if those are not enough.
    EXPECT_GE(leave(chosen(gaps, units, 144, 72 * size)), 72u);
}

TEST(Plan, WhereEvenSharesAreNotEnoughMoreIsTaken)
{
    // All that can leave at all leaves at the same moment.
    std::vector<idle_gap> gaps;
    for (std::uint32_t i = 0; i < 50; i++)
        gaps.push_back({i, 10, 1000, 1000});
    const auto all = chosen(gaps, 50, 1000, 40 * size);
    EXPECT_EQ(leave(all), 40u);
}

TEST(Plan, WhatCannotBeMetAtAllDoesNotCrowdTheLink)
{
    // One unit is always in use; the others fit if all of them leave, and more
    // than that is wanted.
    const auto gaps = circle(64);
    const auto all = chosen(gaps, 64, 64, 200 * size);
    EXPECT_EQ(leave(all), 64u);
    // Gaps that cover next to nothing are not worth leaving all at once for.
    std::vector<idle_gap> short_gaps = circle(64);
    for (std::uint32_t i = 64; i < 164; i++)
        short_gaps.push_back({i, 31, 5, 5});
    const auto few = chosen(short_gaps, 164, 64, 128 * size);
    EXPECT_LE(leave(few), 64u + 100u);
    EXPECT_GE(leave(few), 63u);
}

TEST(Plan, WhatWasChosenBeforeIsChosenAgain)
{
    std::vector<planned_unit> units(100, {size, false});
    for (std::size_t i = 1; i < units.size(); i += 5)
        units[i].chosen = true;
    const auto all = chosen(circle(100), units, 100, 16 * size);
    for (std::size_t i = 0; i < units.size(); i++)
        if (!units[i].chosen) {
            EXPECT_EQ(all[i], never_leaves) << i;
        }
    EXPECT_GE(leave(all), 16u);
}

TEST(Plan, AUnitLeavesForAllGapsThatAreAsLongAsOneItLeavesFor)
{
    // So the result alone tells the bytes away, however it was found.
    std::vector<idle_gap> gaps;
    for (std::uint32_t i = 0; i < 90; i++)
        for (std::uint32_t at = 0; at < 1000;) {
            const std::uint32_t steps =
                std::min(40 + (i * 37 + at * 11) % 300, 1000 - at);
            gaps.push_back({i, at, steps, steps});
            at += steps;
        }
    for (const std::uint32_t excess : {1u, 5u, 20u, 60u}) {
        SCOPED_TRACE(excess);
        const auto all = chosen(gaps, 90, 1000, excess * size);
        const outcome made(gaps, all, 1000);
        const auto mean = std::accumulate(made.away.begin(), made.away.end(),
                                          std::uint64_t{0}) /
                          1000;
        EXPECT_GE(mean, excess * size * 3 / 4);
        EXPECT_LE(mean, excess * size * 2 + 4 * size);
    }
}

TEST(Plan, RoundsOfAFewStepsAreNoError)
{
    for (std::uint32_t round = 1; round < 5; round++) {
        const auto all = chosen(circle(round), round, round, size);
        EXPECT_LE(leave(all), round);
    }
}

// The layers of a model in training: each leaves activations behind, which are
// freed on the way back.
TEST(Plan, WhatHoldsNothingIsAwayFirst)
{
    constexpr std::uint32_t layers = 128;
    std::vector<idle_gap> gaps = forth_and_back(layers);
    for (std::size_t i = 1; i < gaps.size(); i += 2)
        gaps[i].anew = true;
    const auto leaves = plan_absences(
        gaps, std::vector<planned_unit>(layers, {size}), 2 * layers, 16 * size);
    std::uint64_t copied = 0;
    std::uint64_t free = 0;
    for (std::size_t i = 0; i < gaps.size(); i++)
        (gaps[i].anew ? free : copied) += leaves[i] ? 1 : 0;
    // As many as do not fit at either end of the way; at the turn none of it is
    // free.
    EXPECT_GE(free, 14u);
    EXPECT_GE(copied, 14u);
    EXPECT_LE(copied, 20u);
}

TEST(Plan, WhatCostsTwiceAsMuchLeavesForTwiceTheTime)
{
    // Two of each: as long away, and one of them for twice the cost.
    constexpr std::uint32_t layers = 64;
    std::vector<idle_gap> gaps;
    for (std::uint32_t i = 0; i < 2 * layers; i++) {
        gaps.push_back({i, i / 2, layers, layers});
        gaps.back().cost = 1 + i % 2;
    }
    const auto leaves = plan_absences(
        gaps, std::vector<planned_unit>(2 * layers, {size}), layers, 20 * size);
    for (std::size_t i = 0; i < gaps.size(); i++)
        EXPECT_FALSE(leaves[i] && gaps[i].cost > 1) << i;
    EXPECT_GE(std::count(leaves.begin(), leaves.end(), true), 20);
}

TEST(Plan, WhatCostsMoreLeavesWhereNothingElseIsEnough)
{
    constexpr std::uint32_t units = 32;
    std::vector<idle_gap> gaps = circle(units);
    for (idle_gap &each : gaps)
        each.cost = each.unit % 8 == 0 ? 1 : 4;
    const auto leaves = plan_absences(
        gaps, std::vector<planned_unit>(units, {size}), units, 12 * size);
    EXPECT_GE(std::count(leaves.begin(), leaves.end(), true), 12);
    for (const idle_gap &each : gaps)
        EXPECT_TRUE(leaves[each.unit] || each.cost > 1) << each.unit;
}

TEST(Plan, WhereAllCostsTwiceAsMuchItIsPlannedAsWhereNothingDoes)
{
    constexpr std::uint32_t units = 40;
    for (auto gaps : {circle(units), forth_and_back(units)})
        for (const std::uint64_t excess : {3 * size, 10 * size, 25 * size}) {
            const auto for_cost = [&](std::uint32_t cost) {
                for (idle_gap &each : gaps)
                    each.cost = cost;
                return plan_absences(
                    gaps, std::vector<planned_unit>(units, {size}),
                    static_cast<std::uint32_t>(gaps.size()), excess);
            };
            EXPECT_EQ(for_cost(1), for_cost(2));
        }
}

TEST(Plan, NoMoreLeavesThanIsOfUse)
{
    // Units that leave on the way back are away already: to leave on the way
    // out as well is not worth it.
    constexpr std::uint32_t layers = 128;
    const std::vector<idle_gap> gaps = forth_and_back(layers);
    constexpr std::uint32_t excess = 32;
    const auto leaves =
        plan_absences(gaps, std::vector<planned_unit>(layers, {size}),
                      2 * layers, excess * size);
    const auto moved = std::count(leaves.begin(), leaves.end(), true);
    // At either end of the way as many leave as do not fit.
    EXPECT_LE(moved, 2 * excess + excess / 4);
}
