// SPDX-License-Identifier: GPL-2.0-or-later
// Memory that fails. The kernel takes a failed page out of use. A touch, read
// or write of it then gets an error, and no client gets the page's bytes.
#include "support.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace {

using namespace guest;

class poisoned : public driver_test
{
protected:
    void SetUp() override
    {
        driver_test::SetUp();
        if (HasFatalFailure())
            return;
        id = create(control, mib, 64 * mib);
        client = open_client(id);
        got = allocate(client, 2 * chunk);
        map = mapping(client.get(), got.bytes, got.offset);
        std::memset(map.data(), 'p', map.size());
        // Kernels differ in the answer; the page's flags show the effect.
        signal_of([&] {
            error = error_of(
                madvise(map.data() + bad, page, 100 /* MADV_HWPOISON */));
        });
        if (error == EINVAL || error == EPERM)
            GTEST_SKIP() << "memory cannot be made to fail here: " << error;
    }

    void TearDown() override
    {
        map.reset();
        client.reset();
        driver_test::TearDown();
    }

    off_t at(u64 offset) const
    {
        return static_cast<off_t>(got.offset + offset);
    }

    static constexpr u64 page = 4096;
    static constexpr u64 bad = 7 * page;
    int id = -1;
    int error = 0;
    descriptor client;
    region got;
    mapping map;
};

TEST_F(poisoned, PageIsNotMappedAndItsNeighboursAre)
{
    const mapping again(client.get(), got.bytes, got.offset);
    EXPECT_EQ(signal_of_read(again.data() + bad), SIGBUS);
    EXPECT_EQ(signal_of_write(again.data() + bad + 100), SIGBUS);
    EXPECT_EQ(again[bad - 1], 'p');
    EXPECT_EQ(again[bad + page], 'p');
    EXPECT_EQ(signal_of_write(again.data() + bad + page), 0);
    EXPECT_EQ(again[got.bytes - 1], 'p');
    EXPECT_EQ(signal_of_read(map.data() + bad), SIGBUS)
        << "once it is found, it leaves other mappings";
    EXPECT_EQ(map[bad - 1], 'p');
}

TEST_F(poisoned, PageFirstTouchedByItsOwnFaultIsNotMapped)
{
    const mapping again(client.get(), page, got.offset + bad);
    EXPECT_EQ(signal_of_read(again.data()), SIGBUS);
}

TEST_F(poisoned, ReadEndsBeforeItAndThenGivesEio)
{
    std::vector<char> data(64 * 1024);
    EXPECT_EQ(pread(client.get(), data.data(), data.size(), at(0)),
              static_cast<ssize_t>(bad));
    EXPECT_EQ(data[bad - 1], 'p');
    EXPECT_EQ(error_of(pread(client.get(), data.data(), 1, at(bad))), EIO);
    EXPECT_EQ(error_of(pread(client.get(), data.data(), 1, at(bad + 4095))),
              EIO);
    EXPECT_EQ(pread(client.get(), data.data(), data.size(), at(bad + page)),
              static_cast<ssize_t>(data.size()));
    EXPECT_EQ(signal_of_read(map.data() + bad), SIGBUS);
}

TEST_F(poisoned, WriteEndsBeforeItAndThenGivesEio)
{
    const auto exported = export_region(client, got.offset);
    const std::vector<char> data(64 * 1024, 'w');
    EXPECT_EQ(pwrite(exported.get(), data.data(), data.size(), 0),
              static_cast<ssize_t>(bad));
    EXPECT_EQ(error_of(pwrite(exported.get(), data.data(), 1, bad)), EIO);
    EXPECT_EQ(pwrite(exported.get(), data.data(), 10, bad + page), 10);
    EXPECT_EQ(map[bad + page], 'w');
    EXPECT_EQ(map[bad + page + 10], 'p');
}

TEST_F(poisoned, SystemCallsIntoItFail)
{
    const mapping again(client.get(), got.bytes, got.offset);
    const descriptor zero(open("/dev/zero", O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(error_of(read(zero.get(), again.data() + bad, 10)), EFAULT);
    EXPECT_EQ(read(zero.get(), again.data() + bad + page, 10), 10);
}

TEST_F(poisoned, DiscardOfPartZeroesTheRest)
{
    ASSERT_EQ(discard(client, got.offset + bad - page, 3 * page), 0);
    EXPECT_FALSE(first_other(map.data() + bad - page, page));
    EXPECT_FALSE(first_other(map.data() + bad + page, page));
    EXPECT_EQ(map[bad + 2 * page], 'p');
    EXPECT_EQ(signal_of_read(map.data() + bad), SIGBUS);
}

TEST_F(poisoned, DiscardOfTheChunkBringsOtherMemory)
{
    ASSERT_EQ(discard(client, got.offset, chunk), 0);
    EXPECT_FALSE(first_other(map.data(), chunk));
    EXPECT_EQ(signal_of_write(map.data() + bad), 0);
    EXPECT_EQ(map[chunk], 'p');
}

TEST_F(poisoned, RegionIsFreedAndItsMemoryComesToNobody)
{
    map.reset();
    ASSERT_EQ(release(client, got.offset), 0);
    EXPECT_EQ(query(control, id).resident_bytes, 0U);
    got = allocate(client, 64 * mib);
    map = mapping(client.get(), got.bytes, got.offset);
    EXPECT_FALSE(first_other(map.data(), map.size()));
}

} // namespace
