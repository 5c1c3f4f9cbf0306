// SPDX-License-Identifier: GPL-2.0-or-later
// Ledgers: the one in a file, over threads and processes, and the instance's.
#include "account/ledger.hpp"
#include "base/thread.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/emuv.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace emuv::cuda;

namespace {

// A ledger's file that vanishes with the test.
class SharedFile : public ::testing::Test
{
protected:
    SharedFile() : fd_(memfd_create("ledger_test", 0)) {}
    ~SharedFile() override { close(fd_); }
    std::string path() const
    {
        return "/proc/" + std::to_string(getpid()) + "/fd/" +
               std::to_string(fd_);
    }

private:
    int fd_;
};

} // namespace

TEST(LedgerFile, ChargesUpToTheLimitAndNoFurther)
{
    ledger_file rows;
    ASSERT_EQ(rows.open(nullptr), 0);
    file_ledger limits(rows, 0, 100, 10);
    EXPECT_TRUE(limits.charge_physical(60));
    EXPECT_FALSE(limits.charge_physical(41));
    EXPECT_TRUE(limits.charge_physical(40));
    EXPECT_FALSE(limits.charge_physical(1));
    EXPECT_FALSE(limits.charge_physical(UINT64_MAX));
    EXPECT_EQ(limits.read().physical_used_bytes, 100u);
    limits.uncharge_physical(60);
    EXPECT_EQ(limits.read().physical_free_bytes(), 60u);
    std::uint64_t token = 1;
    EXPECT_FALSE(limits.charge_virtual(11, token));
    EXPECT_TRUE(limits.charge_virtual(10, token));
    EXPECT_EQ(limits.read().virtual_free_bytes(), 0u);
}

TEST(LedgerFile, DevicesAreSeparate)
{
    ledger_file rows;
    ASSERT_EQ(rows.open(nullptr), 0);
    file_ledger first(rows, 0, 100, 0);
    file_ledger second(rows, 1, 100, 0);
    EXPECT_TRUE(first.charge_physical(100));
    EXPECT_TRUE(second.charge_physical(100));
}

TEST(LedgerFile, ThreadsNeverPassTheLimitTogether)
{
    ledger_file rows;
    ASSERT_EQ(rows.open(nullptr), 0);
    file_ledger limits(rows, 0, 1000, 0);
    std::atomic<unsigned> granted{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&] {
            for (int n = 0; n < 1000; n++)
                if (limits.charge_physical(1))
                    granted++;
        });
    for (auto &thread : threads)
        thread.join();
    EXPECT_EQ(granted, 1000u);
    EXPECT_EQ(limits.read().physical_used_bytes, 1000u);
}

TEST_F(SharedFile, TwoHoldersShareOneLimit)
{
    ledger_file one;
    ledger_file two;
    ASSERT_EQ(one.open(path().c_str()), 0);
    ASSERT_EQ(two.open(path().c_str()), 0);
    file_ledger first(one, 0, 100, 0);
    file_ledger second(two, 0, 100, 0);
    EXPECT_TRUE(first.charge_physical(70));
    EXPECT_FALSE(second.charge_physical(31));
    EXPECT_TRUE(second.charge_physical(30));
    EXPECT_EQ(first.read().physical_used_bytes, 100u);
}

TEST_F(SharedFile, AKilledProcessGivesItsShareBack)
{
    ledger_file rows;
    ASSERT_EQ(rows.open(path().c_str()), 0);
    file_ledger limits(rows, 0, 100, 100);
    const std::string file = path();
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        ledger_file own;
        if (own.open(file.c_str()) != 0)
            _exit(1);
        file_ledger share(own, 0, 100, 100);
        std::uint64_t token = 0;
        if (!share.charge_physical(80) || !share.charge_virtual(90, token) ||
            write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
        _exit(1);
    }
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    EXPECT_FALSE(limits.charge_physical(50));
    EXPECT_EQ(limits.read().virtual_used_bytes, 90u);
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    EXPECT_TRUE(limits.charge_physical(100));
    EXPECT_EQ(limits.read().virtual_used_bytes, 0u);
    close(ready[0]);
    close(ready[1]);
}

