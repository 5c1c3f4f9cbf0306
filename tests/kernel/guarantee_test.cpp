// SPDX-License-Identifier: GPL-2.0-or-later
// Guaranteed instances: their RAM is reserved at creation, serves every later
// touch, and comes back to the reserve.
#include "pin.hpp"
#include "support.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include <unistd.h>

namespace {

using namespace guest;

constexpr u64 size = 64 * mib;

class guarantee : public driver_test
{
protected:
    static emuv_create guaranteed(u64 virtual_bytes)
    {
        return creation(mib, virtual_bytes, EMUV_ANY, EMUV_CREATE_GUARANTEED);
    }
    emuv_query_instance now(int id) const { return query(control, id); }

    /// All of the RAM is in the reserve.
    void expect_idle(int id) const
    {
        // The charge is given back behind the RAM.
        EXPECT_TRUE(wait_until([&] {
            const emuv_query_instance is = now(id);
            return is.reserve_bytes == size && is.resident_bytes == 0 &&
                   is.virtual_used_bytes == 0;
        })) << now(id).reserve_bytes
            << ", " << now(id).resident_bytes << ", "
            << now(id).virtual_used_bytes;
    }

    /// Leaves little of the host's memory above its floor.
    void reload_near_floor(u64 above)
    {
        const u64 available = settled_available();
        ASSERT_GT(available, above);
        reload("host_floor_mb=" + std::to_string((available - above) / mib));
    }

    /// Takes what the host has above its floor, by an instance of its own.
    descriptor take_the_rest() const
    {
        const int other =
            create(control, creation(0, gib, EMUV_ANY, EMUV_CREATE_OVERCOMMIT));
        auto client = open_client(other);
        region got;
        while (try_allocate(client, chunk, got, EMUV_ALLOC_POPULATE) == 0)
            ;
        return client;
    }
};

TEST_F(guarantee, ReservesItsRamAtCreationAndReturnsItWhenDestroyed)
{
    const u64 before = settled_available();
    const int id = create(control, guaranteed(512 * mib));
    EXPECT_EQ(now(id).created, unsigned{EMUV_CREATE_GUARANTEED});
    EXPECT_EQ(now(id).reserve_bytes, 512 * mib);
    EXPECT_EQ(now(id).resident_bytes, 0U);
    EXPECT_EQ(attribute(id, "guaranteed"), "1");
    EXPECT_EQ(attribute(id, "reserve_bytes"), std::to_string(512 * mib));
    EXPECT_LT(settled_available(), before - 448 * mib);
    ASSERT_EQ(destroy(control, id), 0);
    EXPECT_GT(settled_available(), before - 64 * mib);
}

TEST_F(guarantee, OthersReserveNothing)
{
    const int id = create(control, creation(mib, size));
    EXPECT_EQ(now(id).created, 0U);
    EXPECT_EQ(now(id).reserve_bytes, 0U);
    EXPECT_EQ(attribute(id, "guaranteed"), "0");
}

TEST_F(guarantee, IsNoOvercommit)
{
    auto argument = guaranteed(size);
    argument.flags |= EMUV_CREATE_OVERCOMMIT;
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), EINVAL);
}

TEST_F(guarantee, OfVramAloneReservesNothing)
{
    const int id = create(control, guaranteed(0));
    EXPECT_EQ(now(id).reserve_bytes, 0U);
    EXPECT_EQ(destroy(control, id), 0);
}

TEST_F(guarantee, IsRefusedIfTheHostHasLessNowAndLeavesNothing)
{
    reload_near_floor(128 * mib);
    const u64 before = settled_available();
    auto argument = guaranteed(256 * mib);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), ENOMEM);
    EXPECT_TRUE(names_in("/sys/class/emuv").empty());
    EXPECT_GT(settled_available(), before - 32 * mib);
    create(control, creation(mib, 256 * mib, EMUV_ANY, EMUV_CREATE_OVERCOMMIT));
}

TEST_F(guarantee, AnIdInUseIsRefusedBeforeRamIsTaken)
{
    reload_near_floor(128 * mib);
    const int id = create(control, creation(mib, 0));
    auto argument = guaranteed(192 * mib);
    argument.id = id;
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), EEXIST)
        << "the lack of RAM came first";
}

TEST_F(guarantee, ARefusedOneFreesItsIdAndItsPromise)
{
    reload_near_floor(128 * mib);
    auto argument = guaranteed(192 * mib);
    argument.id = 5;
    for (int round = 0; round < 64; round++)
        ASSERT_EQ(call(control, EMUV_IOC_CREATE, argument), ENOMEM) << round;
    EXPECT_EQ(create(control, creation(mib, 192 * mib, 5)), 5);
}

