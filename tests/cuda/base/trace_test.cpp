// SPDX-License-Identifier: GPL-2.0-or-later
// The record of movement: nothing until a file is open, then an event a line,
// and the array's end behind each.
#include "base/trace.hpp"

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using emuv::cuda::trace;

namespace {

std::string file_of_this_process()
{
    return testing::TempDir() + "trace_test." + std::to_string(getpid());
}

std::string taken(const std::string &file)
{
    std::ostringstream all;
    all << std::ifstream(file).rdbuf();
    unlink(file.c_str());
    return all.str();
}

// How often a text has another.
int count(const std::string &text, const std::string &what)
{
    int found = 0;
    for (auto at = text.find(what); at != std::string::npos;
         at = text.find(what, at + 1))
        found++;
    return found;
}

TEST(Trace, RecordsNothingUntilAFileIsOpen)
{
    trace off;
    EXPECT_FALSE(off.is_on());
    off.span(trace::row::to_ram, "unseen", 1000, 2000, 0, 0, 0);
    off.kernel("unseen", "why");

    const std::string file = file_of_this_process();
    {
        trace on;
        on.span(trace::row::to_ram, "too early", 1000, 2000, 0, 0, 0);
        ASSERT_EQ(on.open(file.c_str()), 0);
        EXPECT_TRUE(on.is_on());
        on.span(trace::row::to_ram, "write back", 1000, 3000, 16, 32, 7);
        on.kernel("stranger", "no proof");
    }
    const std::string all = taken(file);
    EXPECT_EQ(all.find("too early"), std::string::npos);
    EXPECT_NE(all.find("\"name\":\"write back\",\"ts\":1.000,"
                       "\"dur\":2.000"),
              std::string::npos)
        << all;
    EXPECT_NE(all.find("\"kernel\":\"stranger\""), std::string::npos) << all;
}

TEST(Trace, HasItsEndBehindEachEvent)
{
    const std::string file = file_of_this_process();
    const pid_t child = fork();
    if (child == 0) {
        trace on;
        if (on.open(file.c_str()) == 0)
            for (int i = 0; i < 100; i++)
                on.span(trace::row::to_ram, "drop", 1000, 3000, 16, 32, 7);
        _exit(0); // nothing is flushed or closed
    }
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    const std::string all = taken(file);
    EXPECT_EQ(count(all, "\"drop\""), 100);
    EXPECT_EQ(count(all, "\n]\n"), 1);
    EXPECT_TRUE(all.starts_with("[\n{")) << all;
    EXPECT_TRUE(all.ends_with("}\n]\n")) << all;
}

TEST(Trace, ASecondProcessHasAFileOfItsOwn)
{
    const std::string file = file_of_this_process();
    trace first;
    ASSERT_EQ(first.open(file.c_str()), 0);
    first.span(trace::row::to_ram, "ours", 1000, 3000, 16, 32, 7);
    const pid_t child = fork();
    if (child == 0) {
        first.close_after_fork();
        first.span(trace::row::to_ram, "after the fork", 1000, 3000, 0, 0, 0);
        trace second;
        if (second.open(file.c_str()) != 0)
            _exit(1);
        second.span(trace::row::to_ram, "theirs", 1000, 3000, 16, 32, 7);
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    first.span(trace::row::to_ram, "ours", 1000, 3000, 16, 32, 7);
    const std::string all = taken(file);
    EXPECT_EQ(count(all, "\"ours\""), 2) << all;
    EXPECT_EQ(all.find("after the fork"), std::string::npos) << all;
    EXPECT_TRUE(all.starts_with("[\n{")) << all;
    EXPECT_EQ(count(all, "\n]\n"), 1) << all;
    const std::string other = taken(file + "." + std::to_string(child));
    EXPECT_EQ(count(other, "\"theirs\""), 1) << other;
    EXPECT_TRUE(other.ends_with("}\n]\n")) << other;
}

TEST(Trace, AFileIsTakenFromAnEarlierRun)
{
    const std::string file = file_of_this_process();
    std::ofstream(file) << std::string(100'000, 'x');
    {
        trace record;
        ASSERT_EQ(record.open(file.c_str()), 0);
    }
    EXPECT_EQ(taken(file).find('x'), std::string::npos);
}

TEST(Trace, AFullDiskLeavesTheEventsThatWereWhole)
{
    const std::string file = file_of_this_process();
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        const rlimit least{1000, 1000};
        setrlimit(RLIMIT_FSIZE, &least);
        trace on;
        if (on.open(file.c_str()) != 0)
            _exit(1);
        for (int i = 0; i < 100; i++)
            on.span(trace::row::to_ram, "drop", 1000, 3000, 16, 32, 7);
        _exit(on.is_on() ? 2 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    const std::string all = taken(file);
    EXPECT_GT(count(all, "\"drop\""), 1);
    EXPECT_EQ(count(all, "\n]\n"), 1);
    EXPECT_TRUE(all.ends_with("}}\n]\n")) << all;
}

TEST(Trace, NamesCannotEndTheirQuotes)
{
    const std::string file = file_of_this_process();
    {
        trace on;
        ASSERT_EQ(on.open(file.c_str()), 0);
        on.kernel("a\"b\\c\n\xff", "why");
    }
    EXPECT_NE(taken(file).find(R"("kernel":"a\"b\\c??")"), std::string::npos);
}

// A locale whose numbers have a decimal comma, for a test. False where none can
// be had.
bool set_a_decimal_comma()
{
    const std::string folder = file_of_this_process() + ".locales";
    for (int tries = 0; tries < 2; tries++) {
        for (const char *name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"})
            if (setlocale(LC_NUMERIC, name) != nullptr)
                return true;
        const std::string make = "mkdir -p " + folder +
                                 " && localedef -i de_DE -f UTF-8 " + folder +
                                 "/de_DE.UTF-8 2>/dev/null";
        if (tries > 0 || std::system(make.c_str()) < 0)
            break;
        setenv("LOCPATH", folder.c_str(), 1);
    }
    return false;
}

TEST(Trace, TimesHaveAPointWhateverTheLocale)
{
    const std::string file = file_of_this_process();
    const pid_t child = fork();
    if (child == 0) {
        trace on;
        if (!set_a_decimal_comma())
            _exit(3);
        if (on.open(file.c_str()) != 0)
            _exit(1);
        on.span(trace::row::to_ram, "drop", 1'234'567, 3'000'000, 16, 32, 7);
        on.kernel("stranger", "no proof");
        on.count({0, 100, 50}, 2'000'001);
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    std::filesystem::remove_all(file + ".locales");
    if (WEXITSTATUS(status) == 3)
        GTEST_SKIP() << "no locale with a decimal comma";
    ASSERT_EQ(status, 0);
    const std::string all = taken(file);
    EXPECT_NE(all.find("\"ts\":1234.567,\"dur\":1765.433,"), std::string::npos)
        << all;
    EXPECT_EQ(count(all, "\"ts\":2000.001,\"args\""), 4) << all;
}

TEST(Trace, CountersComeSeldomAndOnlyWithNews)
{
    constexpr std::uint64_t ms = 1'000'000;
    const std::string file = file_of_this_process();
    {
        trace on;
        ASSERT_EQ(on.open(file.c_str()), 0);
        on.count({0, 100, 50}, 1000 * ms);
        on.count({0, 100, 50}, 2000 * ms); // nothing new
        on.crossed(0, {4'000'000, 1'000'000}, -1);
        on.count({0, 100, 50}, 2010 * ms);
        on.crossed(0, {4'000'000, 0}, -1);
        on.count({0, 100, 50}, 2011 * ms); // too soon
        on.count({0, 100, 50}, 2020 * ms);
        on.count({0, 100, 50}, 2030 * ms); // the link rests from here on
        on.count({0, 100, 50}, 2040 * ms);
        on.count({1, 7, 8}, 2040 * ms);
    }
    const std::string all = taken(file);
    EXPECT_EQ(count(all, "\"name\":\"VRAM\""), 4) << all;
    EXPECT_EQ(count(all, "\"VRAM, device 1\""), 1) << all;
    EXPECT_NE(all.find("\"link to VRAM\",\"ts\":2010000.000,"
                       "\"args\":{\"bytes/s\":400000000}"),
              std::string::npos)
        << all;
    EXPECT_NE(all.find("\"link to VRAM\",\"ts\":2020000.000,"
                       "\"args\":{\"bytes/s\":0}"),
              std::string::npos)
        << all;
}

TEST(Trace, OtherCardsHaveTracksOnceTheyHoldAnything)
{
    constexpr std::uint64_t ms = 1'000'000;
    const std::string file = file_of_this_process();
    {
        trace on;
        ASSERT_EQ(on.open(file.c_str()), 0);
        on.count({0, 100, 50, 0}, 1000 * ms);
        on.crossed(0, {4'000'000, 1'000'000}, 1);
        on.crossed(0, {1'000'000, 0}, -1);
        on.count({0, 100, 50, 70}, 1010 * ms);
        on.count({0, 100, 50, 0}, 1020 * ms); // all has come home
        on.span(trace::row::to_vram, "fetch", ms, 2 * ms, 16, 32, 7, 1);
        on.span(trace::row::to_vram, "fetch", ms, 2 * ms, 16, 32, 7);
    }
    const std::string all = taken(file);
    EXPECT_EQ(count(all, "\"other cards\""), 2) << all;
    for (const char *const one :
         {"\"other cards\",\"ts\":1010000.000,\"args\":{\"bytes\":70}",
          "\"other cards\",\"ts\":1020000.000,\"args\":{\"bytes\":0}",
          "\"cards to "
          "VRAM\",\"ts\":1000000.000,\"args\":{\"bytes/s\":400000000}",
          "\"VRAM to "
          "cards\",\"ts\":1000000.000,\"args\":{\"bytes/s\":100000000}",
          "\"link to "
          "VRAM\",\"ts\":1000000.000,\"args\":{\"bytes/s\":100000000}"})
        EXPECT_NE(all.find(one), std::string::npos) << one << " not in " << all;
    EXPECT_EQ(count(all, "\"next_use\":7,\"card\":1}"), 1) << all;
    EXPECT_EQ(count(all, "\"next_use\":7}"), 1) << all;
}

TEST(Trace, SaysWhyItsFileCannotBeOpened)
{
    trace record;
    EXPECT_EQ(record.open("/nowhere/at/all"), ENOENT);
    EXPECT_FALSE(record.is_on());
}

} // namespace
