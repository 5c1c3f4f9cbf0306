// SPDX-License-Identifier: GPL-2.0-or-later
// Changing the sizes of an instance, in use or not. Some changes must be
// refused; clients, ledger and the host's promises must follow the others.
#include "support.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <future>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <linux/capability.h>
#include <unistd.h>

namespace {

using namespace guest;

class resize : public driver_test
{
protected:
    emuv_query_instance now(int id) const { return query(control, id); }

    int set_sizes(int id, std::optional<u64> physical,
                  std::optional<u64> virtual_bytes) const
    {
        auto argument = fresh<emuv_resize>();
        argument.id = id;
        argument.flags = (physical ? EMUV_RESIZE_PHYSICAL : 0) |
                         (virtual_bytes ? EMUV_RESIZE_VIRTUAL : 0);
        argument.physical_bytes = physical.value_or(0);
        argument.virtual_bytes = virtual_bytes.value_or(0);
        return call(control, EMUV_IOC_RESIZE, argument);
    }

    /// The limits are these, wherever they are asked for.
    void expect_sizes(int id, u64 physical, u64 virtual_bytes) const
    {
        EXPECT_EQ(now(id).physical_bytes, physical);
        EXPECT_EQ(now(id).virtual_bytes, virtual_bytes);
        EXPECT_EQ(attribute(id, "physical_bytes"), std::to_string(physical));
        EXPECT_EQ(attribute(id, "virtual_bytes"),
                  std::to_string(virtual_bytes));
        EXPECT_EQ(attribute(id, "total_bytes"),
                  std::to_string(physical + virtual_bytes));
        EXPECT_EQ(lseek(open_client(id).get(), 0, SEEK_END),
                  static_cast<off_t>(virtual_bytes));
    }
};

TEST_F(resize, BothSizesGrowAndShrinkOnTheirOwnOrTogether)
{
    const int id = create(control, gib, 16 * mib);
    EXPECT_EQ(set_sizes(id, 2 * gib, std::nullopt), 0);
    expect_sizes(id, 2 * gib, 16 * mib);
    EXPECT_EQ(set_sizes(id, std::nullopt, 32 * mib), 0);
    expect_sizes(id, 2 * gib, 32 * mib);
    EXPECT_EQ(set_sizes(id, 7, 4 * mib), 0);
    expect_sizes(id, 7, 4 * mib);
    EXPECT_EQ(set_sizes(id, std::nullopt, 0), 0);
    expect_sizes(id, 7, 0);
    EXPECT_EQ(set_sizes(id, 0, 2 * mib), 0);
    expect_sizes(id, 0, 2 * mib);
    EXPECT_EQ(set_sizes(id, 0, 2 * mib), 0) << "no change at all";
}

TEST_F(resize, SizesThatNoInstanceMayHaveAreRefused)
{
    const int id = create(control, mib, 4 * mib);
    EXPECT_EQ(set_sizes(id, 0, 0), EINVAL);
    EXPECT_EQ(set_sizes(id, std::nullopt, 3 * mib), EINVAL);
    EXPECT_EQ(set_sizes(id, EMUV_MAX_BYTES + 1, std::nullopt), EINVAL);
    EXPECT_EQ(set_sizes(id, EMUV_MAX_BYTES, std::nullopt), EINVAL)
        << "together with the virtual bytes";
    EXPECT_EQ(set_sizes(id, ~u64{0}, ~u64{0} - 2 * mib + 1), EINVAL);
    EXPECT_EQ(set_sizes(id, std::nullopt, std::nullopt), EINVAL);
    EXPECT_EQ(set_sizes(id + 1, mib, std::nullopt), ENODEV);
    auto argument = fresh<emuv_resize>();
    argument.id = id;
    argument.flags = EMUV_RESIZE_PHYSICAL;
    argument.physical_bytes = 2 * mib;
    argument.virtual_bytes = 8 * mib;
    EXPECT_EQ(call(control, EMUV_IOC_RESIZE, argument), EINVAL)
        << "a size without its flag";
    EXPECT_EQ(call(open_client(id), EMUV_IOC_RESIZE, argument), ENOTTY);
    argument.virtual_bytes = 0;
    {
        const without_capability dropped(CAP_SYS_ADMIN);
        EXPECT_EQ(call(control, EMUV_IOC_RESIZE, argument), EPERM);
    }
    expect_sizes(id, mib, 4 * mib);
}

TEST_F(resize, NothingIsTakenFromThoseWhoHaveIt)
{
    const int id = create(control, gib, 16 * mib);
    const auto client = open_client(id);
    ASSERT_EQ(charge(client, 100), 0);
    const auto first = allocate(client, 4 * mib);
    const auto last = allocate(client, 4 * mib);
    EXPECT_EQ(set_sizes(id, 99, std::nullopt), EBUSY);
    EXPECT_EQ(set_sizes(id, std::nullopt, 6 * mib), EBUSY);
    EXPECT_EQ(set_sizes(id, 99, 32 * mib), EBUSY) << "all or nothing";
    expect_sizes(id, gib, 16 * mib);
    EXPECT_EQ(set_sizes(id, 100, 8 * mib), 0);
    expect_sizes(id, 100, 8 * mib);
    EXPECT_EQ(charge(client, 1), ENOSPC);
    region got;
    EXPECT_EQ(try_allocate(client, chunk, got), ENOSPC);

    // The region that is left lies at the end.
    ASSERT_EQ(release(client, first.offset), 0);
    EXPECT_EQ(set_sizes(id, std::nullopt, 4 * mib), EBUSY);
    EXPECT_EQ(now(id).virtual_used_bytes, 4 * mib);
    ASSERT_EQ(release(client, last.offset), 0);
    EXPECT_EQ(set_sizes(id, std::nullopt, 4 * mib), 0);
    expect_sizes(id, 100, 4 * mib);
}

TEST_F(resize, WhatIsGainedCanBeUsedAtOnceByThoseWhoAreThere)
{
    const int id = create(control, 10, 4 * mib);
    const auto client = open_client(id);
    const auto old = allocate(client, 4 * mib);
    const mapping before(client.get(), old.bytes, old.offset);
    fill_pattern(before.data(), before.size(), 1);
    ASSERT_EQ(charge(client, 10), 0);
    EXPECT_EQ(charge(client, 1), ENOSPC);
    ASSERT_EQ(set_sizes(id, 20, 12 * mib), 0);
    EXPECT_EQ(charge(client, 10), 0);
    EXPECT_EQ(charge(client, 1), ENOSPC);
    const auto more = allocate(client, 8 * mib);
    EXPECT_EQ(more.offset, 4 * mib);
    const mapping map(client.get(), more.bytes, more.offset);
    EXPECT_FALSE(first_other(map.data(), map.size()));
    fill_pattern(map.data(), map.size(), 2);
    EXPECT_FALSE(first_pattern_error(before.data(), before.size(), 1));
    EXPECT_FALSE(first_pattern_error(map.data(), map.size(), 2));
    EXPECT_EQ(now(id).resident_bytes, 12 * mib);
}

TEST_F(resize, AClientsPartStaysAsItWasCreated)
{
    auto argument = creation(0, 16 * mib);
    argument.client_virtual_bytes = 8 * mib;
    const int id = create(control, argument);
    ASSERT_EQ(set_sizes(id, std::nullopt, 4 * mib), 0);
    EXPECT_EQ(now(id).client_virtual_bytes, 4 * mib);
    ASSERT_EQ(set_sizes(id, std::nullopt, 32 * mib), 0);
    EXPECT_EQ(now(id).client_virtual_bytes, 8 * mib);
    const int other = create(control, 0, 4 * mib);
    ASSERT_EQ(set_sizes(other, std::nullopt, 8 * mib), 0);
    EXPECT_EQ(now(other).client_virtual_bytes, 8 * mib);
}

TEST_F(resize, ChargesThatWaitAreServedOrToldThatTheyNeverWillBe)
{
    const int id = create(control, 100, 0);
    const auto holder = open_client(id);
    ASSERT_EQ(charge(holder, 50), 0);
    const auto wait_for = [&](u64 bytes) {
        return std::async(std::launch::async, [this, id, bytes] {
            const auto client = open_client(id);
            auto argument = fresh<emuv_charge>();
            argument.flags = EMUV_CHARGE_WAIT;
            argument.bytes = bytes;
            argument.deadline_ns = EMUV_NO_DEADLINE;
            return call(client, EMUV_IOC_CHARGE, argument);
        });
    };
    auto large = wait_for(90);
    ASSERT_TRUE(wait_until([&] { return now(id).waiters == 1; }));
    auto small = wait_for(60);
    ASSERT_TRUE(wait_until([&] { return now(id).waiters == 2; }));
    ASSERT_EQ(set_sizes(id, 80, std::nullopt), 0);
    EXPECT_EQ(large.get(), ENOSPC) << "it holds nobody up any more";
    EXPECT_EQ(now(id).waiters, 1U);
    ASSERT_EQ(set_sizes(id, 110, std::nullopt), 0);
    EXPECT_EQ(small.get(), 0);
    EXPECT_TRUE(wait_until([&] { return now(id).clients == 1; }));
    EXPECT_EQ(now(id).physical_used_bytes, 50U);
    EXPECT_EQ(charge(holder, 60), 0);
}

TEST_F(resize, TheHostPromisesNoMoreThanItCanBack)
{
    const u64 promise = 64 * mib;
    const u64 most = promisable(control);
    ASSERT_GT(most, 4 * promise);
    const int id = create(control, 0, promise);
    const int other = create(control, 0, most - 2 * promise);
    EXPECT_EQ(set_sizes(id, std::nullopt, 2 * promise + chunk), ENOMEM);
    expect_sizes(id, 0, promise);
    EXPECT_EQ(set_sizes(id, std::nullopt, 2 * promise), 0);
    auto argument = creation(0, chunk);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), ENOMEM);
    EXPECT_EQ(set_sizes(other, std::nullopt, most - 2 * promise - chunk), 0);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), 0)
        << "what was given back can be promised again";
    ASSERT_EQ(destroy(control, argument.id), 0);
    ASSERT_EQ(destroy(control, id), 0);
    EXPECT_EQ(set_sizes(other, std::nullopt, most), 0)
        << "a larger instance takes all of its promise along";
    ASSERT_EQ(destroy(control, other), 0);
    const int free =
        create(control, creation(0, chunk, EMUV_ANY, EMUV_CREATE_OVERCOMMIT));
    EXPECT_EQ(set_sizes(free, std::nullopt, most + gib), 0);
}

