// SPDX-License-Identifier: GPL-2.0-or-later
// Allocations that the program's own allocator divides: two of six units each,
// eight of which fit on the card, against a driver of tables. The first unit of
// the first one is handed out. Copies and kernels are over at once.
#include "base/captures.hpp"
#include "movement/block_maker.hpp"
#include "movement/units_fixture.hpp"
#include "wait_until.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

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
            if (i == 0)
                moves_->hand_out(base, unit_bytes);
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
        for (std::size_t i = 1; i < units_.size(); i++)
            moves_->hand_out(units_[i], unit_bytes);
        for (std::size_t i = 0; i < units_.size(); i++)
            launch(i);
    }
    // Launches a proven kernel; null: work that is no kernel's.
    // @param number  of what it is given, the first that is no pointer
    void launch_kernel(
        const char *name, const std::vector<CUdeviceptr> &given,
        const std::function<void()> &real = [] {},
        std::size_t number = SIZE_MAX)
    {
        moves_->run(
            reinterpret_cast<CUstream>(0x20),
            [&](work &out) {
                out.what = next_what_++;
                out.kernel = name;
                out.trusted = out.proven = true;
                out.pointers_are_all = number < given.size();
                for (std::size_t i = 0; i < given.size(); i++)
                    out.add(given[i], i < number);
            },
            [&] {
                real();
                return CUDA_SUCCESS;
            });
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
    EXPECT_TRUE(are_one(6, 11));
    moves_->hand_out(units_[6], 2 * unit_bytes);
    EXPECT_TRUE(are_one(6, 7));
    EXPECT_FALSE(are_one(7, 8));
    moves_->hand_out(units_[8], unit_bytes);
    EXPECT_FALSE(are_one(8, 9));
}

