// SPDX-License-Identifier: GPL-2.0-or-later
// Allocations that the program's own allocator divides: two of six units each,
// eight of which fit on the card, against a driver of tables. Copies and
// kernels are over at once.
#include "base/captures.hpp"
#include "movement/block_maker.hpp"
#include "movement/units_fixture.hpp"
#include "wait_until.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

#include <gtest/gtest.h>
#include <unistd.h>

using namespace emuv::cuda;

namespace {

class Suballocations : public Units
{
protected:
    void SetUp() override
    {
        unmaps_ = true;
        ASSERT_NO_FATAL_FAILURE(Units::SetUp());
        maker_ = std::make_unique<block_maker>(
            block_maker::options{.calls = card_.calls,
                                 .host = *host_,
                                 .shares = *shares_,
                                 .moves = *moves_});
        for (std::size_t i = 0; i < units_.size(); i += in_each) {
            CUdeviceptr base = 0;
            ASSERT_EQ(maker_->allocate(&base, in_each * unit_bytes),
                      CUDA_SUCCESS);
            for (std::size_t j = 0; j < in_each; j++)
                units_[i + j] = base + j * unit_bytes;
        }
    }
    void TearDown() override
    {
        for (std::size_t i = 0; i < units_.size(); i += in_each)
            EXPECT_EQ(maker_->free(units_[i]), CUDA_SUCCESS);
        Units::TearDown();
    }

    // Each unit is a part, and work has used it.
    void hand_all_out()
    {
        for (std::size_t i = 0; i < units_.size(); i++)
            moves_->hand_out(units_[i], unit_bytes);
        for (std::size_t i = 0; i < units_.size(); i++)
            launch(i);
    }
    std::uint64_t identity(std::size_t unit)
    {
        return moves_->identify(units_[unit]);
    }
    // True if these are of one allocation.
    bool are_one(std::size_t unit, std::size_t other)
    {
        return identity(unit) == identity(other);
    }
    mover::whereabouts whereabouts(std::size_t unit)
    {
        const auto found =
            moves_->find({units_[unit], unit_bytes, identity(unit)});
        EXPECT_TRUE(found);
        return found.value_or(mover::whereabouts{});
    }
    // Uses the others until a unit lies in system RAM.
    void send_away(std::size_t unit)
    {
        ASSERT_TRUE(wait_until(
            [&] { return whereabouts(unit).ram_bytes == unit_bytes; },
            [&] {
                for (std::size_t i = 0; i < units_.size(); i++)
                    if (i != unit) {
                        launch(i);
                        usleep(200);
                    }
            },
            std::chrono::seconds(120)));
    }

    static constexpr std::size_t in_each = 6;
    std::unique_ptr<block_maker> maker_;
};

} // namespace

TEST_F(Suballocations, AreOneEachOnceTheFirstIsHandedOut)
{
    EXPECT_TRUE(are_one(0, 5));
    moves_->hand_out(units_[0], 2 * unit_bytes);
    EXPECT_TRUE(are_one(0, 1));
    EXPECT_FALSE(are_one(1, 2));
    EXPECT_TRUE(are_one(6, 11)) << "nothing was said of that allocation";
    moves_->hand_out(units_[2], unit_bytes);
    EXPECT_FALSE(are_one(2, 3));
}

TEST_F(Suballocations, ThatAreTakenBackLeaveWithoutACopy)
{
    ASSERT_NO_FATAL_FAILURE(hand_all_out());
    ASSERT_NO_FATAL_FAILURE(send_away(2));
    const auto copied = whereabouts(2).moved.evicted_bytes;
    EXPECT_EQ(copied, unit_bytes) << "it was in use";
    for (int i = 0; i < 3; i++) {
        launch(2);
        ASSERT_TRUE(
            wait_until([&] { return whereabouts(2).vram_bytes == unit_bytes; },
                       [&] {
                           launch(2);
                           usleep(200);
                       },
                       std::chrono::seconds(120)));
        const auto before = whereabouts(2).moved;
        moves_->take_back(units_[2], unit_bytes);
        ASSERT_NO_FATAL_FAILURE(send_away(2));
        EXPECT_EQ(whereabouts(2).moved.evicted_bytes, before.evicted_bytes);
        moves_->hand_out(units_[2], unit_bytes);
        launch(2);
        EXPECT_EQ(whereabouts(2).moved.fetched_bytes, before.fetched_bytes);
    }
}

TEST_F(Suballocations, AreKeptIfTheyAreHandedOutAgainBeforeOtherWork)
{
    ASSERT_NO_FATAL_FAILURE(hand_all_out());
    const std::uint64_t before = identity(2);
    moves_->take_back(units_[2], unit_bytes);
    EXPECT_EQ(identity(2), before) << "nothing has begun since";
    moves_->hand_out(units_[2], unit_bytes);
    launch(1);
    EXPECT_EQ(identity(2), before);
    moves_->take_back(units_[2], unit_bytes);
    launch(1);
    EXPECT_NE(identity(2), before);
    moves_->hand_out(units_[2], unit_bytes);
    EXPECT_NE(identity(2), before);
}

TEST_F(Suballocations, MayBeHandedOutInAnotherWay)
{
    ASSERT_NO_FATAL_FAILURE(hand_all_out());
    moves_->take_back(units_[2], unit_bytes);
    moves_->take_back(units_[3], unit_bytes);
    moves_->hand_out(units_[2], 2 * unit_bytes);
    EXPECT_TRUE(are_one(2, 3));
    EXPECT_FALSE(are_one(1, 2));
    EXPECT_FALSE(are_one(3, 4));
}

