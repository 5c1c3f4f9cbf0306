// SPDX-License-Identifier: GPL-2.0-or-later
// The units of an allocation that work touches, and those not in VRAM.
#include "movement/block.hpp"

#include <vector>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t unit_bytes = 64;
constexpr CUdeviceptr base = 0x10000;

// Four units in VRAM.
block_ref made(bool small = false)
{
    block_ref of(new block);
    of->base = base;
    of->bytes = 4 * unit_bytes;
    of->small = small;
    for (std::uint64_t i = 0; i < 4; i++) {
        slot next;
        next.at = base + i * unit_bytes;
        next.bytes = unit_bytes;
        next.where = place::vram;
        of->add(next);
    }
    return of;
}

touched whole(const block_ref &of)
{
    touched all(*of, base);
    all.given = {base, 0, 3};
    return all;
}

touched nothing_named(const block_ref &of)
{
    return {*of, base};
}

TEST(BlockTest, WorkTouchesFromItsAddressToTheEnd)
{
    const touch given = made()->touched_from(base + unit_bytes);
    EXPECT_EQ(given.base, base);
    EXPECT_EQ(given.first, 1u);
    EXPECT_EQ(given.last, 3u);
}

TEST(BlockTest, WhereSomethingElseWasNamedItEnds)
{
    const block_ref of = made();
    of->touched_from(base + 2 * unit_bytes);
    const touch given = of->touched_from(base);
    EXPECT_EQ(given.first, 0u);
    EXPECT_EQ(given.last, 1u);
    // A start in the middle of a unit: that unit is part of both runs.
    of->touched_from(base + unit_bytes / 2);
    EXPECT_EQ(of->touched_from(base).last, 0u);
    EXPECT_EQ(of->touched_from(base + unit_bytes / 2).first, 0u);
    EXPECT_EQ(of->touched_from(base + 2 * unit_bytes).last, 3u);
}

TEST(BlockTest, AnAddressIsInItsUnitWhateverTheirSizes)
{
    using sizes = std::vector<std::uint64_t>;
    for (const sizes &each :
         {sizes{64}, sizes{64, 64, 64}, sizes{64, 64, 16}, sizes{64, 16, 16},
          sizes{16, 64, 64}, sizes{64, 16, 64}, sizes{64, 64, 128}}) {
        const block_ref of(new block);
        of->base = base;
        for (const std::uint64_t bytes : each) {
            slot next;
            next.at = base + of->bytes;
            next.bytes = bytes;
            next.where = place::vram;
            of->add(next);
            of->bytes += bytes;
        }
        const std::uint64_t apart = each.front() / 16;
        for (std::uint64_t at = of->bytes; at > 0;) {
            at -= apart;
            const touch given = of->touched_from(base + at);
            const slot &first = of->slots.at(given.first);
            EXPECT_TRUE(base + at - first.at < first.bytes);
            EXPECT_EQ(given.first, given.last); // the next start was named
        }
    }
}

TEST(BlockTest, AViewThatBeginsWithinAMatrixsFirstRowEndsNothing)
{
    const block_ref of = made();
    of->touched_from(base + 2); // its second column
    EXPECT_EQ(of->touched_from(base).last, 3u);
    EXPECT_EQ(of->touched_from(base + 2).last, 3u);
}

TEST(BlockTest, WhatIsAllocatedAgainIsDividedAnew)
{
    const block_ref of = made();
    of->touched_from(base + unit_bytes);
    ASSERT_EQ(of->touched_from(base).last, 0u);
    of->vacate(of->lots.front());
    of->occupy(0, of->bytes, 2);
    EXPECT_EQ(of->touched_from(base).last, 3u);
}

TEST(BlockTest, OffsetsThatNeverComeAgainAreNotKeptForEver)
{
    const block_ref of = made();
    of->bytes = of->slots[3].bytes = 1u << 20;
    for (CUdeviceptr at = 1; at < 20000; at++)
        of->touched_from(base + at);
    EXPECT_LE(of->starts.size(), block::max_starts);
}

