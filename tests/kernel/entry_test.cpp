// SPDX-License-Identifier: GPL-2.0-or-later
// Large entries: from Linux 7.0 on one entry of a page table maps a whole
// chunk. No byte, reference or count may be lost when such an entry is split,
// moved or taken away. Older kernels have none, and the same must hold.
#include "pin.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include <sys/prctl.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace {

using namespace guest;

constexpr u64 page = 4096;

bool kernel_has_large_entries()
{
    utsname names{};
    uname(&names);
    return std::atoi(names.release) >= 7 &&
           exists("/sys/kernel/mm/transparent_hugepage");
}

/// A line of /proc/self/smaps for the mapping that holds an address, in bytes.
u64 smaps_line(const volatile void *at, const std::string &name)
{
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    std::ifstream lines("/proc/self/smaps");
    bool here = false;
    for (std::string line; std::getline(lines, line);) {
        unsigned long start = 0, end = 0;
        if (std::sscanf(line.c_str(), "%lx-%lx ", &start, &end) == 2)
            here = address >= start && address < end;
        else if (here && line.rfind(name + ":", 0) == 0)
            return std::strtoull(line.c_str() + name.size() + 1, nullptr, 10) *
                   kib;
    }
    return 0;
}

/// The bytes of the mapping that large entries map.
u64 mapped_large(const volatile void *at)
{
    return smaps_line(at, "FilePmdMapped");
}

class large_entry : public driver_test
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
        map = mapping(client.get(), got.bytes, got.offset);
    }

    /// A lost reference would keep a region in the ledger.
    void TearDown() override
    {
        map.reset();
        EXPECT_EQ(release(client, got.offset), 0);
        EXPECT_EQ(query(control, id).virtual_used_bytes, 0U);
        EXPECT_EQ(query(control, id).resident_bytes, 0U);
        client.reset();
        driver_test::TearDown();
    }

    /// Bytes that large entries map after a touch of so many chunks.
    static u64 large(u64 chunks)
    {
        return kernel_has_large_entries() ? chunks * chunk : 0;
    }

    /// Makes a page's memory fail, or returns why that cannot be done.
    static int make_fail(unsigned char *at)
    {
        int error = 0;
        // Kernels differ in the answer.
        signal_of([&] {
            error = error_of(madvise(at, page, 100 /* MADV_HWPOISON */));
        });
        return error == EINVAL || error == EPERM ? error : 0;
    }

    static constexpr u64 region_bytes = 8 * chunk;
    static constexpr u64 bad = chunk + 7 * page;
    int id = -1;
    descriptor client;
    region got;
    mapping map;
};

TEST_F(large_entry, MapsAWholeChunkAtItsFirstTouch)
{
    if (!kernel_has_large_entries())
        GTEST_SKIP() << "modules can make no large entries here";
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(map.data()) % chunk, 0U);
    map[chunk + 5 * page] = 'a';
    EXPECT_EQ(mapped_large(map.data()), chunk);
    EXPECT_EQ(smaps_line(map.data(), "Rss"), chunk);
    EXPECT_EQ(map[3 * chunk], 0);
    EXPECT_EQ(mapped_large(map.data()), 2 * chunk);
    map[3 * chunk] = 'b';
    EXPECT_EQ(mapped_large(map.data()), 2 * chunk);
}

TEST_F(large_entry, MapsDescriptorsAndReadOnlyMappingsToo)
{
    std::memset(map.data(), 'a', map.size());
    const auto exported = export_region(client, got.offset);
    const mapping other(exported.get(), got.bytes, 0, PROT_READ);
    EXPECT_FALSE(first_other(other.data(), other.size(), 'a'));
    EXPECT_EQ(mapped_large(other.data()), large(8));
    EXPECT_EQ(signal_of_write(other.data()), SIGSEGV);
}

TEST_F(large_entry, OfAnotherMappingLeavesOneOfNoAlignmentAlone)
{
    fill_pattern(map.data(), map.size(), 1);
    const mapping part(client.get(), 3 * chunk, got.offset + 5 * page);
    EXPECT_FALSE(std::memcmp(part.data(), map.data() + 5 * page, part.size()));
    EXPECT_EQ(mapped_large(part.data()), 0U);
    EXPECT_EQ(mapped_large(map.data()), large(8));
}

