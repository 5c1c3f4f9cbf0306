// SPDX-License-Identifier: GPL-2.0-or-later
// How much VRAM is planned for what moves, by what waits and what rests.
#include "core/headroom.hpp"

#include <gtest/gtest.h>

using emuv::cuda::headroom;

namespace {

constexpr std::uint64_t ms = 1000000;

// A hundred milliseconds in which the link rests and a launch waits for so
// many.
class clocked
{
public:
    clocked() { room.begin(now); }

    bool after(std::uint64_t rested_ms, std::uint64_t waited_ms)
    {
        room.looked(true, now);
        room.looked(false, now + (100 - rested_ms) * ms);
        room.waited(waited_ms * ms);
        now += 100 * ms;
        return room.choose(now);
    }

    headroom room;
    std::uint64_t now = 5000 * ms;
};

} // namespace

TEST(Headroom, GrowsWhileTheProgramWaitsAndTheLinkRests)
{
    clocked it;
    EXPECT_EQ(headroom::least_bytes, it.room.bytes());
    EXPECT_TRUE(it.after(30, 10));
    EXPECT_LT(headroom::least_bytes, it.room.bytes());
    EXPECT_TRUE(it.after(30, 10));
    EXPECT_EQ(headroom::most_bytes, it.room.bytes());
    EXPECT_FALSE(it.after(30, 10));
    EXPECT_EQ(headroom::most_bytes, it.room.bytes());
}

TEST(Headroom, StaysWhereNobodyWaits)
{
    clocked it;
    EXPECT_FALSE(it.after(90, 0));
    EXPECT_FALSE(it.after(90, 1));
    it.after(30, 10);
    const std::uint64_t grown = it.room.bytes();
    EXPECT_FALSE(it.after(90, 0));
    EXPECT_EQ(grown, it.room.bytes());
}

TEST(Headroom, ShrinksAgainWhereTheLinkNeverRests)
{
    clocked it;
    it.after(30, 10);
    it.after(30, 10);
    EXPECT_FALSE(it.after(10, 90)) << "neither much rest nor none";
    EXPECT_TRUE(it.after(0, 90));
    EXPECT_TRUE(it.after(0, 90));
    EXPECT_EQ(headroom::least_bytes, it.room.bytes());
    EXPECT_FALSE(it.after(0, 90));
}

TEST(Headroom, ForgetsWhatWasBeforeItBegan)
{
    clocked it;
    it.room.waited(900 * ms);
    it.now += 900 * ms;
    it.room.begin(it.now);
    EXPECT_FALSE(it.after(30, 0));
}

TEST(Headroom, CountsWhatIsOnItsWayWhenItChooses)
{
    clocked it;
    it.room.looked(true, it.now);
    it.room.waited(50 * ms);
    EXPECT_FALSE(it.room.choose(it.now + 100 * ms));
    it.room.waited(50 * ms);
    EXPECT_FALSE(it.room.choose(it.now + 200 * ms)) << "it still is";
}
