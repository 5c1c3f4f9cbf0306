// SPDX-License-Identifier: GPL-2.0-or-later
// Lifetimes: destroy, unload, kill -9, fork and descriptor passing, each while
// the instance is held in every way.
#include "pin.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <ostream>
#include <set>
#include <thread>
#include <vector>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace guest;

constexpr u64 region_bytes = 4 * chunk;

/// Holds pages without the driver's knowledge: by an io_uring pin or, if
/// io_uring refuses such memory, by a pipe.
class page_holder
{
public:
    explicit page_holder(const mapping &map)
    {
        ring_ = std::make_unique<pin>(map.data(), map.size());
        if (ring_->error() == 0)
            return;
        ring_.reset();
        int ends[2];
        checked(pipe2(ends, O_CLOEXEC), "pipe2");
        out_ = descriptor(ends[0]);
        in_ = descriptor(ends[1]);
        iovec pages{map.data(), 64 * kib};
        checked(vmsplice(in_.get(), &pages, 1, 0), "vmsplice");
    }

    /// Do the held pages still have this byte? May be called once.
    bool sees(const unsigned char *at, unsigned char value)
    {
        unsigned char bytes[4096];
        if (!ring_)
            return read(out_.get(), bytes, sizeof bytes) == sizeof bytes &&
                   !first_other(bytes, sizeof bytes, value);
        const descriptor file(static_cast<int>(
            checked(memfd_create("emuv-test", MFD_CLOEXEC), "memfd_create")));
        return ring_->to_file(file.get(), at, sizeof bytes, 0) ==
                   sizeof bytes &&
               pread(file.get(), bytes, sizeof bytes, 0) == sizeof bytes &&
               !first_other(bytes, sizeof bytes, value);
    }

private:
    std::unique_ptr<pin> ring_;
    descriptor out_;
    descriptor in_;
};

enum class way
{
    open,
    mapped,
    mapped_and_closed,
    freed_but_mapped,
    exported,
    exported_mapped_and_closed,
    dmabuf,
    dmabuf_mapped_and_closed,
    pinned,
    faulting,
    reading_and_writing,
};

struct held_case
{
    const char *name;
    way how;
};

std::ostream &operator<<(std::ostream &out, const held_case &row)
{
    return out << row.name;
}

/// Holds an instance in one of the ways, in the process that constructs it.
class holding
{
public:
    holding(int id, way how) : how_(how)
    {
        node_ = open_client(id);
        if (how == way::open)
            return;
        got_ = allocate(node_, region_bytes);
        switch (how) {
        case way::exported:
        case way::exported_mapped_and_closed:
            passed_ = export_region(node_, got_.offset);
            map_ = mapping(passed_.get(), region_bytes);
            break;
        case way::dmabuf:
        case way::dmabuf_mapped_and_closed:
            passed_ = export_region(node_, got_.offset, EMUV_EXPORT_DMABUF);
            map_ = mapping(passed_.get(), region_bytes);
            break;
        default:
            map_ = mapping(node_.get(), region_bytes, got_.offset);
        }
        std::memset(map_.data(), 'h', map_.size());
        switch (how) {
        case way::mapped_and_closed:
            node_.reset();
            break;
        case way::freed_but_mapped:
            checked(release(node_, got_.offset) == 0 ? 0 : -1, "EMUV_IOC_FREE");
            node_.reset();
            break;
        case way::exported:
        case way::dmabuf:
            map_.reset();
            node_.reset();
            break;
        case way::exported_mapped_and_closed:
        case way::dmabuf_mapped_and_closed:
            passed_.reset();
            node_.reset();
            break;
        case way::pinned:
            pages_ = std::make_unique<page_holder>(map_);
            break;
        case way::faulting:
        case way::reading_and_writing:
            for (u64 me = 0; me < 2; me++)
                busy_.emplace_back([this, me] { keep_busy(me); });
            break;
        default:
            break;
        }
    }

    ~holding()
    {
        done_ = true;
        for (auto &thread : busy_)
            thread.join();
    }
    holding(const holding &) = delete;
    holding &operator=(const holding &) = delete;

