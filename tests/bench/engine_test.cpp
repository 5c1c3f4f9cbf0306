// SPDX-License-Identifier: GPL-2.0-or-later
// The engine before the made-up card, in virtual time: how often its threads go
// on says if they wake each other for nothing.
#include "made_card.hpp"
#include "memory/memory.hpp"
#include "movement/mover.hpp"
#include "store/store.hpp"
#include "virtual_time.hpp"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

#include <gtest/gtest.h>

using namespace emuv::cuda;
using bench::MiB;

namespace {

constexpr std::uint64_t unit_bytes = 32 * MiB;

// A program that uses each of its units in turn, a millisecond each.
class program
{
public:
    /// @param untrusted  one launch in so many is; 0: none
    explicit program(unsigned untrusted)
        : untrusted_(untrusted),
          calls_((bench::the = &made_, bench::slow_driver())), host_(calls_),
          limits_((rows_.open(nullptr), rows_), 0, 9 * unit_bytes,
                  std::uint64_t{1} << 40),
          shares_({.calls = calls_, .ledgers = {&limits_}}),
          moves_({.calls = calls_,
                  .shares = shares_,
                  .record = record_,
                  .tell = [](const char *why) { ADD_FAILURE() << why; },
                  .always = true,
                  .unmaps = true}),
          memory_({.calls = calls_,
                   .host = host_,
                   .shares = shares_,
                   .movers = {&moves_}}),
          units_(12)
    {
        for (CUdeviceptr &each : units_)
            EXPECT_EQ(memory_.allocate(&each, unit_bytes), CUDA_SUCCESS);
    }

    // Another thread uses them the other way round meanwhile. Each waits for
    // units that the other has sent away.
    void rounds_both_ways(unsigned count)
    {
        const bench::served hand(made_);
        rounds_ = count;
        thread other;
        ASSERT_TRUE(other.start(
            [](void *self) -> void * {
                static_cast<program *>(self)->back();
                return nullptr;
            },
            this));
        forth(count);
        other.join();
        moves_.stop(nullptr);
    }

private:
    void forth(unsigned count)
    {
        for (std::size_t i = 0; i < count * units_.size(); i++)
            launch(i % units_.size(), reinterpret_cast<CUstream>(0x20));
    }

    void back()
    {
        for (std::size_t i = 0; i < rounds_ * units_.size(); i++)
            launch(units_.size() - 1 - i % units_.size(),
                   reinterpret_cast<CUstream>(0x28));
    }

    // Launches work, and stays a few works ahead of the device.
    void launch(std::size_t which, CUstream stream)
    {
        moves_.run(
            stream,
            [&](work &next) {
                next.what = which + 1;
                next.trusted = untrusted_ == 0 || which % untrusted_ != 0;
                next.open_ended = true;
                next.add(units_[which]);
            },
            [&] {
                const std::lock_guard guard(made_.lock);
                made_.enqueue(stream, {.what = bench::card::request::kernel,
                                       .ns = 1000000});
                return CUDA_SUCCESS;
            });
        constexpr std::uint64_t ahead_ns = 4000000;
        std::uint64_t until = UINT64_MAX;
        while ((until = made_.busy_until(stream)) == UINT64_MAX)
            bench::sleep_until(now_ns() + 20000); // at a barrier
        bench::sleep_until(std::max(until, ahead_ns) - ahead_ns);
    }

    const unsigned untrusted_;
    bench::card made_;
    const driver calls_;
    numa_store host_;
    ledger_file rows_;
    file_ledger limits_;
    budget shares_;
    trace record_;
    mover moves_;
    memory memory_;
    std::vector<CUdeviceptr> units_;
    unsigned rounds_ = 0; // of the other thread
};

// The mover's thread looks every 20 us while somebody waits, and the gate's
// every 15 us while untrusted work does. Threads that wait wake when something
// has changed, and do not wake each other.
void expect_few_turns(unsigned untrusted)
{
    const std::uint64_t begun = now_ns();
    const std::uint64_t before = bench::turns();
    program runs(untrusted);
    ASSERT_NO_FATAL_FAILURE(runs.rounds_both_ways(40));
    const std::uint64_t us = (now_ns() - begun) / 1000;
    const std::uint64_t turns = bench::turns() - before;
    EXPECT_LT(turns, us / 5) << us << " us";
}

} // namespace

TEST(Engine, LaunchesThatWaitDoNotWakeEachOther)
{
    expect_few_turns(0);
}

TEST(Engine, LaunchesAndTheGateThatWaitDoNotWakeEachOther)
{
    expect_few_turns(6);
}

namespace {

// A driver whose lock goes to whoever asks for it first once it is free.
std::mutex driver_lock;
unsigned made = 0;        // handles
unsigned made_before = 0; // another thread got the lock

} // namespace

TEST(Engine, OthersGetTheDriversLockBetweenTwoHandlesInSystemRam)
{
    constexpr unsigned handles = 16;
    driver calls = bench::slow_driver();
    calls.cuMemCreate = [](CUmemGenericAllocationHandle *handle, std::size_t,
                           const CUmemAllocationProp *, unsigned long long) {
        const std::lock_guard guard(driver_lock);
        sleep_ns(7000000);
        *handle = ++made;
        return CUDA_SUCCESS;
    };
    thread other;
    ASSERT_TRUE(other.start(
        [](void *) -> void * {
            sleep_ns(1000000);
            const std::lock_guard guard(driver_lock);
            made_before = made;
            return nullptr;
        },
        nullptr));
    std::vector<unit> units;
    EXPECT_EQ(
        create_handles(calls, properties_of(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0),
                       0x100000000, handles * unit_bytes, unit_bytes, units),
        CUDA_SUCCESS);
    other.join();
    EXPECT_EQ(made, handles);
    EXPECT_EQ(made_before, 1U);
}
