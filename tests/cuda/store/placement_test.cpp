// SPDX-License-Identifier: GPL-2.0-or-later
// The cut of allocations into units.
#include "store/placement.hpp"

#include <algorithm>
#include <bit>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {
constexpr std::uint64_t MiB = 1ull << 20;
}

TEST(Placement, UnitsAreEvenAndNotAbove64MiB)
{
    EXPECT_EQ(unit_for(2 * MiB), 2 * MiB);
    EXPECT_EQ(unit_for(20 * MiB), 20 * MiB);
    EXPECT_EQ(unit_for(64 * MiB), 64 * MiB);
    EXPECT_EQ(unit_for(66 * MiB), 34 * MiB);
    EXPECT_EQ(unit_for(112 * MiB), 56 * MiB);
    EXPECT_EQ(unit_for(256 * MiB), 64 * MiB);
    EXPECT_EQ(unit_for(1ull << 40), 64 * MiB);
}

TEST(Placement, UnitsThatMoveAreOfFewSizes)
{
    EXPECT_EQ(unit_for(2 * MiB, true), 2 * MiB);
    EXPECT_EQ(unit_for(20 * MiB, true), 16 * MiB);
    for (const std::uint64_t mib : {32, 34, 112, 256, 1 << 20})
        EXPECT_EQ(unit_for(mib * MiB, true), usual_unit_bytes) << mib;
}

TEST(Placement, WhatIsLeftOverOfThoseIsCutIntoSuchToo)
{
    for (const std::uint64_t mib : {2, 20, 34, 56, 112, 126, 1022}) {
        const std::uint64_t unit = unit_for(mib * MiB, true);
        std::uint64_t left = mib * MiB;
        std::uint64_t last = unit;
        while (left > 0) {
            const std::uint64_t next = next_unit(left, unit);
            ASSERT_TRUE(std::has_single_bit(next)) << mib;
            ASSERT_LE(next, std::min(left, last)) << mib;
            left -= next;
            last = next;
        }
    }
    // Others' is one handle.
    EXPECT_EQ(next_unit(22 * MiB, 34 * MiB), 22 * MiB);
    EXPECT_EQ(next_unit(22 * MiB, 64 * MiB), 22 * MiB);
}

TEST(Placement, RoundingUpPastTheEndGivesZero)
{
    EXPECT_EQ(round_up(1, chunk_bytes), chunk_bytes);
    EXPECT_EQ(round_up(chunk_bytes, chunk_bytes), chunk_bytes);
    EXPECT_EQ(round_up(UINT64_MAX, chunk_bytes), 0u);
}