    /// Is everything still as constructed? Empty if so.
    std::string check()
    {
        if (node_) {
            CHILD_EXPECT(charge(node_, 1) == 0);
            region more;
            CHILD_EXPECT(try_allocate(node_, chunk, more) == 0);
            CHILD_EXPECT(release(node_, more.offset) == 0);
        }
        if (how_ == way::faulting || how_ == way::reading_and_writing) {
            const auto before = turns_.load();
            CHILD_EXPECT(wait_until([&] { return turns_ > before + 10; }));
            return "";
        }
        if (map_.data()) {
            CHILD_EXPECT(!first_other(map_.data(), map_.size(), 'h'));
            map_[chunk] = 'H';
            CHILD_EXPECT(map_[chunk] == 'H');
            map_[chunk] = 'h';
        }
        if (how_ == way::exported) {
            char byte = 0;
            CHILD_EXPECT(pread(passed_.get(), &byte, 1, 0) == 1);
            CHILD_EXPECT(byte == 'h');
        }
        if (passed_) {
            const mapping again(passed_.get(), region_bytes);
            CHILD_EXPECT(!first_other(again.data(), again.size(), 'h'));
        }
        if (pages_)
            CHILD_EXPECT(pages_->sees(map_.data(), 'h'));
        return "";
    }

    /// The descriptor that can be passed to another process.
    int descriptor_to_pass() const
    {
        return node_ ? node_.get() : passed_.get();
    }

private:
    void keep_busy(u64 me)
    {
        std::vector<unsigned char> buffer(chunk);
        while (!done_) {
            if (how_ == way::faulting) {
                // Discard and touch again, so that there is always a page to
                // fault in.
                discard(node_, got_.offset + me * 2 * chunk, 2 * chunk);
                for (u64 place = 0; place < 2 * chunk; place += chunk / 4)
                    map_[me * 2 * chunk + place] = 'h';
            } else {
                const auto at = static_cast<off_t>(got_.offset +
                                                   me * 2 * chunk + chunk / 2);
                static_cast<void>(
                    pwrite(node_.get(), buffer.data(), buffer.size(), at));
                static_cast<void>(
                    pread(node_.get(), buffer.data(), buffer.size(), at));
            }
            turns_++;
        }
    }

    way how_;
    descriptor node_;
    region got_;
    descriptor passed_;
    mapping map_;
    std::unique_ptr<page_holder> pages_;
    std::vector<std::thread> busy_;
    std::atomic<bool> done_ = false;
    std::atomic<u64> turns_ = 0;
};

/// Holds until told to end; checks whenever it receives 1.
std::string hold_until_told(int id, way how, channel &us)
{
    holding held(id, how);
    us.send();
    while (us.receive() == 1) {
        auto said = held.check();
        if (!said.empty())
            return said;
        us.send();
    }
    return "";
}

class held_instance : public driver_test,
                      public testing::WithParamInterface<held_case>
{
protected:
    void SetUp() override
    {
        before_ = settled_available();
        driver_test::SetUp();
        if (!HasFatalFailure())
            id = create(control, gib, 64 * mib);
    }

    void expect_undisturbed(process &holder)
    {
        holder.conversation().send(1);
        holder.conversation().receive();
    }

    void expect_destroy_refused()
    {
        EXPECT_EQ(destroy(control, id), EBUSY);
        EXPECT_TRUE(exists(node_path(id)));
        EXPECT_EQ(query(control, id).physical_bytes, gib);
    }

    void expect_unload_refused()
    {
        control.reset();
        EXPECT_EQ(unload(), EWOULDBLOCK);
        EXPECT_TRUE(loaded());
        control = open_control();
    }

    /// Nothing holds the instance: it can be destroyed, the module can be
    /// unloaded, and the memory returns to the host.
    void expect_all_back()
    {
        EXPECT_TRUE(wait_until([&] {
            const auto now = query(control, id);
            return now.clients == 0 && now.virtual_used_bytes == 0;
        }));
        const auto is = query(control, id);
        EXPECT_EQ(is.clients, 0U);
        EXPECT_EQ(is.physical_used_bytes, 0U);
        EXPECT_EQ(is.virtual_used_bytes, 0U);
        EXPECT_EQ(is.unowned_bytes, 0U);
        EXPECT_EQ(destroy_eventually(control, id), 0);
        control.reset();
        EXPECT_EQ(unload_eventually(), 0);
        EXPECT_EQ(leftovers(), "");
        EXPECT_TRUE(wait_until([&] {
            return settled_available() + 8 * mib > before_;
        })) << settled_available()
            << " of " << before_;
    }

    int id = -1;

private:
    u64 before_ = 0;
};

