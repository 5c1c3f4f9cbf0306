// SPDX-License-Identifier: GPL-2.0-or-later
// Fragmented memory: chunks for which there is no folio, and mappings that
// large entries do not fit.
#include "pin.hpp"

#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using namespace guest;

/// Leaves half of the host's memory free, with hardly any pieces of 2 MiB.
/// Pipes hold every second run of pages, and the kernel cannot move their
/// pages.
class fragmentation
{
public:
    fragmentation()
    {
        // Runs are too short for a large piece, yet long enough to be made
        // quickly.
        constexpr std::size_t run = 32 * kib;
        const std::vector<char> data(run, 'f');
        while (meminfo("MemFree") > 96 * mib &&
               meminfo("MemAvailable") > 96 * mib) {
            kept_.push_back(make_pipe());
            given_back_.push_back(make_pipe());
            for (u64 written = 0; written < pipe_bytes; written += run) {
                checked(write(kept_.back().in.get(), data.data(), run),
                        "write");
                checked(write(given_back_.back().in.get(), data.data(), run),
                        "write");
            }
        }
        given_back_.clear();
    }

    /// Free memory in pieces of 2 MiB or more.
    static u64 in_large_pieces()
    {
        u64 bytes = 0;
        std::ifstream zones("/proc/buddyinfo");
        for (std::string line; std::getline(zones, line);) {
            std::istringstream text(line.substr(line.find("zone") + 4));
            std::string name;
            text >> name;
            u64 count = 0;
            for (unsigned order = 0; text >> count; order++)
                if (order >= 9)
                    bytes += count * (u64{4096} << order);
        }
        return bytes;
    }

private:
    struct pipe_ends
    {
        descriptor out;
        descriptor in;
    };

    static constexpr u64 pipe_bytes = 16 * mib;

    static pipe_ends make_pipe()
    {
        int ends[2];
        checked(pipe2(ends, O_CLOEXEC), "pipe2");
        pipe_ends made{descriptor(ends[0]), descriptor(ends[1])};
        checked(fcntl(ends[1], F_SETPIPE_SZ, static_cast<int>(pipe_bytes)),
                "F_SETPIPE_SZ");
        return made;
    }

    std::vector<pipe_ends> kept_;
    std::vector<pipe_ends> given_back_;
};

class fragmented : public driver_test
{
protected:
    fragmented() : driver_test("host_floor_mb=32") {}

    static void SetUpTestSuite()
    {
        held_fragments = std::make_unique<fragmentation>();
    }
    static void TearDownTestSuite() { held_fragments.reset(); }

    void SetUp() override
    {
        driver_test::SetUp();
        if (HasFatalFailure())
            return;
        id = create(control,
                    creation(mib, gib, EMUV_ANY, EMUV_CREATE_OVERCOMMIT));
        client = open_client(id);
        // The first chunks take the remaining large pieces; single pages back
        // the rest. Large pieces come back from test to test, as kernels
        // compact memory. They and the tests' own memory must fit into the
        // instance.
        const auto large = fragmentation::in_large_pieces();
        ASSERT_LT(large, 512 * mib) << "memory is not fragmented";
        ballast = allocate(client, large + 32 * mib, EMUV_ALLOC_POPULATE);
        got = allocate(client, region_bytes);
    }

    void TearDown() override
    {
        client.reset();
        driver_test::TearDown();
    }

    static constexpr u64 region_bytes = 64 * mib;
    int id = -1;
    descriptor client;
    region ballast;
    region got;

private:
    static std::unique_ptr<fragmentation> held_fragments;
};

std::unique_ptr<fragmentation> fragmented::held_fragments;

TEST_F(fragmented, MemoryIsBackedAllTheSame)
{
    const auto before = query(control, id).resident_bytes;
    const mapping map(client.get(), region_bytes, got.offset);
    EXPECT_FALSE(first_other(map.data(), region_bytes));
    fill_pattern(map.data(), region_bytes, 1);
    EXPECT_FALSE(first_pattern_error(map.data(), region_bytes, 1));
    EXPECT_EQ(query(control, id).resident_bytes, before + region_bytes);
}

