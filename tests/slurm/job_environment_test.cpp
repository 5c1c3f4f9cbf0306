// SPDX-License-Identifier: GPL-2.0-or-later
// The variables of a job's tasks, as the prolog has kept them.
#include "job_environment.hpp"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include <gtest/gtest.h>
#include <unistd.h>

namespace {

using emuv_slurm::joined_value;
using emuv_slurm::read_environment;
using emuv_slurm::variables;

class job_environment : public testing::Test
{
protected:
    job_environment()
    {
        std::string pattern =
            (std::filesystem::temp_directory_path() / "emuv-XXXXXX").string();
        folder = ::mkdtemp(pattern.data());
        file = folder / "7.environment";
    }
    ~job_environment() override { std::filesystem::remove_all(folder); }

    void write(const std::string &text) const { std::ofstream(file) << text; }

    std::filesystem::path folder;
    std::filesystem::path file;
};

TEST_F(job_environment, IsNothingWithoutAFile)
{
    EXPECT_EQ(read_environment(file), std::nullopt);
}

TEST_F(job_environment, HasAVariableALine)
{
    write("EMUV_INSTANCE=512\nEMUV_X=a b=c\nEMPTY=\nLAST=1");
    EXPECT_EQ(read_environment(file), (variables{{"EMUV_INSTANCE", "512"},
                                                 {"EMUV_X", "a b=c"},
                                                 {"EMPTY", ""},
                                                 {"LAST", "1"}}));
}

TEST_F(job_environment, RefusesOtherLines)
{
    for (const char *const text : {"words\n", "=1\n", "A=1\n\nB=2\n"}) {
        write(text);
        EXPECT_THROW(read_environment(file), std::runtime_error) << text;
    }
}

TEST_F(job_environment, RefusesALink)
{
    write("A=1\n");
    const auto link = folder / "link";
    std::filesystem::create_symlink(file, link);
    EXPECT_THROW(read_environment(link), std::system_error);
}

TEST_F(job_environment, RefusesAnotherUsersFile)
{
    if (::geteuid() != 0)
        GTEST_SKIP() << "only root can give a file away";
    write("LD_PRELOAD=/tmp/theirs.so\n");
    ASSERT_EQ(::chown(file.c_str(), 1000, 1000), 0);
    EXPECT_THROW(read_environment(file), std::runtime_error);
}

TEST_F(job_environment, PutsItsLibrariesBeforeTheJobsOnce)
{
    EXPECT_EQ(joined_value("LD_PRELOAD", "/a:/b", ""), "/a:/b");
    EXPECT_EQ(joined_value("LD_PRELOAD", "/a:/b", "/c"), "/a:/b:/c");
    EXPECT_EQ(joined_value("LD_PRELOAD", "/a:/b", "/a:/b"), "/a:/b");
    EXPECT_EQ(joined_value("LD_PRELOAD", "/a:/b", "/a:/b:/c"), "/a:/b:/c");
    EXPECT_EQ(joined_value("LD_PRELOAD", "/a", "/ab"), "/a:/ab");
    EXPECT_EQ(joined_value("EMUV_INSTANCE", "3", "1"), "3");
    EXPECT_EQ(joined_value("EMUV_TIER", "peer:1=1G", "peer:7=1G"), "peer:1=1G");
    EXPECT_EQ(joined_value("EMUV_TIER", "peer:1=1G", "none"), "none");
    EXPECT_EQ(joined_value("EMUV_CHARGE", "all", "held"), "held");
    EXPECT_EQ(joined_value("EMUV_CHARGE", "all", ""), "all");
}

} // namespace
