// SPDX-License-Identifier: GPL-2.0-or-later
// The time in which a device has nothing to run, by its cause.
#include "policy/idle_time.hpp"

#include <gtest/gtest.h>

using emuv::cuda::idle_time;
using cause = idle_time::cause;

namespace {

TEST(IdleTime, BeforeAnythingHasEndedNothingCounts)
{
    idle_time all;
    all.waits(cause::link, 100, 200);
    all.begins(300);
    EXPECT_EQ(all.so_far().link, 0u);
    EXPECT_EQ(all.so_far().program, 0u);
}

TEST(IdleTime, AWaitWhileOtherWorkRunsCostsNothing)
{
    idle_time all;
    all.empties(100);
    all.begins(110);
    all.waits(cause::link, 120, 500);
    EXPECT_EQ(all.so_far().link, 0u);
    EXPECT_EQ(all.so_far().program, 10u);
}

TEST(IdleTime, OfAWaitOnlyThePartCountsInWhichNothingRan)
{
    idle_time all;
    all.empties(150); // while the launch waits
    all.waits(cause::link, 100, 200);
    all.begins(210);
    EXPECT_EQ(all.so_far().link, 50u);
    EXPECT_EQ(all.so_far().program, 10u);
}

TEST(IdleTime, CausesFollowOneAnotherWithoutOverlapping)
{
    idle_time all;
    all.empties(100);
    all.waits(cause::link, 120, 200);
    all.waits(cause::mapping, 190, 230); // from another thread
    all.waits(cause::standing, 240, 300);
    all.waits(cause::link, 110, 250); // late
    all.begins(300);
    EXPECT_EQ(all.so_far().program, 30u);
    EXPECT_EQ(all.so_far().link, 80u);
    EXPECT_EQ(all.so_far().mapping, 30u);
    EXPECT_EQ(all.so_far().standing, 60u);
}

TEST(IdleTime, IdlenessIsOverOnceWorkIsHandedOver)
{
    idle_time all;
    all.empties(100);
    EXPECT_TRUE(all.is_idle());
    all.begins(150);
    EXPECT_FALSE(all.is_idle());
    all.begins(400);
    EXPECT_EQ(all.so_far().program, 50u);
    // Seen to have ended only later.
    all.empties(600);
    all.begins(610);
    EXPECT_EQ(all.so_far().program, 60u);
}

TEST(IdleTime, TheDevicesOwnWaitsStandStill)
{
    idle_time all;
    const auto before = all.so_far();
    all.stands(70);
    EXPECT_EQ(all.so_far().since(before).standing, 70u);
}

} // namespace
