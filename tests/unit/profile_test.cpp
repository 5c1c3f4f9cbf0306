// SPDX-License-Identifier: GPL-2.0-or-later
// Profile files: their contents, and the messages about wrong ones.
#include "fake_kernel.hpp"

#include <emuv/profile.hpp>

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using emuv_test::temporary_folder;
using emuv_test::write_file;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::uint64_t gib = 1ULL << 30;
constexpr std::uint64_t mib = 1ULL << 20;

// A complete profile, to which a test adds lines.
const std::string whole = "[a]\n"            // 1
                          "gpu_model=4090\n" // 2
                          "physical_vram_gb=6\n"
                          "virtual_vram_gb=2\n"; // 4

std::vector<std::string> errors(const std::string &text)
{
    try {
        (void)emuv::parse_profiles(text, "F");
        return {};
    } catch (const emuv::profile_error &problem) {
        return problem.messages();
    }
}

TEST(profile, reads_the_file_as_users_have_it)
{
    const auto all = emuv::parse_profiles("[vGPU-Profile-1]\n"
                                          "gpu_model=4090\n"
                                          "physical_vram_gb=6\n"
                                          "virtual_vram_gb=2\n"
                                          "pci_device_id=0x2684\n",
                                          "F");
    ASSERT_EQ(all.size(), 1U);
    const auto &one = all.front();
    EXPECT_EQ(one.name, "vGPU-Profile-1");
    EXPECT_EQ(one.spec.gpu_model, "4090");
    EXPECT_EQ(one.spec.physical_bytes, 6 * gib);
    EXPECT_EQ(one.spec.virtual_bytes, 2 * gib);
    EXPECT_EQ(one.spec.pci_device_id, 0x2684);
    EXPECT_EQ(one.spec.id, emuv::any);
    EXPECT_EQ(one.spec.numa_node, emuv::any);
    EXPECT_FALSE(one.spec.overcommit);
    EXPECT_EQ(one.count, 1U);
    EXPECT_EQ(one.file, "F");
    EXPECT_EQ(one.line, 1);
}

TEST(profile, reads_every_key)
{
    const auto all = emuv::parse_profiles("[all of it]\n"
                                          "gpu_model = \"RTX 4070 Ti\"\n"
                                          "physical_vram_mb = 512\n"
                                          "virtual_vram_mb = 64\n"
                                          "instance_id = 7\n"
                                          "numa_node = 1\n"
                                          "count = 3\n"
                                          "overcommit = yes\n",
                                          "F");
    ASSERT_EQ(all.size(), 1U);
    const auto &one = all.front();
    EXPECT_EQ(one.spec.gpu_model, "RTX 4070 Ti");
    EXPECT_EQ(one.spec.physical_bytes, 512 * mib);
    EXPECT_EQ(one.spec.virtual_bytes, 64 * mib);
    EXPECT_EQ(one.spec.numa_node, 1);
    EXPECT_TRUE(one.spec.overcommit);
    const auto specs = one.instances();
    ASSERT_EQ(specs.size(), 3U);
    EXPECT_EQ(specs[0].id, 7);
    EXPECT_EQ(specs[2].id, 9);
}

TEST(profile, takes_comments_blanks_crlf_bom_and_a_missing_last_newline)
{
    const auto all =
        emuv::parse_profiles("\xef\xbb\xbf; first\r\n"
                             "# second\r\n"
                             "\r\n"
                             "   [a]   ; the first one\r\n"
                             "\tgpu_model=4090 ; with a remark\r\n"
                             "  physical_vram_gb = 6 # and here\r\n"
                             "virtual_vram_gb: 2",
                             "F");
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all.front().spec.gpu_model, "4090");
    EXPECT_EQ(all.front().spec.physical_bytes, 6 * gib);
    EXPECT_EQ(all.front().spec.virtual_bytes, 2 * gib);
    EXPECT_EQ(all.front().line, 4);
}

