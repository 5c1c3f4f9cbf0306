// SPDX-License-Identifier: GPL-2.0-or-later
// Memory moves or stands still, by the times of the program's rounds.
#include "policy/pace.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

using emuv::cuda::pace;

namespace {

constexpr std::uint64_t ms = 1000000;
constexpr std::uint64_t longest = 10000 * ms;

// A program that does the same in rounds of so many steps.
struct program
{
    pace of{false};
    std::uint64_t now = 1;
    std::uint64_t lag = 10;
    std::uint64_t still_ns = 10 * ms; // a step
    std::uint64_t moving_ns = ms;
    std::uint64_t arranged_ns = 10 * ms;
    bool recurs = true;
    unsigned moved = 0; // rounds that ended moving
    unsigned arranged = 0;

    void steps(std::uint64_t count, std::uint64_t from)
    {
        for (std::uint64_t i = 0; i < count; i++) {
            now += of.moves()      ? moving_ns
                   : of.arranges() ? arranged_ns
                                   : still_ns;
            of.ended(from, now, longest, recurs);
        }
    }
    void rounds(unsigned count)
    {
        for (unsigned i = 0; i < count; i++) {
            steps(lag, lag);
            moved += of.moves() ? 1 : 0;
            arranged += of.arranges() ? 1 : 0;
        }
    }
    // Something new comes first: the past is of no use.
    void begin_anew() { steps(lag, 0); }
    // Moving is slower, and has been found to be.
    void lose()
    {
        moving_ns = 11 * ms;
        begin_anew();
        rounds(30);
        ASSERT_FALSE(of.moves());
    }
    // Standing still as arranged is fastest, and has been found to be.
    void arrange()
    {
        moving_ns = 8 * ms;
        arranged_ns = 7 * ms;
        begin_anew();
        rounds(100);
        ASSERT_TRUE(of.arranges());
        ASSERT_FALSE(of.moves());
    }
    // The place that looks like now changes before a round is whole.
    void parts_of_rounds()
    {
        for (int i = 0; i < 400; i++)
            steps(7, i % 2 == 0 ? 10 : 20);
    }
};

} // namespace

TEST(Pace, MovesUntilRoundsAreMeasuredAndThenStandsStillOnce)
{
    program runs;
    EXPECT_TRUE(runs.of.moves());
    runs.moving_ns = 8 * ms;
    runs.begin_anew();
    runs.rounds(8);
    EXPECT_EQ(runs.moved, 8u);
    runs.rounds(1);
    EXPECT_FALSE(runs.of.moves());
    EXPECT_FALSE(runs.of.arranges());
}

TEST(Pace, StandsStillNoLongerThanMovingFourTimesWouldTake)
{
    program runs;
    runs.begin_anew();
    std::uint64_t still = 0; // steps
    for (int i = 0; i < 1000; i++) {
        runs.steps(1, 10);
        still += runs.of.moves() ? 0 : 1;
    }
    EXPECT_GT(still, 0u);
    EXPECT_LE(still * runs.still_ns, 4 * 10 * runs.moving_ns + runs.still_ns);
}

TEST(Pace, TellsOfTheFirstRoundThatStandsStillAndOfTheFirstThatMovesAgain)
{
    program runs;
    runs.moving_ns = 8 * ms;
    runs.begin_anew();
    std::string modes; // of steps after a change, and of others
    for (int i = 0; i < 1000; i++) {
        runs.steps(1, 10);
        const char is = runs.of.moves() ? 'm' : runs.of.arranges() ? 'a' : 's';
        const char mode =
            runs.of.has_just_changed() ? static_cast<char>(is - 'a' + 'A') : is;
        if (modes.empty() || modes.back() != mode)
            modes += mode;
    }
    EXPECT_EQ(modes, "mSsam") << "nothing was cut short";
    program slow;
    slow.begin_anew();
    unsigned again = 0;
    for (int i = 0; i < 1000; i++) {
        slow.steps(1, 10);
        again += slow.of.moves() && slow.of.has_just_changed() ? 1 : 0;
    }
    EXPECT_EQ(again, 10u) << "after one that was cut short";
}

