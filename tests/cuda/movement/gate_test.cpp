// SPDX-License-Identifier: GPL-2.0-or-later
// Decisions of what may be unmapped, and when work may go ahead.
#include "movement/gate.hpp"

#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t unit_bytes = 64;
constexpr CUdeviceptr base = CUdeviceptr{0x2100} << 32;

// Two blocks of two units in VRAM, one behind the other.
struct GateTest : testing::Test
{
    GateTest()
    {
        for (const block_ref &each : {one, other}) {
            each->base = &*each == &*one ? base : base + 2 * unit_bytes;
            each->bytes = 2 * unit_bytes;
            for (std::uint64_t i = 0; i < 2; i++) {
                slot next;
                next.at = each->base + i * unit_bytes;
                next.bytes = unit_bytes;
                next.where = place::vram;
                each->add(next);
            }
            all.add(each);
        }
    }

    bool may_move() const { return which.may_move(*one, 0); }
    void begin_move() { which.begin_move(*one, 0, false); }
    void end_move() { which.end_move(*one, one->slots[0]); }

    // The blocks named by a table of these words that have to be waited for.
    std::vector<CUdeviceptr> followed(const std::vector<CUdeviceptr> &words)
    {
        host.add(words.data(), words.size() * sizeof words[0]);
        std::vector<touched> reached;
        EXPECT_EQ(which.follow_table(
                      reinterpret_cast<CUdeviceptr>(words.data()), reached),
                  gate::table::followed);
        host.remove(words.data());
        std::vector<CUdeviceptr> out;
        for (const touched &each : reached)
            out.push_back(each.of->base);
        return out;
    }
    using those = std::vector<CUdeviceptr>;

    block_ref one{new block};
    block_ref other{new block};
    blocks all;
    pinned host;
    gate which{all, &host};
};

} // namespace

TEST_F(GateTest, WhatNothingInFlightCanReachMayMove)
{
    begin_move();
    EXPECT_TRUE(may_move());
    which.begin(true);
    which.hold(*other, other->all());
    EXPECT_TRUE(may_move());
    end_move();
    EXPECT_EQ(one->moving, 0U);
}

TEST_F(GateTest, WhatWorkIsGivenMayNotEvenOnceThatHasEnded)
{
    begin_move();
    which.begin(true);
    which.hold(*one, one->all());
    EXPECT_FALSE(may_move());
    which.let_go(*one, one->all());
    which.end(true);
    EXPECT_FALSE(may_move()) << "it may have written there";
    end_move();
    begin_move();
    EXPECT_TRUE(may_move());
    end_move();
}

TEST_F(GateTest, WorkThatIsGivenAnAllocationKeepsItsUnitsAndNoOthers)
{
    const block_ref of(new block);
    of->base = CUdeviceptr{1} << 40;
    for (int i = 0; i < 4; i++) {
        slot next;
        next.at = of->base + of->bytes;
        next.bytes = 64;
        next.where = place::vram;
        of->bytes += next.bytes;
        of->add(next);
    }
    of->vacate(of->lots.front());
    of->occupy(0, 96, 1);
    of->occupy(96, 128, 2);
    of->occupy(128, 256, 3);
    const segment left = of->units_of(of->lot_at(of->base));
    const segment middle = of->units_of(of->lot_at(of->base + 96));
    which.hold(*of, left);
    which.hold(*of, middle);
    for (std::size_t i = 0; i < 4; i++)
        EXPECT_EQ(which.must_stay(*of, i), i < 2) << i;
    which.let_go(*of, left);
    EXPECT_FALSE(which.must_stay(*of, 0));
    EXPECT_TRUE(which.must_stay(*of, 1)) << "the other one lies there, too";
    // It is freed and divided anew while the work runs.
    of->vacate(of->lot_at(of->base + 96));
    of->vacate(of->lot_at(of->base));
    of->occupy(0, 128, 4);
    EXPECT_TRUE(which.must_stay(*of, 1));
    which.let_go(*of, middle);
    EXPECT_FALSE(which.must_stay(*of, 1));
}

