// SPDX-License-Identifier: GPL-2.0-or-later
// The host's floor on hosts with memory of several kinds. Each node must keep
// its share of the memory that chunks can come from. With movable zones or
// several nodes, sums over the whole host prove nothing; scripts/test boots
// such a guest.
#include "support.hpp"

#include <cerrno>
#include <csignal>
#include <map>
#include <sstream>

#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace guest;

/// The memory of a node that the kernel itself can use, in bytes.
struct usable
{
    u64 managed = 0;
    u64 available = 0;
};

std::map<int, usable> usable_by_node()
{
    std::map<int, usable> nodes;
    std::istringstream text(read_text("/proc/zoneinfo"));
    int node = -1;
    bool counts = false;
    for (std::string line; std::getline(text, line);) {
        std::istringstream words(line);
        std::string word;
        words >> word;
        if (word == "Node") {
            std::string zone;
            words >> node;
            words.ignore(16, 'e'); // ", zone"
            words >> zone;
            counts = zone != "Movable" && zone != "Device";
        } else if (counts) {
            u64 pages = 0;
            if (word == "pages")
                words >> word;
            words >> pages;
            if (word == "managed")
                nodes[node].managed += pages * 4096;
            else if (word == "cma")
                nodes[node].managed -= pages * 4096;
            else if (word == "free" || word == "nr_zone_active_file" ||
                     word == "nr_zone_inactive_file")
                nodes[node].available += pages * 4096;
            else if (word == "nr_free_cma")
                nodes[node].available -= pages * 4096;
        }
    }
    return nodes;
}

class host_floor_by_node : public driver_test
{
protected:
    host_floor_by_node()
        : driver_test("host_floor_mb=" + std::to_string(floor_bytes / mib))
    {}

    /// Touches memory near a node until no more is available.
    void exhaust(int numa_node, unsigned flags = 0)
    {
        auto argument =
            creation(mib, 16 * gib, EMUV_ANY, EMUV_CREATE_OVERCOMMIT | flags);
        argument.numa_node = numa_node;
        const int id = create(control, argument);
        client = open_client(id);
        const auto got = allocate(client, 16 * gib);
        map = mapping(client.get(), got.bytes, got.offset);
        for (touched = 0; touched < map.size(); touched += chunk)
            if (signal_of_write(map.data() + touched) != 0)
                return;
        FAIL() << "no end to it";
    }

    void TearDown() override
    {
        map.reset();
        client.reset();
        driver_test::TearDown();
    }

    static constexpr u64 floor_bytes = 512 * mib;
    descriptor client;
    mapping map;
    u64 touched = 0;
};

TEST_F(host_floor_by_node, LeavesEachNodeItsShareWhicheverIsAskedFor)
{
    kernel_log log;
    u64 managed = 0;
    for (const auto &[node, has] : usable_by_node())
        managed += has.managed;
    for (const auto &[node, all] : usable_by_node()) {
        exhaust(node);
        for (const auto &[other, has] : usable_by_node())
            EXPECT_GT(has.available + 16 * mib,
                      floor_bytes / mib * has.managed / (managed / mib))
                << "node " << other << " after node " << node;
        EXPECT_GT(touched, managed / 4) << "little was to be had";
        map.reset();
        client.reset();
    }
    for (const auto &line : log.lines()) {
        EXPECT_EQ(line.find("Out of memory"), std::string::npos) << line;
        EXPECT_EQ(line.find("invoked oom-killer"), std::string::npos) << line;
    }
}

TEST_F(host_floor_by_node, InstancesThatAreBoundToANodeTakeNothingFromOthers)
{
    auto argument = creation(mib, chunk, EMUV_ANY, EMUV_CREATE_BIND);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), EINVAL)
        << "to which node?";
    settled_available();
    const auto before = usable_by_node();
    for (const auto &[node, all] : before) {
        exhaust(node, EMUV_CREATE_BIND);
        EXPECT_GT(touched, 0U) << node;
        EXPECT_LE(touched, all.available + 16 * mib) << node;
        auto after = usable_by_node();
        for (const auto &[other, had] : before) {
            if (other != node) {
                EXPECT_GT(after[other].available + 64 * mib, had.available)
                    << "node " << other << " after node " << node;
            }
        }
        map.reset();
        client.reset();
    }
}

TEST_F(host_floor_by_node, LeavesOthersRoomForProcesses)
{
    kernel_log log;
    exhaust(EMUV_ANY);
    // The region keeps the memory. A mapping would cost each child its own page
    // tables.
    map.reset();
    // Processes need unmovable memory too.
    std::vector<pid_t> children;
    for (int i = 0; i < 200; i++) {
        const pid_t child = fork();
        ASSERT_NE(child, -1) << i;
        if (child == 0) {
            pause();
            _exit(0);
        }
        children.push_back(child);
    }
    for (const pid_t child : children) {
        kill(child, SIGTERM);
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(WTERMSIG(status), SIGTERM);
    }
    for (const auto &line : log.lines())
        EXPECT_EQ(line.find("invoked oom-killer"), std::string::npos) << line;
}

TEST_F(host_floor_by_node, PopulateIsRefusedAtOnceWhereNodesCannotAffordIt)
{
    u64 managed = 0;
    for (const auto &[node, has] : usable_by_node())
        managed += has.managed;
    const int id = create(
        control, creation(mib, 16 * gib, EMUV_ANY, EMUV_CREATE_OVERCOMMIT));
    client = open_client(id);
    region got;
    EXPECT_EQ(
        try_allocate(client, managed / chunk * chunk, got, EMUV_ALLOC_POPULATE),
        ENOMEM);
    EXPECT_EQ(query(control, id).resident_bytes, 0U);
    EXPECT_EQ(try_allocate(client, 64 * mib, got, EMUV_ALLOC_POPULATE), 0);
}

TEST_F(host_floor_by_node, NoMoreIsPromisedThanItLeaves)
{
    u64 managed = 0;
    for (const auto &[node, has] : usable_by_node())
        managed += has.managed;
    auto argument = creation(mib, managed / chunk * chunk);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), ENOMEM);
    argument = creation(mib, (managed - floor_bytes) / chunk * chunk - 8 * mib);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), 0);
}

} // namespace
