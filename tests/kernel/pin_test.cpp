// SPDX-License-Identifier: GPL-2.0-or-later
// Pages that something outside the driver holds: long-term pins by io_uring,
// and O_DIRECT into the mapping.
#include "pin.hpp"

#include <atomic>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <thread>

#include <linux/memfd.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using namespace guest;

constexpr u64 region_bytes = 4 * chunk;

class pages : public driver_test
{
protected:
    void SetUp() override
    {
        driver_test::SetUp();
        if (HasFatalFailure())
            return;
        id = create(control, mib, 64 * mib);
        client = open_client(id);
        got = allocate(client, region_bytes);
        map = mapping(client.get(), region_bytes, got.offset);
        file = descriptor(static_cast<int>(
            checked(memfd_create("emuv-test", MFD_CLOEXEC), "memfd_create")));
        checked(ftruncate(file.get(), static_cast<off_t>(region_bytes)),
                "ftruncate");
        contents = mapping(file.get(), region_bytes);
    }

    void TearDown() override
    {
        map.reset();
        client.reset();
        driver_test::TearDown();
    }

    int id = -1;
    descriptor client;
    region got;
    mapping map;
    descriptor file;
    mapping contents;
    unsigned char *place = nullptr;
};

/// Pages pinned by io_uring, which can read and write them.
class pinned : public pages
{
protected:
    void SetUp() override
    {
        pages::SetUp();
        if (!HasFatalFailure() && pin(map.data(), 4096).error() == EOPNOTSUPP)
            GTEST_SKIP() << "io_uring registers no memory of device files here";
        if (!HasFatalFailure()) {
            ASSERT_EQ(discard(client, got.offset, region_bytes), 0);
        }
    }

    /// Reads the region through the pin, into `contents`.
    void read_pin(pin &by)
    {
        std::memset(contents.data(), 0xee, region_bytes);
        ASSERT_EQ(by.to_file(file.get(), place, region_bytes, 0),
                  static_cast<int>(region_bytes));
    }

    /// Fills the region with `value` through the pin.
    void write_pin(pin &by, unsigned char value)
    {
        std::memset(contents.data(), value, region_bytes);
        ASSERT_EQ(by.from_file(file.get(), place, region_bytes, 0),
                  static_cast<int>(region_bytes));
    }

    /// Pins the region as it is mapped now. Keeps the address, since the
    /// mapping may go.
    std::unique_ptr<pin> pin_region()
    {
        place = map.data();
        auto made = std::make_unique<pin>(place, region_bytes);
        EXPECT_EQ(made->error(), 0) << std::strerror(made->error());
        return made;
    }

    /// Takes all free memory of the instance, expects zeros in it and fills it.
    void expect_next_owner_undisturbed(pin &by, unsigned char pins_value)
    {
        const auto next = open_client(id);
        std::vector<mapping> theirs;
        region more;
        while (try_allocate(next, chunk, more) == 0)
            theirs.emplace_back(next.get(), chunk, more.offset);
        ASSERT_GT(theirs.size(), 8U);
        for (const auto &one : theirs) {
            EXPECT_FALSE(first_other(one.data(), chunk));
            std::memset(one.data(), 'n', chunk);
        }
        read_pin(by);
        EXPECT_FALSE(first_other(contents.data(), region_bytes, pins_value))
            << "the pin sees the next owner's bytes";
        write_pin(by, 'd');
        for (const auto &one : theirs)
            EXPECT_FALSE(first_other(one.data(), chunk, 'n'))
                << "the pin writes into the next owner's memory";
    }
};

TEST_F(pinned, BackedPagesCanBePinnedAndUsedBothWays)
{
    fill_pattern(map.data(), region_bytes, 1);
    const auto by = pin_region();
    read_pin(*by);
    EXPECT_FALSE(first_pattern_error(contents.data(), region_bytes, 1));
    write_pin(*by, 'd');
    EXPECT_FALSE(first_other(map.data(), region_bytes, 'd'));
}

TEST_F(pinned, PinningUntouchedPagesBacksThem)
{
    const auto by = pin_region();
    EXPECT_EQ(query(control, id).resident_bytes, region_bytes);
    read_pin(*by);
    EXPECT_FALSE(first_other(contents.data(), region_bytes));
    write_pin(*by, 'd');
    EXPECT_FALSE(first_other(map.data(), region_bytes, 'd'));
}

