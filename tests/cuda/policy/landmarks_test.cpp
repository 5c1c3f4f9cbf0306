// SPDX-License-Identifier: GPL-2.0-or-later
// A program's point in its own past, told by blocks it touches seldom.
#include "policy/landmarks.hpp"

#include <random>

#include <gtest/gtest.h>

using emuv::cuda::histories;
using emuv::cuda::history;
using emuv::cuda::landmarks;
using emuv::cuda::no_step;
using emuv::cuda::touch;

namespace {

constexpr std::uint32_t apart = 20; // steps, or works
constexpr std::uint32_t count = 50;
constexpr std::uint32_t steps = 2 * count * apart;
constexpr std::uint64_t now = 1000000; // works there were

// A past of which the first half is a round with so many landmarks.
class Landmarks : public ::testing::Test
{
protected:
    Landmarks()
    {
        for (std::uint32_t i = 0; i < count; i++)
            past_[base(i)].uses.push_back({step(i), 0, 0, false});
    }
    static std::uint64_t base(std::uint32_t landmark)
    {
        return (1 + std::uint64_t{landmark}) << 32;
    }
    // At which it came.
    static std::uint32_t step(std::uint32_t landmark)
    {
        return 100 + landmark * apart;
    }
    // Work touches it.
    landmarks::point come(std::uint32_t landmark, std::uint64_t work)
    {
        history &of = past_[base(landmark)];
        marks_.passed(false);
        marks_.begin(work);
        marks_.look_at(of, {base(landmark), 0, 0});
        const landmarks::point told =
            marks_.any() ? marks_.tell(steps) : landmarks::point();
        of.noted = work;
        return told;
    }
    // Those from one on come as they did.
    landmarks::point come_on(std::uint32_t from, std::uint32_t to)
    {
        landmarks::point told;
        for (std::uint32_t i = from; i < to; i++)
            told = come(i, now + i * apart);
        return told;
    }

    histories past_;
    landmarks marks_{past_};
};

} // namespace

TEST_F(Landmarks, TellThePlaceOnceEnoughCameAsFarFromEachOtherAsBefore)
{
    for (std::uint32_t i = 0; i < 5; i++) {
        EXPECT_EQ(come(i, now + i * apart).step, no_step);
        EXPECT_FALSE(marks_.lead());
    }
    EXPECT_TRUE(marks_.are_lost());
    const landmarks::point told = come(5, now + 5 * apart);
    EXPECT_EQ(told.step, step(5));
    EXPECT_FALSE(told.as_foreseen);
    EXPECT_TRUE(marks_.lead());
    EXPECT_FALSE(marks_.are_lost());
    // From there on they are expected, a little sooner or later.
    for (std::uint32_t i = 6; i < count; i++) {
        const landmarks::point next = come(i, now + i * apart + i % 3);
        EXPECT_EQ(next.step, step(i));
        EXPECT_TRUE(next.as_foreseen);
    }
}

TEST_F(Landmarks, InNoOrderTellNothing)
{
    std::mt19937 random(7);
    for (std::uint32_t i = 0; i < 40; i++)
        EXPECT_EQ(
            come(static_cast<std::uint32_t>(random()) % count, now + i * apart)
                .step,
            no_step);
}

TEST_F(Landmarks, ThatComeAsOftenAsByChanceTellNothing)
{
    // Each was touched as short a time ago as may be.
    for (std::uint32_t i = 0; i < 20; i++) {
        past_[base(i)].noted = now + i * apart - 70;
        EXPECT_EQ(come(i, now + i * apart).step, no_step);
    }
}

TEST_F(Landmarks, WhatWasTouchedAMomentAgoIsNone)
{
    come(0, now);
    marks_.begin(now + 10);
    marks_.look_at(past_[base(0)], {base(0), 0, 0});
    EXPECT_FALSE(marks_.any());
}

TEST_F(Landmarks, OneThatComesElsewhereLeavesThePlaceWhereItIs)
{
    come_on(0, 20);
    ASSERT_TRUE(marks_.lead());
    // It never comes when it is due, as often as it comes.
    for (std::uint32_t i = 20; i < count - 1; i++) {
        const std::uint64_t work = now + i * apart;
        EXPECT_EQ(come(i, work).step, step(i));
        EXPECT_EQ(come(count - 1 - i % 2 * 40, work + apart / 2).step, no_step);
    }
    EXPECT_TRUE(marks_.lead());
}

TEST_F(Landmarks, LeadNoMoreOnceTheyAreLost)
{
    come_on(0, 20);
    ASSERT_TRUE(marks_.lead());
    // Another way round, in which each was trusted.
    std::uint64_t work = now + 20 * apart;
    for (std::uint32_t i = 16; marks_.lead() && i-- > 6; work += 4 * apart)
        come(i, work);
    EXPECT_FALSE(marks_.lead());
}

TEST_F(Landmarks, LeadNoMoreOnceAllComesAsForeseenForAWhile)
{
    come_on(0, 20);
    ASSERT_TRUE(marks_.lead());
    for (int i = 0; i < 255; i++)
        marks_.passed(true);
    EXPECT_TRUE(marks_.lead());
    marks_.passed(true);
    EXPECT_FALSE(marks_.lead());
}

TEST_F(Landmarks, DenyPlacesBeforeWhichTheLastOfThemDidNotCome)
{
    EXPECT_FALSE(marks_.deny(step(3)));
    come(7, now);
    marks_.begin(now + 5);
    EXPECT_FALSE(marks_.deny(step(7) + 5));
    EXPECT_TRUE(marks_.deny(step(6)));
    EXPECT_TRUE(marks_.deny(step(7) + 5 * apart));
}

TEST_F(Landmarks, OfAForgottenPastTellNothing)
{
    come_on(0, 20);
    ASSERT_TRUE(marks_.lead());
    marks_.forget(step(30));
    EXPECT_FALSE(marks_.lead());
}