TEST(BlockTest, AnAddressThatWorkWasGivenIsKnownForGood)
{
    const block_ref of = made();
    of->bytes = of->slots[3].bytes = std::uint64_t{1} << 40;
    EXPECT_TRUE(of->is_given(base));
    EXPECT_FALSE(of->is_given(base + 24));
    of->give(base + 24);
    of->give(base + 31); // a multiple of nothing
    of->give(base + of->bytes);
    const std::uint64_t many = 8 * known_offsets::max_single;
    for (std::uint64_t i = 1; i <= many; i++) {
        of->give(base + i * 512);
        of->touched_from(base + i * 512);
    }
    for (const std::uint64_t each : {std::uint64_t{24}, std::uint64_t{31},
                                     std::uint64_t{512}, many * 512, of->bytes})
        EXPECT_TRUE(of->is_given(base + each)) << each;
    EXPECT_FALSE(of->is_given(base + of->bytes / 2)) << "far from all of them";
}

TEST(BlockTest, WhileTheyAreFewNothingBesideAGivenAddressIsOne)
{
    const block_ref of = made();
    of->bytes = of->slots[3].bytes = 1u << 20;
    for (std::uint64_t i = 0; i < known_offsets::max_single; i++)
        of->give(base + i * 16 + 8);
    EXPECT_TRUE(of->is_given(base + 8));
    EXPECT_FALSE(of->is_given(base + 16));
}

TEST(BlockTest, WhatIsToStayIsSettledOnceAllOfItIsMapped)
{
    const block_ref of = made();
    EXPECT_FALSE(of->is_settled()) << "it may move";
    of->moving = 1;
    of->slots[2].unmapped = true;
    of->hold_still();
    EXPECT_FALSE(of->is_settled());
    of->slots[2].unmapped = false;
    EXPECT_TRUE(of->is_settled());
    of->away = 1;
    of->slots[1].away = true;
    EXPECT_FALSE(of->is_settled());
}

TEST(BlockTest, WhatIsOnItsWayToVramIsMissingAndWhatIsOnItsWayOutIsNot)
{
    const block_ref of = made();
    of->put(of->slots[0], place::host);
    of->put(of->slots[1], place::fetching);
    of->put(of->slots[2], place::evicting);
    EXPECT_EQ(missing_bytes({whole(of)}), 2 * unit_bytes);
    touched some(*of, base);
    some.given = {base, 2, 3};
    EXPECT_EQ(missing_bytes({some}), 0u);
}

TEST(BlockTest, NothingIsMissingOfWhatStaysOrOfWhatNamesNoUnit)
{
    const block_ref of = made();
    of->put(of->slots[0], place::host);
    EXPECT_EQ(missing_bytes({nothing_named(of)}), 0u);
    of->hold_still();
    EXPECT_EQ(missing_bytes({whole(of)}), 0u);
}

TEST(BlockTest, OfASmallBlockAllIsNeeded)
{
    const block_ref of = made(true);
    of->put(of->slots[3], place::host);
    EXPECT_EQ(missing_bytes({nothing_named(of)}), unit_bytes);
}

TEST(BlockTest, HoldingStillCallsOffEveryUnitsMove)
{
    const block_ref of = made();
    of->moving = 1;
    of->hold_still();
    EXPECT_TRUE(of->fixed);
    for (const slot &each : of->slots)
        EXPECT_TRUE(each.cancel);
}

TEST(BlockTest, WhatMayHaveChangedIsWhatWorkCanWriteOverTheLink)
{
    const block_ref of = made();
    for (slot &each : of->slots)
        each.room_is_known = true;
    of->put(of->slots[1], place::host);
    of->may_change(of->all());
    EXPECT_TRUE(of->slots[0].room_is_known);
    EXPECT_FALSE(of->slots[1].room_is_known);
}

