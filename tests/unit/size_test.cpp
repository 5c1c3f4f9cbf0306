// SPDX-License-Identifier: GPL-2.0-or-later
// Sizes as people write and read them, for libemuv and for the CUDA library.
#include "size_text.hpp"

#include <emuv/size.hpp>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>

namespace {

constexpr std::uint64_t kib = 1ULL << 10;
constexpr std::uint64_t mib = 1ULL << 20;
constexpr std::uint64_t gib = 1ULL << 30;
constexpr std::uint64_t tib = 1ULL << 40;
constexpr auto max64 = std::numeric_limits<std::uint64_t>::max();

std::string why(std::string_view text, unsigned shift = 0)
{
    try {
        const auto bytes = emuv::parse_size(text, shift);
        return "taken for " + std::to_string(bytes);
    } catch (const std::invalid_argument &problem) {
        return problem.what();
    }
}

TEST(parse_size, takes_units_as_powers_of_1024)
{
    EXPECT_EQ(emuv::parse_size("12G"), 12 * gib);
    EXPECT_EQ(emuv::parse_size("12GiB"), 12 * gib);
    EXPECT_EQ(emuv::parse_size("12GB"), 12 * gib);
    EXPECT_EQ(emuv::parse_size("12 GiB"), 12 * gib);
    EXPECT_EQ(emuv::parse_size("512m"), 512 * mib);
    EXPECT_EQ(emuv::parse_size("4k"), 4 * kib);
    EXPECT_EQ(emuv::parse_size("2T"), 2 * tib);
    EXPECT_EQ(emuv::parse_size("1P"), 1024 * tib);
    EXPECT_EQ(emuv::parse_size("4096"), 4096U);
    EXPECT_EQ(emuv::parse_size("4096B"), 4096U);
    EXPECT_EQ(emuv::parse_size("0"), 0U);
    EXPECT_EQ(emuv::parse_size("0G"), 0U);
    EXPECT_EQ(emuv::parse_size("007G"), 7 * gib);
}

TEST(parse_size, takes_fractions_that_are_whole_bytes)
{
    EXPECT_EQ(emuv::parse_size("1.5G"), gib + gib / 2);
    EXPECT_EQ(emuv::parse_size("0.25T"), tib / 4);
    EXPECT_EQ(emuv::parse_size("1.500000000000000000000000000000000G"),
              gib + gib / 2);
    EXPECT_EQ(emuv::parse_size("1.0"), 1U);
    // 1 byte, in MiB
    EXPECT_EQ(emuv::parse_size("0.00000095367431640625M"), 1U);
    EXPECT_THAT(why("0.1G"), testing::HasSubstr("whole number of bytes"));
    EXPECT_THAT(why("1.5"), testing::HasSubstr("whole number of bytes"));
}

TEST(parse_size, refuses_what_is_no_size_and_says_why)
{
    for (const char *const text :
         {"", " ", "G", "-1", "+1", "1.", ".5G", "one", " 1G"})
        EXPECT_THAT(why(text), testing::HasSubstr("is not a size"))
            << text << " was " << why(text);
}

TEST(parse_size, names_the_unit_it_does_not_know)
{
    EXPECT_THAT(why("3X"), testing::HasSubstr("unknown unit 'X'"));
    EXPECT_THAT(why("0x10"), testing::HasSubstr("unknown unit 'x10'"));
    EXPECT_THAT(why("3Gb/s"), testing::HasSubstr("unknown unit 'Gb/s'"));
    EXPECT_THAT(why("3GiBs"), testing::HasSubstr("unknown unit"));
    EXPECT_THAT(why("3iB"), testing::HasSubstr("unknown unit"));
    EXPECT_THAT(why("1,5G"), testing::HasSubstr("unknown unit"));
}

TEST(parse_size, never_overflows)
{
    EXPECT_EQ(emuv::parse_size("18446744073709551615"), max64);
    EXPECT_THAT(why("18446744073709551616"), testing::HasSubstr("too large"));
    EXPECT_EQ(emuv::parse_size("16383P"), 16383ULL << 50);
    EXPECT_THAT(why("16384P"), testing::HasSubstr("too large"));
    EXPECT_THAT(why("99999999999999999999G"), testing::HasSubstr("too large"));
    EXPECT_EQ(emuv::parse_size("16383.5P"), (16383ULL << 50) + (1ULL << 49));
}

TEST(parse_size, counts_in_the_unit_it_is_given)
{
    EXPECT_EQ(emuv::parse_size("12", 30), 12 * gib);
    EXPECT_EQ(emuv::parse_size("1.5", 30), gib + gib / 2);
    EXPECT_THAT(why("12G", 30), testing::HasSubstr("unit is in the key"));
    EXPECT_THAT(why("six", 30), testing::HasSubstr("is not a number"));
}

TEST(read_size, needs_no_exceptions_to_say_why)
{
    EXPECT_EQ(emuv::read_size("1.5G").bytes, gib + gib / 2);
    EXPECT_EQ(emuv::read_size("7b").bytes, 7U);
    EXPECT_EQ(emuv::read_size("512 MB").problem, emuv::size_problem::none);
    for (const char *const text : {"", ".5G", "1.G", "-1"})
        EXPECT_EQ(emuv::read_size(text).problem, emuv::size_problem::not_a_size)
            << text;
    for (const char *const text : {"1..5G", "1GG", "1Bi", "1 G x", "1e9"}) {
        const auto read = emuv::read_size(text);
        EXPECT_NE(read.problem, emuv::size_problem::none) << text;
        EXPECT_EQ(read.bytes, 0U) << text;
    }
    EXPECT_EQ(emuv::read_size("3X").unit, "X");
    EXPECT_EQ(emuv::read_size("16384P").problem, emuv::size_problem::too_large);
    EXPECT_EQ(emuv::read_size("1.0001K").problem,
              emuv::size_problem::not_whole);
    EXPECT_EQ(emuv::read_size("1G", 30).problem,
              emuv::size_problem::unit_given);
}

TEST(read_size, takes_the_longest_fraction_that_is_whole_and_none_beyond)
{
    // 2^-50, and half of it
    const std::string least = "0.00000000000000088817841970012523"
                              "233890533447265625";
    EXPECT_EQ(emuv::read_size(least + "P").bytes, 1U);
    EXPECT_EQ(emuv::read_size(least + "000P").bytes, 1U);
    EXPECT_EQ(emuv::read_size(least + "5P").problem,
              emuv::size_problem::not_whole);
    EXPECT_EQ(emuv::read_size("0." + std::string(1000, '3') + "P").problem,
              emuv::size_problem::not_whole);
}

TEST(show_size, shows_a_tenth_at_most)
{
    EXPECT_STREQ(emuv::show_size(17).text, "17 bytes");
    EXPECT_STREQ(emuv::show_size(12 * gib).text, "12 GiB");
    EXPECT_STREQ(emuv::show_size(gib + gib / 2).text, "1.5 GiB");
    EXPECT_STREQ(emuv::show_size(mib + mib / 2 + 1).text, "1.5 MiB");
    EXPECT_STREQ(emuv::show_size(gib - 1).text, "1 GiB");
    EXPECT_STREQ(emuv::show_size(max64).text, "16 EiB");
}

TEST(format_size, rounds_to_a_tenth_of_the_largest_unit)
{
    EXPECT_EQ(emuv::format_size(0), "0");
    EXPECT_EQ(emuv::format_size(1), "1B");
    EXPECT_EQ(emuv::format_size(1023), "1023B");
    EXPECT_EQ(emuv::format_size(kib), "1K");
    EXPECT_EQ(emuv::format_size(12 * gib), "12G");
    EXPECT_EQ(emuv::format_size(gib + gib / 2), "1.5G");
    EXPECT_EQ(emuv::format_size(900 * mib), "900M");
    EXPECT_EQ(emuv::format_size(gib - 1), "1G");
    EXPECT_EQ(emuv::format_size(1024 * tib), "1P");
    EXPECT_EQ(emuv::format_size(max64), "16384P");
}

TEST(format_size_exact, never_rounds)
{
    EXPECT_EQ(emuv::format_size_exact(12 * gib), "12 GiB");
    EXPECT_EQ(emuv::format_size_exact(gib + gib / 2), "1.5 GiB");
    EXPECT_EQ(emuv::format_size_exact(gib + gib / 4), "1280 MiB");
    EXPECT_EQ(emuv::format_size_exact(gib + 1), "1073741825 bytes");
    EXPECT_EQ(emuv::format_size_exact(1), "1 byte");
    EXPECT_EQ(emuv::format_size_exact(0), "0 bytes");
    EXPECT_EQ(emuv::format_size_exact(2 * mib), "2 MiB");
}

TEST(format_decimal, is_read_back_as_the_same_bytes)
{
    for (const std::uint64_t bytes :
         {std::uint64_t{0}, std::uint64_t{1}, kib + 1, 3 * mib + 7,
          12 * gib - 1, 1024 * tib, max64})
        for (const unsigned shift : {20U, 30U})
            EXPECT_EQ(
                emuv::parse_size(emuv::format_decimal(bytes, shift), shift),
                bytes);
    EXPECT_EQ(emuv::format_decimal(gib + gib / 2, 30), "1.5");
    EXPECT_EQ(emuv::format_decimal(12 * gib, 30), "12");
}

} // namespace
