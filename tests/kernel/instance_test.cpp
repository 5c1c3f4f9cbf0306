// SPDX-License-Identifier: GPL-2.0-or-later
// Instances: creating, describing and destroying them through the control node,
// and their files in sysfs.
#include "support.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <ostream>
#include <set>
#include <thread>

#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace {

using namespace guest;

using instance = driver_test;

std::string uuid_text(const __u8 (&uuid)[EMUV_UUID_LEN])
{
    std::string text;
    for (std::size_t i = 0; i < EMUV_UUID_LEN; i++) {
        char byte[3];
        std::snprintf(byte, sizeof byte, "%02x", uuid[i]);
        text += byte;
        if (i == 3 || i == 5 || i == 7 || i == 9)
            text += '-';
    }
    return text;
}

// --- create ---

TEST_F(instance, ExistsWhenCreateReturns)
{
    auto argument = creation(64 * mib, 32 * mib);
    argument.pci_device_id = 0x2786;
    ASSERT_EQ(call(control, EMUV_IOC_CREATE, argument), 0);
    EXPECT_EQ(argument.id, 0);
    EXPECT_TRUE(exists("/dev/emuv0"));
    EXPECT_TRUE(exists("/sys/class/emuv/emuv0/vram_info"));
    EXPECT_TRUE(open_client(0));

    const auto made = query(control, 0);
    EXPECT_EQ(made.id, 0);
    EXPECT_EQ(made.clients, 0U);
    EXPECT_EQ(made.physical_bytes, 64 * mib);
    EXPECT_EQ(made.virtual_bytes, 32 * mib);
    EXPECT_EQ(made.physical_used_bytes, 0U);
    EXPECT_EQ(made.virtual_used_bytes, 0U);
    EXPECT_EQ(made.unowned_bytes, 0U);
    EXPECT_EQ(made.resident_bytes, 0U);
    EXPECT_EQ(made.numa_node, EMUV_ANY);
    EXPECT_EQ(made.pci_device_id, 0x2786U);
    EXPECT_STREQ(made.gpu_model, "4070");
}

TEST_F(instance, NodesAreRootsAlone)
{
    const int id = create(control, mib, chunk);
    struct stat status
    {};
    ASSERT_EQ(stat("/dev/emuv-control", &status), 0);
    EXPECT_TRUE(S_ISCHR(status.st_mode));
    EXPECT_EQ(status.st_mode & 07777, 0600U);
    EXPECT_EQ(status.st_uid, 0U);
    ASSERT_EQ(stat(node_path(id).c_str(), &status), 0);
    EXPECT_TRUE(S_ISCHR(status.st_mode));
    EXPECT_EQ(status.st_mode & 07777, 0660U);
    EXPECT_EQ(status.st_uid, 0U);
    EXPECT_EQ(attribute(id, "dev"), std::to_string(major(status.st_rdev)) +
                                        ":" +
                                        std::to_string(minor(status.st_rdev)));
}

TEST_F(instance, GetsTheLowestFreeId)
{
    EXPECT_EQ(create(control, creation(mib, 0, 1)), 1);
    EXPECT_EQ(create(control, creation(mib, 0)), 0);
    EXPECT_EQ(create(control, creation(mib, 0)), 2);
    ASSERT_EQ(destroy(control, 1), 0);
    EXPECT_EQ(create(control, creation(mib, 0)), 1);
}

TEST_F(instance, IdInUseIsRefused)
{
    create(control, creation(mib, chunk, 5));
    auto again = creation(2 * mib, chunk, 5);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, again), EEXIST);
    EXPECT_EQ(query(control, 5).physical_bytes, mib);
}

TEST_F(instance, UuidsDifferAndOutliveNothing)
{
    std::set<std::string> seen;
    for (int round = 0; round < 16; round++) {
        const int id = create(control, creation(mib, 0, 3));
        const auto made = query(control, id);
        EXPECT_TRUE(seen.insert(uuid_text(made.uuid)).second)
            << uuid_text(made.uuid);
        // RFC 4122: version 4, variant 1.
        EXPECT_EQ(made.uuid[6] >> 4, 4);
        EXPECT_EQ(made.uuid[8] >> 6, 2);
        ASSERT_EQ(destroy(control, id), 0);
    }
}

struct bad_creation
{
    const char *name;
    void (*spoil)(emuv_create &);
};