TEST_F(pinned, PagesCanBePinnedTwiceAndThroughTwoMappings)
{
    const mapping other(client.get(), region_bytes, got.offset);
    const auto one = pin_region();
    pin two(map.data(), region_bytes);
    ASSERT_EQ(two.error(), 0);
    pin three(other.data(), region_bytes);
    ASSERT_EQ(three.error(), 0);
    write_pin(*one, 'd');
    EXPECT_FALSE(first_other(other.data(), region_bytes, 'd'));
}

TEST_F(pinned, DescriptorsMappingCanBePinned)
{
    const auto exported = export_region(client, got.offset);
    map = mapping(exported.get(), region_bytes);
    const auto by = pin_region();
    write_pin(*by, 'd');
    unsigned char byte = 0;
    ASSERT_EQ(pread(client.get(), &byte, 1,
                    static_cast<off_t>(got.offset + region_bytes - 1)),
              1);
    EXPECT_EQ(byte, 'd');
}

TEST_F(pinned, PinOutlivesTheMapping)
{
    fill_pattern(map.data(), region_bytes, 2);
    const auto by = pin_region();
    map.reset();
    read_pin(*by);
    EXPECT_FALSE(first_pattern_error(contents.data(), region_bytes, 2));
    write_pin(*by, 'd');
    // The region still has the same memory.
    map = mapping(client.get(), region_bytes, got.offset);
    EXPECT_FALSE(first_other(map.data(), region_bytes, 'd'));
}

TEST_F(pinned, DiscardReadsZeroThroughMappingAndPinAlike)
{
    std::memset(map.data(), 'p', region_bytes);
    const auto by = pin_region();
    ASSERT_EQ(discard(client, got.offset + 100, region_bytes - 200), 0);
    EXPECT_FALSE(first_other(map.data(), 100, 'p'));
    EXPECT_FALSE(first_other(map.data() + 100, region_bytes - 200));
    // Pins and mappings still see the same memory.
    read_pin(*by);
    EXPECT_EQ(std::memcmp(contents.data(), map.data(), region_bytes), 0);
    write_pin(*by, 'd');
    EXPECT_FALSE(first_other(map.data(), region_bytes, 'd'));
}

TEST_F(pinned, FreedRegionIsNobodyElsesWhileThePinHoldsIt)
{
    std::memset(map.data(), 'p', region_bytes);
    const auto by = pin_region();
    map.reset();
    ASSERT_EQ(release(client, got.offset), 0);
    expect_next_owner_undisturbed(*by, 'p');
}

TEST_F(pinned, ClosedClientsRegionIsNobodyElsesWhileThePinHoldsIt)
{
    std::memset(map.data(), 'p', region_bytes);
    const auto by = pin_region();
    map.reset();
    client.reset();
    EXPECT_EQ(query(control, id).clients, 0U);
    expect_next_owner_undisturbed(*by, 'p');
}

TEST_F(pinned, MemoryComesBackWhenThePinIsGone)
{
    const auto before = settled_available();
    for (int round = 0; round < 8; round++) {
        map = mapping(client.get(), region_bytes, got.offset);
        std::memset(map.data(), 'p', region_bytes);
        auto by = pin_region();
        map.reset();
        ASSERT_EQ(release(client, got.offset), 0);
        by.reset();
        EXPECT_TRUE(wait_until([&] {
            return query(control, id).virtual_used_bytes == 0;
        })) << query(control, id).virtual_used_bytes
            << " bytes are still in use";
        EXPECT_TRUE(
            wait_until([&] { return query(control, id).resident_bytes == 0; }));
        EXPECT_EQ(query(control, id).unowned_bytes, 0U);
        got = allocate(client, region_bytes);
    }
    EXPECT_TRUE(
        wait_until([&] { return settled_available() + 8 * mib > before; }));
}

