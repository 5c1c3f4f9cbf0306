// SPDX-License-Identifier: GPL-2.0-or-later
// Sizes as settings write them.
#include "base/size.hpp"

#include <gtest/gtest.h>

using namespace emuv::cuda;

TEST(Size, UnitsArePowersOf1024InAnyCase)
{
    EXPECT_EQ(parse_size("12G"), 12ull << 30);
    EXPECT_EQ(parse_size("12gib"), 12ull << 30);
    EXPECT_EQ(parse_size("512 MB"), 512ull << 20);
    EXPECT_EQ(parse_size("4096"), 4096u);
    EXPECT_EQ(parse_size("7b"), 7u);
    EXPECT_EQ(parse_size("0"), 0u);
    EXPECT_EQ(parse_size("1P"), 1ull << 50);
}

TEST(Size, FractionsMustMakeWholeBytes)
{
    EXPECT_EQ(parse_size("1.5G"), 3ull << 29);
    EXPECT_EQ(parse_size("0.5K"), 512u);
    EXPECT_EQ(parse_size("1.0001K"), std::nullopt);
    EXPECT_EQ(parse_size("1.5"), std::nullopt);
}

TEST(Size, WhatIsNoSizeIsRefused)
{
    for (const char *text : {"", "G", "-1", "1X", "1.G", ".5G", "1..5G", "1GG",
                             "1 G x", "0x10", "1e9", "123456789012345678901"})
        EXPECT_EQ(parse_size(text), std::nullopt) << text;
}

TEST(Size, TheLargestIsBelowTwoToThe64)
{
    EXPECT_EQ(parse_size("18446744073709551615"), UINT64_MAX);
    EXPECT_EQ(parse_size("18446744073709551616"), std::nullopt);
    EXPECT_EQ(parse_size("16384P"), std::nullopt);
}

TEST(Size, SentencesShowATenthAtMost)
{
    EXPECT_STREQ(show_size(17).text, "17 bytes");
    EXPECT_STREQ(show_size(12ull << 30).text, "12 GiB");
    EXPECT_STREQ(show_size(3ull << 29).text, "1.5 GiB");
    EXPECT_STREQ(show_size((1ull << 20) + (1ull << 19) + 1).text, "1.5 MiB");
    EXPECT_STREQ(show_size(UINT64_MAX).text, "16 EiB");
}
