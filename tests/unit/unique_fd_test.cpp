// SPDX-License-Identifier: GPL-2.0-or-later
// Descriptors that close themselves.
#include <emuv/unique_fd.hpp>

#include <type_traits>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace {

int open_null()
{
    return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

bool is_open(int fd)
{
    return ::fcntl(fd, F_GETFD) >= 0;
}

TEST(unique_fd, closes_what_it_holds_when_it_goes)
{
    int fd = -1;
    {
        const emuv::unique_fd held(open_null());
        fd = held.get();
        ASSERT_TRUE(is_open(fd));
    }
    EXPECT_FALSE(is_open(fd));
}

TEST(unique_fd, moves_and_is_not_copied)
{
    static_assert(!std::is_copy_constructible_v<emuv::unique_fd>);
    static_assert(std::is_nothrow_move_assignable_v<emuv::unique_fd>);
    emuv::unique_fd first(open_null());
    const int fd = first.get();
    emuv::unique_fd second(std::move(first));
    EXPECT_EQ(second.get(), fd);
    emuv::unique_fd third(open_null());
    const int replaced = third.get();
    third = std::move(second);
    EXPECT_FALSE(is_open(replaced));
    EXPECT_EQ(third.get(), fd);
    EXPECT_TRUE(is_open(fd));
}

TEST(unique_fd, lets_go_of_what_it_releases)
{
    emuv::unique_fd held(open_null());
    const int fd = held.release();
    EXPECT_FALSE(held);
    EXPECT_TRUE(is_open(fd));
    ::close(fd);
}

} // namespace