TEST_F(large_entry, IsNotMadeWhereNobodyWantsIt)
{
    if (madvise(map.data(), 2 * chunk, MADV_NOHUGEPAGE) != 0)
        GTEST_SKIP() << "no transparent huge pages here";
    std::memset(map.data(), 'a', map.size());
    EXPECT_EQ(mapped_large(map.data()), 0U);
    EXPECT_EQ(mapped_large(map.data() + 2 * chunk), large(6));
    const auto said = in_child({}, [&](channel &) -> std::string {
        CHILD_EXPECT(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
        CHILD_EXPECT(map[4 * chunk] == 'a');
        CHILD_EXPECT(mapped_large(map.data() + 4 * chunk) == 0);
        return "";
    });
    EXPECT_EQ(said, "");
}

/// A call that takes a part out of a chunk of a mapping.
struct cut
{
    const char *name;
    void (*make)(unsigned char *at, u64 bytes);
    bool stays_mapped;
};

void protect(unsigned char *at, u64 bytes)
{
    checked(mprotect(at, bytes, PROT_READ), "mprotect");
}

void unmap(unsigned char *at, u64 bytes)
{
    checked(munmap(at, bytes), "munmap");
}

void forget(unsigned char *at, u64 bytes)
{
    checked(madvise(at, bytes, MADV_DONTNEED), "MADV_DONTNEED");
}

void move_away(unsigned char *at, u64 bytes)
{
    void *room =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED ||
        mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, room) != room)
        throw std::runtime_error("mremap");
    // The same bytes must be there. The caller sees to those that stay.
    for (u64 place = 0; place < bytes; place += page)
        static_cast<void>(static_cast<volatile unsigned char *>(room)[place]);
    checked(munmap(room, bytes), "munmap");
}

// A process of its own: the kernel compares its counts as the process ends, and
// tests/kernel/run finds the complaint.
TEST_F(large_entry, LosesNothingWhereAPartOfItGoes)
{
    static const cut cuts[] = {
        {"mprotect", protect, true},
        {"munmap", unmap, false},
        {"MADV_DONTNEED", forget, true},
        {"mremap", move_away, false},
    };
    static const region parts[] = {
        {2 * chunk + 7 * page, page},
        {2 * chunk, chunk},
        {2 * chunk - page, 2 * page},
        {chunk + 3 * page, 3 * chunk},
    };
    fill_pattern(map.data(), map.size(), 2);
    for (const auto &how : cuts)
        for (const auto &part : parts) {
            SCOPED_TRACE(how.name);
            SCOPED_TRACE(part.offset);
            const auto said = in_child(
                {.keep = {client.get()}}, [&](channel &) -> std::string {
                    CHILD_EXPECT(
                        !first_pattern_error(map.data(), map.size(), 2));
                    how.make(map.data() + part.offset, part.bytes);
                    const u64 end = part.offset + part.bytes;
                    std::vector<unsigned char> all(map.size());
                    std::memcpy(all.data(), map.data(), part.offset);
                    std::memcpy(all.data() + end, map.data() + end,
                                map.size() - end);
                    if (how.stays_mapped)
                        std::memcpy(all.data() + part.offset,
                                    map.data() + part.offset, part.bytes);
                    else
                        checked(
                            pread(client.get(), all.data() + part.offset,
                                  part.bytes,
                                  static_cast<off_t>(got.offset + part.offset)),
                            "pread");
                    CHILD_EXPECT(
                        !first_pattern_error(all.data(), all.size(), 2));
                    return "";
                });
            EXPECT_EQ(said, "");
        }
    EXPECT_FALSE(first_pattern_error(map.data(), map.size(), 2));
    EXPECT_EQ(mapped_large(map.data()), large(8));
}

