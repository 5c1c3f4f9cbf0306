// SPDX-License-Identifier: GPL-2.0-or-later
// What a program will touch next, as far as its past tells.
#include "core/schedule.hpp"

#include <array>
#include <random>

#include <gtest/gtest.h>

using emuv::cuda::schedule;
using emuv::cuda::touch;

namespace {

// One step a number: it touches unit 0 of the block of that number.
bool step(schedule &past, std::uint64_t what)
{
    const touch touches[] = {{what << 32, 0, 0}};
    return past.note(what, touches, 1);
}

void circle(schedule &past, std::uint64_t first, std::uint64_t count)
{
    for (std::uint64_t i = 0; i < count; i++)
        step(past, first + i);
}

std::uint64_t next(const schedule &past, std::uint64_t what)
{
    return past.next_use(what << 32, 0);
}

} // namespace

TEST(Schedule, NothingIsExpectedOfAPastThatDoesNotRepeat)
{
    schedule past;
    circle(past, 1, 100);
    EXPECT_FALSE(past.predicts());
    EXPECT_EQ(next(past, 5), schedule::never);
}

TEST(Schedule, ACircleIsKnownFromItsThirdRoundOn)
{
    schedule past;
    for (int round = 0; round < 3; round++)
        circle(past, 1, 20);
    ASSERT_TRUE(past.predicts());
    for (std::uint64_t what = 1; what <= 20; what++)
        EXPECT_EQ(next(past, what), what);
    EXPECT_TRUE(step(past, 1));
    EXPECT_EQ(next(past, 2), 1u);
    EXPECT_EQ(next(past, 1), 20u);
    EXPECT_EQ(next(past, 21), schedule::never);
}

TEST(Schedule, AStepTooManyOrTooFewIsSteppedOver)
{
    schedule past;
    for (int round = 0; round < 4; round++)
        circle(past, 1, 20);
    circle(past, 1, 5);
    step(past, 777); // never seen before
    EXPECT_TRUE(step(past, 6));
    EXPECT_FALSE(step(past, 8)); // 7 is left out
    EXPECT_TRUE(step(past, 9));
    EXPECT_EQ(next(past, 10), 1u);
    EXPECT_EQ(past.surprises(), 1u);
}

TEST(Schedule, ShapesThatTakeTurnsAreFoundAgain)
{
    schedule past;
    for (int round = 0; round < 3; round++) {
        circle(past, 1, 20);
        circle(past, 1, 20);
        circle(past, 101, 20);
    }
    circle(past, 1, 8);
    EXPECT_EQ(next(past, 9), 1u);
    circle(past, 101, 8);
    EXPECT_EQ(next(past, 109), 1u) << "what came instead is known, too";
}

TEST(Schedule, OnlyTheUnitsThatWereTouchedAreExpected)
{
    schedule past;
    const touch front[] = {{1, 0, 3}};
    const touch back[] = {{1, 4, 7}};
    for (int round = 0; round < 20; round++) {
        past.note(1, front, 1);
        past.note(2, back, 1);
    }
    ASSERT_TRUE(past.predicts());
    EXPECT_EQ(past.next_use(1, 3), 1u);
    EXPECT_EQ(past.next_use(1, 4), 2u);
    EXPECT_EQ(past.next_use(1, 8), schedule::never);
}

TEST(Schedule, WhatIsRememberedOfANextUseIsWhatLookingAgainWouldFind)
{
    schedule past;
    std::mt19937 random(11);
    std::array<schedule::memo, 61> known;
    std::array<unsigned, 61> behind{};
    unsigned found = 0;
    for (int round = 0; round < 200; round++) {
        // Three shapes take turns, with steps too many or too few.
        const std::uint64_t first = 1 + random() % 3 * 20;
        for (std::uint64_t i = 0; i < 20; i++) {
            if (random() % 50 == 0)
                continue;
            step(past, random() % 50 == 0 ? 1 + random() % 60 : first + i);
            for (std::uint64_t what = 1; what <= 60; what++) {
                const auto again = next(past, what);
                const auto kept = past.next_use(what << 32, 0, known[what]);
                found += kept != schedule::never ? 1 : 0;
                behind[what] = again == kept ? 0 : behind[what] + 1;
                // A use may be new where there was none, and is seen soon.
                if (kept != schedule::never) {
                    ASSERT_EQ(kept, again);
                }
                ASSERT_LE(behind[what], 48u);
            }
        }
    }
    EXPECT_GT(found, 10000u);
}

TEST(Schedule, AMillionStepsAreKeptInAFewDozenBytesEach)
{
    schedule past;
    for (int round = 0; round < 3; round++)
        circle(past, 1, 400000);
    EXPECT_TRUE(past.predicts());
    EXPECT_EQ(next(past, 400000), 400000u);
    EXPECT_LT(past.footprint() / past.steps(), 160u);
}

TEST(Schedule, AfterFourMillionStepsTheOlderHalfIsForgottenAndNoMore)
{
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "one thread, and a minute of it";
#endif
    schedule past;
    for (int round = 0; round < 50; round++)
        circle(past, 1, 100000);
    EXPECT_TRUE(past.predicts());
    EXPECT_LE(past.steps(), 1u << 22);
    EXPECT_EQ(next(past, 7), 7u);
}
