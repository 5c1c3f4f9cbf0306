// SPDX-License-Identifier: GPL-2.0-or-later
// The choice of the unit that moves next, and of the one that leaves for it.
#include "policy/choice.hpp"
#include "policy/heat.hpp"

#include <vector>

#include <gtest/gtest.h>

using emuv::cuda::allowance;
using emuv::cuda::allowed_motions;
using emuv::cuda::choose_exchanges;
using emuv::cuda::choose_motion;
using emuv::cuda::choose_to_give_way;
using emuv::cuda::excess_at_rest;
using emuv::cuda::excess_of_round;
using emuv::cuda::heat;
using emuv::cuda::intent;
using emuv::cuda::place;
using emuv::cuda::schedule;
using emuv::cuda::unit_view;
using emuv::cuda::view;

namespace {

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;
constexpr std::uint64_t usual = 32 * MiB;

using action = intent::action;

unit_view in_ram(std::uint64_t next_use, std::uint64_t bytes = usual)
{
    unit_view one;
    one.bytes = bytes;
    one.next_use = next_use;
    one.has_room = one.room_has_alias = one.room_is_charged = true;
    return one;
}

unit_view in_vram(std::uint64_t next_use, std::uint64_t bytes = usual)
{
    unit_view one;
    one.where = place::vram;
    one.bytes = bytes;
    one.next_use = next_use;
    one.has_frame = true;
    return one;
}

// The plan has it leave, in a gap that has just begun.
unit_view passing(std::uint64_t next_use, std::uint64_t bytes = usual)
{
    unit_view one = in_vram(next_use, bytes);
    one.leaves = one.passes = true;
    one.gap = next_use;
    return one;
}

unit_view with_room(unit_view one)
{
    one.has_room = one.room_has_alias = one.room_is_charged = true;
    return one;
}

class ChoiceTest : public testing::Test
{
protected:
    ChoiceTest()
    {
        now.vram.share_bytes = 8192 * MiB;
        now.host_bytes = 1024 * MiB;
        now.moves = now.may_digest = true;
    }

    std::size_t add(const unit_view &one)
    {
        now.units.push_back(one);
        now.units.back().allocation =
            static_cast<std::uint32_t>(now.units.size());
        return now.units.size() - 1;
    }

    // The first wish, or one for no unit.
    intent first() const
    {
        const auto all = choose_motion(now);
        return all.empty() ? intent{} : all.front();
    }

