// SPDX-License-Identifier: GPL-2.0-or-later
// Data remanence: memory given back in any way reads as zeros before anybody
// else can read it.
#include "pin.hpp"
#include "support.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <set>

#include <sched.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <unistd.h>

namespace {

using namespace guest;

constexpr u64 dirty_bytes = 8 * chunk;
constexpr unsigned char pattern = 0xa5;

/// The physical pages behind a mapping that has been touched.
std::set<u64> frames_of(const mapping &map)
{
    constexpr u64 page = 4096;
    const descriptor table(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
    std::vector<u64> entries(map.size() / page);
    const auto first = reinterpret_cast<std::uintptr_t>(map.data()) / page;
    const auto bytes = entries.size() * sizeof entries[0];
    if (pread(table.get(), entries.data(), bytes,
              static_cast<off_t>(first * sizeof entries[0])) !=
        static_cast<ssize_t>(bytes))
        throw std::runtime_error("pagemap");
    std::set<u64> frames;
    for (const auto entry : entries)
        if (const auto frame = entry & ((u64{1} << 55) - 1))
            frames.insert(frame);
    return frames;
}

/// Moves this thread between processors, and lifts the restriction at the end.
class on_processor
{
public:
    on_processor()
    {
        checked(sched_getaffinity(0, sizeof all_, &all_), "CPUs");
    }
    ~on_processor() { sched_setaffinity(0, sizeof all_, &all_); }
    on_processor(const on_processor &) = delete;
    on_processor &operator=(const on_processor &) = delete;

    static bool move(unsigned number)
    {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(number, &one);
        return sched_setaffinity(0, sizeof one, &one) == 0;
    }

private:
    cpu_set_t all_{};
};

/// Memory of an instance with the pattern, and its client.
struct holding
{
    int id = -1;
    descriptor client;
    region where;
    std::set<u64> frames;

    /// Fills a region of a new client with the pattern.
    explicit holding(int instance)
        : id(instance), client(open_client(id)),
          where(allocate(client, dirty_bytes))
    {
        const mapping map(client.get(), where.bytes, where.offset);
        std::memset(map.data(), pattern, map.size());
        frames = frames_of(map);
    }

    u64 end() const { return where.offset + where.bytes; }
    void free() const { ASSERT_EQ(release(client, where.offset), 0); }
    mapping map() const
    {
        return mapping(client.get(), where.bytes, where.offset);
    }
};

/// A way of giving memory back.
struct way
{
    const char *name;
    void (*give_back)(holding &held);
};

void PrintTo(const way &of, std::ostream *out)
{
    *out << of.name;
}

/// Hands the region to a process that maps it and waits. Afterwards only that
/// process holds the region.
process holder_of(holding &held)
{
    const auto exported = export_region(held.client, held.where.offset);
    return process({.keep = {exported.get()}}, [&](channel &us) -> std::string {
        const mapping map(exported.get(), held.where.bytes);
        CHILD_EXPECT(map[0] == pattern);
        us.send();
        us.receive();
        return "";
    });
}

const std::array ways = {
    way{"Freed", [](holding &held) { held.free(); }},
    way{"Closed", [](holding &held) { held.client.reset(); }},
    way{"Discarded",
        [](holding &held) {
            ASSERT_EQ(discard(held.client, held.where.offset, dirty_bytes), 0);
            EXPECT_TRUE(reads_zero(held.client.get(), held.where.offset,
                                   held.where.bytes));
        }},
    way{"DiscardedInPartAndFreed",
        [](holding &held) {
            ASSERT_EQ(discard(held.client, held.where.offset + 100,
                              dirty_bytes - 200),
                      0);
            held.free();
        }},
    way{"DiscardedWhileMapped",
        [](holding &held) {
            const auto map = held.map();
            ASSERT_EQ(discard(held.client, held.where.offset, dirty_bytes), 0);
            EXPECT_FALSE(first_other(map.data(), map.size()));
            held.free();
        }},
    way{"PunchedOutOfItsDescriptor",
        [](holding &held) {
            const auto exported = export_region(held.client, held.where.offset);
            ASSERT_EQ(fallocate(exported.get(),
                                FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                                static_cast<off_t>(dirty_bytes)),
                      0);
        }},
    way{"FreedWhileMapped",
        [](holding &held) {
            auto map = held.map();
            held.free();
            map[1] = pattern;
            map.reset();
        }},
    way{"ClosedWhileMapped",
        [](holding &held) {
            const auto map = held.map();
            held.client.reset();
        }},
    way{"FreedWhileExported",
        [](holding &held) {
            const auto exported = export_region(held.client, held.where.offset);
            held.free();
        }},
    way{"FreedWhileADmabuf",
        [](holding &held) {
            const auto exported = export_region(held.client, held.where.offset,
                                                EMUV_EXPORT_DMABUF);
            held.client.reset();
            const mapping map(exported.get(), held.where.bytes);
            EXPECT_EQ(map[0], pattern);
        }},
    way{"FreedWhileImported",
        [](holding &held) {
            const auto other = open_client(held.id);
            region imported;
            ASSERT_EQ(import_region(
                          other, export_region(held.client, held.where.offset),
                          imported),
                      0);
            held.client.reset();
            ASSERT_EQ(release(other, imported.offset), 0);
        }},
    way{"LeftInASocketThatIsClosed",
        [](holding &held) {
            int ends[2];
            checked(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends),
                    "socketpair");
            channel one{descriptor(ends[0])};
            const descriptor other(ends[1]);
            one.send_descriptor(
                export_region(held.client, held.where.offset).get());
            held.client.reset();
        }},
    way{"LetGoOfByAProcessThatExits",
        [](holding &held) {
            auto last = holder_of(held);
            last.conversation().receive();
            held.client.reset();
            last.conversation().send();
            EXPECT_EQ(last.join(), "");
        }},
    way{"LetGoOfByAProcessThatIsKilled",
        [](holding &held) {
            auto last = holder_of(held);
            last.conversation().receive();
            held.client.reset();
            last.kill_now();
        }},
    way{"FreedWhilePinned",
        [](holding &held) {
            const auto map = held.map();
            // A pin keeps the memory from everybody else until it ends.
            const socket_pin pinned(map.data(), map.size());
            ASSERT_EQ(pinned.error(), 0);
            held.client.reset();
        }},
};

class remanence : public driver_test
{
protected:
    void SetUp() override
    {
        driver_test::SetUp();
        if (HasFatalFailure())
            return;
        id = create(control, mib, 2 * dirty_bytes);
    }

