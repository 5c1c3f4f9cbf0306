// SPDX-License-Identifier: GPL-2.0-or-later
// Figures in words, and texts of files without what could harm.
#include "report/words.hpp"

#include <gtest/gtest.h>

using namespace emuv::report;

namespace {

TEST(ReportWords, HaveThreeDigits)
{
    EXPECT_EQ(say_bytes(0), "0");
    EXPECT_EQ(say_bytes(1536), "1.5 KiB");
    EXPECT_EQ(say_bytes(12.34 * (1 << 30)), "12.3 GiB");
    EXPECT_EQ(say_bytes(1023.9), "1 KiB");
    EXPECT_EQ(say_seconds(0.0125), "12.5 ms");
    EXPECT_EQ(say_seconds(125), "2 min 5 s");
    EXPECT_EQ(say_seconds(3661), "1 h 1 min");
    EXPECT_EQ(say_rate(25.2e9), "25.2 GB/s");
    EXPECT_EQ(say_count(1234567), "1,234,567");
    EXPECT_EQ(say_share(1, 3), "33 %");
    EXPECT_EQ(say_share(1, 300), "0.3 %");
    EXPECT_EQ(say_share(1, 0), "0 %");
}

TEST(ReportWords, KeepUtf8AndReplaceTheRest)
{
    EXPECT_EQ(clean("gr\xc3\xbc\xc3\x9f"
                    "e"),
              "gr\xc3\xbc\xc3\x9f"
              "e");
    const std::string mark = "\xef\xbf\xbd";
    EXPECT_EQ(clean("a\x1b[31m"), "a" + mark + "[31m");
    EXPECT_EQ(clean("a\xff"
                    "b"),
              "a" + mark + "b");
    EXPECT_EQ(clean("\xc0\x80"), mark + mark) << "too long for its value";
    EXPECT_EQ(clean("\xed\xa0\x80"), mark + mark + mark) << "a surrogate";
    EXPECT_EQ(clean("\xe2\x80\xae"
                    "txt"),
              mark + "txt")
        << "turns the direction";
    EXPECT_EQ(clean("\xe2\x82"), mark + mark) << "cut off";
    EXPECT_EQ(clean("abcdef", 3), "abc...");
}

} // namespace
