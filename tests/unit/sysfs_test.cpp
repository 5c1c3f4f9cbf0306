// SPDX-License-Identifier: GPL-2.0-or-later
// The values read from sysfs.
#include "fake_kernel.hpp"

#include <emuv/control.hpp>
#include <emuv/error.hpp>
#include <emuv/sysfs.hpp>

#include <cerrno>
#include <cstdlib>

#include <gmock/gmock.h>

namespace {

using emuv_test::fake_kernel;
using emuv_test::write_file;
using testing::ElementsAre;

class sysfs : public testing::Test
{
protected:
    void SetUp() override { kernel_.insert(); }
    void make(int id)
    {
        emuv::instance_spec spec;
        spec.id = id;
        spec.gpu_model = "4070";
        spec.physical_bytes = 12ULL << 30;
        spec.virtual_bytes = 2ULL << 30;
        spec.pci_device_id = 0x2786;
        emuv::control(kernel_.dev(), kernel_).create(spec);
    }
    [[nodiscard]] emuv::sysfs reader() const
    {
        return emuv::sysfs(kernel_.sys());
    }
    fake_kernel kernel_;
};

TEST_F(sysfs, says_whether_the_module_is_loaded_and_which)
{
    EXPECT_TRUE(reader().loaded());
    EXPECT_EQ(reader().module_version(), "0.1.0");
    EXPECT_EQ(reader().parameter("host_floor_mb"), "1024");
    EXPECT_EQ(reader().parameter("no_such"), std::nullopt);
    kernel_.remove();
    EXPECT_FALSE(reader().loaded());
    EXPECT_EQ(reader().module_version(), std::nullopt);
    EXPECT_TRUE(reader().instances().empty());
}

TEST_F(sysfs, reads_instances_in_the_order_of_their_numbers)
{
    for (const int id : {10, 2, 100, 0})
        make(id);
    EXPECT_THAT(reader().ids(), ElementsAre(0, 2, 10, 100));
    const auto all = reader().instances();
    ASSERT_EQ(all.size(), 4U);
    EXPECT_EQ(all[2].id, 10);
    EXPECT_EQ(all[2].name(), "emuv10");
}

TEST_F(sysfs, reads_what_the_driver_says_of_an_instance)
{
    make(3);
    const auto shown = reader().instance(3);
    ASSERT_TRUE(shown);
    EXPECT_EQ(shown->gpu_model, "4070");
    EXPECT_EQ(shown->physical_bytes, 12ULL << 30);
    EXPECT_EQ(shown->virtual_bytes, 2ULL << 30);
    EXPECT_EQ(shown->total_bytes(), 14ULL << 30);
    EXPECT_EQ(shown->pci_device_id, 0x2786);
    EXPECT_EQ(shown->numa_node, emuv::any);
    EXPECT_EQ(shown->uuid.size(), 36U);
    EXPECT_EQ(reader().vram_info(3), "GPU: 4070\n");
    EXPECT_EQ(reader().vram_info(4), std::nullopt);
}

TEST_F(sysfs, uuids_are_those_of_the_instances_and_all_can_be_read)
{
    make(3);
    make(5);
    const auto all = reader().uuids();
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all.at(3), reader().instance(3)->uuid);
    EXPECT_EQ(all.at(5), reader().instance(5)->uuid);
    std::filesystem::remove(kernel_.sys() / "class/emuv/emuv5/uuid");
    EXPECT_THROW((void)reader().uuids(), emuv::error);
}

TEST_F(sysfs, an_instance_that_is_not_there_is_none)
{
    EXPECT_EQ(reader().instance(7), std::nullopt);
}

TEST_F(sysfs, an_attribute_that_lacks_or_makes_no_sense_is_an_error)
{
    make(1);
    const auto folder = kernel_.sys() / "class/emuv/emuv1";
    const auto number_of_failure = [&] {
        try {
            (void)reader().instance(1);
            return 0;
        } catch (const emuv::error &problem) {
            return problem.number();
        }
    };
    EXPECT_EQ(number_of_failure(), 0);
    for (const char *const nonsense :
         {"", "x", "-1", "1 2", "0x10", "99999999999999999999"}) {
        write_file(folder / "faults", std::string(nonsense) + "\n");
        EXPECT_EQ(number_of_failure(), EPROTO) << nonsense;
    }
    std::filesystem::remove(folder / "faults");
    EXPECT_EQ(number_of_failure(), ENOENT);
}

TEST_F(sysfs, other_things_beside_the_instances_are_passed_over)
{
    make(1);
    std::filesystem::create_directory(kernel_.sys() / "class/emuv/emuv01");
    std::filesystem::create_directory(kernel_.sys() / "class/emuv/emuv");
    std::filesystem::create_directory(kernel_.sys() / "class/emuv/2");
    EXPECT_THAT(reader().ids(), ElementsAre(1));
}

TEST(sysfs_root, is_the_environments_then_sys)
{
    ::unsetenv("EMUV_SYSFS_ROOT");
    EXPECT_EQ(emuv::sysfs().root(), "/sys");
    ::setenv("EMUV_SYSFS_ROOT", "/recorded", 1);
    EXPECT_EQ(emuv::sysfs().root(), "/recorded");
    ::unsetenv("EMUV_SYSFS_ROOT");
}

TEST(parse_instance, takes_a_name_a_number_or_a_path)
{
    EXPECT_EQ(emuv::parse_instance("emuv12"), 12);
    EXPECT_EQ(emuv::parse_instance("12"), 12);
    EXPECT_EQ(emuv::parse_instance("/dev/emuv12"), 12);
    EXPECT_EQ(emuv::parse_instance("0"), 0);
}

TEST(parse_instance, takes_nothing_else)
{
    for (const char *const text :
         {"", "emuv", "emuv-1", "-1", "emuv1x", "emuv01", "emuv-control",
          "nvidia0", "99999999999", "emuv 1"})
        EXPECT_EQ(emuv::parse_instance(text), std::nullopt) << text;
}

} // namespace
