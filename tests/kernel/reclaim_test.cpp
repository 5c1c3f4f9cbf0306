// SPDX-License-Identifier: GPL-2.0-or-later
// Instances with a swap file: cold memory leaves RAM and comes back byte for
// byte, whoever touches it, whatever fails meanwhile.
#include "pin.hpp"
#include "support.hpp"
#include "vgem.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <thread>

#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace guest;

constexpr u64 page = 4096;
/// Memory above the floor. Processors may keep some of it for themselves, where
/// the driver does not count it.
constexpr u64 near = 160 * mib;

/// A compressed RAM disk. It keeps pages of one repeated word in no memory at
/// all, so that swapping to it frees RAM.
class ram_disk
{
public:
    explicit ram_disk(u64 bytes)
    {
        usable = load_stock_module("zram num_devices=1") &&
                 write_text(file("disksize"), std::to_string(bytes));
    }
    ~ram_disk()
    {
        // The driver's last file may be closed a moment later.
        wait_until([&] { return write_text(file("reset"), "1"); });
    }
    ram_disk(const ram_disk &) = delete;
    ram_disk &operator=(const ram_disk &) = delete;

    bool usable = false;

    static descriptor open_it(int flags = O_RDWR | O_DIRECT | O_EXCL)
    {
        return descriptor(static_cast<int>(
            checked(open("/dev/zram0", flags | O_CLOEXEC), "/dev/zram0")));
    }
    /// Bytes of the pages that it stores.
    static u64 stored()
    {
        std::istringstream text(read_text(file("mm_stat")));
        u64 bytes = 0;
        text >> bytes;
        return bytes;
    }
    /// Most memory for pages that are not of one word; 0: no limit.
    static void limit(u64 bytes)
    {
        ASSERT_TRUE(write_text(file("mem_limit"), std::to_string(bytes)));
    }

private:
    static std::string file(const std::string &name)
    {
        return "/sys/block/zram0/" + name;
    }
};

/// A RAM disk that can be told to fail.
class failing_disk
{
public:
    explicit failing_disk(u64 bytes)
    {
        usable = load_stock_module("null_blk nr_devices=0");
        std::system("mount -t configfs configfs /sys/kernel/config "
                    "2>/dev/null");
        usable = usable && mkdir(folder.c_str(), 0700) == 0 &&
                 write_text(folder + "/memory_backed", "1") &&
                 write_text(folder + "/size", std::to_string(bytes / mib)) &&
                 write_text(folder + "/power", "1");
        usable = usable && wait_until([&] { return exists(device_); });
    }
    ~failing_disk()
    {
        if (exists(folder))
            wait_until([&] { return rmdir(folder.c_str()) == 0; });
    }
    failing_disk(const failing_disk &) = delete;
    failing_disk &operator=(const failing_disk &) = delete;

    bool usable = false;

    descriptor open_it() const
    {
        const int flags = O_RDWR | O_DIRECT | O_EXCL | O_CLOEXEC;
        return descriptor(
            static_cast<int>(checked(open(device_.c_str(), flags), "nullb")));
    }
    /// Makes its first bytes fail, or not; false if the device ignores that.
    bool fail(bool on, u64 bytes) const
    {
        // Older kernels take no more than 512 sectors at once.
        for (u64 sector = 0; sector < bytes / 512; sector += 512)
            if (!write_text(folder + "/badblocks",
                            (on ? "+" : "-") + std::to_string(sector) + "-" +
                                std::to_string(sector + 511)))
                return false;
        return on != reads();
    }

private:
    // Older kernels name the device after its index, newer ones after the
    // folder.
    const std::string folder = "/sys/kernel/config/nullb/nullb0";
    const std::string device_ = "/dev/nullb0";

    bool reads() const
    {
        const descriptor file(static_cast<int>(
            checked(open(device_.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC),
                    device_.c_str())));
        alignas(4096) std::array<char, 4096> data{};
        return pread(file.get(), data.data(), data.size(), 0) ==
               static_cast<long>(data.size());
    }
};

/// A loop device on a file of a file system on the RAM disk. Its writes block
/// while that file system is frozen.
class blocking_disk
{
public:
    explicit blocking_disk(u64 bytes)
    {
        usable = load_stock_module("loop") &&
                 std::system("mkfs.ext4 -q -F /dev/zram0 && "
                             "mkdir -p /run/slow && "
                             "mount /dev/zram0 /run/slow") == 0;
        const auto image = "truncate -s " + std::to_string(bytes) +
                           " /run/slow/image && "
                           "losetup /dev/loop0 /run/slow/image";
        usable = usable && std::system(image.c_str()) == 0;
    }
    ~blocking_disk()
    {
        block(false);
        // The driver's last file may be closed a moment later.
        wait_until([] {
            std::system("losetup -d /dev/loop0 2>/dev/null");
            return std::system("umount /run/slow 2>/dev/null") == 0;
        });
    }
    blocking_disk(const blocking_disk &) = delete;
    blocking_disk &operator=(const blocking_disk &) = delete;

    bool usable = false;

    static descriptor open_it()
    {
        const int flags = O_RDWR | O_DIRECT | O_EXCL | O_CLOEXEC;
        return descriptor(
            static_cast<int>(checked(open("/dev/loop0", flags), "loop0")));
    }
    void block(bool on)
    {
        if (on == blocked_ || !usable)
            return;
        EXPECT_EQ(std::system(on ? "fsfreeze --freeze /run/slow"
                                 : "fsfreeze --unfreeze /run/slow"),
                  0);
        blocked_ = on;
    }

private:
    bool blocked_ = false;
};

/// A device-mapper device on the RAM disk, which can be suspended. All that it
/// is asked for waits then.
class suspended_disk
{
public:
    explicit suspended_disk(u64 bytes)
    {
        load_stock_module("dm-mod");
        const auto table = "'0 " + std::to_string(bytes / 512) +
                           " linear /dev/zram0 0' 2>/dev/null";
        usable = dmsetup("create emuv-test --noudevsync --table " + table) &&
                 exists("/dev/mapper/emuv-test");
    }
    ~suspended_disk()
    {
        suspend(false);
        // The driver's last file may be closed a moment later.
        if (usable)
            wait_until([] {
                return dmsetup("remove --noudevsync emuv-test 2>/dev/null");
            });
    }
    suspended_disk(const suspended_disk &) = delete;
    suspended_disk &operator=(const suspended_disk &) = delete;

    bool usable = false;

    static descriptor open_it()
    {
        return descriptor(static_cast<int>(checked(
            open("/dev/mapper/emuv-test", O_RDWR | O_DIRECT | O_CLOEXEC),
            "emuv-test")));
    }
    void suspend(bool on)
    {
        if (on == suspended_ || !usable)
            return;
        EXPECT_TRUE(dmsetup(on ? "suspend --nolockfs emuv-test"
                               : "resume --noudevsync emuv-test"));
        suspended_ = on;
    }

private:
    bool suspended_ = false;

    static bool dmsetup(const std::string &what)
    {
        return std::system(("DM_DISABLE_UDEV=1 dmsetup " + what).c_str()) == 0;
    }
};

/// A second compressed RAM disk.
class another_disk
{
public:
    explicit another_disk(u64 bytes)
    {
        std::istringstream(read_text("/sys/class/zram-control/hot_add")) >>
            number_;
        usable = !number_.empty() &&
                 write_text("/sys/block/zram" + number_ + "/disksize",
                            std::to_string(bytes)) &&
                 wait_until([&] { return exists("/dev/zram" + number_); });
    }
    ~another_disk()
    {
        if (!number_.empty())
            wait_until([&] {
                return write_text("/sys/class/zram-control/hot_remove",
                                  number_);
            });
    }
    another_disk(const another_disk &) = delete;
    another_disk &operator=(const another_disk &) = delete;

    bool usable = false;

