// SPDX-License-Identifier: GPL-2.0-or-later
// Virtual VRAM as memory: lazy backing, reads and writes, mappings, discards,
// and protection of the host.
#include "support.hpp"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace guest;

constexpr u64 instance_bytes = 256 * mib;

class memory : public driver_test
{
protected:
    explicit memory(std::string parameters = "")
        : driver_test(std::move(parameters))
    {}

    void SetUp() override
    {
        driver_test::SetUp();
        if (HasFatalFailure())
            return;
        make(instance_bytes);
    }

    void make(u64 virtual_bytes)
    {
        id = create(control, creation(gib, virtual_bytes, EMUV_ANY,
                                      EMUV_CREATE_OVERCOMMIT));
        client = open_client(id);
    }

    void TearDown() override
    {
        client.reset();
        driver_test::TearDown();
    }

    u64 resident() const { return query(control, id).resident_bytes; }
    off_t at(const region &in, u64 offset = 0) const
    {
        return static_cast<off_t>(in.offset + offset);
    }

    int id = -1;
    descriptor client;
};

// --- lazy backing ---

TEST_F(memory, AllocatingAndMappingCostsNoRam)
{
    const auto before = settled_available();
    const auto got = allocate(client, instance_bytes);
    const mapping map(client.get(), got.bytes, got.offset);
    EXPECT_EQ(resident(), 0U);
    EXPECT_GT(settled_available() + 8 * mib, before);
    // Touching the same bytes does cost RAM, so the measurement works.
    for (u64 chunk_start = 0; chunk_start < got.bytes; chunk_start += chunk)
        map[chunk_start] = 1;
    EXPECT_EQ(resident(), instance_bytes);
    EXPECT_LT(settled_available(), before - instance_bytes + 16 * mib);
}

TEST_F(memory, ReadingUntouchedMemoryGivesZerosAndBacksNothing)
{
    const auto got = allocate(client, 16 * chunk);
    EXPECT_TRUE(reads_zero(client.get(), got.offset, got.bytes));
    EXPECT_EQ(resident(), 0U);
    const auto exported = export_region(client, got.offset);
    EXPECT_TRUE(reads_zero(exported.get(), 0, got.bytes));
    EXPECT_EQ(resident(), 0U);
}

