// SPDX-License-Identifier: GPL-2.0-or-later
// When the plan of what leaves VRAM is made anew, and for whom.
#include "core/placement.hpp"
#include "core/planner.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t units = 64;
constexpr std::uint64_t unit_bytes = max_unit_bytes;

// A program that uses the units of one block in a circle.
struct PlannerTest : testing::Test
{
    PlannerTest()
    {
        block_ref of(new block);
        of->bytes = units * unit_bytes;
        for (std::uint64_t i = 0; i < units; i++) {
            slot &next = of->slots.emplace_back();
            next.at = i * unit_bytes;
            next.bytes = unit_bytes;
            next.where = place::vram;
        }
        blocks.push_back(std::move(of));
    }

    void step(std::uint64_t count)
    {
        for (std::uint64_t i = 0; i < count; i++) {
            const auto unit = static_cast<std::uint32_t>(at++ % units);
            const touch part{0, unit, unit};
            uses.note(1000 + unit, &part, 1);
        }
    }

    void plan()
    {
        std::unique_lock lock(mutex);
        made.plan(lock, blocks, uses);
        EXPECT_TRUE(lock.owns_lock());
    }

    std::uint64_t leaving() const
    {
        std::uint64_t bytes = 0;
        for (const slot &each : blocks[0]->slots)
            bytes += each.leaves_for != never_leaves ? each.bytes : 0;
        return bytes;
    }

    std::mutex mutex;
    schedule uses;
    planner made;
    std::vector<block_ref> blocks;
    std::uint64_t at = 0;
};

TEST_F(PlannerTest, IsNotDueWhereThePastShowsNoWay)
{
    EXPECT_FALSE(made.is_due(uses, unit_bytes));
    step(10);
    EXPECT_FALSE(made.is_due(uses, unit_bytes));
}

TEST_F(PlannerTest, AsMuchLeavesAsDoesNotFit)
{
    step(3 * units);
    ASSERT_TRUE(made.is_due(uses, 8 * unit_bytes));
    plan();
    EXPECT_GE(leaving(), 8 * unit_bytes);
    EXPECT_LE(leaving(), 12 * unit_bytes);
}

TEST_F(PlannerTest, WhatIsFixedDoesNotLeave)
{
    step(3 * units);
    blocks[0]->fixed = true;
    ASSERT_TRUE(made.is_due(uses, 8 * unit_bytes));
    plan();
    EXPECT_EQ(leaving(), 0u);
}

TEST_F(PlannerTest, IsDueLessAndLessOftenWhileNothingChanges)
{
    step(3 * units);
    ASSERT_TRUE(made.is_due(uses, 8 * unit_bytes));
    std::vector<std::uint64_t> waits;
    std::uint64_t waited = 0;
    for (std::uint64_t i = 0; i < 64 * units; i++) {
        step(1);
        waited++;
        if (!made.is_due(uses, 8 * unit_bytes))
            continue;
        waits.push_back(waited);
        waited = 0;
    }
    ASSERT_GE(waits.size(), 5u);
    EXPECT_LT(waits.front(), waits.back());
    EXPECT_TRUE(std::is_sorted(waits.begin(), waits.end()));
    EXPECT_LE(waits.back(), 16 * units);
}

TEST_F(PlannerTest, IsDueSoonWhereMoreDoesNotFit)
{
    step(3 * units);
    ASSERT_TRUE(made.is_due(uses, 8 * unit_bytes));
    step(units / 2);
    EXPECT_FALSE(made.is_due(uses, 8 * unit_bytes));
    EXPECT_TRUE(made.is_due(uses, 16 * unit_bytes));
}

} // namespace
