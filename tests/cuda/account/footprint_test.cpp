// SPDX-License-Identifier: GPL-2.0-or-later
// The VRAM that CUDA itself takes is charged to a ledger.
#include "account/footprint.hpp"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t mib = 1U << 20;

std::uint64_t by_nvml[2]; // what NVML has of the process, by device
unsigned asked;
std::uint64_t said_taken;
std::uint64_t said_missing;
unsigned said;

class Footprint : public ::testing::Test
{
protected:
    void SetUp() override
    {
        by_nvml[0] = by_nvml[1] = 0;
        asked = said = 0;
        ASSERT_EQ(rows.open(nullptr), 0);
    }
    static std::uint64_t measure(int device)
    {
        asked++;
        return by_nvml[device];
    }
    static void tell(std::uint64_t taken, std::uint64_t missing)
    {
        said++;
        said_taken = taken;
        said_missing = missing;
    }
    std::uint64_t used() { return limits.read().physical_used_bytes; }
    // Long after the last one.
    void follow(footprint &which)
    {
        which.follow(now += 1000000000000, [this](std::uint64_t missing) {
            wanted = missing;
            if (room) // something makes way
                limits.uncharge_physical(missing);
            return room && limits.charge_physical(missing);
        });
    }
    void follow() { follow(taken); }

    std::uint64_t now = 0;
    std::uint64_t wanted = 0;
    bool room = false;
    ledger_file rows;
    file_ledger limits{rows, 0, 1600 * mib, 0};
    footprint taken{{.limits = limits, .ask = measure, .told = tell}};
};

} // namespace

TEST_F(Footprint, ADeviceThatIsNotInUseTakesNothing)
{
    follow();
    EXPECT_EQ(used(), 0u);
}

TEST_F(Footprint, WhatNobodyAllocatedIsChargedAndRoomForCodeBesides)
{
    ASSERT_TRUE(limits.charge_physical(300 * mib));
    by_nvml[0] = 800 * mib;
    follow();
    EXPECT_EQ(taken.charged_bytes(), 600 * mib); // and a sixteenth of 1600
    EXPECT_EQ(used(), 900 * mib);
    EXPECT_EQ(said, 0u);
}

TEST_F(Footprint, CodeThatIsLoadedTakesTheRoomKeptForIt)
{
    by_nvml[0] = 500 * mib;
    follow();
    by_nvml[0] = 600 * mib;
    follow();
    EXPECT_EQ(used(), 600 * mib);
    by_nvml[0] = 610 * mib;
    follow();
    EXPECT_EQ(used(), 610 * mib);
}

TEST_F(Footprint, AContextThatComesIsMeasuredHoweverSoonAfterAQuestion)
{
    const auto soon = [this] {
        taken.follow(++now, [](std::uint64_t) { return false; });
    };
    soon();
    by_nvml[0] = 500 * mib;
    soon();
    EXPECT_EQ(used(), 0u);
    taken.expect();
    soon();
    EXPECT_EQ(used(), 600 * mib);
    by_nvml[0] = 700 * mib;
    soon();
    EXPECT_EQ(used(), 600 * mib); // once
}

TEST_F(Footprint, NoMoreThanItsOwnLimitIsKeptForCode)
{
    file_ledger large{rows, 1, std::uint64_t{64} << 30, 0};
    footprint of_large{{.limits = large, .ask = measure, .told = tell}};
    by_nvml[0] = mib;
    follow(of_large);
    EXPECT_EQ(of_large.charged_bytes(), mib + footprint::code_bytes);
}

TEST_F(Footprint, MemoryThatIsChargedAndNotThereGivesNothingBack)
{
    by_nvml[0] = 700 * mib;
    follow();
    ASSERT_TRUE(limits.charge_physical(500 * mib)); // managed, say
    follow();
    EXPECT_EQ(taken.charged_bytes(), 800 * mib);
    limits.uncharge_physical(500 * mib);
    follow();
    EXPECT_EQ(taken.charged_bytes(), 800 * mib);
}

TEST_F(Footprint, AContextThatGoesGivesItsPartBack)
{
    by_nvml[0] = 700 * mib;
    follow();
    by_nvml[0] = 0;
    taken.shrink();
    EXPECT_EQ(used(), 0u);
    by_nvml[0] = 400 * mib;
    follow();
    EXPECT_EQ(used(), 500 * mib);
}

