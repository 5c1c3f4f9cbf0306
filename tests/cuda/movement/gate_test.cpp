// SPDX-License-Identifier: GPL-2.0-or-later
// Decisions of what may be unmapped, and when work may go ahead.
#include "movement/gate.hpp"

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

    bool may_move() const { return which.may_move(*one, one->slots[0]); }
    void begin_move() { which.begin_move(*one, one->slots[0], false); }
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
    which.hold(*other);
    EXPECT_TRUE(may_move());
    end_move();
    EXPECT_EQ(one->moving, 0U);
}

TEST_F(GateTest, WhatWorkIsGivenMayNotEvenOnceThatHasEnded)
{
    begin_move();
    which.begin(true);
    which.hold(*one);
    EXPECT_FALSE(may_move());
    which.let_go(*one);
    which.end(true);
    EXPECT_FALSE(may_move()) << "it may have written there";
    end_move();
    begin_move();
    EXPECT_TRUE(may_move());
    end_move();
}

TEST_F(GateTest, BesideWorkThatNobodyVouchesForNothingMayNorOnceThatHasEnded)
{
    begin_move();
    which.begin(false);
    EXPECT_FALSE(which.all_trusted());
    EXPECT_FALSE(may_move());
    EXPECT_TRUE(which.must_stay(*other));
    which.end(false);
    EXPECT_TRUE(which.all_trusted());
    EXPECT_FALSE(may_move()) << "it may have written there";
    EXPECT_FALSE(which.must_stay(*other));
    end_move();
}

TEST_F(GateTest, WhatBeginsToMoveWhereItMustStayMayNot)
{
    which.hold(*one);
    begin_move();
    EXPECT_FALSE(may_move());
    end_move();
    which.let_go(*one);
    which.fix(*one);
    begin_move();
    EXPECT_FALSE(may_move());
    EXPECT_TRUE(which.must_stay(*one));
    end_move();
}

TEST_F(GateTest, WhileItIsClosedNothingBeginsToMoveAndWhatMovesGoesOn)
{
    begin_move();
    which.close();
    which.close();
    EXPECT_TRUE(may_move());
    EXPECT_TRUE(which.must_stay(*other));
    which.begin_move(*other, other->slots[0], false);
    EXPECT_FALSE(which.may_move(*other, other->slots[0]));
    which.end_move(*other, other->slots[0]);
    which.reopen();
    EXPECT_TRUE(which.is_closed());
    which.reopen();
    EXPECT_FALSE(which.is_closed());
    EXPECT_FALSE(which.must_stay(*other));
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
    EXPECT_TRUE(one->fixed);
    EXPECT_EQ(followed({other->base}), those{other->base});
    EXPECT_TRUE(other->fixed);
}

// Another thread has just followed the same table.
TEST_F(GateTest, WhatATableNamesIsWaitedForUntilItIsMapped)
{
    begin_move();
    which.begin_remap(one->slots[0]);
    EXPECT_EQ(followed({base}), those{base});
    EXPECT_EQ(followed({base}), those{base}) << "fixed, and not mapped";
    unsigned unsettled = 0;
    which.each_unsettled(base, [&](block &) { unsettled++; });
    EXPECT_EQ(unsettled, 1U);
    which.end_remap(one->slots[0]);
    EXPECT_EQ(followed({base}), those{});
    end_move();
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