std::ostream &operator<<(std::ostream &out, const bad_creation &row)
{
    return out << row.name;
}

class refused_instance : public driver_test,
                         public testing::WithParamInterface<bad_creation>
{};

TEST_P(refused_instance, GetsEinvalAndOneLineAndLeavesNothing)
{
    auto argument = creation(64 * mib, 32 * mib);
    GetParam().spoil(argument);
    const auto given = argument;
    kernel_log log;
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), EINVAL);
    EXPECT_EQ(std::memcmp(&argument, &given, sizeof given), 0)
        << "a failed call wrote something back";
    EXPECT_TRUE(names_in("/sys/class/emuv").empty());
    EXPECT_FALSE(exists("/dev/emuv0"));
    std::size_t said = 0;
    for (const auto &line : log.lines())
        said += line.find("emuv") != std::string::npos;
    EXPECT_LE(said, 1U);
}

const bad_creation bad_creations[] = {
    {"BothSizesZero",
     [](emuv_create &c) { c.physical_bytes = c.virtual_bytes = 0; }},
    {"PhysicalAboveTheLimit",
     [](emuv_create &c) { c.physical_bytes = EMUV_MAX_BYTES + 1; }},
    {"PhysicalAllOnes", [](emuv_create &c) { c.physical_bytes = ~0ULL; }},
    {"VirtualAboveTheLimit",
     [](emuv_create &c) {
         c.flags = EMUV_CREATE_OVERCOMMIT;
         c.physical_bytes = 0;
         c.virtual_bytes = EMUV_MAX_BYTES + EMUV_CHUNK_BYTES;
     }},
    {"VirtualAllOnesButTheChunk",
     [](emuv_create &c) { c.virtual_bytes = ~0ULL - EMUV_CHUNK_BYTES + 1; }},
    {"SumAboveTheLimit",
     [](emuv_create &c) {
         c.flags = EMUV_CREATE_OVERCOMMIT;
         c.physical_bytes = EMUV_MAX_BYTES;
         c.virtual_bytes = EMUV_CHUNK_BYTES;
     }},
    {"SumThatOverflows",
     [](emuv_create &c) {
         c.flags = EMUV_CREATE_OVERCOMMIT;
         c.physical_bytes = 1ULL << 63;
         c.virtual_bytes = 1ULL << 63;
     }},
    {"VirtualNotInWholeChunks",
     [](emuv_create &c) { c.virtual_bytes = EMUV_CHUNK_BYTES + 4096; }},
    {"IdBelowAny", [](emuv_create &c) { c.id = -2; }},
    {"IdMostNegative",
     [](emuv_create &c) { c.id = std::numeric_limits<__s32>::min(); }},
    {"IdAboveTheLast", [](emuv_create &c) { c.id = EMUV_MAX_INSTANCES; }},
    {"IdMost",
     [](emuv_create &c) { c.id = std::numeric_limits<__s32>::max(); }},
    {"NumaNodeBelowAny", [](emuv_create &c) { c.numa_node = -2; }},
    {"NumaNodeThatIsNone", [](emuv_create &c) { c.numa_node = 100000; }},
    {"DeviceIdAbove16Bits", [](emuv_create &c) { c.pci_device_id = 0x10000; }},
    {"ModelEmpty", [](emuv_create &c) { c.gpu_model[0] = 0; }},
    {"ModelWithoutEnd",
     [](emuv_create &c) { std::memset(c.gpu_model, 'x', sizeof c.gpu_model); }},
    {"ModelWithANewline",
     [](emuv_create &c) { std::strcpy(c.gpu_model, "40\n70"); }},
    {"ModelNotAscii",
     [](emuv_create &c) { std::strcpy(c.gpu_model, "40\xc3\xa4"); }},
    {"ModelWithDelete",
     [](emuv_create &c) { std::strcpy(c.gpu_model, "40\x7f"); }},
};

INSTANTIATE_TEST_SUITE_P(, refused_instance, testing::ValuesIn(bad_creations),
                         [](const auto &row) {
                             return std::string(row.param.name);
                         });

