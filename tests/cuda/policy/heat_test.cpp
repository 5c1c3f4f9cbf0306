// SPDX-License-Identifier: GPL-2.0-or-later
// How often something is used.
#include "policy/heat.hpp"

#include <gtest/gtest.h>

using emuv::cuda::heat;

TEST(Heat, CountsUses)
{
    heat of;
    EXPECT_EQ(of.at(1000000), 0u);
    for (int i = 0; i < 5; i++)
        of.use(1000000);
    EXPECT_EQ(of.at(1000000), 5 * heat::one_use);
}

TEST(Heat, HalvesWithEachHalfLifeAndNeverRises)
{
    heat of;
    for (int i = 0; i < 4; i++)
        of.use(7);
    EXPECT_EQ(of.at(7 + heat::half_life), 2 * heat::one_use);
    EXPECT_EQ(of.at(7 + 2 * heat::half_life), heat::one_use);
    std::uint64_t before = of.at(7);
    for (std::uint64_t now = 7; now < 7 + 20 * heat::half_life; now += 97) {
        EXPECT_LE(of.at(now), before);
        before = of.at(now);
    }
    EXPECT_EQ(of.at(7 + 100 * heat::half_life), 0u);
}

TEST(Heat, WhatIsUsedTwiceAsOftenIsTwiceAsHot)
{
    heat often;
    heat seldom;
    for (std::uint64_t now = 0; now < 100 * heat::half_life; now++) {
        if (now % 10 == 0)
            often.use(now);
        if (now % 20 == 0)
            seldom.use(now);
    }
    const std::uint64_t now = 100 * heat::half_life;
    EXPECT_NEAR(static_cast<double>(often.at(now)),
                2.0 * static_cast<double>(seldom.at(now)),
                0.02 * static_cast<double>(often.at(now)));
}