TEST(Pace, APauseThatBeganBeforeARoundMakesItNoLonger)
{
    program runs;
    runs.lose();
    runs.steps(5, 20); // rounds of another kind begin
    runs.of.paused(1000 * ms);
    runs.steps(1, 20);
    EXPECT_FALSE(runs.of.moves()) << "nothing was slow";
}

TEST(Pace, GoesOnMovingWhereThatIsFaster)
{
    program runs;
    runs.begin_anew();
    runs.rounds(100);
    EXPECT_EQ(runs.moved, 100u);
}

TEST(Pace, GoesBackToStandingStillWhereThatIsFaster)
{
    program runs;
    runs.moving_ns = 11 * ms;
    runs.begin_anew();
    runs.rounds(100);
    EXPECT_FALSE(runs.of.moves());
    EXPECT_LT(runs.moved, 12u);
}

TEST(Pace, ArrangesMemoryWhereStandingStillSoIsFastest)
{
    program runs;
    ASSERT_NO_FATAL_FAILURE(runs.arrange());
    EXPECT_EQ(runs.moved + runs.arranged, 96u);
}

// The end of a round that follows one whose end was seen late.
TEST(Pace, ARoundThatSeemsFasterByChanceDoesNotDecideIt)
{
    program runs;
    runs.moving_ns = 11 * ms;
    runs.arranged_ns = 7 * ms;
    runs.begin_anew();
    for (int i = 0; i < 30; i++) {
        runs.moving_ns = i == 3 ? 20 * ms : i == 4 ? 2 * ms : 11 * ms;
        runs.rounds(1);
    }
    EXPECT_TRUE(runs.of.arranges());
}

TEST(Pace, MovesOnWhereThatIsFasterThanBothKindsOfStandingStill)
{
    program runs;
    runs.moving_ns = 8 * ms;
    runs.arranged_ns = 9 * ms;
    runs.begin_anew();
    runs.rounds(100);
    EXPECT_TRUE(runs.of.moves());
    EXPECT_FALSE(runs.of.arranges());
    EXPECT_GT(runs.arranged, 0u);
    EXPECT_LT(runs.arranged, 8u);
}

TEST(Pace, DoesNotTryToArrangeWhereMovingIsMuchFaster)
{
    program runs;
    runs.moving_ns = 4 * ms;
    runs.begin_anew();
    runs.rounds(100);
    EXPECT_EQ(runs.arranged, 0u);
    EXPECT_TRUE(runs.of.moves());
}

TEST(Pace, ArrangesNothingForRoundsWhoseMemoryDoesNotComeAgain)
{
    for (const std::uint64_t moving_ns : {8 * ms, 12 * ms}) {
        program runs;
        runs.recurs = false;
        runs.moving_ns = moving_ns;
        runs.arranged_ns = 7 * ms;
        runs.begin_anew();
        runs.rounds(100);
        EXPECT_EQ(runs.arranged, 0u);
        EXPECT_EQ(runs.of.moves(), moving_ns < runs.still_ns);
    }
}

TEST(Pace, ArrangesOnceTheMemoryOfRoundsComesAgain)
{
    program runs;
    runs.recurs = false;
    runs.moving_ns = 8 * ms;
    runs.arranged_ns = 7 * ms;
    runs.begin_anew();
    runs.rounds(40);
    ASSERT_EQ(runs.arranged, 0u);
    runs.recurs = true;
    runs.rounds(10);
    EXPECT_TRUE(runs.of.arranges());
}

TEST(Pace, BearsWithRoundsInWhichMemoryIsArranged)
{
    program runs;
    runs.moving_ns = 8 * ms;
    runs.arranged_ns = 20 * ms;
    runs.begin_anew();
    while (!runs.of.arranges())
        runs.rounds(1);
    for (int i = 0; i < 10; i++) {
        runs.of.disturb();
        runs.rounds(1);
        EXPECT_TRUE(runs.of.arranges());
    }
    runs.arranged_ns = 7 * ms;
    runs.rounds(30);
    EXPECT_TRUE(runs.of.arranges());
}

