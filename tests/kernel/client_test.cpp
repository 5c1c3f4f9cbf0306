// SPDX-License-Identifier: GPL-2.0-or-later
// Clients and the ledger: charges and their limits, frees, listings, and
// passing regions and descriptors on.
#include "support.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace guest;

constexpr u64 physical_limit = 1000 * mib + 7;
constexpr u64 virtual_limit = 64 * mib;

class client : public driver_test
{
protected:
    void SetUp() override
    {
        driver_test::SetUp();
        if (!HasFatalFailure())
            id = create(control, physical_limit, virtual_limit);
    }

    emuv_query_instance now() const { return query(control, id); }
    std::vector<emuv_query_client> clients() const
    {
        return list_clients(control, id);
    }

    /// No client holds any part of the instance.
    void expect_idle() const
    {
        EXPECT_TRUE(wait_until([&] { return now().clients == 0; }));
        const auto is = now();
        EXPECT_EQ(is.clients, 0U);
        EXPECT_EQ(is.physical_used_bytes, 0U);
        EXPECT_EQ(is.virtual_used_bytes, 0U);
        EXPECT_EQ(is.unowned_bytes, 0U);
        EXPECT_EQ(is.resident_bytes, 0U);
        EXPECT_TRUE(clients().empty());
    }

    static off_t at(const region &in, u64 offset = 0)
    {
        return static_cast<off_t>(in.offset + offset);
    }

    int id = -1;
};

// --- charging ---

TEST_F(client, ChargesToTheByteUpToTheLimit)
{
    const auto one = open_client(id);
    auto argument = fresh<emuv_charge>();
    argument.bytes = 1;
    ASSERT_EQ(call(one, EMUV_IOC_CHARGE, argument), 0);
    EXPECT_EQ(argument.free_bytes, physical_limit - 1);
    argument.bytes = physical_limit - 1;
    ASSERT_EQ(call(one, EMUV_IOC_CHARGE, argument), 0);
    EXPECT_EQ(argument.free_bytes, 0U);
    EXPECT_EQ(now().physical_used_bytes, physical_limit);
    EXPECT_EQ(charge(one, 1), ENOSPC);
    EXPECT_EQ(charge(one, 0), 0);
    argument.bytes = 5;
    ASSERT_EQ(call(one, EMUV_IOC_UNCHARGE, argument), 0);
    EXPECT_EQ(argument.free_bytes, 5U);
    EXPECT_EQ(charge(one, 6), ENOSPC);
    EXPECT_EQ(charge(one, 5), 0);
}

TEST_F(client, ChargeOverTheLimitLeavesTheLedgerUnchanged)
{
    const auto one = open_client(id);
    ASSERT_EQ(charge(one, 100), 0);
    const auto before = now();
    const auto listed = clients();
    for (const u64 bytes :
         {physical_limit - 99, physical_limit, physical_limit + 1, u64{1} << 63,
          ~u64{0} - 99, ~u64{0}}) {
        auto argument = fresh<emuv_charge>();
        argument.bytes = bytes;
        argument.free_bytes = 4711;
        EXPECT_EQ(call(one, EMUV_IOC_CHARGE, argument), ENOSPC) << bytes;
        EXPECT_EQ(argument.free_bytes, 4711U) << "written back on failure";
        const auto after = now();
        EXPECT_EQ(std::memcmp(&before, &after, sizeof before), 0) << bytes;
        const auto listed_now = clients();
        EXPECT_EQ(std::memcmp(&listed[0], &listed_now[0], sizeof listed[0]), 0)
            << bytes;
    }
}

TEST_F(client, UnchargesOnlyWhatItChargedItself)
{
    const auto one = open_client(id);
    const auto two = open_client(id);
    ASSERT_EQ(charge(one, 1000), 0);
    ASSERT_EQ(charge(two, 500), 0);
    EXPECT_EQ(uncharge(two, 501), EINVAL);
    EXPECT_EQ(uncharge(one, 1001), EINVAL);
    EXPECT_EQ(uncharge(one, ~u64{0}), EINVAL);
    EXPECT_EQ(now().physical_used_bytes, 1500U);
    EXPECT_EQ(uncharge(one, 1000), 0);
    EXPECT_EQ(uncharge(one, 1), EINVAL);
    EXPECT_EQ(now().physical_used_bytes, 500U);
}

TEST_F(client, LimitIsSharedByAllClients)
{
    const auto one = open_client(id);
    const auto two = open_client(id);
    ASSERT_EQ(charge(one, physical_limit - 10), 0);
    EXPECT_EQ(charge(two, 11), ENOSPC);
    EXPECT_EQ(charge(two, 10), 0);
    region got;
    ASSERT_EQ(try_allocate(one, virtual_limit - chunk, got), 0);
    EXPECT_EQ(try_allocate(two, 2 * chunk, got), ENOSPC);
    EXPECT_EQ(try_allocate(two, chunk, got), 0);
}

