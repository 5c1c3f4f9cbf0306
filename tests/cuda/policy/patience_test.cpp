// SPDX-License-Identifier: GPL-2.0-or-later
// A limit on waits for something that may never come.
#include "policy/patience.hpp"

#include <gtest/gtest.h>

using emuv::cuda::patience;

namespace {

// The number of steps without a wait, after one more wait in vain.
std::uint64_t without(patience &one, std::uint64_t step)
{
    one.lose(step);
    std::uint64_t steps = 0;
    while (!one.is_left(step + steps))
        steps++;
    return steps;
}

TEST(PatienceTest, ThereIsSomeAtFirst)
{
    EXPECT_TRUE(patience().is_left(0));
}

TEST(PatienceTest, EachWaitInVainIsFollowedByTwiceAsManyStepsWithout)
{
    patience one;
    const std::uint64_t first = without(one, 1000);
    EXPECT_GT(first, 0u);
    EXPECT_EQ(without(one, 5000), 2 * first);
    EXPECT_EQ(without(one, 9000), 4 * first);
}

TEST(PatienceTest, AWaitThatWasNotInVainHalvesTheNextSteps)
{
    patience one;
    const std::uint64_t first = without(one, 1000);
    EXPECT_EQ(without(one, 5000), 2 * first);
    one.regain();
    EXPECT_EQ(without(one, 9000), 2 * first);
    for (int i = 0; i < 5; i++)
        one.regain();
    EXPECT_EQ(without(one, 20000), first);
}

TEST(PatienceTest, ItIsNeverLostForGood)
{
    patience one;
    for (int i = 0; i < 100; i++)
        one.lose(0);
    EXPECT_TRUE(one.is_left(std::uint64_t{1} << 30));
}

} // namespace