TEST_F(instance, AllIdsCanBeInUseAtOnceAndThenNoneIsFree)
{
    for (int id = 0; id < EMUV_MAX_INSTANCES; id++)
        ASSERT_EQ(create(control, creation(mib, chunk, EMUV_ANY,
                                           EMUV_CREATE_OVERCOMMIT)),
                  id);
    auto more = creation(mib, chunk, EMUV_ANY, EMUV_CREATE_OVERCOMMIT);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, more), ENOSPC);
    auto same = creation(mib, chunk, 700, EMUV_CREATE_OVERCOMMIT);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, same), EEXIST);
    EXPECT_EQ(names_in("/sys/class/emuv").size(),
              static_cast<std::size_t>(EMUV_MAX_INSTANCES));
    ASSERT_EQ(destroy(control, 700), 0);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, more), 0);
    EXPECT_EQ(more.id, 700);
}

TEST_F(instance, ThousandsCreatedAndDestroyedLeaveNothing)
{
    constexpr int rounds = 3000;
    const auto once = [&](int round) {
        auto argument = creation(mib, 4 * chunk);
        ASSERT_EQ(call(control, EMUV_IOC_CREATE, argument), 0)
            << "round " << round;
        // Some instances have data before they are destroyed.
        if (round % 4 == 0) {
            const auto client = open_client(argument.id);
            const auto got = allocate(client, chunk);
            ASSERT_EQ(
                pwrite(client.get(), "x", 1, static_cast<off_t>(got.offset)),
                1);
        }
        ASSERT_EQ(destroy(control, argument.id), 0) << "round " << round;
    };
    const auto vmalloc_areas = [] {
        std::ifstream file("/proc/vmallocinfo");
        return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
    };
    for (int round = 0; round < 300 && !HasFatalFailure(); round++)
        once(round);
    const auto available = settled_available();
    const auto slab = meminfo("SUnreclaim");
    const auto per_cpu = meminfo("Percpu");
    const auto areas = vmalloc_areas();
    for (int round = 0; round < rounds && !HasFatalFailure(); round++)
        once(round);

    EXPECT_TRUE(names_in("/sys/class/emuv").empty());
    for (const auto &name : names_in("/dev"))
        EXPECT_TRUE(name == "emuv-control" || !name.starts_with("emuv"))
            << name;
    EXPECT_LT(meminfo("Percpu"), per_cpu + mib);
    EXPECT_LT(vmalloc_areas(), areas + rounds / 10);
    if (holds_back_freed())
        return;
    // Less than 1 KiB a round is noise: the smallest part of an instance is
    // larger.
    EXPECT_TRUE(wait_until([&] {
        return meminfo("SUnreclaim") < slab + rounds * kib;
    })) << "slab grew by "
        << meminfo("SUnreclaim") - slab;
    EXPECT_TRUE(wait_until([&] {
        return settled_available() + 16 * mib > available;
    })) << "from "
        << available << " to " << settled_available();
}

// --- destroy ---

TEST_F(instance, DestroyRemovesNodeAndAttributes)
{
    const int id = create(control, mib, chunk);
    ASSERT_EQ(destroy(control, id), 0);
    EXPECT_FALSE(exists(node_path(id)));
    EXPECT_FALSE(exists("/sys/class/emuv/emuv" + std::to_string(id)));
    EXPECT_EQ(destroy(control, id), ENODEV);
    auto gone = fresh<emuv_query_instance>();
    gone.id = id;
    EXPECT_EQ(call(control, EMUV_IOC_QUERY_INSTANCE, gone), ENODEV);
}

TEST_F(instance, DestroyOfNoneIsRefused)
{
    create(control, creation(mib, 0, 4));
    for (const int id :
         {-1, -2, 0, 3, 5, EMUV_MAX_INSTANCES, std::numeric_limits<int>::max(),
          std::numeric_limits<int>::min()})
        EXPECT_EQ(destroy(control, id), ENODEV) << id;
    EXPECT_EQ(query(control, 4).id, 4);
}

class busy_instance : public driver_test
{
protected:
    void SetUp() override
    {
        driver_test::SetUp();
        if (!HasFatalFailure())
            id = create(control, 64 * mib, 64 * mib);
    }

    void expect_busy()
    {
        EXPECT_EQ(destroy(control, id), EBUSY);
        EXPECT_TRUE(exists(node_path(id)));
        EXPECT_TRUE(exists(attribute_path(id, "vram_info")));
        EXPECT_EQ(query(control, id).physical_bytes, 64 * mib);
    }

    void expect_destroyable() { EXPECT_EQ(destroy(control, id), 0); }

    int id = -1;
};