TEST(profile, an_indented_key_is_no_continuation_of_the_line_above)
{
    const auto all = emuv::parse_profiles("[a]\n"
                                          "gpu_model=4090\n"
                                          "  physical_vram_gb=6\n"
                                          "  virtual_vram_gb=2\n",
                                          "F");
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all.front().spec.physical_bytes, 6 * gib);
}

TEST(profile, an_empty_text_holds_none)
{
    EXPECT_TRUE(emuv::parse_profiles("", "F").empty());
    EXPECT_TRUE(emuv::parse_profiles("\n\n# nothing\n", "F").empty());
    EXPECT_TRUE(emuv::parse_profiles("\xef\xbb\xbf", "F").empty());
}

TEST(profile, fractions_of_gigabytes_are_exact)
{
    const auto all = emuv::parse_profiles("[a]\ngpu_model=x\n"
                                          "physical_vram_gb=1.5\n"
                                          "virtual_vram_gb=0.5\n",
                                          "F");
    EXPECT_EQ(all.front().spec.physical_bytes, gib + gib / 2);
    EXPECT_EQ(all.front().spec.virtual_bytes, gib / 2);
    EXPECT_THAT(errors("[a]\nphysical_vram_gb=0.1\n"),
                ElementsAre(AllOf(StartsWith("F:2: physical_vram_gb: "),
                                  HasSubstr("whole number of bytes"))));
}

TEST(profile_error, tells_an_unknown_key_and_the_known_ones)
{
    EXPECT_THAT(errors(whole + "gpu_modle=1\n"),
                ElementsAre(AllOf(StartsWith("F:5: unknown key 'gpu_modle'"),
                                  HasSubstr("physical_vram_gb"))));
}

TEST(profile_error, tells_a_key_before_the_first_section)
{
    EXPECT_THAT(errors("\ngpu_model=4090\n" + whole),
                ElementsAre("F:2: 'gpu_model' stands before the first "
                            "[profile]"));
}

TEST(profile_error, tells_what_a_section_lacks)
{
    EXPECT_THAT(errors("\n[a]\n"),
                ElementsAre("F:2: [a] lacks virtual_vram_gb or "
                            "virtual_vram_mb"));
}

TEST(profile_error, tells_keys_that_contradict_each_other)
{
    EXPECT_THAT(errors("\n" + whole + "swap=/var/tmp\nguaranteed=yes\n"),
                ElementsAre("F:2: [a] is guaranteed and has swap; memory that "
                            "is reserved never leaves RAM"));
    EXPECT_THAT(errors(whole + "overcommit=yes\nguaranteed=yes\n"),
                ElementsAre("F:1: [a] is both guaranteed and overcommit; it "
                            "can be one of them"));
    EXPECT_THAT(errors(whole + "numa_bind=yes\n"),
                ElementsAre("F:1: [a] has numa_bind but no numa_node"));
    EXPECT_THAT(errors(whole + "numa_node=-1\nnuma_bind=yes\n"),
                ElementsAre("F:1: [a] has numa_bind but no numa_node"));
    EXPECT_THAT(errors(whole + "numa_bind=no\nguaranteed=yes\n"),
                ElementsAre());
}

TEST(profile_error, tells_paths_that_depend_on_the_folder)
{
    EXPECT_THAT(errors(whole + "swap=swapfile\n"),
                ElementsAre("F:5: swap: 'swapfile' does not begin with a "
                            "slash"));
    EXPECT_THAT(errors(whole + "swap=\n"),
                ElementsAre("F:5: swap: the value is missing"));
}

