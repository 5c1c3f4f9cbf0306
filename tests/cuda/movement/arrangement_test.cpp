// SPDX-License-Identifier: GPL-2.0-or-later
// The units that stay in system RAM while nothing moves, and when they are
// chosen anew.
#include "circle.hpp"
#include "movement/arrangement.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

// Units of 32 MiB, each used at a step of its own.
std::vector<placed_unit> in_a_row(std::uint32_t count, std::uint32_t uses = 1)
{
    std::vector<placed_unit> units;
    for (std::uint32_t i = 0; i < count; i++)
        units.push_back({32 * mib, uses, i});
    return units;
}

std::uint64_t bytes_of(const std::vector<placed_unit> &units,
                       const std::vector<bool> &chosen)
{
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < units.size(); i++)
        bytes += chosen[i] ? units[i].bytes : 0;
    return bytes;
}

TEST(Places, NothingIsChosenWhereAllFits)
{
    const auto units = in_a_row(8);
    EXPECT_EQ(choose_places(units, 0), std::vector<bool>(8));
    EXPECT_TRUE(choose_places({}, 5 * mib).empty());
}

TEST(Places, AsMuchIsChosenAsDoesNotFitAndHardlyMore)
{
    const auto units = in_a_row(100);
    for (std::uint64_t excess = 1; excess < 100 * 32; excess += 97) {
        const auto chosen = choose_places(units, excess * mib);
        EXPECT_GE(bytes_of(units, chosen), excess * mib);
        EXPECT_LT(bytes_of(units, chosen), (excess + 32) * mib);
    }
}

TEST(Places, AllAreChosenWhereNothingFits)
{
    const auto units = in_a_row(10);
    EXPECT_EQ(choose_places(units, UINT64_MAX), std::vector<bool>(10, true));
}

TEST(Places, WhatIsChosenIsSpreadOverTheRound)
{
    auto units = in_a_row(128);
    // The units are not in the order of their uses.
    std::reverse(units.begin(), units.end());
    const auto chosen = choose_places(units, std::uint64_t{16} * 32 * mib);
    for (std::size_t part = 0; part < 16; part++) {
        const auto begin =
            chosen.begin() + static_cast<std::ptrdiff_t>(part) * 8;
        EXPECT_EQ(std::count(begin, begin + 8, true), 1) << part;
    }
}

TEST(Places, OfSmallAndLargeUnitsBytesAreSpreadNotNumbers)
{
    // Half of the round uses large units, half of it many small ones.
    std::vector<placed_unit> units;
    for (std::uint32_t i = 0; i < 16; i++)
        units.push_back({64 * mib, 1, i});
    for (std::uint32_t i = 0; i < 512; i++)
        units.push_back({2 * mib, 1, 16 + i});
    const auto chosen = choose_places(units, 512 * mib);
    const std::vector<bool> large(chosen.begin(), chosen.begin() + 16);
    EXPECT_EQ(std::count(large.begin(), large.end(), true), 4);
    EXPECT_EQ(bytes_of(units, chosen), 512 * mib);
}

TEST(Places, WhatIsUsedLeastOftenGoesFirst)
{
    auto units = in_a_row(10, 4);
    units[3].uses = 1;
    units[7].uses = 0;
    auto chosen = choose_places(units, 64 * mib);
    EXPECT_TRUE(chosen[3]);
    EXPECT_TRUE(chosen[7]);
    EXPECT_EQ(bytes_of(units, chosen), 64 * mib);
    chosen = choose_places(units, 96 * mib);
    EXPECT_EQ(bytes_of(units, chosen), 96 * mib);
    EXPECT_TRUE(chosen[3] && chosen[7]);
}

struct ArrangementTest : Circle
{
    void rounds(std::uint64_t count) { step(count * units); }

    std::vector<bool> away() const
    {
        std::vector<bool> out;
        for (const slot &each : blocks[0]->slots)
            out.push_back(each.stays_away);
        return out;
    }

    arrangement made;
};

TEST_F(ArrangementTest, IsNotDueWhereThePastShowsNoWay)
{
    EXPECT_FALSE(made.is_due(uses, 8 * max_unit_bytes));
}

TEST_F(ArrangementTest, IsDueOnce)
{
    rounds(3);
    EXPECT_TRUE(made.is_due(uses, 8 * max_unit_bytes));
    for (int i = 0; i < 20; i++) {
        rounds(1);
        EXPECT_FALSE(made.is_due(uses, (8 + i % 2) * max_unit_bytes));
    }
}

TEST_F(ArrangementTest, IsDueAgainWhereMoreOrLessFitsForAWhile)
{
    rounds(3);
    ASSERT_TRUE(made.is_due(uses, 8 * max_unit_bytes));
    rounds(1);
    EXPECT_FALSE(made.is_due(uses, 16 * max_unit_bytes));
    rounds(8);
    EXPECT_TRUE(made.is_due(uses, 16 * max_unit_bytes));
    rounds(9);
    EXPECT_TRUE(made.is_due(uses, 0));
}

TEST_F(ArrangementTest, IsDueAgainAfterSomethingElse)
{
    rounds(3);
    ASSERT_TRUE(made.is_due(uses, 8 * max_unit_bytes));
    made.forget();
    EXPECT_TRUE(made.is_due(uses, 8 * max_unit_bytes));
}

TEST_F(ArrangementTest, MarksWhatStaysAwayAndNothingThatIsFixed)
{
    rounds(3);
    ASSERT_TRUE(made.is_due(uses, 8 * max_unit_bytes));
    std::unique_lock lock(mutex);
    made.arrange(lock, blocks, uses);
    EXPECT_TRUE(lock.owns_lock());
    const auto chosen = away();
    EXPECT_EQ(std::count(chosen.begin(), chosen.end(), true), 8);
    // The choice is spread over the round.
    const std::vector<bool> half(chosen.begin(), chosen.begin() + units / 2);
    EXPECT_EQ(std::count(half.begin(), half.end(), true), 4);
    blocks[0]->fixed = true;
    for (slot &each : blocks[0]->slots)
        each.stays_away = false;
    made.arrange(lock, blocks, uses);
    EXPECT_EQ(away(), std::vector<bool>(units));
}

} // namespace
