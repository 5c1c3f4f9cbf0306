// SPDX-License-Identifier: GPL-2.0-or-later
// The parts that ranges need, over a driver of tables.
#pragma once

#include "fake_driver.hpp"
#include "memory/ranges.hpp"

#include <cstdint>
#include <memory>

#include <gtest/gtest.h>

/// A share of 64 MiB of VRAM and 128 MiB of system RAM; nothing moves.
struct RangesFixture : testing::Test
{
    static constexpr std::uint64_t MiB = 1ull << 20;

    RangesFixture()
    {
        using namespace emuv::cuda;
        EXPECT_EQ(rows.open(nullptr), 0);
        limits = std::make_unique<file_ledger>(rows, 0, 64 * MiB, 128 * MiB);
        shares = std::make_unique<budget>(
            budget::options{.calls = card.calls, .ledgers = {limits.get()}});
        all = std::make_unique<ranges>(
            ranges::options{card.calls, *shares, host, none, spills});
    }

    void expect_used(std::uint64_t physical, std::uint64_t beyond)
    {
        EXPECT_EQ(limits->read().physical_used_bytes, physical);
        EXPECT_EQ(limits->read().virtual_used_bytes, beyond);
    }
    void expect_nothing_left()
    {
        expect_used(0, 0);
        EXPECT_TRUE(card.empty());
    }

    FakeDriver card;
    emuv::cuda::ledger_file rows;
    emuv::cuda::numa_store host{card.calls};
    emuv::cuda::movers none{{}};
    emuv::cuda::first_spill spills{card.calls, host, nullptr};
    std::unique_ptr<emuv::cuda::file_ledger> limits;
    std::unique_ptr<emuv::cuda::budget> shares;
    std::unique_ptr<emuv::cuda::ranges> all;
};