TEST_F(resize, AGuaranteedInstanceTakesAndGivesBackItsRamAtOnce)
{
    const int id = create(
        control, creation(0, 16 * mib, EMUV_ANY, EMUV_CREATE_GUARANTEED));
    const auto client = open_client(id);
    const auto got = allocate(client, 8 * mib);
    const mapping map(client.get(), got.bytes, got.offset);
    fill_pattern(map.data(), map.size(), 1);
    EXPECT_EQ(now(id).reserve_bytes, 8 * mib);
    ASSERT_EQ(set_sizes(id, std::nullopt, 64 * mib), 0);
    EXPECT_EQ(now(id).reserve_bytes, 56 * mib);
    EXPECT_EQ(now(id).resident_bytes, 8 * mib);
    const auto more = allocate(client, 56 * mib, EMUV_ALLOC_POPULATE);
    EXPECT_EQ(now(id).reserve_bytes, 0U);
    ASSERT_EQ(release(client, more.offset), 0);
    EXPECT_EQ(now(id).reserve_bytes, 56 * mib);
    ASSERT_EQ(set_sizes(id, std::nullopt, 10 * mib), 0);
    EXPECT_EQ(now(id).reserve_bytes, 2 * mib);
    EXPECT_FALSE(first_pattern_error(map.data(), map.size(), 1));
    ASSERT_EQ(discard(client, got.offset, got.bytes), 0);
    EXPECT_EQ(now(id).reserve_bytes, 10 * mib);
}