/// The regions or clients of an instance as debugfs lists them.
std::vector<std::map<std::string, std::string>> listed(int id,
                                                       const std::string &what)
{
    std::istringstream text(read_text("/sys/kernel/debug/emuv/emuv" +
                                      std::to_string(id) + "/" + what));
    const auto words = [](const std::string &line) {
        std::istringstream in(line);
        return std::vector<std::string>(std::istream_iterator<std::string>(in),
                                        {});
    };
    std::string line;
    std::getline(text, line);
    const auto names = words(line);
    std::vector<std::map<std::string, std::string>> all;
    while (std::getline(text, line)) {
        const auto values = words(line);
        EXPECT_EQ(values.size(), names.size()) << line;
        all.emplace_back();
        for (std::size_t i = 0; i < std::min(values.size(), names.size()); i++)
            all.back()[names[i]] = values[i];
    }
    return all;
}

std::vector<std::map<std::string, std::string>> listed_regions(int id)
{
    return listed(id, "regions");
}

TEST_F(pages, RegionsAreListedForDebugging)
{
    std::memset(map.data(), 1, map.size());
    if (!exists("/sys/kernel/debug/emuv"))
        GTEST_SKIP() << "no debugfs here";
    const auto size = std::to_string(region_bytes);
    const auto number = std::to_string(list_clients(client).front().client);
    auto listed = listed_regions(id);
    ASSERT_EQ(listed.size(), 1U);
    EXPECT_EQ(listed[0]["bytes"], size);
    EXPECT_EQ(listed[0]["resident"], size);
    EXPECT_EQ(listed[0]["pinned"], "0");
    EXPECT_EQ(listed[0]["devices"], "0");
    EXPECT_EQ(listed[0]["state"], "owned");
    EXPECT_EQ(listed[0]["client"], number);
    auto by = std::make_unique<socket_pin>(map.data(), region_bytes);
    ASSERT_EQ(by->error(), 0);
    EXPECT_EQ(listed_regions(id)[0]["pinned"], size);
    auto exported = export_region(client, got.offset);
    ASSERT_EQ(release(client, got.offset), 0);
    listed = listed_regions(id);
    ASSERT_EQ(listed.size(), 1U);
    EXPECT_EQ(listed[0]["state"], "unowned");
    EXPECT_EQ(listed[0]["client"], number) << "who allocated it";
    map.reset();
    exported.reset();
    client.reset();
    EXPECT_TRUE(wait_until([&] {
        const auto now = listed_regions(id);
        return now.size() == 1 && now[0].at("state") == "lingering" &&
               now[0].at("client") == number;
    }));
    by.reset();
    EXPECT_TRUE(wait_until([&] { return listed_regions(id).empty(); }));
}

/// Each client with what its memory is doing.
std::vector<emuv_query_client> memory_of_clients(const descriptor &node)
{
    return list_clients(node, 0, EMUV_QUERY_MEMORY);
}

TEST_F(pages, AClientsMemoryIsCounted)
{
    const auto other = open_client(id);
    const auto theirs = allocate(other, 8 * chunk, EMUV_ALLOC_POPULATE);
    std::memset(map.data(), 1, 3 * chunk);
    {
        const auto of = memory_of_clients(client);
        ASSERT_EQ(of.size(), 2U);
        EXPECT_EQ(of[0].resident_bytes, 3 * chunk);
        EXPECT_EQ(of[0].pinned_bytes, 0U);
        EXPECT_EQ(of[0].lingering_bytes, 0U);
        EXPECT_EQ(of[1].resident_bytes, 8 * chunk);
    }
    auto by = std::make_unique<socket_pin>(map.data() + chunk, 2 * chunk);
    ASSERT_EQ(by->error(), 0);
    {
        const auto of = memory_of_clients(client);
        EXPECT_EQ(of[0].resident_bytes, 3 * chunk);
        EXPECT_EQ(of[0].pinned_bytes, 2 * chunk);
        EXPECT_EQ(of[1].pinned_bytes, 0U);
        const auto plain = list_clients(client);
        EXPECT_EQ(plain[0].resident_bytes + plain[0].pinned_bytes, 0U)
            << "nobody has asked";
    }
    // In others' hands it is nobody's; pinned and in no hands, it lingers.
    auto exported = export_region(client, got.offset);
    map.reset();
    ASSERT_EQ(release(client, got.offset), 0);
    {
        const auto of = memory_of_clients(client);
        EXPECT_EQ(of[0].resident_bytes + of[0].pinned_bytes, 0U);
        EXPECT_EQ(of[0].lingering_bytes, 0U);
    }
    exported.reset();
    EXPECT_TRUE(wait_until([&] {
        return memory_of_clients(client)[0].lingering_bytes == region_bytes;
    }));
    EXPECT_EQ(memory_of_clients(client)[1].lingering_bytes, 0U);
    EXPECT_EQ(query(control, id).unowned_bytes, region_bytes);
    by.reset();
    EXPECT_TRUE(wait_until(
        [&] { return memory_of_clients(client)[0].lingering_bytes == 0; }));
    EXPECT_EQ(release(other, theirs.offset), 0);
}