TEST(BlockTest, WhatTakesAnothersRoomKnowsNothingOfWhatItHolds)
{
    slot one;
    slot other;
    other.host = {7, 0x1000, true, 23};
    one.room_is_known = other.room_is_known = true;
    one.take_room_of(other);
    EXPECT_EQ(one.host.handle, 7U);
    EXPECT_EQ(one.host.alias, 0x1000U);
    EXPECT_TRUE(one.host.charged);
    EXPECT_EQ(one.host.token, 23U);
    EXPECT_EQ(other.host.handle, 0U);
    EXPECT_EQ(other.host.alias, 0U);
    EXPECT_FALSE(other.host.charged);
    EXPECT_FALSE(one.room_is_known);
    EXPECT_FALSE(other.room_is_known);
}

TEST(BlockTest, WhatIsFreedHoldsNothingUntilItIsAllocatedAndMapped)
{
    const block_ref of = made();
    of->slots[1].where = place::host;
    of->slots[1].away = true;
    of->vacate(of->lots.front());
    for (const slot &each : of->slots)
        EXPECT_TRUE(each.blank);
    of->has_been_mapped(of->slots[2]);
    EXPECT_TRUE(of->slots[2].blank); // nobody writes to free memory
    of->occupy(0, of->bytes, 2);
    // The program may now write to all units that are mapped.
    for (const slot &each : of->slots)
        EXPECT_EQ(each.blank, each.away);
    of->has_been_mapped(of->slots[1]);
    EXPECT_FALSE(of->slots[1].blank);
}

TEST(BlockTest, WhatIsAllocatedAgainWhileItLeavesStays)
{
    const block_ref of = made();
    of->vacate(of->lots.front());
    of->slots[0].where = place::evicting;
    of->slots[1].where = place::fetching;
    of->occupy(0, of->bytes, 2);
    EXPECT_TRUE(of->slots[0].cancel);
    EXPECT_FALSE(of->slots[1].cancel);
}

TEST(BlockTest, LivesAsLongAsSomebodyHoldsIt)
{
    block_ref one = made();
    block_ref other = one;
    EXPECT_EQ(other->holders(), 2u);
    one = {};
    EXPECT_FALSE(one);
    EXPECT_EQ(other->holders(), 1u);
    const block_ref third = std::move(other);
    EXPECT_FALSE(other);
    EXPECT_EQ(third->holders(), 1u);
}

// Four units, divided: [0, 96) is in use, [96, 160) too, the rest is vacant.
block_ref divided()
{
    const block_ref of = made();
    of->vacate(of->lots.front());
    of->occupy(0, 96, 7);
    of->occupy(96, 160, 8);
    return of;
}

TEST(BlockTest, AnAllocationHasTheUnitsInWhichItHasBytes)
{
    const block_ref of = divided();
    ASSERT_EQ(of->lots.size(), 3u);
    EXPECT_EQ(of->units_of(of->lot_at(base)), (segment{0, 2}));
    EXPECT_EQ(of->units_of(of->lot_at(base + 96)), (segment{1, 3}));
    EXPECT_EQ(of->lot_at(base + 95).identity, 7u);
    EXPECT_EQ(of->lot_at(base + 96).identity, 8u);
    EXPECT_TRUE(of->lot_at(base + 160).vacant);
    EXPECT_TRUE(of->lot_at(base + of->bytes).vacant) << "the end";
}

TEST(BlockTest, AUnitIsVacantOnceAllThatShareItAreFreed)
{
    const block_ref of = divided();
    EXPECT_EQ(of->slots[1].lots, 2u);
    EXPECT_EQ(of->slots[3].lots, 0u);
    EXPECT_FALSE(of->slots[1].blank);
    EXPECT_EQ(of->vacate(of->lot_at(base)), 1u) << "unit 0";
    EXPECT_TRUE(of->slots[0].blank);
    EXPECT_FALSE(of->slots[1].blank) << "the other one needs it";
    EXPECT_EQ(of->vacate(of->lot_at(base + 96)), 2u);
    EXPECT_TRUE(of->slots[1].blank);
    ASSERT_EQ(of->lots.size(), 1u) << "all of it is one again";
    EXPECT_EQ(of->lots[0].begin, 0u);
    EXPECT_EQ(of->lots[0].end, of->bytes);
}