    descriptor open_it() const
    {
        const auto path = "/dev/zram" + number_;
        const int flags = O_RDWR | O_DIRECT | O_EXCL | O_CLOEXEC;
        return descriptor(
            static_cast<int>(checked(open(path.c_str(), flags), path.c_str())));
    }
    u64 stored() const
    {
        std::istringstream text(
            read_text("/sys/block/zram" + number_ + "/mm_stat"));
        u64 bytes = 0;
        text >> bytes;
        return bytes;
    }

private:
    std::string number_;
};

u64 word_of(u64 at, u64 seed)
{
    return (at / page + 1) * 0x9e3779b97f4a7c15ULL ^ (seed << 56U);
}

/// Fills each page with a word of its own, which a RAM disk stores in no
/// memory.
void fill_pages(unsigned char *data, u64 bytes, u64 seed, u64 from = 0)
{
    for (u64 at = 0; at < bytes; at += page)
        std::fill_n(reinterpret_cast<u64 *>(data + at), page / sizeof(u64),
                    word_of(from + at, seed));
}

std::optional<u64> first_page_error(const unsigned char *data, u64 bytes,
                                    u64 seed, u64 from = 0)
{
    for (u64 at = 0; at < bytes; at += page) {
        const auto *const words = reinterpret_cast<const u64 *>(data + at);
        const auto *const end = words + page / sizeof(u64);
        const u64 word = word_of(from + at, seed);
        const auto *const found =
            std::find_if(words, end, [=](u64 other) { return other != word; });
        if (found != end)
            return at + static_cast<u64>(found - words) * sizeof(u64);
    }
    return std::nullopt;
}

/// Does the thread sleep in the driver?
bool sleeps_in_the_driver(pid_t thread)
{
    return read_text("/proc/" + std::to_string(thread) + "/wchan")
        .starts_with("emuv_");
}

/// Does a worker wait for a chunk to be written to a swap file?
bool a_write_waits()
{
    const auto names = names_in("/proc");
    return std::any_of(names.begin(), names.end(), [](const auto &name) {
        if (name.find_first_not_of("0123456789") != std::string::npos)
            return false;
        std::ifstream file("/proc/" + name + "/wchan");
        std::string function;
        std::getline(file, function);
        return function.starts_with("emuv_swap_write");
    });
}

bool has_ended(const process &child)
{
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(child.pid()), &info,
                  WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
}

bool has_sent(process &child)
{
    pollfd file{child.conversation().get(), POLLIN, 0};
    return poll(&file, 1, 0) == 1;
}

void touch(const volatile unsigned char *at)
{
    static_cast<void>(*at);
}

class reclaim : public driver_test
{
protected:
    void SetUp() override
    {
        driver_test::SetUp();
        ASSERT_TRUE(disk.usable) << "no zram here";
    }

    static emuv_create swapping(u64 bytes, const descriptor &file)
    {
        auto argument = creation(mib, bytes, EMUV_ANY,
                                 EMUV_CREATE_SWAP | EMUV_CREATE_OVERCOMMIT);
        argument.swap_fd = file.get();
        return argument;
    }
    int create_swapping(u64 bytes) const
    {
        return create(control, swapping(bytes, ram_disk::open_it()));
    }
    emuv_query_instance now(int id) const { return query(control, id); }

    /// Leaves little of the host's memory above its floor.
    void reload_near_floor(u64 above)
    {
        const u64 available = settled_available();
        ASSERT_GT(available, above);
        reload("host_floor_mb=" + std::to_string((available - above) / mib));
    }

    /// Makes the kernel ask for memory, all that it can get.
    static void press() { write_text("/proc/sys/vm/drop_caches", "2"); }

    /// Presses until so much is in RAM.
    void press_down_to(int id, u64 resident) const
    {
        EXPECT_TRUE(wait_until([&] {
            press();
            return now(id).resident_bytes <= resident;
        })) << now(id).resident_bytes;
        EXPECT_EQ(now(id).resident_bytes, resident);
    }

    /// Has a program touch 16 MiB that are on a disk that does not answer, and
    /// kills it. The disk stays suspended, so the read is still on its way.
    void kill_who_waits_for(suspended_disk &disk_of_file, int id) const
    {
        process owner({}, [&](channel &us) -> std::string {
            const auto client = open_client(id);
            const auto got = allocate(client, 16 * mib);
            const mapping map(client.get(), got.bytes, got.offset);
            fill_pages(map.data(), map.size(), 1);
            us.send();
            us.receive();
            touch(map.data());
            return "";
        });
        owner.conversation().receive();
        press_down_to(id, 0);
        disk_of_file.suspend(true);
        owner.conversation().send();
        ASSERT_TRUE(
            wait_until([&] { return sleeps_in_the_driver(owner.pid()); }));
        ASSERT_EQ(kill(owner.pid(), SIGKILL), 0);
        EXPECT_TRUE(wait_until([&] { return has_ended(owner); }));
    }

    /// Nobody holds the instance's region any more, but I/O on the suspended
    /// disk is on its way. The instance and the driver stay until the disk
    /// answers. Then nothing is left.
    void expect_to_go_once_it_arrives(suspended_disk &disk_of_file, int id)
    {
        EXPECT_EQ(destroy(control, id), EBUSY);
        control.reset();
        EXPECT_EQ(unload(), EWOULDBLOCK);
        control = open_control();
        disk_of_file.suspend(false);
        EXPECT_TRUE(
            wait_until([&] { return now(id).virtual_used_bytes == 0; }));
        EXPECT_EQ(now(id).unowned_bytes, 0U);
        EXPECT_EQ(attribute(id, "lingering_bytes"), "0");
        EXPECT_EQ(now(id).resident_bytes, 0U);
        EXPECT_EQ(now(id).swapped_bytes, 0U);
        EXPECT_EQ(destroy_eventually(control, id), 0);
    }

    /// Suspends the disk, and presses until a chunk is on its way there.
    static void hold_up_a_write(suspended_disk &disk_of_file)
    {
        disk_of_file.suspend(true);
        ASSERT_TRUE(wait_until([] {
            press();
            return a_write_waits();
        }));
    }

    /// Destroys an instance with holders, of which a chunk is on its way to a
    /// disk that does not answer.
    void take_away(suspended_disk &disk_of_file, int id) const
    {
        std::atomic<bool> done{false};
        int error = -1;
        std::thread taker([&] {
            error = destroy(control, id, EMUV_DESTROY_FORCE);
            done = true;
        });
        EXPECT_TRUE(wait_until([&] { return done.load(); }))
            << "the end of an instance waits for its file";
        if (!done)
            disk_of_file.suspend(false);
        taker.join();
        EXPECT_EQ(error, 0);
    }

    static constexpr u64 disk_bytes = gib;
    const ram_disk disk{disk_bytes};
};

TEST_F(reclaim, ColdMemoryLeavesWhenTheKernelAsksAndComesBack)
{
    const int id = create_swapping(64 * mib);
    const auto client = open_client(id);
    const auto got = allocate(client, 64 * mib);
    const mapping map(client.get(), got.bytes, got.offset);
    fill_pages(map.data(), map.size(), 1);
    EXPECT_EQ(now(id).swapped_bytes, 0U);
    for (u64 round = 2; round < 5; round++) {
        press_down_to(id, 0);
        EXPECT_EQ(now(id).swapped_bytes, 64 * mib);
        EXPECT_EQ(now(id).virtual_used_bytes, 64 * mib);
        EXPECT_EQ(attribute(id, "swapped_bytes"), std::to_string(64 * mib));
        EXPECT_EQ(attribute(id, "swap"), "1");
        EXPECT_FALSE(first_page_error(map.data(), map.size(), round - 1));
        EXPECT_EQ(now(id).resident_bytes, 64 * mib);
        EXPECT_EQ(now(id).swapped_bytes, 0U);
        fill_pages(map.data(), map.size(), round);
    }
}