TEST(profile, may_leave_model_and_vram_to_the_card)
{
    const auto all = emuv::parse_profiles("[a]\nvirtual_vram_gb=1\n"
                                          "[b]\nvirtual_vram_gb=1\n"
                                          "gpu_model=x\n"
                                          "physical_vram_mb=2\n",
                                          "F");
    EXPECT_FALSE(all[0].model_given);
    EXPECT_FALSE(all[0].physical_given);
    EXPECT_TRUE(all[1].model_given);
    EXPECT_TRUE(all[1].physical_given);
    EXPECT_EQ(emuv::format_profile(all[0]), "[a]\nvirtual_vram_gb=1\n");
}

TEST(profile_error, tells_bad_numbers)
{
    EXPECT_THAT(
        errors("[a]\n"
               "physical_vram_gb=six\n"
               "virtual_vram_gb=2G\n"
               "instance_id=x\n"
               "numa_node=1.5\n"
               "count=\n"
               "pci_device_id=9860\n"
               "overcommit=maybe\n"),
        ElementsAre("F:2: physical_vram_gb: 'six' is not a number",
                    "F:3: virtual_vram_gb: '2G' is not a number; the unit is "
                    "in the key",
                    "F:4: instance_id: 'x' is not a whole number",
                    "F:5: numa_node: '1.5' is not a whole number",
                    "F:6: count: the value is missing",
                    "F:7: pci_device_id: '9860' is not a PCI device id; one "
                    "is written as 0x2684, from 0x1 to 0xffff",
                    "F:8: overcommit: 'maybe' is neither yes nor no"));
}

TEST(profile_error, tells_what_is_out_of_range_and_the_range)
{
    EXPECT_THAT(
        errors("[a]\n"
               "instance_id=1024\n"
               "numa_node=-2\n"
               "count=0\n"
               "pci_device_id=0x10000\n"
               "physical_vram_gb=-1\n"
               "virtual_vram_gb=99999999999999999999\n"),
        ElementsAre("F:2: instance_id: '1024' is not between 0 and 1023",
                    "F:3: numa_node: '-2' is not between -1 and 1023",
                    "F:4: count: '0' is not between 1 and 1024",
                    StartsWith("F:5: pci_device_id: '0x10000'"),
                    "F:6: physical_vram_gb: '-1' is not a number",
                    HasSubstr("is too large")));
}

TEST(profile_error, tells_sizes_that_no_instance_can_have)
{
    EXPECT_THAT(errors("[a]\ngpu_model=x\nphysical_vram_gb=1\n"
                       "virtual_vram_mb=3\n"),
                ElementsAre("F:1: [a] virtual VRAM of 3 MiB is not a multiple "
                            "of 2 MiB"));
    EXPECT_THAT(errors("[a]\ngpu_model=x\nphysical_vram_gb=0\n"
                       "virtual_vram_gb=0\n"),
                ElementsAre(HasSubstr("must not both be 0")));
    EXPECT_THAT(errors("[a]\ngpu_model=x\nphysical_vram_gb=1048576\n"
                       "virtual_vram_gb=2\n"),
                ElementsAre(HasSubstr("at most 1 PiB together")));
    EXPECT_THAT(errors("[a]\ngpu_model=x\nphysical_vram_gb=17179869183\n"
                       "virtual_vram_gb=17179869183\n"),
                ElementsAre(HasSubstr("at most 1 PiB together")));
}

TEST(profile_error, tells_both_units_at_once)
{
    EXPECT_THAT(errors(whole + "virtual_vram_mb=2048\n"),
                ElementsAre("F:5: virtual_vram_mb and virtual_vram_gb (line 4) "
                            "exclude each other; give one of them"));
}

TEST(profile_error, tells_a_key_that_is_there_twice)
{
    EXPECT_THAT(errors(whole + "gpu_model=4080\n"),
                ElementsAre("F:5: duplicate key 'gpu_model', first at line 2"));
}