TEST_F(large_entry, MovesWithItsMapping)
{
    fill_pattern(map.data(), map.size(), 3);
    auto *room = static_cast<unsigned char *>(
        mmap(nullptr, 2 * map.size() + 2 * chunk, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(room, MAP_FAILED);
    auto *aligned =
        room + (chunk - reinterpret_cast<std::uintptr_t>(room) % chunk);
    auto *second = static_cast<unsigned char *>(
        mmap(nullptr, map.size(), PROT_READ | PROT_WRITE, MAP_SHARED,
             client.get(), static_cast<off_t>(got.offset)));
    ASSERT_NE(second, MAP_FAILED);
    EXPECT_FALSE(first_pattern_error(second, map.size(), 3));
    for (auto *to : {aligned, aligned + map.size() + page}) {
        ASSERT_EQ(mremap(second, map.size(), map.size(),
                         MREMAP_MAYMOVE | MREMAP_FIXED, to),
                  to);
        EXPECT_FALSE(first_pattern_error(to, map.size(), 3));
        second = to;
    }
    munmap(room, 2 * map.size() + 2 * chunk);
}

TEST_F(large_entry, GivesWayToADiscardOfAPart)
{
    std::memset(map.data(), 'a', map.size());
    ASSERT_EQ(discard(client, got.offset + chunk + 1000, chunk), 0);
    EXPECT_FALSE(first_other(map.data(), chunk + 1000, 'a'));
    EXPECT_FALSE(first_other(map.data() + chunk + 1000, chunk));
    EXPECT_FALSE(first_other(map.data() + 2 * chunk + 1000,
                             map.size() - 2 * chunk - 1000, 'a'));
    EXPECT_EQ(mapped_large(map.data()), large(8));
    ASSERT_EQ(discard(client, got.offset, got.bytes), 0);
    EXPECT_EQ(query(control, id).resident_bytes, 0U);
    EXPECT_EQ(mapped_large(map.data()), 0U);
    EXPECT_FALSE(first_other(map.data(), map.size()));
}

TEST_F(large_entry, PinnedStaysTheSameMemoryThroughADiscard)
{
    std::memset(map.data(), 'a', map.size());
    {
        const socket_pin whole(map.data(), map.size());
        ASSERT_EQ(whole.error(), 0) << std::strerror(whole.error());
        ASSERT_EQ(discard(client, got.offset, got.bytes), 0);
        EXPECT_FALSE(first_other(map.data(), map.size()));
        EXPECT_EQ(query(control, id).resident_bytes, got.bytes);
    }
    // The socket's pages are unpinned a moment later.
    EXPECT_TRUE(wait_until([&] {
        return discard(client, got.offset, got.bytes) == 0 &&
               query(control, id).resident_bytes == 0;
    }));
}

TEST_F(large_entry, IsSharedWithAChild)
{
    fill_pattern(map.data(), map.size(), 4);
    const auto said = in_child({}, [&](channel &) -> std::string {
        CHILD_EXPECT(!first_pattern_error(map.data(), map.size(), 4));
        fill_pattern(map.data(), map.size(), 5);
        CHILD_EXPECT(mapped_large(map.data()) == large(8));
        return "";
    });
    EXPECT_EQ(said, "");
    EXPECT_FALSE(first_pattern_error(map.data(), map.size(), 5));
}

// A kernel that is to see each write splits a large entry at the first one. A
// fault that made another would never end.
TEST_F(large_entry, GivesWayWhereWritesAreTracked)
{
    const auto said = in_child({}, [&](channel &) -> std::string {
        alarm(240);
        std::memset(map.data(), 'a', map.size());
        if (!write_text("/proc/self/clear_refs", "4"))
            return "no soft-dirty bits here";
        std::memset(map.data(), 'b', map.size());
        CHILD_EXPECT(!first_other(map.data(), map.size(), 'b'));
        return "";
    });
    if (said == "no soft-dirty bits here")
        GTEST_SKIP() << said;
    EXPECT_EQ(said, "");
    EXPECT_FALSE(first_other(map.data(), map.size(), 'b'));
}

TEST_F(large_entry, IsNotMadeOfAChunkWithAFailedPage)
{
    std::memset(map.data(), 'a', map.size());
    if (const int error = make_fail(map.data() + bad))
        GTEST_SKIP() << "memory cannot be made to fail here: " << error;
    const mapping again(client.get(), got.bytes, got.offset);
    EXPECT_EQ(signal_of_read(again.data() + bad), SIGBUS);
    EXPECT_EQ(signal_of_read(map.data() + bad), SIGBUS);
    for (auto *bytes : {again.data(), map.data()}) {
        EXPECT_FALSE(first_other(bytes, bad, 'a'));
        EXPECT_FALSE(
            first_other(bytes + bad + page, got.bytes - bad - page, 'a'));
    }
    EXPECT_EQ(mapped_large(again.data()), large(7));
}

// Nobody touches the failed page before: its neighbour's fault must find it.
TEST_F(large_entry, OfAnotherProcessDoesNotKeepAFailedPage)
{
    if (!kernel_has_large_entries())
        GTEST_SKIP() << "a fault takes nothing from others here";
    std::memset(map.data(), 'a', map.size());
    if (const int error = make_fail(map.data() + bad))
        GTEST_SKIP() << "memory cannot be made to fail here: " << error;
    const auto said =
        in_child({.keep = {client.get()}}, [&](channel &) -> std::string {
            const mapping own(client.get(), got.bytes, got.offset);
            CHILD_EXPECT(own[chunk] == 'a');
            return "";
        });
    EXPECT_EQ(said, "");
    EXPECT_EQ(mapped_large(map.data()), 7 * chunk);
    EXPECT_EQ(signal_of_read(map.data() + bad), SIGBUS);
}

// Each takes the whole chunk but the failed page at its first touch. Nothing
// that others do after that may take it away again.
TEST_F(large_entry, LostToAFailedPageIsLostOnce)
{
    std::memset(map.data(), 'a', map.size());
    if (const int error = make_fail(map.data() + bad))
        GTEST_SKIP() << "memory cannot be made to fail here: " << error;
    const mapping own(client.get(), got.bytes, got.offset);
    EXPECT_EQ(own[chunk], 'a');
    process other(
        {.keep = {client.get()}}, [&](channel &parent) -> std::string {
            const mapping theirs(client.get(), got.bytes, got.offset);
            for (int round = 0; round < 4; round++) {
                CHILD_EXPECT(theirs[chunk] == 'a');
                CHILD_EXPECT(smaps_line(theirs.data(), "Rss") == chunk - page);
                CHILD_EXPECT(signal_of_read(theirs.data() + bad) == SIGBUS);
                CHILD_EXPECT(smaps_line(theirs.data(), "Rss") == chunk - page);
                parent.send();
                parent.receive();
                CHILD_EXPECT(smaps_line(theirs.data(), "Rss") == chunk - page);
            }
            return "";
        });
    auto &turn = other.conversation();
    for (int round = 0; round < 4; round++) {
        turn.receive();
        EXPECT_EQ(smaps_line(own.data(), "Rss"), chunk - page) << round;
        EXPECT_EQ(own[2 * chunk - 1], 'a');
        EXPECT_EQ(signal_of_read(own.data() + bad), SIGBUS);
        EXPECT_EQ(smaps_line(own.data(), "Rss"), chunk - page) << round;
        turn.send();
    }
    EXPECT_EQ(other.join(), "");
    EXPECT_EQ(mapped_large(own.data()), 0U);
}

// The kernel's own test knob. It asks a huge page for the file that it is of,
// and these are of none.
TEST_F(large_entry, IsLeftAloneByThoseWhoSplitHugePages)
{
    fill_pattern(map.data(), map.size(), 6);
    std::ostringstream text;
    text << getpid() << ",0x" << std::hex
         << reinterpret_cast<std::uintptr_t>(map.data()) << ",0x"
         << reinterpret_cast<std::uintptr_t>(map.data() + map.size());
    if (!write_text("/sys/kernel/debug/split_huge_pages", text.str()))
        GTEST_SKIP() << "no split_huge_pages here";
    EXPECT_FALSE(first_pattern_error(map.data(), map.size(), 6));
    EXPECT_EQ(mapped_large(map.data()), large(8));
}

// Threads touch, while others split entries, move them and take them away.
TEST_F(large_entry, SurvivesTouchesSplitsAndDiscardsAtOnce)
{
    const auto said =
        in_child({.keep = {client.get()}}, [&](channel &) -> std::string {
            std::atomic<bool> over = false;
            std::vector<std::thread> threads;
            for (unsigned seed = 0; seed < 2; seed++)
                threads.emplace_back([&, seed] {
                    unsigned random = seed;
                    while (!over)
                        map[static_cast<u64>(rand_r(&random)) % map.size()] =
                            'x';
                });
            threads.emplace_back([&] {
                unsigned random = 7;
                while (!over) {
                    const u64 at = static_cast<u64>(rand_r(&random)) %
                                   (map.size() / page) * page;
                    madvise(map.data() + at, page, MADV_DONTNEED);
                    // Pieces of a mapping do not grow together again: only one
                    // chunk is cut up.
                    madvise(map.data() + at % chunk, page, MADV_DONTFORK);
                }
            });
            for (int round = 0; round < 400; round++) {
                const u64 at = static_cast<u64>(rand()) % (map.size() - chunk);
                CHILD_EXPECT(discard(client, got.offset + at, chunk) == 0);
            }
            over = true;
            for (auto &thread : threads)
                thread.join();
            CHILD_EXPECT(discard(client, got.offset, got.bytes) == 0);
            CHILD_EXPECT(!first_other(map.data(), map.size()));
            return "";
        });
    EXPECT_EQ(said, "");
}

} // namespace