TEST_F(client, TakesNoMoreVirtualBytesThanOneClientMay)
{
    auto argument = creation(mib, 8 * chunk);
    argument.client_virtual_bytes = 4 * chunk;
    const int bounded = create(control, argument);
    EXPECT_EQ(query(control, bounded).client_virtual_bytes, 4 * chunk);
    EXPECT_EQ(attribute(bounded, "client_virtual_bytes"),
              std::to_string(4 * chunk));
    {
        const auto one = open_client(bounded);
        const auto two = open_client(bounded);
        region got;
        EXPECT_EQ(try_allocate(one, 5 * chunk, got), ENOSPC);
        const auto first = allocate(one, 3 * chunk);
        const auto second = allocate(one, chunk);
        EXPECT_EQ(try_allocate(one, 1, got), ENOSPC);
        const auto theirs = allocate(two, 4 * chunk);
        EXPECT_EQ(release(one, second.offset), 0);
        allocate(one, chunk);
        // Imported bytes are not its own.
        EXPECT_EQ(import_region(one, export_region(two, theirs.offset), got),
                  0);
        EXPECT_EQ(release(one, first.offset), 0);
        allocate(one, 3 * chunk);
        EXPECT_EQ(query(control, bounded).virtual_used_bytes, 8 * chunk);
    }
    EXPECT_EQ(destroy(control, bounded), 0);
}

TEST_F(client, MayTakeAllVirtualBytesUnlessToldOtherwise)
{
    EXPECT_EQ(now().client_virtual_bytes, virtual_limit);
    auto argument = creation(mib, 8 * chunk);
    argument.client_virtual_bytes = 16 * chunk;
    const int bounded = create(control, argument);
    EXPECT_EQ(query(control, bounded).client_virtual_bytes, 8 * chunk);
    EXPECT_EQ(destroy(control, bounded), 0);
    argument.client_virtual_bytes = chunk + 1;
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), EINVAL);
    // Callers of the first version know of no such limit.
    argument.size = offsetof(emuv_create, client_virtual_bytes);
    ASSERT_EQ(call(control, EMUV_IOC_CREATE, argument), 0);
    EXPECT_EQ(query(control, argument.id).client_virtual_bytes, 8 * chunk);
    EXPECT_EQ(destroy(control, argument.id), 0);
    reload("virtual_vram_mb=64,4 physical_vram_mb=1,1 client_virtual_mb=8");
    EXPECT_EQ(attribute(0, "client_virtual_bytes"), std::to_string(8 * mib));
    EXPECT_EQ(attribute(1, "client_virtual_bytes"), std::to_string(4 * mib));
}

TEST_F(client, InstancesDoNotShareLimits)
{
    const int other = create(control, 100, chunk);
    const auto one = open_client(id);
    const auto two = open_client(other);
    ASSERT_EQ(charge(one, physical_limit), 0);
    EXPECT_EQ(charge(two, 100), 0);
    EXPECT_EQ(charge(two, 1), ENOSPC);
    EXPECT_EQ(query(control, other).physical_used_bytes, 100U);
}

TEST_F(client, CountersOnlyGrowAndAreSummed)
{
    const auto one = open_client(id);
    auto report = fresh<emuv_report>();
    report.fetched_bytes = 1;
    report.evicted_bytes = u64{1} << 40;
    report.spills = 3;
    report.faults = 4;
    report.hit_bytes = 5;
    report.miss_bytes = 6;
    report.stalled_ns = 7;
    ASSERT_EQ(call(one, EMUV_IOC_REPORT, report), 0);
    {
        const auto two = open_client(id);
        ASSERT_EQ(call(two, EMUV_IOC_REPORT, report), 0);
        ASSERT_EQ(call(two, EMUV_IOC_REPORT, report), 0);
        const auto listed = clients();
        ASSERT_EQ(listed.size(), 2U);
        EXPECT_EQ(listed[0].fetched_bytes, 1U);
        EXPECT_EQ(listed[0].evicted_bytes, u64{1} << 40);
        EXPECT_EQ(listed[0].spills, 3U);
        EXPECT_EQ(listed[0].faults, 4U);
        EXPECT_EQ(listed[0].hit_bytes, 5U);
        EXPECT_EQ(listed[0].miss_bytes, 6U);
        EXPECT_EQ(listed[0].stalled_ns, 7U);
        EXPECT_EQ(listed[1].spills, 6U);
    }
    const auto is = now();
    EXPECT_EQ(is.fetched_bytes, 3U);
    EXPECT_EQ(is.evicted_bytes, u64{3} << 40);
    EXPECT_EQ(is.spills, 9U);
    EXPECT_EQ(is.faults, 12U);
    EXPECT_EQ(is.hit_bytes, 15U);
    EXPECT_EQ(is.miss_bytes, 18U);
    EXPECT_EQ(is.stalled_ns, 21U);
    EXPECT_EQ(attribute(id, "spills"), "9");
}

