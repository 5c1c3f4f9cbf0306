// SPDX-License-Identifier: GPL-2.0-or-later
// Free frames, and memory under other addresses, against a driver of tables.
#include "fake_driver.hpp"
#include "movement/frames.hpp"
#include "store/mapping.hpp"
#include "store/store.hpp"

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = 1ull << 20;

struct FramesTest : testing::Test
{
    FramesTest() { EXPECT_EQ(rows.open(nullptr), 0); }

    std::uint64_t used() { return limits.read().physical_used_bytes; }

    FakeDriver card;
    ledger_file rows;
    file_ledger limits{rows, 0, 64 * MiB, 0};
    budget shares{{.calls = card.calls, .ledgers = {&limits}}};
    // Takes a frame as the mover does.
    bool take(std::uint64_t bytes, frame &out)
    {
        std::vector<frame> gone;
        return free.take(bytes, out, gone) && free.complete(out, gone, true);
    }

    // Puts free frames of these sizes, in MiB.
    void fill(const std::vector<std::uint64_t> &mib)
    {
        std::vector<frame> all(mib.size());
        for (std::size_t i = 0; i < all.size(); i++)
            ASSERT_TRUE(take(mib[i] * MiB, all[i]));
        for (const frame &each : all)
            free.put(each);
    }

    frames free{card.calls, shares, 0, 0};
    frame got;
};

TEST_F(FramesTest, ANewOneIsChargedAndHasAnAddress)
{
    ASSERT_TRUE(take(16 * MiB, got));
    EXPECT_EQ(used(), 16 * MiB);
    EXPECT_EQ(card.card_used, 16 * MiB);
    EXPECT_EQ(card.mapped.at(got.alias), got.handle);
    EXPECT_TRUE(free.empty());
    free.put(got);
    EXPECT_EQ(free.bytes(), 16 * MiB);
    free.drop();
    EXPECT_EQ(used(), 0u);
    EXPECT_TRUE(card.empty());
}

TEST_F(FramesTest, OneOfTheSameSizeIsUsedAgain)
{
    ASSERT_TRUE(take(16 * MiB, got));
    free.put(got);
    frame again;
    ASSERT_TRUE(take(16 * MiB, again));
    EXPECT_EQ(again.handle, got.handle);
    EXPECT_EQ(again.alias, got.alias);
    EXPECT_EQ(used(), 16 * MiB);
    free.put(again);
    free.drop();
}