TEST(Pace, GivesUpWhatIsNeverArranged)
{
    program runs;
    runs.moving_ns = 8 * ms;
    runs.arranged_ns = 7 * ms;
    runs.begin_anew();
    for (int i = 0; i < 100; i++) {
        if (runs.of.arranges())
            runs.of.disturb();
        runs.rounds(1);
    }
    EXPECT_TRUE(runs.of.moves());
}

TEST(Pace, SeesThatRoundsAsArrangedHaveBecomeMuchSlower)
{
    program runs;
    ASSERT_NO_FATAL_FAILURE(runs.arrange());
    runs.arranged_ns = longest;
    runs.rounds(1);
    EXPECT_TRUE(runs.of.moves());
    EXPECT_FALSE(runs.of.arranges());
}

TEST(Pace, ASlowRoundWhileMemoryIsArrangedDoesNotDecideIt)
{
    program runs;
    runs.still_ns = longest / 10 - ms;
    runs.moving_ns = longest / 9;
    runs.arranged_ns = longest / 8;
    runs.begin_anew();
    for (int i = 0; i < 40 && !runs.of.arranges(); i++)
        runs.rounds(1);
    ASSERT_TRUE(runs.of.arranges());
    runs.of.disturb();
    runs.rounds(1);
    EXPECT_TRUE(runs.of.arranges());
}

TEST(Pace, MovesFirstForAnotherKindOfRound)
{
    program runs;
    ASSERT_NO_FATAL_FAILURE(runs.arrange());
    // The arrangement for the old rounds says nothing about the new ones.
    runs.arranged_ns = 20 * ms;
    runs.begin_anew();
    runs.steps(11, 10);
    EXPECT_FALSE(runs.of.arranges());
    EXPECT_TRUE(runs.of.moves());
    runs.moved = 0;
    runs.rounds(4);
    EXPECT_EQ(runs.moved, 4u);
}

// Motions end in the round that does not count.
TEST(Pace, StandsStillAsLongAsThatIsNoSlowerThanMovingWas)
{
    constexpr std::uint64_t presumed = 35 * ms;
    pace of(false);
    std::uint64_t now = 1;
    for (int i = 0; i < 400; i++) {
        now += of.moves() ? 5 * ms : 4 * ms;
        of.ended(10, now, presumed, false);
    }
    EXPECT_FALSE(of.moves());
}

TEST(Pace, SlowRoundsWhileItIsMeasuredDoNotDecideAgainstMoving)
{
    program runs;
    runs.begin_anew();
    runs.moving_ns = 20 * ms;
    runs.rounds(5);
    runs.moving_ns = ms;
    runs.rounds(30);
    EXPECT_TRUE(runs.of.moves());
}

TEST(Pace, AFastRoundStandingStillByChanceDoesNotDecideIt)
{
    program runs;
    runs.recurs = false;
    runs.moving_ns = 8 * ms;
    runs.still_ns = 12 * ms;
    runs.begin_anew();
    runs.rounds(9);
    ASSERT_FALSE(runs.of.moves());
    for (const std::uint64_t still_ns : {15 * ms, 9 * ms, 6 * ms, 12 * ms}) {
        runs.still_ns = still_ns;
        runs.rounds(1);
    }
    runs.still_ns = 12 * ms;
    runs.rounds(3);
    EXPECT_TRUE(runs.of.moves());
}

// Moving is measured for each kind of round.
TEST(Pace, ASlowFirstRoundOfAnotherKindHasThatMeasured)
{
    constexpr std::uint64_t presumed = 35 * ms;
    pace of(false);
    std::uint64_t now = 1;
    const auto rounds = [&](int count) {
        for (int i = 0; i < 10 * count; i++) {
            now += of.moves() ? 5 * ms : 4 * ms;
            of.ended(10, now, presumed, false);
        }
    };
    rounds(40);
    ASSERT_FALSE(of.moves());
    of.ended(0, now, presumed, false);
    rounds(40);
    EXPECT_FALSE(of.moves());
}

