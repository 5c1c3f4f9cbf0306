// SPDX-License-Identifier: GPL-2.0-or-later
// `emuvctl why` reads pages that anybody may have written.
#include "base/summary.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "fake_kernel.hpp"
#include "statistics_file.hpp"

#include <cstring>
#include <functional>
#include <random>
#include <string>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace {

using emuv::cuda::copy_text;
using emuv::cuda::device_statistics;
using emuv::cuda::statistics_head;
using emuvctl::failure;
using emuvctl::read_statistics;
using testing::HasSubstr;

class nowhere final : public emuvctl::sink
{
public:
    void write(std::string_view more) override { text += more; }
    std::string text;
};

struct page
{
    statistics_head head;
    device_statistics device;
};

page right_page()
{
    page made;
    made.head.magic = statistics_head::right_magic;
    made.head.version = statistics_head::right_version;
    made.head.head_bytes = sizeof(statistics_head);
    made.head.device_bytes = sizeof(device_statistics);
    made.head.devices = 1;
    made.head.pid = 42;
    made.device.charged = {1 << 30, 0, 1 << 30, 0};
    return made;
}

class why : public testing::Test
{
protected:
    why() : file_(::memfd_create("emuv-statistics", MFD_CLOEXEC)) {}
    ~why() override { ::close(file_); }

    emuvctl::environment env()
    {
        return {out_,
                err_,
                kernel_,
                kernel_,
                kernel_.sys(),
                kernel_.proc(),
                kernel_.dev(),
                kernel_.root() / "run",
                [this](double) {
                    waits_++;
                    return true;
                },
                [] { return 0.0; },
                [] { return emuvctl::cuda_state(); },
                {}};
    }

    void put(const void *bytes, std::size_t count) const
    {
        ASSERT_EQ(::ftruncate(file_, 0), 0);
        ASSERT_EQ(::pwrite(file_, bytes, count, 0),
                  static_cast<ssize_t>(count));
    }
    void put(const page &what) const { put(&what, sizeof what); }

    std::string refusal()
    {
        try {
            read_statistics(file_, env());
        } catch (const failure &problem) {
            return problem.what();
        }
        return "";
    }

    // A process with that page.
    void process(int pid, const page &what)
    {
        const auto folder = kernel_.proc() / std::to_string(pid);
        const auto file = folder / "emuv-statistics";
        emuv_test::write_file(
            file,
            std::string(reinterpret_cast<const char *>(&what), sizeof what));
        emuv_test::write_file(folder / "comm", "python\n");
        emuv_test::write_file(folder / "status", "PPid:\t1\nNSpid:\t" +
                                                     std::to_string(pid) +
                                                     "\t42\n");
        std::filesystem::create_directories(folder / "fd");
        std::filesystem::create_symlink(std::filesystem::absolute(file),
                                        folder / "fd/9");
    }

    int run(const std::vector<std::string> &words)
    {
        out_.text.clear();
        err_.text.clear();
        auto with = env();
        return emuvctl::run(words, with);
    }

    emuv_test::fake_kernel kernel_;
    nowhere out_;
    nowhere err_;
    int file_;
    int waits_ = 0;
};

TEST_F(why, of_a_process_that_ended_within_an_update_its_peaks_are_told)
{
    page given = right_page();
    given.device.charged.most_ram = 3 << 20;
    given.device.steps = 9;
    given.device.samples = 1;
    given.device.kept[0].steps = 1;
    given.device.kept[0].took_ns = 5;
    given.device.allocations = 1;
    const auto read = [&](std::uint32_t turn) {
        given.device.turn = turn;
        put(given);
        return read_statistics(file_, env(), emuvctl::writer::ended)
            .devices.at(0);
    };
    const auto torn = read(7);
    EXPECT_EQ(torn.charged.most_vram, 1u << 30);
    EXPECT_EQ(torn.charged.most_ram, 3u << 20);
    EXPECT_EQ(emuv::cuda::summarize(torn, emuv::cuda::mobility::moves).steps,
              0u);
    EXPECT_EQ(torn.allocations, 0u);
    const auto whole = read(8);
    EXPECT_EQ(emuv::cuda::summarize(whole, emuv::cuda::mobility::moves).steps,
              1u);
    EXPECT_EQ(whole.allocations, 1u);
    EXPECT_EQ(waits_, 0);
}

TEST_F(why, a_right_page_is_read)
{
    page given = right_page();
    copy_text(given.head.vain[1], "EMUV_MOVE has no effect");
    put(given);
    const auto read = read_statistics(file_, env());
    EXPECT_EQ(read.pid, 42);
    EXPECT_EQ(read.memory, emuv::cuda::mobility::unasked);
    EXPECT_THAT(read.vain, testing::ElementsAre("EMUV_MOVE has no effect"));
    ASSERT_EQ(read.devices.size(), 1u);
    EXPECT_EQ(read.devices[0].charged.vram, 1u << 30);
    for (const auto &[given_as, read_as] :
         {std::pair{emuv::cuda::mobility::checked,
                    emuv::cuda::mobility::checked},
          {emuv::cuda::mobility(77), emuv::cuda::mobility::unasked}}) {
        given.head.memory = given_as;
        put(given);
        EXPECT_EQ(read_statistics(file_, env()).memory, read_as);
    }
}

TEST_F(why, a_page_that_is_none_or_of_another_version_is_refused_in_words)
{
    put("", 0);
    EXPECT_THAT(refusal(), HasSubstr("end too early"));
    page given = right_page();
    put(&given, sizeof given - 1);
    EXPECT_THAT(refusal(), HasSubstr("end too early"));
    given.head.magic++;
    put(given);
    EXPECT_THAT(refusal(), HasSubstr("none of emuV's"));
    given = right_page();
    given.head.version++;
    put(given);
    EXPECT_THAT(refusal(), HasSubstr("another version"));
    given = right_page();
    given.head.device_bytes += 8;
    put(given);
    EXPECT_THAT(refusal(), HasSubstr("another version"));
    given = right_page();
    given.head.devices = 0xffffffff;
    put(given);
    EXPECT_THAT(refusal(), HasSubstr("make no sense"));
}

