// SPDX-License-Identifier: GPL-2.0-or-later
// Memory that a host hands to this guest as an ivshmem device. The driver makes
// an instance of it if it is asked to, and programs notice no difference.
#include "pin.hpp"
#include "support.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using namespace guest;

const std::string devices = "/sys/bus/pci/devices/";
const std::string our_driver = "/sys/bus/pci/drivers/emuv";

/// The addresses of this machine's devices of a kind: ivshmem devices.
std::vector<std::string> addresses(const std::string &vendor = "0x1af4",
                                   const std::string &kind = "0x1110")
{
    std::vector<std::string> found;
    for (const auto &name : names_in(devices))
        if (read_text(devices + name + "/vendor") == vendor &&
            read_text(devices + name + "/device") == kind)
            found.push_back(name);
    std::sort(found.begin(), found.end());
    return found;
}

/// True if the kernel has what the driver needs for such a device.
bool has_pages_for_devices()
{
    static const int error = [] {
        const int loaded = load("ivshmem=0000:3f:1f.7");
        if (!loaded)
            unload_eventually();
        return loaded;
    }();
    return error != EOPNOTSUPP;
}

class ivshmem : public driver_test
{
protected:
    void SetUp() override
    {
        const auto found = addresses();
        if (found.empty())
            GTEST_SKIP()
                << "no ivshmem device: see guest_tests in scripts/test";
        if (!has_pages_for_devices())
            GTEST_SKIP() << "this kernel has no pages for devices' memory";
        driver_test::SetUp();
        address = found.front();
        device = devices + address;
        write_text(device + "/enable", "1");
        memory = descriptor(static_cast<int>(
            checked(open((device + "/resource2").c_str(), O_RDWR | O_CLOEXEC),
                    "resource2")));
        struct stat status
        {};
        checked(fstat(memory.get(), &status), "resource2");
        size = static_cast<u64>(status.st_size);
        ASSERT_GE(size, 16 * chunk);
    }

    /// The memory as the host sees it. Only while the driver has not taken it.
    /// A new instance hands out the device's chunks in their order.
    mapping as_the_host() const { return mapping(memory.get(), size); }

    /// Loads the module so that the device is emuv0.
    void take(const std::string &more = "")
    {
        reload("ivshmem=" + address + more);
        ASSERT_TRUE(exists(node_path(0)));
    }

    bool bind() const { return write_text(our_driver + "/bind", address); }
    bool unbind() const { return write_text(our_driver + "/unbind", address); }
    bool is_bound() const { return exists(our_driver + "/" + address); }

    std::string address;
    std::string device; ///< its folder in sysfs
    descriptor memory;
    u64 size = 0;
};

TEST_F(ivshmem, DeviceIsLeftAloneUnlessItIsAskedFor)
{
    EXPECT_FALSE(exists(our_driver));
    EXPECT_TRUE(names_in("/sys/class/emuv").empty());
    reload("ivshmem=0000:3f:1f.7");
    EXPECT_FALSE(is_bound());
    EXPECT_FALSE(exists(device + "/driver"));
    EXPECT_TRUE(names_in("/sys/class/emuv").empty());
    EXPECT_FALSE(bind()) << "not even by hand";
}

TEST_F(ivshmem, DeviceThatIsNamedIsAnInstanceOfItsSize)
{
    take();
    const auto now = query(control, 0);
    EXPECT_EQ(now.virtual_bytes, size);
    EXPECT_EQ(now.physical_bytes, 0U);
    EXPECT_EQ(now.reserve_bytes, size);
    EXPECT_EQ(now.resident_bytes, 0U);
    EXPECT_EQ(now.created, unsigned{EMUV_CREATE_GUARANTEED});
    EXPECT_STREQ(now.gpu_model, "ivshmem");
    EXPECT_EQ(attribute(0, "device/vendor"), "0x1af4");
}

TEST_F(ivshmem, AllAreTakenWhereAllAreAskedFor)
{
    reload("ivshmem=all");
    EXPECT_EQ(names_in("/sys/class/emuv").size(), addresses().size());
    EXPECT_TRUE(is_bound());
}

