// SPDX-License-Identifier: GPL-2.0-or-later
// The places that memory beyond a share is charged to.
#include "account/tiers.hpp"

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = 1ull << 20;

// A card with 64 MiB of VRAM and 64 MiB of system RAM, beside two others.
struct Tiers : testing::Test
{
    Tiers() { EXPECT_EQ(rows.open(nullptr), 0); }

    std::uint64_t charge(std::uint64_t bytes)
    {
        std::uint64_t token = 0;
        EXPECT_TRUE(all.charge_virtual(bytes, token));
        return token;
    }

    ledger_file rows;
    file_ledger own{rows, 0, 64 * MiB, 64 * MiB};
    file_ledger second{rows, 1, 32 * MiB, 0};
    file_ledger third{rows, 2, 100 * MiB, 0};
    tiered_ledger all{own, {{1, 40 * MiB, &second}, {2, 10 * MiB, &third}}};
};

} // namespace

TEST_F(Tiers, MemoryBeyondTheShareGoesToTheFirstThatHasRoom)
{
    const std::uint64_t one = charge(20 * MiB);
    EXPECT_EQ(peer_of(one), 1);
    const std::uint64_t two = charge(10 * MiB);
    EXPECT_EQ(peer_of(two), 1);
    const std::uint64_t three = charge(8 * MiB);
    EXPECT_EQ(peer_of(three), 2) << "the second card's own ledger is full";
    const std::uint64_t four = charge(4 * MiB);
    EXPECT_EQ(peer_of(four), -1) << "no more than 10 MiB are lent there";
    EXPECT_EQ(second.read().physical_used_bytes, 30 * MiB);
    EXPECT_EQ(third.read().physical_used_bytes, 8 * MiB);
    EXPECT_EQ(own.read().virtual_used_bytes, 4 * MiB);
    all.uncharge_virtual(20 * MiB, one);
    all.uncharge_virtual(10 * MiB, two);
    all.uncharge_virtual(8 * MiB, three);
    all.uncharge_virtual(4 * MiB, four);
    for (ledger *each :
         {static_cast<ledger *>(&own), static_cast<ledger *>(&second),
          static_cast<ledger *>(&third)}) {
        EXPECT_EQ(each->read().physical_used_bytes, 0U);
        EXPECT_EQ(each->read().virtual_used_bytes, 0U);
    }
    EXPECT_EQ(peer_of(charge(32 * MiB)), 1) << "all of it is there again";
}

TEST_F(Tiers, SumsHaveWhatTheOtherCardsLeave)
{
    EXPECT_EQ(all.read().virtual_bytes, (64 + 32 + 10) * MiB);
    EXPECT_EQ(all.read().virtual_free_bytes(), (64 + 32 + 10) * MiB);
    charge(20 * MiB);
    EXPECT_EQ(all.read().virtual_used_bytes, 20 * MiB);
    EXPECT_EQ(all.read().virtual_free_bytes(), (64 + 12 + 10) * MiB);
    EXPECT_TRUE(second.charge_physical(12 * MiB)) << "its own program";
    EXPECT_EQ(all.read().virtual_free_bytes(), (64 + 10) * MiB);
    EXPECT_EQ(all.read().physical_bytes, 64 * MiB);
    std::uint64_t token = 0;
    EXPECT_FALSE(all.charge_virtual(66 * MiB, token)) << "in no place whole";
    EXPECT_EQ(all.read().virtual_used_bytes, 20 * MiB);
}

TEST_F(Tiers, ACardThatHasNoMemoryIsAvoidedForAMoment)
{
    const std::uint64_t one = charge(20 * MiB);
    ASSERT_EQ(peer_of(one), 1);
    all.uncharge_virtual(20 * MiB, one);
    EXPECT_TRUE(all.avoid(one));
    const std::uint64_t other = charge(20 * MiB);
    EXPECT_EQ(peer_of(other), -1);
    EXPECT_FALSE(all.avoid(other)) << "behind system RAM is nothing";
}

TEST_F(Tiers, MemoryOfTheDriversOwnIsChargedAsSystemRam)
{
    std::uint64_t token = 0;
    EXPECT_TRUE(all.charge_ram(20 * MiB, token));
    EXPECT_EQ(peer_of(token), -1);
    EXPECT_EQ(second.read().physical_used_bytes, 0U);
    EXPECT_EQ(own.read().virtual_used_bytes, 20 * MiB);
    EXPECT_FALSE(all.charge_ram(50 * MiB, token)) << "though cards have room";
    all.uncharge_virtual(20 * MiB, token);
    EXPECT_EQ(own.read().virtual_used_bytes, 0U);
}