TEST_F(reclaim, MoreThanTheHostHasAboveItsFloorCanBeTouched)
{
    reload_near_floor(near);
    const int id = create_swapping(320 * mib);
    const auto client = open_client(id);
    const auto got = allocate(client, 320 * mib);
    const mapping map(client.get(), got.bytes, got.offset);
    for (u64 at = 0; at < map.size(); at += chunk) {
        ASSERT_EQ(signal_of_write(map.data() + at), 0) << at;
        fill_pages(map.data() + at, chunk, 1, at);
    }
    EXPECT_EQ(now(id).resident_bytes + now(id).swapped_bytes, 320 * mib);
    EXPECT_GT(now(id).swapped_bytes, 64 * mib);
    for (int round = 0; round < 2; round++) {
        for (u64 at = 0; at < map.size(); at += chunk) {
            ASSERT_EQ(signal_of_read(map.data() + at), 0) << at;
            ASSERT_FALSE(first_page_error(map.data() + at, chunk, 1, at)) << at;
        }
    }
    EXPECT_EQ(now(id).resident_bytes + now(id).swapped_bytes, 320 * mib);
}

TEST_F(reclaim, ColdMemoryMakesRoomForWhatIsBackedAtOnce)
{
    constexpr u64 touched = near / 5 * 4;
    constexpr u64 populated = near / 5 * 3;
    reload_near_floor(near);
    const int id = create_swapping(4 * near);
    const auto client = open_client(id);
    const auto old = allocate(client, touched);
    const mapping map(client.get(), old.bytes, old.offset);
    for (u64 at = 0; at < map.size(); at += chunk) {
        ASSERT_EQ(signal_of_write(map.data() + at), 0) << at;
        fill_pages(map.data() + at, chunk, 1, at);
    }
    region got;
    // Near the floor all RAM that others of the host take counts, too: what is
    // refused once may be granted a moment later.
    int refused = ENOMEM;
    for (int tries = 0; refused == ENOMEM && tries < 1200; tries++) {
        refused = try_allocate(client, populated, got, EMUV_ALLOC_POPULATE);
        if (refused == ENOMEM)
            usleep(100'000);
    }
    ASSERT_EQ(refused, 0);
    EXPECT_GT(now(id).swapped_bytes, 0U);
    EXPECT_EQ(now(id).resident_bytes + now(id).swapped_bytes,
              touched + populated);
    EXPECT_TRUE(reads_zero(client.get(), got.offset, got.bytes));
    EXPECT_FALSE(first_page_error(map.data(), map.size(), 1));
    // More than can leave: nothing of it stays.
    region more;
    EXPECT_EQ(try_allocate(client, 2 * near, more, EMUV_ALLOC_POPULATE),
              ENOMEM);
    EXPECT_EQ(now(id).virtual_used_bytes, touched + populated);
    EXPECT_FALSE(first_page_error(map.data(), map.size(), 1));
}

TEST_F(reclaim, AFullCgroupMakesRoomByItsOwnColdMemory)
{
    const memory_cgroup group("reclaim-test");
    if (!group.usable)
        GTEST_SKIP() << "no cgroup2 with a memory controller here";
    const int id = create_swapping(320 * mib);
    const auto other = open_client(id);
    const auto others = allocate(other, 32 * mib, EMUV_ALLOC_POPULATE);
    ASSERT_EQ(others.bytes, 32 * mib);
    ASSERT_TRUE(group.limit(64 * mib));
    EXPECT_EQ(
        in_child({},
                 [&](channel &) -> std::string {
                     CHILD_EXPECT(group.enter());
                     const auto client = open_client(id);
                     const auto got = allocate(client, 128 * mib);
                     const mapping map(client.get(), got.bytes, got.offset);
                     for (u64 at = 0; at < map.size(); at += chunk) {
                         CHILD_EXPECT(signal_of_write(map.data() + at) == 0);
                         fill_pages(map.data() + at, chunk, 3, at);
                     }
                     CHILD_EXPECT(now(id).swapped_bytes >= 64 * mib);
                     CHILD_EXPECT(now(id).resident_bytes >= 32 * mib);
                     for (u64 at = 0; at < map.size(); at += chunk)
                         CHILD_EXPECT(
                             !first_page_error(map.data() + at, chunk, 3, at));
                     return "";
                 }),
        "");
    EXPECT_EQ(group.event("oom_kill"), 0U);
    EXPECT_EQ(now(id).swapped_bytes, 0U);
    EXPECT_EQ(now(id).resident_bytes, 32 * mib) << "another's memory has left";
}

TEST_F(reclaim, PinnedMemoryStays)
{
    const int id = create_swapping(16 * mib);
    const auto client = open_client(id);
    const auto got = allocate(client, 16 * mib);
    const mapping map(client.get(), got.bytes, got.offset);
    fill_pages(map.data(), map.size(), 1);
    press_down_to(id, 0);
    // A pin brings memory back.
    auto held = std::make_unique<socket_pin>(map.data() + chunk, 2 * chunk);
    ASSERT_EQ(held->error(), 0);
    fill_pages(map.data(), map.size(), 2);
    press_down_to(id, 2 * chunk);
    EXPECT_FALSE(first_page_error(map.data(), map.size(), 2));
    held.reset();
    press_down_to(id, 0);
    EXPECT_FALSE(first_page_error(map.data(), map.size(), 2));
}

TEST_F(reclaim, MemoryThatADeviceHasMappedComesBackAndStays)
{
    const auto device = open_vgem();
    if (!device)
        GTEST_SKIP() << "this kernel has no vgem";
    if (!vgem_maps())
        GTEST_SKIP() << "this kernel's vgem does not map what it imports";
    const int id = create_swapping(16 * mib);
    const auto client = open_client(id);
    const auto got = allocate(client, 16 * mib);
    const mapping map(client.get(), got.bytes, got.offset);
    fill_pages(map.data(), map.size(), 1);
    const auto buffer = export_region(client, got.offset, EMUV_EXPORT_DMABUF);
    press_down_to(id, 0);
    __u32 handle = 0;
    ASSERT_EQ(vgem_import(device, buffer, handle), 0);
    EXPECT_EQ(now(id).resident_bytes, 16 * mib);
    press();
    press();
    EXPECT_EQ(now(id).resident_bytes, 16 * mib);
    EXPECT_FALSE(first_page_error(map.data(), map.size(), 1));
    ASSERT_EQ(vgem_drop(device, handle), 0);
    press_down_to(id, 0);
    EXPECT_FALSE(first_page_error(map.data(), map.size(), 1));
}

TEST_F(reclaim, InstancesWithoutASwapFileKeepTheirMemory)
{
    const int id = create(control, creation(mib, 16 * mib));
    const int other = create_swapping(16 * mib);
    const auto client = open_client(id);
    const auto another = open_client(other);
    allocate(client, 16 * mib, EMUV_ALLOC_POPULATE);
    allocate(another, 16 * mib, EMUV_ALLOC_POPULATE);
    press_down_to(other, 0);
    EXPECT_EQ(now(id).resident_bytes, 16 * mib);
    EXPECT_EQ(attribute(id, "swap"), "0");
    EXPECT_EQ(attribute(id, "swapped_bytes"), "0");
    EXPECT_EQ(now(id).created & EMUV_CREATE_SWAP, 0U);
    EXPECT_NE(now(other).created & EMUV_CREATE_SWAP, 0U);
}

TEST_F(reclaim, UnsuitableSwapFilesAreRefused)
{
    const auto disk_file = ram_disk::open_it();
    auto argument = swapping(16 * mib, disk_file);
    argument.flags = EMUV_CREATE_SWAP | EMUV_CREATE_GUARANTEED;
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), EINVAL);
    argument = swapping(disk_bytes + chunk, disk_file);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), EINVAL) << "too small";
    argument = swapping(16 * mib, disk_file);
    argument.reserved2 = 1;
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), EINVAL);
    argument = swapping(16 * mib, disk_file);
    argument.flags = 0;
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), EINVAL)
        << "a file without the flag";
    argument = swapping(16 * mib, disk_file);
    argument.swap_fd = 1000;
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), EBADF);
    argument.swap_fd = -1;
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), EBADF);
    for (const int flags : {O_RDWR, O_RDONLY | O_DIRECT, O_WRONLY | O_DIRECT,
                            O_RDWR | O_DIRECT | O_APPEND}) {
        const auto file = ram_disk::open_it(flags);
        argument = swapping(16 * mib, file);
        EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), EINVAL) << flags;
    }
    argument = swapping(16 * mib, disk_file);
    argument.size = offsetof(emuv_create, swap_fd);
    argument.swap_fd = 0;
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), EINVAL)
        << "an older caller names no file";
    // tmpfs takes O_DIRECT from 6.6 on; a file in it would free no RAM.
    std::system("mkdir -p /run/ram && mount -t tmpfs tmpfs /run/ram");
    const descriptor in_ram(
        open("/run/ram", O_RDWR | O_DIRECT | O_TMPFILE | O_CLOEXEC, 0600));
    if (in_ram) {
        ASSERT_EQ(ftruncate(in_ram.get(), 16 * mib), 0);
        argument = swapping(16 * mib, in_ram);
        EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), EINVAL);
    }
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_DIRECT), 0);
    const descriptor out(ends[0]);
    const descriptor in(ends[1]);
    argument = swapping(16 * mib, in);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), EINVAL);
    EXPECT_TRUE(names_in("/sys/class/emuv").empty());
}

