// SPDX-License-Identifier: GPL-2.0-or-later
// Tests of the loop over a folder's entries.
#include "entries.hpp"
#include "fake_kernel.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace {

using emuv_test::fake_kernel;
using emuv_test::write_file;
using testing::UnorderedElementsAre;

std::vector<std::string> names(const emuv::entries &all)
{
    std::vector<std::string> found;
    for (const auto &each : all)
        found.push_back(each.path().filename().string());
    return found;
}

TEST(entries, are_all_that_a_folder_has)
{
    const fake_kernel kernel;
    const auto folder = kernel.root() / "some";
    write_file(folder / "a", "");
    write_file(folder / ".b", "");
    write_file(folder / "c/d", "");
    EXPECT_THAT(names(emuv::entries(folder)),
                UnorderedElementsAre("a", ".b", "c"));
}

TEST(entries, are_none_and_nothing_is_thrown_where_there_is_no_folder)
{
    const fake_kernel kernel;
    std::error_code problem;
    EXPECT_TRUE(names(emuv::entries(kernel.root() / "none", problem)).empty());
    EXPECT_EQ(problem, std::errc::no_such_file_or_directory);
    EXPECT_TRUE(names(emuv::entries(kernel.root() / "none")).empty());
    write_file(kernel.root() / "file", "");
    EXPECT_TRUE(names(emuv::entries(kernel.root() / "file", problem)).empty());
    EXPECT_EQ(problem, std::errc::not_a_directory);
    EXPECT_TRUE(names(emuv::entries(kernel.root(), problem)).size() > 1);
    EXPECT_FALSE(problem);
}

} // namespace