TEST_F(ivshmem, AddressIsANumberHoweverItIsWritten)
{
    auto shout = address;
    std::transform(shout.begin(), shout.end(), shout.begin(), ::toupper);
    reload("ivshmem=" + shout.substr(3));
    EXPECT_TRUE(is_bound()) << shout;
}

TEST_F(ivshmem, DeviceOfAnotherKindIsRefusedHoweverItComes)
{
    // It has memory of the right size in the same place.
    const auto others = addresses("0x1b36", "0x0005");
    if (others.empty())
        GTEST_SKIP() << "no pci-testdev: see guest_tests in scripts/test";
    reload("ivshmem=all");
    const auto before = names_in("/sys/class/emuv").size();
    kernel_log log;
    ASSERT_TRUE(
        write_text(devices + others.front() + "/driver_override", "emuv"));
    EXPECT_FALSE(write_text(our_driver + "/bind", others.front()));
    write_text(devices + others.front() + "/driver_override", "\n");
    EXPECT_FALSE(exists(our_driver + "/" + others.front()));
    EXPECT_EQ(names_in("/sys/class/emuv").size(), before);
    const auto lines = log.lines();
    EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const auto &line) {
        return line.find("1b36:0005 is no ivshmem device") != std::string::npos;
    }));
}

TEST_F(ivshmem, OtherInstancesAreMadeAsEver)
{
    take(" physical_vram_mb=4 virtual_vram_mb=0 instance_id=5");
    EXPECT_EQ(query(control, 5).physical_bytes, 4 * mib);
    EXPECT_EQ(create(control, mib, 16 * mib), 1);
}

TEST_F(ivshmem, NothingOfTheGuestsOwnMemoryIsPromised)
{
    take(" host_floor_mb=1073741824");
    auto argument = creation(0, 2 * mib);
    EXPECT_EQ(call(control, EMUV_IOC_CREATE, argument), ENOMEM)
        << "the floor is above all";
    const auto client = open_client(0);
    const auto got = allocate(client, size, EMUV_ALLOC_POPULATE);
    EXPECT_EQ(query(control, 0).resident_bytes, size);
    EXPECT_EQ(query(control, 0).state & EMUV_STATE_NEAR_FLOOR, 0U);
    EXPECT_EQ(release(client, got.offset), 0);
}

TEST_F(ivshmem, BytesAreTheHostsOnceTheyAreWritten)
{
    take();
    {
        const auto client = open_client(0);
        const auto got = allocate(client, size);
        const mapping map(client.get(), got.bytes, got.offset);
        fill_pattern(map.data(), size / 2, 7);
        std::vector<unsigned char> bytes(size / 2);
        fill_pattern(bytes.data(), bytes.size(), 8);
        EXPECT_EQ(pwrite(client.get(), bytes.data(), bytes.size(),
                         static_cast<off_t>(got.offset + size / 2)),
                  static_cast<ssize_t>(bytes.size()));
        EXPECT_FALSE(first_pattern_error(map.data() + size / 2, size / 2, 8));
        // It ends with its bytes: whoever frees memory wipes it.
        ASSERT_TRUE(unbind());
    }
    const auto seen = as_the_host();
    EXPECT_FALSE(first_pattern_error(seen.data(), size / 2, 7));
    EXPECT_FALSE(first_pattern_error(seen.data() + size / 2, size / 2, 8));
}

TEST_F(ivshmem, BytesThatWereThereBeforeAreSeenByNobody)
{
    {
        const auto seen = as_the_host();
        fill_pattern(seen.data(), size, 3);
    }
    take();
    const auto client = open_client(0);
    const auto got = allocate(client, size);
    EXPECT_TRUE(reads_zero(client.get(), got.offset, got.bytes));
    const mapping map(client.get(), got.bytes, got.offset);
    EXPECT_FALSE(first_other(map.data(), map.size()));
}

TEST_F(ivshmem, FreedBytesAreSeenByNobody)
{
    take();
    {
        const auto client = open_client(0);
        const auto got = allocate(client, size);
        const mapping map(client.get(), got.bytes, got.offset);
        fill_pattern(map.data(), map.size(), 4);
    }
    EXPECT_TRUE(
        wait_until([&] { return query(control, 0).reserve_bytes == size; }));
    const auto client = open_client(0);
    const auto got = allocate(client, size);
    EXPECT_TRUE(reads_zero(client.get(), got.offset, got.bytes));
}