TEST_F(fragmented, AFaultMapsTheWholeChunk)
{
    const mapping map(client.get(), region_bytes, got.offset);
    // The first call causes faults of its own.
    static_cast<void>(minor_faults());
    const long before = minor_faults();
    for (u64 page = 0; page < region_bytes; page += 4096)
        map[page] = 1;
    // Memory is short, so the program's own pages may have gone and come back.
    // A fault a page would be 512 a chunk.
    constexpr long own = 16;
    EXPECT_LE(minor_faults() - before,
              static_cast<long>(region_bytes / chunk) + own);
}

TEST_F(fragmented, ReadAndWriteSeeOneMemoryWithTheMapping)
{
    std::vector<unsigned char> data(5 * chunk);
    fill_pattern(data.data(), data.size(), 2);
    const u64 start = chunk / 2 + 123;
    ASSERT_EQ(pwrite(client.get(), data.data(), data.size(),
                     static_cast<off_t>(got.offset + start)),
              static_cast<ssize_t>(data.size()));
    const mapping map(client.get(), region_bytes, got.offset);
    EXPECT_FALSE(first_pattern_error(map.data() + start, data.size(), 2));
    EXPECT_FALSE(first_other(map.data(), start));
    std::memset(data.data(), 0, data.size());
    ASSERT_EQ(pread(client.get(), data.data(), data.size(),
                    static_cast<off_t>(got.offset + start)),
              static_cast<ssize_t>(data.size()));
    EXPECT_FALSE(first_pattern_error(data.data(), data.size(), 2));
}

TEST_F(fragmented, PartsAreDiscardedToTheByte)
{
    const mapping map(client.get(), region_bytes, got.offset);
    std::memset(map.data(), 'x', 4 * chunk);
    ASSERT_EQ(discard(client, got.offset + 1000, 2 * chunk), 0);
    EXPECT_FALSE(first_other(map.data(), 1000, 'x'));
    EXPECT_FALSE(first_other(map.data() + 1000, 2 * chunk));
    EXPECT_FALSE(
        first_other(map.data() + 1000 + 2 * chunk, 2 * chunk - 1000, 'x'));
}

TEST_F(fragmented, PagesCanBePinned)
{
    const mapping map(client.get(), 8 * chunk, got.offset);
    const socket_pin by(map.data(), map.size());
    EXPECT_EQ(by.error(), 0) << std::strerror(by.error());
    fill_pattern(map.data(), map.size(), 3);
    EXPECT_FALSE(first_pattern_error(map.data(), map.size(), 3));
}

TEST_F(fragmented, DmabufIsTheSameMemory)
{
    const auto exported = export_region(client, got.offset, EMUV_EXPORT_DMABUF);
    const mapping own(client.get(), region_bytes, got.offset);
    const mapping map(exported.get(), region_bytes);
    fill_pattern(map.data(), region_bytes, 4);
    EXPECT_FALSE(first_pattern_error(own.data(), region_bytes, 4));
}

TEST_F(fragmented, MemoryComesBackWhole)
{
    const auto before = settled_available();
    for (int round = 0; round < 6; round++) {
        const auto more = allocate(client, 128 * mib, EMUV_ALLOC_POPULATE);
        EXPECT_LT(settled_available(), before - 90 * mib);
        ASSERT_EQ(release(client, more.offset), 0);
    }
    // A quarter of one round. In unfragmented memory, the rest of the system
    // changes its use by some megabytes too.
    EXPECT_TRUE(wait_until([&] {
        return settled_available() + 32 * mib > before;
    })) << settled_available()
        << " of " << before;
}

TEST_F(fragmented, NextReadsZeros)
{
    {
        const mapping map(client.get(), region_bytes, got.offset);
        std::memset(map.data(), 0xa5, region_bytes);
    }
    ASSERT_EQ(release(client, got.offset), 0);
    const auto next = open_client(id);
    const auto more = allocate(next, 128 * mib);
    const mapping map(next.get(), more.bytes, more.offset);
    EXPECT_FALSE(first_other(map.data(), map.size()));
}

// --- mappings that large entries do not fit, or may not be used in ---