TEST_F(resize, AGuaranteedInstanceStaysAsItIsWhereTheHostHasNoMore)
{
    const u64 available = settled_available();
    reload("host_floor_mb=" + std::to_string((available - 160 * mib) / mib));
    const int id = create(
        control, creation(0, 16 * mib, EMUV_ANY, EMUV_CREATE_GUARANTEED));
    const int other =
        create(control, creation(0, gib, EMUV_ANY, EMUV_CREATE_OVERCOMMIT));
    {
        const auto greedy = open_client(other);
        for (region got;
             try_allocate(greedy, chunk, got, EMUV_ALLOC_POPULATE) == 0;)
            ;
        EXPECT_EQ(set_sizes(id, std::nullopt, 64 * mib), ENOMEM);
        expect_sizes(id, 0, 16 * mib);
        EXPECT_EQ(now(id).reserve_bytes, 16 * mib);
        allocate(open_client(id), 16 * mib, EMUV_ALLOC_POPULATE);
    }
}

TEST_F(resize, NoTouchIsInVainWhileAGuaranteedInstanceChanges)
{
    const int id = create(
        control, creation(0, 16 * mib, EMUV_ANY, EMUV_CREATE_GUARANTEED));
    std::atomic<bool> done{false};
    std::atomic<unsigned> turns{0};
    std::vector<std::thread> users;
    for (int i = 0; i < 4; i++)
        users.emplace_back([&] {
            const auto client = open_client(id);
            const auto got = allocate(client, 2 * chunk);
            const mapping map(client.get(), got.bytes, got.offset);
            while (!done) {
                for (u64 at = 0; at < map.size(); at += chunk)
                    EXPECT_EQ(signal_of_write(map.data() + at), 0);
                EXPECT_EQ(discard(client, got.offset, got.bytes), 0);
                turns++;
            }
        });
    ASSERT_TRUE(wait_until([&] { return turns > 4; }));
    for (int round = 0; round < 30; round++) {
        EXPECT_EQ(set_sizes(id, std::nullopt, 32 * mib), 0);
        EXPECT_EQ(set_sizes(id, std::nullopt, 16 * mib), 0);
        const auto before = turns.load();
        ASSERT_TRUE(wait_until([&] { return turns > before; }));
    }
    done = true;
    for (auto &user : users)
        user.join();
    EXPECT_TRUE(wait_until([&] { return now(id).reserve_bytes == 16 * mib; }))
        << now(id).reserve_bytes;
    EXPECT_EQ(now(id).resident_bytes, 0U);
}