TEST(profile_error, tells_a_section_that_is_there_twice_also_across_files)
{
    EXPECT_THAT(errors(whole + whole),
                ElementsAre("F:5: duplicate profile [a], first at F:1"));
    emuv::profile_parser parser;
    parser.add(whole, "F");
    parser.add("\n" + whole, "G");
    try {
        (void)parser.finish();
        FAIL() << "no error";
    } catch (const emuv::profile_error &problem) {
        EXPECT_THAT(problem.messages(),
                    ElementsAre("G:2: duplicate profile [a], first at F:1"));
    }
}

TEST(profile_error, tells_ids_that_two_profiles_want)
{
    const std::string other = "[b]\ngpu_model=x\nphysical_vram_gb=1\n"
                              "virtual_vram_gb=1\ninstance_id=5\n";
    EXPECT_THAT(errors(whole + "instance_id=4\ncount=2\n" + other),
                ElementsAre("F:7: [b] wants instance 5, as [a] at F:1 does"));
    EXPECT_THAT(errors(whole + "instance_id=1023\ncount=2\n"),
                ElementsAre("F:1: [a] counts up to instance 1024; the last "
                            "one is 1023"));
}

TEST(profile_error, tells_more_instances_than_there_can_be)
{
    EXPECT_THAT(errors(whole + "count=1024\n[b]\ngpu_model=x\n"
                               "physical_vram_gb=1\nvirtual_vram_gb=1\n"),
                ElementsAre(HasSubstr("1025 instances; at most 1024")));
}

TEST(profile_error, tells_lines_that_are_nothing)
{
    EXPECT_THAT(errors("[a\nfoo\n[b] c\n[ d ]\n[]\n"),
                ElementsAre("F:1: the profile's name lacks its ']'",
                            "F:2: neither a [profile] nor KEY=VALUE nor a "
                            "comment",
                            "F:3: unexpected 'c' behind [b]",
                            HasSubstr("F:4: a profile's name must not be "
                                      "empty nor begin or end with a blank"),
                            HasSubstr("F:5: a profile's name must not")));
}

TEST(profile_error, tells_overlong_lines_and_names_instead_of_cutting_them)
{
    const std::string hundred(100, 'x');
    EXPECT_THAT(errors("gpu_model=" + hundred + hundred + "\n"),
                ElementsAre("F:1: the line has 210 characters; at most 190 are "
                            "allowed"));
    EXPECT_THAT(errors("[" + hundred + "]\n"),
                ElementsAre("F:1: the profile's name has 100 characters; at "
                            "most 48 are allowed"));
    EXPECT_THAT(errors("[a]\ngpu_model=" + hundred + "\n"),
                ElementsAre(HasSubstr("has 100 characters; at most 63")));
    // A comment may be as long as it likes.
    EXPECT_THAT(errors("#" + hundred + hundred + hundred + "\n" + whole),
                testing::IsEmpty());
}

TEST(profile_error, tells_names_of_the_full_length_apart)
{
    const std::string name(47, 'x');
    const auto all =
        emuv::parse_profiles("[" + name + "1]\n" + whole.substr(4) + "[" +
                                 name + "2]\n" + whole.substr(4),
                             "F");
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0].name, name + "1");
    EXPECT_EQ(all[1].name, name + "2");
}

TEST(profile_error, tells_nul_bytes_and_control_characters)
{
    EXPECT_THAT(errors(std::string("[a]\ngpu_model=4\0"
                                   "0\n",
                                   18)),
                ElementsAre(HasSubstr("F:2: the line holds a NUL byte")));
    EXPECT_THAT(errors("[a\x1b]\n"),
                ElementsAre(HasSubstr("control character")));
    const auto told = errors("[a]\ngpu_model=\x1b[31m\n");
    ASSERT_EQ(told.size(), 1U);
    EXPECT_THAT(told.front(), HasSubstr("not printable ASCII"));
    EXPECT_EQ(told.front().find('\x1b'), std::string::npos)
        << "what is told must not steer a terminal";
}