TEST_F(client, NoReportTakesACounterBack)
{
    struct counter
    {
        decltype(&emuv_report::spills) member;
        std::string name;
    };
    const counter counters[] = {
        {&emuv_report::fetched_bytes, "fetched_bytes"},
        {&emuv_report::evicted_bytes, "evicted_bytes"},
        {&emuv_report::spills, "spills"},
        {&emuv_report::faults, "faults"},
        {&emuv_report::hit_bytes, "hit_bytes"},
        {&emuv_report::miss_bytes, "miss_bytes"},
        {&emuv_report::stalled_ns, "stalled_ns"},
    };
    for (const auto &[counter, name] : counters) {
        const auto one = open_client(id), two = open_client(id);
        const auto before = read_number(attribute_path(id, name));
        auto report = fresh<emuv_report>();
        report.*counter = 1000;
        ASSERT_EQ(call(one, EMUV_IOC_REPORT, report), 0) << name;

        // The client's counter would wrap: refused, and no other counter
        // changes.
        auto wrapping = fresh<emuv_report>();
        wrapping.spills = 5;
        wrapping.faults = 5;
        wrapping.*counter = ~u64{0} - 999;
        const auto spills = read_number(attribute_path(id, "spills"));
        EXPECT_EQ(call(one, EMUV_IOC_REPORT, wrapping), EOVERFLOW) << name;
        EXPECT_EQ(read_number(attribute_path(id, name)), before + 1000) << name;
        EXPECT_EQ(read_number(attribute_path(id, "spills")), spills) << name;

        // The instance's counter would wrap: it stops, and other clients can
        // report.
        auto most = fresh<emuv_report>();
        most.*counter = ~u64{0} - 999;
        EXPECT_EQ(call(two, EMUV_IOC_REPORT, most), 0) << name;
        EXPECT_EQ(read_number(attribute_path(id, name)), ~u64{0}) << name;
        EXPECT_EQ(call(one, EMUV_IOC_REPORT, report), 0) << name;
        EXPECT_EQ(read_number(attribute_path(id, name)), ~u64{0}) << name;
    }
}

// --- freeing ---

TEST_F(client, CloseReturnsEverything)
{
    {
        const auto one = open_client(id);
        ASSERT_EQ(charge(one, 12345), 0);
        allocate(one, 3 * chunk, EMUV_ALLOC_POPULATE);
        const auto got = allocate(one, chunk);
        ASSERT_EQ(pwrite(one.get(), "x", 1, at(got)), 1);
        EXPECT_EQ(now().resident_bytes, 4 * chunk);
    }
    expect_idle();
}

TEST_F(client, LivesUntilItsLastDescriptorIsClosed)
{
    auto one = open_client(id);
    ASSERT_EQ(charge(one, 1), 0);
    descriptor copy(dup(one.get()));
    one.reset();
    EXPECT_EQ(now().clients, 1U);
    EXPECT_EQ(charge(copy, 1), 0);
    EXPECT_EQ(clients()[0].physical_bytes, 2U);
    copy.reset();
    expect_idle();
}

TEST_F(client, LivesOnInAForkedChild)
{
    auto one = open_client(id);
    ASSERT_EQ(charge(one, 10), 0);
    process child({.keep = {one.get()}}, [&](channel &us) -> std::string {
        us.receive();
        CHILD_EXPECT(charge(one, 5) == 0);
        us.send();
        us.receive();
        return "";
    });
    one.reset();
    EXPECT_EQ(now().clients, 1U);
    EXPECT_EQ(now().physical_used_bytes, 10U);
    child.conversation().send();
    child.conversation().receive();
    EXPECT_EQ(clients()[0].physical_bytes, 15U)
        << "one client in both processes";
    EXPECT_EQ(clients()[0].pid, getpid()) << "the process that opened the node";
    child.conversation().send();
    EXPECT_EQ(child.join(), "");
    expect_idle();
}

/// A process that holds all that a client can hold, in every way, when it dies.
std::string hold_everything(int id, channel &us)
{
    const auto one = open_client(id);
    CHILD_EXPECT(charge(one, 777) == 0);
    const auto mapped = allocate(one, 4 * chunk);
    const mapping map(one.get(), mapped.bytes, mapped.offset);
    std::memset(map.data(), 0xa5, map.size());
    const auto exported_from = allocate(one, 2 * chunk, EMUV_ALLOC_POPULATE);
    const auto exported = export_region(one, exported_from.offset);
    const mapping exported_map(exported.get(), 2 * chunk);
    std::memset(exported_map.data(), 0xa5, exported_map.size());
    const auto shared_from = allocate(one, chunk);
    const auto dmabuf =
        export_region(one, shared_from.offset, EMUV_EXPORT_DMABUF);
    const mapping dmabuf_map(dmabuf.get(), chunk);
    std::memset(dmabuf_map.data(), 0xa5, dmabuf_map.size());
    const auto freed = allocate(one, chunk);
    const mapping freed_map(one.get(), chunk, freed.offset);
    std::memset(freed_map.data(), 0xa5, freed_map.size());
    CHILD_EXPECT(release(one, freed.offset) == 0);
    const auto two = open_client(id);
    region imported;
    CHILD_EXPECT(import_region(two, exported, imported) == 0);
    CHILD_EXPECT(charge(two, 223) == 0);
    us.send();
    us.receive();
    return "was not killed";
}

TEST_F(client, KilledGivesEverythingBack)
{
    for (int round = 0; round < 5; round++) {
        process victim([&](channel &us) { return hold_everything(id, us); });
        victim.conversation().receive();
        EXPECT_EQ(now().clients, 2U);
        EXPECT_EQ(now().physical_used_bytes, 1000U);
        EXPECT_EQ(now().virtual_used_bytes, 8 * chunk);
        EXPECT_EQ(now().unowned_bytes, chunk);
        EXPECT_EQ(now().resident_bytes, 8 * chunk);
        victim.kill_now();
        expect_idle();
    }
}

