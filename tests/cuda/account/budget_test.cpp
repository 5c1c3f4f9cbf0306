// SPDX-License-Identifier: GPL-2.0-or-later
// A budget's charges, and the reliefs that it asks for room.
#include "account/budget.hpp"
#include "account/tiers.hpp"
#include "fake_driver.hpp"

#include <memory>
#include <string>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = 1ull << 20;

// Frees what it has, and writes down who was asked.
struct Friend final : relief
{
    Friend(char letter, std::string &list) : called(letter), asked(list) {}

    bool give_up(int) override
    {
        asked += called;
        return has_idle;
    }
    bool make_way(int device, std::uint64_t bytes) override
    {
        asked += called;
        if (limits == nullptr || device != 0 || bytes > movable_bytes)
            return false;
        limits->uncharge_physical(movable_bytes);
        movable_bytes = 0;
        return limits->charge_physical(bytes);
    }

    const char called;
    std::string &asked;
    bool has_idle = false;
    ledger *limits = nullptr;
    std::uint64_t movable_bytes = 0; // that it has charged
};

// 64 MiB of VRAM and 32 MiB of system RAM.
struct Budget : testing::Test
{
    Budget()
    {
        EXPECT_EQ(rows.open(nullptr), 0);
        limits = std::make_unique<file_ledger>(rows, 0, 64 * MiB, 32 * MiB);
        shares = std::make_unique<budget>(
            budget::options{.calls = card.calls, .ledgers = {limits.get()}});
        shares->add(first);
        shares->add(second);
    }

    std::uint64_t used() { return limits->read().physical_used_bytes; }
    std::uint64_t used_beyond() { return limits->read().virtual_used_bytes; }

    // A pool holds 30 MiB, of which it can give up all.
    void fill_pool()
    {
        pools &all = shares->stream_pools();
        const pools::source from{0, reinterpret_cast<CUmemoryPool>(0x30)};
        std::uint64_t number = 0;
        ASSERT_TRUE(all.begin(from, 30 * MiB));
        card.pool_reserved = 30 * MiB;
        ASSERT_TRUE(all.end(from, 30 * MiB, true, number));
        all.freed(number, 30 * MiB);
        card.pool_used = 0;
        ASSERT_EQ(used(), 30 * MiB);
    }

    FakeDriver card;
    ledger_file rows;
    std::unique_ptr<file_ledger> limits;
    std::string asked;
    Friend first{'a', asked};
    Friend second{'b', asked};
    std::unique_ptr<budget> shares;
};

} // namespace

TEST(DeviceShare, TheCardGetsWholeChunksAndNoMoreThanItsShare)
{
    EXPECT_EQ(device_share(10 * MiB, 100 * MiB), 10 * MiB);
    EXPECT_EQ(device_share(10 * MiB, 10 * MiB), 10 * MiB);
    EXPECT_EQ(device_share(10 * MiB, 5 * MiB), 4 * MiB);
    EXPECT_EQ(device_share(10 * MiB, 2 * MiB - 1), 0u);
}

TEST_F(Budget, NobodyIsAskedWhileThereIsRoom)
{
    EXPECT_TRUE(shares->charge_vram(0, 40 * MiB));
    EXPECT_TRUE(shares->charge_vram_alone(0, 24 * MiB));
    EXPECT_EQ(used(), 64 * MiB);
    EXPECT_EQ(asked, "");
    shares->uncharge_vram(0, 64 * MiB);
    EXPECT_EQ(used(), 0u);
}

TEST_F(Budget, NothingMakesWayForWhatCanBeElsewhere)
{
    ASSERT_TRUE(limits->charge_physical(64 * MiB));
    first.limits = limits.get();
    first.movable_bytes = 64 * MiB;
    EXPECT_FALSE(shares->charge_vram(0, MiB));
    EXPECT_EQ(asked, "");
    EXPECT_EQ(used(), 64 * MiB);
}