TEST_F(why, lists_are_no_longer_than_they_can_be_and_texts_end)
{
    page given = right_page();
    given.device.allocations = given.device.kernels = 0xffffffff;
    std::memset(given.head.vain, 'v', sizeof given.head.vain);
    std::memset(given.device.stopped, 's', sizeof given.device.stopped);
    std::memset(given.device.most_costly[4].name, 'n',
                sizeof given.device.most_costly[4].name);
    given.device.is = emuv::cuda::treatment(77);
    put(given);
    const auto read = read_statistics(file_, env());
    EXPECT_EQ(read.vain[0].size(), 127u);
    const auto &one = read.devices[0];
    EXPECT_EQ(one.allocations, device_statistics::max_listed);
    EXPECT_EQ(one.kernels, device_statistics::max_listed);
    EXPECT_EQ(std::strlen(one.stopped), sizeof one.stopped - 1);
    EXPECT_EQ(std::strlen(one.most_costly[4].name),
              sizeof one.most_costly[4].name - 1);
    EXPECT_EQ(one.is, emuv::cuda::treatment::ended);
}

TEST_F(why, figures_that_are_never_at_rest_are_not_waited_for_for_ever)
{
    page given = right_page();
    given.device.turn = 3;
    put(given);
    EXPECT_THAT(refusal(), HasSubstr("never at rest"));
    EXPECT_GT(waits_, 10);
}

TEST_F(why, a_process_is_told_of_by_the_number_that_it_has_here)
{
    process(1234, right_page());
    EXPECT_EQ(run({"why", "1234"}), 0) << err_.text;
    EXPECT_THAT(out_.text, testing::StartsWith("python 1234\n"));
    EXPECT_THAT(out_.text, HasSubstr("all of its memory is in VRAM"));
    EXPECT_EQ(run({"why", "--json"}), 0) << err_.text;
    const auto all = nlohmann::json::parse(out_.text);
    EXPECT_EQ(all["processes"][0]["pid"], 1234);
    EXPECT_EQ(all["processes"][0]["devices"][0]["step"], nullptr);
}

TEST_F(why, a_page_that_a_child_has_of_its_parent_is_not_the_childs)
{
    page parents = right_page();
    parents.head.pid = 41;
    process(1234, parents);
    EXPECT_EQ(run({"why", "1234"}), 1);
    EXPECT_THAT(err_.text, HasSubstr("1234 publishes nothing"));
}

TEST_F(why, of_a_shell_those_are_told_of_that_it_started)
{
    process(1234, right_page());
    emuv_test::write_file(kernel_.proc() / "1/status", "PPid:\t0\n");
    std::filesystem::create_directories(kernel_.proc() / "1/fd");
    EXPECT_EQ(run({"why", "1"}), 0) << err_.text;
    EXPECT_THAT(out_.text, HasSubstr("python 1234"));
}

TEST_F(why, nothing_of_a_page_can_steer_the_terminal)
{
    page given = right_page();
    copy_text(given.head.vain[0], "\x1b[2J");
    given.head.memory = emuv::cuda::mobility::moves;
    given.device.charged.most_ram = 1;
    given.device.kernels = 1;
    copy_text(given.device.most_costly[0].name, "\x1b]0;title\x07");
    copy_text(given.device.stopped, "\x9b\x01");
    process(1234, given);
    for (const std::vector<std::string> &words :
         {std::vector<std::string>{"why"}, {"why", "--json"}}) {
        EXPECT_EQ(run(words), 0);
        for (const char each : out_.text)
            EXPECT_TRUE(
                each == '\n' ||
                (static_cast<unsigned char>(each) >= ' ' && each != 0x7f))
                << int(each) << " in " << out_.text;
    }
}

TEST_F(why, what_cannot_be_told_of_is_said_in_a_line)
{
    EXPECT_EQ(run({"why", "77"}), 1);
    EXPECT_EQ(err_.text, "emuvctl: why: there is no process 77\n");
    EXPECT_EQ(run({"why", "0"}), 2);
    EXPECT_EQ(run({"why", "python"}), 2);
    EXPECT_EQ(run({"why"}), 1);
    EXPECT_THAT(err_.text, HasSubstr("no process whose files"));
    EXPECT_EQ(run({"why", "--json"}), 0);
    // One whose descriptors nobody shows.
    emuv_test::write_file(kernel_.proc() / "78/comm", "other\n");
    EXPECT_EQ(run({"why", "78"}), 1);
    EXPECT_THAT(err_.text, HasSubstr("another user's process"));
}

TEST_F(why, any_bytes_are_read_or_refused)
{
    std::mt19937_64 random(11);
    const page right = right_page();
    for (int i = 0; i < 300; i++) {
        page given = right;
        auto *const bytes = reinterpret_cast<unsigned char *>(&given);
        // Mostly behind the head, which would only be refused.
        const std::size_t from = i % 4 == 0 ? 0 : 64;
        for (int changes = 0; changes < 200; changes++)
            bytes[from + random() % (sizeof given - from)] =
                static_cast<unsigned char>(random());
        given.device.turn &= ~1u;
        process(1234, given);
        const int status = run({"why", "1234"});
        EXPECT_TRUE(status == 0 || status == 1);
        EXPECT_EQ(run({"why", "--json"}), 0);
        std::filesystem::remove_all(kernel_.proc() / "1234");
    }
}

} // namespace
