// SPDX-License-Identifier: GPL-2.0-or-later
// Which requests that would spill are refused.
#include "account/reclaim.hpp"

#include <gtest/gtest.h>

using emuv::cuda::reclaim;

namespace {

constexpr std::uint64_t size = 64 << 20;
constexpr std::uint64_t second = 1000000000;

// A program that asks, and asks again when it is refused.
struct Reclaim : testing::Test
{
    // True if it was refused. It gives back so much before it asks again, and
    // nothing of the size fits all the time.
    bool asks(std::uint64_t gives_back, std::uint64_t takes_ns = 0,
              int device = 0)
    {
        EXPECT_FALSE(rule.comes_again(1, device, size, false, now));
        const bool refused = rule.refuse(1, device, size, size, now);
        if (refused) {
            rule.returned(device, gives_back);
            now += takes_ns;
            EXPECT_TRUE(rule.comes_again(1, device, size, false, now));
        }
        return refused;
    }

    reclaim rule;
    std::uint64_t now = 1000000 * second;
};

} // namespace

TEST_F(Reclaim, WhatWasRefusedComesAgainOnce)
{
    EXPECT_TRUE(rule.refuse(1, 0, size, size, now));
    EXPECT_TRUE(rule.comes_again(1, 0, size, false, now));
    EXPECT_FALSE(rule.comes_again(1, 0, size, false, now));
}

TEST_F(Reclaim, WhereItHelpsEachIsRefusedOnce)
{
    for (unsigned i = 0; i < reclaim::free_refusals; i++)
        EXPECT_TRUE(asks(size));
}

TEST_F(Reclaim, ItHelpsWhereTheRequestFitsOrWhatWasMissingIsGivenBack)
{
    EXPECT_TRUE(rule.refuse(1, 0, size, size, now));
    EXPECT_TRUE(rule.comes_again(1, 0, size, true, now));
    EXPECT_TRUE(rule.refuse(1, 0, size, size / 8, now));
    rule.returned(0, size / 8);
    EXPECT_TRUE(rule.comes_again(1, 0, size, false, now));
    EXPECT_TRUE(rule.refuse(1, 0, size, size, now));
}

TEST_F(Reclaim, WhereItDoesNotHelpMemoryIsGrantedBetweenRefusals)
{
    // Bytes granted until the next refusal.
    const auto granted = [&] {
        std::uint64_t bytes = 0;
        while (!asks(size - 1))
            bytes += size;
        return bytes;
    };
    EXPECT_EQ(granted(), 0u);
    for (const unsigned times : {1, 2, 3, 4, 4, 4})
        EXPECT_EQ(granted(), times * reclaim::patience_bytes);
    // And none is where it does.
    while (!asks(size)) {
    }
    EXPECT_TRUE(asks(size));
}

TEST_F(Reclaim, WhatIsLargerThanWhatIsGrantedIsRefused)
{
    EXPECT_TRUE(asks(0));
    const std::uint64_t large = reclaim::patience_bytes + 1;
    EXPECT_TRUE(rule.refuse(1, 0, large, large, now));
}

TEST_F(Reclaim, DevicesAskForThemselves)
{
    EXPECT_TRUE(asks(0, 0, 0));
    EXPECT_FALSE(asks(0, 0, 0));
    // Memory that one of them gives back does not help the other.
    EXPECT_TRUE(rule.refuse(1, 1, size, size, now));
    rule.returned(0, size);
    EXPECT_TRUE(rule.comes_again(1, 1, size, false, now));
    EXPECT_FALSE(asks(0, 0, 1));
}

TEST_F(Reclaim, WhoeverAsksForSomethingElseInsteadIsNotRefusedAgain)
{
    EXPECT_TRUE(rule.refuse(1, 0, size, size, now));
    EXPECT_FALSE(rule.comes_again(1, 0, 2 * size, false, now));
    for (int i = 0; i < 10; i++)
        EXPECT_FALSE(asks(size));
}

TEST_F(Reclaim, WhereAnotherThreadAsksInsteadNobodyIsRefusedAgain)
{
    EXPECT_TRUE(rule.refuse(1, 0, size, size, now));
    EXPECT_FALSE(rule.comes_again(2, 0, size, false, now));
    EXPECT_FALSE(rule.refuse(2, 0, size, size, now));
    for (int i = 0; i < 10; i++)
        EXPECT_FALSE(asks(size, 0, 1));
}

TEST_F(Reclaim, StoppedItRefusesNobody)
{
    rule.stop();
    EXPECT_FALSE(asks(size));
}

TEST_F(Reclaim, TakesNoMoreThanItsPartOfTheTime)
{
    // Each takes a second of two: the first ones may, and then one in twenty.
    unsigned refused = 0;
    for (int i = 0; i < 3000; i++) {
        refused += asks(size, second) ? 1 : 0;
        now += second;
    }
    EXPECT_GE(refused, reclaim::free_refusals);
    EXPECT_LT(refused, 3000 / (reclaim::divisor_of_time - 2));
}