TEST_F(client, KilledInTheMidstOfItGivesEverythingBack)
{
    std::mt19937 random(1);
    for (int round = 0; round < 12; round++) {
        process victim([&](channel &us) -> std::string {
            const auto one = open_client(id);
            us.send();
            for (unsigned turn = 0;; turn++) {
                charge(one, 1 + turn % 1000);
                region got;
                if (try_allocate(one, (1 + turn % 5) * chunk, got,
                                 turn % 3 == 0 ? EMUV_ALLOC_POPULATE : 0) != 0)
                    continue;
                const auto exported = export_region(
                    one, got.offset, turn % 2 ? EMUV_EXPORT_DMABUF : 0);
                const mapping map(exported.get(), got.bytes);
                for (u64 place = 0; place < got.bytes; place += chunk)
                    map[place] = 1;
                release(one, got.offset);
            }
        });
        victim.conversation().receive();
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
        victim.kill_now();
        expect_idle();
    }
}

// --- the listing ---

TEST_F(client, ListingShowsPidNameAndBytes)
{
    process other([&](channel &us) -> std::string {
        prctl(PR_SET_NAME, "emuv-listed");
        const auto one = open_client(id);
        charge(one, 4242);
        allocate(one, 3 * chunk);
        prctl(PR_SET_NAME, "renamed-later");
        us.send();
        us.receive();
        return "";
    });
    other.conversation().receive();
    const auto own = open_client(id);
    const auto listed = clients();
    ASSERT_EQ(listed.size(), 2U);
    EXPECT_EQ(listed[0].pid, other.pid());
    EXPECT_STREQ(listed[0].comm, "emuv-listed");
    EXPECT_EQ(listed[0].physical_bytes, 4242U);
    EXPECT_EQ(listed[0].virtual_bytes, 3 * chunk);
    EXPECT_EQ(listed[0].imported_bytes, 0U);
    EXPECT_EQ(listed[0].id, id);
    EXPECT_EQ(listed[1].pid, getpid());
    EXPECT_GT(listed[1].client, listed[0].client);

    const auto through_the_node = list_clients(own);
    ASSERT_EQ(through_the_node.size(), 2U);
    EXPECT_EQ(through_the_node[0].pid, other.pid());
    EXPECT_EQ(through_the_node[1].pid, getpid());
    other.conversation().send();
    EXPECT_EQ(other.join(), "");
}

TEST_F(client, NumbersStartAtOneAndAreNeverUsedAgain)
{
    u64 last = 0;
    for (int round = 0; round < 20; round++) {
        const auto one = open_client(id);
        const auto listed = clients();
        ASSERT_EQ(listed.size(), 1U);
        EXPECT_EQ(listed[0].client, last + 1);
        last = listed[0].client;
    }
    auto argument = fresh<emuv_query_client>();
    argument.id = id;
    argument.client = ~u64{0};
    EXPECT_EQ(call(control, EMUV_IOC_QUERY_CLIENT, argument), ENOENT);
    argument.id = id + 1;
    argument.client = 0;
    EXPECT_EQ(call(control, EMUV_IOC_QUERY_CLIENT, argument), ENODEV);
}

TEST_F(client, PidIsThatOfTheAskersNamespace)
{
    const auto outside = open_client(id);
    process inside({.clone_flags = CLONE_NEWPID},
                   [&](channel &us) -> std::string {
                       const auto own = open_client(id);
                       us.send();
                       us.receive();
                       const auto listed = list_clients(own);
                       CHILD_EXPECT(listed.size() == 2);
                       CHILD_EXPECT(listed[0].pid == 0);
                       CHILD_EXPECT(listed[1].pid == 1);
                       CHILD_EXPECT(getpid() == 1);
                       return "";
                   });
    inside.conversation().receive();
    const auto listed = clients();
    ASSERT_EQ(listed.size(), 2U);
    EXPECT_EQ(listed[0].pid, getpid());
    EXPECT_EQ(listed[1].pid, inside.pid());
    inside.conversation().send();
    EXPECT_EQ(inside.join(), "");
}

TEST_F(client, ChargesHoldInAPidNamespaceToo)
{
    process inside({.clone_flags = CLONE_NEWPID},
                   [&](channel &us) -> std::string {
                       const auto own = open_client(id);
                       CHILD_EXPECT(charge(own, physical_limit - 5) == 0);
                       us.send();
                       us.receive();
                       return "";
                   });
    inside.conversation().receive();
    const auto outside = open_client(id);
    EXPECT_EQ(charge(outside, 6), ENOSPC);
    inside.kill_now();
    EXPECT_TRUE(
        wait_until([&] { return charge(outside, physical_limit) == 0; }));
}

