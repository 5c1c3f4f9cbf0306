// SPDX-License-Identifier: GPL-2.0-or-later
// Which requests that would spill are refused.
#include "core/reclaim.hpp"

#include <gtest/gtest.h>

using emuv::cuda::reclaim;

namespace {

constexpr std::uint64_t size = 64 << 20;
constexpr std::uint64_t second = 1000000000;

// A program that asks, and asks again when it is refused.
struct Reclaim : testing::Test
{
    // How often it was refused; gives so much back before it asks again.
    bool asks(std::uint64_t gives_back, std::uint64_t takes_ns = 0)
    {
        EXPECT_FALSE(held.comes_again(1, 0, size, returned, now));
        const bool refused = held.refuse(1, 0, size, returned, now);
        if (refused) {
            returned += gives_back;
            now += takes_ns;
            EXPECT_TRUE(held.comes_again(1, 0, size, returned, now));
        }
        return refused;
    }

    reclaim held;
    std::uint64_t returned = 0;
    std::uint64_t now = second;
};

} // namespace

TEST_F(Reclaim, WhatWasRefusedComesAgainOnce)
{
    EXPECT_TRUE(held.refuse(1, 0, size, 0, now));
    EXPECT_TRUE(held.comes_again(1, 0, size, 0, now));
    EXPECT_FALSE(held.comes_again(1, 0, size, 0, now));
}

TEST_F(Reclaim, WhereItHelpsEachIsRefusedOnce)
{
    for (unsigned i = 0; i < reclaim::free_refusals; i++)
        EXPECT_TRUE(asks(size));
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

TEST_F(Reclaim, ThreadsAndDevicesAskForThemselves)
{
    EXPECT_TRUE(held.refuse(1, 0, size, 0, now));
    EXPECT_FALSE(held.comes_again(2, 0, size, 0, now));
    EXPECT_TRUE(held.refuse(2, 0, size, 0, now));
    EXPECT_FALSE(held.comes_again(1, 1, size, 0, now));
    EXPECT_TRUE(held.refuse(1, 1, size, 0, now));
    EXPECT_TRUE(held.comes_again(1, 1, size, size, now));
    EXPECT_TRUE(held.comes_again(2, 0, size, size, now));
    EXPECT_TRUE(held.comes_again(1, 0, size, size, now));
}

TEST_F(Reclaim, WhoeverDoesNotAskAgainIsNotRefusedAgain)
{
    EXPECT_TRUE(held.refuse(1, 0, size, 0, now));
    EXPECT_FALSE(held.comes_again(1, 0, 2 * size, 0, now));
    for (int i = 0; i < 10; i++)
        EXPECT_FALSE(held.refuse(1, 0, size, 0, now));
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
    EXPECT_LT(refused, 3000 / (reclaim::part_of_time - 2));
}