TEST(BlockTest, AnAllocationBesideOthersLeavesTheirContentsAlone)
{
    const block_ref of = divided();
    of->slots[2].where = place::evicting;
    of->slots[2].cancel = false;
    of->slots[2].renewed = false;
    EXPECT_EQ(of->occupy(160, 200, 9), 1u) << "unit 3 alone was vacant";
    EXPECT_FALSE(of->slots[2].cancel) << "what it holds is copied anyway";
    EXPECT_FALSE(of->slots[2].renewed);
    EXPECT_TRUE(of->slots[3].renewed);
    ASSERT_EQ(of->lots.size(), 4u);
    EXPECT_EQ(of->lots[3].begin, 200u);
    EXPECT_TRUE(of->lots[3].vacant);
}

TEST(BlockTest, WorkTouchesNoMoreThanItsAllocation)
{
    const block_ref of = divided();
    const touch given = of->touched_from(base);
    EXPECT_EQ(given.first, 0u);
    EXPECT_EQ(given.last, 1u);
    EXPECT_EQ(of->touched_from(base + 96).last, 2u);
}

TEST(BlockTest, WhatIsAllocatedAnewIsDividedAnewAndItsNeighboursAreNot)
{
    const block_ref of = divided();
    of->touched_from(base + 32);
    of->touched_from(base + 128);
    of->vacate(of->lot_at(base));
    of->occupy(0, 96, 10);
    EXPECT_EQ(of->starts, (std::vector<std::uint64_t>{128}));
}

TEST(BlockTest, BetweenTwoAllocationsThereIsMemoryThatNobodyHas)
{
    const block_ref of(new block);
    of->base = base;
    of->bytes = 64 << 20;
    slot all;
    all.at = base;
    all.bytes = of->bytes;
    of->add(all);
    EXPECT_TRUE(of->is_in_use(base + of->bytes)) << "its end";
    of->vacate(of->lots.front());
    of->occupy(0, 8 << 20, 1);
    of->occupy(8 << 20, 16 << 20, 2);
    const CUdeviceptr end = base + (8 << 20) - guard_bytes;
    EXPECT_TRUE(of->is_in_use(base));
    EXPECT_TRUE(of->is_in_use(end)) << "one past the end of what it may have";
    EXPECT_FALSE(of->is_in_use(end + 1));
    EXPECT_FALSE(of->is_in_use(base + (8 << 20) - 1));
    EXPECT_TRUE(of->is_in_use(base + (8 << 20)));
    EXPECT_FALSE(of->is_in_use(base + (16 << 20))) << "vacant";
}

TEST(BlockTest, VacantUnitsAreNotRevivedBesideThoseThatAre)
{
    const block_ref of = divided();
    of->discard(of->slots[0]);
    of->revive(of->all());
    EXPECT_FALSE(of->slots[0].blank);
    EXPECT_TRUE(of->slots[3].blank) << "nobody has it";
}

TEST(BlockTest, TheUnitsAroundOneAreThoseOfAllThatShareIt)
{
    const block_ref of = divided();
    EXPECT_EQ(of->neighbours_of(0), (segment{0, 2}));
    EXPECT_EQ(of->neighbours_of(1), (segment{0, 3}));
    EXPECT_EQ(of->neighbours_of(2), (segment{1, 3}));
    EXPECT_EQ(of->neighbours_of(3), (segment{3, 4}));
    const block_ref whole = made();
    EXPECT_EQ(whole->neighbours_of(2), (segment{0, 4}));
}

TEST(BlockTest, FreedMemoryThatMayBeReadCountsOnceItIsMapped)
{
    const block_ref of = made();
    slot &one = of->slots[1];
    of->discard(one);
    EXPECT_EQ(of->vacate(of->lots.front(), true), 4U);
    EXPECT_FALSE(of->slots[0].blank);
    of->has_been_mapped(one);
    EXPECT_FALSE(one.blank) << "somebody may write there, and another read it";
    one.blank = true;
    of->dead = true;
    of->revive(of->all());
    EXPECT_FALSE(one.blank);
    of->occupy(0, of->bytes, 2);
    of->vacate(of->lots.front());
    of->has_been_mapped(one);
    EXPECT_TRUE(one.blank) << "nobody reads it";
}

} // namespace
