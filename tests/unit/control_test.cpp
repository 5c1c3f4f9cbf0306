// SPDX-License-Identifier: GPL-2.0-or-later
// The control node.
#include "fake_kernel.hpp"

#include <emuv/control.hpp>
#include <emuv/error.hpp>

#include <cerrno>
#include <utility>

#include <gmock/gmock.h>

namespace {

using emuv_test::fake_kernel;

class control : public testing::Test
{
protected:
    void SetUp() override { kernel_.insert(); }
    [[nodiscard]] emuv::control open()
    {
        return emuv::control(kernel_.dev(), kernel_);
    }
    static emuv::instance_spec spec(int id = emuv::any)
    {
        emuv::instance_spec what;
        what.id = id;
        what.gpu_model = "RTX 4070 Ti";
        what.physical_bytes = 12ULL << 30;
        what.virtual_bytes = 2ULL << 30;
        what.numa_node = 0;
        what.pci_device_id = 0x2782;
        return what;
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

TEST_F(control, creates_what_it_is_asked_for)
{
    auto node = open();
    const int id = node.create(spec());
    EXPECT_EQ(id, 0);
    const auto info = node.query(id);
    EXPECT_EQ(info.gpu_model, "RTX 4070 Ti");
    EXPECT_EQ(info.physical_bytes, 12ULL << 30);
    EXPECT_EQ(info.virtual_bytes, 2ULL << 30);
    EXPECT_EQ(info.numa_node, 0);
    EXPECT_EQ(info.pci_device_id, 0x2782);
    EXPECT_EQ(info.uuid, "00112233-4455-6677-8899-aabbccddee00");
    EXPECT_EQ(node.create(spec(7)), 7);
    EXPECT_EQ(node.create(spec()), 1);
}

TEST_F(control, failure_names_the_instance_the_node_and_the_call)
{
    auto node = open();
    node.create(spec(3));
    try {
        node.create(spec(3));
        FAIL() << "made twice";
    } catch (const emuv::error &problem) {
        EXPECT_EQ(problem.number(), EEXIST);
        EXPECT_EQ(problem.id(), 3);
        EXPECT_EQ(problem.call(), "EMUV_IOC_CREATE");
        EXPECT_EQ(problem.node(), (kernel_.dev() / "emuv-control").string());
    }
}

TEST_F(control, refuses_a_name_that_would_be_cut)
{
    auto what = spec();
    what.gpu_model = std::string(EMUV_MODEL_LEN, 'x');
    EXPECT_EQ(errno_of([&] { open().create(what); }), EINVAL);
    what.gpu_model.pop_back();
    auto node = open();
    EXPECT_EQ(node.query(node.create(what)).gpu_model, what.gpu_model);
}

TEST_F(control, passes_overcommit_on)
{
    kernel_.promisable = 1 << 30;
    auto what = spec();
    EXPECT_EQ(errno_of([&] { open().create(what); }), ENOMEM);
    what.overcommit = true;
    EXPECT_EQ(open().create(what), 0);
}

TEST_F(control, passes_a_clients_part_on)
{
    auto node = open();
    auto what = spec();
    EXPECT_EQ(node.query(node.create(what)).client_virtual_bytes,
              what.virtual_bytes);
    what.client_virtual_bytes = EMUV_CHUNK_BYTES;
    EXPECT_EQ(node.query(node.create(what)).client_virtual_bytes,
              EMUV_CHUNK_BYTES);
}

TEST_F(control, passes_guaranteed_on)
{
    auto node = open();
    auto what = spec();
    what.guaranteed = true;
    const auto made = node.query(node.create(what));
    EXPECT_TRUE(made.guaranteed);
    EXPECT_EQ(made.reserve_bytes, what.virtual_bytes);
    what.overcommit = true;
    EXPECT_EQ(errno_of([&] { node.create(what); }), EINVAL);
}

TEST_F(control, destroys_and_says_what_is_not_there_or_in_use)
{
    auto node = open();
    node.create(spec(2));
    const int fd = kernel_.open_as(2, 1, "x");
    EXPECT_EQ(errno_of([&] { node.destroy(2); }), EBUSY);
    EXPECT_EQ(node.try_destroy(2), -EBUSY);
    kernel_.close(fd);
    node.destroy(2);
    EXPECT_EQ(errno_of([&] { node.destroy(2); }), ENODEV);
    EXPECT_EQ(errno_of([&] { (void)node.query(2); }), ENODEV);
}

TEST_F(control, takes_an_instance_from_its_holders)
{
    auto node = open();
    node.create(spec(2));
    const int fd = kernel_.open_as(2, 1, "x");
    node.revoke(2);
    EXPECT_EQ(errno_of([&] { (void)node.query(2); }), ENODEV);
    EXPECT_EQ(errno_of([&] { node.revoke(2); }), ENODEV);
    kernel_.close(fd);
}

TEST_F(control, lists_instances_by_number)
{
    auto node = open();
    EXPECT_TRUE(node.instances().empty());
    EXPECT_EQ(node.query_next(0), std::nullopt);
    for (const int id : {9, 0, 1023})
        node.create(spec(id));
    std::vector<int> ids;
    for (const auto &one : node.instances())
        ids.push_back(one.id);
    EXPECT_THAT(ids, testing::ElementsAre(0, 9, 1023));
    EXPECT_EQ(node.query_next(1)->id, 9);
}

TEST_F(control, lists_the_clients_of_an_instance)
{
    auto node = open();
    node.create(spec(4));
    EXPECT_TRUE(node.clients(4).empty());
    const int first = kernel_.open_as(4, 100, "python");
    const int second = kernel_.open_as(4, 200, "train");
    const auto clients = node.clients(4);
    ASSERT_EQ(clients.size(), 2U);
    EXPECT_EQ(clients[0].pid, 100);
    EXPECT_EQ(clients[0].comm, "python");
    EXPECT_EQ(clients[1].pid, 200);
    EXPECT_LT(clients[0].client, clients[1].client);
    kernel_.close(first);
    kernel_.close(second);
    EXPECT_EQ(errno_of([&] { (void)node.clients(5); }), ENODEV);
}

TEST_F(control, resizes_an_instance)
{
    auto node = open();
    node.create(spec(4));
    const auto before = node.query(4);
    node.resize(4, before.physical_bytes + 5, std::nullopt);
    EXPECT_EQ(node.query(4).physical_bytes, before.physical_bytes + 5);
    EXPECT_EQ(node.query(4).virtual_bytes, before.virtual_bytes);
    node.resize(4, std::nullopt, before.virtual_bytes + EMUV_CHUNK_BYTES);
    EXPECT_EQ(node.query(4).physical_bytes, before.physical_bytes + 5);
    EXPECT_EQ(node.query(4).virtual_bytes,
              before.virtual_bytes + EMUV_CHUNK_BYTES);
    node.resize(4, 7, 0);
    EXPECT_EQ(node.query(4).total_bytes(), 7U);
    EXPECT_EQ(errno_of([&] { node.resize(5, 7, 0); }), ENODEV);
    EXPECT_EQ(errno_of([&] { node.resize(4, std::nullopt, 1); }), EINVAL);
}

TEST_F(control, refuses_a_module_of_another_abi)
{
    for (const auto &[abi, what] :
         {std::pair{EMUV_ABI_VERSION - 1U, "load a newer module"},
          {EMUV_ABI_VERSION + 1U, "install newer tools"}}) {
        kernel_.abi = abi;
        try {
            (void)open();
            ADD_FAILURE() << "ABI " << abi << " was taken";
        } catch (const emuv::abi_mismatch &error) {
            EXPECT_EQ(error.number(), EPROTO);
            EXPECT_EQ(error.what(),
                      (kernel_.dev() / "emuv-control").string() +
                          ": the module (version 0.1.0) speaks ABI " +
                          std::to_string(abi) + ", this program " +
                          std::to_string(EMUV_ABI_VERSION) + ": " + what);
        }
    }
    kernel_.abi = EMUV_ABI_VERSION;
    (void)open();
}

TEST_F(control, says_which_driver_answers)
{
    const auto version = open().version();
    EXPECT_EQ(version.abi, static_cast<unsigned>(EMUV_ABI_VERSION));
    EXPECT_EQ(version.chunk_bytes, EMUV_CHUNK_BYTES);
    EXPECT_EQ(version.module_version, "0.1.0");
}

TEST_F(control, cannot_be_opened_without_the_module)
{
    kernel_.remove();
    EXPECT_EQ(errno_of([&] { (void)open(); }), ENOENT);
}

TEST_F(control, is_closed_with_its_last_owner)
{
    {
        auto node = open();
        const auto moved = std::move(node);
        EXPECT_EQ(kernel_.open_files(), 1U);
    }
    EXPECT_EQ(kernel_.open_files(), 0U);
}

TEST(instance_name, is_emuv_and_the_number)
{
    EXPECT_EQ(emuv::instance_name(0), "emuv0");
    EXPECT_EQ(emuv::instance_name(1023), "emuv1023");
}

TEST(format_uuid, is_big_endian_in_five_groups)
{
    std::array<std::uint8_t, 16> uuid{};
    for (std::uint8_t i = 0; i < 16; i++)
        uuid[i] = static_cast<std::uint8_t>(i * 17);
    EXPECT_EQ(emuv::format_uuid(uuid), "00112233-4455-6677-8899-aabbccddeeff");
}

} // namespace