TEST_F(pages, WhatAllClientsFreedWhilePinnedIsShownAsOneSum)
{
    const auto lingering = [&] { return attribute(id, "lingering_bytes"); };
    const auto expect_lingering = [&](u64 bytes) {
        EXPECT_TRUE(wait_until([&] {
            return lingering() == std::to_string(bytes);
        })) << lingering()
            << " instead of " << bytes;
    };
    auto other = open_client(id);
    const auto theirs = allocate(other, 3 * chunk);
    mapping their_map(other.get(), theirs.bytes, theirs.offset);
    std::memset(map.data(), 1, map.size());
    std::memset(their_map.data(), 1, their_map.size());
    auto by = std::make_unique<socket_pin>(map.data(), chunk);
    auto their_pin = std::make_unique<socket_pin>(their_map.data(), chunk);
    ASSERT_EQ(by->error(), 0);
    ASSERT_EQ(their_pin->error(), 0);
    auto exported = export_region(client, got.offset);
    map.reset();
    ASSERT_EQ(release(client, got.offset), 0);
    EXPECT_EQ(lingering(), "0") << "a descriptor still holds it";
    exported.reset();
    expect_lingering(region_bytes);
    their_map.reset();
    other.reset();
    expect_lingering(region_bytes + 3 * chunk);
    EXPECT_EQ(attribute(id, "unowned_bytes"), lingering());
    by.reset();
    expect_lingering(3 * chunk);
    their_pin.reset();
    expect_lingering(0);
}

TEST_F(pages, AClientsMemoryIsCountedOverManyRegions)
{
    const int large =
        create(control, creation(0, 2 * gib, EMUV_ANY, EMUV_CREATE_OVERCOMMIT));
    {
        const auto one = open_client(large);
        const auto two = open_client(large);
        unsigned regions = 0;
        for (region more;
             try_allocate(regions % 2 ? two : one, chunk, more) == 0;
             regions++) {
            if (regions < 8) {
                ASSERT_EQ(pwrite(regions % 2 ? two.get() : one.get(), "x", 1,
                                 static_cast<off_t>(more.offset)),
                          1);
            }
        }
        ASSERT_EQ(regions, 1024U);
        for (const auto &of : memory_of_clients(one)) {
            EXPECT_EQ(of.virtual_bytes, gib);
            EXPECT_EQ(of.resident_bytes, 4 * chunk);
            EXPECT_EQ(of.lingering_bytes, 0U);
        }
    }
    EXPECT_EQ(destroy_eventually(control, large), 0);
}

TEST_F(pages, ClientsAreListedForDebugging)
{
    if (!exists("/sys/kernel/debug/emuv"))
        GTEST_SKIP() << "no debugfs here";
    std::memset(map.data(), 1, 2 * chunk);
    process other({}, [&](channel &us) -> std::string {
        CHILD_EXPECT(prctl(PR_SET_NAME, "a \\b\n") == 0);
        const auto theirs = open_client(id);
        us.send();
        us.receive();
        return "";
    });
    other.conversation().receive();
    const auto by = std::make_unique<socket_pin>(map.data(), chunk);
    ASSERT_EQ(by->error(), 0);
    const auto lines = listed(id, "clients");
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_EQ(lines[0].at("pid"), std::to_string(getpid()));
    EXPECT_EQ(lines[0].at("virtual"), std::to_string(region_bytes));
    EXPECT_EQ(lines[0].at("resident"), std::to_string(2 * chunk));
    EXPECT_EQ(lines[0].at("pinned"), std::to_string(chunk));
    EXPECT_EQ(lines[0].at("lingering"), "0");
    EXPECT_EQ(lines[1].at("pid"), std::to_string(other.pid()));
    EXPECT_EQ(lines[1].at("virtual"), "0");
    EXPECT_EQ(lines[1].at("command"), "a\\040\\134b\\012");
    other.conversation().send();
    EXPECT_EQ(other.join(), "");
}

