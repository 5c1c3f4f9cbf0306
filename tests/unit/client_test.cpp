// SPDX-License-Identifier: GPL-2.0-or-later
// A client, its regions and mappings.
#include "fake_kernel.hpp"

#include <emuv/client.hpp>
#include <emuv/control.hpp>
#include <emuv/error.hpp>

#include <algorithm>
#include <cerrno>
#include <type_traits>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

namespace {

using emuv_test::fake_kernel;

constexpr std::uint64_t mib = 1ULL << 20;

static_assert(!std::is_copy_constructible_v<emuv::region>);
static_assert(!std::is_copy_constructible_v<emuv::mapping>);
static_assert(std::is_nothrow_move_constructible_v<emuv::region>);
static_assert(std::is_nothrow_move_constructible_v<emuv::mapping>);

class client : public testing::Test
{
protected:
    void SetUp() override
    {
        kernel_.insert();
        emuv::control control(kernel_.dev(), kernel_);
        for (const int id : {0, 1}) {
            emuv::instance_spec spec;
            spec.id = id;
            spec.gpu_model = "4070";
            spec.physical_bytes = 100 * mib;
            spec.virtual_bytes = 64 * mib;
            control.create(spec);
        }
    }
    [[nodiscard]] emuv::client open(int id = 0)
    {
        return emuv::client(id, kernel_.dev(), kernel_);
    }
    template <typename Call>
    static int errno_of(Call &&call)
    {
        try {
            call();
            return 0;
        } catch (const emuv::error &problem) {
            return problem.number();
        }
    }
    fake_kernel kernel_;
};

TEST_F(client, allocates_whole_chunks_and_lets_go_of_them)
{
    auto own = open();
    {
        const auto region = own.alloc(1);
        EXPECT_EQ(region.bytes(), 2 * mib);
        const auto second = own.alloc(3 * mib);
        EXPECT_EQ(second.bytes(), 4 * mib);
        EXPECT_NE(second.offset(), region.offset());
        EXPECT_EQ(own.query().virtual_used_bytes, 6 * mib);
    }
    EXPECT_EQ(own.query().virtual_used_bytes, 0U);
}

TEST_F(client, says_when_the_instance_is_full)
{
    auto own = open();
    const auto region = own.alloc(64 * mib);
    EXPECT_EQ(errno_of([&] { (void)own.alloc(1); }), ENOSPC);
}

TEST_F(client, populates_only_when_asked)
{
    auto own = open();
    const auto lazy = own.alloc(2 * mib);
    EXPECT_EQ(own.query().resident_bytes, 0U);
    const auto eager = own.alloc(4 * mib, true);
    EXPECT_EQ(own.query().resident_bytes, 4 * mib);
}

TEST_F(client, maps_a_region_and_a_part_of_it)
{
    auto own = open();
    const auto filler = own.alloc(2 * mib);
    const auto region = own.alloc(4 * mib);
    const auto all = region.map();
    ASSERT_EQ(all.size(), 4 * mib);
    EXPECT_TRUE(std::all_of(all.bytes().begin(), all.bytes().end(),
                            [](std::byte b) { return b == std::byte{0}; }));
    all.data()[3 * mib] = std::byte{42};
    const auto part = region.map(3 * mib, 4096, false);
    EXPECT_EQ(part.data()[0], std::byte{42});
    EXPECT_EQ(errno_of([&] { (void)region.map(4 * mib, 1); }), EINVAL);
    EXPECT_EQ(errno_of([&] { (void)region.map(2 * mib, 4 * mib); }), EINVAL);
    EXPECT_EQ(errno_of([&] { (void)region.map(~0ULL, 2); }), EINVAL);
}

TEST_F(client, mapping_moves_and_goes_with_its_owner)
{
    auto own = open();
    const auto region = own.alloc(2 * mib);
    auto first = region.map();
    std::byte *const at = first.data();
    emuv::mapping second = std::move(first);
    EXPECT_EQ(second.data(), at);
    second = region.map();
    EXPECT_TRUE(second);
}

TEST_F(client, discarded_range_reads_as_zeros)
{
    auto own = open();
    const auto region = own.alloc(4 * mib);
    const auto at = region.map();
    at.data()[2 * mib] = std::byte{1};
    region.discard(2 * mib, 2 * mib);
    EXPECT_EQ(at.data()[2 * mib], std::byte{0});
    EXPECT_EQ(errno_of([&] { region.discard(2 * mib, 4 * mib); }), EINVAL);
    EXPECT_EQ(errno_of([&] { own.discard(0, 65 * mib); }), EINVAL);
    EXPECT_EQ(errno_of([&] { own.discard(8 * mib, mib); }), EACCES);
}

TEST_F(client, region_outlives_the_client_object)
{
    emuv::region region;
    {
        auto own = open();
        region = own.alloc(2 * mib);
    }
    EXPECT_EQ(kernel_.open_files(), 1U);
    EXPECT_TRUE(region.map());
    region = emuv::region();
    EXPECT_EQ(kernel_.open_files(), 0U);
}

TEST_F(client, assignment_lets_go_of_the_region_before)
{
    auto own = open();
    auto region = own.alloc(2 * mib);
    region = own.alloc(4 * mib);
    EXPECT_EQ(own.query().virtual_used_bytes, 4 * mib);
}

TEST_F(client, released_region_lives_until_the_client_goes)
{
    auto watcher = open();
    std::uint64_t offset = 0;
    {
        auto own = open();
        offset = own.alloc(2 * mib).release();
        EXPECT_EQ(own.query().virtual_used_bytes, 2 * mib);
    }
    EXPECT_EQ(offset, 0U);
    EXPECT_EQ(watcher.query().virtual_used_bytes, 0U);
}

TEST_F(client, free_tells_of_its_failure)
{
    auto own = open();
    auto region = own.alloc(2 * mib);
    kernel_.fail(EMUV_IOC_FREE, ENOENT);
    EXPECT_EQ(errno_of([&] { region.free(); }), ENOENT);
    EXPECT_FALSE(region);
    EXPECT_EQ(errno_of([&] { region.free(); }), 0);
}

TEST_F(client, region_passes_by_descriptor)
{
    auto owner = open();
    auto other = open();
    auto region = owner.alloc(2 * mib);
    const auto fd = region.export_region();
    ASSERT_TRUE(fd);
    {
        const auto held = other.import(fd.get());
        EXPECT_EQ(held.bytes(), 2 * mib);
        EXPECT_EQ(held.offset(), region.offset());
        EXPECT_EQ(errno_of([&] { (void)other.import(fd.get()); }), EEXIST);
        region.free();
        EXPECT_EQ(other.query().unowned_bytes, 2 * mib);
    }
    EXPECT_EQ(other.query().virtual_used_bytes, 0U);
}

TEST_F(client, import_refuses_strangers)
{
    auto own = open(0);
    auto stranger = open(1);
    const auto region = own.alloc(2 * mib);
    const auto fd = region.export_region();
    EXPECT_EQ(errno_of([&] { (void)stranger.import(fd.get()); }), EXDEV);
    EXPECT_EQ(errno_of([&] { (void)own.import(-1); }), EBADF);
    const emuv::unique_fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    EXPECT_EQ(errno_of([&] { (void)own.import(null.get()); }), EINVAL);
    EXPECT_TRUE(region.export_dmabuf());
}

TEST_F(client, charges_within_the_limit_only)
{
    auto own = open();
    EXPECT_EQ(own.charge(60 * mib), 40 * mib);
    auto other = open();
    EXPECT_EQ(errno_of([&] { other.charge(41 * mib); }), ENOSPC);
    EXPECT_EQ(other.charge(40 * mib), 0U);
    EXPECT_EQ(errno_of([&] { other.uncharge(41 * mib); }), EINVAL);
    EXPECT_EQ(own.uncharge(60 * mib), 60 * mib);
}

TEST_F(client, reports_add_up)
{
    auto own = open();
    own.report({1, 2, 3, 4, 5, 6, 7});
    own.report({10, 20, 30, 40, 50, 60, 70});
    EXPECT_EQ(own.query().moved, (emuv::counters{11, 22, 33, 44, 55, 66, 77}));
    const auto clients = own.clients();
    ASSERT_EQ(clients.size(), 1U);
    EXPECT_EQ(clients.front().moved,
              (emuv::counters{11, 22, 33, 44, 55, 66, 77}));
    EXPECT_EQ(clients.front().pid, ::getpid());
}

TEST_F(client, asks_its_own_node)
{
    const auto own = open(1);
    EXPECT_EQ(own.query().id, 1);
    EXPECT_EQ(own.version().module_version, "0.1.0");
}

TEST_F(client, refuses_a_module_of_another_abi_or_chunk)
{
    kernel_.abi = EMUV_ABI_VERSION + 1;
    EXPECT_THROW((void)open(1), emuv::abi_mismatch);
    kernel_.abi = EMUV_ABI_VERSION;
    kernel_.chunk_bytes = EMUV_CHUNK_BYTES / 2;
    EXPECT_THROW((void)open(1), emuv::abi_mismatch);
}

TEST_F(client, cannot_open_what_is_not_there)
{
    EXPECT_EQ(errno_of([&] { (void)open(5); }), ENOENT);
}

} // namespace