TEST_F(client, FdinfoTellsWhatItHolds)
{
    const auto one = open_client(id);
    ASSERT_EQ(charge(one, 4242), 0);
    allocate(one, 3 * chunk);
    const auto text =
        read_text("/proc/self/fdinfo/" + std::to_string(one.get()));
    const auto value = [&](const std::string &key) {
        const auto found = text.find("\n" + key + ":");
        return found == std::string::npos
                   ? ~u64{0}
                   : std::stoull(text.substr(found + key.size() + 2));
    };
    EXPECT_EQ(value("emuv-instance"), static_cast<u64>(id)) << text;
    EXPECT_EQ(value("emuv-client"), clients()[0].client) << text;
    EXPECT_EQ(value("emuv-physical-bytes"), 4242U) << text;
    EXPECT_EQ(value("emuv-virtual-bytes"), 3 * chunk) << text;
    EXPECT_EQ(value("emuv-imported-bytes"), 0U) << text;
    EXPECT_EQ(value("emuv-waiting-bytes"), 0U) << text;
}

// --- passing to others ---

TEST_F(client, NodeDescriptorPassedOnIsTheSameClient)
{
    process other([&](channel &us) -> std::string {
        const auto passed = us.receive_descriptor();
        CHILD_EXPECT(charge(passed, 11) == 0);
        region got = {us.receive(), chunk};
        const mapping map(passed.get(), chunk, got.offset);
        CHILD_EXPECT(map[0] == 'a');
        map[1] = 'b';
        us.send();
        us.receive();
        return "";
    });
    auto one = open_client(id);
    const auto got = allocate(one, chunk);
    ASSERT_EQ(pwrite(one.get(), "a", 1, at(got)), 1);
    other.conversation().send_descriptor(one.get());
    other.conversation().send(got.offset);
    other.conversation().receive();
    char byte = 0;
    ASSERT_EQ(pread(one.get(), &byte, 1, at(got, 1)), 1);
    EXPECT_EQ(byte, 'b');
    one.reset();
    EXPECT_EQ(now().clients, 1U);
    EXPECT_EQ(now().physical_used_bytes, 11U);
    other.conversation().send();
    EXPECT_EQ(other.join(), "");
    expect_idle();
}

TEST_F(client, RegionDescriptorPassedOnGivesThatRegionAndNoOther)
{
    process other({.uid = 0}, [&](channel &us) -> std::string {
        const auto passed = us.receive_descriptor();
        const mapping map(passed.get(), 2 * chunk);
        CHILD_EXPECT(map[chunk] == 'a');
        map[chunk + 1] = 'b';
        CHILD_EXPECT(map_error(passed.get(), chunk, 2 * chunk) == EINVAL);
        char byte = 0;
        CHILD_EXPECT(
            pread(passed.get(), &byte, 1, static_cast<off_t>(2 * chunk)) == 0);
        us.send();
        us.receive();
        CHILD_EXPECT(map[0] == 'c');
        return "";
    });
    auto one = open_client(id);
    const auto got = allocate(one, 2 * chunk);
    const auto secret = allocate(one, chunk);
    ASSERT_EQ(pwrite(one.get(), "secret", 6, at(secret)), 6);
    ASSERT_EQ(pwrite(one.get(), "a", 1, at(got, chunk)), 1);
    {
        const auto exported = export_region(one, got.offset);
        other.conversation().send_descriptor(exported.get());
    }
    other.conversation().receive();
    char byte = 0;
    ASSERT_EQ(pread(one.get(), &byte, 1, at(got, chunk + 1)), 1);
    EXPECT_EQ(byte, 'b');
    ASSERT_EQ(pwrite(one.get(), "c", 1, at(got)), 1);
    one.reset();
    const auto is = now();
    EXPECT_EQ(is.clients, 0U);
    EXPECT_EQ(is.virtual_used_bytes, 2 * chunk);
    EXPECT_EQ(is.unowned_bytes, 2 * chunk);
    other.conversation().send();
    EXPECT_EQ(other.join(), "");
    expect_idle();
}

TEST_F(client, DmabufPassedOnOutlivesItsClient)
{
    process other([&](channel &us) -> std::string {
        const auto passed = us.receive_descriptor();
        us.receive();
        const mapping map(passed.get(), chunk);
        CHILD_EXPECT(map[7] == 'a');
        us.send();
        us.receive();
        return "";
    });
    auto one = open_client(id);
    const auto got = allocate(one, chunk);
    ASSERT_EQ(pwrite(one.get(), "a", 1, at(got, 7)), 1);
    {
        const auto exported =
            export_region(one, got.offset, EMUV_EXPORT_DMABUF);
        other.conversation().send_descriptor(exported.get());
    }
    one.reset();
    EXPECT_EQ(now().unowned_bytes, chunk);
    other.conversation().send();
    other.conversation().receive();
    other.conversation().send();
    EXPECT_EQ(other.join(), "");
    expect_idle();
}

TEST_F(client, DescriptorInFlightHoldsTheRegion)
{
    auto one = open_client(id);
    const auto got = allocate(one, chunk);
    process other([&](channel &us) -> std::string {
        us.receive();
        const auto passed = us.receive_descriptor();
        char byte = 0;
        CHILD_EXPECT(pread(passed.get(), &byte, 1, 0) == 1);
        CHILD_EXPECT(byte == 'a');
        return "";
    });
    ASSERT_EQ(pwrite(one.get(), "a", 1, at(got)), 1);
    // The message with the descriptor waits behind another one.
    {
        const auto exported = export_region(one, got.offset);
        other.conversation().send();
        other.conversation().send_descriptor(exported.get());
    }
    one.reset();
    EXPECT_EQ(other.join(), "");
    expect_idle();
}