    view now;
};

TEST_F(ChoiceTest, NothingIsToDoWithoutUnitsInRam)
{
    add(in_vram(3));
    add(passing(90));
    EXPECT_TRUE(choose_motion(now).empty());
}

TEST_F(ChoiceTest, TheUnitNeededFirstComes)
{
    now.vram.frames = {usual};
    add(in_ram(7));
    const auto wanted = add(in_ram(3));
    add(in_ram(schedule::never));
    EXPECT_EQ(first(), (intent{action::fetch, wanted, intent::none, false}));
}

TEST_F(ChoiceTest, AUnitThatALaunchWaitsForComesBeforeAllOthers)
{
    now.vram.frames = {usual};
    now.launch_waits = true;
    add(in_ram(1));
    unit_view small = in_ram(0, 2 * MiB);
    small.small = true;
    const auto wanted = add(small);
    now.vram.free_bytes = 2 * MiB;
    EXPECT_EQ(first().unit, wanted);
}

TEST_F(ChoiceTest, UnitsThatStayOrAreInUseDoNotMove)
{
    now.vram.frames = {usual};
    unit_view fixed = in_ram(1);
    fixed.fixed = true;
    add(fixed);
    unit_view busy = in_ram(2);
    busy.busy = true;
    add(busy);
    EXPECT_TRUE(choose_motion(now).empty());

    const auto free = add(in_ram(3));
    EXPECT_EQ(first().unit, free);
}

TEST_F(ChoiceTest, WithoutVramTheUnitThatPassesItsGapElsewhereLeaves)
{
    add(in_ram(3));
    add(in_vram(500));
    add(passing(40));
    const auto leaves = add(passing(90));
    EXPECT_EQ(first(), (intent{action::evict, leaves, intent::none, false}));
}

TEST_F(ChoiceTest, AUnitPastTheMiddleOfItsGapLeavesAsPlannedNoMore)
{
    now.under_way.fetching = 2;
    now.under_way.coming_bytes = 2 * usual;
    add(in_ram(3));
    unit_view back = passing(40);
    back.gap = 90;
    const auto unit = add(back);
    EXPECT_TRUE(choose_motion(now).empty());

    now.units[unit].gap = 80;
    EXPECT_EQ(first().unit, unit);
}

TEST_F(ChoiceTest, AUnitThatThePlanKeepsLeavesOnlyWhileTheLinkWouldRest)
{
    add(in_ram(3));
    const auto kept = add(with_room(in_vram(90)));
    EXPECT_EQ(first(), (intent{action::evict, kept, intent::none, false}));

    now.under_way.fetching = 2;
    now.under_way.coming_bytes = 2 * usual;
    EXPECT_TRUE(choose_motion(now).empty());
}

TEST_F(ChoiceTest, AUnitNeverUsedAgainLeavesAtAnyTime)
{
    now.under_way.fetching = 2;
    now.under_way.coming_bytes = 2 * usual;
    add(in_ram(3));
    const auto dead = add(with_room(in_vram(schedule::never)));
    EXPECT_EQ(first().unit, dead);
}

TEST_F(ChoiceTest, NoUnitLeavesForOneThatIsNeededLater)
{
    add(in_ram(90));
    add(with_room(in_vram(40)));
    EXPECT_TRUE(choose_motion(now).empty());
}

TEST_F(ChoiceTest, UnitsComeAheadOfTheirUseUpToALimit)
{
    now.vram.frames = {usual, usual};
    const auto sooner = add(in_vram(20));
    const auto wanted = add(in_ram(50));
    now.units[sooner].allocation = now.units[wanted].allocation;
    unit_view ahead = in_vram(10);
    ahead.fresh = true;
    now.vram.share_bytes = 64 * usual;
    for (int i = 0; i < 7; i++)
        add(ahead);
    EXPECT_EQ(first().unit, wanted);

    // That of a fixed allocation counts, too, and one in use no more.
    ahead.fixed = true;
    const auto last = add(ahead);
    EXPECT_TRUE(choose_motion(now).empty());
    now.units[last].next_use = 60;
    EXPECT_EQ(first().unit, wanted);
    now.units[last].next_use = 10;
    EXPECT_TRUE(choose_motion(now).empty());
    now.units[last].busy = true;
    EXPECT_EQ(first().unit, wanted);
    now.units[last].busy = false;

    // The first unit of an allocation comes all the same: a launch that names
    // the allocation would call off what comes.
    now.units[sooner].next_use = 70;
    EXPECT_EQ(first().unit, wanted);
}

TEST_F(ChoiceTest, ACardThatRefusedAFrameIsNotAskedForOneAsLarge)
{
    now.vram.free_bytes = 64 * MiB;
    const auto wanted = add(in_ram(3));
    EXPECT_EQ(first().unit, wanted);
    now.vram.frames_below = usual;
    EXPECT_TRUE(choose_motion(now).empty());
    now.vram.frames = {usual};
    EXPECT_EQ(first().unit, wanted);
}

TEST_F(ChoiceTest, ANewRoomIsMadeForAUnitThatStaysAwayForClearlyLonger)
{
    add(in_ram(3));
    const auto victim = add(with_room(in_vram(80)));
    const auto newcomer = add(in_vram(90)); // 7/8 of that is less than 80
    EXPECT_EQ(first().unit, victim);
    now.units[newcomer].next_use = 100;
    EXPECT_EQ(first(), (intent{action::evict, newcomer, victim, false}));

    // The victim's room holds a clean copy, and there are enough rooms.
    now.units[victim].room_is_proven = true;
    EXPECT_EQ(first().unit, victim);
}

TEST_F(ChoiceTest, ARoomThatCannotBeMappedIsNotUsed)
{
    add(in_ram(3));
    unit_view unmapped = in_vram(schedule::never);
    unmapped.has_room = true;
    const auto last = add(unmapped);
    EXPECT_EQ(first().unit, last);
    now.rooms.maps = false;
    EXPECT_TRUE(choose_motion(now).empty());
}

TEST_F(ChoiceTest, AFrameOfAnotherSizeIsRemadeOnlyIfNoneComesFreeAsPlanned)
{
    now.vram.frames = {16 * MiB, 16 * MiB};
    const auto wanted = add(in_ram(3));
    EXPECT_EQ(first(), (intent{action::fetch, wanted, intent::none, false}));

    const auto alike = add(passing(90));
    EXPECT_EQ(first(), (intent{action::evict, alike, intent::none, false}));

    // A launch does not wait for that.
    now.launch_waits = true;
    now.units[wanted].next_use = 0;
    EXPECT_EQ(first().unit, wanted);
}

TEST_F(ChoiceTest, AUnitThatFitsComesWhileAnEarlierOneWaitsForItsFrame)
{
    now.vram.frames = {16 * MiB};
    add(in_ram(3));
    add(passing(90));
    const auto fitting = add(in_ram(5, 16 * MiB));
    EXPECT_EQ(first(), (intent{action::fetch, fitting, intent::none, false}));
}

TEST_F(ChoiceTest, AnEvictedUnitTakesTheRoomOfOneThatStays)
{
    now.rooms.below = 0; // no more rooms are made
    add(in_ram(3));
    const auto leaves = add(passing(90));
    EXPECT_TRUE(choose_motion(now).empty());

    unit_view known = with_room(in_vram(2));
    known.room_is_proven = true;
    add(known);
    const auto owner = add(with_room(in_vram(2)));
    EXPECT_EQ(first(), (intent{action::evict, leaves, owner, false}));
}

TEST_F(ChoiceTest, ABlankUnitGetsVramWithoutACopyAndNotTooMuchOfIt)
{
    now.any_vacant = true;
    now.vram.frames = {usual};
    now.under_way.fetching = 1;
    now.under_way.coming_bytes = 128 * MiB; // copies have to wait
    unit_view blank = in_ram(9);
    blank.blank = blank.vacant = true;
    const auto hollow = add(blank);
    EXPECT_EQ(first(), (intent{action::fetch, hollow, intent::none, false}));

    for (int i = 0; i < 8; i++) {
        unit_view made = in_vram(5);
        made.made = true;
        add(made);
    }
    EXPECT_TRUE(choose_motion(now).empty());
}

// Nothing is known of later uses, and a launch waits.
class OnDemandTest : public ChoiceTest
{
protected:
    OnDemandTest()
    {
        now.moves = false;
        now.on_demand = now.launch_waits = true;
    }