TEST(Pace, ARoundOfAnotherKindIsNotMeasuredByWhatTheLastKindTook)
{
    constexpr std::uint64_t presumed = 1400 * ms;
    pace of(false);
    std::uint64_t now = 1;
    const auto step = [&](std::uint64_t lag, std::uint64_t moving) {
        now += of.moves() ? moving : 400 * ms;
        of.ended(lag, now, presumed, false);
    };
    while (of.moves())
        step(10, 100 * ms);
    const std::uint64_t begun = now;
    for (int i = 0; i < 1000 && !of.moves(); i++)
        step(300, 10 * ms);
    EXPECT_TRUE(of.moves());
    EXPECT_LE(now - begun, 2 * presumed);
}

TEST(Pace, MovesWhereThatIsFasterThanMemoryAsItIsArranged)
{
    program runs;
    runs.moving_ns = 11 * ms;
    runs.arranged_ns = 15 * ms;
    runs.begin_anew();
    runs.rounds(60);
    EXPECT_TRUE(runs.of.moves());
}

// Of another program, of the debugger.
TEST(Pace, APauseThatNobodyKnowsOfIsNotTheEndOfStandingStill)
{
    program runs;
    ASSERT_NO_FATAL_FAILURE(runs.lose());
    runs.now += 10 * longest;
    runs.rounds(1);
    EXPECT_TRUE(runs.of.moves());
    runs.rounds(30);
    EXPECT_FALSE(runs.of.moves());
}

TEST(Pace, DoesNotWaitForTheEndOfARoundThatTakesTooLong)
{
    program runs;
    runs.still_ns = longest / 4;
    runs.begin_anew();
    for (int i = 0; i < 200 && runs.of.moves(); i++)
        runs.steps(1, 10);
    ASSERT_FALSE(runs.of.moves());
    runs.steps(1, 10);
    EXPECT_TRUE(runs.of.moves());
    runs.moved = 0;
    runs.rounds(10);
    EXPECT_EQ(runs.moved, 10u);
}

TEST(Pace, BearsWithRoundsInWhichRoomIsMade)
{
    program runs;
    runs.moving_ns = 20 * ms;
    runs.begin_anew();
    runs.rounds(2);
    for (int i = 0; i < 20; i++) {
        runs.of.disturb();
        runs.rounds(1);
        EXPECT_TRUE(runs.of.moves());
    }
    runs.moving_ns = 5 * ms;
    runs.rounds(30);
    EXPECT_TRUE(runs.of.moves());
}

TEST(Pace, BearsWithThemOnlySoLong)
{
    program runs;
    runs.moving_ns = 20 * ms;
    runs.begin_anew();
    for (int i = 0; i < 50; i++) {
        runs.of.disturb();
        runs.rounds(1);
    }
    EXPECT_FALSE(runs.of.moves());
}

TEST(Pace, MeasuresEachKindOfRoundByItself)
{
    program runs;
    ASSERT_NO_FATAL_FAILURE(runs.lose());
    // Of the same length, but other work: moving is better there.
    runs.begin_anew();
    runs.moving_ns = 2 * ms;
    runs.rounds(30);
    EXPECT_TRUE(runs.of.moves());
    // Of another length, known from the past at once.
    runs.lag = 25;
    runs.moving_ns = 30 * ms;
    runs.rounds(30);
    EXPECT_FALSE(runs.of.moves());
}

TEST(Pace, KnowsARoundThatWasLastSeenSeveralRoundsAgo)
{
    program runs;
    runs.begin_anew();
    runs.rounds(5);
    ASSERT_TRUE(runs.of.moves());
    for (const std::uint64_t lag : {20u, 30u, 10u, 41u}) {
        runs.lag = lag;
        runs.rounds(3);
        EXPECT_TRUE(runs.of.moves()) << lag;
    }
    EXPECT_EQ(runs.moved, 5u + 12u);
}

TEST(Pace, SeesThatRoundsOfThisKindHaveBecomeMuchSlower)
{
    program runs;
    ASSERT_NO_FATAL_FAILURE(runs.lose());
    runs.still_ns = runs.arranged_ns = longest;
    runs.rounds(1);
    EXPECT_TRUE(runs.of.moves());
}

TEST(Pace, MovesUnmeasuredWhereNoRoundIsWhole)
{
    program runs;
    runs.parts_of_rounds();
    EXPECT_TRUE(runs.of.moves());
}