TEST_F(client, ImportHoldsTheRegionAsItsOwn)
{
    auto one = open_client(id);
    const auto two = open_client(id);
    const auto got = allocate(one, 2 * chunk);
    ASSERT_EQ(pwrite(one.get(), "abc", 3, at(got)), 3);
    region imported;
    ASSERT_EQ(import_region(two, export_region(one, got.offset), imported), 0);
    EXPECT_EQ(imported.bytes, 2 * chunk);

    auto listed = clients();
    ASSERT_EQ(listed.size(), 2U);
    EXPECT_EQ(listed[0].virtual_bytes, 2 * chunk);
    EXPECT_EQ(listed[0].imported_bytes, 0U);
    EXPECT_EQ(listed[1].virtual_bytes, 0U);
    EXPECT_EQ(listed[1].imported_bytes, 2 * chunk);
    EXPECT_EQ(now().virtual_used_bytes, 2 * chunk) << "charged once";
    EXPECT_EQ(now().unowned_bytes, 0U);

    char bytes[4] = {};
    ASSERT_EQ(pread(two.get(), bytes, 3, static_cast<off_t>(imported.offset)),
              3);
    EXPECT_STREQ(bytes, "abc");
    const mapping map(two.get(), imported.bytes, imported.offset);
    map[0] = 'z';
    ASSERT_EQ(pread(one.get(), bytes, 1, at(got)), 1);
    EXPECT_EQ(bytes[0], 'z');
    EXPECT_EQ(discard(two, imported.offset, chunk), 0);
    EXPECT_TRUE(export_region(two, imported.offset));

    ASSERT_EQ(release(one, got.offset), 0);
    EXPECT_EQ(now().unowned_bytes, 2 * chunk);
    EXPECT_EQ(clients()[1].imported_bytes, 2 * chunk);
    map[5] = 'y';
    EXPECT_EQ(map[5], 'y');
    one.reset();
    EXPECT_EQ(now().virtual_used_bytes, 2 * chunk);
}

TEST_F(client, ImportIsRefusedAsDocumented)
{
    const auto one = open_client(id);
    const auto two = open_client(id);
    const auto got = allocate(one, chunk);
    const auto exported = export_region(one, got.offset);
    const auto dmabuf = export_region(one, got.offset, EMUV_EXPORT_DMABUF);
    region out;
    EXPECT_EQ(import_region(one, exported, out), EEXIST)
        << "the owner holds it already";
    ASSERT_EQ(import_region(two, exported, out), 0);
    EXPECT_EQ(import_region(two, exported, out), EEXIST);
    const auto again = export_region(two, out.offset);
    EXPECT_EQ(import_region(two, again, out), EEXIST)
        << "by another descriptor of it";
    EXPECT_EQ(clients()[1].imported_bytes, chunk);

    const int other_id = create(control, mib, 16 * mib);
    EXPECT_EQ(import_region(open_client(other_id), exported, out), EXDEV);
    EXPECT_EQ(import_region(two, two, out), EINVAL)
        << "a node is no region descriptor";
    EXPECT_EQ(import_region(two, dmabuf, out), EINVAL);
    EXPECT_EQ(import_region(two, control, out), EINVAL);
    auto argument = fresh<emuv_import>();
    for (const int closed : {-1, 9999}) {
        argument.fd = closed;
        EXPECT_EQ(call(two, EMUV_IOC_IMPORT, argument), EBADF) << closed;
    }
    const auto reader = open_client(id, O_RDONLY);
    const auto readable = export_region(reader, allocate(reader, chunk).offset);
    EXPECT_EQ(import_region(two, readable, out), EBADF);
}

TEST_F(client, ImportedFreedAndImportedAgainIsTheSameMemory)
{
    const auto one = open_client(id);
    const auto two = open_client(id);
    const auto exported = export_region(one, allocate(one, chunk).offset);
    for (int round = 0; round < 5; round++) {
        region imported;
        ASSERT_EQ(import_region(two, exported, imported), 0);
        char byte = 0;
        ASSERT_EQ(
            pread(two.get(), &byte, 1, static_cast<off_t>(imported.offset)), 1);
        EXPECT_EQ(byte, round);
        byte++;
        ASSERT_EQ(
            pwrite(two.get(), &byte, 1, static_cast<off_t>(imported.offset)),
            1);
        ASSERT_EQ(release(two, imported.offset), 0);
        EXPECT_EQ(clients()[1].imported_bytes, 0U);
    }
    EXPECT_EQ(now().virtual_used_bytes, chunk);
}

TEST_F(client, OwnerThatImportsWhatItFreedHoldsItAsImported)
{
    const auto one = open_client(id);
    const auto got = allocate(one, chunk);
    const auto exported = export_region(one, got.offset);
    ASSERT_EQ(release(one, got.offset), 0);
    EXPECT_EQ(now().unowned_bytes, chunk);
    region imported;
    ASSERT_EQ(import_region(one, exported, imported), 0);
    EXPECT_EQ(clients()[0].imported_bytes, chunk);
    EXPECT_EQ(clients()[0].virtual_bytes, 0U);
    EXPECT_EQ(now().unowned_bytes, chunk);
    ASSERT_EQ(release(one, imported.offset), 0);
    EXPECT_EQ(clients()[0].imported_bytes, 0U);
}

