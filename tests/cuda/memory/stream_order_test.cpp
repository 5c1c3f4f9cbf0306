// SPDX-License-Identifier: GPL-2.0-or-later
// Stream-ordered memory where memory moves: its next owner, and its charge
// meanwhile.
#include "fake_driver.hpp"
#include "idle_driver.hpp"
#include "memory/memory.hpp"
#include "movement/mover.hpp"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = 1ull << 20;
const auto one = reinterpret_cast<CUstream>(0x40);
const auto other = reinterpret_cast<CUstream>(0x50);
const auto pool = reinterpret_cast<CUmemoryPool>(0x30); // the device's own

class StreamOrder : public ::testing::Test
{
protected:
    void SetUp() override
    {
        succeed_otherwise(card_.calls);
        const driver idle = idle_driver();
        card_.calls.cuMemHostAlloc = idle.cuMemHostAlloc;
        card_.calls.cuMemFreeHost = idle.cuMemFreeHost;
        ASSERT_EQ(rows_.open(nullptr), 0);
        limits_ = std::make_unique<file_ledger>(rows_, 0, 256 * MiB, 128 * MiB);
        shares_ = std::make_unique<budget>(
            budget::options{.calls = card_.calls, .ledgers = {limits_.get()}});
        host_ = std::make_unique<numa_store>(card_.calls);
        moves_ = std::make_unique<mover>(mover::options{
            .calls = card_.calls,
            .shares = *shares_,
            .record = record_,
            .tell = [](const char *why) { ADD_FAILURE() << why; },
            .always = true});
        memory_ =
            std::make_unique<memory>(memory::options{.calls = card_.calls,
                                                     .host = *host_,
                                                     .shares = *shares_,
                                                     .movers = {moves_.get()}});
    }

    CUdeviceptr allocate(std::uint64_t bytes, CUstream stream)
    {
        CUdeviceptr at = 0;
        EXPECT_EQ(memory_->allocate_async(&at, bytes, nullptr, stream,
                                          [&] {
                                              drivers_++;
                                              return card_.calls.cuMemAlloc_v2(
                                                  &at, bytes);
                                          }),
                  CUDA_SUCCESS);
        return at;
    }
    void free(CUdeviceptr at, CUstream stream)
    {
        EXPECT_EQ(memory_->free_async(at, stream,
                                      [&] {
                                          drivers_++;
                                          return card_.calls.cuMemFree_v2(at);
                                      }),
                  CUDA_SUCCESS);
    }
    std::uint64_t used() { return limits_->read().physical_used_bytes; }

    FakeDriver card_;
    trace record_;
    ledger_file rows_;
    std::unique_ptr<file_ledger> limits_;
    std::unique_ptr<budget> shares_;
    std::unique_ptr<numa_store> host_;
    std::unique_ptr<mover> moves_;
    std::unique_ptr<memory> memory_;
    unsigned drivers_ = 0; // its calls
};

} // namespace

TEST_F(StreamOrder, WhatIsFreedInAStreamIsTheNextOnesThere)
{
    const CUdeviceptr at = allocate(48 * MiB, one);
    free(at, one);
    EXPECT_NE(allocate(48 * MiB, other), at);
    EXPECT_EQ(allocate(47 * MiB, one), at);
    EXPECT_NE(allocate(48 * MiB, one), at);
    EXPECT_EQ(drivers_, 0u);
    allocation_view view;
    ASSERT_TRUE(memory_->find(at, view));
    EXPECT_EQ(view.bytes, 47 * MiB);
}