TEST_F(FramesTest, OneWithoutAnAddressGetsOneWhenItIsTaken)
{
    const auto properties = properties_of(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    frame bare{0, 0, 16 * MiB};
    ASSERT_TRUE(limits.charge_physical(bare.bytes));
    ASSERT_EQ(card.calls.cuMemCreate(&bare.handle, bare.bytes, &properties, 0),
              CUDA_SUCCESS);
    free.put(bare);
    ASSERT_TRUE(take(16 * MiB, got));
    EXPECT_EQ(got.handle, bare.handle);
    EXPECT_NE(got.alias, 0u);
    free.put(got);
    free.drop();
    EXPECT_TRUE(card.empty());
}

TEST_F(FramesTest, OneThatNothingIsCopiedToGetsAnAddressWhenSomethingIs)
{
    std::vector<frame> gone;
    ASSERT_TRUE(free.take(16 * MiB, got, gone));
    ASSERT_TRUE(free.complete(got, gone, false));
    EXPECT_EQ(used(), 16 * MiB);
    EXPECT_NE(got.handle, 0u);
    EXPECT_EQ(got.alias, 0u);
    free.put(got);
    ASSERT_TRUE(take(16 * MiB, got));
    EXPECT_EQ(card.mapped.at(got.alias), got.handle);
    EXPECT_EQ(card.card_used, 16 * MiB);
    free.put(got);
    free.drop();
    EXPECT_TRUE(card.empty());
}

TEST_F(FramesTest, OthersMakeRoomTheLargestFirst)
{
    ASSERT_NO_FATAL_FAILURE(fill({12, 20, 28}));
    ASSERT_TRUE(take(40 * MiB, got)); // 4 MiB are left of the share
    EXPECT_EQ(free.bytes(), 20 * MiB);
    EXPECT_TRUE(free.has(20 * MiB));
    EXPECT_EQ(used(), 60 * MiB);
    free.put(got);
    free.drop();
    EXPECT_TRUE(card.empty());
}

TEST_F(FramesTest, OfThoseThatAreEnoughTheSmallestMakesRoom)
{
    ASSERT_NO_FATAL_FAILURE(fill({8, 20, 32}));
    ASSERT_TRUE(take(18 * MiB, got)); // 4 MiB are left of the share
    EXPECT_TRUE(free.has(8 * MiB));
    EXPECT_FALSE(free.has(20 * MiB));
    EXPECT_TRUE(free.has(32 * MiB));
    free.put(got);
    free.drop();
    EXPECT_TRUE(card.empty());
}

TEST_F(FramesTest, WhatTheCardRefusedIsNotAskedForAtOnce)
{
    card.card_bytes = 8 * MiB;
    frames patient{card.calls, shares, 0, UINT64_MAX};
    std::vector<frame> gone;
    ASSERT_TRUE(patient.take(16 * MiB, got, gone));
    EXPECT_FALSE(patient.complete(got, gone, true));
    card.card_bytes = 64 * MiB;
    EXPECT_EQ(patient.below(), 16 * MiB);
    EXPECT_FALSE(patient.take(16 * MiB, got, gone));
    // A smaller frame may be made. Once one comes free, the same size may be,
    // too.
    ASSERT_TRUE(patient.take(8 * MiB, got, gone));
    ASSERT_TRUE(patient.complete(got, gone, true));
    patient.put(got);
    ASSERT_TRUE(patient.take(16 * MiB, got, gone));
    EXPECT_TRUE(patient.complete(got, gone, true));
    patient.put(got);
    patient.drop();
    EXPECT_EQ(used(), 0u);
}

TEST_F(FramesTest, WhereNotEvenAllOfThemAreEnoughTheyStay)
{
    frame held;
    ASSERT_TRUE(take(48 * MiB, held));
    frame small;
    ASSERT_TRUE(take(16 * MiB, small));
    free.put(small);
    EXPECT_FALSE(take(32 * MiB, got));
    EXPECT_EQ(free.bytes(), 16 * MiB);
    free.put(held);
    free.drop();
    EXPECT_EQ(used(), 0u);
}

TEST_F(FramesTest, WhatTheCardDoesNotHaveIsNotCharged)
{
    card.card_bytes = 8 * MiB;
    EXPECT_FALSE(take(16 * MiB, got));
    EXPECT_EQ(used(), 0u);
}

TEST_F(FramesTest, WhatCannotBeMappedIsGivenBack)
{
    card.fail_map = true;
    EXPECT_FALSE(take(16 * MiB, got));
    EXPECT_EQ(used(), 0u);
    card.fail_map = false;
    card.fail_access = true;
    EXPECT_FALSE(take(16 * MiB, got));
    EXPECT_EQ(got.handle, 0u);
    EXPECT_EQ(used(), 0u);
    EXPECT_TRUE(card.empty());
}

// Two handles, of which the first is mapped at an address.
struct MappingTest : testing::Test
{
    MappingTest()
    {
        const auto properties = properties_of(CU_MEM_LOCATION_TYPE_DEVICE, 0);
        for (auto *each : {&first, &second})
            EXPECT_EQ(card.calls.cuMemCreate(each, bytes, &properties, 0),
                      CUDA_SUCCESS);
        at = map_alias(card.calls, first, bytes, 0);
        // Mapping fails as often as maps_fail says.
        static MappingTest *self;
        self = this;
        real_map = card.calls.cuMemMap;
        card.calls.cuMemMap =
            [](CUdeviceptr where, std::size_t size, std::size_t offset,
               CUmemGenericAllocationHandle handle, unsigned long long flags) {
                if (self->maps_fail > 0) {
                    self->maps_fail--;
                    return CUDA_ERROR_UNKNOWN;
                }
                return self->real_map(where, size, offset, handle, flags);
            };
    }

    static constexpr std::uint64_t bytes = 2 * MiB;
    FakeDriver card;
    CUmemGenericAllocationHandle first = 0;
    CUmemGenericAllocationHandle second = 0;
    CUdeviceptr at = 0;
    unsigned maps_fail = 0;
    decltype(card.calls.cuMemMap) real_map = nullptr;
};

TEST_F(MappingTest, AnAliasThatCannotBeMadeLeavesNothing)
{
    const auto ranges = card.reserved.size();
    maps_fail = 1;
    EXPECT_EQ(map_alias(card.calls, second, bytes, 0), 0u);
    EXPECT_EQ(card.reserved.size(), ranges);
}

TEST_F(MappingTest, NoAliasIsNotUnmapped)
{
    card.calls.cuMemUnmap = [](CUdeviceptr, std::size_t) {
        ADD_FAILURE();
        return CUDA_SUCCESS;
    };
    unmap_alias(card.calls, 0, bytes);
}

} // namespace