TEST_P(held_instance, IsNotDestroyedAndNotDisturbed)
{
    process holder(
        [&](channel &us) { return hold_until_told(id, GetParam().how, us); });
    holder.conversation().receive();
    for (int round = 0; round < 3; round++) {
        expect_destroy_refused();
        expect_undisturbed(holder);
        if (GetParam().how == way::pinned)
            break; // this check works only once
    }
    holder.conversation().send(0);
    EXPECT_EQ(holder.join(), "");
    expect_all_back();
}

TEST_P(held_instance, KeepsTheModuleAndIsNotDisturbed)
{
    process holder(
        [&](channel &us) { return hold_until_told(id, GetParam().how, us); });
    holder.conversation().receive();
    expect_unload_refused();
    expect_undisturbed(holder);
    holder.conversation().send(0);
    EXPECT_EQ(holder.join(), "");
    expect_all_back();
}

TEST_P(held_instance, ComesBackWholeWhenItsHolderIsKilled)
{
    process holder(
        [&](channel &us) { return hold_until_told(id, GetParam().how, us); });
    holder.conversation().receive();
    holder.kill_now();
    expect_all_back();
}

TEST_P(held_instance, IsHeldByAForkedChildAlone)
{
    // The holder forks and is killed. The child keeps the holder's objects
    // alive until the child is killed too.
    process holder([&](channel &us) -> std::string {
        holding held(id, GetParam().how);
        const pid_t child = fork();
        CHILD_EXPECT(child >= 0);
        if (child == 0) {
            us.send(static_cast<u64>(getpid()));
            for (;;)
                pause();
        }
        us.receive();
        return "";
    });
    const auto child = static_cast<pid_t>(holder.conversation().receive());
    holder.kill_now();
    expect_destroy_refused();
    expect_unload_refused();
    ASSERT_EQ(kill(child, SIGKILL), 0);
    expect_all_back();
}

TEST_P(held_instance, IsHeldByWhoeverGotItsDescriptor)
{
    const auto how = GetParam().how;
    if (how != way::open && how != way::mapped && how != way::exported &&
        how != way::dmabuf && how != way::pinned && how != way::faulting &&
        how != way::reading_and_writing)
        return; // has no descriptor to pass
    process keeper([&](channel &us) -> std::string {
        const auto passed = us.receive_descriptor();
        us.send();
        us.receive();
        return "";
    });
    process holder([&](channel &us) -> std::string {
        holding held(id, how);
        us.send_descriptor(held.descriptor_to_pass());
        us.receive();
        return "";
    });
    {
        const auto on_its_way = holder.conversation().receive_descriptor();
        keeper.conversation().send_descriptor(on_its_way.get());
    }
    keeper.conversation().receive();
    holder.kill_now();
    expect_destroy_refused();
    expect_unload_refused();
    keeper.conversation().send();
    EXPECT_EQ(keeper.join(), "");
    expect_all_back();
}

const held_case held_cases[] = {
    {"Open", way::open},
    {"Mapped", way::mapped},
    {"MappedAndClosed", way::mapped_and_closed},
    {"FreedButMapped", way::freed_but_mapped},
    {"Exported", way::exported},
    {"ExportedMappedAndClosed", way::exported_mapped_and_closed},
    {"Dmabuf", way::dmabuf},
    {"DmabufMappedAndClosed", way::dmabuf_mapped_and_closed},
    {"Pinned", way::pinned},
    {"Faulting", way::faulting},
    {"ReadingAndWriting", way::reading_and_writing},
};