TEST_F(busy_instance, WhileOpen)
{
    auto client = open_client(id);
    expect_busy();
    EXPECT_EQ(charge(client, mib), 0);
    region got;
    EXPECT_EQ(try_allocate(client, chunk, got), 0);
    client.reset();
    expect_destroyable();
}

TEST_F(busy_instance, WhileOpenForReadingOnly)
{
    auto client = open_client(id, O_RDONLY);
    expect_busy();
    client.reset();
    expect_destroyable();
}

TEST_F(busy_instance, WhileMappedThoughClosed)
{
    auto client = open_client(id);
    const auto got = allocate(client, chunk);
    mapping map(client.get(), chunk, got.offset);
    map[0] = 17;
    client.reset();
    expect_busy();
    EXPECT_EQ(map[0], 17);
    map.reset();
    expect_destroyable();
}

TEST_F(busy_instance, WhileARegionDescriptorIsOpen)
{
    auto client = open_client(id);
    auto exported = export_region(client, allocate(client, chunk).offset);
    client.reset();
    expect_busy();
    EXPECT_EQ(pwrite(exported.get(), "x", 1, 0), 1);
    exported.reset();
    expect_destroyable();
}

TEST_F(busy_instance, WhileARegionDescriptorIsMappedThoughClosed)
{
    auto client = open_client(id);
    auto exported = export_region(client, allocate(client, chunk).offset);
    client.reset();
    mapping map(exported.get(), chunk);
    exported.reset();
    map[chunk - 1] = 17;
    expect_busy();
    EXPECT_EQ(map[chunk - 1], 17);
    map.reset();
    expect_destroyable();
}

TEST_F(busy_instance, WhileADmabufIsOpen)
{
    auto client = open_client(id);
    auto exported = export_region(client, allocate(client, chunk).offset,
                                  EMUV_EXPORT_DMABUF);
    client.reset();
    expect_busy();
    exported.reset();
    expect_destroyable();
}

TEST_F(busy_instance, WhileADmabufIsMappedThoughClosed)
{
    auto client = open_client(id);
    auto exported = export_region(client, allocate(client, chunk).offset,
                                  EMUV_EXPORT_DMABUF);
    client.reset();
    mapping map(exported.get(), chunk);
    exported.reset();
    map[0] = 17;
    expect_busy();
    EXPECT_EQ(map[0], 17);
    map.reset();
    expect_destroyable();
}

TEST_F(busy_instance, NotForAnInstanceBesideIt)
{
    const int other = create(control, mib, chunk);
    const auto client = open_client(id);
    EXPECT_EQ(destroy(control, other), 0);
    expect_busy();
}

TEST_F(busy_instance, NotBecauseSomebodyReadsItsAttributes)
{
    const descriptor file(
        open(attribute_path(id, "vram_info").c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(file);
    expect_destroyable();
    char text[16];
    EXPECT_LT(read(file.get(), text, sizeof text), 0)
        << "an attribute of nothing can be read";
}

// --- the host's capacity ---

TEST_F(instance, MoreThanTheHostCouldBackIsRefusedUnlessAskedFor)
{
    const auto ram = meminfo("MemTotal") / chunk * chunk;
    auto argument = creation(mib, ram + gib);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), ENOMEM);
    EXPECT_TRUE(names_in("/sys/class/emuv").empty());
    argument.flags = EMUV_CREATE_OVERCOMMIT;
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), 0);
}

TEST_F(instance, WhatTheHostCouldBackIsSharedByAllInstances)
{
    const auto part = meminfo("MemTotal") * 6 / 10 / chunk * chunk;
    const int first = create(control, mib, part);
    auto second = creation(mib, part);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, second), ENOMEM);
    ASSERT_EQ(destroy(control, first), 0);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, second), 0)
        << "what a destroyed instance had was not given back";
}

TEST_F(instance, FloorIsNotPromisedToAnybody)
{
    const auto ram = meminfo("MemTotal") / mib;
    reload("host_floor_mb=" + std::to_string(ram - 64));
    auto argument = creation(mib, 128 * mib);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), ENOMEM);
    argument.virtual_bytes = 32 * mib;
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), 0);
}

TEST_F(instance, PhysicalBytesAreNotTheHostsAffair)
{
    EXPECT_EQ(query(control, create(control, EMUV_MAX_BYTES, 0)).physical_bytes,
              EMUV_MAX_BYTES);
}

