// SPDX-License-Identifier: GPL-2.0-or-later
// Failed calls as exceptions.
#include <emuv/error.hpp>

#include <cerrno>

#include <gmock/gmock.h>

namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(error, names_the_node_the_call_and_the_errno)
{
    const emuv::error problem(ENOSPC, "/dev/emuv3", "EMUV_IOC_ALLOC", 3);
    EXPECT_THAT(problem.what(),
                AllOf(HasSubstr("/dev/emuv3"), HasSubstr("EMUV_IOC_ALLOC"),
                      HasSubstr("No space left")));
    EXPECT_EQ(problem.node(), "/dev/emuv3");
    EXPECT_EQ(problem.call(), "EMUV_IOC_ALLOC");
    EXPECT_EQ(problem.id(), 3);
    EXPECT_EQ(problem.number(), ENOSPC);
    EXPECT_EQ(problem.code(), std::errc::no_space_on_device);
}

TEST(error, is_caught_as_a_system_error)
{
    EXPECT_THROW(throw emuv::error(EPERM, "node", "call"), std::system_error);
}

TEST(error, text_of_an_errno_begins_in_lower_case)
{
    EXPECT_EQ(emuv::errno_text(ENOENT), "no such file or directory");
    EXPECT_EQ(emuv::errno_text(EEXIST), "file exists");
}

TEST(error, text_that_begins_with_an_abbreviation_keeps_its_capitals)
{
    EXPECT_EQ(emuv::errno_text(EDOTDOT), "RFS specific error");
}

} // namespace