    std::size_t add_idle(unit_view one, std::uint64_t idle)
    {
        one.idle = idle;
        return add(one);
    }
};

TEST_F(OnDemandTest, TheUnitUsedLongestAgoLeavesFirst)
{
    add(in_ram(0));
    add_idle(with_room(in_vram(schedule::never)), 5);
    const auto oldest = add_idle(with_room(in_vram(schedule::never)), 900);
    add_idle(with_room(in_vram(schedule::never)), 40);
    EXPECT_EQ(first(), (intent{action::evict, oldest, intent::none, false}));
}

TEST_F(OnDemandTest, AUnitWithoutRoomTakesThatOfTheUnitUsedLast)
{
    add(in_ram(0));
    unit_view clean = with_room(in_vram(schedule::never));
    clean.room_is_proven = true;
    add_idle(clean, 40);
    const auto owner = add_idle(clean, 5);
    const auto oldest = add_idle(in_vram(schedule::never), 900);
    EXPECT_EQ(first(), (intent{action::evict, oldest, owner, false}));
}

TEST_F(OnDemandTest, NoMoreLeavesThanLaunchesWaitForAndAFewFrames)
{
    add(in_ram(0));
    add_idle(with_room(in_vram(schedule::never)), 5);
    now.under_way.evicting = 4;
    now.under_way.leaving_bytes = 3 * usual;
    EXPECT_EQ(first().what, action::evict);
    now.under_way.leaving_bytes = 4 * usual;
    EXPECT_TRUE(choose_motion(now).empty());
}

TEST_F(OnDemandTest, OfUnitsWithAForetoldUseTheOneUsedLastLeaves)
{
    add(in_ram(0));
    add_idle(with_room(in_vram(30)), 900);
    const auto last = add_idle(with_room(in_vram(90)), 5);
    EXPECT_EQ(first(), (intent{action::evict, last, intent::none, false}));
    // So it does beside other motions.
    now.under_way.evicting = 4;
    now.under_way.leaving_bytes = 3 * usual;
    EXPECT_EQ(first().unit, last);
}

TEST_F(OnDemandTest, AUnitThatIsUsedNextStaysForALaunchThatWaits)
{
    add(in_ram(0));
    add_idle(with_room(in_vram(1)), 900);
    EXPECT_TRUE(choose_motion(now).empty());
}

TEST_F(OnDemandTest, FramesAreMadeAheadOfTheNextLaunch)
{
    now.launch_waits = false;
    add(in_ram(schedule::never));
    const auto oldest = add_idle(with_room(in_vram(schedule::never)), 900);
    now.vram.frames = {usual, usual};
    EXPECT_EQ(first().unit, oldest);
    now.vram.frames = {usual, usual, usual};
    EXPECT_TRUE(choose_motion(now).empty());
}

TEST_F(ChoiceTest, StandingStillNothingLeavesAndFreeVramIsFilled)
{
    now.moves = false;
    const auto wanted = add(in_ram(3));
    add(passing(90));
    EXPECT_TRUE(choose_motion(now).empty());
    now.vram.free_bytes = usual;
    EXPECT_EQ(first().unit, wanted);
}

TEST_F(ChoiceTest, AnArrangementIsCarriedOutWhicheverUseIsNext)
{
    now.moves = false;
    now.arranges = true;
    add(in_ram(50));
    unit_view away = with_room(in_vram(2));
    away.stays_away = true;
    const auto leaves = add(away);
    EXPECT_EQ(first(), (intent{action::evict, leaves, intent::none, true}));
}

TEST_F(ChoiceTest, MotionsUnderWayAreLimited)
{
    EXPECT_TRUE(allowed_motions(now).copies);
    EXPECT_TRUE(allowed_motions(now).evicts);
    EXPECT_FALSE(allowed_motions(now).gives_vram);

    now.under_way.fetching = 4;
    now.under_way.coming_bytes = 128 * MiB;
    now.under_way.leaving_bytes = 256 * MiB;
    EXPECT_FALSE(allowed_motions(now).any());

    // One may always be under way, however small the share.
    now.under_way = {};
    now.vram.share_bytes = 8 * MiB;
    EXPECT_TRUE(allowed_motions(now).copies);
    now.may_digest = false;
    EXPECT_FALSE(allowed_motions(now).evicts);
}

TEST_F(ChoiceTest, TheExcessOfARoundIsWhatIsUsedAndDoesNotFit)
{
    now.headroom_bytes = 64 * MiB;
    now.vram.frames = {usual};
    for (int i = 0; i < 4; i++)
        add(in_vram(3));
    for (int i = 0; i < 2; i++)
        add(in_ram(3));
    add(in_ram(schedule::never));
    // 6 units are used; 5 frames less the headroom hold 3.
    EXPECT_EQ(excess_of_round(now), 3 * usual);
    EXPECT_EQ(excess_at_rest(now), 2 * usual);
}

TEST_F(ChoiceTest, VramIsGivenUpByTheUnitNeededLastUntilEnoughIsOnItsWay)
{
    now.wanted_bytes = 2 * usual;
    add(with_room(in_vram(5)));
    const auto last = add(with_room(in_vram(schedule::never)));
    ASSERT_EQ(choose_to_give_way(now).size(), 1u);
    EXPECT_EQ(choose_to_give_way(now).front(),
              (intent{action::evict, last, intent::none, false}));
    now.units[last].busy = true;
    EXPECT_EQ(choose_to_give_way(now).front().unit, 0u);
    now.under_way.leaving_bytes = 2 * usual;
    EXPECT_TRUE(choose_to_give_way(now).empty());
}

TEST_F(ChoiceTest, AHotUnitChangesPlacesWithTheColdestInVram)
{
    now.moves = false;
    unit_view hot = in_ram(schedule::never);
    hot.heat = 32 * heat::one_use;
    const auto in = add(hot);
    unit_view warm = with_room(in_vram(schedule::never));
    warm.heat = 10 * heat::one_use;
    add(warm);
    warm.heat = 2 * heat::one_use;
    const auto out = add(warm);
    const auto all = choose_exchanges(now);
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all.front().in.unit, in);
    EXPECT_FALSE(all.front().fits);
    EXPECT_EQ(all.front().out.unit, out);
    EXPECT_EQ(all.front().out.what, action::evict);
}

