// SPDX-License-Identifier: GPL-2.0-or-later
// Allocations of all kinds, against a driver of tables.
#include "account/graph_memory.hpp"
#include "fake_driver.hpp"
#include "memory/memory.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = 1ull << 20;

std::atomic<unsigned> notices;
spill_notice last_notice;
std::atomic<unsigned> refusals;
refusal_notice last_refusal;

// A card without a limit of its own behind a budget of 64 MiB + 128 MiB.
class Memory : public ::testing::Test
{
protected:
    explicit Memory(std::uint64_t physical = 64 * MiB,
                    std::uint64_t beyond = 128 * MiB)
    {
        notices = 0;
        refusals = 0;
        EXPECT_EQ(rows_.open(nullptr), 0);
        limits_ = std::make_unique<file_ledger>(rows_, 0, physical, beyond);
        host_ = std::make_unique<numa_store>(card_.calls);
        memory_ = make(report_kind::total);
    }

    std::unique_ptr<memory> make(report_kind report, bool exportable = false,
                                 bool (*asks_again)() = nullptr)
    {
        shares_.push_back(std::make_unique<budget>(
            budget::options{.calls = card_.calls,
                            .ledgers = {limits_.get()},
                            .report = report,
                            .asks_again = asks_again}));
        return std::make_unique<memory>(
            memory::options{.calls = card_.calls,
                            .host = *host_,
                            .shares = *shares_.back(),
                            .notice =
                                [](const spill_notice &notice) {
                                    last_notice = notice;
                                    notices++;
                                },
                            .refused =
                                [](const refusal_notice &notice) {
                                    last_refusal = notice;
                                    refusals++;
                                },
                            .exportable = exportable});
    }

    CUdeviceptr allocate(std::uint64_t bytes)
    {
        CUdeviceptr pointer = 0;
        EXPECT_EQ(memory_->allocate(&pointer, bytes), CUDA_SUCCESS) << bytes;
        return pointer;
    }

    // Allocates in stream order, from a pool that takes so many bytes for it.
    CUdeviceptr allocate_ordered(std::uint64_t bytes, CUmemoryPool pool,
                                 std::uint64_t reserved)
    {
        CUdeviceptr pointer = 0;
        EXPECT_EQ(memory_->allocate_async(
                      &pointer, bytes, pool, nullptr,
                      [&] {
                          card_.pool_reserved = card_.pool_used = reserved;
                          return card_.calls.cuMemAlloc_v2(&pointer, bytes);
                      }),
                  CUDA_SUCCESS);
        return pointer;
    }

    // Allocates in stream order with VRAM used up, so that nobody asks the
    // driver.
    void allocate_beyond(CUdeviceptr &pointer, std::uint64_t bytes)
    {
        ASSERT_EQ(memory_->allocate_async(&pointer, bytes, nullptr, nullptr,
                                          [] { return CUDA_ERROR_UNKNOWN; }),
                  CUDA_SUCCESS);
    }
    void free_beyond(CUdeviceptr pointer)
    {
        EXPECT_EQ(memory_->free_async(pointer, nullptr,
                                      [] { return CUDA_ERROR_UNKNOWN; }),
                  CUDA_SUCCESS);
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
    std::unique_ptr<file_ledger> limits_;
    std::vector<std::unique_ptr<budget>> shares_; // one of each memory
    std::unique_ptr<numa_store> host_;
    std::unique_ptr<memory> memory_;
};

} // namespace