TEST_F(GateTest, ATableNamesAnAllocationByItsBeginThoughNoWorkWasGivenIt)
{
    constexpr std::uint64_t part = 1 << 20;
    const block_ref of(new block);
    of->base = CUdeviceptr{1} << 40;
    of->bytes = 4 * part;
    slot all_of_it;
    all_of_it.at = of->base;
    all_of_it.bytes = of->bytes;
    of->add(all_of_it);
    of->vacate(of->lots.front());
    of->occupy(0, part, 1);
    of->occupy(part, 2 * part, 2);
    all.add(of);
    EXPECT_TRUE(which.is_address(of->base + part));
    EXPECT_FALSE(which.is_address(of->base + part + 256));
    EXPECT_FALSE(which.is_address(of->base + 2 * part)) << "nobody has that";
}

TEST_F(GateTest, BesideWorkThatNobodyVouchesForNothingMayNorOnceThatHasEnded)
{
    begin_move();
    which.begin(false);
    EXPECT_FALSE(which.all_trusted());
    EXPECT_FALSE(may_move());
    EXPECT_TRUE(which.must_stay(*other, 0));
    which.end(false);
    EXPECT_TRUE(which.all_trusted());
    EXPECT_FALSE(may_move()) << "it may have written there";
    EXPECT_FALSE(which.must_stay(*other, 0));
    end_move();
}

TEST_F(GateTest, WhatBeginsToMoveWhereItMustStayMayNot)
{
    which.hold(*one, one->all());
    begin_move();
    EXPECT_FALSE(may_move());
    end_move();
    which.let_go(*one, one->all());
    which.fix(*one);
    begin_move();
    EXPECT_FALSE(may_move());
    EXPECT_TRUE(which.must_stay(*one, 0));
    end_move();
}

TEST_F(GateTest, WhileItIsClosedNothingBeginsToMoveAndWhatMovesGoesOn)
{
    begin_move();
    which.close();
    which.close();
    EXPECT_TRUE(may_move());
    EXPECT_TRUE(which.must_stay(*other, 0));
    which.begin_move(*other, 0, false);
    EXPECT_FALSE(which.may_move(*other, 0));
    which.end_move(*other, other->slots[0]);
    which.reopen();
    EXPECT_TRUE(which.is_closed());
    which.reopen();
    EXPECT_FALSE(which.is_closed());
    EXPECT_FALSE(which.must_stay(*other, 0));
    EXPECT_TRUE(may_move());
    end_move();
}

TEST_F(GateTest, AllIsMappedOnceNothingIsOnItsWayOrAway)
{
    EXPECT_TRUE(which.all_mapped());
    begin_move();
    which.begin_remap(one->slots[0]);
    EXPECT_FALSE(which.all_mapped());
    EXPECT_FALSE(one->mapped());
    which.end_remap(one->slots[0]);
    EXPECT_TRUE(which.all_mapped());
    end_move();
    which.set_away(*one, one->slots[0], true);
    EXPECT_FALSE(which.all_mapped());
    EXPECT_FALSE(one->mapped());
    which.set_away(*one, one->slots[0], false);
    EXPECT_TRUE(which.all_mapped());
    EXPECT_TRUE(one->mapped());
}

TEST_F(GateTest, ATableNamesWhatWorkWasGivenAndWhatBeginsThere)
{
    EXPECT_FALSE(which.is_address(base + 8));
    EXPECT_EQ(followed({7, base + 8}), those{});
    one->give(base + 8);
    EXPECT_TRUE(which.is_address(base + 8));
    EXPECT_EQ(followed({7, base + 8}), those{base});
    EXPECT_TRUE(one->in_table);
    EXPECT_EQ(followed({other->base}), those{other->base});
    EXPECT_TRUE(other->in_table);
    EXPECT_EQ(which.in_tables().size(), 2U);
    EXPECT_EQ(followed({other->base, base}), those{}) << "that is known";
    which.forget(*one);
    ASSERT_EQ(which.in_tables().size(), 1U);
    EXPECT_EQ(which.in_tables()[0], other);
}

