// SPDX-License-Identifier: GPL-2.0-or-later
// Taking an instance from its holders: nothing of it works for them any more,
// and others notice nothing.
#include "pin.hpp"
#include "vgem.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include <linux/memfd.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using namespace guest;

constexpr u64 region_bytes = 4 * chunk;

class revoked : public driver_test
{
protected:
    void SetUp() override
    {
        before = settled_available();
        driver_test::SetUp();
        if (HasFatalFailure())
            return;
        id = create(control, gib, 128 * mib);
        client = open_client(id);
        got = allocate(client, region_bytes, EMUV_ALLOC_POPULATE);
    }

    void TearDown() override
    {
        client.reset();
        driver_test::TearDown();
    }

    void revoke() const
    {
        ASSERT_EQ(destroy(control, id, EMUV_DESTROY_FORCE), 0);
    }

    off_t at(u64 offset = 0) const
    {
        return static_cast<off_t>(got.offset + offset);
    }

    u64 before = 0;
    int id = -1;
    descriptor client;
    region got;
};

TEST_F(revoked, InstanceIsGoneForThoseWhoLookForIt)
{
    revoke();
    EXPECT_FALSE(exists(node_path(id)));
    EXPECT_EQ(destroy(control, id), ENODEV);
    EXPECT_EQ(destroy(control, id, EMUV_DESTROY_FORCE), ENODEV);
    auto argument = fresh<emuv_query_instance>();
    argument.id = id;
    EXPECT_EQ(call(control, EMUV_IOC_QUERY_INSTANCE, argument), ENODEV);
}

TEST_F(revoked, WithoutHoldersItIsDestroyedAsAnyOther)
{
    client.reset();
    revoke();
    EXPECT_FALSE(exists(node_path(id)));
}

TEST_F(revoked, OtherFlagsAreRefused)
{
    EXPECT_EQ(destroy(control, id, 2), EINVAL);
    EXPECT_TRUE(exists(node_path(id)));
}

TEST_F(revoked, CallsOfAClientGiveEnodev)
{
    ASSERT_EQ(charge(client, 1000), 0);
    const auto exported = export_region(client, got.offset);
    revoke();
    char byte = 'x';
    EXPECT_EQ(error_of(pread(client.get(), &byte, 1, at())), ENODEV);
    EXPECT_EQ(error_of(pwrite(client.get(), &byte, 1, at())), ENODEV);
    EXPECT_EQ(map_error(client.get(), chunk, got.offset), ENODEV);
    region more;
    EXPECT_EQ(try_allocate(client, chunk, more), ENODEV);
    EXPECT_EQ(release(client, got.offset), ENODEV);
    EXPECT_EQ(discard(client, got.offset, chunk), ENODEV);
    EXPECT_EQ(charge(client, 1), ENODEV);
    EXPECT_EQ(uncharge(client, 1), ENODEV);
    EXPECT_EQ(import_region(client, exported, more), ENODEV);
    auto argument = fresh<emuv_export>();
    argument.offset = got.offset;
    EXPECT_EQ(call(client, EMUV_IOC_EXPORT, argument), ENODEV);
}

TEST_F(revoked, RegionDescriptorsGiveEnodev)
{
    const auto exported = export_region(client, got.offset);
    revoke();
    char byte = 'x';
    EXPECT_EQ(error_of(pread(exported.get(), &byte, 1, 0)), ENODEV);
    EXPECT_EQ(error_of(pwrite(exported.get(), &byte, 1, 0)), ENODEV);
    EXPECT_EQ(map_error(exported.get(), chunk, 0), ENODEV);
    EXPECT_EQ(error_of(fallocate(exported.get(),
                                 FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                                 static_cast<off_t>(chunk))),
              ENODEV);
}

