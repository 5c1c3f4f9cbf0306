// SPDX-License-Identifier: GPL-2.0-or-later
// Handles of system RAM, mapped at their addresses or not.
#include "fake_driver.hpp"
#include "store/store.hpp"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;

class NumaStore : public ::testing::Test
{
protected:
    void SetUp() override
    {
        ASSERT_EQ(card_.calls.cuMemAddressReserve(&at_, 64 * MiB, 0, 0, 0),
                  CUDA_SUCCESS);
    }
    void TearDown() override
    {
        for (const unit &each : units_)
            EXPECT_EQ(host_.unmap(each), CUDA_SUCCESS);
        EXPECT_EQ(card_.calls.cuMemAddressFree(at_, 64 * MiB), CUDA_SUCCESS);
        EXPECT_TRUE(card_.empty());
    }

    FakeDriver card_;
    numa_store host_{card_.calls};
    CUdeviceptr at_ = 0;
    std::vector<unit> units_;
};

TEST_F(NumaStore, MemoryThatItOnlyCreatesIsMappedNowhere)
{
    ASSERT_EQ(host_.create(at_, 48 * MiB, 32 * MiB, 0, 0, units_),
              CUDA_SUCCESS);
    ASSERT_EQ(units_.size(), 2U);
    EXPECT_FALSE(units_[0].mapped);
    EXPECT_FALSE(units_[1].mapped);
    EXPECT_EQ(units_[1].at, at_ + 32 * MiB);
    EXPECT_EQ(units_[1].bytes, 16 * MiB);
    EXPECT_TRUE(card_.mapped.empty());
    EXPECT_EQ(card_.host_used, 48 * MiB);
}

TEST_F(NumaStore, WhatWasCreatedBeforeARefusalIsTold)
{
    card_.host_bytes = 32 * MiB;
    EXPECT_EQ(host_.create(at_, 64 * MiB, 32 * MiB, 0, 0, units_),
              CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(units_.size(), 1U);
}

} // namespace
