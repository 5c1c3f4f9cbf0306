// SPDX-License-Identifier: GPL-2.0-or-later
// The times that the device took for a program's last steps.
#include "policy/step_times.hpp"

#include <gtest/gtest.h>

using emuv::cuda::step_times;

namespace {

TEST(StepTimesTest, EachStepHasItsTime)
{
    step_times all;
    EXPECT_EQ(all.of(1), 0u);
    all.add(1, 10, 0);
    all.add(2, 20, 0);
    EXPECT_EQ(all.of(1), 10u);
    EXPECT_EQ(all.of(2), 20u);
}

TEST(StepTimesTest, AStepThatNobodyKnowsTakesAsLongAsOthersOfLate)
{
    step_times all;
    std::uint64_t step = 0;
    for (int i = 0; i < 1000; i++)
        all.add(++step, 6400, 0);
    EXPECT_NEAR(static_cast<double>(all.of(2000)), 6400, 64);
    for (int i = 0; i < 1000; i++)
        all.add(++step, 640, 0);
    EXPECT_NEAR(static_cast<double>(all.of(3000)), 640, 64);
    EXPECT_EQ(all.of(500), 6400u);
}

TEST(StepTimesTest, OfAStepThatNobodyKnowsNoTimeIsSure)
{
    step_times all;
    EXPECT_EQ(all.least_of(1), 0u);
    all.add(1, 10, 7);
    EXPECT_EQ(all.least_of(1), 7u);
    EXPECT_EQ(all.least_of(2), 0u);
}

TEST(StepTimesTest, WhatWasSureOfTheSameWorkIsMostlySureAgain)
{
    step_times all;
    all.add(1, 100, 80);
    all.add(2, 100, 0, 1);
    EXPECT_EQ(all.least_of(2), 70u);
    all.add(3, 100, 90, 2);
    EXPECT_EQ(all.least_of(3), 90u);
    all.add(4, 20, 0, 3); // it took less
    EXPECT_EQ(all.least_of(4), 20u);
}

TEST(StepTimesTest, OnlyTheLastAreKept)
{
    step_times all;
    all.add(1, 6400, 0);
    all.add(1 + step_times::max_steps, 0, 0);
    EXPECT_EQ(all.of(1 + step_times::max_steps), 0u);
    EXPECT_LT(all.of(1), 6400u);
}

} // namespace