TEST_F(revoked, MappingsRaiseSigbusThroughWhateverTheyCame)
{
    const auto exported = export_region(client, got.offset);
    const auto dmabuf = export_region(client, got.offset, EMUV_EXPORT_DMABUF);
    const mapping maps[] = {
        mapping(client.get(), got.bytes, got.offset),
        mapping(exported.get(), got.bytes),
        mapping(dmabuf.get(), got.bytes),
    };
    for (const auto &map : maps)
        std::memset(map.data(), 'x', map.size() / 2);
    revoke();
    for (const auto &map : maps) {
        EXPECT_EQ(signal_of_read(map.data()), SIGBUS);
        EXPECT_EQ(signal_of_write(map.data() + chunk), SIGBUS);
        EXPECT_EQ(signal_of_write(map.data() + got.bytes - 1), SIGBUS)
            << "never touched before";
    }
    EXPECT_EQ(map_error(dmabuf.get(), chunk, 0), ENODEV);
}

TEST_F(revoked, MemoryIsTheHostsWhileItIsStillHeld)
{
    const auto more = allocate(client, 64 * mib, EMUV_ALLOC_POPULATE);
    const mapping map(client.get(), more.bytes, more.offset);
    map[0] = 1;
    EXPECT_LT(settled_available(), before - 56 * mib);
    revoke();
    EXPECT_TRUE(
        wait_until([&] { return settled_available() + 8 * mib > before; }));
    EXPECT_EQ(signal_of_read(map.data()), SIGBUS);
}

TEST_F(revoked, OthersAreNotDisturbed)
{
    const int beside = create(control, mib, 64 * mib);
    const auto neighbour = open_client(beside);
    const auto theirs = allocate(neighbour, region_bytes);
    const mapping map(neighbour.get(), theirs.bytes, theirs.offset);
    fill_pattern(map.data(), map.size(), 1);
    revoke();
    EXPECT_FALSE(first_pattern_error(map.data(), map.size(), 1));
    EXPECT_EQ(charge(neighbour, 1), 0);
    EXPECT_EQ(query(control, beside).clients, 1U);
}

TEST_F(revoked, NumberIsFreeAndLeadsToTheNewOne)
{
    const mapping map(client.get(), got.bytes, got.offset);
    revoke();
    ASSERT_EQ(create(control, creation(mib, 64 * mib, id)), id);
    {
        const auto next = open_client(id);
        const auto theirs = allocate(next, region_bytes, EMUV_ALLOC_POPULATE);
        EXPECT_TRUE(reads_zero(next.get(), theirs.offset, theirs.bytes));
        char byte = 'x';
        EXPECT_EQ(error_of(pwrite(client.get(), &byte, 1, at())), ENODEV);
        EXPECT_EQ(signal_of_write(map.data()), SIGBUS);
        EXPECT_TRUE(reads_zero(next.get(), theirs.offset, theirs.bytes));
        EXPECT_EQ(query(control, id).clients, 1U);
    }
    client.reset();
    EXPECT_EQ(query(control, id).clients, 0U);
    EXPECT_EQ(destroy(control, id), 0);
}

TEST_F(revoked, NodeThatWasOpenLeadsToTheNewOne)
{
    const std::string path = "/dev/emuv-of-ours";
    struct stat status
    {};
    checked(stat(node_path(id).c_str(), &status), "stat");
    checked(mknod(path.c_str(), S_IFCHR | 0600, status.st_rdev), "mknod");
    const descriptor old(open(path.c_str(), O_RDWR | O_CLOEXEC));
    EXPECT_TRUE(old);
    revoke();
    EXPECT_EQ(error_of(open(path.c_str(), O_RDWR | O_CLOEXEC)), ENXIO);
    EXPECT_EQ(create(control, creation(mib, 64 * mib, id)), id);
    const descriptor next(open(path.c_str(), O_RDWR | O_CLOEXEC));
    EXPECT_TRUE(next) << errno;
    unlink(path.c_str());
    EXPECT_EQ(query(control, id).clients, 1U);
    EXPECT_EQ(charge(next, 1), 0);
    EXPECT_EQ(charge(old, 1), ENODEV);
}

