// SPDX-License-Identifier: GPL-2.0-or-later
// Memory that the program has registered: what each key answers, also where the
// program is wrong.
#include "memory/advised_fixture.hpp"

#include <atomic>
#include <thread>
#include <utility>

using namespace emuv::cuda;

namespace {

class AdvisedKeys : public Advice
{};

} // namespace

TEST_F(AdvisedKeys, WhatIsWrongIsSaidAndChangesNothing)
{
    const CUdeviceptr at = units_[0];
    std::uint64_t made = 7;
    EXPECT_EQ(keys_->tell(99, hint::access), EMUV_ADVICE_KEY);
    EXPECT_EQ(keys_->forget(99), EMUV_ADVICE_KEY);
    EXPECT_EQ(keys_->add(0, 1, 0, made), EMUV_ADVICE_ADDRESS);
    EXPECT_EQ(made, EMUV_ADVICE_NONE);
    EXPECT_EQ(keys_->add(0x1234, 1, 0, made), EMUV_ADVICE_ADDRESS);
    EXPECT_EQ(keys_->add(~CUdeviceptr{0}, 1, 0, made), EMUV_ADVICE_ADDRESS);
    EXPECT_EQ(keys_->add(at, 0, 0, made), EMUV_ADVICE_RANGE);
    EXPECT_EQ(keys_->add(at, unit_bytes + 1, 0, made), EMUV_ADVICE_RANGE);
    EXPECT_EQ(keys_->add(at, ~std::uint64_t{0}, 0, made), EMUV_ADVICE_RANGE);
    EXPECT_EQ(keys_->add(at + 1, unit_bytes, 0, made), EMUV_ADVICE_RANGE);
    EXPECT_EQ(keys_->add(at + unit_bytes - 1, 1, 0, made), EMUV_ADVICE_OK);
    EXPECT_NE(made, EMUV_ADVICE_NONE);
    EXPECT_EQ(keys_->add(at, unit_bytes, 101, made), EMUV_ADVICE_VALUE);
    EXPECT_EQ(keys_->add(at, unit_bytes, -101, made), EMUV_ADVICE_VALUE);
}

// Its place may be given to another one; it is not taken for that.
TEST_F(AdvisedKeys, AForgottenKeyNeverComesAgain)
{
    std::uint64_t before = key(3);
    for (unsigned i = 0; i < 3; i++) {
        ASSERT_EQ(keys_->forget(before), EMUV_ADVICE_OK);
        std::uint64_t made = 0;
        ASSERT_EQ(keys_->add(units_[3], unit_bytes, 0, made), EMUV_ADVICE_OK);
        EXPECT_NE(made, before);
        EXPECT_EQ(keys_->tell(before, hint::discard), EMUV_ADVICE_KEY);
        EXPECT_EQ(keys_->forget(before), EMUV_ADVICE_KEY);
        EXPECT_EQ(keys_->tell(made, hint::access), EMUV_ADVICE_OK);
        before = made;
    }
}

TEST_F(AdvisedKeys, AKeyOfFreedMemorySaysSo)
{
    ASSERT_EQ(memory_->free(units_[3]), CUDA_SUCCESS);
    units_[3] = 0;
    for (const hint each :
         {hint::access, hint::prefetch, hint::promote, hint::demote,
          hint::discard, hint::read_mostly, hint::pin, hint::unpin})
        EXPECT_EQ(keys_->tell(key(3), each), EMUV_ADVICE_FREED);
    emuv_advice_place where{};
    EXPECT_EQ(keys_->where(key(3), where), EMUV_ADVICE_FREED);
    emuv_advice_stats stats{};
    EXPECT_EQ(keys_->stats(key(3), stats), EMUV_ADVICE_FREED);
    EXPECT_EQ(keys_->forget(key(3)), EMUV_ADVICE_OK);
    EXPECT_EQ(keys_->forget(key(3)), EMUV_ADVICE_KEY);
}

TEST_F(AdvisedKeys, MayBeOfAnyPartThatTheProgramsAllocatorHandsOut)
{
    CUdeviceptr base = 0;
    ASSERT_EQ(memory_->allocate(&base, 4 * unit_bytes), CUDA_SUCCESS);
    for (std::size_t i = 0; i < 4; i++)
        moves_->hand_out(base + i * unit_bytes, unit_bytes);
    std::uint64_t kept = 0;
    std::uint64_t freed = 0;
    ASSERT_EQ(keys_->add(base + unit_bytes, unit_bytes, 0, freed),
              EMUV_ADVICE_OK);
    ASSERT_EQ(keys_->add(base + 3 * unit_bytes, unit_bytes, 0, kept),
              EMUV_ADVICE_OK);
    moves_->take_back(base + unit_bytes, unit_bytes);
    launch(0);
    emuv_advice_place where{};
    EXPECT_EQ(keys_->where(freed, where), EMUV_ADVICE_FREED);
    EXPECT_EQ(keys_->where(kept, where), EMUV_ADVICE_OK);
    EXPECT_EQ(where.bytes[EMUV_TIER_VRAM] + where.bytes[EMUV_TIER_RAM],
              unit_bytes);
    ASSERT_EQ(memory_->free(base), CUDA_SUCCESS);
}