INSTANTIATE_TEST_SUITE_P(, held_instance, testing::ValuesIn(held_cases),
                         [](const auto &row) {
                             return std::string(row.param.name);
                         });

// --- objects that outlive the driver ---

using lifetime = driver_test;

TEST_F(lifetime, PagesThatArePinnedAreSafeFromDestroy)
{
    const auto before = settled_available();
    const int id = create(control, mib, 64 * mib);
    auto client = open_client(id);
    const auto got = allocate(client, region_bytes);
    auto map =
        std::make_unique<mapping>(client.get(), region_bytes, got.offset);
    std::memset(map->data(), 'h', region_bytes);
    auto pages = std::make_unique<page_holder>(*map);
    const unsigned char *place = map->data();
    map.reset();
    client.reset();
    // The driver may or may not keep an instance whose pages are only pinned
    // from outside. The pages must keep their contents either way.
    const int error = destroy(control, id);
    EXPECT_TRUE(error == 0 || error == EBUSY) << error;
    EXPECT_TRUE(pages->sees(place, 'h'));
    pages.reset();
    if (error == EBUSY) {
        EXPECT_EQ(destroy_eventually(control, id), 0);
    }
    EXPECT_TRUE(
        wait_until([&] { return settled_available() + 8 * mib > before; }));
}

TEST_F(lifetime, PagesThatArePinnedOutliveAnUnloadThatDestroysTheInstance)
{
    const int id = create(control, mib, 64 * mib);
    auto client = open_client(id);
    const auto got = allocate(client, region_bytes);
    auto map =
        std::make_unique<mapping>(client.get(), region_bytes, got.offset);
    std::memset(map->data(), 'h', region_bytes);
    page_holder pages(*map);
    const unsigned char *place = map->data();
    map.reset();
    client.reset();
    control.reset();
    ASSERT_EQ(unload_eventually(), 0);
    EXPECT_EQ(leftovers(), "");
    EXPECT_TRUE(pages.sees(place, 'h'));
}

TEST_F(lifetime, UnloadTakesUnusedInstancesAlong)
{
    const auto before = settled_available();
    for (int i = 0; i < 8; i++) {
        const int id = create(control, mib, 16 * mib);
        const auto client = open_client(id);
        allocate(client, 4 * mib, EMUV_ALLOC_POPULATE);
    }
    control.reset();
    ASSERT_EQ(unload_eventually(), 0);
    EXPECT_EQ(leftovers(), "");
    EXPECT_TRUE(
        wait_until([&] { return settled_available() + 8 * mib > before; }));
}

// The host has a million device numbers in all; descriptors share one.
TEST_F(lifetime, DescriptorsOfRegionsAreOfOneDevice)
{
    const int id = create(control, mib, 64 * mib);
    const auto client = open_client(id);
    const auto got = allocate(client, region_bytes);
    std::vector<descriptor> exported;
    std::set<dev_t> devices;
    for (int i = 0; i < 100; i++) {
        exported.push_back(export_region(client, got.offset));
        struct stat status
        {};
        ASSERT_EQ(fstat(exported.back().get(), &status), 0);
        devices.insert(status.st_dev);
    }
    EXPECT_EQ(devices.size(), 1U);
}