    /// Takes all memory that another client can have, and expects zeros.
    static void expect_zeros(int instance)
    {
        const auto next = open_client(instance);
        const auto room =
            query(next).virtual_bytes - query(next).virtual_used_bytes;
        const auto all = allocate(next, room);
        EXPECT_TRUE(reads_zero(next.get(), all.offset, all.bytes));
        const auto buffer = export_region(next, all.offset, EMUV_EXPORT_DMABUF);
        const mapping map(buffer.get(), all.bytes);
        EXPECT_FALSE(first_other(map.data(), map.size()));
    }

    /// Takes memory in another instance until some of it is of these pages. If
    /// need be it takes all that the host gives.
    void expect_zeros_in(const std::set<u64> &frames)
    {
        ASSERT_FALSE(frames.empty());
        const auto other =
            create(control, creation(mib, meminfo("MemTotal") / chunk * chunk,
                                     EMUV_ANY, EMUV_CREATE_OVERCOMMIT));
        const auto next = open_client(other);
        std::size_t met = 0;
        region got;
        // Each processor keeps the pages that it has freed for itself.
        const auto processors = static_cast<unsigned>(get_nprocs());
        const on_processor elsewhere;
        for (unsigned turn = 0;
             met == 0 && on_processor::move(turn % processors) &&
             try_allocate(next, dirty_bytes, got, EMUV_ALLOC_POPULATE) == 0;
             turn++) {
            const mapping map(next.get(), got.bytes, got.offset);
            ASSERT_FALSE(first_other(map.data(), map.size()));
            for (const auto frame : frames_of(map))
                met += frames.count(frame);
        }
        EXPECT_GT(met, 0U) << "none of the pages came into use again: this "
                              "has shown nothing";
    }

    /// Fills the whole instance, as a client that then ends; the pages.
    std::set<u64> fill() const
    {
        const auto client = open_client(id);
        const auto all = allocate(client, 2 * dirty_bytes);
        const mapping map(client.get(), all.bytes, all.offset);
        std::memset(map.data(), pattern, map.size());
        return frames_of(map);
    }

    int id = -1;
};

class given_back : public remanence, public testing::WithParamInterface<way>
{};

TEST_P(given_back, ReadsAsZerosToTheNext)
{
    holding held(id);
    GetParam().give_back(held);
    if (HasFatalFailure())
        return;
    if (!held.client) {
        ASSERT_TRUE(wait_until(
            [&] { return query(control, id).virtual_used_bytes == 0; }));
    }
    expect_zeros(id);
    expect_zeros_in(held.frames);
}

INSTANTIATE_TEST_SUITE_P(, given_back, testing::ValuesIn(ways),
                         [](const auto &of) { return of.param.name; });

TEST_F(remanence, DestroyedInstanceLeavesNothing)
{
    const auto frames = fill();
    ASSERT_EQ(destroy(control, id), 0);
    expect_zeros(create(control, creation(mib, 2 * dirty_bytes, id)));
    expect_zeros_in(frames);
}

TEST_F(remanence, UnloadedModuleLeavesNothing)
{
    const auto frames = fill();
    reload("");
    expect_zeros(create(control, creation(mib, 2 * dirty_bytes, id)));
    expect_zeros_in(frames);
}

} // namespace
