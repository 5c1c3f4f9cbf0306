// SPDX-License-Identifier: GPL-2.0-or-later
// A program of twelve units, eight of which its share has room for, against a
// driver of tables. Copies and kernels are over at once.
#pragma once

#include "fake_driver.hpp"
#include "idle_driver.hpp"
#include "movement/mover.hpp"
#include "store/placement.hpp"
#include "wait_until.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

/// The mover, and the parts below it. A derived class allocates the units, and
/// frees them before TearDown().
class Units : public ::testing::Test
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
                           .tell = [](const char *why) { FAIL() << why; },
                           .unmaps = unmaps_});
    }

    void TearDown() override
    {
        moves_->stop(nullptr);
        EXPECT_EQ(limits_->read().physical_used_bytes, 0U);
        EXPECT_EQ(limits_->read().virtual_used_bytes, 0U);
        EXPECT_TRUE(card_.empty());
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

    bool unmaps_ = false; ///< set before SetUp()
    FakeDriver card_;
    emuv::cuda::trace record_;
    emuv::cuda::ledger_file rows_;
    std::unique_ptr<emuv::cuda::file_ledger> limits_;
    std::unique_ptr<emuv::cuda::budget> shares_;
    std::unique_ptr<emuv::cuda::numa_store> host_;
    std::unique_ptr<emuv::cuda::mover> moves_;
    std::vector<CUdeviceptr> units_ = std::vector<CUdeviceptr>(12);
    std::uint64_t next_what_ = 1;
};