TEST_F(ivshmem, LedgerHasItsSizeForALimit)
{
    take();
    const auto client = open_client(0);
    region more;
    EXPECT_EQ(try_allocate(client, size + chunk, more), ENOSPC);
    const auto got = allocate(client, size);
    EXPECT_EQ(try_allocate(client, chunk, more), ENOSPC);
    EXPECT_EQ(query(control, 0).virtual_used_bytes, size);
    EXPECT_EQ(discard(client, got.offset, size), 0);
    EXPECT_EQ(release(client, got.offset), 0);
    EXPECT_EQ(query(control, 0).virtual_used_bytes, 0U);
    EXPECT_EQ(charge(client, 1), ENOSPC) << "it has no VRAM";
}

TEST_F(ivshmem, RegionsAreSharedAsEver)
{
    take();
    const auto client = open_client(0), other = open_client(0);
    const auto got = allocate(client, 4 * chunk);
    const auto exported = export_region(client, got.offset);
    region same;
    ASSERT_EQ(import_region(other, exported, same), 0);
    const mapping one(client.get(), got.bytes, got.offset);
    const mapping two(other.get(), same.bytes, same.offset);
    fill_pattern(one.data(), one.size(), 5);
    EXPECT_FALSE(first_pattern_error(two.data(), two.size(), 5));
    EXPECT_EQ(discard(client, got.offset, got.bytes), 0);
    EXPECT_FALSE(first_other(two.data(), two.size()));
}

TEST_F(ivshmem, SizeIsTheDevicesForGood)
{
    take();
    auto argument = fresh<emuv_resize>();
    argument.flags = EMUV_RESIZE_VIRTUAL;
    for (const u64 bytes : {size / 2, size + chunk}) {
        argument.virtual_bytes = bytes;
        EXPECT_EQ(call(control, EMUV_IOC_RESIZE, argument), EINVAL) << bytes;
    }
    EXPECT_EQ(query(control, 0).virtual_bytes, size);
    argument.flags = EMUV_RESIZE_PHYSICAL;
    argument.virtual_bytes = 0;
    argument.physical_bytes = gib;
    EXPECT_EQ(call(control, EMUV_IOC_RESIZE, argument), 0)
        << "a passed-through card's share may be counted there";
    EXPECT_EQ(charge(open_client(0), gib), 0);
}

TEST_F(ivshmem, UnboundDeviceIsLostToItsHolders)
{
    take();
    auto client = open_client(0);
    const auto got = allocate(client, size, EMUV_ALLOC_POPULATE);
    const auto exported = export_region(client, got.offset);
    mapping map(client.get(), got.bytes, got.offset);
    map[0] = 1;
    ASSERT_TRUE(unbind());
    EXPECT_FALSE(exists(node_path(0)));
    char byte = 0;
    EXPECT_EQ(
        error_of(pread(client.get(), &byte, 1, static_cast<off_t>(got.offset))),
        ENODEV);
    EXPECT_EQ(error_of(pread(exported.get(), &byte, 1, 0)), ENODEV);
    EXPECT_EQ(signal_of_read(map.data()), SIGBUS);
    EXPECT_EQ(signal_of_write(map.data() + chunk), SIGBUS);

    ASSERT_TRUE(bind()) << "the holders are still there";
    const auto next = open_client(0);
    const auto theirs = allocate(next, size);
    EXPECT_TRUE(reads_zero(next.get(), theirs.offset, theirs.bytes));
    EXPECT_EQ(signal_of_read(map.data()), SIGBUS);
    EXPECT_EQ(charge(client, 0), ENODEV);
}

TEST_F(ivshmem, DestroyedInstanceComesBackAsTheDeviceIsBoundAgain)
{
    take();
    ASSERT_EQ(destroy(control, 0), 0);
    EXPECT_TRUE(is_bound());
    ASSERT_TRUE(unbind());
    ASSERT_TRUE(bind());
    EXPECT_EQ(query(control, 0).reserve_bytes, size);
    {
        const auto client = open_client(0);
        allocate(client, size, EMUV_ALLOC_POPULATE);
        ASSERT_EQ(destroy(control, 0, EMUV_DESTROY_FORCE), 0);
        ASSERT_TRUE(unbind());
        ASSERT_TRUE(bind());
    }
    EXPECT_EQ(query(control, 0).reserve_bytes, size);
}