// O_PATH holds the mount and the inode, and no file that would hold the module.
TEST_F(lifetime, PathOfARegionDescriptorKeepsTheModuleAndNoMemory)
{
    const int id = create(control, mib, 64 * mib);
    descriptor path;
    {
        const auto client = open_client(id);
        const auto got = allocate(client, region_bytes, EMUV_ALLOC_POPULATE);
        const auto exported = export_region(client, got.offset);
        const auto name = "/proc/self/fd/" + std::to_string(exported.get());
        path = descriptor(open(name.c_str(), O_PATH | O_CLOEXEC));
        ASSERT_TRUE(path);
    }
    EXPECT_EQ(query(control, id).virtual_used_bytes, 0U);
    EXPECT_EQ(query(control, id).resident_bytes, 0U);
    EXPECT_EQ(destroy(control, id), 0);
    control.reset();
    // If this succeeded, any use of the descriptor would run code of a module
    // that is gone.
    ASSERT_EQ(unload(), EWOULDBLOCK);

    struct stat status
    {};
    EXPECT_EQ(fstat(path.get(), &status), 0);
    EXPECT_TRUE(S_ISREG(status.st_mode));
    EXPECT_EQ(status.st_size, static_cast<off_t>(region_bytes));
    const auto name = "/proc/self/fd/" + std::to_string(path.get());
    EXPECT_EQ(chmod(name.c_str(), 0640), 0);
    EXPECT_EQ(error_of(truncate(name.c_str(), 0)), EPERM);
    EXPECT_EQ(error_of(open(name.c_str(), O_RDWR | O_CLOEXEC)), ENXIO);
    path.reset();
    EXPECT_EQ(unload_eventually(), 0);
    EXPECT_EQ(leftovers(), "");
}

TEST_F(lifetime, RegionDescriptorIsNotOpenedAnew)
{
    const int id = create(control, mib, 64 * mib);
    const auto client = open_client(id);
    const auto got = allocate(client, region_bytes);
    const auto exported = export_region(client, got.offset);
    const auto name = "/proc/self/fd/" + std::to_string(exported.get());
    EXPECT_EQ(error_of(open(name.c_str(), O_RDWR | O_CLOEXEC)), ENXIO);
    EXPECT_EQ(error_of(open(name.c_str(), O_RDONLY | O_CLOEXEC)), ENXIO);
}

TEST_F(lifetime, PathsOfRegionDescriptorsComeAndGoWithLoadsOfTheModule)
{
    for (int round = 0; round < 8; round++) {
        const int id = create(control, mib, 64 * mib);
        std::vector<descriptor> paths;
        for (int i = 0; i < 4; i++) {
            const auto client = open_client(id);
            const auto got = allocate(client, chunk);
            const auto exported = export_region(client, got.offset);
            const mapping map(exported.get(), chunk);
            const auto name = "/proc/self/fd/" + std::to_string(exported.get());
            paths.emplace_back(open(name.c_str(), O_PATH | O_CLOEXEC));
            ASSERT_TRUE(paths.back());
        }
        control.reset();
        while (!paths.empty()) {
            ASSERT_EQ(unload(), EWOULDBLOCK);
            paths.pop_back();
        }
        ASSERT_EQ(unload_eventually(), 0);
        ASSERT_EQ(load(""), 0);
        control = open_control();
    }
}

TEST_F(lifetime, ClientEndsWithItsLastMapping)
{
    const int id = create(control, mib, 64 * mib);
    auto client = open_client(id);
    const auto got = allocate(client, chunk);
    allocate(client, chunk);
    ASSERT_EQ(charge(client, 1000), 0);
    mapping map(client.get(), chunk, got.offset);
    map[0] = 'a';
    client.reset();
    auto is = query(control, id);
    EXPECT_EQ(is.clients, 1U) << "a mapping keeps its file open";
    EXPECT_EQ(is.physical_used_bytes, 1000U);
    EXPECT_EQ(is.virtual_used_bytes, 2 * chunk);
    EXPECT_EQ(map[0], 'a');

    map.reset();
    is = query(control, id);
    EXPECT_EQ(is.clients, 0U);
    EXPECT_EQ(is.physical_used_bytes, 0U);
    EXPECT_EQ(is.virtual_used_bytes, 0U);
    EXPECT_EQ(is.unowned_bytes, 0U);
}

