// SPDX-License-Identifier: GPL-2.0-or-later
// Memory that the program makes by cuMemCreate: its charge, and its place.
#include "fake_driver.hpp"
#include "memory/handles.hpp"

#include <memory>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = 1ull << 20;

unsigned notices;

// A share of 64 MiB of VRAM and 128 MiB of system RAM.
class Handles : public ::testing::Test
{
protected:
    Handles()
    {
        notices = 0;
        EXPECT_EQ(rows_.open(nullptr), 0);
        limits_ = std::make_unique<file_ledger>(rows_, 0, 64 * MiB, 128 * MiB);
        shares_ = std::make_unique<budget>(
            budget::options{.calls = card_.calls, .ledgers = {limits_.get()}});
        all_ = std::make_unique<handles>(card_.calls, *shares_, host_, spills_);
    }

    void expect_used(std::uint64_t physical, std::uint64_t beyond)
    {
        EXPECT_EQ(limits_->read().physical_used_bytes, physical);
        EXPECT_EQ(limits_->read().virtual_used_bytes, beyond);
    }
    void expect_nothing_left()
    {
        expect_used(0, 0);
        EXPECT_TRUE(card_.empty());
    }

    FakeDriver card_;
    ledger_file rows_;
    numa_store host_{card_.calls};
    first_spill spills_{card_.calls, host_,
                        [](const spill_notice &) { notices++; }};
    std::unique_ptr<file_ledger> limits_;
    std::unique_ptr<budget> shares_;
    std::unique_ptr<handles> all_;
};

} // namespace

TEST_F(Handles, OwnHandlesAreCountedUntilReleasedAndUnmapped)
{
    const auto wanted = properties_of(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_EQ(all_->create(&handle, 20 * MiB, wanted, 0), CUDA_SUCCESS);
    expect_used(20 * MiB, 0);
    const auto done = [] { return CUDA_SUCCESS; };
    all_->mapped(0x1000000, 20 * MiB, handle);
    EXPECT_EQ(all_->release(handle, done), CUDA_SUCCESS);
    expect_used(20 * MiB, 0);
    all_->retained(handle, 0x1000000 + 5 * MiB);
    EXPECT_EQ(all_->unmap(0x1000000, 20 * MiB, done), CUDA_SUCCESS);
    expect_used(20 * MiB, 0);
    EXPECT_EQ(all_->release(handle, done), CUDA_SUCCESS);
    expect_used(0, 0);
    EXPECT_EQ(all_->release(handle, done), CUDA_SUCCESS)
        << "one too many is the driver's to answer, and changes nothing";
    expect_used(0, 0);
}

TEST_F(Handles, OwnHandlesThatTheDriverKeepsStayCounted)
{
    const auto wanted = properties_of(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    const auto refused = [] { return CUDA_ERROR_INVALID_VALUE; };
    const auto done = [] { return CUDA_SUCCESS; };
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_EQ(all_->create(&handle, 20 * MiB, wanted, 0), CUDA_SUCCESS);
    EXPECT_EQ(all_->release(handle, refused), CUDA_ERROR_INVALID_VALUE);
    all_->mapped(0x1000000, 20 * MiB, handle);
    EXPECT_EQ(all_->release(handle, done), CUDA_SUCCESS);
    EXPECT_EQ(all_->unmap(0x1000000, 20 * MiB, refused),
              CUDA_ERROR_INVALID_VALUE);
    expect_used(20 * MiB, 0);
    EXPECT_EQ(all_->unmap(0x1000000, 20 * MiB, done), CUDA_SUCCESS);
    expect_used(0, 0);
}

// Another thread may act between the driver's work and its answer.
TEST_F(Handles, AHandleGivenAnewWhileItIsReleasedIsCountedOnItsOwn)
{
    const auto wanted = properties_of(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    CUmemGenericAllocationHandle first = 0;
    CUmemGenericAllocationHandle second = 0;
    ASSERT_EQ(all_->create(&first, 10 * MiB, wanted, 0), CUDA_SUCCESS);
    EXPECT_EQ(all_->release(first,
                            [&] {
                                card_.calls.cuMemRelease(first);
                                card_.next_handle = first;
                                return all_->create(&second, 20 * MiB, wanted,
                                                    0);
                            }),
              CUDA_SUCCESS);
    ASSERT_EQ(first, second);
    expect_used(20 * MiB, 0);
    EXPECT_EQ(
        all_->release(second, [&] { return card_.calls.cuMemRelease(second); }),
        CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Handles, AnAddressMappedAnewWhileItIsUnmappedKeepsItsMemory)
{
    const auto wanted = properties_of(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    const auto done = [] { return CUDA_SUCCESS; };
    CUmemGenericAllocationHandle first = 0;
    CUmemGenericAllocationHandle second = 0;
    ASSERT_EQ(all_->create(&first, 10 * MiB, wanted, 0), CUDA_SUCCESS);
    ASSERT_EQ(all_->create(&second, 20 * MiB, wanted, 0), CUDA_SUCCESS);
    all_->mapped(0x1000000, 10 * MiB, first);
    EXPECT_EQ(all_->unmap(0x1000000, 10 * MiB,
                          [&] {
                              all_->mapped(0x1000000, 20 * MiB, second);
                              return CUDA_SUCCESS;
                          }),
              CUDA_SUCCESS);
    EXPECT_EQ(all_->release(first, done), CUDA_SUCCESS);
    EXPECT_EQ(all_->release(second, done), CUDA_SUCCESS);
    expect_used(20 * MiB, 0);
    EXPECT_EQ(all_->unmap(0x1000000, 20 * MiB, done), CUDA_SUCCESS);
    expect_used(0, 0);
}

TEST_F(Handles, OwnHandlesBeyondTheBudgetAreHostMemoryThatSaysDevice)
{
    const auto wanted = properties_of(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    CUmemGenericAllocationHandle first = 0;
    CUmemGenericAllocationHandle second = 0;
    ASSERT_EQ(all_->create(&first, 60 * MiB, wanted, 0), CUDA_SUCCESS);
    ASSERT_EQ(all_->create(&second, 20 * MiB, wanted, 0), CUDA_SUCCESS);
    EXPECT_TRUE(card_.handles[second].host);
    expect_used(60 * MiB, 20 * MiB);
    EXPECT_EQ(notices, 1u);
    auto shown = properties_of(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0);
    all_->show_properties(second, shown);
    EXPECT_EQ(shown.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    all_->mapped(0x1000000, 20 * MiB, second);
    allocation_view view;
    ASSERT_TRUE(all_->find(0x1000000 + 100, view));
    EXPECT_TRUE(view.host);
    EXPECT_FALSE(view.split);
    CUmemGenericAllocationHandle third = 0;
    EXPECT_EQ(all_->create(&third, 110 * MiB, wanted, 0),
              CUDA_ERROR_OUT_OF_MEMORY);
    expect_used(60 * MiB, 20 * MiB);
}

TEST_F(Handles, AHandleThatCannotBeHostMemoryIsOutOfMemory)
{
    auto wanted = properties_of(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(all_->create(&handle, 100 * MiB, wanted, 0),
              CUDA_ERROR_OUT_OF_MEMORY);
    expect_nothing_left();
}

TEST_F(Handles, WherePagesAreRegisteredThereAreNoneInSystemRam)
{
    page_store pages(card_.calls);
    handles all(card_.calls, *shares_, pages, spills_);
    const auto wanted = properties_of(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(all.create(&handle, 100 * MiB, wanted, 0),
              CUDA_ERROR_OUT_OF_MEMORY);
    expect_nothing_left();
}