TEST_F(guarantee, AKilledCreatorLeavesNothing)
{
    const u64 before = settled_available();
    bool met = false;
    // A kill may come after the call; then there is an instance.
    for (int round = 0; !met && round < 20; round++) {
        process child([&](channel &us) -> std::string {
            const auto own = open_control();
            us.send();
            auto argument = guaranteed(before / 2 / chunk * chunk);
            call(own, EMUV_IOC_CREATE, argument);
            return "";
        });
        child.conversation().receive();
        ASSERT_TRUE(wait_until([&] {
            return meminfo("MemAvailable") < before - 64 * mib ||
                   !names_in("/sys/class/emuv").empty();
        }));
        child.kill_now();
        met = names_in("/sys/class/emuv").empty();
        for (const auto &name : names_in("/sys/class/emuv"))
            EXPECT_EQ(destroy(control, std::stoi(name.substr(4))), 0);
        EXPECT_TRUE(wait_until(
            [&] { return settled_available() > before - 64 * mib; }));
    }
    EXPECT_TRUE(met) << "no kill came while RAM was being reserved";
}

TEST_F(guarantee, LacksNoRamAtTheHostsFloor)
{
    reload_near_floor(192 * mib);
    const int id = create(control, guaranteed(size));
    const auto rest = take_the_rest();
    region refused;
    ASSERT_EQ(try_allocate(rest, chunk, refused, EMUV_ALLOC_POPULATE), ENOMEM);

    const auto client = open_client(id);
    const auto touched = allocate(client, size / 4);
    const mapping map(client.get(), touched.bytes, touched.offset);
    for (u64 at = 0; at < map.size(); at += chunk)
        EXPECT_EQ(signal_of_write(map.data() + at), 0) << at;
    const auto populated = allocate(client, size / 4, EMUV_ALLOC_POPULATE);
    EXPECT_TRUE(reads_zero(client.get(), populated.offset, populated.bytes));
    const auto written = allocate(client, size / 2);
    const std::vector<char> data(mib, 'x');
    for (u64 at = 0; at < written.bytes; at += chunk)
        EXPECT_EQ(pwrite(client.get(), data.data(), data.size(),
                         static_cast<off_t>(written.offset + at)),
                  static_cast<long>(mib));
    EXPECT_EQ(now(id).resident_bytes, size);
    EXPECT_EQ(now(id).reserve_bytes, 0U);
}

TEST_F(guarantee, LacksNoRamInACgroupWithoutRoom)
{
    const memory_cgroup group("guarantee-test");
    if (!group.usable)
        GTEST_SKIP() << "no cgroup2 with a memory controller here";
    ASSERT_TRUE(group.limit(24 * mib));
    const int id = create(control, guaranteed(size));
    EXPECT_EQ(in_child({},
                       [&](channel &) -> std::string {
                           CHILD_EXPECT(group.enter());
                           const auto client = open_client(id);
                           const auto got = allocate(client, size);
                           const mapping map(client.get(), size, got.offset);
                           for (u64 at = 0; at < size; at += chunk)
                               CHILD_EXPECT(signal_of_write(map.data() + at) ==
                                            0);
                           return "";
                       }),
              "");
    EXPECT_EQ(group.event("oom_kill"), 0U);
    expect_idle(id);
}

TEST_F(guarantee, RamComesBackHoweverItIsGivenBackAndReadsAsZeros)
{
    const int id = create(control, guaranteed(size));
    const auto client = open_client(id);
    for (int round = 0; round < 3; round++) {
        const auto got = allocate(client, size);
        {
            const mapping map(client.get(), size, got.offset);
            EXPECT_FALSE(first_other(map.data(), size)) << round;
            fill_pattern(map.data(), size, 7);
            EXPECT_EQ(now(id).reserve_bytes, 0U);
            ASSERT_EQ(discard(client, got.offset, size / 2), 0);
            EXPECT_EQ(now(id).reserve_bytes, size / 2);
            EXPECT_FALSE(first_other(map.data(), size / 2));
            fill_pattern(map.data(), size / 2, 8);
        }
        ASSERT_EQ(release(client, got.offset), 0);
        expect_idle(id);
    }
    in_child({}, [&](channel &) -> std::string {
        const auto own = open_client(id);
        const auto got = allocate(own, size);
        const mapping map(own.get(), size, got.offset);
        std::memset(map.data(), 0xa5, size);
        return "";
    });
    expect_idle(id);
    const auto got = allocate(client, size);
    EXPECT_TRUE(reads_zero(client.get(), got.offset, size));
}