TEST_F(SharedFile, AForkedChildThatClosesTheLedgerLeavesTheParentsShare)
{
    ledger_file rows;
    ASSERT_EQ(rows.open(path().c_str()), 0);
    file_ledger limits(rows, 0, 100, 0);
    ASSERT_TRUE(limits.charge_physical(60));
    const pid_t child = fork();
    if (child == 0) {
        rows.close_after_fork();
        _exit(0);
    }
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    ledger_file other;
    ASSERT_EQ(other.open(path().c_str()), 0);
    file_ledger second(other, 0, 100, 0);
    EXPECT_FALSE(second.charge_physical(41));
    EXPECT_EQ(second.read().physical_used_bytes, 60u);
}

TEST(LedgerFile, WhatIsNoLedgerIsRefused)
{
    const int fd = memfd_create("not_a_ledger", 0);
    ASSERT_EQ(write(fd, "text", 4), 4);
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    ledger_file rows;
    EXPECT_EQ(rows.open(path.c_str()), EINVAL);
    ledger_file none;
    EXPECT_EQ(none.open("/nonexistent/ledger"), ENOENT);
    close(fd);
}

TEST(LedgerFile, ACopyOfTheAccountIsShownAndDecidesNothing)
{
    ledger_file rows;
    ASSERT_EQ(rows.open(nullptr), 0);
    file_ledger limits(rows, 0, 100, 10);
    charged_bytes shown;
    limits.show_in(shown);
    std::uint64_t token = 0;
    EXPECT_TRUE(limits.charge_physical(60));
    EXPECT_TRUE(limits.charge_virtual(10, token));
    EXPECT_TRUE(limits.charge_physical(10));
    limits.uncharge_physical(30);
    EXPECT_EQ(shown.vram, 40u);
    EXPECT_EQ(shown.most_vram, 70u);
    EXPECT_EQ(shown.ram, 10u);
    // By another process of the user's.
    shown = {1u << 30, 1u << 30, 1u << 30, 1u << 30};
    EXPECT_EQ(limits.own_physical_bytes(), 40u);
    EXPECT_FALSE(limits.charge_physical(61));
    EXPECT_TRUE(limits.charge_physical(60));
    EXPECT_EQ(limits.own_physical_bytes(), 100u);
    EXPECT_EQ(limits.read().virtual_used_bytes, 10u);
}

namespace {

// Notes what is shown while bytes are given back: from then on they are
// others'.
class given_back final : public ledger
{
public:
    charged_bytes shown;
    charged_bytes then;
    std::uint64_t own_then = 0;

    given_back() { show_in(shown); }
    usage read() const override { return {}; }

private:
    bool take_physical(std::uint64_t) override { return true; }
    bool take_virtual(std::uint64_t, std::uint64_t &) override { return true; }
    void give_physical(std::uint64_t) override
    {
        then.vram = shown.vram;
        own_then = own_physical_bytes();
    }
    void give_virtual(std::uint64_t, std::uint64_t) override
    {
        then.ram = shown.ram;
    }
};

} // namespace

// Otherwise the peak could pass the share.
TEST(Ledger, BytesThatOthersCanChargeAreShownAsHeldNoMore)
{
    given_back limits;
    std::uint64_t token = 0;
    EXPECT_TRUE(limits.charge_physical(60));
    EXPECT_TRUE(limits.charge_virtual(10, token));
    limits.uncharge_physical(20);
    limits.uncharge_virtual(4, token);
    EXPECT_EQ(limits.then.vram, 40u);
    EXPECT_EQ(limits.own_then, 40u);
    EXPECT_EQ(limits.then.ram, 6u);
}