TEST(profile_error, tells_all_errors_in_order_but_not_hundreds)
{
    std::string text;
    for (int i = 0; i < 100; i++)
        text += "foo\n";
    const auto told = errors(text);
    ASSERT_EQ(told.size(), 21U);
    EXPECT_THAT(told.front(), StartsWith("F:1: "));
    EXPECT_EQ(told.back(), "... and 80 more errors");
}

TEST(profile_error, anything_at_all_is_either_taken_or_refused)
{
    std::uint32_t seed = 1;
    const auto next = [&seed] { return seed = seed * 1664525 + 1013904223; };
    static constexpr char alphabet[] = "[]=:;# \t\r\n\0\"gpu_model0.\xff";
    int refused = 0;
    for (int round = 0; round < 5000; round++) {
        std::string text = round % 2 == 0 ? whole : "";
        for (std::uint32_t i = 0, n = (next() >> 16) % 80; i < n; i++) {
            const char c = alphabet[(next() >> 16) % (sizeof(alphabet) - 1)];
            const std::size_t at = (next() >> 16) % (text.size() + 1);
            text.insert(at, 1, c);
        }
        for (const auto &message : errors(text)) {
            EXPECT_THAT(message, StartsWith("F:"));
            refused++;
        }
    }
    EXPECT_GT(refused, 100);
}

TEST(format_profile, is_read_back_as_the_same_profile)
{
    emuv::profile one;
    one.name = "emuv5";
    one.spec.gpu_model = "RTX 4070 Ti";
    one.spec.physical_bytes = 6 * gib;
    one.spec.virtual_bytes = 6 * mib;
    EXPECT_EQ(emuv::format_profile(one), "[emuv5]\n"
                                         "gpu_model=RTX 4070 Ti\n"
                                         "physical_vram_gb=6\n"
                                         "virtual_vram_mb=6\n");
    one.spec.id = 5;
    one.spec.numa_node = 0;
    one.spec.pci_device_id = 0x1eb8;
    one.spec.overcommit = true;
    one.count = 2;
    one.spec.physical_bytes = 1000; // no whole MiB
    auto back = emuv::parse_profiles(emuv::format_profile(one), "F").front();
    EXPECT_EQ(back.spec, one.spec);
    one.spec.overcommit = false;
    one.spec.guaranteed = true;
    one.spec.client_virtual_bytes = 512ULL << 20;
    back = emuv::parse_profiles(emuv::format_profile(one), "F").front();
    EXPECT_EQ(back.spec, one.spec);
    EXPECT_EQ(back.count, 2U);
    EXPECT_EQ(back.name, "emuv5");
    one.spec.guaranteed = false;
    one.spec.numa_bind = true;
    one.spec.swap = "/dev/disk/by-label/swap of emuV";
    back = emuv::parse_profiles(emuv::format_profile(one), "F").front();
    EXPECT_EQ(back.spec, one.spec);
}

TEST(profile, tiers_are_read_in_order_and_written_back)
{
    const auto one =
        emuv::parse_profiles(whole + "tier=emuv1=40G,team-b=1.5 GiB\n", "F")
            .front();
    ASSERT_EQ(one.tiers.size(), 2U);
    EXPECT_EQ(one.tiers[0].instance, "emuv1");
    EXPECT_EQ(one.tiers[0].bytes, 40 * gib);
    EXPECT_EQ(one.tiers[1].instance, "team-b");
    EXPECT_EQ(one.tiers[1].bytes, 1536 * mib);
    EXPECT_THAT(emuv::format_profile(one),
                HasSubstr("\ntier=emuv1=40GiB,team-b=1.5GiB\n"));
    const auto back =
        emuv::parse_profiles(emuv::format_profile(one), "F").front();
    EXPECT_EQ(emuv::format_tiers(back.tiers), emuv::format_tiers(one.tiers));
    EXPECT_EQ(emuv::format_tiers({}), "");
}

