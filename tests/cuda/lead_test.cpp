// SPDX-License-Identifier: GPL-2.0-or-later
// How far a program is ahead of its device, by the round before.
#include "core/lead.hpp"

#include <gtest/gtest.h>

using emuv::cuda::lead;

namespace {

// A round of ten steps, each of which takes ten; the first is handed over at
// 100, and all others while it runs.
struct LeadTest : testing::Test
{
    LeadTest()
    {
        for (std::uint64_t step = 1; step <= 10; step++)
            one.ended(step, 100, 100 + 10 * step);
    }

    lead one;
};

TEST_F(LeadTest, TheDeviceIsBusyAsLongAsWithTheSameStepsBefore)
{
    EXPECT_EQ(one.busy_ns(12, 12, 10), 10u);
    EXPECT_EQ(one.busy_ns(12, 20, 10), 90u);
    EXPECT_EQ(one.busy_ns(15, 17, 10), 30u);
}

TEST_F(LeadTest, NobodyKnowsOfARoundThatIsNoneOrIsNotKept)
{
    EXPECT_EQ(one.busy_ns(12, 15, 0), 0u);
    EXPECT_EQ(one.busy_ns(12, 15, 3), 0u);  // 12 has not ended
    EXPECT_EQ(one.busy_ns(11, 15, 10), 0u); // nothing was before the first
    EXPECT_EQ(one.busy_ns(15, 12, 10), 0u);
    EXPECT_EQ(lead().busy_ns(12, 15, 10), 0u);
    for (std::uint64_t step = 11; step <= lead::max_steps + 10; step++)
        one.ended(step, 0, 1000);
    EXPECT_EQ(one.busy_ns(12, 15, 10), 0u);
}

TEST_F(LeadTest, TimeWithoutWorkDoesNotCount)
{
    one.ended(11, 500, 510); // nothing from 200 to 500
    one.ended(12, 500, 520);
    EXPECT_EQ(one.busy_ns(21, 22, 10), 20u);
    EXPECT_EQ(one.busy_ns(20, 22, 10), 30u);
}

TEST_F(LeadTest, WorkThatIsNoStepTakesItsTimeAsWell)
{
    one.ended(11, 200, 210);
    one.ended(0, 200, 260);
    one.ended(12, 200, 270);
    EXPECT_EQ(one.busy_ns(22, 22, 10), 60u);
}

TEST_F(LeadTest, WhatIsSeenToEndTogetherTookItsTimeTogether)
{
    one.ended(11, 200, 230);
    one.ended(12, 200, 230);
    one.ended(13, 200, 230);
    EXPECT_EQ(one.busy_ns(21, 23, 10), 30u);
}

} // namespace