// Another thread has just followed the same table.
TEST_F(GateTest, WhatATableNamesIsWaitedForUntilItIsMapped)
{
    begin_move();
    which.begin_remap(one->slots[0]);
    which.begin_reading();
    EXPECT_EQ(followed({base}), those{base});
    EXPECT_EQ(followed({base}), those{base}) << "known, and not mapped";
    unsigned unsettled = 0;
    which.each_unsettled(base, [&](block &) { unsettled++; });
    EXPECT_EQ(unsettled, 1U);
    which.end_remap(one->slots[0]);
    EXPECT_EQ(followed({base}), those{});
    which.end_reading();
    end_move();
}

TEST_F(GateTest, WhatATableNamesMayMoveUnlessWorkThatMayReadTablesIsInFlight)
{
    one->put(one->slots[1], place::host);
    one->slots[1].room_is_known = true;
    begin_move();
    which.note_in_table(*one);
    EXPECT_TRUE(may_move());
    EXPECT_TRUE(one->slots[1].room_is_known);
    which.begin_reading();
    EXPECT_FALSE(may_move());
    EXPECT_TRUE(which.must_stay(*one, 0));
    EXPECT_FALSE(which.must_stay(*other, 0)) << "no table names it";
    EXPECT_FALSE(one->slots[1].room_is_known) << "it may be written to";
    which.begin_reading();
    which.end_reading();
    EXPECT_TRUE(which.may_be_found(*one)) << "the other one is in flight";
    which.end_reading();
    EXPECT_FALSE(which.may_be_found(*one));
    EXPECT_FALSE(may_move()) << "it may have been written to";
    end_move();
    const auto limit =
        std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (which.must_stay(*one, 0) && std::chrono::steady_clock::now() < limit)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_FALSE(which.must_stay(*one, 0)) << "no more such work has come";
    begin_move();
    EXPECT_TRUE(may_move());
    end_move();
}

TEST_F(GateTest, WhatIsNamedByATableWhileWorkMayReadItStaysAtOnce)
{
    begin_move();
    which.begin_reading();
    EXPECT_TRUE(may_move());
    which.note_in_table(*one);
    EXPECT_FALSE(may_move());
    which.end_reading();
    end_move();
}

// The first of that work was launched before the program said so.
TEST_F(GateTest, WhatIsDeadCountsOnceMoreWorkMayReadTheTableThatNamesIt)
{
    which.note_in_table(*one);
    which.begin_reading();
    one->discard(one->slots[0]);
    EXPECT_TRUE(one->slots[0].blank);
    which.begin_reading();
    EXPECT_FALSE(one->slots[0].blank) << "it may write there";
    EXPECT_FALSE(one->dead);
    which.end_reading();
    which.end_reading();
}

TEST_F(GateTest, WhatIsDeadCountsOnceATableNamesItWhileWorkMayReadThat)
{
    one->discard(one->slots[0]);
    which.begin_reading();
    EXPECT_TRUE(one->slots[0].blank) << "nothing names it";
    which.note_in_table(*one);
    EXPECT_FALSE(one->slots[0].blank) << "it may write there";
    which.end_reading();
}

TEST_F(GateTest, WhatIsDeadCountsOnceWorkIsGivenItOrItStaysForGood)
{
    for (const bool given : {true, false}) {
        one->slots[0].where = place::evicting;
        one->discard(one->slots[0]);
        if (given)
            which.hold(*one, one->all());
        else
            which.fix(*one);
        EXPECT_FALSE(one->slots[0].blank);
        EXPECT_TRUE(one->slots[0].cancel) << "it would leave without it";
        one->slots[0].cancel = false;
    }
}

TEST_F(GateTest, ATableThatTheDriverMayMoveMayNameAnything)
{
    const std::vector<CUdeviceptr> words{base};
    host.add(words.data(), sizeof words[0], true);
    std::vector<touched> reached;
    EXPECT_EQ(which.follow_table(reinterpret_cast<CUdeviceptr>(words.data()),
                                 reached),
              gate::table::unknown);
    EXPECT_TRUE(reached.empty());
}
