// SPDX-License-Identifier: GPL-2.0-or-later
// Regions as dma-bufs: mapping, synchronising, size, lifetime, and a device
// that imports one.
#include "support.hpp"
#include "vgem.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <linux/dma-buf.h>
#include <linux/types.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace {

using namespace guest;

constexpr u64 region_bytes = 4 * chunk;

class dmabuf : public driver_test
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
        exported = export_region(client, got.offset, EMUV_EXPORT_DMABUF);
    }

    void TearDown() override
    {
        exported.reset();
        client.reset();
        driver_test::TearDown();
    }

    static int sync(const descriptor &buffer, u64 flags)
    {
        dma_buf_sync argument{};
        argument.flags = flags;
        return call(buffer, DMA_BUF_IOCTL_SYNC, argument);
    }

    int id = -1;
    descriptor client;
    region got;
    descriptor exported;
};

TEST_F(dmabuf, IsOneMemoryWithTheRegion)
{
    const mapping own(client.get(), region_bytes, got.offset);
    const mapping map(exported.get(), region_bytes);
    fill_pattern(own.data(), region_bytes, 1);
    EXPECT_FALSE(first_pattern_error(map.data(), region_bytes, 1));
    fill_pattern(map.data(), region_bytes, 2);
    EXPECT_FALSE(first_pattern_error(own.data(), region_bytes, 2));
}

TEST_F(dmabuf, UntouchedOneReadsZeroAndIsBackedOnTouch)
{
    EXPECT_EQ(query(control, id).resident_bytes, 0U);
    const mapping map(exported.get(), region_bytes);
    EXPECT_EQ(query(control, id).resident_bytes, 0U);
    map[2 * chunk + 5] = 1;
    EXPECT_EQ(query(control, id).resident_bytes, chunk);
    EXPECT_FALSE(first_other(map.data(), 2 * chunk));
}

TEST_F(dmabuf, AFaultMapsAWholeChunk)
{
    const mapping map(exported.get(), region_bytes);
    const long before = minor_faults();
    for (u64 page = 0; page < region_bytes; page += 4096)
        map[page] = 1;
    EXPECT_LE(minor_faults() - before, static_cast<long>(region_bytes / chunk));
}

TEST_F(dmabuf, PartOfItCanBeMapped)
{
    const mapping own(client.get(), region_bytes, got.offset);
    fill_pattern(own.data(), region_bytes, 3);
    const mapping map(exported.get(), chunk, chunk + 4096);
    EXPECT_EQ(std::memcmp(map.data(), own.data() + chunk + 4096, chunk), 0);
}

TEST_F(dmabuf, SizeIsFoundBySeeking)
{
    EXPECT_EQ(lseek(exported.get(), 0, SEEK_END),
              static_cast<off_t>(region_bytes));
    EXPECT_EQ(lseek(exported.get(), 0, SEEK_SET), 0);
}

TEST_F(dmabuf, MappingsBeyondItsEndOrPrivateAreRefused)
{
    EXPECT_EQ(map_error(exported.get(), region_bytes + 4096, 0), EINVAL);
    EXPECT_EQ(map_error(exported.get(), chunk, region_bytes), EINVAL);
    EXPECT_EQ(map_error(exported.get(), 2 * chunk, region_bytes - chunk),
              EINVAL);
    EXPECT_NE(map_error(exported.get(), chunk, 0, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE),
              0);
    EXPECT_EQ(map_error(exported.get(), region_bytes, 0), 0);
}

TEST_F(dmabuf, MappingDoesNotGrowIntoTheNextRegion)
{
    const auto neighbour = allocate(client, chunk);
    ASSERT_EQ(neighbour.offset, got.offset + got.bytes);
    const mapping map(exported.get(), region_bytes);
    EXPECT_EQ(
        mremap(map.data(), region_bytes, region_bytes + chunk, MREMAP_MAYMOVE),
        MAP_FAILED);
}