TEST_F(ivshmem, UnbindingWaitsUntilNothingPinsTheMemory)
{
    take();
    const auto client = open_client(0);
    const auto got = allocate(client, 4 * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    std::memset(map.data(), 'p', map.size());
    auto pinned = std::make_unique<socket_pin>(map.data(), map.size());
    ASSERT_EQ(pinned->error(), 0);
    EXPECT_EQ(list_clients(control, 0, EMUV_QUERY_MEMORY).at(0).pinned_bytes,
              got.bytes);
    kernel_log log;
    auto unbound = std::async(std::launch::async, [&] { return unbind(); });
    EXPECT_TRUE(wait_until([&] {
        const auto lines = log.lines();
        return std::any_of(lines.begin(), lines.end(), [](const auto &line) {
            return line.find("waits for those who have its memory pinned") !=
                   std::string::npos;
        });
    }));
    EXPECT_EQ(unbound.wait_for(std::chrono::seconds(0)),
              std::future_status::timeout);
    EXPECT_EQ(signal_of_read(map.data()), SIGBUS) << "the holders do not wait";
    pinned.reset();
    EXPECT_TRUE(unbound.get());
    const auto seen = as_the_host();
    EXPECT_FALSE(first_other(seen.data(), map.size(), 'p'));
}

TEST_F(ivshmem, DevicesReadAndWriteItWherePagesArePinned)
{
    take();
    const auto client = open_client(0);
    const auto got = allocate(client, 4 * chunk);
    const mapping map(client.get(), got.bytes, got.offset);
    fill_pattern(map.data(), map.size(), 6);
    pin pinned(map.data(), map.size());
    if (pinned.error() == EOPNOTSUPP)
        GTEST_SKIP() << "io_uring registers no memory of device files here";
    ASSERT_EQ(pinned.error(), 0);
    const descriptor file(static_cast<int>(
        checked(memfd_create("emuv-test", MFD_CLOEXEC), "memfd_create")));
    checked(ftruncate(file.get(), static_cast<off_t>(map.size())), "ftruncate");
    const mapping contents(file.get(), map.size());
    ASSERT_EQ(pinned.to_file(file.get(), map.data(),
                             static_cast<unsigned>(map.size()), 0),
              static_cast<int>(map.size()));
    EXPECT_FALSE(first_pattern_error(contents.data(), map.size(), 6));
    fill_pattern(contents.data(), map.size(), 9);
    ASSERT_EQ(pinned.from_file(file.get(), map.data(),
                               static_cast<unsigned>(map.size()), 0),
              static_cast<int>(map.size()));
    EXPECT_FALSE(first_pattern_error(map.data(), map.size(), 9));
}

TEST_F(ivshmem, WritersRaceWithUnbinding)
{
    take();
    const auto write_until_it_is_lost = [this](channel &) -> std::string {
        const auto client = open_client(0);
        const auto got = allocate(client, size / 4);
        const std::vector<char> bytes(size / 4, 'w');
        int error = 0;
        while (!error)
            error = error_of(pwrite(client.get(), bytes.data(), bytes.size(),
                                    static_cast<off_t>(got.offset)));
        CHILD_EXPECT(error == ENODEV);
        return "";
    };
    for (int round = 0; round < 5; round++) {
        process one(write_until_it_is_lost), two(write_until_it_is_lost);
        ASSERT_TRUE(wait_until(
            [&] { return query(control, 0).resident_bytes >= size / 4; }));
        ASSERT_TRUE(wait_until(
            [&] { return query(control, 0).virtual_used_bytes == size / 2; }));
        ASSERT_TRUE(unbind());
        EXPECT_EQ(one.join(), "");
        EXPECT_EQ(two.join(), "");
        ASSERT_TRUE(bind());
        EXPECT_EQ(query(control, 0).reserve_bytes, size);
    }
}

} // namespace