TEST_F(pages, ListingRegionsIsNotInTheWayOfDiscards)
{
    if (!exists("/sys/kernel/debug/emuv"))
        GTEST_SKIP() << "no debugfs here";
    std::atomic<bool> done = false;
    std::atomic<unsigned> turns = 0;
    std::thread reader([&] {
        while (!done) {
            listed_regions(id);
            turns++;
        }
    });
    for (int round = 0; round < 100; round++) {
        std::memset(map.data(), 1, map.size());
        EXPECT_EQ(discard(client, got.offset, region_bytes), 0);
        EXPECT_EQ(query(control, id).resident_bytes, 0U);
    }
    EXPECT_TRUE(wait_until([&] { return turns > 10; }));
    done = true;
    reader.join();
}

TEST_F(pages, ManyRegionsAreListedInOrder)
{
    constexpr unsigned count = 20;
    if (!exists("/sys/kernel/debug/emuv"))
        GTEST_SKIP() << "no debugfs here";
    for (unsigned i = 0; i < count; i++)
        allocate(client, chunk);
    const auto listed = listed_regions(id);
    ASSERT_EQ(listed.size(), count + 1);
    for (unsigned i = 1; i < listed.size(); i++)
        EXPECT_EQ(std::stoull(listed[i].at("offset")),
                  std::stoull(listed[i - 1].at("offset")) +
                      std::stoull(listed[i - 1].at("bytes")));
}

TEST_F(pinned, PinsOfManyRegionsComeAndGo)
{
    for (int round = 0; round < 20; round++) {
        // The kernel ends a ring, and what it pins, after the call for that.
        const auto has_room = [&] {
            const auto now = query(control, id);
            return now.virtual_bytes - now.virtual_used_bytes >= 2 * chunk;
        };
        ASSERT_TRUE(wait_until(has_room));
        const auto more = allocate(client, 2 * chunk);
        const mapping their(client.get(), more.bytes, more.offset);
        pin by(their.data(), more.bytes);
        ASSERT_EQ(by.error(), 0);
        ASSERT_EQ(release(client, more.offset), 0);
    }
    EXPECT_TRUE(wait_until([&] {
        return query(control, id).virtual_used_bytes == region_bytes;
    })) << query(control, id).virtual_used_bytes;
}

// --- pinned by a socket, on any kernel ---

// Counts another client's touches that begin and end within the same discard,
// which zeroes half a gibibyte in place. If one kept the other waiting, there
// would be one or two: on its way in and out.
TEST_F(pages, PinnedOnesAreDiscardedWhileOtherClientsTouch)
{
    const int large =
        create(control, creation(mib, gib, EMUV_ANY, EMUV_CREATE_OVERCOMMIT));
    const auto one = open_client(large), other = open_client(large);
    const auto held = allocate(one, 512 * mib);
    const mapping pinned_map(one.get(), held.bytes, held.offset);
    const socket_pin by(pinned_map.data(), held.bytes);
    ASSERT_EQ(by.error(), 0) << std::strerror(by.error());
    const auto theirs = allocate(other, 64 * mib);
    const mapping map_of_theirs(other.get(), theirs.bytes, theirs.offset);

    constexpr unsigned enough = 5; // in each of so many discards:
    constexpr unsigned discards = 3;
    constexpr unsigned most_discards = 64;
    std::atomic<unsigned> turns = 0; // odd within a discard
    std::atomic<bool> ends = false;
    std::atomic<bool> failed = false;
    std::thread discarder([&] {
        while (!ends && !failed) {
            turns++;
            failed = discard(one, held.offset, held.bytes) != 0;
            turns++;
        }
    });
    unsigned touches = 0; // within the discard of this turn
    unsigned open_ones = 0;
    for (unsigned turn = 0, at = 0; open_ones < discards && !failed; at++) {
        if (turns >= 2 * most_discards)
            break;
        const u64 here = at * chunk % map_of_theirs.size();
        const unsigned before = turns;
        // Drop the pages from the mapping, and fault them in again.
        EXPECT_EQ(madvise(map_of_theirs.data() + here, chunk, MADV_DONTNEED),
                  0);
        map_of_theirs[here] = 1;
        if (before % 2 == 0 || before != turns)
            continue;
        touches = before == turn ? touches + 1 : 1;
        turn = before;
        open_ones += touches == enough;
    }
    ends = true;
    discarder.join();
    EXPECT_FALSE(failed);
    EXPECT_EQ(open_ones, discards) << "of " << turns / 2;
    // All of it, if the loop was over sooner.
    for (u64 here = 0; here < map_of_theirs.size(); here += chunk)
        map_of_theirs[here] = 1;
    EXPECT_FALSE(first_other(pinned_map.data(), held.bytes));
    EXPECT_EQ(query(control, large).resident_bytes, held.bytes + theirs.bytes);
}

