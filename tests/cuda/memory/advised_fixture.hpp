// SPDX-License-Identifier: GPL-2.0-or-later
// A program that says things of its memory: twelve allocations of a unit each,
// eight of them in VRAM, against a driver of tables. Copies and kernels are
// over at once.
#pragma once

#include "memory/advised.hpp"
#include "memory/memory.hpp"
#include "movement/units_fixture.hpp"
#include "wait_until.hpp"

#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

/// The library's parts behind a program's advice.
class Advice : public Units
{
protected:
    void SetUp() override
    {
        using namespace emuv::cuda;
        ASSERT_NO_FATAL_FAILURE(Units::SetUp());
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
        Units::TearDown();
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

    std::unique_ptr<emuv::cuda::memory> memory_;
    std::unique_ptr<emuv::cuda::advised> keys_;
    std::vector<std::uint64_t> of_units_ =
        std::vector<std::uint64_t>(units_.size());
};