TEST_F(memory, FirstTouchOfAnyByteBacksOneChunk)
{
    const auto got = allocate(client, 8 * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    u64 expected = 0;
    for (const u64 place : {u64{0}, chunk + 1, 3 * chunk - 1,
                            3 * chunk + chunk / 2, 8 * chunk - 1}) {
        map[place] = 1;
        expected += chunk;
        EXPECT_EQ(resident(), expected) << "after byte " << place;
    }
    map[1] = 2;
    EXPECT_EQ(resident(), expected) << "a second touch backed something";
}

TEST_F(memory, ReadThroughAMappingSeesZerosEverywhere)
{
    const auto got = allocate(client, 8 * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    EXPECT_FALSE(first_other(map.data(), map.size()));
}

TEST_F(memory, OneByteWrittenBacksOneChunk)
{
    const auto got = allocate(client, 8 * chunk);
    ASSERT_EQ(pwrite(client.get(), "x", 1, at(got, 2 * chunk + 5)), 1);
    EXPECT_EQ(resident(), chunk);
    ASSERT_EQ(pwrite(client.get(), "xy", 2, at(got, 5 * chunk - 1)), 2);
    EXPECT_EQ(resident(), 3 * chunk);
}

TEST_F(memory, FirstByteWrittenLeavesTheRestOfItsChunkZero)
{
    const auto got = allocate(client, chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    map[chunk / 2] = 1;
    EXPECT_EQ(first_other(map.data(), chunk), chunk / 2);
    map[chunk / 2] = 0;
    EXPECT_FALSE(first_other(map.data(), chunk));
}

TEST_F(memory, PopulatedRegionIsBackedWhole)
{
    const auto got = allocate(client, 5 * chunk + 1, EMUV_ALLOC_POPULATE);
    EXPECT_EQ(got.bytes, 6 * chunk);
    EXPECT_EQ(resident(), 6 * chunk);
    EXPECT_TRUE(reads_zero(client.get(), got.offset, got.bytes));
}

TEST_F(memory, FreeGivesTheRamBack)
{
    const auto before = settled_available();
    const auto got = allocate(client, 128 * mib, EMUV_ALLOC_POPULATE);
    EXPECT_LT(settled_available(), before - 112 * mib);
    ASSERT_EQ(release(client, got.offset), 0);
    EXPECT_EQ(resident(), 0U);
    EXPECT_TRUE(
        wait_until([&] { return settled_available() + 8 * mib > before; }));
}

// --- faults ---

TEST_F(memory, AGibibyteIsFirstTouchedInAtMost512Faults)
{
    // Use as much of a gibibyte as this guest can spare, and scale the limit.
    const auto spare = meminfo("MemAvailable") / 2;
    const auto bytes = std::min(gib, spare / chunk * chunk);
    ASSERT_GE(bytes, 64 * mib);
    client.reset();
    ASSERT_EQ(destroy(control, id), 0);
    make(bytes);

    const auto got = allocate(client, bytes);
    const mapping map(client.get(), bytes, got.offset);
    static_cast<void>(minor_faults());
    const long before = minor_faults();
    for (u64 page = 0; page < bytes; page += 4096)
        map[page] = 1;
    const long faults = minor_faults() - before;
    EXPECT_LE(faults, static_cast<long>(bytes / chunk))
        << "for " << bytes / mib << " MiB";
    EXPECT_GT(faults, 0);
    EXPECT_EQ(resident(), bytes);
}

TEST_F(memory, AFaultMapsTheWholeChunkWhereverItHit)
{
    const auto got = allocate(client, 4 * chunk);
    for (const u64 first : {u64{0}, chunk / 2, chunk - 1}) {
        const mapping map(client.get(), got.bytes, got.offset);
        for (u64 index = 0; index < 4; index++) {
            map[index * chunk + first] = 1;
            const long before = minor_faults();
            for (u64 page = 0; page < chunk; page += 4096)
                map[index * chunk + page] = 1;
            EXPECT_EQ(minor_faults() - before, 0)
                << "chunk " << index << " hit at " << first;
        }
    }
}

TEST_F(memory, APartOfARegionCanBeMapped)
{
    const auto got = allocate(client, 4 * chunk);
    // Neither end lies on a chunk's border.
    const u64 start = chunk / 2 + 4096;
    const u64 length = 2 * chunk + 8192;
    const mapping map(client.get(), length, got.offset + start);
    fill_pattern(map.data(), map.size(), 1);
    std::vector<unsigned char> read_back(length);
    ASSERT_EQ(pread(client.get(), read_back.data(), length, at(got, start)),
              static_cast<ssize_t>(length));
    EXPECT_FALSE(first_pattern_error(read_back.data(), length, 1));
    EXPECT_TRUE(reads_zero(client.get(), got.offset, start));
    EXPECT_TRUE(reads_zero(client.get(), got.offset + start + length,
                           got.bytes - start - length));
}

TEST_F(memory, MadvisePopulateBacksAndMaps)
{
    const auto got = allocate(client, 8 * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    ASSERT_EQ(madvise(map.data(), 4 * chunk, MADV_POPULATE_WRITE), 0)
        << std::strerror(errno);
    EXPECT_EQ(resident(), 4 * chunk);
    const long before = minor_faults();
    for (u64 page = 0; page < 4 * chunk; page += 4096)
        map[page] = 1;
    EXPECT_EQ(minor_faults() - before, 0);
    ASSERT_EQ(madvise(map.data() + 4 * chunk, 4 * chunk, MADV_POPULATE_READ), 0)
        << std::strerror(errno);
    EXPECT_FALSE(first_other(map.data() + 4 * chunk, 4 * chunk));
}

TEST_F(memory, MadviseDontneedLosesNothing)
{
    const auto got = allocate(client, 2 * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    fill_pattern(map.data(), map.size(), 2);
    madvise(map.data(), map.size(), MADV_DONTNEED);
    EXPECT_FALSE(first_pattern_error(map.data(), map.size(), 2));
}

// --- read, write, seek, splice ---

TEST_F(memory, WhatIsWrittenIsReadBothWaysAndMapped)
{
    const auto got = allocate(client, 4 * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    std::vector<unsigned char> data(3 * chunk + 12345);
    fill_pattern(data.data(), data.size(), 3);
    const u64 start = 4321;
    ASSERT_EQ(pwrite(client.get(), data.data(), data.size(), at(got, start)),
              static_cast<ssize_t>(data.size()));
    EXPECT_FALSE(first_pattern_error(map.data() + start, data.size(), 3));
    fill_pattern(map.data() + start, data.size(), 4);
    ASSERT_EQ(pread(client.get(), data.data(), data.size(), at(got, start)),
              static_cast<ssize_t>(data.size()));
    EXPECT_FALSE(first_pattern_error(data.data(), data.size(), 4));
}

TEST_F(memory, ReadAndWriteGoOnWhereTheyStopped)
{
    const auto got = allocate(client, 2 * chunk);
    ASSERT_EQ(lseek(client.get(), at(got, 100), SEEK_SET), at(got, 100));
    ASSERT_EQ(write(client.get(), "abc", 3), 3);
    ASSERT_EQ(write(client.get(), "def", 3), 3);
    EXPECT_EQ(lseek(client.get(), 0, SEEK_CUR), at(got, 106));
    ASSERT_EQ(lseek(client.get(), -6, SEEK_CUR), at(got, 100));
    char text[7] = {};
    ASSERT_EQ(read(client.get(), text, 2), 2);
    ASSERT_EQ(read(client.get(), text + 2, 4), 4);
    EXPECT_STREQ(text, "abcdef");
    EXPECT_EQ(lseek(client.get(), 0, SEEK_CUR), at(got, 106));
    ASSERT_EQ(pread(client.get(), text, 1, at(got)), 1);
    EXPECT_EQ(lseek(client.get(), 0, SEEK_CUR), at(got, 106))
        << "pread moved the position";
}

TEST_F(memory, SeekEndIsTheSizeOfTheNode)
{
    EXPECT_EQ(lseek(client.get(), 0, SEEK_END),
              static_cast<off_t>(instance_bytes));
    EXPECT_EQ(lseek(client.get(), -10, SEEK_END),
              static_cast<off_t>(instance_bytes) - 10);
    EXPECT_EQ(error_of(lseek(client.get(), -1, SEEK_SET)), EINVAL);
    EXPECT_EQ(error_of(lseek(client.get(), 0, 77)), EINVAL);
    const auto got = allocate(client, 3 * chunk);
    const auto exported = export_region(client, got.offset);
    EXPECT_EQ(lseek(exported.get(), 0, SEEK_END),
              static_cast<off_t>(3 * chunk));
}

TEST_F(memory, AtTheEndReadGivesNothingAndWriteNoSpace)
{
    const auto got = allocate(client, instance_bytes);
    ASSERT_EQ(got.offset, 0U);
    const auto exported = export_region(client, got.offset);
    const auto raw = open_raw(id);
    const auto end = static_cast<off_t>(instance_bytes);
    char bytes[4] = {'a', 'b', 'c', 'd'};
    for (const descriptor *node :
         std::initializer_list<const descriptor *>{&client, &raw, &exported}) {
        EXPECT_EQ(pread(node->get(), bytes, 4, end), 0);
        EXPECT_EQ(error_of(pwrite(node->get(), bytes, 4, end)), ENOSPC);
        EXPECT_EQ(pwrite(node->get(), bytes, 4, end - 2), 2);
        EXPECT_EQ(pread(node->get(), bytes, 4, end - 2), 2);
        EXPECT_EQ(pread(node->get(), bytes, 0, end), 0);
        EXPECT_EQ(pwrite(node->get(), bytes, 0, end - 2), 0);
    }
}

TEST_F(memory, BeyondTheEndNothingIsReadOrWritten)
{
    const auto raw = open_raw(id);
    char byte = 'x';
    const off_t far[] = {static_cast<off_t>(instance_bytes) + 1,
                         static_cast<off_t>(instance_bytes + chunk),
                         static_cast<off_t>((1ULL << 63) - 2)};
    for (const auto place : far) {
        EXPECT_LE(pread(raw.get(), &byte, 1, place), 0) << place;
        EXPECT_LT(pwrite(raw.get(), &byte, 1, place), 0) << place;
        EXPECT_LE(pread(client.get(), &byte, 1, place), 0) << place;
        EXPECT_LT(pwrite(client.get(), &byte, 1, place), 0) << place;
    }
    EXPECT_EQ(byte, 'x');
    EXPECT_EQ(error_of(pread(raw.get(), &byte, 1, -1)), EINVAL);
    EXPECT_EQ(resident(), 0U);
}

TEST_F(memory, ReadStopsAtTheEndOfTheRegion)
{
    const auto first = allocate(client, chunk);
    const auto second = open_client(id);
    const auto next = allocate(second, chunk);
    ASSERT_EQ(next.offset, first.offset + chunk)
        << "the two do not lie side by side";
    ASSERT_EQ(pwrite(second.get(), "secret", 6, at(next)), 6);
    char bytes[16] = {};
    EXPECT_EQ(pread(client.get(), bytes, 16, at(first, chunk - 4)), 4);
    EXPECT_EQ(bytes[4], 0);
    EXPECT_LE(pwrite(client.get(), "overwritten", 11, at(first, chunk - 4)), 4);
    char kept[7] = {};
    ASSERT_EQ(pread(second.get(), kept, 6, at(next)), 6);
    EXPECT_STREQ(kept, "secret");
}

TEST_F(memory, OtherClientsRegionsCannotBeReadWrittenMappedOrDiscarded)
{
    const auto other = open_client(id);
    const auto theirs = allocate(other, chunk);
    char byte = 'x';
    ASSERT_EQ(pwrite(other.get(), &byte, 1, at(theirs)), 1);
    EXPECT_EQ(error_of(pread(client.get(), &byte, 1, at(theirs))), EACCES);
    EXPECT_EQ(error_of(pwrite(client.get(), "y", 1, at(theirs))), EACCES);
    EXPECT_EQ(map_error(client.get(), chunk, theirs.offset), EACCES);
    EXPECT_EQ(map_error(client.get(), chunk, theirs.offset, PROT_READ), EACCES);
    EXPECT_EQ(discard(client, theirs.offset, chunk), EACCES);
    EXPECT_EQ(release(client, theirs.offset), ENOENT);
    auto argument = fresh<emuv_export>();
    argument.offset = theirs.offset;
    EXPECT_EQ(call(client, EMUV_IOC_EXPORT, argument), ENOENT);
    ASSERT_EQ(pread(other.get(), &byte, 1, at(theirs)), 1);
    EXPECT_EQ(byte, 'x');
}

TEST_F(memory, NobodysMemoryIsNotForPlainClients)
{
    char byte = 'x';
    EXPECT_EQ(error_of(pread(client.get(), &byte, 1, 0)), EACCES);
    EXPECT_EQ(error_of(pwrite(client.get(), &byte, 1, 0)), EACCES);
    EXPECT_EQ(map_error(client.get(), chunk, 0), EACCES);
    EXPECT_EQ(discard(client, 0, chunk), EACCES);
    EXPECT_EQ(resident(), 0U);
}

TEST_F(memory, FreedRegionIsOutOfReach)
{
    const auto got = allocate(client, chunk);
    ASSERT_EQ(pwrite(client.get(), "x", 1, at(got)), 1);
    ASSERT_EQ(release(client, got.offset), 0);
    char byte = 0;
    EXPECT_EQ(error_of(pread(client.get(), &byte, 1, at(got))), EACCES);
    EXPECT_EQ(error_of(pwrite(client.get(), &byte, 1, at(got))), EACCES);
    EXPECT_EQ(map_error(client.get(), chunk, got.offset), EACCES);
    EXPECT_EQ(release(client, got.offset), ENOENT);
}

TEST_F(memory, BadBufferGivesEfaultAndSparesTheRest)
{
    const auto got = allocate(client, chunk);
    ASSERT_EQ(pwrite(client.get(), "abc", 3, at(got)), 3);
    // volatile, since the compiler would object to a constant bad address.
    void *volatile nowhere = reinterpret_cast<void *>(8);
    EXPECT_EQ(error_of(pread(client.get(), nowhere, 3, at(got))), EFAULT);
    EXPECT_EQ(error_of(pwrite(client.get(), nowhere, 3, at(got))), EFAULT);
    char bytes[4] = {};
    ASSERT_EQ(pread(client.get(), bytes, 3, at(got)), 3);
    EXPECT_STREQ(bytes, "abc");
}

TEST_F(memory, VectorsAreReadAndWrittenWhole)
{
    const auto got = allocate(client, 2 * chunk);
    std::vector<unsigned char> one(chunk - 5);
    std::vector<unsigned char> two(777);
    fill_pattern(one.data(), one.size(), 5);
    fill_pattern(two.data(), two.size(), 6);
    iovec parts[] = {{one.data(), one.size()}, {two.data(), two.size()}};
    const auto whole = static_cast<ssize_t>(one.size() + two.size());
    ASSERT_EQ(pwritev(client.get(), parts, 2, at(got)), whole);
    std::fill(one.begin(), one.end(), 0);
    std::fill(two.begin(), two.end(), 0);
    ASSERT_EQ(preadv(client.get(), parts, 2, at(got)), whole);
    EXPECT_FALSE(first_pattern_error(one.data(), one.size(), 5));
    EXPECT_FALSE(first_pattern_error(two.data(), two.size(), 6));
}

class pipe_pair
{
public:
    pipe_pair()
    {
        int ends[2];
        checked(pipe2(ends, O_CLOEXEC), "pipe2");
        out = descriptor(ends[0]);
        in = descriptor(ends[1]);
    }
    descriptor out;
    descriptor in;
};

TEST_F(memory, SpliceMovesDataOutAndIn)
{
    const auto got = allocate(client, 4 * chunk);
    const auto exported = export_region(client, got.offset);
    const mapping map(client.get(), got.bytes, got.offset);
    for (const bool by_node : {true, false}) {
        const auto &file = by_node ? client : exported;
        const u64 base = by_node ? got.offset : 0;
        fill_pattern(map.data(), chunk, by_node ? 7 : 8);
        std::memset(map.data() + 2 * chunk, 0, 2 * chunk);
        const pipe_pair pipe;
        const u64 bytes = 40000;
        const u64 from = 1000;
        const u64 to = 3 * chunk - 20000;
        for (u64 moved = 0; moved < bytes;) {
            loff_t source = static_cast<loff_t>(base + from + moved);
            const auto taken = splice(file.get(), &source, pipe.in.get(),
                                      nullptr, bytes - moved, 0);
            ASSERT_GT(taken, 0) << std::strerror(errno);
            EXPECT_EQ(source, static_cast<loff_t>(base + from + moved) + taken);
            for (ssize_t put = 0; put < taken;) {
                loff_t target = static_cast<loff_t>(base + to + moved) + put;
                const auto some =
                    splice(pipe.out.get(), nullptr, file.get(), &target,
                           static_cast<std::size_t>(taken - put), 0);
                ASSERT_GT(some, 0) << std::strerror(errno);
                put += some;
            }
            moved += static_cast<u64>(taken);
        }
        EXPECT_EQ(std::memcmp(map.data() + from, map.data() + to, bytes), 0);
        EXPECT_FALSE(
            first_other(map.data() + to + bytes, 4 * chunk - to - bytes));
        EXPECT_FALSE(first_other(map.data() + 2 * chunk, to - 2 * chunk));
    }
}

TEST_F(memory, SpliceOfUntouchedMemoryGivesZeros)
{
    const auto got = allocate(client, chunk);
    const pipe_pair pipe;
    loff_t source = at(got);
    const auto taken =
        splice(client.get(), &source, pipe.in.get(), nullptr, 4096, 0);
    ASSERT_GT(taken, 0);
    unsigned char bytes[4096];
    std::memset(bytes, 0xff, sizeof bytes);
    ASSERT_EQ(read(pipe.out.get(), bytes, sizeof bytes), taken);
    EXPECT_FALSE(first_other(bytes, static_cast<u64>(taken)));
    EXPECT_EQ(resident(), 0U);
}

TEST_F(memory, SpliceKeepsToTheOwnRegions)
{
    const auto other = open_client(id);
    const auto theirs = allocate(other, chunk);
    const pipe_pair pipe;
    loff_t place = at(theirs);
    EXPECT_EQ(
        error_of(splice(client.get(), &place, pipe.in.get(), nullptr, 4096, 0)),
        EACCES);
    ASSERT_EQ(write(pipe.in.get(), "x", 1), 1);
    place = at(theirs);
    EXPECT_EQ(
        error_of(splice(pipe.out.get(), nullptr, client.get(), &place, 1, 0)),
        EACCES);
}

TEST_F(memory, PagesSplicedOutOfAMappingStayWhatTheyWere)
{
    const auto got = allocate(client, chunk);
    mapping map(client.get(), chunk, got.offset);
    std::memset(map.data(), 'a', 4096);
    const pipe_pair pipe;
    iovec part{map.data(), 4096};
    ASSERT_EQ(vmsplice(pipe.in.get(), &part, 1, 0), 4096);
    map.reset();
    ASSERT_EQ(release(client, got.offset), 0);
    // The next owner of the memory neither sees the pipe's pages nor writes
    // into them.
    const auto next = open_client(id);
    const auto again = allocate(next, instance_bytes / 2);
    const mapping other(next.get(), again.bytes, again.offset);
    EXPECT_FALSE(first_other(other.data(), other.size()));
    std::memset(other.data(), 'b', other.size());
    unsigned char bytes[4096];
    ASSERT_EQ(read(pipe.out.get(), bytes, sizeof bytes), 4096);
    EXPECT_FALSE(first_other(bytes, sizeof bytes, 'a'));
}

// --- giving memory back ---

TEST_F(memory, DiscardOfWholeChunksReturnsThemAndReadsZero)
{
    const auto got = allocate(client, 8 * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    std::memset(map.data(), 'x', map.size());
    ASSERT_EQ(discard(client, got.offset + 2 * chunk, 4 * chunk), 0);
    EXPECT_EQ(resident(), 4 * chunk);
    EXPECT_TRUE(reads_zero(client.get(), got.offset + 2 * chunk, 4 * chunk));
    EXPECT_EQ(resident(), 4 * chunk) << "reading backed something";
    EXPECT_FALSE(first_other(map.data() + 2 * chunk, 4 * chunk));
    EXPECT_FALSE(first_other(map.data(), 2 * chunk, 'x'));
    EXPECT_FALSE(first_other(map.data() + 6 * chunk, 2 * chunk, 'x'));
}

TEST_F(memory, DiscardOfPartsOfChunksZeroesThemToTheByte)
{
    const auto got = allocate(client, 4 * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    const std::pair<u64, u64> ranges[] = {
        {1, 1},
        {chunk - 3, 5},
        {4096, 4096},
        {100, chunk},
        {chunk / 2, 2 * chunk},
        {0, chunk - 1},
        {3 * chunk + 1, chunk - 1},
    };
    for (const auto &[start, length] : ranges) {
        std::memset(map.data(), 'x', map.size());
        ASSERT_EQ(discard(client, got.offset + start, length), 0)
            << start << " " << length;
        EXPECT_FALSE(first_other(map.data(), start, 'x'))
            << start << " " << length;
        EXPECT_FALSE(first_other(map.data() + start, length))
            << start << " " << length;
        EXPECT_FALSE(first_other(map.data() + start + length,
                                 map.size() - start - length, 'x'))
            << start << " " << length;
    }
}

TEST_F(memory, DiscardOfUntouchedMemoryBacksNothing)
{
    const auto got = allocate(client, 4 * chunk);
    ASSERT_EQ(discard(client, got.offset + 5, 3 * chunk), 0);
    EXPECT_EQ(resident(), 0U);
}

TEST_F(memory, DiscardOfWholeChunksHandsRamToTheHost)
{
    const auto got = allocate(client, 128 * mib);
    const mapping map(client.get(), got.bytes, got.offset);
    const auto before = settled_available();
    for (u64 place = 0; place < map.size(); place += chunk)
        map[place] = 1;
    EXPECT_LT(settled_available(), before - 112 * mib);
    ASSERT_EQ(discard(client, got.offset, got.bytes), 0);
    EXPECT_EQ(resident(), 0U);
    EXPECT_TRUE(
        wait_until([&] { return settled_available() + 8 * mib > before; }));
}

TEST_F(memory, DiscardShowsInAnotherProcesssMapping)
{
    const auto got = allocate(client, 2 * chunk);
    const auto exported = export_region(client, got.offset);
    process other({.keep = {exported.get()}}, [&](channel &us) -> std::string {
        const mapping map(exported.get(), 2 * chunk);
        std::memset(map.data(), 'x', map.size());
        us.send();
        us.receive();
        CHILD_EXPECT(!first_other(map.data(), chunk));
        CHILD_EXPECT(!first_other(map.data() + chunk, chunk, 'x'));
        map[5] = 'y';
        us.send();
        us.receive();
        return "";
    });
    other.conversation().receive();
    ASSERT_EQ(discard(client, got.offset, chunk), 0);
    other.conversation().send();
    other.conversation().receive();
    char byte = 0;
    ASSERT_EQ(pread(client.get(), &byte, 1, at(got, 5)), 1);
    EXPECT_EQ(byte, 'y') << "the other mapping has parted from the region";
    other.conversation().send();
    EXPECT_EQ(other.join(), "");
}

TEST_F(memory, DiscardRefusesWhatIsNotInOneRegionOfTheClient)
{
    const auto got = allocate(client, 2 * chunk);
    const auto other = open_client(id);
    const auto theirs = allocate(other, chunk);
    ASSERT_EQ(theirs.offset, got.offset + got.bytes);
    EXPECT_EQ(discard(client, got.offset, 3 * chunk), EACCES);
    EXPECT_EQ(discard(client, got.offset, 0), EINVAL);
    EXPECT_EQ(discard(client, instance_bytes - chunk, 2 * chunk), EINVAL);
    EXPECT_EQ(discard(client, instance_bytes, chunk), EINVAL);
    EXPECT_EQ(discard(client, got.offset, ~0ULL), EINVAL);
    EXPECT_EQ(discard(client, ~0ULL - 4095, 8192), EINVAL);
    EXPECT_EQ(discard(open_client(id, O_RDONLY), got.offset, chunk), EACCES);
}

/// Lets the kernel's own code be preempted, if it can be told so.
class preemption
{
public:
    preemption()
    {
        std::istringstream modes(exists(file) ? read_text(file) : "");
        for (std::string mode; modes >> mode;)
            if (mode.starts_with('('))
                before_ = mode.substr(1, mode.size() - 2);
        if (!before_.empty())
            write_text(file, "full");
    }
    ~preemption()
    {
        if (!before_.empty())
            write_text(file, before_);
    }
    preemption(const preemption &) = delete;
    preemption &operator=(const preemption &) = delete;

private:
    static constexpr auto file = "/sys/kernel/debug/sched/preempt";
    std::string before_;
};

void move_to_processor(int number)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(number), &one);
    checked(sched_setaffinity(0, sizeof one, &one), "sched_setaffinity");
}

// One thread discards the end of a region. Another, which preempts it wherever
// it happens to be, puts a shorter region there and a neighbour's behind that.
TEST_F(memory, DiscardSparesTheNeighbourOfAShorterRegionPutInPlaceMeanwhile)
{
    const preemption full;
    const auto neighbour = open_client(id);
    auto longer = allocate(client, 3 * chunk);
    const u64 place = longer.offset + 2 * chunk;
    std::atomic<bool> done = false;
    std::atomic<u64> discarded = 0, refused = 0, replaced = 0;
    std::thread discarding([&] {
        move_to_processor(0);
        while (!done)
            (discard(client, place, chunk) == 0 ? discarded : refused)++;
    });
    std::thread replacing([&] {
        move_to_processor(0);
        const sched_param first{.sched_priority = 1};
        checked(sched_setscheduler(0, SCHED_FIFO, &first),
                "sched_setscheduler");
        for (unsigned round = 0; round < 1500 && !HasFailure(); round++) {
            std::this_thread::sleep_for(
                std::chrono::microseconds(100 + round % 37));
            EXPECT_EQ(release(client, longer.offset), 0);
            const auto shorter = allocate(client, chunk);
            const auto theirs = allocate(neighbour, 2 * chunk);
            // A discard in progress keeps the longer one there.
            if (theirs.offset + chunk == place) {
                const auto at = static_cast<off_t>(place);
                char byte = 'n';
                EXPECT_EQ(pwrite(neighbour.get(), &byte, 1, at), 1);
                std::this_thread::sleep_for(std::chrono::microseconds(100));
                EXPECT_EQ(pread(neighbour.get(), &byte, 1, at), 1);
                EXPECT_EQ(byte, 'n') << "round " << round;
                replaced++;
            }
            EXPECT_EQ(release(client, shorter.offset), 0);
            EXPECT_EQ(release(neighbour, theirs.offset), 0);
            longer = allocate(client, 3 * chunk);
            while (longer.offset + 2 * chunk != place) {
                EXPECT_EQ(release(client, longer.offset), 0);
                std::this_thread::sleep_for(std::chrono::microseconds(100));
                longer = allocate(client, 3 * chunk);
            }
        }
    });
    replacing.join();
    done = true;
    discarding.join();
    EXPECT_GT(replaced, 0U);
    EXPECT_GT(discarded, 0U);
    EXPECT_GT(refused, 0U);
}

// A stranger who tries to read is refused, and holds nothing meanwhile.
TEST_F(memory, StrangerAtTheDoorKeepsNoRegionFromBeingFreed)
{
    const preemption full;
    const auto stranger = open_client(id);
    auto got = allocate(client, instance_bytes);
    std::atomic<bool> done = false;
    std::atomic<u64> refused = 0;
    std::thread trying([&] {
        move_to_processor(0);
        char byte = 0;
        while (!done)
            refused += error_of(pread(stranger.get(), &byte, 1,
                                      static_cast<off_t>(chunk))) == EACCES
                           ? 1
                           : 0;
    });
    std::thread freeing([&] {
        move_to_processor(0);
        const sched_param first{.sched_priority = 1};
        checked(sched_setscheduler(0, SCHED_FIFO, &first),
                "sched_setscheduler");
        for (unsigned round = 0; round < 1500 && !HasFailure(); round++) {
            std::this_thread::sleep_for(
                std::chrono::microseconds(100 + round % 37));
            EXPECT_EQ(release(client, got.offset), 0);
            EXPECT_EQ(try_allocate(client, instance_bytes, got), 0)
                << "round " << round;
        }
    });
    freeing.join();
    done = true;
    trying.join();
    EXPECT_GT(refused, 0U);
}

TEST_F(memory, DiscardNeedsTheNodeOpenForWriting)
{
    const auto raw = open_raw(id, O_RDONLY);
    EXPECT_EQ(discard(raw, 0, chunk), EACCES);
}

TEST_F(memory, FallocatePunchesHolesInARegionDescriptor)
{
    const auto got = allocate(client, 4 * chunk);
    const auto exported = export_region(client, got.offset);
    const mapping map(exported.get(), got.bytes);
    std::memset(map.data(), 'x', map.size());
    constexpr int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    ASSERT_EQ(fallocate(exported.get(), punch, static_cast<off_t>(chunk - 10),
                        static_cast<off_t>(chunk + 20)),
              0)
        << std::strerror(errno);
    EXPECT_EQ(resident(), 3 * chunk);
    EXPECT_FALSE(first_other(map.data(), chunk - 10, 'x'));
    EXPECT_FALSE(first_other(map.data() + chunk - 10, chunk + 20));
    EXPECT_FALSE(first_other(map.data() + 2 * chunk + 10, 2 * chunk - 10, 'x'));
}

TEST_F(memory, FallocateTakesNothingElse)
{
    const auto got = allocate(client, 4 * chunk);
    const auto exported = export_region(client, got.offset);
    EXPECT_EQ(
        error_of(fallocate(exported.get(), 0, 0, static_cast<off_t>(chunk))),
        EOPNOTSUPP);
    EXPECT_EQ(error_of(fallocate(exported.get(), FALLOC_FL_ZERO_RANGE, 0,
                                 static_cast<off_t>(chunk))),
              EOPNOTSUPP);
    EXPECT_EQ(error_of(fallocate(exported.get(), FALLOC_FL_COLLAPSE_RANGE, 0,
                                 static_cast<off_t>(chunk))),
              EOPNOTSUPP);
    EXPECT_EQ(error_of(fallocate(client.get(),
                                 FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                 at(got), static_cast<off_t>(chunk))),
              ENODEV);
    EXPECT_NE(ftruncate(exported.get(), static_cast<off_t>(8 * chunk)), 0);
    EXPECT_NE(ftruncate(exported.get(), 0), 0);
    EXPECT_EQ(lseek(exported.get(), 0, SEEK_END),
              static_cast<off_t>(4 * chunk));
}

TEST_F(memory, RegionDescriptorPunchStaysInItsRegion)
{
    const auto got = allocate(client, chunk);
    const auto neighbour = allocate(client, chunk);
    ASSERT_EQ(neighbour.offset, got.offset + chunk);
    ASSERT_EQ(pwrite(client.get(), "x", 1, at(neighbour)), 1);
    const auto exported = export_region(client, got.offset);
    fallocate(exported.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
              static_cast<off_t>(4 * chunk));
    char byte = 0;
    ASSERT_EQ(pread(client.get(), &byte, 1, at(neighbour)), 1);
    EXPECT_EQ(byte, 'x');
}

TEST_F(memory, MadviseRemoveGivesBackItsRangeOrNothing)
{
    // Not the first region of the node: offsets in node and region differ.
    allocate(client, 2 * chunk);
    const auto got = allocate(client, 4 * chunk);
    const auto exported = export_region(client, got.offset);
    const auto dmabuf = export_region(client, got.offset, EMUV_EXPORT_DMABUF);
    const mapping maps[] = {
        mapping(exported.get(), got.bytes),
        mapping(client.get(), got.bytes, got.offset),
        mapping(dmabuf.get(), got.bytes),
    };
    for (const auto &map : maps) {
        const auto which = &map - maps;
        std::memset(map.data(), 'x', map.size());
        const bool removed =
            madvise(map.data() + chunk, chunk, MADV_REMOVE) == 0;
        EXPECT_TRUE(removed || which == 2) << which;
        EXPECT_FALSE(first_other(map.data(), chunk, 'x')) << which;
        EXPECT_FALSE(first_other(map.data() + chunk, chunk, removed ? 0 : 'x'))
            << which;
        EXPECT_FALSE(first_other(map.data() + 2 * chunk, 2 * chunk, 'x'))
            << which;
    }
}

TEST_F(memory, SyncingSucceedsAsOfOtherMemoryFiles)
{
    const auto got = allocate(client, chunk);
    const auto exported = export_region(client, got.offset);
    const descriptor memfd(static_cast<int>(
        checked(memfd_create("emuv-test", MFD_CLOEXEC), "memfd_create")));
    ASSERT_EQ(ftruncate(memfd.get(), static_cast<off_t>(chunk)), 0);
    const struct
    {
        const descriptor &file;
        u64 offset;
    } files[] = {{memfd, 0}, {client, got.offset}, {exported, 0}};
    for (const auto &[file, offset] : files) {
        const auto which = &file == &memfd    ? "memfd"
                           : &file == &client ? "node"
                                              : "region descriptor";
        const mapping map(file.get(), chunk, offset);
        fill_pattern(map.data(), chunk, 15);
        EXPECT_EQ(error_of(fsync(file.get())), 0) << which;
        EXPECT_EQ(error_of(fdatasync(file.get())), 0) << which;
        EXPECT_EQ(error_of(msync(map.data(), chunk, MS_SYNC)), 0) << which;
        EXPECT_EQ(error_of(msync(map.data(), chunk, MS_ASYNC)), 0) << which;
        EXPECT_EQ(error_of(msync(map.data(), chunk, MS_INVALIDATE)), 0)
            << which;
        EXPECT_FALSE(first_pattern_error(map.data(), chunk, 15)) << which;
    }
    EXPECT_EQ(
        error_of(sync_file_range(exported.get(), 0, static_cast<off_t>(chunk),
                                 SYNC_FILE_RANGE_WRITE)),
        0);
}

TEST_F(memory, SendfileReadsIt)
{
    const auto got = allocate(client, chunk);
    const mapping map(client.get(), chunk, got.offset);
    fill_pattern(map.data(), chunk, 14);
    const pipe_pair pipe;
    off_t from = at(got, 100);
    ASSERT_EQ(sendfile(pipe.in.get(), client.get(), &from, 5000), 5000)
        << std::strerror(errno);
    EXPECT_EQ(from, at(got, 5100));
    unsigned char bytes[5000];
    ASSERT_EQ(read(pipe.out.get(), bytes, sizeof bytes), 5000);
    EXPECT_EQ(std::memcmp(bytes, map.data() + 100, sizeof bytes), 0);
}

// --- allocating ---

TEST_F(memory, RegionsAreWholeChunksThatDoNotOverlap)
{
    std::vector<region> got;
    for (const u64 bytes : {u64{1}, chunk, chunk + 1, 4 * chunk - 1}) {
        got.push_back(allocate(client, bytes));
        EXPECT_EQ(got.back().bytes, (bytes + chunk - 1) / chunk * chunk);
        EXPECT_EQ(got.back().offset % chunk, 0U);
        EXPECT_LE(got.back().offset + got.back().bytes, instance_bytes);
    }
    std::sort(got.begin(), got.end(),
              [](const auto &a, const auto &b) { return a.offset < b.offset; });
    for (std::size_t i = 1; i < got.size(); i++)
        EXPECT_LE(got[i - 1].offset + got[i - 1].bytes, got[i].offset);
}

TEST_F(memory, MoreThanThereIsIsRefused)
{
    region got;
    EXPECT_EQ(try_allocate(client, 0, got), EINVAL);
    EXPECT_EQ(try_allocate(client, instance_bytes + 1, got), ENOSPC);
    EXPECT_EQ(try_allocate(client, EMUV_MAX_BYTES, got), ENOSPC);
    EXPECT_EQ(try_allocate(client, (1ULL << 63) + 1, got), ENOSPC);
    EXPECT_EQ(try_allocate(client, ~0ULL, got), ENOSPC);
    EXPECT_EQ(query(control, id).virtual_used_bytes, 0U);
    ASSERT_EQ(try_allocate(client, instance_bytes, got), 0);
    EXPECT_EQ(try_allocate(client, 1, got), ENOSPC);
    ASSERT_EQ(release(client, got.offset), 0);
    EXPECT_EQ(try_allocate(client, instance_bytes, got), 0);
}

TEST_F(memory, NoGapIsLargeEnough)
{
    constexpr u64 count = instance_bytes / chunk;
    std::vector<region> got;
    for (u64 i = 0; i < count; i++)
        got.push_back(allocate(client, chunk));
    for (u64 i = 0; i < count; i += 2)
        ASSERT_EQ(release(client, got[i].offset), 0);
    region large;
    EXPECT_EQ(try_allocate(client, 2 * chunk, large), ENOSPC);
    EXPECT_EQ(query(control, id).virtual_used_bytes, instance_bytes / 2);
    for (u64 i = 0; i < count; i += 2)
        allocate(client, chunk);
    EXPECT_EQ(query(control, id).virtual_used_bytes, instance_bytes);
}

TEST_F(memory, InstanceWithoutVirtualBytesHasNoMemory)
{
    const int bare = create(control, mib, 0);
    const auto raw = open_raw(bare);
    region got;
    EXPECT_EQ(try_allocate(raw, 1, got), ENOSPC);
    char byte = 0;
    EXPECT_EQ(pread(raw.get(), &byte, 1, 0), 0);
    EXPECT_EQ(error_of(pwrite(raw.get(), &byte, 1, 0)), ENOSPC);
    EXPECT_EQ(map_error(raw.get(), 4096, 0), EINVAL);
    EXPECT_EQ(lseek(raw.get(), 0, SEEK_END), 0);
}

TEST_F(memory, FreeTakesARegionsStartOnly)
{
    const auto got = allocate(client, 4 * chunk);
    for (const u64 wrong : {got.offset + 1, got.offset + chunk,
                            got.offset + 4 * chunk, ~u64{0}, ~u64{0} << 21})
        EXPECT_EQ(release(client, wrong), ENOENT) << wrong;
    EXPECT_EQ(release(client, got.offset), 0);
}

// --- mapping: refusals ---

TEST_F(memory, PrivateMappingsAreRefused)
{
    const auto got = allocate(client, chunk);
    const auto exported = export_region(client, got.offset);
    EXPECT_EQ(map_error(client.get(), chunk, got.offset, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE),
              EINVAL);
    EXPECT_EQ(
        map_error(client.get(), chunk, got.offset, PROT_READ, MAP_PRIVATE),
        EINVAL);
    EXPECT_EQ(map_error(exported.get(), chunk, 0, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE),
              EINVAL);
    EXPECT_EQ(map_error(client.get(), chunk, got.offset), 0);
}

TEST_F(memory, MappingsBeyondTheEndAreRefused)
{
    const auto got = allocate(client, instance_bytes);
    const auto exported = export_region(client, got.offset);
    for (const descriptor *node :
         std::initializer_list<const descriptor *>{&client, &exported}) {
        EXPECT_EQ(map_error(node->get(), chunk, instance_bytes), EINVAL);
        EXPECT_EQ(map_error(node->get(), 2 * chunk, instance_bytes - chunk),
                  EINVAL);
        EXPECT_EQ(map_error(node->get(), instance_bytes + 4096, 0), EINVAL);
        EXPECT_NE(map_error(node->get(), chunk, (1ULL << 63) - chunk), 0);
        EXPECT_EQ(map_error(node->get(), chunk, instance_bytes - chunk), 0);
    }
}

TEST_F(memory, MappingsOverTwoRegionsAreRefused)
{
    const auto one = allocate(client, chunk);
    const auto two = allocate(client, chunk);
    ASSERT_EQ(two.offset, one.offset + chunk);
    EXPECT_EQ(map_error(client.get(), 2 * chunk, one.offset), EACCES);
    EXPECT_EQ(map_error(client.get(), chunk, one.offset + chunk / 2), EACCES);
    EXPECT_EQ(map_error(client.get(), 2 * chunk, two.offset), EACCES);
}

TEST_F(memory, ReadOnlyNodesAreNotMappedWritable)
{
    const auto reader = open_client(id, O_RDONLY);
    const auto got = allocate(reader, chunk);
    EXPECT_EQ(map_error(reader.get(), chunk, got.offset), EACCES);
    const mapping map(reader.get(), chunk, got.offset, PROT_READ);
    EXPECT_EQ(map[0], 0);
    EXPECT_EQ(error_of(mprotect(map.data(), chunk, PROT_READ | PROT_WRITE)),
              EACCES);
    EXPECT_EQ(error_of(madvise(map.data(), chunk, MADV_REMOVE)), EACCES);
    EXPECT_EQ(error_of(pwrite(reader.get(), "x", 1, at(got))), EBADF);
    const auto exported = export_region(reader, got.offset);
    EXPECT_EQ(map_error(exported.get(), chunk, 0), EACCES);
    EXPECT_EQ(map_error(exported.get(), chunk, 0, PROT_READ), 0);
    EXPECT_EQ(error_of(pwrite(exported.get(), "x", 1, 0)), EBADF);
    EXPECT_NE(fallocate(exported.get(),
                        FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                        static_cast<off_t>(chunk)),
              0);
}

TEST_F(memory, ReadOnlyMappingGainsNothingFromOneThatMayWrite)
{
    const auto got = allocate(client, chunk);
    const mapping writing(client.get(), chunk, got.offset);
    writing[0] = 'w';
    const auto exported = export_region(client, got.offset);
    const auto reader = open_client(id, O_RDONLY);
    region imported;
    ASSERT_EQ(import_region(reader, exported, imported), 0);
    const mapping map(reader.get(), chunk, imported.offset, PROT_READ);
    EXPECT_EQ(map[0], 'w');
    EXPECT_EQ(error_of(mprotect(map.data(), chunk, PROT_READ | PROT_WRITE)),
              EACCES);
    EXPECT_EQ(error_of(madvise(map.data(), chunk, MADV_REMOVE)), EACCES);
    const descriptor own(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
    EXPECT_NE(pwrite(own.get(), "x", 1,
                     static_cast<off_t>(
                         reinterpret_cast<std::uintptr_t>(map.data()))),
              1);
    EXPECT_EQ(map[0], 'w');
}

/// Open files of all processes, to some dozens.
u64 open_files()
{
    return std::stoull(read_text("/proc/sys/fs/file-nr"));
}

TEST_F(memory, MappingsOfARegionThroughItsNodeHaveOneFileInCommon)
{
    constexpr u64 count = 1000;
    const auto got = allocate(client, chunk);
    const auto before = open_files();
    std::vector<mapping> maps;
    for (u64 i = 0; i < count; i++)
        maps.emplace_back(client.get(), chunk, got.offset);
    EXPECT_LT(open_files(), before + count / 2);
    maps.front()[0] = 1;
    EXPECT_EQ(maps.back()[0], 1);
}

// The file that they have in common goes with the last of them, and the next
// one makes another, while others still look for it.
TEST_F(memory, MappingsOfARegionComeAndGoAtOnce)
{
    constexpr int threads = 4;
    constexpr int rounds = 100;
    const auto got = allocate(client, chunk);
    ASSERT_EQ(pwrite(client.get(), "x", 1, at(got)), 1);
    std::atomic<int> wrong = 0;
    std::vector<std::thread> all;
    for (int i = 0; i < threads; i++)
        all.emplace_back([&] {
            for (int round = 0; round < rounds; round++) {
                const mapping map(client.get(), chunk, got.offset);
                wrong += map[0] != 'x';
            }
        });
    for (auto &thread : all)
        thread.join();
    EXPECT_EQ(wrong, 0);
    ASSERT_EQ(release(client, got.offset), 0);
    EXPECT_TRUE(wait_until([&] {
        return query(control, id).virtual_used_bytes == 0;
    })) << "a file is left";
    EXPECT_EQ(resident(), 0U);
}

// The file of former mappings is freed, and others' files take its place in the
// kernel's memory.
TEST_F(memory, MappingsAfterTheLastOneHaveNoOthersFile)
{
    constexpr int rounds = 20;
    constexpr int files = 256;
    const auto got = allocate(client, chunk);
    ASSERT_EQ(pwrite(client.get(), "x", 1, at(got)), 1);
    for (int round = 0; round < rounds; round++) {
        mapping(client.get(), chunk, got.offset).reset();
        // Waits until nobody uses what was freed before.
        ASSERT_EQ(syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0), 0);
        std::vector<descriptor> others;
        for (int i = 0; i < files; i++)
            others.emplace_back(open("/dev/zero", O_RDWR | O_CLOEXEC));
        const mapping map(client.get(), chunk, got.offset);
        ASSERT_EQ(map[0], 'x') << "in round " << round;
    }
}

TEST_F(memory, WriteOnlyNodesExportAndMapNothing)
{
    const auto writer = open_client(id, O_WRONLY);
    const auto got = allocate(writer, chunk);
    EXPECT_EQ(map_error(writer.get(), chunk, got.offset), EACCES);
    auto argument = fresh<emuv_export>();
    argument.offset = got.offset;
    EXPECT_EQ(call(writer, EMUV_IOC_EXPORT, argument), EACCES);
    char byte = 0;
    EXPECT_EQ(error_of(pread(writer.get(), &byte, 1, at(got))), EBADF);
    EXPECT_EQ(pwrite(writer.get(), "x", 1, at(got)), 1);
}

TEST_F(memory, MappingsDoNotGrow)
{
    const auto got = allocate(client, chunk);
    const auto neighbour = allocate(client, chunk);
    ASSERT_EQ(neighbour.offset, got.offset + chunk);
    const mapping map(client.get(), chunk, got.offset);
    EXPECT_EQ(mremap(map.data(), chunk, 2 * chunk, MREMAP_MAYMOVE), MAP_FAILED);
    const mapping half(client.get(), chunk / 2, got.offset);
    EXPECT_EQ(mremap(half.data(), chunk / 2, chunk, MREMAP_MAYMOVE),
              MAP_FAILED);
    EXPECT_EQ(mremap(map.data(), 0, chunk, MREMAP_MAYMOVE), MAP_FAILED);
    map[0] = 1;
    half[0] = 2;
    EXPECT_EQ(map[0], 2);
}

TEST_F(memory, MappingsCanBeMovedAndSplit)
{
    const auto got = allocate(client, 4 * chunk);
    const u64 size = got.bytes;
    auto *start =
        static_cast<unsigned char *>(mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                          MAP_SHARED, client.get(), at(got)));
    ASSERT_NE(start, MAP_FAILED);
    fill_pattern(start, size, 9);
    // Unmap the middle, at no chunk's border.
    ASSERT_EQ(munmap(start + chunk + 4096, chunk), 0);
    auto *room =
        mmap(nullptr, 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(room, MAP_FAILED);
    const u64 tail_at = 2 * chunk + 4096;
    auto *moved = static_cast<unsigned char *>(
        mremap(start + tail_at, size - tail_at, size - tail_at,
               MREMAP_MAYMOVE | MREMAP_FIXED, room));
    ASSERT_EQ(moved, room);
    std::vector<unsigned char> expected(size);
    fill_pattern(expected.data(), size, 9);
    EXPECT_EQ(std::memcmp(start, expected.data(), chunk + 4096), 0);
    EXPECT_EQ(std::memcmp(moved, expected.data() + tail_at, size - tail_at), 0);
    // A part that nobody has touched yet moves, too.
    ASSERT_EQ(discard(client, got.offset + 3 * chunk, chunk), 0);
    moved[size - tail_at - 1] = 5;
    char byte = 0;
    ASSERT_EQ(pread(client.get(), &byte, 1, at(got, size - 1)), 1);
    EXPECT_EQ(byte, 5);
    EXPECT_EQ(release(client, got.offset), 0);
    EXPECT_EQ(query(control, id).unowned_bytes, size)
        << "the two parts that are left hold it";
    munmap(room, 2 * size);
    EXPECT_EQ(query(control, id).unowned_bytes, size);
    munmap(start, chunk + 4096);
    EXPECT_EQ(query(control, id).unowned_bytes, 0U);
}

TEST_F(memory, FutexesArePrivate)
{
    const auto got = allocate(client, chunk);
    const mapping map(client.get(), chunk, got.offset);
    auto *const word = reinterpret_cast<unsigned *>(map.data());
    const auto futex = [&](int what, unsigned value) {
        return error_of(syscall(SYS_futex, word, what, value, nullptr));
    };
    *word = 0;
    EXPECT_EQ(futex(FUTEX_WAIT_PRIVATE, 1), EAGAIN);
    EXPECT_EQ(futex(FUTEX_WAKE_PRIVATE, 1), 0);
    // Shared futexes need the page cache, as the manual says.
    EXPECT_EQ(futex(FUTEX_WAIT, 1), EFAULT);
    EXPECT_EQ(futex(FUTEX_WAKE, 1), EFAULT);
    *word = 0;
    std::thread waiter([&] {
        while (*static_cast<volatile unsigned *>(word) == 0)
            futex(FUTEX_WAIT_PRIVATE, 0);
    });
    *static_cast<volatile unsigned *>(word) = 1;
    futex(FUTEX_WAKE_PRIVATE, 1);
    waiter.join();
}

TEST_F(memory, ProtectionHolds)
{
    const auto got = allocate(client, chunk);
    const mapping map(client.get(), chunk, got.offset);
    map[0] = 1;
    ASSERT_EQ(mprotect(map.data(), chunk, PROT_READ), 0);
    EXPECT_EQ(signal_of_write(map.data()), SIGSEGV);
    EXPECT_EQ(map[0], 1);
    ASSERT_EQ(mprotect(map.data(), chunk, PROT_NONE), 0);
    EXPECT_EQ(signal_of_read(map.data()), SIGSEGV);
    ASSERT_EQ(mprotect(map.data(), chunk, PROT_READ | PROT_WRITE), 0);
    map[0] = 2;
    EXPECT_EQ(map[0], 2);
}

TEST_F(memory, ReadOnlyMappingTouchedFirstCanBeMadeWritable)
{
    const auto got = allocate(client, chunk);
    const mapping map(client.get(), chunk, got.offset, PROT_READ);
    EXPECT_EQ(map[0], 0);
    EXPECT_EQ(signal_of_write(map.data()), SIGSEGV);
    ASSERT_EQ(mprotect(map.data(), chunk, PROT_READ | PROT_WRITE), 0);
    map[0] = 3;
    char byte = 0;
    ASSERT_EQ(pread(client.get(), &byte, 1, at(got)), 1);
    EXPECT_EQ(byte, 3);
}

TEST_F(memory, TwoMappingsOfAChunkAreOneMemory)
{
    const auto got = allocate(client, chunk);
    const auto exported = export_region(client, got.offset);
    const mapping one(client.get(), chunk, got.offset);
    const mapping two(exported.get(), chunk);
    const mapping three(
        export_region(client, got.offset, EMUV_EXPORT_DMABUF).get(), chunk);
    one[10] = 1;
    EXPECT_EQ(two[10], 1);
    EXPECT_EQ(three[10], 1);
    two[11] = 2;
    EXPECT_EQ(one[11], 2);
    three[12] = 3;
    EXPECT_EQ(one[12], 3);
    EXPECT_EQ(resident(), chunk);
}

TEST_F(memory, ForkSharesTheMapping)
{
    const auto got = allocate(client, 2 * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    map[0] = 1;
    const auto said = in_child({}, [&](channel &) -> std::string {
        CHILD_EXPECT(map[0] == 1);
        map[1] = 2;
        map[chunk] = 3; // first touched by the child
        return "";
    });
    EXPECT_EQ(said, "");
    EXPECT_EQ(map[1], 2);
    EXPECT_EQ(map[chunk], 3);
    EXPECT_EQ(resident(), 2 * chunk);
}

// --- the raw offset space ---

TEST_F(memory, RawSpaceIsReadAndWrittenWhosesoeverItIs)
{
    const auto other = open_client(id);
    const auto one = allocate(client, 2 * chunk);
    const auto two = allocate(other, chunk);
    ASSERT_EQ(two.offset, one.offset + one.bytes);
    const auto raw = open_raw(id);
    std::vector<unsigned char> data(3 * chunk);
    fill_pattern(data.data(), data.size(), 10);
    ASSERT_EQ(pwrite(raw.get(), data.data(), data.size(), at(one)),
              static_cast<ssize_t>(data.size()));
    const mapping map(client.get(), one.bytes, one.offset);
    EXPECT_EQ(std::memcmp(map.data(), data.data(), one.bytes), 0);
    const mapping theirs(other.get(), chunk, two.offset);
    EXPECT_EQ(std::memcmp(theirs.data(), data.data() + one.bytes, chunk), 0);
    fill_pattern(map.data(), map.size(), 11);
    std::vector<unsigned char> read_back(data.size());
    ASSERT_EQ(pread(raw.get(), read_back.data(), read_back.size(), at(one)),
              static_cast<ssize_t>(read_back.size()));
    EXPECT_EQ(std::memcmp(read_back.data(), map.data(), one.bytes), 0);
    EXPECT_EQ(std::memcmp(read_back.data() + one.bytes, theirs.data(), chunk),
              0);
}

TEST_F(memory, RawSpaceWithoutARegionReadsAsZerosAndTakesNothing)
{
    const auto got = allocate(client, chunk);
    const auto raw = open_raw(id);
    EXPECT_TRUE(reads_zero(raw.get(), 0, instance_bytes));
    EXPECT_EQ(error_of(pwrite(raw.get(), "x", 1, at(got, chunk))), ENXIO);
    std::vector<char> data(2 * chunk, 'x');
    EXPECT_EQ(pwrite(raw.get(), data.data(), data.size(), at(got)),
              static_cast<ssize_t>(chunk))
        << "as much of it as is a region";
    EXPECT_EQ(resident(), chunk);
    EXPECT_TRUE(reads_zero(raw.get(), got.offset + chunk, 2 * chunk));
}

TEST_F(memory, RawSpaceDoesNotKeepAFreedRegionsData)
{
    const auto got = allocate(client, chunk);
    ASSERT_EQ(pwrite(client.get(), "secret", 6, at(got)), 6);
    ASSERT_EQ(release(client, got.offset), 0);
    EXPECT_TRUE(reads_zero(open_raw(id).get(), 0, 4 * chunk));
}

TEST_F(memory, RawHolderMapsAndDiscardsItsOwnRegionsOnly)
{
    const auto theirs = allocate(client, chunk);
    const auto raw = open_raw(id);
    const auto own = allocate(raw, chunk);
    for (const u64 place : {theirs.offset, instance_bytes - chunk}) {
        EXPECT_EQ(map_error(raw.get(), chunk, place), EACCES);
        EXPECT_EQ(map_error(raw.get(), chunk, place, PROT_READ), EACCES);
        EXPECT_EQ(discard(raw, place, chunk), EACCES);
    }
    EXPECT_EQ(map_error(raw.get(), chunk, own.offset), 0);
    EXPECT_EQ(discard(raw, own.offset, chunk), 0);
}

// --- other ways to the memory ---

TEST_F(memory, NodeReadsIntoAMappingOfItself)
{
    const auto got = allocate(client, 4 * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    // First neither side is backed, then one, then the other, then both. Last,
    // both sides are the same chunk.
    ASSERT_EQ(pread(client.get(), map.data() + 2 * chunk, chunk, at(got)),
              static_cast<ssize_t>(chunk));
    EXPECT_FALSE(first_other(map.data() + 2 * chunk, chunk));
    fill_pattern(map.data(), chunk, 11);
    ASSERT_EQ(discard(client, got.offset + 2 * chunk, chunk), 0);
    ASSERT_EQ(pread(client.get(), map.data() + 2 * chunk, chunk, at(got)),
              static_cast<ssize_t>(chunk));
    EXPECT_FALSE(first_pattern_error(map.data() + 2 * chunk, chunk, 11));
    ASSERT_EQ(pwrite(client.get(), map.data(), chunk, at(got, 3 * chunk)),
              static_cast<ssize_t>(chunk));
    EXPECT_FALSE(first_pattern_error(map.data() + 3 * chunk, chunk, 11));
    ASSERT_EQ(pwrite(client.get(), map.data() + chunk, chunk, at(got)),
              static_cast<ssize_t>(chunk));
    EXPECT_FALSE(first_other(map.data(), chunk));
    ASSERT_EQ(discard(client, got.offset, got.bytes), 0);
    ASSERT_EQ(pwrite(client.get(), map.data(), chunk / 2, at(got, chunk / 2)),
              static_cast<ssize_t>(chunk / 2));
    ASSERT_EQ(pread(client.get(), map.data(), chunk, at(got)),
              static_cast<ssize_t>(chunk));
}

TEST_F(memory, OtherProcessesReachItThroughProcessVm)
{
    const auto got = allocate(client, 2 * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    fill_pattern(map.data(), map.size(), 12);
    process peer([&](channel &us) -> std::string {
        us.receive();
        return "";
    });
    std::vector<unsigned char> data(got.bytes);
    iovec local{data.data(), data.size()};
    iovec remote{map.data(), map.size()};
    // The child has the mapping at the same address, and has not touched it.
    ASSERT_EQ(process_vm_readv(peer.pid(), &local, 1, &remote, 1, 0),
              static_cast<ssize_t>(data.size()))
        << std::strerror(errno);
    EXPECT_FALSE(first_pattern_error(data.data(), data.size(), 12));
    fill_pattern(data.data(), data.size(), 13);
    ASSERT_EQ(process_vm_writev(peer.pid(), &local, 1, &remote, 1, 0),
              static_cast<ssize_t>(data.size()));
    EXPECT_FALSE(first_pattern_error(map.data(), map.size(), 13));
    const descriptor own(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
    ASSERT_TRUE(own);
    unsigned char byte = 0;
    ASSERT_EQ(
        pread(own.get(), &byte, 1, reinterpret_cast<off_t>(map.data() + 100)),
        1);
    EXPECT_EQ(byte, map[100]);
    peer.conversation().send();
    EXPECT_EQ(peer.join(), "");
}

TEST_F(memory, SystemCallsReadAndWriteItsMapping)
{
    const auto got = allocate(client, 2 * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    const descriptor zero(open("/dev/zero", O_RDONLY | O_CLOEXEC));
    const descriptor null(open("/dev/null", O_WRONLY | O_CLOEXEC));
    EXPECT_EQ(read(zero.get(), map.data(), map.size()),
              static_cast<ssize_t>(map.size()));
    EXPECT_EQ(write(null.get(), map.data(), map.size()),
              static_cast<ssize_t>(map.size()));
    const pipe_pair pipe;
    std::memcpy(map.data(), "hello", 5);
    ASSERT_EQ(write(pipe.in.get(), map.data(), 5), 5);
    ASSERT_EQ(read(pipe.out.get(), map.data() + chunk, 5), 5);
    EXPECT_EQ(std::memcmp(map.data() + chunk, "hello", 5), 0);
}

// --- several at once ---

TEST_F(memory, ManyThreadsTouchingTheSameChunksFirstLoseNoByte)
{
    constexpr unsigned threads = 8;
    constexpr u64 chunks = 24;
    const auto got = allocate(client, chunks * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    std::barrier start(threads);
    std::vector<std::thread> running;
    for (unsigned me = 0; me < threads; me++)
        running.emplace_back([&, me] {
            for (u64 index = 0; index < chunks; index++) {
                start.arrive_and_wait();
                for (u64 place = me; place < chunk; place += 4096 + threads)
                    map[index * chunk + place] =
                        static_cast<unsigned char>(me + 1);
            }
        });
    for (auto &thread : running)
        thread.join();
    for (u64 index = 0; index < chunks; index++)
        for (unsigned me = 0; me < threads; me++)
            for (u64 place = me; place < chunk; place += 4096 + threads)
                ASSERT_EQ(map[index * chunk + place], me + 1)
                    << "chunk " << index << " place " << place;
    EXPECT_EQ(resident(), got.bytes);
}

TEST_F(memory, ThreadsThatWriteAndThreadsThatTouchMeetInOneMemory)
{
    constexpr u64 chunks = 24;
    const auto got = allocate(client, chunks * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    std::barrier start(3);
    std::thread writer([&] {
        for (u64 index = 0; index < chunks; index++) {
            start.arrive_and_wait();
            const std::vector<char> data(chunk / 2, 'w');
            EXPECT_EQ(pwrite(client.get(), data.data(), data.size(),
                             at(got, index * chunk)),
                      static_cast<ssize_t>(data.size()));
        }
    });
    std::thread reader([&] {
        std::vector<unsigned char> data(chunk);
        for (u64 index = 0; index < chunks; index++) {
            start.arrive_and_wait();
            EXPECT_EQ(pread(client.get(), data.data(), data.size(),
                            at(got, index * chunk)),
                      static_cast<ssize_t>(data.size()));
            for (u64 place = 0; place < chunk; place += 512)
                EXPECT_TRUE(data[place] == 0 ||
                            data[place] == (place < chunk / 2 ? 'w' : 't'));
        }
    });
    for (u64 index = 0; index < chunks; index++) {
        start.arrive_and_wait();
        std::memset(map.data() + index * chunk + chunk / 2, 't', chunk / 2);
    }
    writer.join();
    reader.join();
    for (u64 index = 0; index < chunks; index++) {
        EXPECT_FALSE(first_other(map.data() + index * chunk, chunk / 2, 'w'))
            << "chunk " << index;
        EXPECT_FALSE(
            first_other(map.data() + index * chunk + chunk / 2, chunk / 2, 't'))
            << "chunk " << index;
    }
}

TEST_F(memory, ManyProcessesTouchingTheSameChunksFirstLoseNoByte)
{
    constexpr unsigned processes = 4;
    constexpr u64 chunks = 16;
    const auto got = allocate(client, chunks * chunk);
    const auto exported = export_region(client, got.offset);
    std::vector<std::unique_ptr<process>> running;
    for (unsigned me = 0; me < processes; me++)
        running.push_back(std::make_unique<process>(
            process::options{.keep = {exported.get()}},
            [&, me](channel &us) -> std::string {
                const mapping map(exported.get(), chunks * chunk);
                us.send();
                us.receive();
                for (u64 place = me; place < chunks * chunk;
                     place += 1024 + processes)
                    map[place] = static_cast<unsigned char>(me + 1);
                return "";
            }));
    for (auto &one : running)
        one->conversation().receive();
    for (auto &one : running)
        one->conversation().send();
    for (auto &one : running)
        EXPECT_EQ(one->join(), "");
    const mapping map(exported.get(), chunks * chunk);
    for (unsigned me = 0; me < processes; me++)
        for (u64 place = me; place < chunks * chunk; place += 1024 + processes)
            ASSERT_EQ(map[place], me + 1) << place;
    EXPECT_EQ(resident(), chunks * chunk);
}

TEST_F(memory, DiscardWhileOthersTouchLeavesZerosOrNewBytes)
{
    constexpr u64 chunks = 8;
    const auto got = allocate(client, chunks * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    std::atomic<bool> done = false;
    std::vector<std::thread> touching;
    for (unsigned me = 0; me < 2; me++)
        touching.emplace_back([&, me] {
            while (!done)
                for (u64 place = me * 8; place < map.size(); place += 4096)
                    map[place] = static_cast<unsigned char>(me + 1);
        });
    for (int round = 0; round < 60; round++)
        EXPECT_EQ(
            discard(client,
                    got.offset + static_cast<u64>(round) % chunks * chunk / 2,
                    chunk + chunk / 2),
            0);
    done = true;
    for (auto &thread : touching)
        thread.join();
    for (u64 place = 0; place < map.size(); place++)
        ASSERT_TRUE(map[place] == 0 || place % 4096 == 0 || place % 4096 == 8)
            << place;
    ASSERT_EQ(discard(client, got.offset, got.bytes), 0);
    EXPECT_EQ(resident(), 0U);
    EXPECT_FALSE(first_other(map.data(), map.size()));
}

// --- memory cgroups ---

// A process in a group that has allocated a region of the client's and waits.
class owner_in_group
{
public:
    owner_in_group(const memory_cgroup &group, const descriptor &client,
                   u64 bytes)
        : process_({.keep = {client.get()}}, [&](channel &us) -> std::string {
              CHILD_EXPECT(group.enter());
              us.send(allocate(client, bytes).offset);
              us.receive();
              return "";
          })
    {
        got_ = {process_.conversation().receive(), bytes};
    }
    ~owner_in_group()
    {
        process_.conversation().send();
        EXPECT_EQ(process_.join(), "");
    }

    const region &got() const { return got_; }

private:
    process process_;
    region got_;
};

TEST_F(memory, RamIsChargedToTheCgroupOfWhoeverAllocatedIt)
{
    const memory_cgroup owners("memory-owner");
    const memory_cgroup touchers("memory-toucher");
    if (!owners.usable || !touchers.usable)
        GTEST_SKIP() << "no cgroup2 with a memory controller here";
    const owner_in_group owner(owners, client, 128 * mib);
    const auto exported = export_region(client, owner.got().offset);
    const auto dmabuf =
        export_region(client, owner.got().offset, EMUV_EXPORT_DMABUF);
    const auto before = owners.current();
    const auto said = in_child(
        {.keep = {exported.get(), dmabuf.get()}},
        [&](channel &) -> std::string {
            CHILD_EXPECT(touchers.enter());
            const auto own = touchers.current();
            const mapping read_only(exported.get(), 32 * mib, 0, PROT_READ);
            for (u64 place = 0; place < read_only.size(); place += chunk)
                CHILD_EXPECT(read_only[place] == 0);
            const mapping map(exported.get(), 32 * mib, 32 * mib);
            for (u64 place = 0; place < map.size(); place += chunk)
                map[place] = 1;
            const std::vector<char> data(mib, 'x');
            for (u64 place = 64 * mib; place < 96 * mib; place += chunk)
                CHILD_EXPECT(pwrite(exported.get(), data.data(), data.size(),
                                    static_cast<off_t>(place)) == mib);
            const mapping device(dmabuf.get(), 32 * mib, 96 * mib);
            for (u64 place = 0; place < device.size(); place += chunk)
                device[place] = 1;
            CHILD_EXPECT(touchers.current() < own + 16 * mib);
            return "";
        });
    EXPECT_EQ(said, "");
    EXPECT_EQ(resident(), 128 * mib);
    EXPECT_GE(owners.current(), before + 126 * mib);
}

TEST_F(memory, NobodyTouchesForAnotherBeyondItsCgroupsLimit)
{
    const memory_cgroup group("memory-test");
    if (!group.usable)
        GTEST_SKIP() << "no cgroup2 with a memory controller here";
    ASSERT_TRUE(group.limit(64 * mib));
    const owner_in_group owner(group, client, 192 * mib);
    // This process is in no limited cgroup, as a kernel thread is in none.
    const mapping map(client.get(), 192 * mib, owner.got().offset);
    u64 touched = 0;
    for (u64 place = 0; place < map.size(); place += chunk)
        touched += signal_of_write(map.data() + place) == 0 ? 1 : 0;
    EXPECT_GT(touched, 8U);
    EXPECT_LE(touched, 32U);
    EXPECT_EQ(
        error_of(pwrite(client.get(), "x", 1,
                        static_cast<off_t>(owner.got().offset + 191 * mib))),
        ENOMEM);
    EXPECT_EQ(error_of(madvise(map.data(), map.size(), MADV_POPULATE_WRITE)),
              EFAULT);
    EXPECT_LE(resident(), 64 * mib);
    EXPECT_EQ(group.event("oom_kill"), 0U);
}

TEST_F(memory, PopulateBeyondTheCgroupsLimitGivesEnomemAndLeavesNothing)
{
    const memory_cgroup group("memory-test");
    if (!group.usable)
        GTEST_SKIP() << "no cgroup2 with a memory controller here";
    ASSERT_TRUE(group.limit(64 * mib));
    const auto said =
        in_child({.keep = {client.get()}}, [&](channel &) -> std::string {
            CHILD_EXPECT(group.enter());
            region got;
            CHILD_EXPECT(try_allocate(client, 128 * mib, got,
                                      EMUV_ALLOC_POPULATE) == ENOMEM);
            CHILD_EXPECT(group.current() < 32 * mib);
            CHILD_EXPECT(
                try_allocate(client, 32 * mib, got, EMUV_ALLOC_POPULATE) == 0);
            return "";
        });
    EXPECT_EQ(said, "");
    EXPECT_EQ(resident(), 32 * mib);
    EXPECT_EQ(group.event("oom_kill"), 0U);
}

TEST_F(memory, ChargeEndsWithTheRegionAndOutlivesItsProcess)
{
    const memory_cgroup group("memory-test");
    if (!group.usable)
        GTEST_SKIP() << "no cgroup2 with a memory controller here";
    u64 offset = 0;
    {
        const owner_in_group owner(group, client, 64 * mib);
        offset = owner.got().offset;
    }
    {
        // The owner has ended; its cgroup still pays.
        const auto exported = export_region(client, offset);
        const mapping map(exported.get(), 64 * mib);
        for (u64 place = 0; place < map.size(); place += chunk)
            map[place] = 1;
        ASSERT_EQ(release(client, offset), 0);
        // The mapping and the region descriptor still hold the region.
        EXPECT_GE(group.current(), 60 * mib);
    }
    EXPECT_TRUE(wait_until([&] { return group.current() < 8 * mib; }))
        << group.current();
}

TEST_F(memory, RegionOutlivesItsCgroup)
{
    region got;
    {
        const memory_cgroup group("memory-test");
        if (!group.usable)
            GTEST_SKIP() << "no cgroup2 with a memory controller here";
        const owner_in_group owner(group, client, 64 * mib);
        got = owner.got();
        const mapping map(client.get(), 32 * mib, got.offset);
        std::memset(map.data(), 'r', map.size());
    }
    const mapping map(client.get(), got.bytes, got.offset);
    for (u64 place = 0; place < map.size(); place += chunk)
        map[place + 1] = 1;
    EXPECT_EQ(map[0], 'r');
    EXPECT_EQ(resident(), 64 * mib);
    ASSERT_EQ(release(client, got.offset), 0);
}

TEST_F(memory, CgroupLimitFailsTheTouchAndKillsNobody)
{
    const memory_cgroup group("memory-test");
    if (!group.usable)
        GTEST_SKIP() << "no cgroup2 with a memory controller here";
    const auto said =
        in_child({.keep = {client.get()}}, [&](channel &) -> std::string {
            CHILD_EXPECT(group.enter());
            CHILD_EXPECT(group.limit(group.current() + 48 * mib));
            const auto got = allocate(client, 192 * mib);
            const mapping map(client.get(), 128 * mib, got.offset);
            int signal = 0;
            u64 place = 0;
            for (; place < map.size() && signal == 0; place += chunk)
                signal = signal_of_write(map.data() + place);
            CHILD_EXPECT(signal == SIGBUS);
            CHILD_EXPECT(place > 8 * chunk);
            CHILD_EXPECT(map[0] == 1);
            CHILD_EXPECT(
                error_of(pwrite(client.get(), "x", 1,
                                static_cast<off_t>(got.offset + 160 * mib))) ==
                ENOMEM);
            return "";
        });
    EXPECT_EQ(said, "");
    EXPECT_EQ(group.event("oom_kill"), 0U);
    EXPECT_GT(resident(), 0U);
}

TEST_F(memory, CgroupLimitKillsNobodyWhereManyThreadsTouch)
{
    const memory_cgroup group("memory-test");
    if (!group.usable)
        GTEST_SKIP() << "no cgroup2 with a memory controller here";
    const auto said =
        in_child({.keep = {client.get()}}, [&](channel &) -> std::string {
            CHILD_EXPECT(group.enter());
            CHILD_EXPECT(group.limit(64 * mib));
            const u64 chunks = 128;
            const auto got = allocate(client, chunks * chunk);
            const mapping map(client.get(), got.bytes, got.offset);
            std::atomic<u64> touched = 0, refused = 0;
            std::vector<std::thread> threads;
            for (u64 which = 0; which < 8; which++)
                threads.emplace_back([&, which] {
                    u64 at = which * 7919 + 1;
                    for (int i = 0; i < 2000; i++) {
                        at = (at * 1103515245 + 12345) % chunks;
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
    EXPECT_GE(resident(), 32 * mib);
    EXPECT_LE(resident(), 64 * mib);
}

// Reads files until they fill `limit` bytes of the process's cgroup.
void read_files(const memory_cgroup &group, u64 limit)
{
    std::vector<char> data(mib);
    for (const char *name : {"/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus",
                             "/usr/lib/gcc/x86_64-linux-gnu/12/cc1",
                             "/usr/lib/gcc/x86_64-linux-gnu/12/lto1"}) {
        const descriptor file(open(name, O_RDONLY | O_CLOEXEC));
        while (file && group.current() < limit &&
               read(file.get(), data.data(), data.size()) > 0)
            ;
    }
}

// Cached files give way to a region, as they do to any memory.
TEST_F(memory, CgroupFullOfCachedFilesStillHasRoom)
{
    const memory_cgroup group("memory-test");
    if (!group.usable)
        GTEST_SKIP() << "no cgroup2 with a memory controller here";
    const auto said =
        in_child({.keep = {client.get()}}, [&](channel &) -> std::string {
            CHILD_EXPECT(group.enter());
            CHILD_EXPECT(group.limit(80 * mib));
            read_files(group, 78 * mib);
            // Otherwise there is nothing to reclaim.
            CHILD_EXPECT(group.current() > 60 * mib);
            const auto got = allocate(client, 64 * mib);
            const mapping map(client.get(), got.bytes, got.offset);
            for (u64 place = 0; place < map.size(); place += chunk)
                CHILD_EXPECT(signal_of_write(map.data() + place) == 0);
            return "";
        });
    EXPECT_EQ(said, "");
    EXPECT_EQ(resident(), 64 * mib);
    EXPECT_EQ(group.event("oom_kill"), 0U);
}

TEST_F(memory, FilesCachedForAnotherCgroupGiveWayToo)
{
    const memory_cgroup both("memory-both");
    if (!both.usable)
        GTEST_SKIP() << "no cgroup2 with a memory controller here";
    ASSERT_TRUE(
        write_text(both.folder() + "/cgroup.subtree_control", "+memory"));
    const memory_cgroup reader("memory-both/reader"),
        owner("memory-both/owner");
    ASSERT_TRUE(reader.usable && owner.usable);
    ASSERT_TRUE(both.limit(80 * mib));
    EXPECT_EQ(in_child({},
                       [&](channel &) -> std::string {
                           CHILD_EXPECT(reader.enter());
                           read_files(both, 78 * mib);
                           CHILD_EXPECT(reader.current() > 60 * mib);
                           return "";
                       }),
              "");
    const owner_in_group allocated(owner, client, 128 * mib);
    const mapping map(client.get(), 128 * mib, allocated.got().offset);
    u64 touched = 0;
    for (u64 place = 0; place < map.size(); place += chunk)
        touched += signal_of_write(map.data() + place) == 0 ? 1 : 0;
    EXPECT_GE(touched, 30U);
    EXPECT_LE(touched, 40U);
    EXPECT_EQ(both.event("oom_kill"), 0U);
}

// The kernel moves a removed cgroup's charges to the cgroup above it, a moment
// later. The region is no longer limited then.
TEST_F(memory, RegionOfARemovedFullCgroupIsBackedOn)
{
    u64 offset = 0;
    {
        const memory_cgroup group("memory-test");
        if (!group.usable)
            GTEST_SKIP() << "no cgroup2 with a memory controller here";
        ASSERT_TRUE(group.limit(32 * mib));
        const owner_in_group owner(group, client, 64 * mib);
        offset = owner.got().offset;
        const mapping map(client.get(), 64 * mib, offset);
        u64 touched = 0;
        for (u64 place = 0; place < map.size(); place += chunk)
            touched += signal_of_write(map.data() + place) == 0 ? 1 : 0;
        EXPECT_GT(touched, 8U);
        EXPECT_LE(touched, 16U);
    }
    const mapping map(client.get(), 64 * mib, offset);
    EXPECT_TRUE(wait_until(
        [&] { return signal_of_write(map.data() + map.size() - 1) == 0; }));
    ASSERT_EQ(discard(client, offset, 64 * mib), 0);
    for (u64 place = 0; place < map.size(); place += chunk)
        ASSERT_EQ(signal_of_write(map.data() + place), 0) << place;
}

TEST_F(memory, FilesCachedForACgroupBelowGiveWayToo)
{
    const memory_cgroup above("memory-above");
    if (!above.usable)
        GTEST_SKIP() << "no cgroup2 with a memory controller here";
    ASSERT_TRUE(above.limit(80 * mib));
    u64 offset = 0;
    {
        const owner_in_group owner(above, client, 128 * mib);
        offset = owner.got().offset;
    }
    // A cgroup with others below it has no processes.
    ASSERT_TRUE(
        write_text(above.folder() + "/cgroup.subtree_control", "+memory"));
    const memory_cgroup below("memory-above/below");
    ASSERT_TRUE(below.usable);
    EXPECT_EQ(in_child({},
                       [&](channel &) -> std::string {
                           CHILD_EXPECT(below.enter());
                           read_files(above, 78 * mib);
                           CHILD_EXPECT(below.current() > 60 * mib);
                           return "";
                       }),
              "");
    const mapping map(client.get(), 128 * mib, offset);
    u64 touched = 0;
    for (u64 place = 0; place < map.size(); place += chunk)
        touched += signal_of_write(map.data() + place) == 0 ? 1 : 0;
    EXPECT_GE(touched, 30U);
    EXPECT_LE(touched, 40U);
    EXPECT_EQ(above.event("oom_kill"), 0U);
}

/// A swap device of compressed memory.
class swap_device
{
public:
    explicit swap_device(u64 bytes)
    {
        if (!load_stock_module("zram") ||
            !write_text("/sys/block/zram0/disksize", std::to_string(bytes)))
            return;
        // The header that mkswap writes.
        std::vector<char> page(4096);
        const std::uint32_t head[] = {
            1, static_cast<std::uint32_t>(bytes / page.size() - 1)};
        std::memcpy(page.data() + 1024, head, sizeof head);
        std::memcpy(page.data() + page.size() - 10, "SWAPSPACE2", 10);
        const descriptor device(open(path, O_RDWR | O_CLOEXEC));
        usable_ = write(device.get(), page.data(), page.size()) ==
                      static_cast<ssize_t>(page.size()) &&
                  fsync(device.get()) == 0 && swapon(path, 0) == 0;
    }
    ~swap_device()
    {
        if (usable_)
            swapoff(path);
        write_text("/sys/block/zram0/reset", "1");
        syscall(SYS_delete_module, "zram", O_NONBLOCK);
    }
    swap_device(const swap_device &) = delete;
    swap_device &operator=(const swap_device &) = delete;

    bool usable() const { return usable_; }

private:
    static constexpr auto path = "/dev/zram0";
    bool usable_ = false;
};

// Room for a chunk and little else: only memory that can be swapped makes more.
TEST_F(memory, MemoryThatTheCgroupMayNotSwapGivesNoWay)
{
    const memory_cgroup group("memory-test");
    if (!group.usable)
        GTEST_SKIP() << "no cgroup2 with a memory controller here";
    const swap_device swap(256 * mib);
    if (!swap.usable())
        GTEST_SKIP() << "no zram here";
    for (const bool may_swap : {false, true}) {
        SCOPED_TRACE(may_swap);
        ASSERT_TRUE(write_text(group.folder() + "/memory.swap.max",
                               may_swap ? "max" : "0"));
        ASSERT_TRUE(write_text(group.folder() + "/memory.max", "max"));
        const auto said =
            in_child({.keep = {client.get()}}, [&](channel &) -> std::string {
                CHILD_EXPECT(group.enter());
                std::vector<char> own(64 * mib, 'x');
                CHILD_EXPECT(group.limit(group.current() + chunk + 128 * kib));
                region got;
                CHILD_EXPECT(
                    try_allocate(client, chunk, got, EMUV_ALLOC_POPULATE) ==
                    (may_swap ? 0 : ENOMEM));
                CHILD_EXPECT(own.front() == 'x' && own.back() == 'x');
                return "";
            });
        EXPECT_EQ(said, "");
    }
    EXPECT_EQ(group.event("oom_kill"), 0U);
}

/// The answer of the system call that a thread of a killed process was in. The
/// thread must be traced, with PTRACE_O_TRACEEXIT.
std::optional<long> last_answer(pid_t thread)
{
    for (int status = 0; waitpid(thread, &status, __WALL) == thread;) {
        if (status >> 8 == (SIGTRAP | (PTRACE_EVENT_EXIT << 8))) {
            user_regs_struct registers{};
            const bool known =
                ptrace(PTRACE_GETREGS, thread, nullptr, &registers) == 0;
            ptrace(PTRACE_DETACH, thread, nullptr, nullptr);
            if (!known)
                break;
            // Elsewhere than in that call, the register holds anything.
            return registers.orig_rax == SYS_pwrite64
                       ? static_cast<long>(registers.rax)
                       : 1;
        }
        if (!WIFSTOPPED(status))
            break;
        ptrace(PTRACE_CONT, thread, nullptr, nullptr);
    }
    return {};
}

// Some of them take what is left, and the kernel slows these down. The others
// wait to see what they leave.
TEST_F(memory, ThreadsThatAreKilledAtACgroupsLimitAreToldOfNoLackOfMemory)
{
    const memory_cgroup group("memory-test");
    if (!group.usable)
        GTEST_SKIP() << "no cgroup2 with a memory controller here";
    // Room for all, but not for as much again.
    constexpr u64 count = 24;
    ASSERT_TRUE(group.limit(64 * mib));
    ASSERT_TRUE(
        write_text(group.folder() + "/memory.high", std::to_string(4 * mib)));
    unsigned interrupted = 0;
    const auto kill_all = [&] {
        process writers([&](channel &us) -> std::string {
            CHILD_EXPECT(group.enter());
            const auto own = open_client(id);
            const auto got = allocate(own, count * chunk);
            std::barrier begin(count + 1);
            std::vector<std::thread> threads;
            for (u64 which = 0; which < count; which++)
                threads.emplace_back([&, which] {
                    us.send(static_cast<u64>(gettid()));
                    begin.arrive_and_wait();
                    for (;;)
                        static_cast<void>(
                            pwrite(own.get(), "x", 1, at(got, which * chunk)));
                });
            us.receive();
            begin.arrive_and_wait();
            for (auto &thread : threads)
                thread.join();
            return "";
        });
        std::vector<pid_t> threads;
        for (u64 i = 0; i < count; i++) {
            threads.push_back(
                static_cast<pid_t>(writers.conversation().receive()));
            ASSERT_EQ(ptrace(PTRACE_SEIZE, threads.back(), nullptr,
                             PTRACE_O_TRACEEXIT),
                      0)
                << std::strerror(errno);
        }
        writers.conversation().send();
        // The first one has its chunk, after a rest in which all have begun.
        EXPECT_TRUE(wait_until([&] { return resident() >= chunk; }));
        ASSERT_EQ(kill(writers.pid(), SIGKILL), 0);
        for (const pid_t thread : threads) {
            const auto answer = last_answer(thread);
            ASSERT_TRUE(answer);
            EXPECT_TRUE(*answer == 1 || *answer == -EINTR) << *answer;
            interrupted += *answer == -EINTR ? 1 : 0;
        }
        EXPECT_TRUE(wait_until([&] { return resident() == 0; }));
    };
    // Now and then none of them waits as the signal comes.
    EXPECT_TRUE(wait_until([&] {
        kill_all();
        return interrupted > 0 || HasFailure();
    }));
}

// The kernel slows a cgroup down that is over its memory.high, and holds up
// whoever allocates for it for seconds. Nobody else waits.
TEST_F(memory, CgroupsThatAreSlowedDownHoldNoOtherUp)
{
    if (!memory_cgroup("memory-test").usable)
        GTEST_SKIP() << "no cgroup2 with a memory controller here";
    client.reset();
    ASSERT_EQ(destroy(control, id), 0);
    make(gib);
    // So many that others would meet one, were they told apart by a few bits.
    constexpr u64 slow = 24, others = 16;
    std::vector<std::unique_ptr<memory_cgroup>> groups;
    std::vector<region> theirs;
    for (u64 i = 0; i < others; i++) {
        groups.push_back(std::make_unique<memory_cgroup>("memory-other-" +
                                                         std::to_string(i)));
        ASSERT_TRUE(groups.back()->limit(32 * mib));
        const owner_in_group owner(*groups.back(), client, chunk);
        theirs.push_back(owner.got());
    }
    // How often they all have touched a chunk; each does once in two seconds.
    const descriptor file(static_cast<int>(
        checked(memfd_create("emuv-test", MFD_CLOEXEC), "memfd_create")));
    checked(ftruncate(file.get(), 4096), "ftruncate");
    const mapping shared(file.get(), 4096);
    auto &touches = *reinterpret_cast<std::atomic<u64> *>(shared.data());
    std::vector<std::unique_ptr<process>> slowed;
    for (u64 i = 0; i < slow; i++) {
        groups.push_back(std::make_unique<memory_cgroup>("memory-slow-" +
                                                         std::to_string(i)));
        ASSERT_TRUE(groups.back()->limit(32 * mib));
        ASSERT_TRUE(write_text(groups.back()->folder() + "/memory.high",
                               std::to_string(mib)));
        slowed.push_back(std::make_unique<process>(
            process::options{.keep = {client.get()}},
            [&, group = groups.back().get()](channel &) -> std::string {
                CHILD_EXPECT(group->enter());
                const auto got = allocate(client, 8 * chunk);
                for (;;) {
                    const mapping map(client.get(), got.bytes, got.offset);
                    for (u64 place = 0; place < map.size(); place += chunk) {
                        map[place] = 1;
                        touches++;
                    }
                    discard(client, got.offset, got.bytes);
                }
            }));
    }
    EXPECT_TRUE(wait_until([&] { return touches >= 2 * slow; }));
    const u64 before = touches;
    for (const auto &region : theirs)
        ASSERT_EQ(pwrite(client.get(), "x", 1, at(region)), 1);
    EXPECT_LT(touches, before + 2 * slow);
    slowed.clear();
}

// --- the host's floor ---

class host_floor : public memory
{
protected:
    // The floor lets the test take some of the free memory, but not all.
    host_floor() : memory("host_floor_mb=" + std::to_string(floor_mb())) {}

    static u64 floor_mb() { return settled_available() / mib - 192; }

    void SetUp() override
    {
        memory::SetUp();
        if (HasFatalFailure())
            return;
        client.reset();
        ASSERT_EQ(destroy(control, id), 0);
        make(512 * mib);
    }

    void expect_no_kill(kernel_log &log)
    {
        for (const auto &line : log.lines()) {
            EXPECT_EQ(line.find("Out of memory"), std::string::npos) << line;
            EXPECT_EQ(line.find("invoked oom-killer"), std::string::npos)
                << line;
            EXPECT_EQ(line.find("allocation failure"), std::string::npos)
                << line;
        }
    }

    u64 floor_bytes() const
    {
        return read_number("/sys/module/emuv/parameters/host_floor_mb") * mib;
    }
};

TEST_F(host_floor, TouchBelowItRaisesSigbusAndKeepsWhatThereIs)
{
    kernel_log log;
    const auto got = allocate(client, 512 * mib);
    const mapping map(client.get(), got.bytes, got.offset);
    u64 place = 0;
    int signal = 0;
    for (; place < map.size() && signal == 0; place += chunk)
        signal = signal_of_write(map.data() + place);
    EXPECT_EQ(signal, SIGBUS);
    EXPECT_GT(place, 8 * chunk) << "nothing at all could be had";
    EXPECT_LT(place, map.size());
    EXPECT_GT(meminfo("MemAvailable") + 32 * mib, floor_bytes());
    for (u64 held = 0; held + chunk < place; held += chunk)
        ASSERT_EQ(map[held], 1) << held;
    expect_no_kill(log);
    // Once there is room again, the same touch succeeds.
    ASSERT_EQ(discard(client, got.offset, 16 * chunk), 0);
    EXPECT_TRUE(wait_until(
        [&] { return signal_of_write(map.data() + place - chunk) == 0; }));
}

TEST_F(host_floor, WriteBelowItGivesEnomemOrComesUpShort)
{
    kernel_log log;
    const auto got = allocate(client, 512 * mib);
    const std::vector<char> data(16 * mib, 'x');
    u64 written = 0;
    int error = 0;
    while (written < got.bytes && error == 0) {
        const auto some =
            pwrite(client.get(), data.data(),
                   std::min<u64>(data.size(), got.bytes - written),
                   static_cast<off_t>(got.offset + written));
        error = error_of(some);
        written += some > 0 ? static_cast<u64>(some) : 0;
    }
    EXPECT_EQ(error, ENOMEM);
    EXPECT_GT(written, 0U);
    EXPECT_EQ(resident(), (written + chunk - 1) / chunk * chunk);
    expect_no_kill(log);
}

TEST_F(host_floor, PopulateBelowItGivesEnomemAtOnceAndLeavesNothing)
{
    kernel_log log;
    region got;
    EXPECT_EQ(try_allocate(client, 512 * mib, got, EMUV_ALLOC_POPULATE),
              ENOMEM);
    EXPECT_EQ(resident(), 0U);
    EXPECT_EQ(query(control, id).virtual_used_bytes, 0U);
    EXPECT_EQ(try_allocate(client, 32 * mib, got, EMUV_ALLOC_POPULATE), 0);
    EXPECT_EQ(resident(), 32 * mib);
    expect_no_kill(log);
}

TEST_F(host_floor, SystemCallsIntoAMappingBelowItGiveEfault)
{
    const auto got = allocate(client, 512 * mib);
    const mapping map(client.get(), got.bytes, got.offset);
    u64 place = 0;
    while (place < map.size() && signal_of_write(map.data() + place) == 0)
        place += chunk;
    ASSERT_LT(place, map.size() - chunk);
    const descriptor zero(open("/dev/zero", O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(error_of(read(zero.get(), map.data() + map.size() - chunk, 4096)),
              EFAULT);
}

TEST_F(host_floor, ReadingUntouchedMemoryBelowItStillWorks)
{
    const auto got = allocate(client, 512 * mib);
    const mapping map(client.get(), got.bytes, got.offset);
    u64 place = 0;
    while (place < map.size() && signal_of_write(map.data() + place) == 0)
        place += chunk;
    ASSERT_LT(place, map.size() - chunk);
    EXPECT_TRUE(
        reads_zero(client.get(), got.offset + got.bytes - chunk, chunk));
}

TEST_F(host_floor, KilledWhilePopulatingItComesBackWhole)
{
    client.reset();
    process filler([&](channel &us) -> std::string {
        const auto own = open_client(id);
        us.send();
        region got;
        for (;;)
            if (try_allocate(own, 96 * mib, got, EMUV_ALLOC_POPULATE) == 0)
                release(own, got.offset);
    });
    filler.conversation().receive();
    for (int round = 0; round < 20; round++)
        static_cast<void>(resident());
    filler.kill_now();
    EXPECT_EQ(resident(), 0U);
    EXPECT_EQ(query(control, id).virtual_used_bytes, 0U);
}

} // namespace