TEST_F(instance, VramAloneIsGivenThoughTooMuchRamIsPromised)
{
    const auto ram = meminfo("MemTotal") / chunk * chunk;
    create(control, creation(mib, ram + gib, EMUV_ANY, EMUV_CREATE_OVERCOMMIT));
    auto argument = creation(mib, chunk);
    ASSERT_EQ(call(control, EMUV_IOC_CREATE, argument), ENOMEM);
    argument.virtual_bytes = 0;
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), 0);
}

// --- query ---

TEST_F(instance, QueryNextSeesEachOnceInOrder)
{
    const std::vector<int> made{2, 3, 17, 500, EMUV_MAX_INSTANCES - 1};
    std::vector<int> order = made;
    std::reverse(order.begin(), order.end());
    for (const int id : order)
        create(control, creation(mib, 0, id));
    std::vector<int> seen;
    auto next = fresh<emuv_query_instance>();
    next.flags = EMUV_QUERY_NEXT;
    while (call(control, EMUV_IOC_QUERY_INSTANCE, next) == 0) {
        seen.push_back(next.id);
        next.id++;
    }
    EXPECT_EQ(seen, made);
}

TEST_F(instance, QueryNextOfNoneSaysThereIsNone)
{
    auto next = fresh<emuv_query_instance>();
    next.flags = EMUV_QUERY_NEXT;
    EXPECT_EQ(call(control, EMUV_IOC_QUERY_INSTANCE, next), ENODEV);
    create(control, creation(mib, 0, 9));
    next.id = 10;
    EXPECT_EQ(call(control, EMUV_IOC_QUERY_INSTANCE, next), ENODEV);
    next.id = std::numeric_limits<int>::max();
    EXPECT_EQ(call(control, EMUV_IOC_QUERY_INSTANCE, next), ENODEV);
}

TEST_F(instance, QueryOnANodeDescribesTheNodesOwn)
{
    create(control, creation(mib, 0, 1));
    create(control, creation(7 * mib, 0, 2));
    auto argument = fresh<emuv_query_instance>();
    argument.id = 1;
    ASSERT_EQ(call(open_client(2), EMUV_IOC_QUERY_INSTANCE, argument), 0);
    EXPECT_EQ(argument.id, 2);
    EXPECT_EQ(argument.physical_bytes, 7 * mib);
    EXPECT_EQ(argument.clients, 1U);
}

TEST_F(instance, QueryNextBelongsToTheControlNode)
{
    create(control, creation(mib, 0, 1));
    auto argument = fresh<emuv_query_instance>();
    argument.flags = EMUV_QUERY_NEXT;
    EXPECT_EQ(call(open_client(1), EMUV_IOC_QUERY_INSTANCE, argument), EINVAL);
}

// --- sysfs ---

void expect_sysfs_agrees(const descriptor &control, int id)
{
    const auto is = query(control, id);
    const auto same = [id](const char *name, u64 value) {
        EXPECT_EQ(attribute(id, name), std::to_string(value)) << name;
    };
    EXPECT_EQ(attribute(id, "gpu_model"), is.gpu_model);
    same("physical_bytes", is.physical_bytes);
    same("virtual_bytes", is.virtual_bytes);
    same("total_bytes", is.physical_bytes + is.virtual_bytes);
    same("physical_used_bytes", is.physical_used_bytes);
    same("virtual_used_bytes", is.virtual_used_bytes);
    same("unowned_bytes", is.unowned_bytes);
    same("resident_bytes", is.resident_bytes);
    same("clients", is.clients);
    same("chunk_bytes", EMUV_CHUNK_BYTES);
    same("fetched_bytes", is.fetched_bytes);
    same("evicted_bytes", is.evicted_bytes);
    same("spills", is.spills);
    same("faults", is.faults);
    same("hit_bytes", is.hit_bytes);
    same("miss_bytes", is.miss_bytes);
    same("stalled_ns", is.stalled_ns);
    same("waiters", is.waiters);
    same("reserve_bytes", is.reserve_bytes);
    same("client_virtual_bytes", is.client_virtual_bytes);
    same("guaranteed", is.created & EMUV_CREATE_GUARANTEED ? 1 : 0);
    same("swap", is.created & EMUV_CREATE_SWAP ? 1 : 0);
    same("swapped_bytes", is.swapped_bytes);
    same("numa_bind", is.created & EMUV_CREATE_BIND ? 1 : 0);
    EXPECT_EQ(attribute(id, "uuid"), uuid_text(is.uuid));
    EXPECT_EQ(attribute(id, "numa_node"), std::to_string(is.numa_node));
    char device[8];
    std::snprintf(device, sizeof device, "0x%04x", is.pci_device_id);
    EXPECT_EQ(attribute(id, "pci_device_id"), device);
}