TEST_F(dmabuf, CpuAccessCanBeBracketed)
{
    for (const u64 way :
         {DMA_BUF_SYNC_READ, DMA_BUF_SYNC_WRITE, DMA_BUF_SYNC_RW}) {
        EXPECT_EQ(sync(exported, DMA_BUF_SYNC_START | way), 0);
        EXPECT_EQ(sync(exported, DMA_BUF_SYNC_END | way), 0);
    }
    EXPECT_EQ(sync(exported, 1U << 30), EINVAL);
}

TEST_F(dmabuf, OfAReadOnlyNodeIsReadOnly)
{
    const auto reader = open_client(id, O_RDONLY);
    const auto theirs = allocate(reader, chunk);
    const auto readable =
        export_region(reader, theirs.offset, EMUV_EXPORT_DMABUF);
    EXPECT_EQ(map_error(readable.get(), chunk, 0), EACCES);
    const mapping map(readable.get(), chunk, 0, PROT_READ);
    EXPECT_EQ(map[0], 0);
}

TEST_F(dmabuf, OutlivesFreeAndClient)
{
    const mapping map(exported.get(), region_bytes);
    fill_pattern(map.data(), region_bytes, 4);
    ASSERT_EQ(release(client, got.offset), 0);
    EXPECT_EQ(query(control, id).unowned_bytes, region_bytes);
    client.reset();
    EXPECT_EQ(query(control, id).clients, 0U);
    EXPECT_EQ(query(control, id).unowned_bytes, region_bytes);
    EXPECT_FALSE(first_pattern_error(map.data(), region_bytes, 4));
    const mapping again(exported.get(), region_bytes);
    EXPECT_FALSE(first_pattern_error(again.data(), region_bytes, 4));
    EXPECT_EQ(destroy(control, id), EBUSY);
}

TEST_F(dmabuf, DiscardShowsInIt)
{
    const mapping map(exported.get(), region_bytes);
    std::memset(map.data(), 'x', region_bytes);
    ASSERT_EQ(discard(client, got.offset, chunk), 0);
    EXPECT_FALSE(first_other(map.data(), chunk));
    EXPECT_FALSE(first_other(map.data() + chunk, region_bytes - chunk, 'x'));
}

TEST_F(dmabuf, SeveralOfOneRegionAreOneMemory)
{
    const auto second = export_region(client, got.offset, EMUV_EXPORT_DMABUF);
    const mapping one(exported.get(), region_bytes);
    const mapping two(second.get(), region_bytes);
    one[9] = 9;
    EXPECT_EQ(two[9], 9);
}

TEST_F(dmabuf, ThousandsComeAndGo)
{
    const auto slab = meminfo("SUnreclaim");
    for (int i = 0; i < 3000; i++)
        export_region(client, got.offset, i % 2 ? EMUV_EXPORT_DMABUF : 0);
    EXPECT_TRUE(holds_back_freed() || wait_until([&] {
                    return meminfo("SUnreclaim") < slab + 2 * mib;
                }));
    ASSERT_EQ(release(client, got.offset), 0);
    exported.reset();
    EXPECT_EQ(query(control, id).virtual_used_bytes, 0U);
}

// --- a device that imports it: vgem, a stock driver. It maps each import for
// DMA at once ---

class importer : public dmabuf
{
protected:
    void SetUp() override
    {
        dmabuf::SetUp();
        if (HasFatalFailure())
            return;
        device = open_vgem();
        if (!device)
            GTEST_SKIP() << "this kernel has no vgem";
        if (!vgem_maps())
            GTEST_SKIP() << "this kernel's vgem does not map what it imports";
    }

    void TearDown() override
    {
        device.reset();
        dmabuf::TearDown();
    }

    /// The device's handle of the buffer.
    __u32 import_into_device(const descriptor &buffer)
    {
        __u32 handle = 0;
        EXPECT_EQ(vgem_import(device, buffer, handle), 0);
        return handle;
    }

    void drop(__u32 handle) { EXPECT_EQ(vgem_drop(device, handle), 0); }

    descriptor device;
};

TEST_F(importer, GetsItsPagesBackedAtOnce)
{
    const auto handle = import_into_device(exported);
    EXPECT_EQ(query(control, id).resident_bytes, region_bytes);
    drop(handle);
}

