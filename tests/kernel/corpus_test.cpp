// SPDX-License-Identifier: GPL-2.0-or-later
// Replays every sequence of calls that fuzzing of the ABI has kept. The driver
// must be back in its first state after each. See tests/fuzz.
#include "abi_executor.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace guest;

TEST(corpus, LeavesTheDriverAsItWas)
{
    ASSERT_FALSE(loaded());
    // All are read before the first child is killed, which a guest's 9p does
    // not always survive with files open.
    std::map<std::string, std::vector<std::uint8_t>> inputs;
    for (const auto &entry :
         std::filesystem::directory_iterator(EMUV_ABI_CORPUS)) {
        std::ifstream file(entry.path(), std::ios::binary);
        ASSERT_TRUE(file.is_open()) << entry.path();
        inputs[entry.path().filename()].assign(
            std::istreambuf_iterator<char>(file), {});
    }
    EXPECT_FALSE(inputs.empty());
    {
        fuzz::executor driver;
        for (const auto &[name, bytes] : inputs) {
            // After a crash, the last name printed is the input that caused it.
            std::printf("%s\n", name.c_str());
            std::fflush(stdout);
            EXPECT_EQ(driver.run(bytes), "") << name;
        }
    }
    EXPECT_EQ(leftovers(), "");
}

} // namespace