// A discard zeroes pinned memory from the front on. If a kill ends it, the last
// byte is still there.
TEST_F(pages, PinnedOnesAreDiscardedNoFurtherOnceTheProcessIsKilled)
{
    constexpr unsigned most_rounds = 64;
    constexpr u64 size = 512 * mib;
    const int large =
        create(control, creation(mib, gib, EMUV_ANY, EMUV_CREATE_OVERCOMMIT));
    const auto owner = open_client(large);
    const auto held = allocate(owner, size);
    const auto exported = export_region(owner, held.offset);
    const mapping pinned_map(exported.get(), size);
    const socket_pin by(pinned_map.data(), size);
    ASSERT_EQ(by.error(), 0) << std::strerror(by.error());
    const auto byte_at = [&](u64 at) {
        char byte = 0;
        EXPECT_EQ(pread(exported.get(), &byte, 1, static_cast<off_t>(at)), 1);
        return byte;
    };
    bool ended = false;
    for (unsigned round = 0; round < most_rounds && !ended; round++) {
        ASSERT_EQ(pwrite(exported.get(), "p", 1, 0), 1);
        ASSERT_EQ(pwrite(exported.get(), "p", 1, static_cast<off_t>(size - 1)),
                  1);
        process victim({.keep = {owner.get()}}, [&](channel &) -> std::string {
            CHILD_EXPECT(discard(owner, held.offset, size) == 0);
            return "";
        });
        ASSERT_TRUE(wait_until([&] { return byte_at(0) == 0; }));
        victim.kill_now();
        ended = byte_at(size - 1) == 'p';
    }
    EXPECT_TRUE(ended) << "each discard went on to the end";
    EXPECT_EQ(discard(owner, held.offset, size), 0);
    EXPECT_FALSE(first_other(pinned_map.data(), size));
}

TEST_F(pages, CanBePinnedForLongWhetherBackedOrNot)
{
    std::memset(map.data(), 'p', 2 * chunk);
    const socket_pin by(map.data(), region_bytes);
    ASSERT_EQ(by.error(), 0) << std::strerror(by.error());
    EXPECT_EQ(query(control, id).resident_bytes, region_bytes);
    EXPECT_FALSE(first_other(map.data(), 2 * chunk, 'p'));
    EXPECT_FALSE(first_other(map.data() + 2 * chunk, region_bytes - 2 * chunk));
    const socket_pin again(map.data(), region_bytes);
    EXPECT_EQ(again.error(), 0);
}

TEST_F(pages, PinnedForLongStayInTheLedgerUntilThePinIsGone)
{
    std::memset(map.data(), 'p', region_bytes);
    auto by = std::make_unique<socket_pin>(map.data(), region_bytes);
    ASSERT_EQ(by->error(), 0);
    map.reset();
    ASSERT_EQ(release(client, got.offset), 0);
    EXPECT_EQ(query(control, id).virtual_used_bytes, region_bytes);
    EXPECT_EQ(query(control, id).unowned_bytes, region_bytes);
    region rest;
    EXPECT_EQ(try_allocate(client, 64 * mib - region_bytes + 1, rest), ENOSPC);
    ASSERT_EQ(try_allocate(client, 64 * mib - region_bytes, rest), 0);
    EXPECT_TRUE(reads_zero(client.get(), rest.offset, rest.bytes));
    ASSERT_EQ(release(client, rest.offset), 0);
    by.reset();
    EXPECT_TRUE(
        wait_until([&] { return query(control, id).virtual_used_bytes == 0; }));
    EXPECT_EQ(query(control, id).resident_bytes, 0U);
}