TEST_F(reclaim, TwoInstancesShareNoSwapFile)
{
    const auto file = ram_disk::open_it();
    const int id = create(control, swapping(16 * mib, file));
    auto argument = swapping(16 * mib, file);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), EBUSY);
    const auto again = ram_disk::open_it(O_RDWR | O_DIRECT);
    argument = swapping(16 * mib, again);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), EBUSY);
    ASSERT_EQ(destroy(control, id), 0);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), 0);
}

TEST_F(reclaim, ReadingAndWritingReachMemoryThatIsAway)
{
    const int id = create_swapping(16 * mib);
    const auto client = open_client(id);
    const auto got = allocate(client, 16 * mib);
    mapping map(client.get(), got.bytes, got.offset);
    fill_pages(map.data(), map.size(), 1);
    press_down_to(id, 0);
    std::vector<unsigned char> data(2 * chunk);
    ASSERT_EQ(pread(client.get(), data.data(), data.size(),
                    static_cast<off_t>(got.offset + chunk / 2)),
              static_cast<long>(data.size()));
    EXPECT_FALSE(first_page_error(data.data(), data.size(), 1, chunk / 2));
    press_down_to(id, 0);
    fill_pages(data.data(), data.size(), 2, chunk / 2);
    ASSERT_EQ(pwrite(client.get(), data.data(), data.size(),
                     static_cast<off_t>(got.offset + chunk / 2)),
              static_cast<long>(data.size()));
    press_down_to(id, 0);
    EXPECT_FALSE(first_page_error(map.data(), chunk / 2, 1));
    EXPECT_FALSE(
        first_page_error(map.data() + chunk / 2, data.size(), 2, chunk / 2));
    EXPECT_FALSE(first_page_error(map.data() + chunk / 2 + data.size(), chunk,
                                  1, chunk / 2 + data.size()));
}

TEST_F(reclaim, UntouchedMemoryReadsAsZerosAndTakesNothing)
{
    const int id = create_swapping(16 * mib);
    const auto client = open_client(id);
    const auto got = allocate(client, 16 * mib);
    const mapping map(client.get(), got.bytes, got.offset);
    fill_pages(map.data(), chunk, 1);
    press_down_to(id, 0);
    EXPECT_TRUE(
        reads_zero(client.get(), got.offset + chunk, got.bytes - chunk));
    EXPECT_EQ(now(id).resident_bytes, 0U);
    EXPECT_EQ(now(id).swapped_bytes, chunk);
}

TEST_F(reclaim, DiscardingForgetsWhatIsAway)
{
    const int id = create_swapping(16 * mib);
    const auto client = open_client(id);
    const auto got = allocate(client, 16 * mib);
    const mapping map(client.get(), got.bytes, got.offset);
    fill_pages(map.data(), map.size(), 1);
    press_down_to(id, 0);
    // Parts of the first and the fourth chunk, and all of two.
    ASSERT_EQ(discard(client, got.offset + chunk / 2, 3 * chunk), 0);
    EXPECT_EQ(now(id).swapped_bytes, 4 * chunk);
    EXPECT_EQ(now(id).resident_bytes, 2 * chunk);
    EXPECT_FALSE(first_page_error(map.data(), chunk / 2, 1));
    EXPECT_FALSE(first_other(map.data() + chunk / 2, 3 * chunk));
    EXPECT_FALSE(first_page_error(map.data() + 7 * chunk / 2,
                                  map.size() - 7 * chunk / 2, 1,
                                  7 * chunk / 2));
    press_down_to(id, 0);
    EXPECT_FALSE(first_other(map.data() + chunk / 2, 3 * chunk));
}

TEST_F(reclaim, FreedMemoryLeavesTheFileAndTheNextOwnerReadsZeros)
{
    const int id = create_swapping(16 * mib);
    const auto client = open_client(id);
    for (int round = 0; round < 3; round++) {
        const auto got = allocate(client, 16 * mib);
        {
            const mapping map(client.get(), got.bytes, got.offset);
            EXPECT_FALSE(first_other(map.data(), map.size())) << round;
            fill_pages(map.data(), map.size(), 1);
            press_down_to(id, 0);
        }
        EXPECT_EQ(ram_disk::stored(), 16 * mib);
        ASSERT_EQ(release(client, got.offset), 0);
        EXPECT_EQ(now(id).swapped_bytes, 0U);
        EXPECT_EQ(now(id).virtual_used_bytes, 0U);
        EXPECT_TRUE(wait_until([] { return ram_disk::stored() == 0; }));
    }
}

TEST_F(reclaim, AKilledProcessLeavesNothing)
{
    const int id = create_swapping(16 * mib);
    process child([&](channel &us) -> std::string {
        const auto client = open_client(id);
        const auto got = allocate(client, 16 * mib);
        const mapping map(client.get(), got.bytes, got.offset);
        fill_pages(map.data(), map.size(), 1);
        us.send();
        us.receive();
        return "";
    });
    child.conversation().receive();
    press_down_to(id, 0);
    child.kill_now();
    EXPECT_TRUE(wait_until([&] { return now(id).virtual_used_bytes == 0; }));
    EXPECT_EQ(now(id).swapped_bytes, 0U);
    EXPECT_TRUE(wait_until([] { return ram_disk::stored() == 0; }));
    EXPECT_EQ(destroy_eventually(control, id), 0);
}

TEST_F(reclaim, AnInstanceThatIsTakenAwayLeavesNothing)
{
    const int id = create_swapping(16 * mib);
    {
        const auto client = open_client(id);
        const auto got = allocate(client, 16 * mib);
        const mapping map(client.get(), got.bytes, got.offset);
        fill_pages(map.data(), map.size(), 1);
        press_down_to(id, 0);
        EXPECT_FALSE(first_page_error(map.data(), 2 * chunk, 1));
        std::atomic<int> raised{0};
        std::thread toucher([&] {
            while (!raised)
                for (u64 at = 0; !raised && at < map.size(); at += chunk)
                    raised = signal_of_read(map.data() + at);
        });
        ASSERT_EQ(destroy(control, id, EMUV_DESTROY_FORCE), 0);
        toucher.join();
        EXPECT_EQ(raised, SIGBUS);
    }
    EXPECT_TRUE(wait_until([] { return ram_disk::stored() == 0; }));
}