TEST_F(instance, SysfsAgreesWithTheAbi)
{
    auto argument = creation(64 * mib + 1, 32 * mib);
    argument.pci_device_id = 0x2684;
    argument.numa_node = 0;
    const int id = create(control, argument);
    expect_sysfs_agrees(control, id);

    const auto client = open_client(id);
    const auto other = open_client(id);
    const auto kept = allocate(client, 3 * chunk);
    const auto dropped = allocate(client, chunk);
    const mapping map(client.get(), chunk, kept.offset);
    const auto lingering = export_region(client, dropped.offset);
    map[0] = 1;
    ASSERT_EQ(charge(client, 12345), 0);
    ASSERT_EQ(release(client, dropped.offset), 0);
    auto report = fresh<emuv_report>();
    report.fetched_bytes = 1;
    report.evicted_bytes = 20;
    report.spills = 300;
    report.faults = 4000;
    report.hit_bytes = 5;
    report.miss_bytes = 60;
    report.stalled_ns = 700;
    ASSERT_EQ(call(client, EMUV_IOC_REPORT, report), 0);

    const auto is = query(control, id);
    EXPECT_EQ(is.clients, 2U);
    EXPECT_EQ(is.physical_used_bytes, 12345U);
    EXPECT_EQ(is.virtual_used_bytes, 4 * chunk);
    EXPECT_EQ(is.unowned_bytes, chunk);
    EXPECT_EQ(is.resident_bytes, chunk);
    EXPECT_EQ(is.faults, 4000U);
    EXPECT_EQ(is.stalled_ns, 700U);
    expect_sysfs_agrees(control, id);
}

TEST_F(instance, PeaksStayWhenMemoryIsFreed)
{
    const int id = create(control, 64 * mib, 32 * mib);
    const auto expect_peaks = [id](u64 physical, u64 of_ram) {
        EXPECT_EQ(attribute(id, "physical_peak_bytes"),
                  std::to_string(physical));
        EXPECT_EQ(attribute(id, "virtual_peak_bytes"), std::to_string(of_ram));
    };
    expect_peaks(0, 0);
    {
        const auto client = open_client(id);
        const auto other = open_client(id);
        allocate(client, 3 * chunk);
        allocate(other, chunk);
        ASSERT_EQ(charge(client, 1000), 0);
        ASSERT_EQ(charge(other, 234), 0);
        EXPECT_EQ(charge(other, 64 * mib), ENOSPC);
    }
    EXPECT_EQ(query(control, id).virtual_used_bytes, 0U);
    expect_peaks(1234, 4 * chunk);
    const auto client = open_client(id);
    allocate(client, chunk);
    ASSERT_EQ(charge(client, 1), 0);
    expect_peaks(1234, 4 * chunk);
}

TEST_F(instance, AttributesCanOnlyBeRead)
{
    const int id = create(control, mib, chunk);
    const auto folder = attribute_path(id, "");
    std::size_t seen = 0;
    for (const auto &name : names_in(folder)) {
        struct stat status
        {};
        ASSERT_EQ(lstat((folder + name).c_str(), &status), 0);
        if (!S_ISREG(status.st_mode) || name == "uevent")
            continue;
        EXPECT_EQ(status.st_mode & 0777, 0444U) << name;
        seen++;
    }
    EXPECT_GE(seen, 18U);
}

TEST_F(instance, ReadingAttributesChangesNothing)
{
    const int id = create(control, mib, 8 * chunk);
    const auto folder = attribute_path(id, "");
    const auto before = query(control, id);
    for (int round = 0; round < 3; round++)
        for (const auto &name : names_in(folder))
            std::ifstream(folder + name).ignore(1000);
    const auto after = query(control, id);
    EXPECT_EQ(std::memcmp(&before, &after, sizeof before), 0);
}

std::string vram_info(const std::string &model, const std::string &physical,
                      const std::string &of_ram, const std::string &total,
                      const std::string &rest)
{
    return "GPU: " + model + "\nPhysical VRAM: " + physical +
           "\nVirtual VRAM: " + of_ram + "\nTotal VRAM: " + total + "\n" + rest;
}