TEST_F(pages, ThatAKilledProcessPinnedComeBack)
{
    map.reset();
    client.reset();
    process victim([&](channel &us) -> std::string {
        const auto own = open_client(id);
        const auto all = allocate(own, 32 * mib);
        const mapping their(own.get(), all.bytes, all.offset);
        const socket_pin by(their.data(), their.size());
        CHILD_EXPECT(by.error() == 0);
        us.send();
        us.receive();
        return "";
    });
    victim.conversation().receive();
    EXPECT_EQ(query(control, id).resident_bytes, 32 * mib);
    victim.kill_now();
    EXPECT_TRUE(
        wait_until([&] { return query(control, id).virtual_used_bytes == 0; }));
    EXPECT_EQ(query(control, id).resident_bytes, 0U);
}

// --- O_DIRECT ---

class direct : public pages
{
protected:
    void SetUp() override
    {
        pages::SetUp();
        if (HasFatalFailure())
            return;
        if (!exists("/dev/ram0") &&
            !load_stock_module("brd rd_nr=1 rd_size=65536"))
            GTEST_SKIP() << "this kernel has no brd";
        ASSERT_TRUE(wait_until([] { return exists("/dev/ram0"); }));
        disk = descriptor(open("/dev/ram0", O_RDWR | O_DIRECT | O_CLOEXEC));
        ASSERT_TRUE(disk) << std::strerror(errno);
    }

    descriptor disk;
};

TEST_F(direct, ReadsAndWritesReachTheMapping)
{
    fill_pattern(map.data(), region_bytes, 3);
    ASSERT_EQ(pwrite(disk.get(), map.data(), region_bytes, 0),
              static_cast<ssize_t>(region_bytes))
        << std::strerror(errno);
    std::memset(map.data(), 0, region_bytes);
    ASSERT_EQ(pread(disk.get(), map.data(), region_bytes, 0),
              static_cast<ssize_t>(region_bytes))
        << std::strerror(errno);
    EXPECT_FALSE(first_pattern_error(map.data(), region_bytes, 3));
}

TEST_F(direct, ReadIntoUntouchedMemoryBacksIt)
{
    std::vector<unsigned char> data(region_bytes + 4096);
    auto *aligned =
        data.data() +
        (4096 - reinterpret_cast<std::uintptr_t>(data.data()) % 4096);
    fill_pattern(aligned, region_bytes, 4);
    ASSERT_EQ(pwrite(disk.get(), aligned, region_bytes, 0),
              static_cast<ssize_t>(region_bytes));
    // From the middle of a chunk across its border.
    ASSERT_EQ(pread(disk.get(), map.data() + chunk / 2, chunk, 0),
              static_cast<ssize_t>(chunk))
        << std::strerror(errno);
    EXPECT_FALSE(first_pattern_error(map.data() + chunk / 2, chunk, 4));
    EXPECT_FALSE(first_other(map.data(), chunk / 2));
    EXPECT_EQ(query(control, id).resident_bytes, 2 * chunk);
}

TEST_F(direct, WriteFromUntouchedMemoryWritesZeros)
{
    std::memset(map.data(), 'x', chunk);
    ASSERT_EQ(pwrite(disk.get(), map.data(), chunk, 0),
              static_cast<ssize_t>(chunk));
    ASSERT_EQ(pwrite(disk.get(), map.data() + chunk, chunk, 0),
              static_cast<ssize_t>(chunk));
    ASSERT_EQ(pread(disk.get(), map.data(), chunk, 0),
              static_cast<ssize_t>(chunk));
    EXPECT_FALSE(first_other(map.data(), chunk));
}

TEST_F(direct, ReadIntoAReadOnlyMappingIsRefused)
{
    const mapping reading(client.get(), region_bytes, got.offset, PROT_READ);
    EXPECT_EQ(error_of(pread(disk.get(), reading.data(), 4096, 0)), EFAULT);
    EXPECT_FALSE(first_other(map.data(), 4096));
}

} // namespace