TEST_F(client, UnownedBytesAreThoseTheirOwnerLetGoOf)
{
    auto one = open_client(id);
    const auto mapped = allocate(one, chunk);
    const auto exported_from = allocate(one, 2 * chunk);
    const auto imported_from = allocate(one, 4 * chunk);
    const auto two = open_client(id);
    mapping map(one.get(), chunk, mapped.offset);
    auto exported = export_region(one, exported_from.offset);
    region imported;
    ASSERT_EQ(
        import_region(two, export_region(one, imported_from.offset), imported),
        0);
    EXPECT_EQ(now().unowned_bytes, 0U);
    ASSERT_EQ(release(one, mapped.offset), 0);
    EXPECT_EQ(now().unowned_bytes, chunk);
    ASSERT_EQ(release(one, exported_from.offset), 0);
    EXPECT_EQ(now().unowned_bytes, 3 * chunk);
    ASSERT_EQ(release(one, imported_from.offset), 0);
    EXPECT_EQ(now().unowned_bytes, 7 * chunk);
    EXPECT_EQ(now().virtual_used_bytes, 7 * chunk);
    EXPECT_EQ(clients()[0].virtual_bytes, 0U);
    // Bytes without an owner count against the limit too.
    region got;
    EXPECT_EQ(try_allocate(two, virtual_limit - 6 * chunk, got), ENOSPC);
    map.reset();
    EXPECT_EQ(now().unowned_bytes, 6 * chunk);
    exported.reset();
    EXPECT_EQ(now().unowned_bytes, 4 * chunk);
    ASSERT_EQ(release(two, imported.offset), 0);
    EXPECT_EQ(now().unowned_bytes, 0U);
    EXPECT_EQ(now().virtual_used_bytes, 0U);
}

TEST_F(client, FreedRegionThatIsStillMappedIsNotGivenToAnother)
{
    const auto one = open_client(id);
    const auto got = allocate(one, virtual_limit);
    const mapping map(one.get(), chunk, got.offset);
    map[0] = 'a';
    ASSERT_EQ(release(one, got.offset), 0);
    const auto two = open_client(id);
    region out;
    EXPECT_EQ(try_allocate(two, chunk, out), ENOSPC);
    EXPECT_EQ(map[0], 'a');
}

TEST_F(client, ExportsOfANodeWithNoDescriptorLeftGiveEmfile)
{
    const auto one = open_client(id);
    const auto got = allocate(one, chunk);
    const auto said =
        in_child({.keep = {one.get()}}, [&](channel &) -> std::string {
            int highest = dup(one.get());
            rlimit limit{};
            limit.rlim_cur = limit.rlim_max = static_cast<rlim_t>(highest) + 1;
            CHILD_EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
            for (const unsigned flags : {0U, EMUV_EXPORT_DMABUF}) {
                auto argument = fresh<emuv_export>();
                argument.flags = flags;
                argument.offset = got.offset;
                CHILD_EXPECT(call(one, EMUV_IOC_EXPORT, argument) == EMFILE);
            }
            return "";
        });
    EXPECT_EQ(said, "");
    ASSERT_EQ(release(one, got.offset), 0);
    EXPECT_EQ(now().virtual_used_bytes, 0U)
        << "a failed export holds the region";
}