const std::string untouched =
    "Physical used: 0 MB\nVirtual used: 0 MB\nBacked by RAM: 0 MB\nClients: 0";

TEST_F(instance, VramInfoReadsAsPromised)
{
    const int id = create(
        control, creation(12 * gib, 2 * gib, EMUV_ANY, EMUV_CREATE_OVERCOMMIT));
    EXPECT_EQ(attribute(id, "vram_info"),
              vram_info("NVIDIA GeForce RTX 4070", "12 GB", "2 GB", "14 GB",
                        untouched));

    const auto client = open_client(id);
    ASSERT_EQ(charge(client, 3 * gib), 0);
    const auto got = allocate(client, 6 * mib);
    const mapping map(client.get(), chunk, got.offset);
    map[0] = 1;
    EXPECT_EQ(attribute(id, "vram_info"),
              vram_info("NVIDIA GeForce RTX 4070", "12 GB", "2 GB", "14 GB",
                        "Physical used: 3 GB\nVirtual used: 6 MB\nBacked by "
                        "RAM: 2 MB\nClients: 1"));
}

TEST_F(instance, VramInfoGivesMegabytesWhereGigabytesAreNotWhole)
{
    const int id = create(control, 1536 * mib, 512 * mib);
    EXPECT_EQ(attribute(id, "vram_info"),
              vram_info("NVIDIA GeForce RTX 4070", "1536 MB", "512 MB", "2 GB",
                        untouched));
}

TEST_F(instance, VramInfoNamesTheModelAsItsMakerWould)
{
    const std::pair<const char *, const char *> names[] = {
        {"4090", "NVIDIA GeForce RTX 4090"},
        {"3060 Ti", "NVIDIA GeForce RTX 3060 Ti"},
        {"2080 SUPER", "NVIDIA GeForce RTX 2080 SUPER"},
        {"4070 Ti SUPER", "NVIDIA GeForce RTX 4070 Ti SUPER"},
        {"1660 Ti", "NVIDIA GeForce GTX 1660 Ti"},
        {"1080", "NVIDIA GeForce GTX 1080"},
        {"NVIDIA H200", "NVIDIA H200"},
        {"RTX A6000", "RTX A6000"},
        {"4090D something", "4090D something"},
    };
    for (const auto &[given, shown] : names) {
        auto argument = creation(mib, 0);
        std::string_view(given).copy(argument.gpu_model, EMUV_MODEL_LEN - 1);
        argument.gpu_model[std::strlen(given)] = 0;
        const int id = create(control, argument);
        EXPECT_TRUE(attribute(id, "vram_info")
                        .starts_with(std::string("GPU: ") + shown + "\n"))
            << attribute(id, "vram_info");
        EXPECT_EQ(attribute(id, "gpu_model"), given);
        ASSERT_EQ(destroy(control, id), 0);
    }
}

TEST_F(instance, OneThatItsCreatorIsNotToldOfIsGoneEvenIfSomebodyHasOpenedIt)
{
    constexpr int id = 7;
    const std::string path = "/dev/emuv-of-ours";
    // Its nodes have one number.
    ASSERT_EQ(create(control, creation(mib, 64 * mib, id)), id);
    struct stat status
    {};
    checked(stat(node_path(id).c_str(), &status), "stat");
    checked(mknod(path.c_str(), S_IFCHR | 0600, status.st_rdev), "mknod");
    ASSERT_EQ(destroy(control, id), 0);
    void *const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page, MAP_FAILED);
    const auto argument = creation(mib, 64 * mib, id);
    std::memcpy(page, &argument, sizeof argument);
    ASSERT_EQ(mprotect(page, 4096, PROT_READ), 0);
    std::atomic<bool> done = false;
    std::thread opener([&] {
        while (!done) {
            const descriptor node(open(path.c_str(), O_RDWR | O_CLOEXEC));
            if (node)
                charge(node, 1);
        }
    });
    for (int round = 0; round < 500; round++) {
        EXPECT_EQ(call(control.get(), EMUV_IOC_CREATE, page), EFAULT);
        auto asked = fresh<emuv_query_instance>();
        asked.id = id;
        EXPECT_EQ(call(control, EMUV_IOC_QUERY_INSTANCE, asked), ENODEV);
    }
    done = true;
    opener.join();
    munmap(page, 4096);
    unlink(path.c_str());
}

} // namespace
