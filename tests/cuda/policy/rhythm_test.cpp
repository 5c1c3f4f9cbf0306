// SPDX-License-Identifier: GPL-2.0-or-later
// The steps of a program, as its user would count them.
#include "policy/rhythm.hpp"

#include <gtest/gtest.h>

using emuv::cuda::rhythm;

namespace {

// Steps that end with so much work of that lag.
int steps(rhythm &of, int work, std::uint64_t lag)
{
    int ended = 0;
    for (int i = 0; i < work; i++)
        ended += of.ended(lag) ? 1 : 0;
    return ended;
}

TEST(Rhythm, AStepEndsWithEachRoundOfTheSchedule)
{
    rhythm of;
    EXPECT_EQ(steps(of, 1, 100), 0); // it is known from here on
    EXPECT_EQ(steps(of, 1000, 100), 10);
    EXPECT_EQ(of.round(), 100u);
}

TEST(Rhythm, APlaceThatLiesSeveralRoundsBackMakesNoLongerStep)
{
    rhythm of;
    steps(of, 1, 100);
    EXPECT_EQ(steps(of, 600, 300), 6);
    EXPECT_EQ(of.round(), 100u);
}

TEST(Rhythm, AShorterRoundIsTheProgramsOwn)
{
    rhythm of;
    steps(of, 500, 300);
    steps(of, 1, 100);
    EXPECT_EQ(of.round(), 100u);
    EXPECT_EQ(steps(of, 500, 100), 5);
}

TEST(Rhythm, AMomentsDoubtIsNotTheEndOfIt)
{
    rhythm of;
    steps(of, 1, 100);
    EXPECT_EQ(steps(of, 50, 0) + steps(of, 950, 100), 10);
    EXPECT_EQ(of.round(), 100u);
    steps(of, 101, 0);
    EXPECT_EQ(of.round(), 0u);
}

TEST(Rhythm, WithoutOneAPauseOfTheDeviceEndsAStep)
{
    rhythm of;
    const std::uint64_t begin = 1'000'000'000;
    EXPECT_TRUE(of.empties(begin));
    EXPECT_FALSE(of.empties(begin + rhythm::shortest_ns - 1));
    EXPECT_TRUE(of.empties(begin + rhythm::shortest_ns));
    steps(of, 1, 100);
    EXPECT_FALSE(of.empties(begin + 10 * rhythm::shortest_ns));
}

} // namespace