TEST_F(StreamOrder, WhatIsFreedIsNoAllocationOfAnybodys)
{
    const CUdeviceptr at = allocate(48 * MiB, one);
    free(at, one);
    allocation_view view;
    EXPECT_FALSE(memory_->find(at, view));
    EXPECT_EQ(memory_->free(at), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(allocate(48 * MiB, one), at);
}

TEST_F(StreamOrder, SmallMemoryOfTheDriversIsKeptAsLargeAsItIs)
{
    const CUdeviceptr at = allocate(1000, one);
    EXPECT_EQ(drivers_, 1u);
    free(at, one);
    EXPECT_EQ(allocate(999, one), at);
    EXPECT_EQ(drivers_, 1u);
    free(at, one);
    EXPECT_NE(allocate(1001, one), at); // the driver knows of 1000 bytes
    EXPECT_EQ(drivers_, 2u);
    EXPECT_EQ(memory_->in_order().use_of(pool).kept, 1000u);
}

TEST_F(StreamOrder, WhenAStreamGoesItsMemoryIsNobodysButBehindIt)
{
    const CUdeviceptr large = allocate(48 * MiB, one);
    const CUdeviceptr small = allocate(1000, one);
    free(large, one);
    free(small, one);
    card_.events_done = false;
    memory_->in_order().stream_goes(one);
    EXPECT_EQ(card_.freed_async, 1u); // in that stream
    EXPECT_NE(allocate(48 * MiB, one), large);
    EXPECT_EQ(used(), 96 * MiB); // until the work before it has ended
    card_.events_done = true;
    allocate(2 * MiB, one);
    EXPECT_FALSE(card_.reserved.contains(large));
}

// Another thread is given the address while the first has yet to note that it
// is the driver's again.
TEST_F(StreamOrder, AnAddressThatTheDriverHandsOutAgainAtOnceIsTheNextOwners)
{
    const CUdeviceptr at = allocate(1000, one);
    free(at, one);
    static std::function<void()> meanwhile;
    static FakeDriver *card;
    card = &card_;
    meanwhile = [&] {
        meanwhile = nullptr;
        card_.next_address = at;
        EXPECT_EQ(allocate(1000, other), at);
        free(at, other);
    };
    card_.calls.cuMemFreeAsync = [](CUdeviceptr freed, CUstream) {
        const CUresult result = card->calls.cuMemFree_v2(freed);
        if (meanwhile)
            meanwhile();
        return result;
    };
    memory_->in_order().stream_goes(one);
    EXPECT_EQ(memory_->in_order().use_of(pool).kept, 1000u);
    EXPECT_EQ(drivers_, 2u);
    ASSERT_EQ(allocate(1000, other), at);
    EXPECT_EQ(drivers_, 2u);
    free(at, other);
    memory_->in_order().stream_goes(other);
    EXPECT_EQ(memory_->in_order().use_of(pool).kept, 0u);
    EXPECT_TRUE(card_.plain.empty());
    meanwhile = nullptr;
}

TEST_F(StreamOrder, APoolsUseIsWhatIsAllocatedAndWhatIsKept)
{
    const CUdeviceptr at = allocate(48 * MiB, one);
    allocate(20 * MiB, one);
    free(at, one);
    stream_order::pool_use now = memory_->in_order().use_of(pool);
    EXPECT_EQ(now.used, 20 * MiB);
    EXPECT_EQ(now.used_high, 68 * MiB);
    EXPECT_EQ(now.reserved, 68 * MiB);
    EXPECT_EQ(now.reserved_high, 68 * MiB);
    memory_->in_order().reset_high(pool, true);
    memory_->trim_ours(pool, 20 * MiB);
    now = memory_->in_order().use_of(pool);
    EXPECT_EQ(now.used_high, 20 * MiB);
    EXPECT_EQ(now.reserved, 20 * MiB);
    EXPECT_EQ(now.reserved_high, 68 * MiB);
    EXPECT_EQ(used(), 20 * MiB);
    EXPECT_EQ(
        memory_->in_order().use_of(reinterpret_cast<CUmemoryPool>(0x99)).used,
        0u);
}

TEST_F(StreamOrder, TrimmingStopsAtWhatShallBeKept)
{
    const CUdeviceptr first = allocate(48 * MiB, one);
    const CUdeviceptr second = allocate(20 * MiB, one);
    free(first, one);
    free(second, one);
    memory_->trim_ours(pool, 68 * MiB);
    EXPECT_EQ(memory_->in_order().use_of(pool).reserved, 68 * MiB);
    memory_->trim_ours(pool, 50 * MiB);
    EXPECT_EQ(memory_->in_order().use_of(pool).reserved, 48 * MiB);
}

TEST_F(StreamOrder, WhatIsKeptCountsAsFreeAndMakesWay)
{
    std::size_t before = 0;
    std::size_t total = 1ull << 40;
    std::size_t free_bytes = total;
    memory_->show_info(0, free_bytes, total);
    before = free_bytes;
    const CUdeviceptr at = allocate(200 * MiB, one);
    free(at, one);
    free_bytes = total = 1ull << 40;
    memory_->show_info(0, free_bytes, total);
    EXPECT_EQ(free_bytes, before);
    CUdeviceptr all = 0;
    EXPECT_EQ(memory_->allocate(&all, 384 * MiB), CUDA_SUCCESS);
}

TEST_F(StreamOrder, WhatNobodyAsksForAnyMoreIsGivenBack)
{
    free(allocate(48 * MiB, one), one);
    const auto asks = vacancies::max_idle_asks + vacancies::asks_between_looks;
    for (std::uint64_t i = 0; i <= asks; i++)
        free(allocate(64 * MiB, one), one);
    allocate(80 * MiB, one); // nothing that is kept will do
    EXPECT_EQ(memory_->in_order().use_of(pool).reserved, 144 * MiB);
}

TEST_F(StreamOrder, MemoryThatIsNeverFreedHasRangesOfItsOwn)
{
    for (int i = 0; i < 5; i++)
        allocate(60 * MiB, one);
    const CUdeviceptr at = allocate(6 * MiB, one);
    allocate(6 * MiB, one);
    EXPECT_EQ(memory_->in_order().use_of(pool).reserved, 312 * MiB);
    free(at, one);
    EXPECT_EQ(allocate(6 * MiB, one), at);
}

namespace {

// There is much, some of it in system RAM, and much of it was freed. So the
// next small request makes a range of 32 MiB that others share.
class SharedRange : public StreamOrder
{
protected:
    static constexpr std::uint64_t step = 7 * MiB + (64 << 10);

    void SetUp() override
    {
        StreamOrder::SetUp();
        for (int i = 0; i < 2; i++)
            allocate(80 * MiB, one);
        free(allocate(80 * MiB, one), one);
        allocate(20 * MiB, one);
        ASSERT_TRUE(memory_->has_seams());
        first_ = allocate(7 * MiB, one);
        ASSERT_EQ(memory_->in_order().use_of(pool).reserved, 292 * MiB);
        ASSERT_EQ(memory_->in_order().use_of(pool).used, 180 * MiB + step);
    }
    std::uint64_t in_ram() { return limits_->read().virtual_used_bytes; }

    CUdeviceptr first_ = 0;
};

} // namespace

TEST_F(SharedRange, ItsPartsServeSmallRequestsAndBecomeOneAgain)
{
    const CUdeviceptr second = allocate(7 * MiB, one);
    EXPECT_EQ(second, first_ + step) << "the end of one is not the next";
    allocation_view view;
    ASSERT_TRUE(memory_->find(second + 5, view));
    EXPECT_EQ(view.base, second);
    EXPECT_EQ(view.bytes, 7 * MiB);
    EXPECT_FALSE(memory_->find(first_ + 7 * MiB, view)) << "nobody's";
    EXPECT_EQ(memory_->in_order().use_of(pool).reserved, 292 * MiB);
    free(second, one);
    free(first_, one);
    EXPECT_EQ(memory_->free(second), CUDA_ERROR_INVALID_VALUE) << "freed twice";
    EXPECT_EQ(allocate(31 * MiB, one), first_);
}

TEST_F(SharedRange, WhatIsFreedWithoutAStreamIsForAll)
{
    const CUdeviceptr second = allocate(7 * MiB, one);
    EXPECT_EQ(memory_->free(first_), CUDA_SUCCESS);
    EXPECT_EQ(allocate(7 * MiB, other), first_);
    EXPECT_EQ(memory_->free(first_), CUDA_SUCCESS);
    const CUdeviceptr third = allocate(7 * MiB, other);
    EXPECT_EQ(third, first_);
    free(third, other);
    EXPECT_EQ(memory_->free(second), CUDA_SUCCESS);
    EXPECT_NE(allocate(31 * MiB, one), first_) << "some of it is a stream's";
    EXPECT_EQ(allocate(31 * MiB, other), first_);
}

TEST_F(SharedRange, ItGoesOnceAllOfItIsFreeForAll)
{
    const std::uint64_t before = in_ram();
    const CUdeviceptr rest = allocate(32 * MiB - step - (64 << 10), one);
    EXPECT_EQ(rest, first_ + step);
    EXPECT_EQ(memory_->free(first_), CUDA_SUCCESS);
    EXPECT_EQ(in_ram(), before);
    EXPECT_EQ(memory_->free(rest), CUDA_SUCCESS);
    EXPECT_EQ(in_ram(), before - 32 * MiB);
    EXPECT_FALSE(card_.reserved.contains(first_));
}

TEST_F(SharedRange, WhatAStreamLeavesIsForAllOnceItsWorkHasEnded)
{
    allocate(7 * MiB, one);
    free(first_, one);
    card_.events_done = false;
    memory_->in_order().stream_goes(one);
    EXPECT_NE(allocate(7 * MiB, other), first_);
    card_.events_done = true;
    allocate(30 * MiB, other);
    EXPECT_EQ(allocate(7 * MiB, other), first_);
}

TEST_F(SharedRange, ItGoesWithItsContextWhateverItsPartsAre)
{
    allocate(7 * MiB, one);
    free(first_, one);
    CUcontext context = nullptr;
    card_.calls.cuCtxGetCurrent(&context);
    memory_->context_gone(context, memory_->next_serial());
    EXPECT_EQ(used() + in_ram(), 0u);
    EXPECT_TRUE(card_.reserved.empty());
    EXPECT_EQ(memory_->in_order().use_of(pool).reserved, 0u);
}

TEST_F(StreamOrder, ASharedRangeReplacesVacantOnes)
{
    for (int i = 0; i < 2; i++)
        allocate(80 * MiB, one);
    free(allocate(80 * MiB, one), one);
    const CUdeviceptr at = allocate(20 * MiB, one);
    free(at, one);
    allocate(7 * MiB, one);
    allocate(50 * MiB, one); // behind the work before it
    EXPECT_FALSE(card_.reserved.contains(at)) << "20 of its 32 MiB";
    EXPECT_EQ(memory_->in_order().use_of(pool).reserved, 322 * MiB);
}

TEST_F(StreamOrder, SmallMemoryOfEverOtherSizesIsNotKeptForEver)
{
    for (std::uint64_t i = 0; i < 2 * vacancies::max_idle_asks; i++)
        free(allocate(1 + i, one), one);
    EXPECT_GT(card_.freed_async, vacancies::max_idle_asks / 2);
}

TEST_F(StreamOrder, SmallMemoryThatIsKeptMakesWayBeforeAnyIsSpilled)
{
    for (const CUstream stream : {one, other}) {
        std::vector<CUdeviceptr> all;
        for (int i = 0; i < 200; i++)
            all.push_back(allocate(MiB, stream));
        EXPECT_EQ(limits_->read().virtual_used_bytes, 0u);
        for (const CUdeviceptr each : all)
            free(each, stream);
    }
}

TEST_F(StreamOrder, WhatCanMoveMakesWayForSmallMemoryThatCannot)
{
    allocate(300 * MiB, one); // more than the share of VRAM
    EXPECT_EQ(drivers_, 0u);
    allocate(MiB, one);
    EXPECT_EQ(drivers_, 1u); // and no part of a chunk in system RAM
}

TEST_F(StreamOrder, WhatIsFreedTwiceIsNotGivenOutTwice)
{
    for (const std::uint64_t bytes : {std::uint64_t{1000}, 48 * MiB}) {
        const CUdeviceptr at = allocate(bytes, one);
        free(at, one);
        const auto real = [] { return CUDA_SUCCESS; };
        EXPECT_EQ(memory_->free_async(at, one, real), CUDA_ERROR_INVALID_VALUE);
        EXPECT_EQ(memory_->free(at), CUDA_ERROR_INVALID_VALUE);
        EXPECT_EQ(allocate(bytes, one), at);
        EXPECT_NE(allocate(bytes, one), at);
    }
}

TEST_F(StreamOrder, WithItsContextGoesWhatIsKept)
{
    free(allocate(48 * MiB, one), one);
    free(allocate(1000, one), one);
    allocate(20 * MiB, one);
    const auto context = reinterpret_cast<CUcontext>(0x10);
    memory_->context_gone(context, memory_->next_serial());
    shares_->stream_pools().settle();
    EXPECT_EQ(used(), 0u);
    const stream_order::pool_use now = memory_->in_order().use_of(pool);
    EXPECT_EQ(now.used + now.reserved + now.kept, 0u);
}

TEST_F(StreamOrder, WhatItsContextTakesAlongWhileItIsGivenUpIsGoneOnce)
{
    static memory *under_way;
    for (const std::uint64_t bytes : {std::uint64_t{1000}, 48 * MiB})
        for (const bool is_refused : {false, true}) {
            static bool refused;
            refused = is_refused;
            free(allocate(bytes, one), one);
            under_way = memory_.get();
            card_.calls.cuCtxPushCurrent_v2 = [](CUcontext) {
                if (memory *const now = std::exchange(under_way, nullptr))
                    now->context_gone(reinterpret_cast<CUcontext>(0x10),
                                      now->next_serial());
                return refused ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
            };
            memory_->in_order().stream_goes(one);
            card_.calls.cuCtxPushCurrent_v2 = [](CUcontext) {
                return CUDA_SUCCESS;
            };
            EXPECT_EQ(under_way, nullptr);
            EXPECT_EQ(memory_->in_order().use_of(pool).kept, 0u);
            EXPECT_EQ(memory_->in_order().use_of(pool).reserved, 0u);
            shares_->stream_pools().settle();
            EXPECT_EQ(used(), 0u) << bytes << is_refused;
            EXPECT_TRUE(card_.reserved.empty());
        }
}

TEST_F(StreamOrder, OfThreadsOwnStreamsNothingIsKept)
{
    const CUdeviceptr at = allocate(48 * MiB, CU_STREAM_PER_THREAD);
    card_.events_done = false;
    free(at, CU_STREAM_PER_THREAD);
    EXPECT_NE(allocate(48 * MiB, CU_STREAM_PER_THREAD), at);
}

namespace {

int current = 0; // device

// Two devices whose memory moves, each with a pool.
struct TwoDevices : StreamOrder
{
    void SetUp() override
    {
        StreamOrder::SetUp();
        card_.calls.cuCtxGetDevice = [](CUdevice *device) {
            *device = current;
            return CUDA_SUCCESS;
        };
        card_.calls.cuDeviceGetMemPool = [](CUmemoryPool *own, CUdevice of) {
            *own = of == 1 ? seconds_ : pool;
            return CUDA_SUCCESS;
        };
        card_.calls.cuDeviceGetDefaultMemPool = card_.calls.cuDeviceGetMemPool;
        have({limits_.get()});
    }
    // Has them keep to these limits, by device.
    void have(std::vector<ledger *> limits)
    {
        memory_.reset();
        second_.reset();
        moves_.reset();
        shares_ = std::make_unique<budget>(budget::options{
            .calls = card_.calls, .ledgers = std::move(limits)});
        moves_ = of_device(0);
        second_ = of_device(1);
        memory_ = std::make_unique<memory>(
            memory::options{.calls = card_.calls,
                            .host = *host_,
                            .shares = *shares_,
                            .movers = {moves_.get(), second_.get()}});
    }
    std::unique_ptr<mover> of_device(int device)
    {
        return std::make_unique<mover>(mover::options{
            .calls = card_.calls,
            .shares = *shares_,
            .record = record_,
            .tell = [](const char *why) { ADD_FAILURE() << why; },
            .device = device,
            .always = true});
    }
    void TearDown() override
    {
        memory_.reset();
        current = 0;
    }

    static inline const auto seconds_ = reinterpret_cast<CUmemoryPool>(0x31);
    std::unique_ptr<mover> second_;
};

} // namespace

TEST_F(TwoDevices, MemoryOfTheFirstThatIsAskedIsKept)
{
    current = 1;
    const CUdeviceptr at = allocate(48 * MiB, one);
    EXPECT_EQ(drivers_, 0u);
    allocation_view view;
    ASSERT_TRUE(memory_->find(at, view));
    EXPECT_EQ(view.device, 1);
    free(at, one);
    EXPECT_EQ(allocate(48 * MiB, one), at);
    EXPECT_EQ(memory_->in_order().use_of(seconds_).used, 48 * MiB);
    EXPECT_EQ(memory_->in_order().use_of(pool).used, 0u);
    current = 0;
    allocate(48 * MiB, other);
    EXPECT_EQ(drivers_, 1u) << "the other device's is its driver's";
}

TEST_F(TwoDevices, OfAPoolThatAnotherDeviceReadsNothingMoreIsKept)
{
    const CUdeviceptr at = allocate(48 * MiB, one);
    stream_order &order = memory_->in_order();
    EXPECT_EQ(order.pool_is_shared(pool, 0, true), -1) << "it is its own";
    EXPECT_EQ(order.pool_is_shared(seconds_, 0, true), 1);
    const auto programs = reinterpret_cast<CUmemoryPool>(0x99);
    EXPECT_EQ(order.pool_is_shared(programs, 1, true), -1);
    EXPECT_EQ(order.pool_is_shared(pool, 1, false), 0);
    free(at, one);
    EXPECT_EQ(allocate(48 * MiB, one), at);
    EXPECT_EQ(order.pool_is_shared(pool, 1, true), 0);
    EXPECT_EQ(drivers_, 0u);
    allocate(20 * MiB, one);
    EXPECT_EQ(drivers_, 1u);
}

TEST_F(TwoDevices, InAStreamOfAnotherContextNothingIsKept)
{
    card_.calls.cuStreamGetCtx = [](CUstream of, CUcontext *context) {
        *context = reinterpret_cast<CUcontext>(of == other ? 0x99 : 0x10);
        return CUDA_SUCCESS;
    };
    allocate(48 * MiB, other);
    EXPECT_EQ(drivers_, 1u) << "it may be of the other device";
    const CUdeviceptr at = allocate(48 * MiB, one);
    EXPECT_EQ(drivers_, 1u);
    card_.events_done = false;
    free(at, other);
    EXPECT_NE(allocate(48 * MiB, one), at) << "it waits for that stream";
}

TEST_F(TwoDevices, WhatIsKeptGoesForWhoWaitsForItsOwnLimitsAlone)
{
    file_ledger seconds(rows_, 1, 256 * MiB, 128 * MiB);
    have({limits_.get(), &seconds});
    memory_->ask_for_kept(0); // there is none yet
    const CUdeviceptr at = allocate(48 * MiB, one);
    free(at, one);
    memory_->ask_for_kept(1);
    EXPECT_EQ(allocate(48 * MiB, one), at);
    free(at, one);
    memory_->ask_for_kept(0);
    EXPECT_NE(allocate(48 * MiB, one), at);
    EXPECT_FALSE(card_.reserved.contains(at));
    have({limits_.get()}); // before the second's are gone
}

TEST_F(TwoDevices, WhatIsKeptGoesForWhoWaitsOnADeviceWithTheSameLimits)
{
    current = 1;
    const CUdeviceptr at = allocate(48 * MiB, one);
    free(at, one);
    memory_->ask_for_kept(0);
    EXPECT_NE(allocate(48 * MiB, one), at);
    EXPECT_FALSE(card_.reserved.contains(at));
}

TEST_F(StreamOrder, OfAnotherPoolNothingIsOurs)
{
    card_.calls.cuDeviceGetMemPool = [](CUmemoryPool *current, CUdevice) {
        *current = reinterpret_cast<CUmemoryPool>(0x99);
        return CUDA_SUCCESS;
    };
    memory_->in_order().pool_is_set();
    allocate(48 * MiB, one);
    EXPECT_EQ(drivers_, 1u);
    EXPECT_EQ(memory_->in_order().use_of(pool).used, 0u);
}
