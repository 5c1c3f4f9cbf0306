// SPDX-License-Identifier: GPL-2.0-or-later
// Room in system RAM, against a driver of tables.
#include "account/tiers.hpp"
#include "fake_driver.hpp"
#include "movement/rooms.hpp"
#include "store/mapping.hpp"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = 1ull << 20;

struct RoomsTest : testing::Test
{
    RoomsTest() { EXPECT_EQ(rows.open(nullptr), 0); }

    std::uint64_t used() { return limits.read().virtual_used_bytes; }

    FakeDriver card;
    ledger_file rows;
    file_ledger limits{rows, 0, 0, 64 * MiB};
    budget shares{{.calls = card.calls, .ledgers = {&limits}}};
    // So long that no test sees the end of it.
    rooms made{card.calls, shares, 0, std::uint64_t{1} << 60};
    room got;
};

TEST_F(RoomsTest, IsChargedAndHasAnAddressUntilItIsGivenUp)
{
    ASSERT_TRUE(made.make(16 * MiB, got));
    EXPECT_EQ(used(), 16 * MiB);
    EXPECT_EQ(card.host_used, 16 * MiB);
    EXPECT_EQ(card.mapped.at(got.alias), got.handle);
    made.drop(16 * MiB, got);
    EXPECT_EQ(got.handle, 0U);
    EXPECT_EQ(used(), 0U);
    EXPECT_TRUE(card.empty());
}

TEST_F(RoomsTest, WhatIsThereGetsAnAddressAndNoChargeOfItsOwn)
{
    ASSERT_TRUE(made.make(16 * MiB, got));
    room other;
    other.handle = got.handle;
    ASSERT_TRUE(made.make(16 * MiB, other));
    EXPECT_NE(other.alias, got.alias);
    EXPECT_EQ(used(), 16 * MiB);
    unmap_alias(card.calls, other.alias, 16 * MiB);
    made.drop(16 * MiB, got);
    EXPECT_TRUE(card.empty());
}

TEST_F(RoomsTest, OneLiesOnAnotherCardWhileThatHasMemory)
{
    file_ledger lends(rows, 1, 64 * MiB, 0);
    tiered_ledger tiers(limits, {{1, 48 * MiB, &lends}});
    budget both({.calls = card.calls, .ledgers = {&tiers}});
    rooms some(card.calls, both, 0);
    card.peer_bytes = 40 * MiB; // less than its ledger has
    room there[3];
    for (room &each : there)
        ASSERT_TRUE(some.make(16 * MiB, each));
    EXPECT_EQ(card.peer_used, 32 * MiB);
    EXPECT_EQ(lends.read().physical_used_bytes, 32 * MiB);
    EXPECT_EQ(card.host_used, 16 * MiB);
    EXPECT_EQ(used(), 16 * MiB);
    for (room &each : there)
        some.drop(16 * MiB, each);
    EXPECT_TRUE(card.empty());
    EXPECT_EQ(lends.read().physical_used_bytes, 0U);
    EXPECT_EQ(used(), 0U);
}

TEST_F(RoomsTest, OneThatCannotBeMappedIsNotMade)
{
    card.fail_map = true;
    EXPECT_FALSE(made.make(16 * MiB, got));
    EXPECT_FALSE(made.maps());
    EXPECT_EQ(made.below(), UINT64_MAX) << "there was room";
    EXPECT_EQ(got.handle, 0U);
    EXPECT_EQ(used(), 0U);
    EXPECT_TRUE(card.empty());
}

TEST_F(RoomsTest, WhatIsThereStaysThoughItCannotBeMapped)
{
    ASSERT_TRUE(made.make(16 * MiB, got));
    room other;
    other.handle = got.handle;
    card.fail_map = true;
    EXPECT_TRUE(made.maps());
    EXPECT_FALSE(made.make(16 * MiB, other));
    EXPECT_FALSE(made.maps());
    EXPECT_EQ(made.below(), UINT64_MAX);
    EXPECT_EQ(other.handle, got.handle);
    made.drop(16 * MiB, got);
    EXPECT_TRUE(card.empty());
}

TEST_F(RoomsTest, BeyondTheLimitOrTheHostIsRefusedAndLeavesNothing)
{
    EXPECT_FALSE(made.make(128 * MiB, got));
    card.host_bytes = 8 * MiB;
    EXPECT_FALSE(made.make(16 * MiB, got));
    EXPECT_EQ(card.host_refused, 1U);
    EXPECT_EQ(got.handle, 0U);
    EXPECT_EQ(used(), 0U);
    EXPECT_TRUE(card.empty());
}

TEST_F(RoomsTest, OfTheRefusedSizeIsNotAskedForAgainSoon)
{
    card.host_bytes = 0;
    EXPECT_EQ(made.below(), UINT64_MAX);
    EXPECT_FALSE(made.make(32 * MiB, got));
    EXPECT_EQ(made.below(), 32 * MiB) << "smaller ones may be had";
    EXPECT_FALSE(made.make(16 * MiB, got));
    EXPECT_EQ(made.below(), 16 * MiB);
    EXPECT_EQ(card.host_refused, 2U);
    card.host_bytes = 64 * MiB;
    EXPECT_FALSE(made.make(32 * MiB, got));
    EXPECT_FALSE(made.make(16 * MiB, got));
    EXPECT_TRUE(made.make(8 * MiB, got));
    made.drop(8 * MiB, got);
    EXPECT_TRUE(card.empty());
}

TEST_F(RoomsTest, OfTheRefusedSizeIsAskedForAgainInTime)
{
    rooms sooner(card.calls, shares, 0, 1000000);
    EXPECT_FALSE(sooner.make(128 * MiB, got));
    while (sooner.below() != UINT64_MAX)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(sooner.make(16 * MiB, got));
    sooner.drop(16 * MiB, got);
    EXPECT_TRUE(card.empty());
}

} // namespace
