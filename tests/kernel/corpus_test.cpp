// SPDX-License-Identifier: GPL-2.0-or-later
// Replays every sequence of calls that fuzzing of the ABI has kept. The driver
// must be back in its first state after each. See tests/fuzz.
#include "abi_executor.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace {

using namespace guest;

TEST(corpus, LeavesTheDriverAsItWas)
{
    ASSERT_FALSE(loaded());
    int inputs = 0;
    {
        fuzz::executor driver;
        for (const auto &entry :
             std::filesystem::directory_iterator(EMUV_ABI_CORPUS)) {
            std::ifstream file(entry.path(), std::ios::binary);
            const std::vector<char> text{std::istreambuf_iterator<char>(file),
                                         {}};
            const std::vector<std::uint8_t> bytes(text.begin(), text.end());
            // After a crash, the last name printed is the input that caused it.
            std::printf("%s\n", entry.path().filename().c_str());
            std::fflush(stdout);
            EXPECT_EQ(driver.run(bytes), "") << entry.path();
            inputs++;
        }
    }
    EXPECT_GT(inputs, 0);
    EXPECT_EQ(leftovers(), "");
}

} // namespace
