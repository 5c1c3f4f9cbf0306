// SPDX-License-Identifier: GPL-2.0-or-later
// The cut of allocations into units.
#include "store/placement.hpp"

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

TEST(Placement, UnitsThatMoveAreEvenAndNotAbove32MiB)
{
    EXPECT_EQ(unit_for(2 * MiB, true), 2 * MiB);
    EXPECT_EQ(unit_for(12 * MiB, true), 12 * MiB);
    EXPECT_EQ(unit_for(32 * MiB, true), 32 * MiB);
    EXPECT_EQ(unit_for(34 * MiB, true), 18 * MiB);
    for (std::uint64_t mib = 32; mib < 1024; mib += 2) {
        EXPECT_GE(unit_for(mib * MiB, true), max_moving_bytes / 2) << mib;
        EXPECT_LE(unit_for(mib * MiB, true), max_moving_bytes) << mib;
    }
}

TEST(Placement, WhatIsLeftOverIsOneHandle)
{
    EXPECT_EQ(next_unit(40 * MiB, 34 * MiB), 34 * MiB);
    EXPECT_EQ(next_unit(34 * MiB, 34 * MiB), 34 * MiB);
    EXPECT_EQ(next_unit(22 * MiB, 34 * MiB), 22 * MiB);
    EXPECT_EQ(next_unit(22 * MiB, 64 * MiB), 22 * MiB);
}

TEST(Placement, APartOfAnAllocationHasWholeHandlesOnly)
{
    constexpr std::uint64_t unit = 34 * MiB;
    EXPECT_EQ(whole_units(90 * MiB, unit, 0), 0u);
    EXPECT_EQ(whole_units(90 * MiB, unit, 32 * MiB), 0u);
    EXPECT_EQ(whole_units(90 * MiB, unit, 34 * MiB), 34 * MiB);
    EXPECT_EQ(whole_units(90 * MiB, unit, 88 * MiB), 68 * MiB);
    EXPECT_EQ(whole_units(90 * MiB, unit, 90 * MiB), 90 * MiB);
    EXPECT_EQ(whole_units(90 * MiB, unit, 1000 * MiB), 90 * MiB);
}

TEST(Placement, RoundingUpPastTheEndGivesZero)
{
    EXPECT_EQ(round_up(1, chunk_bytes), chunk_bytes);
    EXPECT_EQ(round_up(chunk_bytes, chunk_bytes), chunk_bytes);
    EXPECT_EQ(round_up(UINT64_MAX, chunk_bytes), 0u);
}