TEST_F(Budget, ForWhatCanOnlyBeInVramTheyMakeWayInTheirOrder)
{
    ASSERT_TRUE(limits->charge_physical(64 * MiB));
    second.limits = limits.get();
    second.movable_bytes = 40 * MiB;
    EXPECT_TRUE(shares->charge_vram_alone(0, 10 * MiB));
    EXPECT_EQ(asked, "ab");
    EXPECT_EQ(used(), 34 * MiB);
    asked.clear();
    EXPECT_FALSE(shares->charge_vram_alone(0, 40 * MiB));
    EXPECT_EQ(asked, "ab");
    EXPECT_EQ(used(), 34 * MiB);
}

TEST_F(Budget, WhoMakesWayFirstIsTheLastToBeAsked)
{
    ASSERT_TRUE(limits->charge_physical(64 * MiB));
    first.limits = second.limits = limits.get();
    first.movable_bytes = second.movable_bytes = 20 * MiB;
    EXPECT_TRUE(shares->charge_vram_alone(0, 10 * MiB));
    EXPECT_EQ(asked, "a");
    EXPECT_EQ(second.movable_bytes, 20 * MiB);
}

TEST_F(Budget, ThePoolsGiveUpWhatNobodyUsesBeforeAnybodyIsAsked)
{
    ASSERT_NO_FATAL_FAILURE(fill_pool());
    EXPECT_TRUE(shares->charge_vram(0, 60 * MiB));
    EXPECT_EQ(card.pool_reserved, 0u);
    EXPECT_EQ(used(), 60 * MiB);
    EXPECT_EQ(asked, "");
}

TEST_F(Budget, AChargeOfWhatIsFreeLeavesThePoolsAndAllOthersAlone)
{
    ASSERT_NO_FATAL_FAILURE(fill_pool());
    EXPECT_FALSE(shares->charge_free_vram(0, 35 * MiB));
    EXPECT_FALSE(shares->charge_vram_within(0, 35 * MiB, 1));
    EXPECT_EQ(used(), 30 * MiB);
    EXPECT_TRUE(shares->charge_free_vram(0, 20 * MiB));
    EXPECT_TRUE(shares->charge_vram_within(0, 14 * MiB, 1));
    EXPECT_EQ(used(), 64 * MiB);
    EXPECT_EQ(card.pool_reserved, 30 * MiB);
    EXPECT_EQ(asked, "");
}

TEST_F(Budget, SystemRamIsChargedWholeOrNotAtAll)
{
    const auto some = shares->charge_ram(0, 20 * MiB);
    ASSERT_TRUE(some);
    EXPECT_EQ(some->bytes, 20 * MiB);
    EXPECT_FALSE(shares->charge_ram(0, 14 * MiB));
    EXPECT_EQ(used_beyond(), 20 * MiB);
    shares->uncharge_ram(0, *some);
    EXPECT_EQ(used_beyond(), 0u);
    EXPECT_EQ(asked, "");
}

TEST_F(Budget, AShareOfVramIsAllThatThereIsInWholeChunks)
{
    EXPECT_EQ(shares->charge_share_of_vram(0, 10 * MiB), 10 * MiB);
    ASSERT_TRUE(limits->charge_physical(MiB));
    EXPECT_EQ(shares->charge_share_of_vram(0, 100 * MiB), 52 * MiB);
    EXPECT_EQ(used(), 63 * MiB);
    EXPECT_EQ(shares->charge_share_of_vram(0, 2 * MiB), 0u);
    EXPECT_EQ(used(), 63 * MiB);
}

