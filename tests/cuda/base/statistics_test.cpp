// SPDX-License-Identifier: GPL-2.0-or-later
// A process's page: its file, its updates, its texts.
#include "base/statistics.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace emuv::cuda;

namespace {

std::string file_of_this_process()
{
    return testing::TempDir() + "statistics_test." + std::to_string(getpid());
}

TEST(Statistics, BeforeItIsMadeThereIsNoneAndThenItIsWhole)
{
    statistics_page page;
    EXPECT_EQ(page.head(), nullptr);
    page.vain("nobody reads this");
    ASSERT_EQ(page.open(2), 0);
    EXPECT_EQ(page.head()->magic, statistics_head::right_magic);
    EXPECT_EQ(page.head()->devices, 2u);
    EXPECT_EQ(page.head()->pid, getpid());
    EXPECT_EQ(page.device(1).charged.vram, 0u);
    EXPECT_EQ(page.device(1).turn % 2, 0u);
}

// The one in /proc/self/fd whose name begins so; -1 if there is none. Later
// ones come first.
int descriptor_of(const std::string &name)
{
    int found = -1;
    for (const auto &each :
         std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone; // the folder's own
        const auto to = std::filesystem::read_symlink(each.path(), gone);
        if (to.string().starts_with(name))
            found = std::max(found, std::stoi(each.path().filename()));
    }
    return found;
}

TEST(Statistics, NobodyCanShortenAPageOrWriteToIt)
{
    statistics_page page;
    ASSERT_EQ(page.open(1), 0);
    const int own = descriptor_of("/memfd:emuv-statistics");
    ASSERT_GE(own, 0);
    const int fd = open(("/proc/self/fd/" + std::to_string(own)).c_str(),
                        O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(ftruncate(fd, 0), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(ftruncate(fd, 1 << 20), -1);
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    EXPECT_EQ(fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW),
              F_SEAL_SHRINK | F_SEAL_GROW);
    // Before Linux 5.1 it can be written to.
    if ((fcntl(fd, F_GET_SEALS) & 0x10) != 0) {
        EXPECT_EQ(pwrite(fd, "x", 1, 0), -1);
        EXPECT_EQ(errno, EPERM);
    }
    page.device(0).steps = 9;
    std::uint64_t steps = 0;
    EXPECT_EQ(pread(fd, &steps, sizeof steps,
                    static_cast<off_t>(sizeof(statistics_head) +
                                       offsetof(device_statistics, steps))),
              static_cast<ssize_t>(sizeof steps));
    EXPECT_EQ(steps, 9u);
    close(fd);
}

TEST(Statistics, AFileIsItsUsersAloneAndStaysAndIsFoundMeanwhile)
{
    const std::string stem = file_of_this_process();
    const std::string file = stem + "." + std::to_string(getpid());
    unlink(file.c_str());
    statistics_page page;
    ASSERT_EQ(page.open(1, stem.c_str()), 0);
    EXPECT_GE(descriptor_of(file), 0);
    page.device(0).steps = 7;
    struct stat about = {};
    ASSERT_EQ(stat(file.c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777u, 0600u);
    ASSERT_EQ(static_cast<std::size_t>(about.st_size),
              sizeof(statistics_head) + sizeof(device_statistics));
    const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
    std::uint64_t steps = 0;
    EXPECT_EQ(pread(fd, &steps, sizeof steps,
                    static_cast<off_t>(sizeof(statistics_head) +
                                       offsetof(device_statistics, steps))),
              static_cast<ssize_t>(sizeof steps));
    EXPECT_EQ(steps, 7u);
    close(fd);
    unlink(file.c_str());
}

TEST(Statistics, AProcessThatBecomesAnotherProgramHasAFileOfEach)
{
    const std::string stem = file_of_this_process();
    const std::string first = stem + "." + std::to_string(getpid());
    const std::string second = first + ".1";
    close(open(first.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    unlink(second.c_str());
    statistics_page page;
    EXPECT_EQ(page.open(1, stem.c_str()), 0);
    EXPECT_EQ(access(second.c_str(), F_OK), 0);
    unlink(first.c_str());
    unlink(second.c_str());
}

TEST(Statistics, WhereThereCanBeNoFileThePageIsAnAnonymousOne)
{
    statistics_page page;
    EXPECT_EQ(page.open(1, "/proc/no/such/folder"), ENOENT);
    ASSERT_NE(page.head(), nullptr);
    EXPECT_EQ(page.head()->magic, statistics_head::right_magic);
    EXPECT_GE(descriptor_of("/memfd:emuv-statistics"), 0);
}

TEST(Statistics, WhereNoFileMayGrowThePageIsMemoryAlone)
{
    const auto in_child = [] {
        const rlimit none = {0, 0};
        setrlimit(RLIMIT_FSIZE, &none);
        const std::string stem = file_of_this_process();
        const std::string file = stem + "." + std::to_string(getpid());
        statistics_page page;
        const bool right = page.open(1, stem.c_str()) == EFBIG &&
                           page.head() != nullptr &&
                           access(file.c_str(), F_OK) != 0;
        std::_Exit(right ? 0 : 1);
    };
    EXPECT_EXIT(in_child(), testing::ExitedWithCode(0), "");
}

TEST(Statistics, WhileAnUpdateIsUnderWayTheTurnIsOdd)
{
    device_statistics one;
    {
        const statistics_update guard(one);
        EXPECT_EQ(one.turn % 2, 1u);
    }
    EXPECT_EQ(one.turn, 2u);
}

TEST(Statistics, TextsAreCutAndEnd)
{
    char text[8];
    std::memset(text, 'x', sizeof text);
    copy_text(text, "123456789");
    EXPECT_STREQ(text, "1234567");
    copy_text(text, "1");
    EXPECT_STREQ(text, "1");
    EXPECT_EQ(text[7], '\0');
}

TEST(Statistics, SettingsWithoutEffectAreListedAsFarAsThereIsRoom)
{
    statistics_page page;
    page.open(1);
    for (int i = 0; i < 6; i++)
        page.vain(std::to_string(i).c_str());
    EXPECT_STREQ(page.head()->vain[0], "0");
    EXPECT_STREQ(page.head()->vain[3], "3");
}

} // namespace