TEST_F(Memory, BelowAChunkTheDriverAllocates)
{
    const CUdeviceptr pointer = allocate(1000);
    EXPECT_TRUE(card_.plain.contains(pointer));
    expect_used(1000, 0);
    EXPECT_EQ(memory_->free(pointer), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Memory, WhatFitsIsAllInVram)
{
    const CUdeviceptr pointer = allocate(63 * MiB);
    expect_used(64 * MiB, 0);
    EXPECT_EQ(card_.host_used, 0u);
    EXPECT_EQ(card_.accessible[pointer], 64 * MiB);
    EXPECT_EQ(notices, 0u);
    EXPECT_EQ(memory_->free(pointer), CUDA_SUCCESS);
    expect_nothing_left();
}

namespace {

// True if the caller gives back its cached memory, and asks again.
bool asks = true;

struct Caching : Memory
{
    Caching()
    {
        asks = true;
        cache();
    }
    void cache(bool exportable = false)
    {
        memory_ = make(report_kind::total, exportable, [] { return asks; });
    }
    void expect_refused(std::uint64_t bytes)
    {
        CUdeviceptr pointer = 0;
        EXPECT_EQ(memory_->allocate(&pointer, bytes), CUDA_ERROR_OUT_OF_MEMORY);
    }
};

} // namespace

TEST_F(Caching, IsRefusedOnceWhatWouldSpill)
{
    const CUdeviceptr cached = allocate(40 * MiB);
    expect_refused(30 * MiB);
    expect_used(40 * MiB, 0);
    // Memory that the caller gives back makes room.
    EXPECT_EQ(memory_->free(cached), CUDA_SUCCESS);
    const CUdeviceptr pointer = allocate(30 * MiB);
    expect_used(30 * MiB, 0);
    // If nothing is given back, memory spills.
    expect_refused(40 * MiB);
    const CUdeviceptr other = allocate(40 * MiB);
    expect_used(64 * MiB, 6 * MiB);
    EXPECT_EQ(memory_->free(pointer), CUDA_SUCCESS);
    EXPECT_EQ(memory_->free(other), CUDA_SUCCESS);
    expect_nothing_left();
}

// A refusal has helped if as much is given back as was missing, wherever that
// lay. Then the next request is refused as well.
TEST_F(Caching, IsRefusedAgainWhereWhatWasMissingIsGivenBack)
{
    asks = false;
    const CUdeviceptr kept = allocate(44 * MiB);
    const CUdeviceptr gone = allocate(20 * MiB);
    const CUdeviceptr cached = allocate(12 * MiB);
    EXPECT_EQ(memory_->free(gone), CUDA_SUCCESS);
    expect_used(44 * MiB, 12 * MiB);
    asks = true;
    expect_refused(30 * MiB);
    EXPECT_EQ(memory_->free(cached), CUDA_SUCCESS);
    const CUdeviceptr pointer = allocate(30 * MiB);
    expect_used(64 * MiB, 10 * MiB);
    expect_refused(10 * MiB);
    for (const CUdeviceptr each : {kept, pointer})
        EXPECT_EQ(memory_->free(each), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Caching, IsRefusedWhereTheCardIsFullBeforeTheShare)
{
    card_.card_bytes = 40 * MiB;
    const CUdeviceptr pointer = allocate(30 * MiB);
    expect_refused(20 * MiB);
    EXPECT_EQ(memory_->free(pointer), CUDA_SUCCESS);
}

TEST_F(Caching, WhatIsExportableCountsAsGivenBackToo)
{
    cache(true);
    const CUdeviceptr kept = allocate(30 * MiB);
    const CUdeviceptr cached = allocate(34 * MiB);
    EXPECT_TRUE(card_.plain.contains(cached));
    expect_refused(30 * MiB);
    EXPECT_EQ(memory_->free(cached), CUDA_SUCCESS);
    card_.card_bytes = card_.card_used; // somebody else has taken it
    const CUdeviceptr pointer = allocate(30 * MiB);
    expect_used(30 * MiB, 30 * MiB);
    expect_refused(10 * MiB);
    for (const CUdeviceptr each : {kept, pointer})
        EXPECT_EQ(memory_->free(each), CUDA_SUCCESS);
}

TEST_F(Caching, IsNotRefusedWhatAPoolGivesUp)
{
    const CUdeviceptr ordered = allocate_ordered(30 * MiB, nullptr, 40 * MiB);
    ASSERT_EQ(
        memory_->free_async(ordered, nullptr,
                            [&] { return card_.calls.cuMemFree_v2(ordered); }),
        CUDA_SUCCESS);
    card_.pool_used = 0;
    expect_used(40 * MiB, 0);
    const CUdeviceptr pointer = allocate(60 * MiB);
    expect_used(60 * MiB, 0);
    EXPECT_EQ(memory_->free(pointer), CUDA_SUCCESS);
}

TEST_F(Caching, GivesOthersWhatAPoolKeepsForLater)
{
    const CUdeviceptr ordered = allocate_ordered(30 * MiB, nullptr, 40 * MiB);
    ASSERT_EQ(
        memory_->free_async(ordered, nullptr,
                            [&] { return card_.calls.cuMemFree_v2(ordered); }),
        CUDA_SUCCESS);
    card_.pool_used = 0;
    const CUdeviceptr kept = allocate(10 * MiB);
    expect_used(50 * MiB, 0);
    shares_.back()->stream_pools().trim(0);
    expect_used(10 * MiB, 0);
    EXPECT_EQ(memory_->free(kept), CUDA_SUCCESS);
}

TEST_F(Caching, IsNotRefusedWhatIsSmallNorWhereItDoesNotAskAgain)
{
    asks = false;
    const CUdeviceptr first = allocate(70 * MiB);
    asks = true;
    const CUdeviceptr second = allocate(MiB);
    EXPECT_EQ(memory_->free(first), CUDA_SUCCESS);
    EXPECT_EQ(memory_->free(second), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Caching, IsNotRefusedInACaptureNorAfterOne)
{
    card_.capture_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const CUdeviceptr first = allocate(70 * MiB);
    EXPECT_EQ(card_.capture_mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    card_.capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    expect_refused(10 * MiB);
    EXPECT_EQ(card_.capture_mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_EQ(memory_->free(first), CUDA_SUCCESS);
    const CUdeviceptr second = allocate(10 * MiB);
    // The refusal helped, so the next request would be refused.
    shares_.back()->refuse_no_more();
    const CUdeviceptr third = allocate(70 * MiB);
    for (const CUdeviceptr each : {second, third})
        EXPECT_EQ(memory_->free(each), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Memory, WhatShallBeExportableIsTheDriversWhereItFitsWhole)
{
    memory_ = make(report_kind::total, true);
    const CUdeviceptr first = allocate(39 * MiB);
    EXPECT_TRUE(card_.plain.contains(first));
    expect_used(40 * MiB, 0);
    const CUdeviceptr second = allocate(30 * MiB);
    EXPECT_FALSE(card_.plain.contains(second));
    expect_used(64 * MiB, 6 * MiB);
    CUdeviceptr pointer = 0;
    EXPECT_EQ(memory_->allocate(&pointer, UINT64_MAX),
              CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(memory_->free(first), CUDA_SUCCESS);
    card_.card_bytes = card_.card_used + 20 * MiB; // full before the share is
    const CUdeviceptr third = allocate(30 * MiB);
    EXPECT_FALSE(card_.plain.contains(third));
    EXPECT_EQ(memory_->free(second), CUDA_SUCCESS);
    EXPECT_EQ(memory_->free(third), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Memory, OneAllocationIsSplitWhereTheBudgetEnds)
{
    card_.shares_link = true;
    const CUdeviceptr first = allocate(24 * MiB);
    const CUdeviceptr second = allocate(100 * MiB);
    expect_used(64 * MiB, 60 * MiB);
    EXPECT_EQ(card_.host_used, 60 * MiB);
    EXPECT_EQ(notices, 1u);
    EXPECT_EQ(last_notice.spilled_bytes, 60 * MiB);
    EXPECT_EQ(last_notice.allocation_bytes, 100 * MiB);
    EXPECT_DOUBLE_EQ(last_notice.link_bytes_per_second,
                     static_cast<double>(16 * MiB) * 1000.0)
        << "what it moves when it is not shared";
    const CUdeviceptr third = allocate(2 * MiB);
    EXPECT_EQ(notices, 1u) << "only the first spill is told";
    for (const CUdeviceptr pointer : {first, second, third})
        EXPECT_EQ(memory_->free(pointer), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Memory, TheFirstRefusalIsToldOnceWithWhatIsHeldAndMissing)
{
    const CUdeviceptr most = allocate(180 * MiB);
    EXPECT_EQ(refusals, 0u);
    CUdeviceptr pointer = 0;
    EXPECT_EQ(memory_->allocate(&pointer, 20 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_EQ(refusals, 1u);
    EXPECT_EQ(last_refusal.bytes, 20 * MiB);
    EXPECT_EQ(last_refusal.limits.physical_used_bytes, 64 * MiB);
    EXPECT_EQ(last_refusal.limits.virtual_used_bytes, 116 * MiB);
    EXPECT_EQ(last_refusal.own_vram_bytes, 64 * MiB);
    EXPECT_EQ(last_refusal.missing_bytes(), 8 * MiB);
    EXPECT_FALSE(last_refusal.only_vram);
    EXPECT_EQ(memory_->allocate(&pointer, 20 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(refusals, 1u);
    EXPECT_EQ(memory_->free(most), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Memory, ARefusalOfWhatCanOnlyBeInVramSaysSo)
{
    CUarray array = nullptr;
    EXPECT_EQ(
        memory_->create_array(&array, 70 * MiB, [] { return CUDA_SUCCESS; }),
        CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_EQ(refusals, 1u);
    EXPECT_TRUE(last_refusal.only_vram);
    EXPECT_EQ(last_refusal.missing_bytes(), 6 * MiB);
}

TEST_F(Memory, ARefusedHandleThatCannotBeSystemRamSaysSo)
{
    auto wanted = properties_of(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    CUmemGenericAllocationHandle handle = 0;
    // Its kind of handle goes to no store.
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    EXPECT_EQ(memory_->create_handle(&handle, 70 * MiB, wanted, 0),
              CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_EQ(refusals, 1u);
    EXPECT_TRUE(last_refusal.only_vram);
    EXPECT_EQ(last_refusal.missing_bytes(), 6 * MiB);
}

TEST_F(Memory, ARefusalWithinTheLimitsLacksNothingOfThem)
{
    card_.card_bytes = card_.card_used;
    card_.host_bytes = card_.host_used;
    CUdeviceptr pointer = 0;
    EXPECT_EQ(memory_->allocate(&pointer, 20 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_EQ(refusals, 1u);
    EXPECT_EQ(last_refusal.missing_bytes(), 0u);
}

TEST_F(Memory, ASmallRefusalLacksAChunk)
{
    const CUdeviceptr most = allocate(192 * MiB);
    CUdeviceptr pointer = 0;
    EXPECT_EQ(memory_->allocate(&pointer, 100), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_EQ(refusals, 1u);
    EXPECT_EQ(last_refusal.missing_bytes(), 2 * MiB);
    EXPECT_EQ(memory_->free(most), CUDA_SUCCESS);
}

TEST_F(Memory, ASmallOneGoesToTheHostWhenTheBudgetIsUsedUp)
{
    const CUdeviceptr large = allocate(64 * MiB);
    const CUdeviceptr small = allocate(100);
    expect_used(64 * MiB, 2 * MiB);
    EXPECT_EQ(memory_->free(small), CUDA_SUCCESS);
    EXPECT_EQ(memory_->free(large), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Memory, SmallOnesBeyondTheBudgetShareAChunkThatGoesWithTheLast)
{
    const CUdeviceptr large = allocate(64 * MiB);
    const CUdeviceptr first = allocate(100);
    const CUdeviceptr second = allocate(MiB);
    expect_used(64 * MiB, 2 * MiB);
    EXPECT_EQ(second % slab::alignment, 0u);
    allocation_view one;
    allocation_view other;
    ASSERT_TRUE(memory_->find(first + 99, one));
    EXPECT_FALSE(memory_->find(first + 100, other));
    ASSERT_TRUE(memory_->find(second + MiB - 1, other));
    EXPECT_EQ(one.base, first);
    EXPECT_EQ(one.bytes, 100u);
    EXPECT_TRUE(one.host);
    EXPECT_EQ(other.base, second);
    EXPECT_EQ(other.bytes, MiB);
    EXPECT_NE(one.serial, other.serial);
    EXPECT_TRUE(memory_->is_allocation(second + MiB, 1))
        << "what is not given out yet is not the program's to unmap";

    const CUdeviceptr third = allocate(MiB); // does not fit beside them
    expect_used(64 * MiB, 4 * MiB);
    EXPECT_EQ(memory_->free(second + 512), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(memory_->free(second), CUDA_SUCCESS);
    EXPECT_EQ(memory_->free(second), CUDA_ERROR_INVALID_VALUE);
    expect_used(64 * MiB, 4 * MiB);
    EXPECT_EQ(memory_->free(first), CUDA_SUCCESS);
    expect_used(64 * MiB, 2 * MiB);
    EXPECT_EQ(memory_->free(third), CUDA_SUCCESS);
    EXPECT_EQ(memory_->free(large), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Memory, APieceFreedInStreamOrderIsGivenOutAgainOnlyWhenItIsDue)
{
    const CUdeviceptr large = allocate(64 * MiB);
    const CUdeviceptr kept = allocate(100);
    CUdeviceptr small = 0;
    ASSERT_EQ(memory_->allocate_async(&small, MiB, nullptr, nullptr,
                                      [] { return CUDA_ERROR_UNKNOWN; }),
              CUDA_SUCCESS);
    expect_used(64 * MiB, 2 * MiB);
    card_.events_done = false;
    EXPECT_EQ(
        memory_->free_async(small, nullptr, [] { return CUDA_ERROR_UNKNOWN; }),
        CUDA_SUCCESS);
    const CUdeviceptr beside = allocate(MiB);
    expect_used(64 * MiB, 4 * MiB);
    card_.events_done = true;
    const CUdeviceptr again = allocate(MiB);
    EXPECT_EQ(again, small);
    for (const CUdeviceptr pointer : {again, beside, kept, large})
        EXPECT_EQ(memory_->free(pointer), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Memory, PiecesGoWithTheirContext)
{
    allocate(64 * MiB);
    allocate(100);
    allocate(200);
    memory_->context_gone(reinterpret_cast<CUcontext>(0x10),
                          memory_->next_serial());
    expect_nothing_left();
}

TEST_F(Memory, TheLimitIsOutOfMemoryAndLeavesTheLedgerAsItWas)
{
    const CUdeviceptr held = allocate(64 * MiB);
    CUdeviceptr pointer = 42;
    EXPECT_EQ(memory_->allocate(&pointer, 130 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(memory_->allocate(&pointer, UINT64_MAX),
              CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(memory_->allocate(&pointer, 1ull << 60),
              CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(pointer, 42u);
    expect_used(64 * MiB, 0);
    EXPECT_EQ(card_.reserved.size(), 1u);
    const CUdeviceptr rest = allocate(128 * MiB);
    EXPECT_EQ(memory_->allocate(&pointer, 1), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(memory_->free(rest), CUDA_SUCCESS);
    EXPECT_EQ(memory_->free(held), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Memory, ACardThatIsFullBeforeTheBudgetIsSpillsInstead)
{
    card_.card_bytes = 21 * MiB;
    const CUdeviceptr pointer = allocate(40 * MiB);
    expect_used(20 * MiB, 20 * MiB);
    EXPECT_EQ(card_.card_used, 20 * MiB);
    EXPECT_EQ(memory_->free(pointer), CUDA_SUCCESS);
    card_.card_bytes = 100;
    const CUdeviceptr small = allocate(101);
    expect_used(0, 2 * MiB);
    EXPECT_EQ(memory_->free(small), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Memory, AHostWithoutMemoryIsOutOfMemoryAndLosesNothing)
{
    card_.host_bytes = 20 * MiB;
    const CUdeviceptr held = allocate(60 * MiB);
    CUdeviceptr pointer = 0;
    EXPECT_EQ(memory_->allocate(&pointer, 60 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    expect_used(60 * MiB, 0);
    EXPECT_EQ(card_.host_used, 0u);
    EXPECT_EQ(memory_->free(held), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Memory, AFailureOfTheDriverIsItsOwnErrorAndLeavesNothing)
{
    CUdeviceptr pointer = 0;
    card_.fail_access = true;
    EXPECT_EQ(memory_->allocate(&pointer, 100 * MiB), CUDA_ERROR_UNKNOWN);
    expect_nothing_left();
    card_.fail_access = false;
    card_.fail_map = true;
    EXPECT_EQ(memory_->allocate(&pointer, 100 * MiB), CUDA_ERROR_UNKNOWN);
    expect_nothing_left();
}

TEST_F(Memory, FreeingWaitsForTheContextFirst)
{
    const CUdeviceptr pointer = allocate(4 * MiB);
    const unsigned before = card_.synchronized;
    EXPECT_EQ(memory_->free(pointer), CUDA_SUCCESS);
    EXPECT_EQ(card_.synchronized, before + 1);
}

TEST_F(Memory, WhatIsFreedTwiceOrInTheMiddleGetsTheDriversAnswer)
{
    const CUdeviceptr pointer = allocate(4 * MiB);
    EXPECT_EQ(memory_->free(pointer + 256), CUDA_ERROR_INVALID_VALUE);
    expect_used(4 * MiB, 0);
    EXPECT_EQ(memory_->free(pointer), CUDA_SUCCESS);
    EXPECT_EQ(memory_->free(pointer), CUDA_ERROR_INVALID_VALUE);
    expect_nothing_left();
}

TEST_F(Memory, ARangeIsFoundFromItsFirstByteToItsLast)
{
    const CUdeviceptr pointer = allocate(5 * MiB);
    allocation_view view;
    ASSERT_TRUE(memory_->find(pointer, view));
    EXPECT_EQ(view.base, pointer);
    EXPECT_EQ(view.bytes, 5 * MiB) << "as asked for, not as rounded";
    EXPECT_TRUE(memory_->find(pointer + 5 * MiB - 1, view));
    EXPECT_FALSE(memory_->find(pointer + 5 * MiB, view));
    EXPECT_FALSE(memory_->find(pointer - 1, view));
    memory_->free(pointer);
    EXPECT_FALSE(memory_->find(pointer, view));
}

TEST_F(Memory, PitchedRowsAreTheDriversAndTheSizeIsTheirs)
{
    CUdeviceptr pointer = 0;
    std::size_t pitch = 0;
    EXPECT_EQ(memory_->allocate_pitch(&pointer, &pitch, 1000, 4096, 4),
              CUDA_SUCCESS);
    EXPECT_EQ(pitch, 1024u);
    expect_used(4 * MiB, 0);
    EXPECT_EQ(memory_->free(pointer), CUDA_SUCCESS);
    EXPECT_EQ(memory_->allocate_pitch(&pointer, &pitch, 1000, 4096, 5),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(memory_->allocate_pitch(&pointer, &pitch, SIZE_MAX, 2, 4),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(
        memory_->allocate_pitch(&pointer, &pitch, 1ull << 40, 1ull << 40, 4),
        CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(
        memory_->allocate_pitch(&pointer, &pitch, 1ull << 20, 1ull << 20, 4),
        CUDA_ERROR_OUT_OF_MEMORY);
    expect_nothing_left();
}

TEST_F(Memory, QueriesShowTheShareAsAsked)
{
    const CUdeviceptr pointer = allocate(80 * MiB); // 64 + 16
    std::size_t free = 1000 * MiB;
    std::size_t total = 2000 * MiB;
    memory_->show_info(0, free, total);
    EXPECT_EQ(total, 192 * MiB);
    EXPECT_EQ(free, 112 * MiB);
    free = 1000 * MiB;
    total = 2000 * MiB;
    make(report_kind::physical)->show_info(0, free, total);
    EXPECT_EQ(total, 64 * MiB);
    EXPECT_EQ(free, 0u);
    free = 1000 * MiB;
    total = 2000 * MiB;
    make(report_kind::free)->show_info(0, free, total);
    EXPECT_EQ(total, 2000 * MiB);
    EXPECT_EQ(free, 112 * MiB);
    memory_->free(pointer);
    free = 10 * MiB; // others hold the card
    memory_->show_info(0, free, total);
    EXPECT_EQ(free, 138 * MiB);
}

// ---- Stream order

TEST_F(Memory, StreamOrderedMemoryIsTheDriversWithinTheBudgetAndOursBeyond)
{
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    const auto from_driver = [&](CUdeviceptr *pointer, std::uint64_t bytes) {
        return [this, pointer, bytes] {
            return card_.calls.cuMemAlloc_v2(pointer, bytes);
        };
    };
    ASSERT_EQ(memory_->allocate_async(&first, 60 * MiB, nullptr, nullptr,
                                      from_driver(&first, 60 * MiB)),
              CUDA_SUCCESS);
    EXPECT_TRUE(card_.plain.contains(first));
    ASSERT_EQ(memory_->allocate_async(&second, 10 * MiB, nullptr, nullptr,
                                      from_driver(&second, 10 * MiB)),
              CUDA_SUCCESS);
    EXPECT_FALSE(card_.plain.contains(second));
    expect_used(60 * MiB, 10 * MiB);

    card_.events_done = false;
    EXPECT_EQ(
        memory_->free_async(second, nullptr, [] { return CUDA_ERROR_UNKNOWN; }),
        CUDA_SUCCESS);
    expect_used(60 * MiB, 10 * MiB);
    EXPECT_EQ(memory_->free(second), CUDA_ERROR_INVALID_VALUE);
    card_.events_done = true;
    EXPECT_EQ(
        memory_->free_async(first, nullptr,
                            [&] { return card_.calls.cuMemFree_v2(first); }),
        CUDA_SUCCESS);
    const CUdeviceptr next = allocate(100); // collects what has left
    memory_->free(next);
    expect_nothing_left();
}

// The driver answers so during a capture, which the question breaks as well.
TEST_F(Memory, WhatIsFreedInOrderStaysUntilTheDriverSaysThatItsStreamHasCome)
{
    CUdeviceptr pointer = 0;
    const CUdeviceptr held = allocate(64 * MiB);
    ASSERT_NO_FATAL_FAILURE(allocate_beyond(pointer, 16 * MiB));
    const auto ask = card_.calls.cuEventQuery;
    card_.calls.cuEventQuery = [](CUevent) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    };
    free_beyond(pointer);
    std::size_t free = 0;
    std::size_t total = 0;
    memory_->show_info(0, free, total);
    expect_used(64 * MiB, 16 * MiB);
    card_.calls.cuEventQuery = ask;
    memory_->show_info(0, free, total);
    expect_used(64 * MiB, 0);
    memory_->free(held);
    expect_nothing_left();
}

TEST_F(Memory, InStreamOrderNoMoreIsHeldThanTheProgramHas)
{
    const CUdeviceptr held = allocate(64 * MiB);
    for (int round = 0; round < 6; round++) {
        CUdeviceptr pointer = 0;
        ASSERT_NO_FATAL_FAILURE(allocate_beyond(pointer, 16 * MiB));
        expect_used(64 * MiB, 16 * MiB);
        free_beyond(pointer);
    }
    memory_->free(allocate(100));
    memory_->free(held);
    expect_nothing_left();
}

TEST_F(Memory, WhatIsStillLeavingIsWaitedForBeforeSayingOutOfMemory)
{
    CUdeviceptr pointer = 0;
    const CUdeviceptr held = allocate(64 * MiB);
    ASSERT_NO_FATAL_FAILURE(allocate_beyond(pointer, 128 * MiB));
    card_.events_done = false;
    free_beyond(pointer);
    const CUdeviceptr again = allocate(128 * MiB);
    memory_->free(again);
    memory_->free(held);
    expect_nothing_left();
}

TEST_F(Memory, ACapturedAllocationIsTheGraphs)
{
    card_.capturing = true;
    CUdeviceptr pointer = 0;
    EXPECT_EQ(memory_->allocate_async(&pointer, MiB, nullptr, nullptr,
                                      [] { return CUDA_ERROR_UNKNOWN; }),
              CUDA_ERROR_UNKNOWN);
    expect_used(0, 0);
}

TEST_F(Memory, ACaptureFreesWhatTheDriverSaysItMay)
{
    const CUdeviceptr large = allocate(64 * MiB);
    CUdeviceptr outside = 0;
    ASSERT_EQ(memory_->allocate_async(&outside, 10 * MiB, nullptr, nullptr,
                                      [] { return CUDA_ERROR_UNKNOWN; }),
              CUDA_SUCCESS);
    card_.capturing = true;
    EXPECT_EQ(memory_->free_async(outside, nullptr,
                                  [] { return CUDA_ERROR_INVALID_VALUE; }),
              CUDA_ERROR_INVALID_VALUE);
    expect_used(64 * MiB, 10 * MiB);
    card_.capturing = false;
    EXPECT_EQ(memory_->free(outside), CUDA_SUCCESS);
    EXPECT_EQ(memory_->free(large), CUDA_SUCCESS);
    expect_nothing_left();
}

// ---- Memory that the driver keeps

TEST_F(Memory, WhatAPoolKeepsAfterFreesStaysChargedUntilItGivesItUp)
{
    const auto from_driver = [&](CUdeviceptr *pointer) {
        return [this, pointer] {
            card_.pool_reserved = card_.pool_used = 40 * MiB;
            return card_.calls.cuMemAlloc_v2(pointer, 30 * MiB);
        };
    };
    CUdeviceptr pointer = 0;
    ASSERT_EQ(memory_->allocate_async(&pointer, 30 * MiB, nullptr, nullptr,
                                      from_driver(&pointer)),
              CUDA_SUCCESS);
    expect_used(40 * MiB, 0);
    ASSERT_EQ(
        memory_->free_async(pointer, nullptr,
                            [&] { return card_.calls.cuMemFree_v2(pointer); }),
        CUDA_SUCCESS);
    const CUdeviceptr beside = allocate(20 * MiB);
    expect_used(60 * MiB, 0);
    // From memory that it keeps, the driver has to take nothing.
    ASSERT_EQ(memory_->allocate_async(&pointer, 30 * MiB, nullptr, nullptr,
                                      from_driver(&pointer)),
              CUDA_SUCCESS);
    expect_used(60 * MiB, 0);
    ASSERT_EQ(
        memory_->free_async(pointer, nullptr,
                            [&] { return card_.calls.cuMemFree_v2(pointer); }),
        CUDA_SUCCESS);

    // The kept memory is given up before anything spills.
    card_.pool_used = 4 * MiB;
    const CUdeviceptr more = allocate(40 * MiB);
    expect_used(64 * MiB, 0);
    card_.pool_reserved = card_.pool_used = 0;
    for (const CUdeviceptr each : {beside, more})
        EXPECT_EQ(memory_->free(each), CUDA_SUCCESS);
    std::size_t free = 1000 * MiB;
    std::size_t total = 0;
    memory_->show_info(0, free, total);
    EXPECT_EQ(free, 192 * MiB);
    expect_nothing_left();
}

TEST_F(Memory, AnAllocationThatAPoolTakesTooMuchVramForGoesToTheHost)
{
    const CUdeviceptr large = allocate(62 * MiB);
    CUdeviceptr pointer = 0;
    unsigned asked = 0;
    const auto from_driver = [&] {
        asked++;
        card_.pool_reserved = 32 * MiB; // at once, by its own rule
        card_.pool_used = 0;            // once it is given back
        return card_.calls.cuMemAlloc_v2(&pointer, MiB);
    };
    ASSERT_EQ(
        memory_->allocate_async(&pointer, MiB, nullptr, nullptr, from_driver),
        CUDA_SUCCESS);
    EXPECT_EQ(card_.freed_async, 1u);
    EXPECT_EQ(card_.pool_reserved, 0u);
    expect_used(62 * MiB, 2 * MiB);
    CUdeviceptr next = 0;
    ASSERT_EQ(
        memory_->allocate_async(&next, MiB, nullptr, nullptr, from_driver),
        CUDA_SUCCESS);
    EXPECT_EQ(asked, 1u) << "it need not be seen twice";
    for (const CUdeviceptr each : {large, pointer, next})
        EXPECT_EQ(memory_->free(each), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Memory, APoolsAllocationsOutliveItInTheLedger)
{
    const auto pool = reinterpret_cast<CUmemoryPool>(0x31);
    CUmemLocation here = {};
    here.type = CU_MEM_LOCATION_TYPE_DEVICE;
    shares_.back()->stream_pools().created(pool, here,
                                           CU_MEM_ALLOCATION_TYPE_PINNED);
    const CUdeviceptr pointer = allocate_ordered(10 * MiB, pool, 16 * MiB);
    expect_used(16 * MiB, 0);
    EXPECT_EQ(shares_.back()->stream_pools().destroy(
                  pool, [] { return CUDA_ERROR_INVALID_VALUE; }),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(shares_.back()->stream_pools().destroy(
                  pool, [] { return CUDA_SUCCESS; }),
              CUDA_SUCCESS);
    expect_used(10 * MiB, 0);
    EXPECT_EQ(
        memory_->free_async(pointer, nullptr,
                            [&] { return card_.calls.cuMemFree_v2(pointer); }),
        CUDA_SUCCESS);
    expect_used(0, 0);
}

TEST_F(Memory, APoolIsNotDestroyedWhileOthersAreGivenWhatItKeeps)
{
    static std::atomic<bool> trims, destroys, destroyed, destroyed_first;
    trims = destroys = destroyed = destroyed_first = false;
    card_.calls.cuMemPoolTrimTo = [](CUmemoryPool, std::size_t) {
        trims = true;
        while (!destroys)
            usleep(100);
        for (int i = 0; i < 1000 && !destroyed; i++)
            usleep(100);
        destroyed_first = destroyed.load();
        return CUDA_SUCCESS;
    };
    const auto pool = reinterpret_cast<CUmemoryPool>(0x31);
    CUmemLocation here = {};
    here.type = CU_MEM_LOCATION_TYPE_DEVICE;
    shares_.back()->stream_pools().created(pool, here,
                                           CU_MEM_ALLOCATION_TYPE_PINNED);
    const CUdeviceptr pointer = allocate_ordered(10 * MiB, pool, 16 * MiB);
    std::thread giver([&] { shares_.back()->stream_pools().trim(0); });
    while (!trims)
        usleep(100);
    destroys = true;
    EXPECT_EQ(shares_.back()->stream_pools().destroy(pool,
                                                     [] {
                                                         destroyed = true;
                                                         return CUDA_SUCCESS;
                                                     }),
              CUDA_SUCCESS);
    giver.join();
    EXPECT_FALSE(destroyed_first);
    EXPECT_EQ(
        memory_->free_async(pointer, nullptr,
                            [&] { return card_.calls.cuMemFree_v2(pointer); }),
        CUDA_SUCCESS);
    expect_used(0, 0);
}

TEST_F(Memory, APoolOfHostMemoryCountsForNothing)
{
    const auto pool = reinterpret_cast<CUmemoryPool>(0x31);
    CUmemLocation host = {};
    host.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    shares_.back()->stream_pools().created(pool, host,
                                           CU_MEM_ALLOCATION_TYPE_PINNED);
    CUdeviceptr pointer = 0;
    EXPECT_EQ(memory_->allocate_async(&pointer, 500 * MiB, pool, nullptr,
                                      [] { return CUDA_SUCCESS; }),
              CUDA_SUCCESS);
    expect_used(0, 0);
}

// No handle in system RAM can stand in for memory that the processor reads.
TEST_F(Memory, OfAPoolThatTheDriverNamesOnlyPinnedMemoryOfADeviceCounts)
{
    pools &known = shares_.back()->stream_pools();
    const auto pool = [](std::uintptr_t number) {
        return reinterpret_cast<CUmemoryPool>(number);
    };
    CUmemLocation where = {};
    where.type = CU_MEM_LOCATION_TYPE_DEVICE;
    where.id = 2;
    EXPECT_EQ(known.device_of(pool(0x31), 5), 5);
    known.named(pool(0x31), where, CU_MEM_ALLOCATION_TYPE_PINNED);
    EXPECT_EQ(known.device_of(pool(0x31), 5), 2);
    known.named(pool(0x32), where, CU_MEM_ALLOCATION_TYPE_MANAGED);
    EXPECT_EQ(known.device_of(pool(0x32), 5), -1);
    known.created(pool(0x33), where, CU_MEM_ALLOCATION_TYPE_MANAGED);
    known.named(pool(0x33), where, CU_MEM_ALLOCATION_TYPE_PINNED);
    EXPECT_EQ(known.device_of(pool(0x33), 5), -1) << "who made it knows";
    where.type = CU_MEM_LOCATION_TYPE_HOST;
    known.named(pool(0x34), where, CU_MEM_ALLOCATION_TYPE_PINNED);
    EXPECT_EQ(known.device_of(pool(0x34), 5), -1);
    CUdeviceptr pointer = 0;
    EXPECT_EQ(memory_->allocate_async(&pointer, 500 * MiB, pool(0x34), nullptr,
                                      [] { return CUDA_SUCCESS; }),
              CUDA_SUCCESS);
    expect_used(0, 0);
}

TEST_F(Memory, AGraphIsLaunchedWhereThereIsRoomForWhatItAllocates)
{
    graphs all(card_.calls, shares_.back()->stream_pools());
    CUgraphExec exec = nullptr;
    const auto make = [&] {
        exec = reinterpret_cast<CUgraphExec>(0x40);
        return CUDA_SUCCESS;
    };
    card_.graph_nodes = {20 * MiB, 11 * MiB};
    EXPECT_EQ(all.instantiate(&exec, nullptr, make), CUDA_SUCCESS);
    expect_used(0, 0);
    const CUdeviceptr large = allocate(40 * MiB);
    const auto launch = [&] {
        // The graphs run one after the other, in the same memory.
        card_.graph_reserved = card_.graph_used = 20 * MiB;
        return CUDA_SUCCESS;
    };
    EXPECT_EQ(all.launch(exec, launch), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(card_.graph_reserved, 0u);
    expect_used(40 * MiB, 0);
    EXPECT_EQ(memory_->free(large), CUDA_SUCCESS);
    EXPECT_EQ(all.launch(exec, launch), CUDA_SUCCESS);
    expect_used(20 * MiB, 0);

    // Memory that a graph is done with is kept until somebody else needs it.
    card_.graph_used = 0;
    const CUdeviceptr beside = allocate(44 * MiB);
    expect_used(64 * MiB, 0);
    const CUdeviceptr more = allocate(20 * MiB);
    expect_used(64 * MiB, 0);
    EXPECT_EQ(all.destroy(exec, [] { return CUDA_SUCCESS; }), CUDA_SUCCESS);
    for (const CUdeviceptr each : {beside, more})
        EXPECT_EQ(memory_->free(each), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Memory, AGraphThatCannotFitIsNotMade)
{
    graphs all(card_.calls, shares_.back()->stream_pools());
    CUgraphExec exec = nullptr;
    card_.graph_nodes = {65 * MiB};
    EXPECT_EQ(
        all.instantiate(&exec, nullptr, [] { return CUDA_ERROR_UNKNOWN; }),
        CUDA_ERROR_OUT_OF_MEMORY);
    expect_nothing_left();
}

// ---- The program's own handles

TEST_F(Memory, AnOwnHandleIsFoundWhereItIsMapped)
{
    const auto wanted = properties_of(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    const auto done = [] { return CUDA_SUCCESS; };
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_EQ(memory_->create_handle(&handle, 20 * MiB, wanted, 0),
              CUDA_SUCCESS);
    memory_->own_handles().mapped(0x1000000, 20 * MiB, handle);
    allocation_view view;
    ASSERT_TRUE(memory_->find(0x1000000 + 100, view));
    EXPECT_EQ(view.base, 0x1000000u);
    EXPECT_FALSE(view.split);
    EXPECT_FALSE(memory_->is_allocation(0x1000000, 20 * MiB))
        << "it is the program's to unmap";
    EXPECT_EQ(memory_->own_handles().unmap(0x1000000, 20 * MiB, done),
              CUDA_SUCCESS);
    EXPECT_FALSE(memory_->find(0x1000000 + 100, view));
    EXPECT_EQ(memory_->own_handles().release(handle, done), CUDA_SUCCESS);
    expect_used(0, 0);
}

TEST_F(Memory, WhatANewContextOfTheSameHandleWasGivenStays)
{
    allocate(10 * MiB);
    const std::uint64_t before = memory_->next_serial();
    // The driver has ended the context, and another thread has a new one.
    const CUdeviceptr later = allocate(20 * MiB);
    memory_->context_gone(reinterpret_cast<CUcontext>(0x10), before);
    expect_used(20 * MiB, 0);
    EXPECT_EQ(memory_->free(later), CUDA_SUCCESS);
    expect_nothing_left();
}

// ---- Memory that is only counted

TEST_F(Memory, ArraysAreChargedAndCannotSpill)
{
    CUarray array = nullptr;
    const auto make = [&] {
        array = reinterpret_cast<CUarray>(0x500);
        return CUDA_SUCCESS;
    };
    EXPECT_EQ(memory_->create_array(&array, 65 * MiB, make),
              CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(array, nullptr);
    EXPECT_EQ(memory_->create_array(&array, 60 * MiB, make), CUDA_SUCCESS);
    expect_used(60 * MiB, 0);
    EXPECT_EQ(memory_->destroy_array(array, [] { return CUDA_SUCCESS; }),
              CUDA_SUCCESS);
    expect_used(0, 0);
}

TEST_F(Memory, WhatTheDriverDoesNotFreeStaysCharged)
{
    CUarray array = nullptr;
    ASSERT_EQ(memory_->create_array(&array, 10 * MiB,
                                    [&] {
                                        array =
                                            reinterpret_cast<CUarray>(0x500);
                                        return CUDA_SUCCESS;
                                    }),
              CUDA_SUCCESS);
    EXPECT_EQ(
        memory_->destroy_array(array, [] { return CUDA_ERROR_INVALID_HANDLE; }),
        CUDA_ERROR_INVALID_HANDLE);
    expect_used(10 * MiB, 0);
    EXPECT_EQ(memory_->destroy_array(array, [] { return CUDA_SUCCESS; }),
              CUDA_SUCCESS);
    expect_nothing_left();
}

// The driver may give an address to another thread before the thread that freed
// it has the driver's answer.
TEST_F(Memory, AnAddressGivenAnewWhileItIsFreedIsChargedOnce)
{
    const auto make = [](CUarray *array) {
        return [array] {
            *array = reinterpret_cast<CUarray>(0x500);
            return CUDA_SUCCESS;
        };
    };
    CUarray first = nullptr;
    CUarray second = nullptr;
    ASSERT_EQ(memory_->create_array(&first, 10 * MiB, make(&first)),
              CUDA_SUCCESS);
    EXPECT_EQ(memory_->destroy_array(first,
                                     [&] {
                                         return memory_->create_array(
                                             &second, 20 * MiB, make(&second));
                                     }),
              CUDA_SUCCESS);
    expect_used(20 * MiB, 0);
    EXPECT_EQ(memory_->destroy_array(second, [] { return CUDA_SUCCESS; }),
              CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Memory, ManagedMemoryCountsAsVirtualBeyondTheBudget)
{
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    EXPECT_EQ(memory_->allocate_counted(
                  &first, 60 * MiB, true,
                  [&] { return card_.calls.cuMemAlloc_v2(&first, 60 * MiB); }),
              CUDA_SUCCESS);
    EXPECT_EQ(memory_->allocate_counted(
                  &second, 21 * MiB, true,
                  [&] { return card_.calls.cuMemAlloc_v2(&second, 21 * MiB); }),
              CUDA_SUCCESS);
    expect_used(60 * MiB, 22 * MiB);
    EXPECT_EQ(memory_->free(second), CUDA_SUCCESS);
    EXPECT_EQ(memory_->free(first), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Memory, WhatAContextHeldIsReturnedWithIt)
{
    allocate(100 * MiB);
    const CUdeviceptr small = allocate(100);
    memory_->context_gone(reinterpret_cast<CUcontext>(0x99),
                          memory_->next_serial());
    EXPECT_NE(limits_->read().physical_used_bytes, 0u);
    card_.calls.cuMemFree_v2(small); // the driver's part
    memory_->context_gone(reinterpret_cast<CUcontext>(0x10),
                          memory_->next_serial());
    expect_used(0, 0);
    EXPECT_TRUE(card_.reserved.empty());
    EXPECT_TRUE(card_.handles.empty());
}

// ---- Several threads

TEST_F(Memory, APeerEnabledWhileAnAllocationIsMadeReachesIt)
{
    // The peer is enabled after access is set, and before the allocation is
    // entered. That happens once for a large one, and once for a chunk of small
    // ones.
    static memory *under_way;
    static std::vector<int> opened;
    static decltype(card_.calls.cuMemSetAccess) real;
    real = card_.calls.cuMemSetAccess;
    card_.calls.cuMemSetAccess = [](CUdeviceptr at, std::size_t bytes,
                                    const CUmemAccessDesc *access,
                                    std::size_t count) {
        for (std::size_t i = 0; i < count; i++)
            opened.push_back(access[i].location.id);
        if (memory *const now = std::exchange(under_way, nullptr))
            now->peer_enabled(1, 0, reads_by::context, true);
        return real(at, bytes, access, count);
    };
    opened.clear();
    under_way = memory_.get();
    const CUdeviceptr large = allocate(64 * MiB);
    EXPECT_EQ(opened, (std::vector{0, 1}));
    memory_->peer_enabled(1, 0, reads_by::context, false);
    opened.clear();
    under_way = memory_.get();
    const CUdeviceptr small = allocate(4096);
    EXPECT_EQ(std::count(opened.begin(), opened.end(), 1), 2)
        << "of the large one, and of the chunk";
    EXPECT_EQ(memory_->free(small), CUDA_SUCCESS);
    EXPECT_EQ(memory_->free(large), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Memory, AChunkGoesThoughRoomInAnotherCameWhileItWasMade)
{
    static memory *under_way;
    static CUdeviceptr leaves;
    static decltype(card_.calls.cuMemSetAccess) real;
    const CUdeviceptr large = allocate(64 * MiB);
    leaves = allocate(MiB);
    const CUdeviceptr stays = allocate(MiB);
    expect_used(64 * MiB, 2 * MiB);
    real = card_.calls.cuMemSetAccess;
    card_.calls.cuMemSetAccess = [](CUdeviceptr at, std::size_t bytes,
                                    const CUmemAccessDesc *access,
                                    std::size_t count) {
        if (memory *const now = std::exchange(under_way, nullptr)) {
            EXPECT_EQ(now->free(leaves), CUDA_SUCCESS);
        }
        return real(at, bytes, access, count);
    };
    under_way = memory_.get();
    const CUdeviceptr late = allocate(MiB);
    expect_used(64 * MiB, 4 * MiB);
    for (const CUdeviceptr pointer : {late, stays, large})
        EXPECT_EQ(memory_->free(pointer), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Memory, RandomWorkOfFourThreadsLeavesNothingAndNeverPassesTheLimits)
{
    std::vector<std::thread> threads;
    std::atomic<bool> passed{false};
    for (unsigned seed = 1; seed <= 4; seed++)
        threads.emplace_back([&, seed] {
            std::mt19937 random(seed);
            std::vector<CUdeviceptr> mine;
            for (int i = 0; i < 1000; i++) {
                if (mine.empty() || random() % 2 == 0) {
                    const std::uint64_t bytes = random() % 4 == 0
                                                    ? random() % MiB + 1
                                                    : random() % (20 * MiB) + 1;
                    CUdeviceptr pointer = 0;
                    if (memory_->allocate(&pointer, bytes) == CUDA_SUCCESS)
                        mine.push_back(pointer);
                } else {
                    const std::size_t which = random() % mine.size();
                    if (memory_->free(mine[which]) != CUDA_SUCCESS)
                        passed = true;
                    mine[which] = mine.back();
                    mine.pop_back();
                }
                const usage now = limits_->read();
                if (now.physical_used_bytes > 64 * MiB ||
                    now.virtual_used_bytes > 128 * MiB)
                    passed = true;
            }
            for (const CUdeviceptr pointer : mine)
                memory_->free(pointer);
        });
    for (auto &thread : threads)
        thread.join();
    EXPECT_FALSE(passed);
    expect_nothing_left();
}