TEST(LedgerFile, WhereNoFileMayGrowOnlyASharedOneIsRefused)
{
    const std::string path =
        testing::TempDir() + "ledger_test." + std::to_string(getpid());
    close(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    const auto in_child = [&] {
        const rlimit none = {0, 0};
        setrlimit(RLIMIT_FSIZE, &none);
        ledger_file own;
        ledger_file shared;
        const bool right =
            own.open(nullptr) == 0 && shared.open(path.c_str()) == EFBIG;
        std::_Exit(right ? 0 : 1);
    };
    EXPECT_EXIT(in_child(), testing::ExitedWithCode(0), "");
    unlink(path.c_str());
}

// ---- The instance's

namespace {

struct FakeInstance
{
    std::uint64_t physical = 0;
    std::uint64_t used = 0;
    std::uint64_t next_offset = 0;
    std::uint32_t abi = EMUV_ABI_VERSION;
    int open_error = 0;
    unsigned regions = 0;
    emuv::cuda::counters moved;
    int open_files = 0;
    std::string opened;
    bool waits = true;             // the driver knows of waiting
    std::uint64_t deadline_ns = 0; // of the last charge that waits
    bool disturbs = true;          // while one waits
    bool can_be_ended = false;     // by a signal meanwhile
    std::uint64_t comes_free = 0;  // while one waits
    int called_off = 0;            // waits
    int fails_with = 0;            // a charge that waits
    std::uint32_t state = 0;
    std::uint32_t waiters = 0;
    int polls = 0;
    // The answers of poll(), each with the state from then on; then it fails.
    std::vector<std::pair<int, std::uint32_t>> polled;
} instance;

int fake_ioctl(int, unsigned long request, void *argument)
{
    switch (request) {
    case EMUV_IOC_VERSION: {
        auto &version = *static_cast<emuv_version *>(argument);
        version.abi = instance.abi;
        version.chunk_bytes = EMUV_CHUNK_BYTES;
        std::strcpy(version.module_version, "9.8.7");
        return 0;
    }
    case EMUV_IOC_CHARGE: {
        const auto &charge = *static_cast<emuv_charge *>(argument);
        if ((charge.flags & EMUV_CHARGE_WAIT) != 0) {
            if (!instance.waits) {
                errno = E2BIG;
                return -1;
            }
            instance.deadline_ns = charge.deadline_ns;
            sigset_t now;
            pthread_sigmask(SIG_BLOCK, nullptr, &now);
            instance.disturbs = sigismember(&now, SIGPROF) == 0;
            instance.can_be_ended = sigismember(&now, SIGINT) == 0;
            if (instance.fails_with != 0) {
                errno = instance.fails_with;
                return -1;
            }
            instance.used -= instance.comes_free;
            if (instance.used + charge.bytes > instance.physical) {
                errno = ETIMEDOUT;
                return -1;
            }
        } else if (charge.deadline_ns != 0) {
            errno = EINVAL;
            return -1;
        }
        if (charge.size != sizeof charge ||
            instance.used + charge.bytes > instance.physical) {
            errno = ENOSPC;
            return -1;
        }
        instance.used += charge.bytes;
        return 0;
    }
    case EMUV_IOC_UNCHARGE: {
        const auto &charge = *static_cast<emuv_charge *>(argument);
        instance.used -= charge.bytes;
        if ((charge.flags & EMUV_UNCHARGE_CANCEL) != 0)
            instance.called_off++;
        return 0;
    }
    case EMUV_IOC_ALLOC: {
        auto &region = *static_cast<emuv_alloc *>(argument);
        region.offset = instance.next_offset;
        instance.next_offset += region.bytes;
        instance.regions++;
        return 0;
    }
    case EMUV_IOC_FREE:
        instance.regions--;
        return 0;
    case EMUV_IOC_REPORT: {
        const auto &report = *static_cast<emuv_report *>(argument);
        instance.moved.spills += report.spills;
        instance.moved.fetched_bytes += report.fetched_bytes;
        instance.moved.evicted_bytes += report.evicted_bytes;
        instance.moved.faults += report.faults;
        instance.moved.hit_bytes += report.hit_bytes;
        instance.moved.miss_bytes += report.miss_bytes;
        instance.moved.stalled_ns += report.stalled_ns;
        return 0;
    }
    case EMUV_IOC_QUERY_INSTANCE: {
        auto &query = *static_cast<emuv_query_instance *>(argument);
        query.physical_bytes = instance.physical;
        query.physical_used_bytes = instance.used;
        query.state = instance.state;
        query.waiters = instance.waiters;
        return 0;
    }
    default:
        errno = ENOTTY;
        return -1;
    }
}

constexpr instance_calls fake_calls = {
    [](const char *path, int) {
        instance.opened = path;
        if (instance.open_error != 0) {
            errno = instance.open_error;
            return -1;
        }
        instance.open_files++;
        return 1000;
    },
    fake_ioctl,
    [](int) {
        instance.open_files--;
        return 0;
    },
    [](int, int) {
        instance.polls++;
        if (instance.polled.empty()) {
            errno = EBADF;
            return -1;
        }
        const auto [events, state] = instance.polled.front();
        instance.polled.erase(instance.polled.begin());
        instance.state = state;
        return events;
    },
};

} // namespace

TEST(LedgerInstance, EveryByteIsChargedToTheNode)
{
    instance = {};
    instance.physical = 100;
    char why[256] = "";
    {
        instance_ledger limits(fake_calls);
        ASSERT_TRUE(limits.open(7, why, sizeof why));
        EXPECT_EQ(instance.opened, "/dev/emuv7");
        EXPECT_TRUE(limits.charge_physical(70));
        EXPECT_FALSE(limits.charge_physical(31));
        EXPECT_EQ(limits.read().physical_used_bytes, 70u);
        limits.uncharge_physical(70);
        std::uint64_t first = 0;
        std::uint64_t second = 0;
        EXPECT_TRUE(limits.charge_virtual(EMUV_CHUNK_BYTES, first));
        EXPECT_TRUE(limits.charge_virtual(EMUV_CHUNK_BYTES, second));
        EXPECT_NE(first, second);
        limits.uncharge_virtual(EMUV_CHUNK_BYTES, first);
        limits.uncharge_virtual(EMUV_CHUNK_BYTES, second);
        limits.report({.spills = 3});
        limits.report({400, 0, 0, 1, 20, 300, 4000});
        limits.report({50, 6, 0, 0, 1, 0, 0});
    }
    EXPECT_EQ(instance.used, 0u);
    EXPECT_EQ(instance.regions, 0u);
    EXPECT_EQ(instance.moved.spills, 3u);
    EXPECT_EQ(instance.moved,
              (emuv::cuda::counters{450, 6, 3, 1, 21, 300, 4000}));
    EXPECT_EQ(instance.open_files, 0);
}

TEST(LedgerInstance, OthersThatWaitAreAwaited)
{
    instance = {};
    char why[256] = "";
    instance_ledger limits(fake_calls);
    ASSERT_TRUE(limits.open(7, why, sizeof why));
    instance.polled = {{POLLPRI, EMUV_STATE_ROOM},
                       {0, EMUV_STATE_ROOM},
                       {POLLPRI, EMUV_STATE_WAITERS}};
    EXPECT_TRUE(limits.await_others());
    EXPECT_EQ(instance.polls, 3);
    // They still wait a second later, and then no more.
    instance.polled = {{0, EMUV_STATE_WAITERS}};
    EXPECT_TRUE(limits.await_others());
    instance.polled = {{0, 0}, {POLLERR | POLLHUP, EMUV_STATE_WAITERS}};
    EXPECT_FALSE(limits.await_others());
    EXPECT_FALSE(limits.await_others()) << "the file is closed";
}

TEST(LedgerInstance, OthersThatAnotherThreadWasToldOfAreNotMissed)
{
    instance = {};
    char why[256] = "";
    instance_ledger limits(fake_calls);
    ASSERT_TRUE(limits.open(7, why, sizeof why));
    instance.state = EMUV_STATE_WAITERS;
    limits.read();
    instance.polled = {{0, EMUV_STATE_WAITERS}};
    EXPECT_TRUE(limits.await_others());
}

TEST(LedgerInstance, WaitsCanBeCalledOff)
{
    instance = {};
    instance.physical = 100;
    char why[256] = "";
    instance_ledger limits(fake_calls);
    ASSERT_TRUE(limits.open(7, why, sizeof why));
    limits.call_off_waits();
    EXPECT_EQ(instance.called_off, 1);
    instance.fails_with = ECANCELED;
    EXPECT_FALSE(limits.charge_physical_within(30, 4000));
    EXPECT_EQ(instance.used, 0U);
    EXPECT_TRUE(limits.can_wait()) << "the next one sleeps again";
}

// The driver cannot have the charge wait, so the thread rests for @p ns.
void expect_a_rest_where_the_driver_says(int error, std::uint64_t ns)
{
    instance = {};
    instance.physical = 100;
    char why[256] = "";
    instance_ledger limits(fake_calls);
    ASSERT_TRUE(limits.open(7, why, sizeof why));
    instance.fails_with = error;
    const std::uint64_t before = now_ns();
    EXPECT_FALSE(limits.charge_physical_within(30, ns));
    EXPECT_GE(now_ns() - before, ns) << "the caller spins";
    EXPECT_EQ(instance.used, 0U) << "it has overtaken those who wait";
    EXPECT_TRUE(limits.can_wait()) << "it polls for good";
    instance.fails_with = 0;
    EXPECT_TRUE(limits.charge_physical_within(30, ns));
    EXPECT_EQ(instance.used, 30U);
}

TEST(LedgerInstance, AThreadBehindTooManyRestsAndMayWaitLater)
{
    expect_a_rest_where_the_driver_says(EAGAIN, 2'000'000);
}

TEST(LedgerInstance, AThreadWhoseCgroupIsFullRestsAndMayWaitLater)
{
    expect_a_rest_where_the_driver_says(ENOSPC, 500'000);
}

TEST(LedgerInstance, AThreadWhoseKernelIsShortOfMemoryRestsAndMayWaitLater)
{
    expect_a_rest_where_the_driver_says(ENOMEM, 500'000);
}

TEST(LedgerInstance, AChargeMaySleepInTheDriver)
{
    instance = {};
    instance.physical = 100;
    char why[256] = "";
    instance_ledger limits(fake_calls);
    ASSERT_TRUE(limits.open(7, why, sizeof why));
    EXPECT_TRUE(limits.can_wait());
    EXPECT_TRUE(limits.charge_physical(80));
    const std::uint64_t before = now_ns();
    EXPECT_FALSE(limits.charge_physical_within(30, 4000));
    EXPECT_GE(instance.deadline_ns, before + 4000);
    EXPECT_LE(instance.deadline_ns, now_ns() + 4000);
    EXPECT_FALSE(instance.disturbs);
    EXPECT_TRUE(instance.can_be_ended);
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, nullptr, &now);
    EXPECT_EQ(sigismember(&now, SIGPROF), 0);
    EXPECT_EQ(limits.own_physical_bytes(), 80u);
    instance.comes_free = 20;
    EXPECT_TRUE(limits.charge_physical_within(30, 5000));
    EXPECT_EQ(limits.own_physical_bytes(), 110u);
    EXPECT_EQ(limits.ever_physical_bytes(), 110u);
    EXPECT_TRUE(limits.can_wait());
}

TEST(LedgerInstance, ADriverThatKnowsNoWaitingIsAskedAtOnce)
{
    instance = {};
    instance.physical = 100;
    instance.waits = false;
    char why[256] = "";
    instance_ledger limits(fake_calls);
    ASSERT_TRUE(limits.open(7, why, sizeof why));
    EXPECT_TRUE(limits.charge_physical_within(80, 4000));
    EXPECT_FALSE(limits.can_wait());
    EXPECT_FALSE(limits.charge_physical_within(30, 4000));
    EXPECT_EQ(limits.own_physical_bytes(), 80u);
}

TEST(LedgerInstance, WhatOthersWaitForIsFreeButSpokenFor)
{
    instance = {};
    instance.physical = 100;
    char why[256] = "";
    instance_ledger limits(fake_calls);
    ASSERT_TRUE(limits.open(7, why, sizeof why));
    EXPECT_TRUE(limits.charge_physical(70));
    EXPECT_EQ(limits.read().physical_free_bytes(), 30u);
    EXPECT_FALSE(limits.read().spoken_for);
    instance.state = EMUV_STATE_WAITERS;
    instance.waiters = 1;
    EXPECT_EQ(limits.read().physical_free_bytes(), 30u);
    EXPECT_TRUE(limits.read().spoken_for);
    // A charge that waits for its own client holds nobody up.
    instance.state = EMUV_STATE_WAITERS | EMUV_STATE_ROOM;
    EXPECT_FALSE(limits.read().spoken_for);
}

TEST(LedgerInstance, AMissingNodeAndAnotherAbiAreExplained)
{
    instance = {};
    instance.open_error = ENOENT;
    char why[256] = "";
    instance_ledger absent(fake_calls);
    EXPECT_FALSE(absent.open(0, why, sizeof why));
    EXPECT_STREQ(why, "/dev/emuv0: No such file or directory");

    instance = {};
    instance.abi = 77;
    instance_ledger newer(fake_calls);
    EXPECT_FALSE(newer.open(0, why, sizeof why));
    EXPECT_STREQ(why, "/dev/emuv0: the module (version 9.8.7) speaks ABI 77, "
                      "this library 1");
    EXPECT_EQ(instance.open_files, 0);
}