TEST_F(client, ExportedDescriptorsCloseOnExec)
{
    const auto one = open_client(id);
    const auto got = allocate(one, chunk);
    for (const unsigned flags : {0U, EMUV_EXPORT_DMABUF}) {
        const auto exported = export_region(one, got.offset, flags);
        EXPECT_EQ(fcntl(exported.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    }
}

// --- many at once ---

/// Charges and uncharges at random until told to stop. Each step must stay
/// within the bytes that this thread holds.
void hammer(const descriptor &own, unsigned seed, const std::atomic<bool> &done)
{
    std::mt19937_64 random(seed);
    u64 charged = 0;
    std::vector<u64> regions;
    while (!done) {
        const u64 bytes = random() % (physical_limit / 3) + 1;
        switch (random() % 6) {
        case 0:
        case 1:
            charged += charge(own, bytes) == 0 ? bytes : 0;
            break;
        case 2:
            if (charged && uncharge(own, std::min(bytes, charged)) == 0)
                charged -= std::min(bytes, charged);
            break;
        case 3:
        case 4: {
            region got;
            if (try_allocate(own, (random() % 8 + 1) * chunk, got,
                             random() % 8 == 0 ? EMUV_ALLOC_POPULATE : 0) == 0)
                regions.push_back(got.offset);
            break;
        }
        default:
            if (!regions.empty()) {
                std::swap(regions.back(), regions[random() % regions.size()]);
                release(own, regions.back());
                regions.pop_back();
            }
        }
    }
}

TEST_F(client, SumsNeverPassTheLimitsHoweverManyTakeAtOnce)
{
    constexpr unsigned processes = 3;
    constexpr unsigned threads = 3;
    std::vector<std::unique_ptr<process>> running;
    for (unsigned p = 0; p < processes; p++)
        running.push_back(
            std::make_unique<process>([&, p](channel &us) -> std::string {
                std::atomic<bool> done = false;
                const auto shared = open_client(id);
                std::vector<std::thread> hammering;
                for (unsigned t = 0; t < threads; t++)
                    hammering.emplace_back([&, t] {
                        // Two threads have clients of their own; the others
                        // share one.
                        if (t == 0) {
                            hammer(open_client(id), p * 100 + t, done);
                        } else {
                            hammer(shared, p * 100 + t, done);
                        }
                    });
                us.send();
                us.receive();
                done = true;
                for (auto &thread : hammering)
                    thread.join();
                return "";
            }));
    for (auto &one : running)
        one->conversation().receive();
    u64 highest_physical = 0;
    u64 highest_virtual = 0;
    const auto end =
        std::chrono::steady_clock::now() +
        std::chrono::seconds(from_environment("EMUV_RACE_SECONDS", 2));
    while (std::chrono::steady_clock::now() < end) {
        const auto is = now();
        ASSERT_LE(is.physical_used_bytes, physical_limit);
        ASSERT_LE(is.virtual_used_bytes, virtual_limit);
        ASSERT_LE(is.resident_bytes, virtual_limit);
        highest_physical =
            std::max<u64>(highest_physical, is.physical_used_bytes);
        highest_virtual = std::max<u64>(highest_virtual, is.virtual_used_bytes);
        for (const auto &one : clients()) {
            ASSERT_LE(one.physical_bytes, physical_limit);
            ASSERT_LE(one.virtual_bytes, virtual_limit);
        }
    }
    // Otherwise the test has tried nothing.
    EXPECT_GT(highest_physical, physical_limit / 2);
    EXPECT_GT(highest_virtual, virtual_limit / 2);
    // One process is killed, the others end: both ways all memory returns.
    running[0]->kill_now();
    for (unsigned p = 1; p < processes; p++) {
        running[p]->conversation().send();
        EXPECT_EQ(running[p]->join(), "");
    }
    expect_idle();
    const auto last = open_client(id);
    EXPECT_EQ(charge(last, physical_limit), 0);
    region got;
    EXPECT_EQ(try_allocate(last, virtual_limit, got), 0);
}

TEST_F(client, AtRestTheClientsAddUpToTheInstance)
{
    std::vector<descriptor> open;
    for (unsigned i = 0; i < 20; i++) {
        open.push_back(open_client(id));
        ASSERT_EQ(charge(open.back(), 1000 + i), 0);
        region got;
        ASSERT_EQ(try_allocate(open.back(), (i % 2 + 1) * chunk, got), 0);
    }
    u64 physical = 0;
    u64 virtual_sum = 0;
    for (const auto &one : clients()) {
        physical += one.physical_bytes;
        virtual_sum += one.virtual_bytes;
    }
    EXPECT_EQ(now().clients, 20U);
    EXPECT_EQ(physical, now().physical_used_bytes);
    EXPECT_EQ(virtual_sum + now().unowned_bytes, now().virtual_used_bytes);
}

TEST_F(client, ExactlyOneOfManyGetsTheLastByte)
{
    constexpr unsigned threads = 6;
    const auto base = open_client(id);
    ASSERT_EQ(charge(base, physical_limit - 1), 0);
    for (int round = 0; round < 50; round++) {
        std::vector<descriptor> own;
        for (unsigned t = 0; t < threads; t++)
            own.push_back(open_client(id));
        std::atomic<unsigned> waiting = 0;
        std::atomic<unsigned> succeeded = 0;
        std::vector<std::thread> running;
        for (unsigned t = 0; t < threads; t++)
            running.emplace_back([&, t] {
                waiting++;
                while (waiting < threads)
                    std::this_thread::yield();
                succeeded += charge(own[t], 1) == 0;
            });
        for (auto &thread : running)
            thread.join();
        ASSERT_EQ(succeeded, 1U);
    }
}

TEST_F(client, TwoThreadsUnchargeTheSameBytesOnce)
{
    const auto one = open_client(id);
    for (int round = 0; round < 200; round++) {
        ASSERT_EQ(charge(one, 1000), 0);
        std::atomic<unsigned> waiting = 0;
        std::atomic<unsigned> succeeded = 0;
        const auto run = [&] {
            waiting++;
            while (waiting < 2)
                std::this_thread::yield();
            succeeded += uncharge(one, 1000) == 0;
        };
        std::thread two(run);
        run();
        two.join();
        ASSERT_EQ(succeeded, 1U);
    }
    EXPECT_EQ(now().physical_used_bytes, 0U);
}

TEST_F(client, ThousandsOpenedAndClosedLeaveNothing)
{
    for (int i = 0; i < 200; i++)
        open_client(id);
    const auto slab = meminfo("SUnreclaim");
    for (int i = 0; i < 5000; i++)
        open_client(id);
    expect_idle();
    EXPECT_TRUE(holds_back_freed() || wait_until([&] {
                    return meminfo("SUnreclaim") < slab + 2 * mib;
                }));
}

} // namespace