TEST_F(guarantee, PinnedRamComesBackOnceItIsUnpinned)
{
    const int id = create(control, guaranteed(size));
    const auto client = open_client(id);
    const auto got = allocate(client, size);
    auto map = std::make_unique<mapping>(client.get(), size, got.offset);
    std::memset(map->data(), 0xa5, size);
    auto held = std::make_unique<socket_pin>(map->data(), chunk);
    map.reset();
    ASSERT_EQ(release(client, got.offset), 0);
    EXPECT_EQ(now(id).unowned_bytes, size);
    region again;
    EXPECT_EQ(try_allocate(client, size, again), ENOSPC)
        << "pinned memory is not free";
    held.reset();
    expect_idle(id);
    ASSERT_EQ(try_allocate(client, size, again), 0);
    EXPECT_TRUE(reads_zero(client.get(), again.offset, size));
}

// The reaper zeroes half a gibibyte. Another client allocates and frees
// meanwhile; if it were kept waiting, it would do so once or twice.
TEST_F(guarantee, OtherClientsAllocateWhileUnpinnedRamComesBack)
{
    constexpr unsigned enough = 10;
    constexpr unsigned most_rounds = 32;
    constexpr u64 large = 512 * mib;
    const int id = create(control, guaranteed(large + size));
    const auto one = open_client(id);
    const auto other = open_client(id);
    std::atomic<unsigned> turns = 0;
    std::atomic<bool> done = false;
    std::atomic<bool> failed = false;
    std::thread busy([&] {
        for (region got; !done; turns++)
            failed = failed || try_allocate(other, chunk, got) != 0 ||
                     release(other, got.offset) != 0;
    });
    const auto in_reserve = [&] {
        return std::stoull(attribute(id, "reserve_bytes"));
    };
    bool open = false;
    for (unsigned round = 0; round < most_rounds && !open; round++) {
        const auto got = allocate(one, large);
        auto map = std::make_unique<mapping>(one.get(), large, got.offset);
        auto held = std::make_unique<socket_pin>(map->data(), large);
        ASSERT_EQ(held->error(), 0) << std::strerror(held->error());
        map.reset();
        ASSERT_EQ(release(one, got.offset), 0);
        EXPECT_EQ(in_reserve(), size);
        held.reset();
        EXPECT_TRUE(wait_until([&] { return in_reserve() > size; }));
        const unsigned before = turns;
        const bool begun = in_reserve() < size + large / 4;
        EXPECT_TRUE(
            wait_until([&] { return in_reserve() > size + large / 4 * 3; }));
        const unsigned made = turns - before;
        const bool at_work = in_reserve() < size + large;
        open = begun && at_work && made >= enough;
        EXPECT_TRUE(wait_until(
            [&] { return attribute(id, "lingering_bytes") == "0"; }));
    }
    done = true;
    busy.join();
    EXPECT_TRUE(open) << "it waited for the reaper";
    EXPECT_FALSE(failed);
}

TEST_F(guarantee, ThreadsThatTouchTheLastChunkAtOnceLackNothing)
{
    constexpr unsigned threads = 8;
    constexpr unsigned rounds = 200;
    const int id = create(control, guaranteed(4 * chunk));
    const auto client = open_client(id);
    const auto got = allocate(client, 4 * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    std::atomic<unsigned> failed{0};
    std::vector<std::thread> all;
    for (unsigned thread = 0; thread < threads; thread++)
        all.emplace_back([&, thread] {
            for (unsigned round = 0; round < rounds; round++) {
                // Each chunk is touched, written and discarded by several.
                const u64 at = (thread + round) % 4 * chunk;
                failed += signal_of_write(map.data() + at) != 0;
                failed +=
                    pwrite(client.get(), "x", 1,
                           static_cast<off_t>(got.offset + at + thread)) != 1;
                failed += discard(client, got.offset + at, chunk) != 0;
            }
        });
    for (auto &each : all)
        each.join();
    EXPECT_EQ(failed, 0U);
    EXPECT_EQ(now(id).resident_bytes + now(id).reserve_bytes, 4 * chunk);
}

TEST_F(guarantee, AnInstanceInUseCanNeitherGoNorLoseItsReserve)
{
    const int id = create(control, guaranteed(size));
    auto client = open_client(id);
    const auto got = allocate(client, chunk, EMUV_ALLOC_POPULATE);
    EXPECT_EQ(destroy(control, id), EBUSY);
    EXPECT_EQ(now(id).reserve_bytes, size - chunk);
    ASSERT_EQ(release(client, got.offset), 0);
    expect_idle(id);
    client.reset();
    EXPECT_EQ(destroy(control, id), 0);
}

TEST_F(guarantee, TheModulesInstancesCanBeGuaranteed)
{
    reload("gpu_model=4070 physical_vram_mb=1,1 virtual_vram_mb=64,32 "
           "guaranteed=1");
    EXPECT_EQ(now(0).reserve_bytes, 64 * mib);
    EXPECT_EQ(now(1).reserve_bytes, 32 * mib);
}

} // namespace