TEST_F(lifetime, ClientThatMayOnlyReadKeepsItsInstanceUntilItIsTakenByForce)
{
    const int id = create(control, mib, 64 * mib);
    const auto reader = open_client(id, O_RDONLY);
    const auto got = allocate(reader, chunk);
    const mapping map(reader.get(), chunk, got.offset, PROT_READ);
    EXPECT_EQ(map[0], 0);
    for (int round = 0; round < 3; round++)
        EXPECT_EQ(destroy(control, id), EBUSY);
    EXPECT_EQ(query(control, id).clients, 1U);
    EXPECT_EQ(destroy(control, id, EMUV_DESTROY_FORCE), 0);
    EXPECT_EQ(signal_of_read(map.data()), SIGBUS);
    char byte = 0;
    EXPECT_EQ(
        error_of(pread(reader.get(), &byte, 1, static_cast<off_t>(got.offset))),
        ENODEV);
    EXPECT_FALSE(exists(node_path(id)));
}

TEST_F(lifetime, ControlNodeThatIsOpenKeepsTheModuleAndNoInstance)
{
    const int id = create(control, mib, chunk);
    EXPECT_EQ(unload(), EWOULDBLOCK);
    EXPECT_EQ(destroy(control, id), 0);
    EXPECT_EQ(unload(), EWOULDBLOCK);
}