TEST_F(fragmented, CgroupLimitKillsNobodyWhereManyThreadsTouch)
{
    const memory_cgroup group("fragment-test");
    if (!group.usable)
        GTEST_SKIP() << "no cgroup2 with a memory controller here";
    const auto said =
        in_child({.keep = {client.get()}}, [&](channel &) -> std::string {
            CHILD_EXPECT(group.enter());
            CHILD_EXPECT(group.limit(48 * mib));
            const u64 chunks = 64;
            const auto its = allocate(client, chunks * chunk);
            const mapping map(client.get(), its.bytes, its.offset);
            std::atomic<u64> touched = 0, refused = 0;
            std::vector<std::thread> threads;
            for (u64 which = 0; which < 8; which++)
                threads.emplace_back([&, which] {
                    for (u64 i = 0; i < 8 * chunks; i++) {
                        const u64 at = (which * 8 + i * 5) % chunks;
                        if (signal_of_write(map.data() + at * chunk) == 0)
                            touched++;
                        else
                            refused++;
                    }
                });
            for (auto &thread : threads)
                thread.join();
            CHILD_EXPECT(touched > 0);
            CHILD_EXPECT(refused > 0);
            return "";
        });
    EXPECT_EQ(said, "");
    EXPECT_EQ(group.event("oom"), 0U);
    EXPECT_EQ(group.event("oom_kill"), 0U);
}

// There is no room for a chunk of each thread, and the kernel slows all of them
// down in the midst of one (memory.high). When the last one begins, there is
// still room for more than 64.
TEST_F(fragmented, CgroupLimitIsMetByNoneOfMoreThreadsThanThereIsRoomFor)
{
    const memory_cgroup group("fragment-test");
    if (!group.usable)
        GTEST_SKIP() << "no cgroup2 with a memory controller here";
    constexpr u64 count = 128;
    process child({.keep = {client.get()}}, [&](channel &us) -> std::string {
        CHILD_EXPECT(group.enter());
        // The program itself is no memory that could make way.
        CHILD_EXPECT(mlockall(MCL_CURRENT) == 0);
        const auto its = allocate(client, count * chunk);
        const mapping map(client.get(), its.bytes, its.offset);
        std::atomic<u64> touched = 0, refused = 0;
        std::barrier begin(count + 1);
        std::vector<std::thread> threads;
        for (u64 which = 0; which < count; which++)
            threads.emplace_back([&, which] {
                begin.arrive_and_wait();
                if (signal_of_write(map.data() + which * chunk) == 0)
                    touched++;
                else
                    refused++;
            });
        const auto high = group.folder() + "/memory.high";
        const u64 before = group.current();
        const bool limited = group.limit(before + 224 * mib) &&
                             write_text(high, std::to_string(4 * mib));
        begin.arrive_and_wait();
        // Those that were slowed down for the first time have half a MiB each.
        const bool begun = wait_until(
            [&] { return group.current() >= before + count * mib / 2; });
        const bool freed = write_text(high, "max");
        const auto over = [&] { return touched + refused == count; };
        while (!wait_until(over, std::chrono::seconds(10)))
            us.send(touched + refused);
        us.send(count);
        for (auto &thread : threads)
            thread.join();
        CHILD_EXPECT(limited && begun && freed);
        CHILD_EXPECT(touched >= 104 && touched <= 112);
        return "";
    });
    while (child.conversation().receive() < count)
        ;
    EXPECT_EQ(child.join(), "");
    // Each thread that took a page had seen room for it.
    EXPECT_EQ(group.event("max"), 0U);
    EXPECT_EQ(group.event("oom"), 0U);
    EXPECT_EQ(group.event("oom_kill"), 0U);
}

class odd_mapping : public driver_test
{
protected:
    void SetUp() override
    {
        driver_test::SetUp();
        if (HasFatalFailure())
            return;
        id = create(control, mib, 64 * mib);
        client = open_client(id);
        got = allocate(client, 4 * chunk);
    }

    void TearDown() override
    {
        client.reset();
        driver_test::TearDown();
    }

    /// Counts the faults of writing to every page.
    static long faults_of(volatile unsigned char *data, u64 bytes)
    {
        const long before = minor_faults();
        for (u64 page = 0; page < bytes; page += 4096)
            data[page] = 1;
        return minor_faults() - before;
    }

    int id = -1;
    descriptor client;
    region got;
};

