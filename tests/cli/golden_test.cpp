// SPDX-License-Identifier: GPL-2.0-or-later
// Runs the transcripts in golden/ with the real emuvctl, on a machine that was
// recorded in machine/, and expects every character of them again.
//
// A transcript is a series of lines "$ COMMAND". Behind each is the output of
// the command, stdout and stderr as they came, and "[exit N]" unless N is 0.
// EMUV_UPDATE_GOLDEN=1 writes them anew from what is printed.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>

namespace {

std::vector<std::string> transcripts()
{
    std::vector<std::string> names;
    for (const auto &entry :
         std::filesystem::directory_iterator(GOLDEN_FOLDER "/golden"))
        if (entry.path().extension() == ".txt")
            names.push_back(entry.path().stem().string());
    std::sort(names.begin(), names.end());
    return names;
}

std::string run(const std::string &command)
{
    // The pipe is as wide as it is on any machine, and so are the trees.
    std::FILE *const pipe = ::popen(("{ " + command + "\n} 2>&1").c_str(), "r");
    if (pipe == nullptr)
        return "popen failed\n";
    std::string text;
    std::array<char, 4096> block;
    for (std::size_t got = 0;
         (got = std::fread(block.data(), 1, block.size(), pipe)) > 0;)
        text.append(block.data(), got);
    const int status = ::pclose(pipe);
    if (!text.empty() && text.back() != '\n')
        text += "[no newline]\n";
    if (!WIFEXITED(status))
        text += "[signal " + std::to_string(WTERMSIG(status)) + "]\n";
    else if (WEXITSTATUS(status) != 0)
        text += "[exit " + std::to_string(WEXITSTATUS(status)) + "]\n";
    return text;
}

class golden : public testing::TestWithParam<std::string>
{};

TEST_P(golden, transcript_is_as_recorded)
{
    std::filesystem::current_path(GOLDEN_FOLDER);
    const char *const path = std::getenv("PATH");
    ASSERT_NE(path, nullptr);
    ::setenv("PATH", (EMUVCTL_FOLDER ":" + std::string(path)).c_str(), 1);
    ::setenv("LC_ALL", "C", 1);
    ::setenv("EMUV_SYSFS_ROOT", "machine/sys", 1);
    ::setenv("EMUV_PROC_ROOT", "machine/proc", 1);
    ::setenv("EMUV_DEV_ROOT", "machine/dev", 1); // there is none
    ::setenv("EMUV_RUN_ROOT", "/dev/null", 1);   // so nothing is written there
    ::setenv("EMUV_ETC_ROOT", "none", 1);
    ::setenv("EMUV_CONFIG", "profiles.conf", 1);

    const std::string file = "golden/" + GetParam() + ".txt";
    std::ifstream stream(file);
    ASSERT_TRUE(stream) << file;
    std::string expected;
    std::string actual;
    int commands = 0;
    for (std::string line; std::getline(stream, line);) {
        expected += line + "\n";
        if (!line.starts_with("$ "))
            continue;
        actual += line + "\n" + run(line.substr(2));
        commands++;
    }
    ASSERT_GT(commands, 0) << file << " holds no command";
    if (std::getenv("EMUV_UPDATE_GOLDEN") != nullptr) {
        std::ofstream(file) << actual;
        return;
    }
    EXPECT_EQ(actual, expected);
}

INSTANTIATE_TEST_SUITE_P(emuvctl, golden, testing::ValuesIn(transcripts()),
                         [](const auto &which) { return which.param; });

} // namespace