TEST_F(Budget, MemoryThatTheDriverPlacesIsChargedToNoOtherCard)
{
    file_ledger lends(rows, 1, 64 * MiB, 0);
    tiered_ledger tiers(*limits, {{1, 64 * MiB, &lends}});
    budget both({.calls = card.calls, .ledgers = {&tiers}});
    const auto beyond = both.take(0, 70 * MiB, true);
    EXPECT_FALSE(beyond) << "the other card has room, system RAM has not";
    const auto less = both.take(0, 30 * MiB, true);
    ASSERT_TRUE(less);
    const auto more = both.take(0, 32 * MiB, true);
    ASSERT_TRUE(more);
    const auto last = both.take(0, 30 * MiB, true);
    ASSERT_TRUE(last);
    EXPECT_EQ(lends.read().physical_used_bytes, 0u);
    EXPECT_EQ(used_beyond(), 30 * MiB);
    both.give_back(0, 30 * MiB, *less);
    both.give_back(0, 32 * MiB, *more);
    both.give_back(0, 30 * MiB, *last);
    EXPECT_EQ(used(), 0u);
    EXPECT_EQ(used_beyond(), 0u);
    EXPECT_TRUE(both.charge_ram(0, 40 * MiB)) << "of ours, there";
    EXPECT_EQ(lends.read().physical_used_bytes, 40 * MiB);
}

TEST_F(Budget, WhatMayBeVirtualIsSoBeyondVramAndGoesBackAsIt)
{
    const auto inside = shares->take(0, 60 * MiB, true);
    const auto beyond = shares->take(0, 21 * MiB, true);
    ASSERT_TRUE(inside && beyond);
    EXPECT_EQ(inside->kind, charge_kind::physical);
    EXPECT_EQ(beyond->kind, charge_kind::host);
    EXPECT_EQ(used_beyond(), 22 * MiB);
    EXPECT_FALSE(shares->take(0, 11 * MiB, true));
    EXPECT_FALSE(shares->take(0, UINT64_MAX, true));
    shares->give_back(0, 21 * MiB, *beyond);
    EXPECT_EQ(used_beyond(), 0u);
    EXPECT_EQ(used(), 60 * MiB);
    shares->give_back(0, 60 * MiB, *inside);
    EXPECT_EQ(used(), 0u);
}

TEST_F(Budget, WhatMayNotBeVirtualHasOthersMakeWayInstead)
{
    ASSERT_TRUE(limits->charge_physical(64 * MiB));
    EXPECT_FALSE(shares->take(0, MiB, false));
    EXPECT_EQ(asked, "ab");
    EXPECT_EQ(used_beyond(), 0u);
}

TEST_F(Budget, WhatRunsOutIsTriedAgainBehindEachWhoGaveSomethingUp)
{
    unsigned tries = 0;
    const auto never_fits = [&] {
        tries++;
        return CUDA_ERROR_OUT_OF_MEMORY;
    };
    EXPECT_EQ(shares->until_it_fits(0, never_fits), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(tries, 1u);
    EXPECT_EQ(asked, "ab");

    second.has_idle = true;
    tries = 0;
    EXPECT_EQ(shares->until_it_fits(0, never_fits), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(tries, 2u);

    first.has_idle = true;
    tries = 0;
    asked.clear();
    EXPECT_EQ(shares->until_it_fits(0,
                                    [&] {
                                        return ++tries == 2
                                                   ? CUDA_SUCCESS
                                                   : CUDA_ERROR_OUT_OF_MEMORY;
                                    }),
              CUDA_SUCCESS);
    EXPECT_EQ(asked, "a") << "whoever need not give up anything is not asked";
}

TEST_F(Budget, AnotherErrorThanOutOfMemoryIsTheAnswer)
{
    EXPECT_EQ(shares->until_it_fits(0, [] { return CUDA_ERROR_UNKNOWN; }),
              CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(asked, "");
}

TEST_F(Budget, ForWhatCudaTakesOthersMakeWay)
{
    // 20 MiB more than the ledger has.
    footprint taken({.limits = *limits, .ask = [](int) { return 84 * MiB; }});
    budget with(budget::options{.calls = card.calls,
                                .ledgers = {limits.get()},
                                .footprints = {&taken}});
    with.add(second);
    ASSERT_TRUE(limits->charge_physical(64 * MiB));
    second.limits = limits.get();
    second.movable_bytes = 64 * MiB;
    with.follow_footprint(0);
    EXPECT_EQ(asked, "b");
    EXPECT_EQ(taken.charged_bytes(), 20 * MiB);
    EXPECT_EQ(used(), 20 * MiB);
}