TEST_F(Suballocations, AreOneAgainOnceWorkIsGivenOneThatIsFree)
{
    ASSERT_NO_FATAL_FAILURE(hand_all_out());
    moves_->take_back(units_[2], unit_bytes);
    launch(1);
    EXPECT_FALSE(are_one(1, 4));
    launch(2);
    EXPECT_TRUE(are_one(1, 4));
    // For good, and its contents count.
    moves_->hand_out(units_[2], unit_bytes);
    moves_->take_back(units_[4], unit_bytes);
    launch(1);
    EXPECT_TRUE(are_one(1, 4));
    const auto before = whereabouts(2).moved.evicted_bytes;
    ASSERT_TRUE(
        wait_until([&] { return whereabouts(2).moved.evicted_bytes > before; },
                   [&] {
                       for (std::size_t i = 0; i < units_.size(); i++) {
                           launch(i);
                           usleep(200);
                       }
                   },
                   std::chrono::seconds(120)));
}

TEST_F(Suballocations, EndWhereTheNextOneBeginsAndNameItNot)
{
    ASSERT_NO_FATAL_FAILURE(hand_all_out());
    moves_->take_back(units_[2], unit_bytes);
    moves_->take_back(units_[5], unit_bytes);
    launch(0);
    const auto run = [&](CUdeviceptr first, CUdeviceptr second) {
        moves_->run(
            reinterpret_cast<CUstream>(0x20),
            [&](work &out) {
                out.what = next_what_++;
                out.trusted = true;
                out.add(first);
                out.add(second);
            },
            [] { return CUDA_SUCCESS; });
    };
    run(units_[1], units_[2]);
    EXPECT_FALSE(are_one(1, 4));
    run(units_[4], units_[5] + unit_bytes); // of the whole allocation
    EXPECT_FALSE(are_one(1, 4));
    run(units_[1], units_[2] + 512);
    EXPECT_TRUE(are_one(1, 4));
}

// It may be given nothing else of the part before.
TEST_F(Suballocations, AreOneAgainOnceAKernelMayCountBackFromTheNextOne)
{
    ASSERT_NO_FATAL_FAILURE(hand_all_out());
    const auto run = [&](CUdeviceptr at, const char *kernel) {
        moves_->run(
            reinterpret_cast<CUstream>(0x20),
            [&](work &out) {
                out.what = next_what_++;
                out.kernel = kernel;
                out.trusted = out.proven = true;
                out.add(at);
            },
            [] { return CUDA_SUCCESS; });
    };
    run(units_[2], "_Z4scanPf");
    run(units_[2] + 512, "_Z4scanISt16reverse_iteratorIPfEEvT_");
    run(units_[0], "_Z4scanISt16reverse_iteratorIPfEEvT_");
    EXPECT_FALSE(are_one(1, 2));
    run(units_[2], "_Z4scanISt16reverse_iteratorIPfEEvT_");
    EXPECT_TRUE(are_one(1, 2));
}

TEST_F(Suballocations, AreOneAgainOnceTheirAllocatorContradictsItself)
{
    const auto contradict = [&](auto say) {
        CUdeviceptr base = 0;
        ASSERT_EQ(maker_->allocate(&base, 2 * unit_bytes), CUDA_SUCCESS);
        moves_->hand_out(base, unit_bytes);
        moves_->hand_out(base + unit_bytes, unit_bytes);
        EXPECT_NE(moves_->identify(base), moves_->identify(base + unit_bytes));
        say(base);
        EXPECT_EQ(moves_->identify(base), moves_->identify(base + unit_bytes));
        launch(0);
        ASSERT_EQ(maker_->free(base), CUDA_SUCCESS);
    };
    contradict([&](CUdeviceptr at) { moves_->hand_out(at, unit_bytes); });
    contradict([&](CUdeviceptr at) { moves_->hand_out(at + 512, 512); });
    contradict([&](CUdeviceptr at) { moves_->take_back(at, 512); });
    contradict([&](CUdeviceptr at) { moves_->take_back(at, 2 * unit_bytes); });
    contradict([&](CUdeviceptr at) {
        moves_->take_back(at, unit_bytes);
        moves_->take_back(at, unit_bytes);
    });
    contradict([&](CUdeviceptr at) {
        moves_->take_back(at, unit_bytes);
        launch(0);
        moves_->take_back(at, unit_bytes);
    });
    contradict([&](CUdeviceptr at) {
        open_captures++;
        moves_->take_back(at, unit_bytes);
        open_captures--;
    });
    contradict([&](CUdeviceptr at) { moves_->vacate(at); });
}

TEST_F(Suballocations, OfACaptureAreNone)
{
    open_captures++;
    moves_->hand_out(units_[0], unit_bytes);
    open_captures--;
    moves_->hand_out(units_[1], unit_bytes);
    EXPECT_TRUE(are_one(0, 1));
    EXPECT_TRUE(are_one(1, 2));
}

TEST_F(Suballocations, OfWhatIsAllocatedInStreamOrderAreNone)
{
    moves_->vacate(units_[0]);
    moves_->hand_out(units_[0], unit_bytes);
    moves_->occupy(units_[0], 2 * unit_bytes);
    moves_->hand_out(units_[3], unit_bytes);
    moves_->take_back(units_[0], 2 * unit_bytes);
    EXPECT_TRUE(are_one(2, 5)) << "free as before";
    moves_->occupy(units_[2], unit_bytes);
    EXPECT_FALSE(are_one(1, 2));
}

TEST_F(Suballocations, ReachNoFurtherThanTheirAllocation)
{
    moves_->hand_out(units_[5], 2 * unit_bytes);
    moves_->hand_out(units_[0], 0);
    EXPECT_TRUE(are_one(0, 5));
}
