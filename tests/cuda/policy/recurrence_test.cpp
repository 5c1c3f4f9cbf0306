// SPDX-License-Identifier: GPL-2.0-or-later
// The test that a round touches the same memory as the one before.
#include "policy/recurrence.hpp"

#include <gtest/gtest.h>

using emuv::cuda::recurrence;

namespace {

// Steps that touch a unit each, last touched so many steps ago.
void steps(recurrence &of, unsigned count, std::uint64_t lag, std::uint64_t ago)
{
    for (unsigned i = 0; i < count; i++) {
        of.step(lag);
        of.touches(64, ago);
    }
}

} // namespace

TEST(Recurrence, DoesNotHoldWhereThePastShowsNoWay)
{
    recurrence of;
    steps(of, 10, 0, 5);
    EXPECT_FALSE(of.holds());
}

TEST(Recurrence, HoldsWhereAllComesAgainWithinARound)
{
    recurrence of;
    steps(of, 1000, 54, 54);
    EXPECT_TRUE(of.holds());
    steps(of, 1000, 54, 57); // a step more or less
    EXPECT_TRUE(of.holds());
}

TEST(Recurrence, DoesNotHoldForLayersThatHaveWeightsOfTheirOwn)
{
    recurrence first;
    recurrence second;
    for (int layer = 0; layer < 32; layer++) {
        steps(first, 47, 54, 54);
        steps(first, 7, 54, recurrence::never);
        EXPECT_FALSE(first.holds());
        steps(second, 47, 54, 54);
        steps(second, 7, 54, 1700);
        EXPECT_FALSE(second.holds());
    }
}

TEST(Recurrence, WhatIsTouchedAgainAndAgainInARoundCountsOnce)
{
    recurrence of;
    for (int layer = 0; layer < 32; layer++) {
        steps(of, 1, 54, 40);
        steps(of, 100, 54, 2);
        steps(of, 1, 54, recurrence::never);
        EXPECT_FALSE(of.holds());
    }
}

TEST(Recurrence, HoldsAtOnceWhenTheRoundIsFound)
{
    recurrence of;
    steps(of, 2000, 54, 1700);
    ASSERT_FALSE(of.holds());
    steps(of, 1, 1728, 1728);
    EXPECT_TRUE(of.holds());
}

TEST(Recurrence, SomethingNewNowAndThenIsNoOtherRound)
{
    recurrence of;
    steps(of, 40, 54, 54);
    for (int i = 0; i < 100; i++) {
        steps(of, 1, 54, recurrence::never);
        steps(of, 39, 54, 54);
        EXPECT_TRUE(of.holds());
    }
}

TEST(Recurrence, WhatHeldLongDoesNotHoldForGood)
{
    recurrence of;
    steps(of, 100000, 54, 54);
    steps(of, 1000, 54, recurrence::never);
    EXPECT_FALSE(of.holds());
}

TEST(Recurrence, IsSeenInAQuarterOfARound)
{
    recurrence of;
    steps(of, 13, 54, 54);
    EXPECT_TRUE(of.holds());
    EXPECT_FALSE(of.has_been_seen());
    steps(of, 1, 54, 54);
    EXPECT_TRUE(of.has_been_seen());
    steps(of, 13, 100, 54); // of another kind
    EXPECT_FALSE(of.has_been_seen());
}