TEST_F(ChoiceTest, UnitsAboutAsHotKeepTheirPlaces)
{
    now.moves = false;
    unit_view hot = in_ram(schedule::never);
    hot.heat = 12 * heat::one_use;
    add(hot);
    unit_view warm = with_room(in_vram(schedule::never));
    warm.heat = 7 * heat::one_use;
    add(warm);
    const auto all = choose_exchanges(now);
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all.front().out.unit, intent::none);

    now.units.front().heat = 7 * heat::one_use; // not hot by itself
    EXPECT_TRUE(choose_exchanges(now).empty());
}

using sizes = std::vector<std::uint64_t>;

TEST(VramViewTest, WhatIsKeptComesFromWhereAFrameWouldBeMade)
{
    emuv::cuda::vram_view left{.free_bytes = 30 * MiB,
                               .frames = {32 * MiB, 26 * MiB, 48 * MiB}};
    left.keep(26 * MiB);
    EXPECT_EQ(left.frames, (sizes{32 * MiB, 48 * MiB})) << "a frame like it";
    EXPECT_EQ(left.free_bytes, 30 * MiB);
    left.keep(26 * MiB);
    EXPECT_EQ(left.free_bytes, 4 * MiB) << "what is charged to nobody";
    left.keep(26 * MiB);
    EXPECT_EQ(left.frames, sizes{48 * MiB}) << "the smallest that is enough";
    EXPECT_EQ(left.free_bytes, 10 * MiB);
    left.keep(64 * MiB);
    EXPECT_EQ(left.frames, sizes{48 * MiB}) << "there are too few";
    EXPECT_EQ(left.free_bytes, 10 * MiB);
}

// A plan would be made anew for it, and again once the buffers are there.
TEST_F(ChoiceTest, WhatIsKeptForBuffersIsNoExcess)
{
    now.vram.frames = {usual, usual};
    now.units = {in_ram(1), in_ram(2), in_ram(3)};
    const std::uint64_t of_round = excess_of_round(now);
    const std::uint64_t at_rest = excess_at_rest(now);
    now.vram.keep(usual);
    ASSERT_EQ(now.vram.kept_bytes, usual);
    EXPECT_EQ(excess_of_round(now), of_round);
    EXPECT_EQ(excess_at_rest(now), at_rest);
    EXPECT_EQ(of_round, usual);
}

} // namespace
