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
    return {of, {base, 0, 3}};
}

touched nothing_named(const block_ref &of)
{
    return {of, {base, UINT32_MAX, 0}};
}

TEST(BlockTest, WorkTouchesFromItsAddressToTheEnd)
{
    const touch part = made()->touched_from(base + unit_bytes);
    EXPECT_EQ(part.base, base);
    EXPECT_EQ(part.first, 1u);
    EXPECT_EQ(part.last, 3u);
}

TEST(BlockTest, WhereSomethingElseWasNamedItEnds)
{
    const block_ref of = made();
    of->touched_from(base + 2 * unit_bytes);
    const touch part = of->touched_from(base);
    EXPECT_EQ(part.first, 0u);
    EXPECT_EQ(part.last, 1u);
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
            const touch part = of->touched_from(base + at);
            const slot &first = of->slots.at(part.first);
            EXPECT_TRUE(base + at - first.at < first.bytes);
            EXPECT_EQ(part.first, part.last); // the next start was named
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
    of->vacate();
    of->occupy();
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
    EXPECT_FALSE(of->is_settled());
}

TEST(BlockTest, WhatIsOnItsWayToVramIsMissingAndWhatIsOnItsWayOutIsNot)
{
    const block_ref of = made();
    of->put(of->slots[0], place::host);
    of->put(of->slots[1], place::fetching);
    of->put(of->slots[2], place::evicting);
    EXPECT_EQ(missing_bytes({whole(of)}), 2 * unit_bytes);
    EXPECT_EQ(missing_bytes({{of, {base, 2, 3}}}), 0u);
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
    of->may_change();
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
    of->vacate();
    for (const slot &each : of->slots)
        EXPECT_TRUE(each.blank);
    of->has_been_mapped(of->slots[2]);
    EXPECT_TRUE(of->slots[2].blank); // nobody writes to free memory
    of->occupy();
    // The program may now write to all units that are mapped.
    for (const slot &each : of->slots)
        EXPECT_EQ(each.blank, each.away);
    of->has_been_mapped(of->slots[1]);
    EXPECT_FALSE(of->slots[1].blank);
}

TEST(BlockTest, WhatIsAllocatedAgainWhileItLeavesStays)
{
    const block_ref of = made();
    of->vacate();
    of->slots[0].where = place::evicting;
    of->slots[1].where = place::fetching;
    of->occupy();
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

} // namespace
