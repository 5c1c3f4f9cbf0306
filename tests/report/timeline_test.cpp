// SPDX-License-Identifier: GPL-2.0-or-later
// Values over time keep their sums and their peaks, however long time gets.
#include "report/timeline.hpp"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

using emuv::report::timeline;

namespace {

double sum(const std::vector<double> &of)
{
    return std::accumulate(of.begin(), of.end(), 0.0);
}

TEST(Timeline, IsEmptyAtFirst)
{
    timeline of;
    const auto track = of.add_track(timeline::kind::level);
    EXPECT_TRUE(of.empty());
    EXPECT_TRUE(of.values(track).empty());
}

TEST(Timeline, KeepsThePeakOfALevelThatIsOverSoon)
{
    timeline of;
    const auto track = of.add_track(timeline::kind::level);
    of.level(track, 0, 5);
    of.level(track, 50, 1000);
    of.level(track, 50.000001, 7);
    of.level(track, 100, 7);
    const auto values = of.values(track);
    EXPECT_LE(values.size(), timeline::parts);
    EXPECT_EQ(*std::max_element(values.begin(), values.end()), 1000);
    EXPECT_EQ(values.front(), 5);
    EXPECT_EQ(values.back(), 7);
}

TEST(Timeline, HoldsALevelUntilTheNext)
{
    timeline of;
    const auto track = of.add_track(timeline::kind::level);
    of.level(track, 0, 3);
    of.reach(10);
    const auto values = of.values(track);
    EXPECT_TRUE(std::all_of(values.begin(), values.end(),
                            [](double each) { return each == 3; }));
}

TEST(Timeline, KeepsTheSumOfAmountsAsTimeGrowsEitherWay)
{
    timeline of;
    const auto track = of.add_track(timeline::kind::amount);
    for (int i = 0; i < 1000; i++)
        of.amount(track, i * 3.0, i * 3.0 + 2, 10);
    of.amount(track, -5000, -4000, 77);
    EXPECT_NEAR(sum(of.values(track)), 10077, 1e-6);
    EXPECT_EQ(of.first(), -5000);
    EXPECT_EQ(of.last(), 2999);
    EXPECT_LE(of.values(track).size(), timeline::parts);
}

TEST(Timeline, TakesAnAmountOfAMoment)
{
    timeline of;
    const auto track = of.add_track(timeline::kind::amount);
    of.amount(track, 1, 1, 42);
    of.reach(2);
    EXPECT_EQ(sum(of.values(track)), 42);
}

TEST(Timeline, TakesTimesThatAreFarApart)
{
    timeline of;
    const auto track = of.add_track(timeline::kind::amount);
    of.amount(track, 1e9, 1e9, 1);
    of.amount(track, 0, 0, 2);
    EXPECT_EQ(sum(of.values(track)), 3);
}

TEST(Timeline, AddsATrackLaterAtTheSamePlaces)
{
    timeline of;
    of.reach(0);
    of.reach(1000);
    const auto track = of.add_track(timeline::kind::level);
    of.level(track, 500, 9);
    const auto values = of.values(track);
    EXPECT_EQ(values.front(), 0);
    EXPECT_EQ(values.back(), 9);
}

} // namespace