TEST_F(importer, KeepsItsPagesFromBeingDiscarded)
{
    const mapping map(client.get(), region_bytes, got.offset);
    std::memset(map.data(), 'x', region_bytes);
    const auto region_descriptor = export_region(client, got.offset);
    const auto handle = import_into_device(exported);
    EXPECT_EQ(discard(client, got.offset, chunk), EBUSY);
    EXPECT_EQ(discard(client, got.offset + 5, 5), EBUSY);
    EXPECT_EQ(error_of(fallocate(region_descriptor.get(),
                                 FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                                 static_cast<off_t>(chunk))),
              EBUSY);
    EXPECT_FALSE(first_other(map.data(), region_bytes, 'x'));
    drop(handle);
    EXPECT_TRUE(
        wait_until([&] { return discard(client, got.offset, chunk) == 0; }));
    EXPECT_FALSE(first_other(map.data(), chunk));
}

TEST_F(importer, HoldsTheRegionWhenAllElseIsClosed)
{
    const auto handle = import_into_device(exported);
    exported.reset();
    client.reset();
    EXPECT_EQ(query(control, id).clients, 0U);
    EXPECT_EQ(query(control, id).unowned_bytes, region_bytes);
    EXPECT_EQ(destroy(control, id), EBUSY);
    // Exported again by the device, it is still the same buffer.
    drm_prime_handle out{handle, O_RDWR | O_CLOEXEC, -1};
    ASSERT_EQ(call(device.get(), prime_handle_to_fd, &out), 0);
    {
        const descriptor again(out.fd);
        const mapping map(again.get(), region_bytes);
        map[0] = 1;
        EXPECT_EQ(query(control, id).resident_bytes, region_bytes);
    }
    drop(handle);
    EXPECT_TRUE(
        wait_until([&] { return query(control, id).virtual_used_bytes == 0; }));
    EXPECT_EQ(query(control, id).resident_bytes, 0U);
}

TEST_F(importer, CpuAccessCanBeBracketedWhileImported)
{
    const auto handle = import_into_device(exported);
    const mapping map(exported.get(), region_bytes);
    EXPECT_EQ(sync(exported, DMA_BUF_SYNC_START | DMA_BUF_SYNC_RW), 0);
    fill_pattern(map.data(), region_bytes, 5);
    EXPECT_EQ(sync(exported, DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW), 0);
    EXPECT_FALSE(first_pattern_error(map.data(), region_bytes, 5));
    drop(handle);
}

TEST_F(importer, KilledImporterLetsGo)
{
    device.reset();
    process victim({.keep = {exported.get()}}, [&](channel &us) -> std::string {
        device = descriptor(open("/dev/dri/card0", O_RDWR | O_CLOEXEC));
        import_into_device(exported);
        us.send();
        us.receive();
        return "";
    });
    victim.conversation().receive();
    EXPECT_EQ(query(control, id).resident_bytes, region_bytes);
    EXPECT_EQ(discard(client, got.offset, region_bytes), EBUSY);
    victim.kill_now();
    EXPECT_TRUE(wait_until(
        [&] { return discard(client, got.offset, region_bytes) == 0; }));
    EXPECT_EQ(query(control, id).resident_bytes, 0U);
}

TEST_F(importer, ThatCannotBeServedFailsCleanly)
{
    // The region exceeds the host's memory: the import fails, and nothing stays
    // backed or held.
    exported.reset();
    client.reset();
    ASSERT_EQ(destroy(control, id), 0);
    reload("host_floor_mb=" + std::to_string(settled_available() / mib - 128));
    id = create(control,
                creation(mib, 512 * mib, EMUV_ANY, EMUV_CREATE_OVERCOMMIT));
    client = open_client(id);
    got = allocate(client, 512 * mib);
    exported = export_region(client, got.offset, EMUV_EXPORT_DMABUF);
    __u32 handle = 0;
    EXPECT_EQ(vgem_import(device, exported, handle), ENOMEM);
    EXPECT_EQ(discard(client, got.offset, got.bytes), 0);
    EXPECT_EQ(query(control, id).resident_bytes, 0U);
}

} // namespace