TEST_F(AdvisedKeys, AccessesCountTheBytesByTheirPlace)
{
    tell(0, hint::access);
    tell(0, hint::access);
    tell(10, hint::access);
    EXPECT_EQ(stats(key(0)).accesses, 2U);
    EXPECT_EQ(stats(key(0)).hit_bytes[EMUV_TIER_VRAM], 2 * unit_bytes);
    EXPECT_EQ(stats(key(0)).hit_bytes[EMUV_TIER_RAM], 0U);
    EXPECT_EQ(stats(key(10)).hit_bytes[EMUV_TIER_RAM], unit_bytes);
    EXPECT_EQ(stats(EMUV_ADVICE_ALL).accesses, 3U);
    EXPECT_EQ(stats(EMUV_ADVICE_ALL).hit_bytes[EMUV_TIER_VRAM], 2 * unit_bytes);
    EXPECT_EQ(stats(EMUV_ADVICE_ALL).moves, 1U);
}

TEST_F(AdvisedKeys, AKeyTellsTheMovesSinceItWasMade)
{
    ASSERT_TRUE(is_in_vram(3));
    ASSERT_TRUE(wait_until([&] { return !is_in_vram(3); },
                           [&] { tell(3, hint::demote); }));
    EXPECT_EQ(stats(key(3)).evictions, 1U);
    EXPECT_EQ(stats(key(3)).evicted_bytes, unit_bytes);
    std::uint64_t made = 0;
    ASSERT_EQ(keys_->add(units_[3], unit_bytes, 0, made), EMUV_ADVICE_OK);
    EXPECT_EQ(stats(made).evictions, 0U) << "it left before";
    ASSERT_TRUE(wait_until([&] { return is_in_vram(3); },
                           [&] { tell(3, hint::promote); }));
    EXPECT_EQ(stats(made).fetches, 1U);
    EXPECT_EQ(stats(made).evictions, 0U);
    EXPECT_EQ(stats(EMUV_ADVICE_ALL).evictions, 1U);
}

TEST_F(AdvisedKeys, APinCountsOnceAndEndsWithItsKeyOrItsMemory)
{
    for (std::size_t i = 0; i < 6; i++)
        tell(i, hint::pin);
    EXPECT_EQ(keys_->tell(key(6), hint::pin), EMUV_ADVICE_PINNED);
    tell(0, hint::pin); // again: that changes nothing
    tell(0, hint::unpin);
    tell(6, hint::pin);
    EXPECT_EQ(keys_->tell(key(0), hint::pin), EMUV_ADVICE_PINNED);
    ASSERT_EQ(keys_->forget(key(2)), EMUV_ADVICE_OK);
    tell(0, hint::pin);
    ASSERT_EQ(memory_->free(std::exchange(units_[1], 0)), CUDA_SUCCESS);
    tell(7, hint::pin);
}

TEST_F(AdvisedKeys, MemoryThatMovesLiesWhereItsMoverHasIt)
{
    ASSERT_TRUE(wait_until([&] { return !is_in_vram(3); },
                           [&] { tell(3, hint::demote); }));
    moves_->fix(units_[3]);
    const auto found = memory_->stretch_at(units_[3] + 1);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->left, unit_bytes - 1);
    EXPECT_EQ(found->in_ram, !is_in_vram(3));
    EXPECT_TRUE(found->in_ram);
}

TEST_F(AdvisedKeys, MemoryThatNeverMovesHasAPlaceAllTheSame)
{
    CUdeviceptr small = 0;
    ASSERT_EQ(memory_->allocate(&small, 1000), CUDA_SUCCESS);
    std::uint64_t made = 0;
    ASSERT_EQ(keys_->add(small + 100, 900, 0, made), EMUV_ADVICE_OK);
    for (const hint each : {hint::access, hint::prefetch, hint::demote,
                            hint::discard, hint::pin, hint::unpin})
        EXPECT_EQ(keys_->tell(made, each), EMUV_ADVICE_OK);
    emuv_advice_place where{};
    ASSERT_EQ(keys_->where(made, where), EMUV_ADVICE_OK);
    EXPECT_EQ(where.bytes[EMUV_TIER_VRAM] + where.bytes[EMUV_TIER_RAM], 900U);
    EXPECT_EQ(memory_->free(small), CUDA_SUCCESS);
}

TEST_F(AdvisedKeys, ServeManyThreadsWhileMemoryComesAndGoes)
{
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 3; i++)
        threads.emplace_back([&, i] {
            std::uint64_t mine = EMUV_ADVICE_NONE;
            for (std::uint64_t n = i; !over.load(); n++) {
                const std::uint64_t which = n % 4 == 0 ? mine : key(n * 7 % 12);
                keys_->tell(which, static_cast<hint>(n % 8));
                emuv_advice_place where{};
                keys_->where(which, where);
                if (n % 50 == 0)
                    keys_->add(units_[n / 50 % 6], unit_bytes,
                               static_cast<int>(n % 100), mine);
                if (n % 50 == 25)
                    keys_->forget(mine);
            }
            keys_->forget(mine);
        });
    for (unsigned i = 0; i < 50; i++) {
        CUdeviceptr &last = units_[11];
        EXPECT_EQ(memory_->free(std::exchange(last, 0)), CUDA_SUCCESS);
        CUdeviceptr made = 0;
        ASSERT_EQ(memory_->allocate(&made, unit_bytes), CUDA_SUCCESS);
        last = made;
        launch(i % 12, i % 10 != 0);
    }
    over.store(true);
    for (std::thread &each : threads)
        each.join();
    for (std::size_t i = 0; i < units_.size(); i++)
        EXPECT_EQ(keys_->forget(key(i)), EMUV_ADVICE_OK);
    // Nothing is left pinned.
    for (std::size_t i = 0; i < 6; i++) {
        std::uint64_t made = 0;
        ASSERT_EQ(keys_->add(units_[i], unit_bytes, 0, made), EMUV_ADVICE_OK);
        ASSERT_EQ(keys_->tell(made, hint::pin), EMUV_ADVICE_OK);
    }
}