TEST(Pace, MovesAgainWhereRoundsAreNoLongerWhole)
{
    program runs;
    ASSERT_NO_FATAL_FAILURE(runs.lose());
    runs.parts_of_rounds();
    EXPECT_TRUE(runs.of.moves());
}

TEST(Pace, TakesNoAccountOfAPause)
{
    program runs;
    ASSERT_NO_FATAL_FAILURE(runs.lose());
    runs.steps(5, 10);
    runs.now += 10 * longest;
    runs.of.paused(10 * longest);
    runs.rounds(30);
    EXPECT_FALSE(runs.of.moves());
}

TEST(Pace, TakesShortRoundsTogether)
{
    program runs;
    runs.still_ns = runs.arranged_ns = ms / 100;
    runs.moving_ns = ms / 50;
    runs.begin_anew();
    runs.rounds(199);
    EXPECT_EQ(runs.moved, 199u);
    runs.rounds(3000);
    EXPECT_FALSE(runs.of.moves());
}

TEST(Pace, EndsThatAreSeenInBunchesMakeNoRoundSlow)
{
    constexpr std::uint64_t bunch = 12;
    pace of(false);
    std::uint64_t now = 1;
    for (std::uint64_t i = 0; i < 40000; i++) {
        if (i % bunch == 0)
            now += bunch * (of.moves() ? ms / 50 : ms / 100);
        of.ended(1, now, longest, false);
    }
    EXPECT_FALSE(of.moves());
}

TEST(Pace, HoldsOnWhenAStepMoreOrLessComes)
{
    program runs;
    runs.lag = 100;
    runs.begin_anew();
    for (int i = 0; i < 40; i++)
        runs.steps(100, 100 + static_cast<std::uint64_t>(i % 3));
    EXPECT_TRUE(runs.of.moves());
}

TEST(Pace, MovesAlwaysWhereThatIsWanted)
{
    pace always(true);
    EXPECT_TRUE(always.moves());
    for (std::uint64_t i = 0; i < 100; i++)
        always.ended(10, i * 1000, 1, true);
    EXPECT_TRUE(always.moves());
}

TEST(Pace, WhereNoTwoRoundsHaveAsManyStepsMemoryMoves)
{
    program runs;
    runs.begin_anew();
    for (std::uint64_t i = 0; i < 400; i++)
        runs.steps(7, 100 + i * 37 % 100);
    EXPECT_TRUE(runs.of.moves());
}

TEST(Pace, TriesStandingStillHalfAsOftenEachTimeThatItHasLost)
{
    program runs;
    std::uint64_t last = 0; // trial: rounds before it
    std::vector<std::uint64_t> waits;
    for (std::uint64_t round = 0; round < 600 && waits.size() < 5; round++) {
        const bool moved = runs.of.moves();
        if (moved && round % 2 == 0)
            runs.steps(1, 0); // the past is lost: another kind begins
        runs.rounds(1);
        if (runs.of.has_just_changed() && runs.of.moves()) {
            waits.push_back(round - last);
            last = round;
        }
    }
    // A kind that begins every other round is never measured.
    EXPECT_TRUE(waits.empty());
    last = 0;
    for (std::uint64_t round = 0; round < 2000 && waits.size() < 5; round++) {
        if (runs.of.moves() && runs.of.has_just_changed()) {
            waits.push_back(round - last);
            last = round;
            runs.steps(1, 0);
        }
        runs.rounds(1);
    }
    ASSERT_EQ(waits.size(), 5u);
    for (std::size_t i = 1; i < waits.size(); i++)
        EXPECT_GE(waits[i], 2 * waits[i - 1] - 8) << i;
}

TEST(Pace, TriesStandingStillSoonOnceItHasWon)
{
    program runs;
    runs.begin_anew();
    for (int i = 0; i < 4; i++) {
        runs.rounds(200);
        ASSERT_TRUE(runs.of.moves());
        runs.steps(1, 0);
    }
    runs.moving_ns = 11 * ms;
    runs.rounds(400);
    ASSERT_FALSE(runs.of.moves());
    runs.steps(1, 0);
    runs.moving_ns = 8 * ms;
    runs.moved = 0;
    runs.rounds(20);
    EXPECT_LE(runs.moved, 11u);
}