TEST_F(revoked, ListOfRegionsEndsForThoseWhoReadIt)
{
    const std::string folder = "/sys/kernel/debug/emuv";
    if (!exists(folder))
        GTEST_SKIP() << "no debugfs here";
    const auto path = folder + "/emuv" + std::to_string(id) + "/regions";
    descriptor list(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(list);
    char byte = 0;
    EXPECT_EQ(read(list.get(), &byte, 1), 1);
    revoke();
    EXPECT_FALSE(exists(path));
    EXPECT_EQ(error_of(pread(list.get(), &byte, 1, 1)), EIO);
    ASSERT_EQ(create(control, creation(mib, 64 * mib, id)), id);
    EXPECT_TRUE(exists(path)) << "of the new one";
    EXPECT_EQ(destroy(control, id), 0);
    client.reset();
    control.reset();
    EXPECT_EQ(unload(), EWOULDBLOCK) << "the file is open";
    list.reset();
    EXPECT_EQ(unload_eventually(), 0);
    EXPECT_EQ(leftovers(), "");
}

TEST_F(revoked, HoldersKeepTheModuleAndLetGoOfIt)
{
    auto exported = export_region(client, got.offset);
    auto map = std::make_unique<mapping>(exported.get(), got.bytes);
    revoke();
    control.reset();
    EXPECT_EQ(unload(), EWOULDBLOCK);
    client.reset();
    EXPECT_EQ(unload(), EWOULDBLOCK);
    exported.reset();
    EXPECT_EQ(unload(), EWOULDBLOCK);
    map.reset();
    EXPECT_EQ(unload_eventually(), 0);
    EXPECT_EQ(leftovers(), "");
}

TEST_F(revoked, PinnedPagesStayWithWhoeverPinnedThem)
{
    const mapping map(client.get(), got.bytes, got.offset);
    std::memset(map.data(), 'p', map.size());
    pin pinned(map.data(), map.size());
    if (pinned.error() == EOPNOTSUPP)
        GTEST_SKIP() << "io_uring registers no memory of device files here";
    ASSERT_EQ(pinned.error(), 0);
    const descriptor file(static_cast<int>(
        checked(memfd_create("emuv-test", MFD_CLOEXEC), "memfd_create")));
    checked(ftruncate(file.get(), static_cast<off_t>(map.size())), "ftruncate");
    const mapping contents(file.get(), map.size());
    revoke();
    EXPECT_EQ(signal_of_read(map.data()), SIGBUS);
    // The host's free memory goes to others.
    const int other = create(control, creation(mib, 128 * mib));
    const auto next = open_client(other);
    const auto theirs = allocate(next, 128 * mib, EMUV_ALLOC_POPULATE);
    const mapping beside(next.get(), theirs.bytes, theirs.offset);
    std::memset(beside.data(), 'n', beside.size());
    ASSERT_EQ(pinned.to_file(file.get(), map.data(),
                             static_cast<unsigned>(map.size()), 0),
              static_cast<int>(map.size()));
    EXPECT_FALSE(first_other(contents.data(), map.size(), 'p'));
    std::memset(contents.data(), 'd', map.size());
    ASSERT_EQ(pinned.from_file(file.get(), map.data(),
                               static_cast<unsigned>(map.size()), 0),
              static_cast<int>(map.size()));
    EXPECT_FALSE(first_other(beside.data(), beside.size(), 'n'));
}

TEST_F(revoked, PinnedMemoryIsTheHostsOnceItIsUnpinnedWhileAHolderLives)
{
    const auto more = allocate(client, 64 * mib, EMUV_ALLOC_POPULATE);
    const mapping map(client.get(), more.bytes, more.offset);
    std::memset(map.data(), 'p', map.size());
    auto pinned = std::make_unique<socket_pin>(map.data(), map.size());
    ASSERT_EQ(pinned->error(), 0);
    revoke();
    EXPECT_LT(settled_available(), before - 56 * mib) << "it is still pinned";
    pinned.reset();
    EXPECT_TRUE(
        wait_until([&] { return settled_available() + 6 * mib > before; }));
}

TEST_F(revoked, ReadsThatRaceWithItGiveNoZerosForData)
{
    for (int round = 0; round < 8; round++) {
        const int target = create(control, gib, 64 * mib);
        const auto shared = open_client(target);
        const auto where = allocate(shared, 16 * mib);
        {
            const mapping map(shared.get(), where.bytes, where.offset);
            std::memset(map.data(), 'x', map.size());
        }
        std::atomic<unsigned> turns = 0;
        std::atomic<unsigned> wrong = 0;
        std::vector<std::thread> readers;
        for (int i = 0; i < 3; i++)
            readers.emplace_back([&] {
                std::vector<unsigned char> data(where.bytes);
                ssize_t count = 0;
                do {
                    count = pread(shared.get(), data.data(), data.size(),
                                  static_cast<off_t>(where.offset));
                    if (count > 0)
                        wrong += first_other(data.data(),
                                             static_cast<u64>(count), 'x')
                                     .has_value();
                    turns++;
                } while (count > 0);
            });
        EXPECT_TRUE(wait_until([&] { return turns > 6; }));
        EXPECT_EQ(destroy(control, target, EMUV_DESTROY_FORCE), 0);
        for (auto &thread : readers)
            thread.join();
        EXPECT_EQ(wrong, 0U);
    }
}

TEST_F(revoked, ChargesThatWaitEnd)
{
    constexpr int waiters = 3;
    ASSERT_EQ(charge(client, gib), 0);
    std::vector<descriptor> clients;
    std::vector<std::future<int>> answers;
    for (int i = 0; i < waiters; i++) {
        clients.push_back(open_client(id));
        answers.push_back(
            std::async(std::launch::async, [fd = clients.back().get()] {
                auto argument = fresh<emuv_charge>();
                argument.flags = EMUV_CHARGE_WAIT;
                argument.bytes = mib;
                argument.deadline_ns = EMUV_NO_DEADLINE;
                return call(fd, EMUV_IOC_CHARGE, &argument);
            }));
    }
    EXPECT_TRUE(
        wait_until([&] { return query(control, id).waiters == waiters; }));
    revoke();
    for (auto &answer : answers)
        EXPECT_EQ(answer.get(), ENODEV);
}

TEST_F(revoked, PollersWakeWithErrorAndHangup)
{
    constexpr short gone = POLLERR | POLLHUP;
    const auto polled = [&](int timeout_ms) {
        pollfd what{client.get(), POLLPRI, 0};
        checked(poll(&what, 1, timeout_ms), "poll");
        return what.revents;
    };
    ASSERT_EQ(polled(0), 0);
    auto woken = std::async(std::launch::async, [&] { return polled(120000); });
    revoke();
    EXPECT_EQ(woken.get() & gone, gone);
    EXPECT_EQ(polled(0) & gone, gone) << "later, too";
}

TEST_F(revoked, ReserveOfAGuaranteedInstanceIsTheHostsAgain)
{
    constexpr u64 size = 64 * mib;
    const int other =
        create(control, creation(mib, size, EMUV_ANY, EMUV_CREATE_GUARANTEED));
    const auto holder = open_client(other);
    const auto theirs = allocate(holder, size);
    const mapping map(holder.get(), theirs.bytes, theirs.offset);
    std::memset(map.data(), 'x', size / 2);
    EXPECT_LT(settled_available(), before - 56 * mib);
    ASSERT_EQ(destroy(control, other, EMUV_DESTROY_FORCE), 0);
    EXPECT_EQ(signal_of_read(map.data()), SIGBUS);
    EXPECT_EQ(signal_of_write(map.data() + size - 1), SIGBUS)
        << "never touched before";
    EXPECT_TRUE(wait_until(
        [&] { return settled_available() + 8 * mib + region_bytes > before; }));
}

TEST_F(revoked, TouchesOfAGuaranteedInstanceRaceWithIt)
{
    constexpr u64 size = 16 * mib;
    for (int round = 0; round < 20; round++) {
        const int other = create(
            control, creation(mib, size, EMUV_ANY, EMUV_CREATE_GUARANTEED));
        const auto holder = open_client(other);
        const auto theirs = allocate(holder, size);
        const mapping map(holder.get(), theirs.bytes, theirs.offset);
        std::atomic<bool> done = false;
        std::atomic<unsigned> turns = 0;
        std::vector<std::thread> busy;
        for (int i = 0; i < 3; i++)
            busy.emplace_back([&] {
                while (!done) {
                    for (u64 place = 0; place < size; place += chunk)
                        signal_of_write(map.data() + place);
                    discard(holder, theirs.offset, size);
                    turns++;
                }
            });
        EXPECT_TRUE(wait_until([&] { return turns > 6; }));
        EXPECT_EQ(destroy(control, other, EMUV_DESTROY_FORCE), 0);
        done = true;
        for (auto &thread : busy)
            thread.join();
        EXPECT_EQ(signal_of_read(map.data()), SIGBUS);
    }
    EXPECT_TRUE(wait_until(
        [&] { return settled_available() + 8 * mib + region_bytes > before; }));
}

TEST_F(revoked, MemoryThatLingersIsLeftToItsPins)
{
    ASSERT_EQ(release(client, got.offset), 0);
    got = allocate(client, 64 * mib);
    auto map = std::make_unique<mapping>(client.get(), got.bytes, got.offset);
    std::memset(map->data(), 'p', map->size());
    {
        const socket_pin pinned(map->data(), map->size());
        ASSERT_EQ(pinned.error(), 0);
        map.reset();
        ASSERT_EQ(release(client, got.offset), 0);
        EXPECT_EQ(query(control, id).virtual_used_bytes, got.bytes);
        EXPECT_EQ(destroy(control, id), EBUSY);
        revoke();
        client.reset();
    }
    EXPECT_TRUE(
        wait_until([&] { return settled_available() + 6 * mib > before; }));
}

TEST_F(revoked, DeviceKeepsWhatItHasMappedAndGetsNoMore)
{
    const auto device = open_vgem();
    if (!device)
        GTEST_SKIP() << "this kernel has no vgem";
    if (!vgem_maps())
        GTEST_SKIP() << "this kernel's vgem does not map what it imports";
    const auto more = allocate(client, 64 * mib);
    const auto one = export_region(client, more.offset, EMUV_EXPORT_DMABUF);
    const auto two = export_region(client, got.offset, EMUV_EXPORT_DMABUF);
    __u32 handle = 0, other = 0;
    ASSERT_EQ(vgem_import(device, one, handle), 0);
    revoke();
    EXPECT_EQ(vgem_import(device, two, other), ENODEV);
    EXPECT_LT(settled_available(), before - 56 * mib);
    EXPECT_EQ(vgem_drop(device, handle), 0);
    EXPECT_TRUE(wait_until([&] {
        return settled_available() + 6 * mib > before;
    })) << "the dma-buf is still open";
}

TEST_F(revoked, RacesWithAllThatHoldersDo)
{
    client.reset();
    ASSERT_EQ(destroy(control, id), 0);
    for (int round = 0; round < 20; round++) {
        const int target = create(control, gib, 64 * mib);
        const auto shared = open_client(target);
        const auto where = allocate(shared, 16 * mib);
        const auto exported = export_region(shared, where.offset);
        const mapping map(exported.get(), where.bytes);
        std::atomic<bool> done = false;
        std::atomic<unsigned> turns = 0;
        std::vector<std::thread> busy;
        const auto keep = [&](auto body) {
            busy.emplace_back([&, body] {
                while (!done) {
                    body();
                    turns++;
                }
            });
        };
        keep([&] {
            for (u64 place = 0; place < map.size(); place += chunk)
                signal_of_write(map.data() + place);
        });
        keep([&] {
            const std::vector<char> data(mib, 'x');
            for (u64 place = 0; place < where.bytes; place += chunk)
                static_cast<void>(pwrite(exported.get(), data.data(),
                                         data.size(),
                                         static_cast<off_t>(place)));
        });
        keep([&] { discard(shared, where.offset, where.bytes); });
        keep([&] {
            region more;
            if (try_allocate(shared, 4 * mib, more, EMUV_ALLOC_POPULATE) == 0)
                release(shared, more.offset);
        });
        EXPECT_TRUE(wait_until([&] { return turns > 20; }));
        EXPECT_EQ(destroy(control, target, EMUV_DESTROY_FORCE), 0);
        EXPECT_EQ(signal_of_write(map.data()), SIGBUS);
        const unsigned then = turns;
        EXPECT_TRUE(wait_until([&] { return turns > then + 20; }));
        done = true;
        for (auto &thread : busy)
            thread.join();
        for (u64 place = 0; place < map.size(); place += chunk)
            EXPECT_EQ(signal_of_read(map.data() + place), SIGBUS);
        region more;
        EXPECT_EQ(try_allocate(shared, chunk, more), ENODEV);
    }
    EXPECT_TRUE(
        wait_until([&] { return settled_available() + 8 * mib > before; }));
}

} // namespace
