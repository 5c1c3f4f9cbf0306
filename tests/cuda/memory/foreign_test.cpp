// SPDX-License-Identifier: GPL-2.0-or-later
// Memory that others made: charged while the program holds it open.
#include "account/footprint.hpp"
#include "fake_driver.hpp"
#include "memory/foreign.hpp"

#include <memory>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = 1ull << 20;
using kind = foreign::key::kind;

// A share of 64 MiB of VRAM.
class Foreign : public ::testing::Test
{
protected:
    Foreign()
    {
        EXPECT_EQ(rows_.open(nullptr), 0);
        limits_ = std::make_unique<file_ledger>(rows_, 0, 64 * MiB, 0);
        shares_ = std::make_unique<budget>(
            budget::options{.calls = card_.calls, .ledgers = {limits_.get()}});
        all_ = std::make_unique<foreign>(*shares_, true);
    }

    std::uint64_t used() const { return limits_->read().physical_used_bytes; }

    FakeDriver card_;
    ledger_file rows_;
    std::unique_ptr<file_ledger> limits_;
    std::unique_ptr<budget> shares_;
    std::unique_ptr<foreign> all_;
};

CUresult unmapped()
{
    return CUDA_SUCCESS;
}
CUresult not_unmapped()
{
    return CUDA_ERROR_INVALID_VALUE;
}

} // namespace

TEST_F(Foreign, MemoryIsChargedOnceHoweverOftenItIsOpened)
{
    EXPECT_TRUE(all_->open({kind::address, 1}, 0, 20 * MiB));
    EXPECT_TRUE(all_->open({kind::address, 1}, 0, 20 * MiB));
    EXPECT_EQ(used(), 20 * MiB);
    all_->close({kind::address, 1});
    EXPECT_EQ(used(), 20 * MiB);
    all_->close({kind::address, 1});
    EXPECT_EQ(used(), 0U);
    all_->close({kind::address, 1}); // once too often
    EXPECT_EQ(used(), 0U);
}

TEST_F(Foreign, MemoryBeyondTheShareIsNotOpened)
{
    EXPECT_TRUE(all_->open({kind::address, 1}, 0, 60 * MiB));
    EXPECT_FALSE(all_->open({kind::address, 2}, 0, 5 * MiB));
    EXPECT_EQ(used(), 60 * MiB);
    all_->close({kind::address, 2}); // which is not open
    all_->close({kind::address, 1});
    EXPECT_EQ(used(), 0U);
}

TEST_F(Foreign, HandleIsChargedAsItIsMappedAndUntilItIsUnmapped)
{
    const foreign::key handle{kind::handle, 7};
    EXPECT_TRUE(all_->open(handle, 0, 0));
    EXPECT_EQ(used(), 0U);
    EXPECT_TRUE(all_->grow(handle, 20 * MiB));
    all_->mapped(0x1000, 20 * MiB, handle);
    EXPECT_TRUE(all_->grow(handle, 20 * MiB)); // at another place
    all_->mapped(0x9000000, 20 * MiB, handle);
    EXPECT_EQ(used(), 20 * MiB);
    all_->close(handle);
    EXPECT_EQ(used(), 20 * MiB) << "it is mapped";
    EXPECT_NE(all_->unmap(0x1000, 20 * MiB, not_unmapped), CUDA_SUCCESS);
    EXPECT_EQ(all_->unmap(0x1000, 20 * MiB, unmapped), CUDA_SUCCESS);
    EXPECT_EQ(used(), 20 * MiB) << "at one place";
    EXPECT_EQ(all_->unmap(0x9000000, 20 * MiB, unmapped), CUDA_SUCCESS);
    EXPECT_EQ(used(), 0U);
}

TEST_F(Foreign, HandleThatDoesNotFitIsNotMapped)
{
    const foreign::key handle{kind::handle, 7};
    EXPECT_TRUE(all_->open(handle, 0, 0));
    EXPECT_FALSE(all_->grow(handle, 65 * MiB));
    EXPECT_EQ(used(), 0U);
    EXPECT_TRUE(all_->grow({kind::handle, 8}, 65 * MiB)) << "the program's own";
    all_->close(handle);
    EXPECT_EQ(used(), 0U);
}

TEST_F(Foreign, NothingIsChargedUnlessItShallCount)
{
    foreign none(*shares_, false);
    EXPECT_TRUE(none.open({kind::address, 1}, 0, 65 * MiB));
    EXPECT_EQ(used(), 0U);
    none.close({kind::address, 1});
}

// NVML counts memory for the process that made it.
TEST_F(Foreign, MemoryOfAnotherProcessHidesNothingThatCudaTakes)
{
    static std::uint64_t measured;
    measured = 8 * MiB; // CUDA's own
    footprint taken({.limits = *limits_, .ask = [](int) { return measured; }});
    budget shares({.calls = card_.calls,
                   .ledgers = {limits_.get()},
                   .footprints = {&taken}});
    foreign all(shares, true);
    EXPECT_TRUE(all.open({kind::address, 1}, 0, 16 * MiB));
    taken.expect();
    shares.follow_footprint(0);
    const std::uint64_t with_code = 8 * MiB + 64 * MiB / 16;
    EXPECT_EQ(used(), 16 * MiB + with_code);
    measured = 20 * MiB;
    taken.expect();
    shares.follow_footprint(0);
    EXPECT_EQ(taken.charged_bytes(), 20 * MiB);
    all.close({kind::address, 1});
    EXPECT_EQ(used(), taken.charged_bytes());
}