TEST_F(resize, SumsAddUpWhileClientsWorkAndSizesChange)
{
    const int id = create(control, 1000, 16 * mib);
    std::atomic<bool> done{false};
    std::atomic<unsigned> turns{0};
    std::vector<std::thread> users;
    for (int i = 0; i < 3; i++)
        users.emplace_back([&] {
            const auto client = open_client(id);
            while (!done) {
                region got;
                if (try_allocate(client, chunk, got) == 0) {
                    EXPECT_EQ(pwrite(client.get(), "x", 1,
                                     static_cast<off_t>(got.offset)),
                              1);
                    EXPECT_EQ(release(client, got.offset), 0);
                }
                if (charge(client, 300) == 0) {
                    EXPECT_EQ(uncharge(client, 300), 0);
                }
                turns++;
            }
        });
    unsigned shrunk = 0;
    for (int round = 0; round < 200 || shrunk == 0; round++) {
        ASSERT_LT(round, 100000);
        const int error = set_sizes(id, 400, 4 * mib);
        EXPECT_TRUE(error == 0 || error == EBUSY) << error;
        const auto is = now(id);
        EXPECT_LE(is.physical_used_bytes, is.physical_bytes);
        EXPECT_LE(is.virtual_used_bytes, is.virtual_bytes);
        shrunk += error == 0;
        ASSERT_EQ(set_sizes(id, 1000, 16 * mib), 0);
    }
    EXPECT_TRUE(wait_until([&] { return turns > 10; }));
    done = true;
    for (auto &user : users)
        user.join();
    EXPECT_TRUE(wait_until([&] { return now(id).clients == 0; }));
    EXPECT_EQ(now(id).physical_used_bytes, 0U);
    EXPECT_EQ(now(id).virtual_used_bytes, 0U);
    EXPECT_EQ(set_sizes(id, 1, 2 * mib), 0);
}

TEST_F(resize, AnInstanceThatGoesMeanwhileTakesItsPromiseAlong)
{
    const u64 before = promisable(control);
    for (int round = 0; round < 50; round++) {
        const int id =
            create(control, creation(0, 2 * mib, EMUV_ANY,
                                     round % 2 ? EMUV_CREATE_GUARANTEED : 0));
        std::thread grower([&] {
            for (u64 bytes = 4 * mib; bytes < 64 * mib; bytes += 2 * mib) {
                const int error = set_sizes(id, std::nullopt, bytes);
                EXPECT_TRUE(error == 0 || error == ENODEV) << error;
            }
        });
        EXPECT_EQ(destroy_eventually(control, id), 0);
        grower.join();
    }
    EXPECT_EQ(promisable(control), before);
}

TEST_F(resize, AnInstanceOutgrowsNotItsSwapFile)
{
    if (!load_stock_module("zram num_devices=1") ||
        !write_text("/sys/block/zram0/disksize", std::to_string(32 * mib)))
        GTEST_SKIP() << "no zram here";
    int id = -1;
    {
        const descriptor file(
            open("/dev/zram0", O_RDWR | O_DIRECT | O_EXCL | O_CLOEXEC));
        ASSERT_TRUE(file);
        auto argument = creation(0, 16 * mib, EMUV_ANY, EMUV_CREATE_SWAP);
        argument.swap_fd = file.get();
        id = create(control, argument);
    }
    EXPECT_EQ(set_sizes(id, std::nullopt, 34 * mib), EINVAL);
    ASSERT_EQ(set_sizes(id, std::nullopt, 32 * mib), 0);
    {
        const auto client = open_client(id);
        const auto got = allocate(client, 32 * mib);
        const mapping map(client.get(), got.bytes, got.offset);
        for (u64 at = 0; at < map.size(); at += 4096)
            map[at] = static_cast<unsigned char>(at >> 12U);
        EXPECT_TRUE(wait_until([&] {
            write_text("/proc/sys/vm/drop_caches", "2");
            return now(id).swapped_bytes == 32 * mib;
        }));
        for (u64 at = 0; at < map.size(); at += 4096)
            ASSERT_EQ(map[at], static_cast<unsigned char>(at >> 12U));
    }
    EXPECT_EQ(destroy_eventually(control, id), 0);
    EXPECT_TRUE(
        wait_until([] { return write_text("/sys/block/zram0/reset", "1"); }));
}

} // namespace
