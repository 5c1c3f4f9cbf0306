// SPDX-License-Identifier: GPL-2.0-or-later
// The motions that are chosen because the program asks for them.
#include "policy/advice.hpp"
#include "policy/choice.hpp"
#include "policy/heat.hpp"

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;
constexpr std::uint64_t usual = 32 * MiB;
using action = intent::action;

class AdvisedChoice : public testing::Test
{
protected:
    AdvisedChoice()
    {
        now.vram.share_bytes = 8192 * MiB;
        now.host_bytes = 1024 * MiB;
        now.may_digest = true;
    }

    std::size_t add(place where, advice said = {})
    {
        unit_view one;
        one.bytes = usual;
        one.where = where;
        one.said = said;
        one.has_frame = where == place::vram;
        one.has_room = one.room_has_alias = one.room_is_charged = true;
        one.allocation = static_cast<std::uint32_t>(now.units.size() + 1);
        now.units.push_back(one);
        return now.units.size() - 1;
    }
    static intent fetch(std::size_t unit)
    {
        return {action::fetch, unit, intent::none, false};
    }
    static intent evict(std::size_t unit)
    {
        return {action::evict, unit, intent::none, false};
    }

    static constexpr advice comes{.asks = advice::wish::come};
    static constexpr advice leaves{.asks = advice::wish::leave};
    view now;
};

TEST_F(AdvisedChoice, WithoutAWishNothingMoves)
{
    now.vram.frames = {usual};
    add(place::host);
    add(place::vram);
    EXPECT_TRUE(choose_advised(now).empty());
}

TEST_F(AdvisedChoice, TheFirstThatWasAskedForComesOfTheHighestPriority)
{
    now.vram.frames = {usual};
    add(place::host, {.asks = advice::wish::come, .priority = 1, .asked = 9});
    const auto first = add(
        place::host, {.asks = advice::wish::come, .priority = 1, .asked = 3});
    add(place::host, {.asks = advice::wish::come, .priority = 0, .asked = 1});
    EXPECT_EQ(choose_advised(now), std::vector<intent>{fetch(first)});
    const auto pinned =
        add(place::host, {.pinned = true, .priority = -5, .asked = 20});
    EXPECT_EQ(choose_advised(now), std::vector<intent>{fetch(pinned)});
}

TEST_F(AdvisedChoice, WithoutRoomWhatIsToLeaveDoesElseTheColdest)
{
    add(place::host, comes);
    const auto warm = add(place::vram);
    const auto cold = add(place::vram);
    now.units[warm].heat = 2 * heat::one_use;
    now.units[cold].heat = heat::one_use;
    EXPECT_EQ(choose_advised(now).front(), evict(cold));
    now.units[warm].said = leaves;
    EXPECT_EQ(choose_advised(now).front(), evict(warm));
}

TEST_F(AdvisedChoice, NothingLeavesThatIsPinnedInUseForeseenOrHasJustCome)
{
    add(place::host, comes);
    add(place::vram, {.pinned = true});
    now.units[add(place::vram)].busy = true;
    now.units[add(place::vram)].next_use = 5;
    add(place::vram, {.came = true});
    add(place::vram, {.priority = 1});
    EXPECT_TRUE(choose_advised(now).empty());
}

TEST_F(AdvisedChoice, TheSecondEvictionWaitsForTheFirst)
{
    add(place::host, comes);
    add(place::vram);
    now.under_way.evicting = 1;
    now.under_way.leaving_bytes = usual;
    now.under_way.leaving_sizes = {usual};
    EXPECT_TRUE(choose_advised(now).empty());
}

TEST_F(AdvisedChoice, ThePastKnowsBetterThanAWish)
{
    now.vram.frames = {usual};
    now.units[add(place::host, comes)].next_use = 7;
    now.units[add(place::vram, leaves)].next_use = 7;
    EXPECT_TRUE(choose_advised(now).empty());
}

TEST_F(AdvisedChoice, WhatGivesWayIsPinnedOnlyWhereThereIsNothingElse)
{
    now.wanted_bytes = usual;
    const auto pinned = add(place::vram, {.pinned = true});
    EXPECT_EQ(choose_to_give_way(now), std::vector<intent>{evict(pinned)});
    const auto other = add(place::vram);
    now.units[other].next_use = 1;
    EXPECT_EQ(choose_to_give_way(now), std::vector<intent>{evict(other)});
}

TEST_F(AdvisedChoice, WhileLaunchesFetchWhatWasUsedLongestAgoGivesWayFirst)
{
    now.wanted_bytes = usual;
    now.on_demand = true;
    now.units[add(place::vram)].idle = 7;
    const auto oldest = add(place::vram);
    now.units[oldest].idle = 9;
    now.units[add(place::vram)].idle = 5;
    for (unit_view &each : now.units)
        each.next_use = schedule::never;
    EXPECT_EQ(choose_to_give_way(now), std::vector<intent>{evict(oldest)});
}

TEST_F(AdvisedChoice, AHotUnitTakesNoPlaceOfAHigherPriority)
{
    const auto hot = add(place::host);
    now.units[hot].heat = 64 * heat::one_use;
    const auto prior = add(place::vram, {.priority = 1});
    const auto other = add(place::vram);
    now.units[other].heat = 8 * heat::one_use;
    EXPECT_EQ(choose_exchanges(now).front().out.unit, other);
    now.units[other].busy = true;
    EXPECT_EQ(choose_exchanges(now).front().out.unit, intent::none);
    now.units[prior].said.priority = -1;
    EXPECT_EQ(choose_exchanges(now).front().out.unit, prior);
}

TEST(AdviceTest, OfSeveralPrioritiesTheHighestCounts)
{
    ranks all;
    EXPECT_EQ(all.highest(), 0);
    all.add(-5);
    EXPECT_EQ(all.highest(), -5);
    all.add(3);
    all.add(3);
    all.add(-7);
    EXPECT_EQ(all.highest(), 3);
    all.remove(3);
    EXPECT_EQ(all.highest(), 3) << "it was added twice";
    all.remove(3);
    EXPECT_EQ(all.highest(), -5);
    all.remove(2); // never added
    all.remove(-5);
    EXPECT_EQ(all.highest(), -7);
    all.remove(-7);
    EXPECT_TRUE(all.empty());
}

TEST(AdviceTest, AWishThatDoesNotComeTrueIsOver)
{
    const advice said{.asks = advice::wish::come, .priority = 3, .asked = 10};
    EXPECT_EQ(said.at(10 + advice::kept_uses), said);
    const advice left = said.at(11 + advice::kept_uses);
    EXPECT_EQ(left.asks, advice::wish::none);
    EXPECT_EQ(left.priority, 3);
}

} // namespace
