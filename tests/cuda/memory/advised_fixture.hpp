// SPDX-License-Identifier: GPL-2.0-or-later
// A program that says things of its memory: twelve allocations of a unit each,
// eight of them in VRAM, against a driver of tables. Copies and kernels are
// over at once.
#pragma once

#include "fake_driver.hpp"
#include "idle_driver.hpp"
#include "memory/advised.hpp"
#include "memory/memory.hpp"
#include "movement/mover.hpp"
#include "store/placement.hpp"
#include "wait_until.hpp"

#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

/// The library's parts behind a program's advice.
class Advice : public ::testing::Test
{
protected:
    static constexpr std::uint64_t unit_bytes = emuv::cuda::max_moving_bytes;
    static constexpr std::uint64_t share_units = 8;

    void SetUp() override
    {
        using namespace emuv::cuda;
        succeed_otherwise(card_.calls);
        const driver idle = idle_driver();
        card_.calls.cuMemHostAlloc = idle.cuMemHostAlloc;
        card_.calls.cuMemFreeHost = idle.cuMemFreeHost;
        ASSERT_EQ(rows_.open(nullptr), 0);
        limits_ = std::make_unique<file_ledger>(
            rows_, 0, share_units * unit_bytes, 16 * unit_bytes);
        shares_ = std::make_unique<budget>(
            budget::options{.calls = card_.calls, .ledgers = {limits_.get()}});
        host_ = std::make_unique<numa_store>(card_.calls);
        moves_ = std::make_unique<mover>(
            mover::options{.calls = card_.calls,
                           .shares = *shares_,
                           .record = record_,
                           .tell = [](const char *why) { FAIL() << why; }});
        memory_ =
            std::make_unique<memory>(memory::options{.calls = card_.calls,
                                                     .host = *host_,
                                                     .shares = *shares_,
                                                     .movers = {moves_.get()}});
        keys_ = std::make_unique<advised>(*memory_);
        for (std::size_t i = 0; i < units_.size(); i++) {
            ASSERT_EQ(memory_->allocate(&units_[i], unit_bytes), CUDA_SUCCESS);
            ASSERT_EQ(keys_->add(units_[i], unit_bytes, 0, of_units_[i]),
                      EMUV_ADVICE_OK);
        }
    }

    void TearDown() override
    {
        for (const CUdeviceptr each : units_)
            if (each != 0) {
                EXPECT_EQ(memory_->free(each), CUDA_SUCCESS);
            }
        moves_->stop(nullptr);
        EXPECT_EQ(limits_->read().physical_used_bytes, 0U);
        EXPECT_EQ(limits_->read().virtual_used_bytes, 0U);
        EXPECT_TRUE(card_.empty());
    }

    /// The key of a unit.
    [[nodiscard]] std::uint64_t key(std::size_t unit) const
    {
        return of_units_[unit];
    }
    /// Registers a unit anew.
    void rank(std::size_t unit, int priority)
    {
        ASSERT_EQ(keys_->forget(of_units_[unit]), EMUV_ADVICE_OK);
        ASSERT_EQ(
            keys_->add(units_[unit], unit_bytes, priority, of_units_[unit]),
            EMUV_ADVICE_OK);
    }

    void tell(std::size_t unit, emuv::cuda::hint what)
    {
        ASSERT_EQ(keys_->tell(key(unit), what), EMUV_ADVICE_OK);
    }

    /// Launches work that is given one unit.
    void launch(std::size_t unit, bool trusted = true)
    {
        moves_->run(
            reinterpret_cast<CUstream>(0x20),
            [&](emuv::cuda::work &out) {
                out.what = next_what_++; // so that nothing is foreseen
                out.trusted = trusted;
                out.add(units_[unit]);
            },
            [] { return CUDA_SUCCESS; });
    }

    bool is_in_vram(std::size_t unit)
    {
        emuv_advice_place found{};
        EXPECT_EQ(keys_->where(key(unit), found), EMUV_ADVICE_OK);
        EXPECT_EQ(found.bytes[EMUV_TIER_VRAM] + found.bytes[EMUV_TIER_RAM],
                  unit_bytes);
        return found.bytes[EMUV_TIER_VRAM] == unit_bytes;
    }
    emuv_advice_stats stats(std::uint64_t which)
    {
        emuv_advice_stats found{};
        EXPECT_EQ(keys_->stats(which, found), EMUV_ADVICE_OK);
        return found;
    }

    /// Does a step again and again, with a pause behind it, until something
    /// holds.
    template <typename Condition, typename Step>
    static bool wait_until(Condition holds, Step step)
    {
        return ::wait_until(holds, [&] {
            step();
            usleep(500);
        });
    }
    template <typename Condition>
    static bool wait_until(Condition holds)
    {
        return wait_until(holds, [] {});
    }

    FakeDriver card_;
    emuv::cuda::trace record_;
    emuv::cuda::ledger_file rows_;
    std::unique_ptr<emuv::cuda::file_ledger> limits_;
    std::unique_ptr<emuv::cuda::budget> shares_;
    std::unique_ptr<emuv::cuda::numa_store> host_;
    std::unique_ptr<emuv::cuda::mover> moves_;
    std::unique_ptr<emuv::cuda::memory> memory_;
    std::unique_ptr<emuv::cuda::advised> keys_;
    std::vector<CUdeviceptr> units_ = std::vector<CUdeviceptr>(12);
    std::vector<std::uint64_t> of_units_ =
        std::vector<std::uint64_t>(units_.size());
    std::uint64_t next_what_ = 1;
};