TEST_F(lifetime, OpenAttributeKeepsNothing)
{
    const int id = create(control, mib, chunk);
    const descriptor file(
        open(attribute_path(id, "vram_info").c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(file);
    control.reset();
    ASSERT_EQ(unload_eventually(), 0);
    char text[64];
    EXPECT_LT(read(file.get(), text, sizeof text), 0);
}

// --- races ---

/// Runs each body in a thread, over and over, for EMUV_RACE_SECONDS. On a slow
/// kernel it goes on until the bodies have met often enough.
void race(const std::function<bool()> &enough,
          const std::vector<std::function<void()>> &bodies)
{
    std::atomic<bool> done = false;
    std::vector<std::thread> running;
    running.reserve(bodies.size());
    for (const auto &body : bodies)
        running.emplace_back([&] {
            while (!done)
                body();
        });
    std::this_thread::sleep_for(
        std::chrono::seconds(from_environment("EMUV_RACE_SECONDS", 2)));
    wait_until(enough);
    done = true;
    for (auto &thread : running)
        thread.join();
}

TEST_F(lifetime, DestroyRacesWithOpenMapAndQuery)
{
    std::atomic<int> created = 0;
    std::atomic<int> destroyed = 0;
    std::atomic<int> opened = 0;
    std::atomic<int> described = 0;
    const auto enough = [&] {
        return created > 10 && destroyed > 10 && opened > 10 && described > 10;
    };
    race(
        enough,
        {
            [&] {
                auto argument = creation(mib, 16 * mib, 5);
                created += call(control, EMUV_IOC_CREATE, argument) == 0;
            },
            [&] { destroyed += destroy(control, 5) == 0; },
            [&] {
                // An instance with an open node cannot be destroyed: pause
                // between opens.
                std::this_thread::sleep_for(std::chrono::milliseconds(3));
                const descriptor node(open("/dev/emuv5", O_RDWR | O_CLOEXEC));
                if (!node) {
                    EXPECT_TRUE(errno == ENOENT || errno == ENXIO ||
                                errno == ENODEV)
                        << errno;
                    return;
                }
                opened++;
                region got;
                ASSERT_EQ(try_allocate(node, chunk, got), 0);
                const mapping map(node.get(), chunk, got.offset);
                map[0] = 1;
                ASSERT_EQ(charge(node, 1), 0);
            },
            [&] {
                auto argument = fresh<emuv_query_instance>();
                argument.id = 5;
                const int error =
                    call(control, EMUV_IOC_QUERY_INSTANCE, argument);
                EXPECT_TRUE(error == 0 || error == ENODEV) << error;
                described += error == 0;
                auto next = fresh<emuv_query_client>();
                next.id = 5;
                const int listed = call(control, EMUV_IOC_QUERY_CLIENT, next);
                EXPECT_TRUE(listed == 0 || listed == ENODEV || listed == ENOENT)
                    << listed;
            },
            [&] {
                const descriptor file(
                    open(attribute_path(5, "vram_info").c_str(),
                         O_RDONLY | O_CLOEXEC));
                char text[512];
                if (file)
                    static_cast<void>(read(file.get(), text, sizeof text));
            },
        });
    EXPECT_GT(created, 10);
    EXPECT_GT(destroyed, 10);
    EXPECT_GT(opened, 10);
    EXPECT_GT(described, 10);
}

TEST_F(lifetime, FreeRacesWithMapTouchExportAndImport)
{
    const int id = create(control, mib, 64 * mib);
    const auto one = open_client(id);
    const auto two = open_client(id);
    std::atomic<u64> offset = allocate(one, chunk).offset;
    std::atomic<int> freed = 0;
    std::atomic<int> mapped = 0;
    std::atomic<int> imported = 0;
    const auto enough = [&] {
        return freed > 10 && mapped > 10 && imported > 10;
    };
    race(enough, {
                     [&] {
                         freed += release(one, offset) == 0;
                         region got;
                         if (try_allocate(one, chunk, got) == 0)
                             offset = got.offset;
                     },
                     [&] {
                         void *at = mmap(nullptr, chunk, PROT_READ | PROT_WRITE,
                                         MAP_SHARED, one.get(),
                                         static_cast<off_t>(offset));
                         if (at == MAP_FAILED)
                             return;
                         mapped++;
                         static_cast<volatile unsigned char *>(at)[5] = 1;
                         munmap(at, chunk);
                     },
                     [&] {
                         auto argument = fresh<emuv_export>();
                         argument.offset = offset;
                         argument.flags = mapped % 2 ? EMUV_EXPORT_DMABUF : 0;
                         if (call(one, EMUV_IOC_EXPORT, argument) != 0)
                             return;
                         const descriptor exported(argument.fd);
                         region got;
                         if (import_region(two, exported, got) == 0) {
                             imported++;
                             static_cast<void>(discard(two, got.offset, chunk));
                             EXPECT_EQ(release(two, got.offset), 0);
                         }
                     },
                     [&] {
                         char byte = 'x';
                         static_cast<void>(pwrite(one.get(), &byte, 1,
                                                  static_cast<off_t>(offset)));
                         static_cast<void>(pread(one.get(), &byte, 1,
                                                 static_cast<off_t>(offset)));
                         static_cast<void>(discard(one, offset, chunk));
                     },
                 });
    EXPECT_GT(freed, 10);
    EXPECT_GT(mapped, 10);
    EXPECT_GT(imported, 10);
    EXPECT_EQ(query(control, id).unowned_bytes, 0U);
    EXPECT_LE(query(control, id).virtual_used_bytes, chunk);
}

TEST_F(lifetime, UnloadRacesWithLoadAndOpen)
{
    control.reset();
    // An open node keeps the module loaded: pause between opens.
    const auto breathe = [] {
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
    };
    std::atomic<int> loads = 0;
    std::atomic<int> unloads = 0;
    std::atomic<int> opens = 0;
    const auto enough = [&] { return loads > 0 && unloads > 0 && opens > 0; };
    race(enough,
         {
             [&] {
                 loads += load("gpu_model=4070 physical_vram_mb=8 "
                               "virtual_vram_mb=8") == 0;
             },
             [&] { unloads += unload() == 0; },
             [&] {
                 const descriptor node(
                     open("/dev/emuv-control", O_RDWR | O_CLOEXEC));
                 if (!node)
                     return;
                 opens++;
                 auto argument = creation(mib, chunk);
                 static_cast<void>(call(node, EMUV_IOC_CREATE, argument));
             },
             [&] {
                 breathe();
                 const descriptor node(open("/dev/emuv0", O_RDWR | O_CLOEXEC));
                 if (!node)
                     return;
                 opens++;
                 region got;
                 static_cast<void>(try_allocate(node, chunk, got));
             },
         });
    EXPECT_GT(loads, 0);
    EXPECT_GT(unloads, 0);
    EXPECT_GT(opens, 0);
    if (loaded()) {
        EXPECT_EQ(unload_eventually(), 0);
    }
}

} // namespace
