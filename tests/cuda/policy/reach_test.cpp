// SPDX-License-Identifier: GPL-2.0-or-later
// The reach of work, told by the time it takes.
#include "policy/reach.hpp"

#include <gtest/gtest.h>

using emuv::cuda::reach;

namespace {

constexpr std::uint64_t ms = 1000000;
constexpr std::uint64_t work = 42;
constexpr std::uint64_t other = 43;
constexpr std::uint64_t rest = 64 << 20;

// Time that is known exactly.
constexpr reach::time_bounds exactly(std::uint64_t ns)
{
    return {ns, ns};
}

// Takes the work to reach to the end.
void suspect(reach &of, std::uint64_t ns)
{
    of.ended(work, rest, exactly(ns));
    ASSERT_TRUE(of.ended(work, rest, exactly(ns)));
    ASSERT_TRUE(of.to_the_end(work));
}

} // namespace

TEST(Reach, WorkReachesAsFarAsItSeemsAtFirst)
{
    const reach of;
    EXPECT_FALSE(of.to_the_end(work));
}

TEST(Reach, WhatIsSlowTwiceBesideMemoryInSystemRamIsTakenToReachThere)
{
    reach of;
    EXPECT_FALSE(of.ended(work, rest, exactly(5 * ms)));
    EXPECT_FALSE(of.to_the_end(work));
    EXPECT_TRUE(of.ended(work, rest, exactly(5 * ms)));
    EXPECT_TRUE(of.to_the_end(work));
    EXPECT_FALSE(of.to_the_end(other));
}

TEST(Reach, WhatIsSlowWithAllOfItInVramIsNot)
{
    reach of;
    for (int i = 0; i < 5; i++)
        EXPECT_FALSE(of.ended(work, 0, exactly(5 * ms)));
    EXPECT_FALSE(of.to_the_end(work));
}

TEST(Reach, WhatMayHaveBeenTooQuickToHaveReadItIsNot)
{
    reach of;
    for (int i = 0; i < 5; i++)
        EXPECT_FALSE(of.ended(work, rest, {ms / 2 - 1, 9 * ms}));
    EXPECT_FALSE(of.to_the_end(work));
}

TEST(Reach, ShortWorkIsSlowWhereLittleLiesBeyond)
{
    constexpr std::uint64_t little = 16 << 20; // 0.3 ms of a link
    reach of;
    EXPECT_FALSE(of.ended(work, little, exactly(ms / 8)));
    EXPECT_FALSE(of.ended(work, little, exactly(ms / 3)));
    EXPECT_TRUE(of.ended(work, little, exactly(ms / 3)));
    EXPECT_TRUE(of.to_the_end(work));
}

TEST(Reach, LongWorkIsSlowHoweverMuchLiesBeyond)
{
    constexpr std::uint64_t much = std::uint64_t{1} << 40;
    reach of;
    EXPECT_FALSE(of.ended(work, much, exactly(ms)));
    EXPECT_TRUE(of.ended(work, much, exactly(ms)));
}

TEST(Reach, ItStaysSoWhereItIsFasterThen)
{
    reach of;
    suspect(of, 5 * ms);
    EXPECT_FALSE(of.ended(work, 0, exactly(ms)));
    for (int i = 0; i < 10; i++)
        of.ended(work, 0, exactly(9 * ms)); // for another reason
    EXPECT_TRUE(of.to_the_end(work));
}

TEST(Reach, AndNotWhereItIsAsSlowThreeTimes)
{
    reach of;
    suspect(of, 5 * ms);
    of.ended(work, 0, exactly(5 * ms));
    of.ended(work, 0, exactly(5 * ms));
    EXPECT_TRUE(of.to_the_end(work));
    of.ended(work, 0, exactly(5 * ms));
    EXPECT_FALSE(of.to_the_end(work));
    // It takes so long by itself.
    for (int i = 0; i < 5; i++)
        EXPECT_FALSE(of.ended(work, rest, exactly(5 * ms)));
    EXPECT_FALSE(of.to_the_end(work));
}

TEST(Reach, OneVerySlowEndDoesNotMakeTheNextOnesFaster)
{
    reach of;
    of.ended(work, rest, exactly(500 * ms)); // it was loaded first
    of.ended(work, rest, exactly(5 * ms));
    ASSERT_TRUE(of.to_the_end(work));
    for (int i = 0; i < 3; i++)
        of.ended(work, 0, exactly(5 * ms));
    EXPECT_FALSE(of.to_the_end(work));
}

TEST(Reach, ATimeThatIsHardlyKnownDecidesNothing)
{
    reach of;
    suspect(of, 5 * ms);
    for (int i = 0; i < 10; i++)
        of.ended(work, 0, {ms, 9 * ms});
    EXPECT_TRUE(of.to_the_end(work));
    for (int i = 0; i < 3; i++)
        of.ended(work, 0, exactly(5 * ms));
    EXPECT_FALSE(of.to_the_end(work));
}

TEST(Reach, WhatNeverFitsAsAWholeIsGivenUp)
{
    reach of;
    suspect(of, 5 * ms);
    for (int i = 0; i < 15; i++)
        of.lacked(work);
    EXPECT_TRUE(of.to_the_end(work));
    of.lacked(work);
    EXPECT_FALSE(of.to_the_end(work));
    EXPECT_FALSE(of.ended(work, rest, exactly(5 * ms)));
}

TEST(Reach, LackingNowAndThenIsNotLacking)
{
    reach of;
    suspect(of, 5 * ms);
    for (int i = 0; i < 100; i++) {
        of.lacked(work);
        if (i % 10 == 0) {
            EXPECT_FALSE(of.ended(work, 0, {0, 5 * ms}));
        }
    }
    EXPECT_TRUE(of.to_the_end(work));
}

TEST(Reach, WhatIsKnownToReachFarIsNotGivenUpForThat)
{
    reach of;
    suspect(of, 5 * ms);
    of.ended(work, 0, exactly(ms));
    for (int i = 0; i < 100; i++)
        of.lacked(work);
    of.lacked(other);
    EXPECT_TRUE(of.to_the_end(work));
    EXPECT_FALSE(of.to_the_end(other));
}
