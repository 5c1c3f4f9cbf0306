// SPDX-License-Identifier: GPL-2.0-or-later
// The VRAM kept for units on the move, by waiting launches and a resting link.
#include "policy/headroom.hpp"

#include <gtest/gtest.h>

using emuv::cuda::headroom;

namespace {

constexpr std::uint64_t ms = 1000000;

// A hundred milliseconds. The link rests and a launch waits for so many of
// them; the driver maps for so many of those in which the link rests.
class clocked
{
public:
    clocked() { kept.begin(now); }

    bool after(std::uint64_t rested_ms, std::uint64_t waited_ms,
               std::uint64_t mapped_ms = 0)
    {
        const std::uint64_t rests = now + (100 - rested_ms) * ms;
        kept.looked({.brings = true}, now);
        kept.looked({.maps = true}, rests);
        kept.looked({}, rests + mapped_ms * ms);
        kept.waited(waited_ms * ms);
        now += 100 * ms;
        return kept.choose(now);
    }

    // The same again until it stays as it is.
    void settle(std::uint64_t rested_ms, std::uint64_t waited_ms)
    {
        for (int i = 0; i < 100 && after(rested_ms, waited_ms); i++)
            ;
        EXPECT_FALSE(after(rested_ms, waited_ms));
    }

    headroom kept;
    std::uint64_t now = 5000 * ms;
};

} // namespace

TEST(Headroom, GrowsWhileTheProgramWaitsAndTheLinkRests)
{
    clocked it;
    EXPECT_EQ(headroom::first_bytes, it.kept.bytes());
    EXPECT_TRUE(it.after(30, 10));
    EXPECT_LT(headroom::first_bytes, it.kept.bytes());
    EXPECT_TRUE(it.after(30, 10));
    EXPECT_EQ(headroom::most_bytes, it.kept.bytes());
    EXPECT_FALSE(it.after(30, 10));
    EXPECT_EQ(headroom::most_bytes, it.kept.bytes());
}

TEST(Headroom, StaysWhereNobodyWaits)
{
    clocked it;
    EXPECT_FALSE(it.after(90, 0));
    EXPECT_FALSE(it.after(90, 1));
    it.after(30, 10);
    const std::uint64_t grown = it.kept.bytes();
    EXPECT_FALSE(it.after(90, 0));
    EXPECT_EQ(grown, it.kept.bytes());
}

TEST(Headroom, ShrinksWhereTheLinkNeverRests)
{
    clocked it;
    EXPECT_FALSE(it.after(10, 90)) << "neither much rest nor none";
    EXPECT_TRUE(it.after(0, 90));
    EXPECT_GT(headroom::first_bytes, it.kept.bytes());
    it.settle(0, 90);
    EXPECT_EQ(headroom::least_bytes, it.kept.bytes());
}

TEST(Headroom, ShrinksAgainFromTheMostToTheLeastThereIs)
{
    clocked it;
    it.settle(30, 10);
    EXPECT_EQ(headroom::most_bytes, it.kept.bytes());
    it.settle(0, 90);
    EXPECT_EQ(headroom::least_bytes, it.kept.bytes());
    EXPECT_TRUE(it.after(30, 10)) << "and grows again";
}

TEST(Headroom, StaysWhereMappingIsWhatTakesLong)
{
    clocked it;
    EXPECT_FALSE(it.after(40, 90, 35));
    EXPECT_EQ(headroom::first_bytes, it.kept.bytes());
}

TEST(Headroom, ForgetsWhatWasBeforeItBegan)
{
    clocked it;
    it.kept.waited(900 * ms);
    it.now += 900 * ms;
    it.kept.begin(it.now);
    EXPECT_FALSE(it.after(30, 0));
}

TEST(Headroom, CountsWhatIsOnItsWayWhenItChooses)
{
    clocked it;
    it.kept.looked({.brings = true}, it.now);
    for (unsigned i = 1; i <= 2; i++) {
        it.kept.waited(50 * ms);
        it.kept.choose(it.now + i * 100 * ms);
        EXPECT_GT(headroom::first_bytes, it.kept.bytes()) << "it still is";
    }
}