TEST_F(Footprint, WhereThereIsNoRoomWhatThereIsIsTakenAndTheRestLater)
{
    ASSERT_TRUE(limits.charge_physical(1200 * mib));
    by_nvml[0] = 1700 * mib;
    follow();
    EXPECT_EQ(used(), 1600 * mib);
    EXPECT_EQ(said, 1u);
    EXPECT_EQ(said_taken, 500 * mib);
    EXPECT_EQ(said_missing, 100 * mib);
    limits.uncharge_physical(300 * mib);
    by_nvml[0] = 1400 * mib;
    follow();
    EXPECT_EQ(taken.charged_bytes(), 600 * mib);
    EXPECT_EQ(said, 1u); // once
}

TEST_F(Footprint, RoomIsMadeForWhatIsThereAndNotForCodeToCome)
{
    ASSERT_TRUE(limits.charge_physical(1300 * mib));
    by_nvml[0] = 1600 * mib; // 300 of them CUDA's, for which there is room
    follow();
    EXPECT_EQ(wanted, 0u);
    EXPECT_EQ(used(), 1600 * mib);
    by_nvml[0] = 1650 * mib;
    follow();
    EXPECT_EQ(wanted, 50 * mib);
    EXPECT_EQ(taken.charged_bytes(), 300 * mib); // none could be made
    room = true;
    by_nvml[0] = 1720 * mib;
    follow();
    EXPECT_EQ(wanted, 120 * mib);
    EXPECT_EQ(taken.charged_bytes(), 420 * mib);
}

TEST_F(Footprint, MemoryThatComesAndGoesWhileItIsMeasuredIsNotTakenForCudas)
{
    static ledger *theirs;
    theirs = &limits;
    ASSERT_TRUE(limits.charge_physical(300 * mib));
    // Another thread allocates 200 MiB, which is seen, and frees 300.
    footprint watched{{.limits = limits,
                       .ask =
                           [](int) {
                               EXPECT_TRUE(theirs->charge_physical(200 * mib));
                               theirs->uncharge_physical(300 * mib);
                               return 1000 * mib;
                           },
                       .told = tell}};
    follow(watched);
    EXPECT_EQ(watched.charged_bytes(), 600 * mib); // 500, and a sixteenth
}

TEST_F(Footprint, OneContextOfSeveralThatGoesTakesNoMoreForCode)
{
    by_nvml[0] = 500 * mib;
    follow();
    by_nvml[0] = 1000 * mib;
    follow();
    EXPECT_EQ(taken.charged_bytes(), 1000 * mib);
    by_nvml[0] = 550 * mib;
    taken.shrink();
    EXPECT_EQ(taken.charged_bytes(), 600 * mib);
}

TEST_F(Footprint, ItsOwnChargeIsNotTakenForTheProgramsMemory)
{
    by_nvml[0] = 500 * mib;
    follow();
    for (int i = 0; i < 3; i++) {
        by_nvml[0] += 50 * mib;
        follow();
        EXPECT_EQ(taken.charged_bytes(), std::max(600 * mib, by_nvml[0]));
    }
}

TEST_F(Footprint, DevicesThatShareALedgerAddUp)
{
    footprint of_both{
        {.limits = limits, .ask = measure, .devices = 2, .told = tell}};
    by_nvml[0] = 300 * mib;
    follow(of_both);
    EXPECT_EQ(used(), 400 * mib);
    by_nvml[1] = 300 * mib;
    follow(of_both);
    EXPECT_EQ(used(), 800 * mib);
}

TEST_F(Footprint, ItIsMeasuredTenTimesASecondAtMost)
{
    for (std::uint64_t ms = 0; ms < 1000; ms++)
        taken.follow(ms * 1000000, [](std::uint64_t) { return false; });
    EXPECT_GE(asked, 1u);
    EXPECT_LE(asked, 10u);
}

// Other threads open and close such memory at any moment.
TEST_F(Footprint, MemoryOfOthersThatComesAndGoesIsNotTakenForCudas)
{
    ASSERT_TRUE(limits.charge_physical(256 * mib)); // the program's own
    by_nvml[0] = 456 * mib;
    follow();
    ASSERT_EQ(taken.charged_bytes(), 300 * mib); // with that for code
    std::atomic<bool> over = false;
    std::thread others([&] {
        for (int i = 0; i < 100000; i++) {
            ASSERT_TRUE(limits.charge_physical(256 * mib));
            taken.not_measured(256 * mib);
            taken.not_measured(-std::int64_t{256 * mib});
            limits.uncharge_physical(256 * mib);
        }
        over = true;
    });
    while (!over)
        follow();
    others.join();
    follow();
    EXPECT_EQ(taken.charged_bytes(), 300 * mib);
    EXPECT_EQ(used(), 556 * mib);
}