TEST_F(Tiers, WhatIsHeldIsShownByPlaceAndByTheCardThatLendsIt)
{
    charged_bytes shown;
    charged_bytes lender;
    all.show_in(shown);
    second.show_in(lender);
    EXPECT_EQ(shown.lent[1].limit, 40 * MiB);
    EXPECT_EQ(shown.lent[2].limit, 10 * MiB);
    EXPECT_FALSE(shown.any());
    EXPECT_TRUE(second.charge_physical(4 * MiB)) << "the program's own there";
    const std::uint64_t one = charge(20 * MiB);
    const std::uint64_t two = charge(9 * MiB);
    const std::uint64_t three = charge(10 * MiB);
    EXPECT_EQ(shown.lent[1].now, 20 * MiB);
    EXPECT_EQ(shown.lent[2].now, 9 * MiB);
    EXPECT_EQ(shown.ram, 10 * MiB);
    EXPECT_EQ(shown.beyond(), 39 * MiB);
    EXPECT_EQ(lender.vram, 24 * MiB);
    EXPECT_EQ(lender.lends, 20 * MiB);
    all.uncharge_virtual(20 * MiB, one);
    all.uncharge_virtual(9 * MiB, two);
    all.uncharge_virtual(10 * MiB, three);
    EXPECT_EQ(shown.beyond(), 0U);
    EXPECT_EQ(shown.most_beyond(), 39 * MiB);
    EXPECT_EQ(shown.lent[1].most, 20 * MiB);
    EXPECT_EQ(lender.vram, 4 * MiB);
    EXPECT_EQ(lender.lends, 0U);
}

TEST_F(Tiers, TheShareItselfIsTheOwnLedgers)
{
    EXPECT_TRUE(all.charge_physical(60 * MiB));
    EXPECT_FALSE(all.charge_physical(8 * MiB));
    EXPECT_EQ(own.read().physical_used_bytes, 60 * MiB);
    EXPECT_EQ(all.own_physical_bytes(), 60 * MiB);
    all.uncharge_physical(60 * MiB);
    EXPECT_EQ(own.read().physical_used_bytes, 0U);
    EXPECT_EQ(own.own_physical_bytes(), 0U);
}

namespace {

// The same card, with a file of 64 MiB behind, of which 16 are kept.
struct TiersWithAFile : testing::Test
{
    TiersWithAFile() { EXPECT_EQ(rows.open(nullptr), 0); }

    ledger_file rows;
    file_ledger own{rows, 0, 64 * MiB, 64 * MiB};
    file_ledger other{rows, 1, 64 * MiB, 64 * MiB};
    file_room room{64 * MiB};
    tiered_ledger all{own, {}, &room};
    tiered_ledger beside{other, {}, &room};
    charged_bytes shown;
};

} // namespace

TEST_F(TiersWithAFile, SumsHaveTheFileAndMemoryIsToldApart)
{
    EXPECT_EQ(all.read().virtual_bytes, (64 + 48) * MiB);
    EXPECT_EQ(all.read().file_bytes, 48 * MiB);
    EXPECT_EQ(all.read().memory_free_bytes(), 64 * MiB);
    std::uint64_t token = 0;
    ASSERT_TRUE(all.charge_virtual(60 * MiB, token));
    ASSERT_TRUE(all.charge_file(40 * MiB, true));
    EXPECT_EQ(all.read().virtual_used_bytes, 100 * MiB);
    EXPECT_EQ(all.read().virtual_free_bytes(), 12 * MiB);
    EXPECT_EQ(all.read().memory_free_bytes(), 4 * MiB);
    EXPECT_EQ(own.read().virtual_used_bytes, 60 * MiB);
    std::uint64_t more = 0;
    EXPECT_FALSE(all.charge_virtual(6 * MiB, more)) << "the file is no RAM";
    all.uncharge_file(40 * MiB);
    all.uncharge_virtual(60 * MiB, token);
    EXPECT_EQ(all.read().virtual_used_bytes, 0U);
}

TEST_F(TiersWithAFile, APartIsKeptForMemoryThatMoves)
{
    all.show_in(shown);
    EXPECT_EQ(shown.file_limit, 48 * MiB);
    EXPECT_FALSE(all.charge_file(50 * MiB, true));
    EXPECT_TRUE(all.charge_file(48 * MiB, true));
    EXPECT_FALSE(all.charge_file(2 * MiB, true));
    EXPECT_TRUE(all.charge_file(16 * MiB, false));
    EXPECT_FALSE(all.charge_file(2 * MiB, false));
    EXPECT_EQ(all.read().memory_free_bytes(), 64 * MiB);
    EXPECT_EQ(all.read().virtual_free_bytes(), 48 * MiB)
        << "new memory does not get what others left for that part";
    EXPECT_EQ(all.read().over_bytes(), 0U);
    EXPECT_EQ(shown.file, 64 * MiB);
    all.uncharge_file(64 * MiB);
    EXPECT_EQ(shown.file, 0U);
    EXPECT_EQ(shown.most_file, 64 * MiB);
}

TEST_F(TiersWithAFile, AllDevicesShareIt)
{
    EXPECT_TRUE(all.charge_file(40 * MiB, true));
    EXPECT_FALSE(beside.charge_file(10 * MiB, true));
    EXPECT_TRUE(beside.charge_file(8 * MiB, true));
    all.uncharge_file(40 * MiB);
    EXPECT_TRUE(beside.charge_file(40 * MiB, true));
}

TEST_F(Tiers, WithoutAFileNoneIsCharged)
{
    EXPECT_FALSE(all.charge_file(2 * MiB, true));
    EXPECT_FALSE(own.charge_file(2 * MiB, false));
    EXPECT_EQ(all.read().file_bytes, 0U);
}