TEST_F(reclaim, SharedMemoryIsTheSameForAllWhoHoldIt)
{
    const int id = create_swapping(16 * mib);
    const auto client = open_client(id);
    const auto got = allocate(client, 16 * mib);
    const auto shared = export_region(client, got.offset);
    const mapping map(client.get(), got.bytes, got.offset);
    fill_pages(map.data(), map.size(), 1);
    process child({.keep = {shared.get()}}, [&](channel &us) -> std::string {
        // One mapping is inherited, and one is the child's own.
        const mapping own(shared.get(), 16 * mib);
        for (u64 round = 1; round < 4; round++) {
            us.receive();
            CHILD_EXPECT(!first_page_error(map.data(), map.size(), round));
            CHILD_EXPECT(!first_page_error(own.data(), own.size(), round));
            fill_pages(own.data(), own.size(), round + 10);
            us.send();
        }
        return "";
    });
    for (u64 round = 1; round < 4; round++) {
        press_down_to(id, 0);
        child.conversation().send();
        child.conversation().receive();
        press_down_to(id, 0);
        EXPECT_FALSE(first_page_error(map.data(), map.size(), round + 10));
        fill_pages(map.data(), map.size(), round + 1);
    }
    EXPECT_EQ(child.join(), "");
}

TEST_F(reclaim, NothingIsLostWhereAllIsUsedAtOnceUnderPressure)
{
    constexpr unsigned threads = 6;
    constexpr u64 chunks = 4; // of each thread
    const u64 rounds = from_environment("EMUV_RECLAIM_ROUNDS", 40);
    const int id = create_swapping(threads * chunks * chunk);
    const auto client = open_client(id);
    const auto got = allocate(client, threads * chunks * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    std::atomic<unsigned> running{threads};
    std::atomic<unsigned> errors{0};
    std::atomic<u64> most{0}; // bytes that were away at once
    // Some of it leaves in that time, however late the reclaimer comes.
    const auto limit =
        std::chrono::steady_clock::now() + std::chrono::seconds(120);
    std::vector<std::thread> all;
    for (unsigned thread = 0; thread < threads; thread++)
        all.emplace_back([&, thread] {
            std::mt19937_64 random(thread + 1);
            std::vector<u64> seeds(chunks, 0); // 0: discarded
            std::vector<unsigned char> data(chunk);
            for (u64 round = 1;
                 round <= rounds ||
                 (most == 0 && std::chrono::steady_clock::now() < limit);
                 round++) {
                const u64 which = random() % chunks;
                const u64 at = (thread * chunks + which) * chunk;
                auto *const place = map.data() + at;
                const auto offset = static_cast<off_t>(got.offset + at);
                auto &seed = seeds[which];
                const bool sound =
                    seed ? !first_page_error(place, chunk, seed, at)
                         : !first_other(place, chunk);
                errors += !sound;
                switch (random() % 4) {
                case 0:
                    seed = round % 200 + 1;
                    fill_pages(place, chunk, seed, at);
                    break;
                case 1:
                    seed = round % 200 + 1;
                    fill_pages(data.data(), chunk, seed, at);
                    errors += pwrite(client.get(), data.data(), chunk,
                                     offset) != static_cast<long>(chunk);
                    break;
                case 2:
                    seed = 0;
                    errors += discard(client, got.offset + at, chunk) != 0;
                    break;
                default:
                    errors += pread(client.get(), data.data(), chunk, offset) !=
                              static_cast<long>(chunk);
                    errors +=
                        seed ? first_page_error(data.data(), chunk, seed, at)
                                   .has_value()
                             : first_other(data.data(), chunk).has_value();
                    // Rest, so that some of it gets cold.
                    std::this_thread::sleep_for(std::chrono::milliseconds(100));
                }
            }
            running--;
        });
    while (running) {
        press();
        most = std::max<u64>(most, now(id).swapped_bytes);
    }
    for (auto &each : all)
        each.join();
    EXPECT_EQ(errors, 0U);
    EXPECT_GT(most, 0U) << "nothing has left";
    EXPECT_LE(now(id).swapped_bytes + now(id).resident_bytes, got.bytes);
}

TEST_F(reclaim, ThreadsThatTouchTheSameMemoryGetTheSame)
{
    constexpr unsigned threads = 6;
    const int id = create_swapping(4 * chunk);
    const auto client = open_client(id);
    const auto got = allocate(client, 4 * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    for (u64 round = 1; round < 6; round++) {
        fill_pages(map.data(), map.size(), round);
        press_down_to(id, 0);
        std::atomic<unsigned> errors{0};
        std::vector<std::thread> all;
        for (unsigned thread = 0; thread < threads; thread++)
            all.emplace_back([&] {
                errors +=
                    first_page_error(map.data(), map.size(), round).has_value();
            });
        for (auto &each : all)
            each.join();
        EXPECT_EQ(errors, 0U);
        EXPECT_EQ(now(id).resident_bytes, 4 * chunk);
        EXPECT_EQ(now(id).swapped_bytes, 0U);
    }
}

TEST_F(reclaim, ThreadsThatReadTheSameMemoryReadNoZeros)
{
    constexpr unsigned threads = 6;
    const int id = create_swapping(4 * chunk);
    const auto client = open_client(id);
    const auto got = allocate(client, 4 * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    fill_pages(map.data(), map.size(), 1);
    std::atomic<unsigned> errors{0};
    for (int round = 0; round < 10; round++) {
        press_down_to(id, 0);
        std::vector<std::thread> all;
        for (unsigned thread = 0; thread < threads; thread++)
            all.emplace_back([&] {
                // The first words of all chunks, so that many reads race.
                for (u64 at = 0; at < got.bytes; at += chunk) {
                    u64 word = 0;
                    errors += pread(client.get(), &word, sizeof word,
                                    static_cast<off_t>(got.offset + at)) !=
                              static_cast<long>(sizeof word);
                    errors += word != word_of(at, 1);
                }
            });
        for (auto &each : all)
            each.join();
        EXPECT_EQ(errors, 0U) << round;
    }
}

TEST_F(reclaim, ColdMemoryBehindMemoryInUseLeaves)
{
    constexpr u64 hot = 40;
    constexpr u64 cold = 8;
    const int id = create_swapping((hot + cold) * chunk);
    const auto client = open_client(id);
    const auto got = allocate(client, (hot + cold) * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    for (u64 at = 0; at < map.size(); at += chunk)
        fill_pages(map.data() + at, page, 1, at);
    std::atomic<bool> done{false};
    std::thread user([&] {
        while (!done)
            for (u64 at = 0; at < hot * chunk; at += chunk)
                map[at + page] = 1;
    });
    EXPECT_TRUE(wait_until([&] {
        press();
        return now(id).swapped_bytes >= cold * chunk;
    })) << now(id).swapped_bytes;
    done = true;
    user.join();
    for (u64 at = 0; at < map.size(); at += chunk)
        EXPECT_FALSE(first_page_error(map.data() + at, page, 1, at)) << at;
}

TEST_F(reclaim, AFileOfAFrozenFileSystemHoldsNobodyUp)
{
    ASSERT_EQ(std::system("mkfs.ext4 -q -F /dev/zram0 && mkdir -p /run/swap && "
                          "mount /dev/zram0 /run/swap"),
              0);
    {
        const descriptor file(static_cast<int>(checked(
            open("/run/swap", O_RDWR | O_DIRECT | O_TMPFILE | O_CLOEXEC, 0600),
            "O_TMPFILE")));
        ASSERT_EQ(ftruncate(file.get(), 16 * mib), 0);
        const int id = create(control, swapping(16 * mib, file));
        const auto client = open_client(id);
        const auto got = allocate(client, 16 * mib);
        const mapping map(client.get(), got.bytes, got.offset);
        fill_pages(map.data(), map.size(), 1);
        press_down_to(id, 0);

        ASSERT_EQ(std::system("fsfreeze --freeze /run/swap"), 0);
        EXPECT_FALSE(first_page_error(map.data(), 4 * chunk, 1));
        press();
        EXPECT_EQ(now(id).resident_bytes, 4 * chunk) << "written all the same";
        EXPECT_EQ(discard(client, got.offset + 4 * chunk, 2 * chunk), 0);
        EXPECT_FALSE(first_other(map.data() + 4 * chunk, 2 * chunk));
        EXPECT_EQ(std::system("fsfreeze --unfreeze /run/swap"), 0);

        EXPECT_TRUE(wait_until([&] {
            press();
            return now(id).resident_bytes == 0;
        }));
        EXPECT_FALSE(first_page_error(map.data(), 4 * chunk, 1));
        EXPECT_FALSE(first_other(map.data() + 4 * chunk, 2 * chunk));
        EXPECT_FALSE(
            first_page_error(map.data() + 6 * chunk, 2 * chunk, 1, 6 * chunk));
        ASSERT_EQ(std::system("fsfreeze --freeze /run/swap"), 0);
        EXPECT_EQ(release(client, got.offset), 0);
        EXPECT_EQ(std::system("fsfreeze --unfreeze /run/swap"), 0);
    }
    for (const auto &name : names_in("/sys/class/emuv"))
        EXPECT_EQ(destroy_eventually(control, std::stoi(name.substr(4))), 0);
    EXPECT_TRUE(wait_until(
        [] { return std::system("umount /run/swap 2>/dev/null") == 0; }));
}

TEST_F(reclaim, AFileThatBlocksHoldsNoOtherInstanceUp)
{
    another_disk fast(disk_bytes);
    blocking_disk slow(64 * mib);
    if (!slow.usable)
        GTEST_SKIP() << "no loop device here";
    ASSERT_TRUE(fast.usable);
    const int blocked = create(control, swapping(16 * mib, slow.open_it()));
    int id = create(control, swapping(32 * mib, fast.open_it()));
    {
        const auto owner = open_client(blocked);
        const auto taken = allocate(owner, 16 * mib);
        const mapping held(owner.get(), taken.bytes, taken.offset);
        fill_pages(held.data(), held.size(), 1);
        press_down_to(blocked, 0);
        EXPECT_FALSE(first_page_error(held.data(), held.size(), 1));
        slow.block(true);
        // Round by round, whichever is the first to leave in the first one.
        for (u64 round = 1; round < 4; round++) {
            const auto client = open_client(id);
            const auto got = allocate(client, 32 * mib);
            {
                const mapping map(client.get(), got.bytes, got.offset);
                fill_pages(map.data(), map.size(), round);
                press_down_to(id, 0);
                EXPECT_FALSE(first_page_error(map.data(), map.size(), round));
                press_down_to(id, 0);
            }
            EXPECT_EQ(fast.stored(), 32 * mib);
            // Its places are given back, too, and its file to the next one.
            EXPECT_EQ(release(client, got.offset), 0);
            EXPECT_TRUE(wait_until([&] { return fast.stored() == 0; }));
        }
        EXPECT_EQ(destroy_eventually(control, id), 0);
        id = create(control, swapping(32 * mib, fast.open_it()));
        EXPECT_GT(now(blocked).resident_bytes, 0U) << "the file blocks not";
        slow.block(false);
        press_down_to(blocked, 0);
        EXPECT_FALSE(first_page_error(held.data(), held.size(), 1));
    }
    EXPECT_EQ(destroy_eventually(control, id), 0);
    EXPECT_EQ(destroy_eventually(control, blocked), 0);
}

TEST_F(reclaim, ATouchIsServedThoughAnotherInstancesFileBlocks)
{
    another_disk fast(disk_bytes);
    blocking_disk slow(64 * mib);
    if (!slow.usable)
        GTEST_SKIP() << "no loop device here";
    ASSERT_TRUE(fast.usable);
    reload_near_floor(near);
    const int blocked = create(control, swapping(16 * mib, slow.open_it()));
    const int id = create(control, swapping(320 * mib, fast.open_it()));
    {
        const auto owner = open_client(blocked);
        const auto taken = allocate(owner, 16 * mib);
        const mapping held(owner.get(), taken.bytes, taken.offset);
        fill_pages(held.data(), held.size(), 1);
        slow.block(true);
        const auto client = open_client(id);
        const auto got = allocate(client, 320 * mib);
        const mapping map(client.get(), got.bytes, got.offset);
        for (u64 at = 0; at < map.size(); at += chunk) {
            ASSERT_EQ(signal_of_write(map.data() + at), 0) << at;
            fill_pages(map.data() + at, chunk, 1, at);
        }
        for (u64 at = 0; at < map.size(); at += chunk) {
            ASSERT_EQ(signal_of_read(map.data() + at), 0) << at;
            ASSERT_FALSE(first_page_error(map.data() + at, chunk, 1, at)) << at;
        }
        slow.block(false);
        EXPECT_FALSE(first_page_error(held.data(), held.size(), 1));
    }
    EXPECT_EQ(destroy_eventually(control, id), 0);
    EXPECT_EQ(destroy_eventually(control, blocked), 0);
}

TEST_F(reclaim, AnInstanceGoesThoughItsFileBlocksAndTheNextOneWaitsForTheFile)
{
    suspended_disk slow(64 * mib);
    if (!slow.usable)
        GTEST_SKIP() << "no device mapper here";
    const auto file = suspended_disk::open_it();
    const int id = create(control, swapping(16 * mib, file));
    {
        const auto client = open_client(id);
        const auto got = allocate(client, 16 * mib);
        const mapping map(client.get(), got.bytes, got.offset);
        fill_pages(map.data(), map.size(), 1);
        press_down_to(id, 0);
        // The places that it gives back at its end block.
        slow.suspend(true);
    }
    ASSERT_EQ(destroy_eventually(control, id), 0);
    std::atomic<bool> made{false};
    int next = -1;
    std::atomic<pid_t> making{0};
    std::thread maker([&] {
        making = gettid();
        next = create(control, swapping(16 * mib, file));
        made = true;
    });
    EXPECT_TRUE(wait_until(
        [&] { return made || (making != 0 && sleeps_in_the_driver(making)); }));
    EXPECT_FALSE(made) << "two have the file";
    slow.suspend(false);
    maker.join();
    {
        const auto client = open_client(next);
        const auto got = allocate(client, 16 * mib);
        const mapping map(client.get(), got.bytes, got.offset);
        fill_pages(map.data(), map.size(), 2);
        press_down_to(next, 0);
        EXPECT_FALSE(first_page_error(map.data(), map.size(), 2));
    }
    EXPECT_EQ(destroy_eventually(control, next), 0);
}

TEST_F(reclaim, WhoWaitsForTheFileLetsOtherThreadsMap)
{
    suspended_disk slow(64 * mib);
    if (!slow.usable)
        GTEST_SKIP() << "no device mapper here";
    const int id =
        create(control, swapping(16 * mib, suspended_disk::open_it()));
    {
        const auto client = open_client(id);
        const auto got = allocate(client, 16 * mib);
        const mapping map(client.get(), got.bytes, got.offset);
        fill_pages(map.data(), map.size(), 1);
        press_down_to(id, 0);
        slow.suspend(true);
        // In another process, so that nothing here needs its locks.
        process user({}, [&](channel &us) -> std::string {
            std::thread toucher([&] {
                us.send(static_cast<u64>(gettid()));
                touch(map.data());
            });
            us.receive();
            void *const more = mmap(nullptr, page, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            us.send(more != MAP_FAILED && munmap(more, page) == 0);
            toucher.join();
            return "";
        });
        const auto toucher = static_cast<pid_t>(user.conversation().receive());
        EXPECT_TRUE(wait_until([&] { return sleeps_in_the_driver(toucher); }));
        user.conversation().send();
        EXPECT_TRUE(wait_until([&] { return has_sent(user); }))
            << "mmap() waits for another thread's memory";
        EXPECT_TRUE(sleeps_in_the_driver(toucher));
        slow.suspend(false);
        EXPECT_EQ(user.conversation().receive(), 1U);
        EXPECT_EQ(user.join(), "");
        EXPECT_FALSE(first_page_error(map.data(), map.size(), 1));
    }
    EXPECT_EQ(destroy_eventually(control, id), 0);
}

TEST_F(reclaim, AMappingThatGoesWhileItsMemoryComesBackIsNoLoss)
{
    suspended_disk slow(64 * mib);
    if (!slow.usable)
        GTEST_SKIP() << "no device mapper here";
    const int id =
        create(control, swapping(16 * mib, suspended_disk::open_it()));
    {
        const auto client = open_client(id);
        const auto got = allocate(client, 16 * mib);
        {
            const mapping map(client.get(), got.bytes, got.offset);
            fill_pages(map.data(), map.size(), 1);
            press_down_to(id, 0);
        }
        slow.suspend(true);
        // Mapping and descriptor go, and another mapping comes there.
        process user({.keep = {client.get()}}, [&](channel &us) -> std::string {
            void *const at = mmap(nullptr, got.bytes, PROT_READ, MAP_SHARED,
                                  client.get(), static_cast<off_t>(got.offset));
            CHILD_EXPECT(at != MAP_FAILED);
            close(client.get());
            unsigned char seen = 1;
            std::thread toucher([&] {
                us.send(static_cast<u64>(gettid()));
                seen = *static_cast<volatile unsigned char *>(at);
            });
            us.receive();
            CHILD_EXPECT(mmap(at, got.bytes, PROT_READ,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                              0) == at);
            us.send();
            toucher.join();
            CHILD_EXPECT(seen == 0);
            return "";
        });
        const auto toucher = static_cast<pid_t>(user.conversation().receive());
        EXPECT_TRUE(wait_until([&] { return sleeps_in_the_driver(toucher); }));
        user.conversation().send();
        EXPECT_TRUE(wait_until([&] { return has_sent(user); }));
        slow.suspend(false);
        EXPECT_EQ(user.join(), "");
        const mapping map(client.get(), got.bytes, got.offset);
        EXPECT_FALSE(first_page_error(map.data(), map.size(), 1));
    }
    EXPECT_EQ(destroy_eventually(control, id), 0);
}

TEST_F(reclaim, WhoWaitsForTheFileCanBeKilledAndItsReadEndsLater)
{
    suspended_disk slow(64 * mib);
    if (!slow.usable)
        GTEST_SKIP() << "no device mapper here";
    const int id =
        create(control, swapping(16 * mib, suspended_disk::open_it()));
    ASSERT_NO_FATAL_FAILURE(kill_who_waits_for(slow, id));
    // The read holds the region until it ends, and the driver is in use.
    EXPECT_TRUE(wait_until([&] { return now(id).clients == 0; }));
    EXPECT_EQ(now(id).unowned_bytes, 16 * mib);
    expect_to_go_once_it_arrives(slow, id);
}

TEST_F(reclaim, AReadThatNobodyWaitsForEndsAfterItsInstanceWasTaken)
{
    suspended_disk slow(64 * mib);
    if (!slow.usable)
        GTEST_SKIP() << "no device mapper here";
    const int id =
        create(control, swapping(16 * mib, suspended_disk::open_it()));
    ASSERT_NO_FATAL_FAILURE(kill_who_waits_for(slow, id));
    auto argument = fresh<emuv_destroy>();
    argument.id = id;
    argument.flags = EMUV_DESTROY_FORCE;
    EXPECT_EQ(call(control, EMUV_IOC_DESTROY, argument), 0);
    control.reset();
    EXPECT_EQ(unload(), EWOULDBLOCK);
    slow.suspend(false);
    EXPECT_EQ(unload_eventually(), 0);
}

TEST_F(reclaim, WhoHoldsAChunkThatDoesNotArriveCanBeKilledAndItGoesLater)
{
    suspended_disk slow(64 * mib);
    if (!slow.usable)
        GTEST_SKIP() << "no device mapper here";
    const int id =
        create(control, swapping(16 * mib, suspended_disk::open_it()));
    {
        process owner({}, [&](channel &us) -> std::string {
            const auto client = open_client(id);
            const auto got = allocate(client, 16 * mib);
            const mapping map(client.get(), got.bytes, got.offset);
            fill_pages(map.data(), map.size(), 1);
            us.send();
            us.receive();
            return "";
        });
        owner.conversation().receive();
        ASSERT_NO_FATAL_FAILURE(hold_up_a_write(slow));
        EXPECT_EQ(kill(owner.pid(), SIGKILL), 0);
        const bool ended = wait_until([&] { return has_ended(owner); });
        if (!ended)
            slow.suspend(false);
        ASSERT_TRUE(ended) << "a process waits for its file for ever";
    }
    EXPECT_TRUE(a_write_waits());
    EXPECT_TRUE(wait_until([&] { return now(id).clients == 0; }));
    EXPECT_EQ(now(id).unowned_bytes, 16 * mib);
    EXPECT_EQ(attribute(id, "lingering_bytes"), std::to_string(16 * mib));
    EXPECT_EQ(now(id).resident_bytes, chunk) << "more than what is on its way";
    expect_to_go_once_it_arrives(slow, id);
}

TEST_F(reclaim, AnInstanceIsTakenThoughAChunkOfItDoesNotArrive)
{
    suspended_disk slow(64 * mib);
    if (!slow.usable)
        GTEST_SKIP() << "no device mapper here";
    for (const bool held : {true, false}) {
        const int id =
            create(control, swapping(16 * mib, suspended_disk::open_it()));
        auto client = open_client(id);
        const auto got = allocate(client, 16 * mib);
        mapping map(client.get(), got.bytes, got.offset);
        fill_pages(map.data(), map.size(), 1);
        ASSERT_NO_FATAL_FAILURE(hold_up_a_write(slow));
        ASSERT_NO_FATAL_FAILURE(take_away(slow, id));
        EXPECT_TRUE(a_write_waits());
        for (u64 at = 0; at < map.size(); at += chunk)
            EXPECT_EQ(signal_of_read(map.data() + at), SIGBUS) << at;
        // The write ends before its region does, or after it.
        if (held) {
            slow.suspend(false);
            EXPECT_TRUE(wait_until([] { return !a_write_waits(); }));
        }
        map.reset();
        client.reset();
        EXPECT_NE(held, a_write_waits()) << "close() waits for the file";
        slow.suspend(false);
        // The places are given back, and the file to the next one.
        EXPECT_TRUE(wait_until([] { return ram_disk::stored() == 0; }));
        const auto file = suspended_disk::open_it();
        auto next = swapping(16 * mib, file);
        int error = EBUSY;
        EXPECT_TRUE(wait_until([&] {
            error = call(control, EMUV_IOC_CREATE, next);
            return error != EBUSY;
        }));
        ASSERT_EQ(error, 0);
        EXPECT_EQ(now(next.id).virtual_used_bytes, 0U);
        EXPECT_EQ(destroy_eventually(control, next.id), 0);
    }
    control.reset();
    EXPECT_EQ(unload_eventually(), 0);
}

TEST_F(reclaim, WhoWritesToTheFileFromMemoryThatIsInItCanBeKilled)
{
    ASSERT_EQ(std::system("mkfs.ext4 -q -F /dev/zram0 && mkdir -p /run/swap && "
                          "mount /dev/zram0 /run/swap"),
              0);
    {
        const auto *const path = "/run/swap/file";
        const descriptor file(static_cast<int>(checked(
            open(path, O_RDWR | O_DIRECT | O_CREAT | O_CLOEXEC, 0600), path)));
        ASSERT_EQ(ftruncate(file.get(), 32 * mib), 0);
        const int id = create(control, swapping(16 * mib, file));
        const auto client = open_client(id);
        const auto got = allocate(client, 16 * mib);
        const mapping map(client.get(), got.bytes, got.offset);
        fill_pages(map.data(), map.size(), 1);
        press_down_to(id, 0);
        // Behind all places. The write holds the lock that the read needs.
        process writer({}, [&](channel &) -> std::string {
            const descriptor mine(open(path, O_WRONLY | O_CLOEXEC));
            return pwrite(mine.get(), map.data(), page, 16 * mib) == page
                       ? "written"
                       : "failed";
        });
        EXPECT_TRUE(
            wait_until([&] { return sleeps_in_the_driver(writer.pid()); }));
        ASSERT_EQ(kill(writer.pid(), SIGKILL), 0);
        EXPECT_TRUE(wait_until([&] { return has_ended(writer); }));
        EXPECT_FALSE(first_page_error(map.data(), map.size(), 1));
    }
    for (const auto &name : names_in("/sys/class/emuv"))
        EXPECT_EQ(destroy_eventually(control, std::stoi(name.substr(4))), 0);
    EXPECT_TRUE(wait_until(
        [] { return std::system("umount /run/swap 2>/dev/null") == 0; }));
}

/// The microseconds for which some process of a group has waited for memory.
u64 stalled_us(const memory_cgroup &group)
{
    const auto text = read_text(group.folder() + "/memory.pressure");
    const auto at = text.find("total=");
    return at == std::string::npos ? 0 : std::stoull(text.substr(at + 6));
}

TEST_F(reclaim, WaitingForAChunkThatComesOrGoesIsAStallForMemory)
{
    suspended_disk slow(64 * mib);
    if (!slow.usable)
        GTEST_SKIP() << "no device mapper here";
    const memory_cgroup group("reclaim-stall");
    if (!group.usable || !exists(group.folder() + "/memory.pressure"))
        GTEST_SKIP() << "no cgroup2 with pressure here";
    const int id = create(control, swapping(chunk, suspended_disk::open_it()));
    {
        const auto client = open_client(id);
        const auto got = allocate(client, chunk);
        const mapping map(client.get(), got.bytes, got.offset);
        fill_pages(map.data(), map.size(), 1);
        process toucher({}, [&](channel &us) -> std::string {
            CHILD_EXPECT(group.enter());
            while (us.receive() != 0) {
                touch(map.data());
                us.send();
            }
            return "";
        });
        const auto stalls = [&] {
            const auto before = stalled_us(group);
            return wait_until([&] { return stalled_us(group) > before; });
        };
        press_down_to(id, 0);
        slow.suspend(true);
        toucher.conversation().send(1);
        EXPECT_TRUE(
            wait_until([&] { return sleeps_in_the_driver(toucher.pid()); }));
        EXPECT_TRUE(stalls()) << "it comes";
        slow.suspend(false);
        toucher.conversation().receive();

        // A touch that comes before the chunk is on its way keeps it here.
        slow.suspend(true);
        EXPECT_TRUE(wait_until([&] {
            press();
            toucher.conversation().send(1);
            wait_until([&] {
                return has_sent(toucher) || sleeps_in_the_driver(toucher.pid());
            });
            if (!has_sent(toucher))
                return true;
            toucher.conversation().receive();
            return false;
        }));
        EXPECT_TRUE(stalls()) << "it goes";
        slow.suspend(false);
        toucher.conversation().receive();
        toucher.conversation().send(0);
        EXPECT_EQ(toucher.join(), "");
        EXPECT_FALSE(first_page_error(map.data(), map.size(), 1));
    }
    EXPECT_EQ(destroy_eventually(control, id), 0);
}

TEST_F(reclaim, WhatIsAwayIsNotResidentInItsClientsSum)
{
    const int id = create_swapping(16 * mib);
    const auto client = open_client(id);
    const auto got = allocate(client, 16 * mib);
    const mapping map(client.get(), got.bytes, got.offset);
    fill_pages(map.data(), map.size(), 1);
    EXPECT_EQ(list_clients(client, 0, EMUV_QUERY_MEMORY)[0].resident_bytes,
              16 * mib);
    press_down_to(id, 0);
    touch(map.data());
    EXPECT_EQ(list_clients(client, 0, EMUV_QUERY_MEMORY)[0].resident_bytes,
              chunk);
    EXPECT_EQ(list_clients(client, 0, EMUV_QUERY_MEMORY)[0].virtual_bytes,
              16 * mib);
}

TEST_F(reclaim, WhatIsAwayComesBackAtTheHostsFloor)
{
    reload_near_floor(near);
    const int id = create_swapping(16 * mib);
    const int other =
        create(control, creation(0, gib, EMUV_ANY, EMUV_CREATE_OVERCOMMIT));
    const auto client = open_client(id);
    const auto got = allocate(client, 16 * mib);
    const mapping map(client.get(), got.bytes, got.offset);
    fill_pages(map.data(), map.size(), 1);
    press_down_to(id, 0);
    // Another instance takes all that there is, and keeps it.
    const auto greedy = open_client(other);
    region taken;
    while (try_allocate(greedy, chunk, taken, EMUV_ALLOC_POPULATE) == 0)
        ;
    EXPECT_FALSE(first_page_error(map.data(), map.size(), 1));
}

TEST_F(reclaim, MemoryThatTheFileDoesNotTakeStays)
{
    const int id = create_swapping(16 * mib);
    const auto client = open_client(id);
    const auto got = allocate(client, 16 * mib);
    const mapping map(client.get(), got.bytes, got.offset);
    fill_pattern(map.data(), map.size(), 1); // needs room on the disk
    ram_disk::limit(mib);
    press();
    press();
    EXPECT_EQ(now(id).resident_bytes, 16 * mib);
    EXPECT_EQ(now(id).swapped_bytes, 0U);
    EXPECT_FALSE(first_pattern_error(map.data(), map.size(), 1));
    ram_disk::limit(0);
    press_down_to(id, 0);
    EXPECT_FALSE(first_pattern_error(map.data(), map.size(), 1));
}

TEST_F(reclaim, AFileThatCannotBeReadGivesErrorsUntilItCan)
{
    const failing_disk broken(64 * mib);
    if (!broken.usable)
        GTEST_SKIP() << "no null_blk here";
    const int id = create(control, swapping(16 * mib, broken.open_it()));
    {
        const auto client = open_client(id);
        const auto got = allocate(client, 16 * mib);
        const mapping map(client.get(), got.bytes, got.offset);
        fill_pages(map.data(), map.size(), 1);
        press_down_to(id, 0);
        if (!broken.fail(true, 16 * mib))
            GTEST_SKIP() << "this kernel's null_blk does not fail";
        char byte = 0;
        EXPECT_EQ(signal_of_read(map.data()), SIGBUS);
        EXPECT_EQ(signal_of_write(map.data() + chunk), SIGBUS);
        EXPECT_EQ(error_of(pread(client.get(), &byte, 1,
                                 static_cast<off_t>(got.offset))),
                  EIO);
        EXPECT_EQ(error_of(pwrite(client.get(), &byte, 1,
                                  static_cast<off_t>(got.offset))),
                  EIO);
        EXPECT_EQ(discard(client, got.offset, chunk / 2), EIO);
        EXPECT_EQ(discard(client, got.offset + 3 * chunk, chunk), 0);
        EXPECT_EQ(now(id).swapped_bytes, 7 * chunk);
        ASSERT_TRUE(broken.fail(false, 16 * mib));
        EXPECT_FALSE(first_page_error(map.data(), 3 * chunk, 1));
        EXPECT_FALSE(first_other(map.data() + 3 * chunk, chunk));
        EXPECT_FALSE(
            first_page_error(map.data() + 4 * chunk, 4 * chunk, 1, 4 * chunk));
    }
    EXPECT_EQ(destroy_eventually(control, id), 0);
}

TEST_F(reclaim, ATouchFailsWhereNothingCanLeave)
{
    reload_near_floor(near);
    const int id = create_swapping(320 * mib);
    const auto client = open_client(id);
    const auto got = allocate(client, 320 * mib);
    const mapping map(client.get(), got.bytes, got.offset);
    std::vector<std::unique_ptr<socket_pin>> pins;
    u64 at = 0;
    for (; at < map.size(); at += chunk) {
        if (signal_of_write(map.data() + at) != 0)
            break;
        pins.push_back(std::make_unique<socket_pin>(map.data() + at, chunk));
        ASSERT_EQ(pins.back()->error(), 0);
    }
    EXPECT_LT(at, map.size()) << "pinned memory has left, or the floor has";
    EXPECT_EQ(now(id).swapped_bytes, 0U);
    pins.clear();
    // The pins' own memory is free now, too, and is room for a few chunks.
    for (; at < map.size() && now(id).swapped_bytes == 0; at += chunk)
        EXPECT_EQ(signal_of_write(map.data() + at), 0);
    EXPECT_GT(now(id).swapped_bytes, 0U);
}

} // namespace
