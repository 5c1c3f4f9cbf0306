// SPDX-License-Identifier: GPL-2.0-or-later
// A process's page: its file, its updates, its texts.
#include "base/statistics.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
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
    EXPECT_EQ(page.device(1).held.vram, 0u);
    EXPECT_EQ(page.device(1).turn % 2, 0u);
}

TEST(Statistics, AFileIsItsUsersAloneAndStays)
{
    const std::string file = file_of_this_process();
    unlink(file.c_str());
    statistics_page page;
    ASSERT_EQ(page.open(1, file.c_str()), 0);
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

TEST(Statistics, WhereAFileStandsAlreadyThePageIsMemoryAlone)
{
    const std::string file = file_of_this_process();
    close(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    statistics_page page;
    EXPECT_EQ(page.open(1, file.c_str()), EEXIST);
    ASSERT_NE(page.head(), nullptr);
    page.device(0).steps = 1;
    std::free(page.head()); // it lasts as long as a process otherwise
    unlink(file.c_str());
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