TEST_F(odd_mapping, AtAnAddressOfNoAlignmentTakesAFaultAChunk)
{
    void *room =
        mmap(nullptr, 6 * chunk, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(room, MAP_FAILED);
    auto *odd = static_cast<unsigned char *>(room);
    odd += chunk - reinterpret_cast<std::uintptr_t>(odd) % chunk + 12 * kib;
    ASSERT_EQ(mmap(odd, 4 * chunk, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_FIXED, client.get(),
                   static_cast<off_t>(got.offset)),
              odd);
    EXPECT_LE(faults_of(odd, 4 * chunk), 4);
    munmap(room, 6 * chunk);
}

TEST_F(odd_mapping, OfPartOfARegionTakesAFaultAChunk)
{
    const mapping map(client.get(), 2 * chunk, got.offset + 20 * kib);
    EXPECT_LE(faults_of(map.data(), map.size()), 3);
}

TEST_F(odd_mapping, WhereHugePagesAreNotWantedTakesAFaultAChunk)
{
    const mapping map(client.get(), 4 * chunk, got.offset);
    ASSERT_EQ(madvise(map.data(), map.size(), MADV_NOHUGEPAGE), 0)
        << std::strerror(errno);
    EXPECT_LE(faults_of(map.data(), map.size()), 4);
}

TEST_F(odd_mapping, OfAProcessWithoutHugePagesTakesAFaultAChunk)
{
    const auto said =
        in_child({.keep = {client.get()}}, [&](channel &) -> std::string {
            CHILD_EXPECT(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
            const mapping map(client.get(), 4 * chunk, got.offset);
            const long faults = faults_of(map.data(), map.size());
            return faults <= 4 ? "" : std::to_string(faults) + " faults";
        });
    EXPECT_EQ(said, "");
}

TEST_F(odd_mapping, WithPartsUnmappedTakesAFaultAChunk)
{
    const mapping map(client.get(), 4 * chunk, got.offset);
    std::memset(map.data(), 'x', map.size());
    // Unmap the middle of a chunk. At worst the rest of the chunk faults anew.
    ASSERT_EQ(munmap(map.data() + chunk + 8192, 4096), 0);
    EXPECT_EQ(map[chunk], 'x');
    const long before = minor_faults();
    for (u64 page = 0; page < map.size(); page += 4096)
        if (page != chunk + 8192)
            map[page] = 1;
    EXPECT_LE(minor_faults() - before, 2);
}

TEST_F(odd_mapping, WithPartsProtectedTakesAFaultAChunk)
{
    const mapping map(client.get(), 4 * chunk, got.offset);
    std::memset(map.data(), 'x', map.size());
    ASSERT_EQ(mprotect(map.data() + chunk + 8192, 4096, PROT_READ), 0);
    ASSERT_EQ(mprotect(map.data() + chunk + 8192, 4096, PROT_READ | PROT_WRITE),
              0);
    EXPECT_FALSE(first_other(map.data(), map.size(), 'x'));
    EXPECT_LE(faults_of(map.data(), map.size()), 3);
}

TEST_F(odd_mapping, MovedToAnotherAddressTakesAFaultAChunk)
{
    void *room =
        mmap(nullptr, 8 * chunk, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(room, MAP_FAILED);
    void *start = mmap(nullptr, 4 * chunk, PROT_READ | PROT_WRITE, MAP_SHARED,
                       client.get(), static_cast<off_t>(got.offset));
    ASSERT_NE(start, MAP_FAILED);
    static_cast<unsigned char *>(start)[0] = 'x';
    auto *odd = static_cast<unsigned char *>(room);
    odd += chunk - reinterpret_cast<std::uintptr_t>(odd) % chunk + 4096;
    ASSERT_EQ(
        mremap(start, 4 * chunk, 4 * chunk, MREMAP_MAYMOVE | MREMAP_FIXED, odd),
        odd);
    EXPECT_EQ(odd[0], 'x');
    EXPECT_LE(faults_of(odd, 4 * chunk), 5);
    EXPECT_EQ(query(control, id).resident_bytes, 4 * chunk);
    munmap(room, 8 * chunk);
    EXPECT_EQ(release(client, got.offset), 0);
    EXPECT_EQ(query(control, id).virtual_used_bytes, 0U);
}

} // namespace