// Others may use the rest of what they have handed on to the allocator.
TEST_F(Suballocations, OfMemoryThatOthersMadeAreNone)
{
    std::thread([&] { moves_->hand_out(units_[6], unit_bytes); }).join();
    EXPECT_TRUE(are_one(6, 11)) << "this thread has made it";
    CUdeviceptr made[3] = {};
    for (CUdeviceptr &each : made)
        ASSERT_EQ(maker_->allocate(&each, 2 * unit_bytes), CUDA_SUCCESS);
    moves_->hand_out(made[1], unit_bytes);
    EXPECT_EQ(moves_->identify(made[1]), moves_->identify(made[1] + unit_bytes))
        << "it is not the last one that was made";
    moves_->hand_out(made[2] + unit_bytes, unit_bytes);
    EXPECT_EQ(moves_->identify(made[2]), moves_->identify(made[2] + unit_bytes))
        << "its begin is somebody else's";
    for (const CUdeviceptr each : made)
        EXPECT_EQ(maker_->free(each), CUDA_SUCCESS);
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

// All are taken back and handed out by turns, free ones, too; these are then
// taken back.
TEST_F(Suballocations, AreKeptWhereAPoolIsRestored)
{
    ASSERT_NO_FATAL_FAILURE(hand_all_out());
    for (const std::size_t each : {0U, 2U, 4U})
        moves_->take_back(units_[each], unit_bytes);
    launch(1);
    const std::uint64_t before[] = {identity(1), identity(3)};
    for (const std::size_t each : {1U, 3U, 5U})
        moves_->take_back(units_[each], unit_bytes);
    // As it was before: one and three are in use, and the last two were one.
    for (std::size_t each = 0; each < 4; each++)
        moves_->hand_out(units_[each], unit_bytes);
    moves_->hand_out(units_[4], 2 * unit_bytes);
    for (const std::size_t each : {0U, 2U})
        moves_->take_back(units_[each], unit_bytes);
    moves_->take_back(units_[4], 2 * unit_bytes);
    launch(1);
    EXPECT_EQ(identity(1), before[0]);
    EXPECT_EQ(identity(3), before[1]);
    EXPECT_TRUE(are_one(4, 5));
    EXPECT_FALSE(are_one(3, 4));
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
    const auto run = [&](CUdeviceptr first, CUdeviceptr second,
                         const char *kernel = "kernel") {
        launch_kernel(kernel, {first, second});
    };
    run(units_[1], units_[2]);
    EXPECT_FALSE(are_one(1, 4));
    run(units_[4], units_[5] + unit_bytes); // of the whole allocation
    EXPECT_FALSE(are_one(1, 4));
    run(units_[1], units_[2], nullptr);
    EXPECT_TRUE(are_one(1, 4)) << "a copy is given no end";
}

TEST_F(Suballocations, NameTheNextOneALittleBeforeIt)
{
    ASSERT_NO_FATAL_FAILURE(hand_all_out());
    ASSERT_NO_FATAL_FAILURE(send_away(2));
    const auto is_mapped_for = [&](CUdeviceptr at) {
        bool is_mapped = false;
        launch_kernel("kernel", {at}, [&] {
            const std::lock_guard guard(card_.lock);
            is_mapped = card_.mapped.count(units_[2]) > 0;
        });
        return is_mapped;
    };
    EXPECT_FALSE(is_mapped_for(units_[1]));
    EXPECT_FALSE(is_mapped_for(units_[1] + unit_bytes / 2));
    EXPECT_TRUE(is_mapped_for(units_[2] - 16));
}

// A loop from the end on goes by that alone, and compares with the begin.
TEST_F(Suballocations, AreReachedByTheirEndIfTheirBeginIsGivenAsANumber)
{
    ASSERT_NO_FATAL_FAILURE(hand_all_out());
    const auto is_mapped_for = [&](const std::vector<CUdeviceptr> &given) {
        bool is_mapped = false;
        launch_kernel(
            "kernel", given,
            [&] {
                const std::lock_guard guard(card_.lock);
                is_mapped = card_.mapped.count(units_[2]) > 0;
            },
            1);
        return is_mapped;
    };
    ASSERT_NO_FATAL_FAILURE(send_away(2));
    EXPECT_FALSE(is_mapped_for({units_[3], units_[1]}));
    EXPECT_TRUE(is_mapped_for({units_[3], units_[2]}));
    // The next one need not be in use.
    ASSERT_NO_FATAL_FAILURE(send_away(2));
    moves_->take_back(units_[3], unit_bytes);
    launch(0);
    EXPECT_TRUE(is_mapped_for({units_[3], units_[2]}));
}

// It may be given nothing else of the part before.
TEST_F(Suballocations, AreOneAgainOnceAKernelMayCountBackFromTheNextOne)
{
    ASSERT_NO_FATAL_FAILURE(hand_all_out());
    const auto run = [&](CUdeviceptr at, const char *kernel) {
        launch_kernel(kernel, {at});
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
    moves_->hand_out(units_[6], unit_bytes);
    open_captures--;
    moves_->hand_out(units_[7], unit_bytes);
    EXPECT_TRUE(are_one(6, 7));
    EXPECT_TRUE(are_one(7, 8));
}

TEST_F(Suballocations, TakeTheirPinsWithThem)
{
    ASSERT_NO_FATAL_FAILURE(hand_all_out());
    const auto pin = [&](std::size_t unit) {
        return moves_->advise({units_[unit], unit_bytes, identity(unit)},
                              hint::pin);
    };
    for (std::size_t i = 0; i < in_each; i++)
        ASSERT_EQ(pin(i), mover::answer::done);
    EXPECT_EQ(pin(6), mover::answer::too_much);
    launch(0);
    moves_->take_back(units_[1], 512); // a contradiction
    EXPECT_TRUE(are_one(0, 5));
    for (std::size_t i = 0; i < in_each; i++)
        EXPECT_EQ(pin(6 + i), mover::answer::done);
}

TEST_F(Suballocations, OfWhatIsAllocatedInStreamOrderAreNone)
{
    moves_->vacate(units_[6]);
    moves_->hand_out(units_[6], unit_bytes);
    moves_->occupy(units_[6], 2 * unit_bytes);
    moves_->hand_out(units_[9], unit_bytes);
    moves_->take_back(units_[6], 2 * unit_bytes);
    EXPECT_TRUE(are_one(8, 11)) << "free as before";
    moves_->occupy(units_[8], unit_bytes);
    EXPECT_FALSE(are_one(7, 8));
}

TEST_F(Suballocations, ReachNoFurtherThanTheirAllocation)
{
    moves_->hand_out(units_[6], in_each * unit_bytes + 512);
    moves_->hand_out(units_[6], 0);
    EXPECT_TRUE(are_one(6, 11));
    moves_->hand_out(units_[6], in_each * unit_bytes);
    moves_->take_back(units_[6], in_each * unit_bytes);
    launch(0);
    moves_->hand_out(units_[6], unit_bytes);
    EXPECT_FALSE(are_one(6, 7)) << "it is divided all the same";
}