TEST(profile, refuses_tiers_that_cannot_be)
{
    for (const std::string text :
         {"40G", "=40G", "peer:1=40G", "a b=40G", "emuv1=", "emuv1=0",
          "emuv1=1M", "emuv1=40G,", ",emuv1=40G", "emuv1=40G,,emuv2=1G",
          "emuv1=40G,1=1G", "a\x1b=1G", "x=40G,x=40G", "/dev/emuv1=40G",
          "1x=40G", "-x=40G", "emuv01=40G", "emuv1=9999P"})
        EXPECT_THAT(errors(whole + "tier=" + text + "\n"),
                    ElementsAre(StartsWith("F:5: tier: ")))
            << text;
}

class profile_files : public testing::Test
{
protected:
    [[nodiscard]] std::filesystem::path path(const std::string &name) const
    {
        return folder_.path() / name;
    }
    [[nodiscard]] std::vector<std::string>
    load_errors(const std::filesystem::path &file) const
    {
        try {
            (void)emuv::load_profiles(file);
            return {};
        } catch (const emuv::profile_error &problem) {
            return problem.messages();
        }
    }
    static std::string named(const std::string &name)
    {
        return "[" + name + "]\n" + whole.substr(4);
    }

private:
    temporary_folder folder_;
};

TEST_F(profile_files, drop_ins_follow_the_file_in_lexical_order)
{
    write_file(path("p.conf"), named("main"));
    write_file(path("p.conf.d/20-b.conf"), named("b"));
    write_file(path("p.conf.d/10-a.conf"), named("a"));
    write_file(path("p.conf.d/30-c.txt"), named("c"));
    write_file(path("p.conf.d/.40-d.conf"), named("d"));
    std::vector<std::string> names;
    for (const auto &one : emuv::load_profiles(path("p.conf")))
        names.push_back(one.name);
    EXPECT_THAT(names, ElementsAre("main", "a", "b"));
}

TEST_F(profile_files, drop_ins_alone_are_enough)
{
    write_file(path("p.conf.d/a.conf"), named("a"));
    EXPECT_EQ(emuv::load_profiles(path("p.conf")).size(), 1U);
}

TEST_F(profile_files, a_missing_file_a_folder_and_a_huge_file_are_told)
{
    EXPECT_THAT(load_errors(path("none.conf")),
                ElementsAre(path("none.conf").string() +
                            ": no such file or directory"));
    std::filesystem::create_directory(path("folder"));
    EXPECT_THAT(load_errors(path("folder")),
                ElementsAre(path("folder").string() + ": is a directory"));
    write_file(path("huge"), std::string(2 << 20, '#'));
    EXPECT_THAT(load_errors(path("huge")),
                ElementsAre(HasSubstr("is larger than 1 MiB")));
}

TEST_F(profile_files, an_unreadable_file_is_told)
{
    if (::geteuid() == 0)
        GTEST_SKIP() << "root reads everything";
    write_file(path("closed"), whole);
    ::chmod(path("closed").c_str(), 0);
    EXPECT_THAT(load_errors(path("closed")),
                ElementsAre(HasSubstr("permission denied")));
}

TEST_F(profile_files, errors_of_all_files_are_told_together)
{
    write_file(path("p.conf"), "foo\n");
    write_file(path("p.conf.d/a.conf"), "bar\n");
    EXPECT_THAT(
        load_errors(path("p.conf")),
        ElementsAre(StartsWith(path("p.conf").string() + ":1: "),
                    StartsWith(path("p.conf.d/a.conf").string() + ":1: ")));
}

TEST(profile_file, default_is_the_environments_then_etc)
{
    ::unsetenv("EMUV_CONFIG");
    EXPECT_EQ(emuv::default_profile_file(), "/etc/emuv/vgpu-profiles.conf");
    ::setenv("EMUV_CONFIG", "/x/y", 1);
    EXPECT_EQ(emuv::default_profile_file(), "/x/y");
    ::unsetenv("EMUV_CONFIG");
}

} // namespace
