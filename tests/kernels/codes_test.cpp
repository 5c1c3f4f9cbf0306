// SPDX-License-Identifier: GPL-2.0-or-later
// Codes and scales, bit by bit, against what their definitions say.
#include "codes.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace emuv::kernels {
namespace {

constexpr std::array<double, 8> e2m1_values = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

// The nearest of @p values to @p value; of two, the one at an even index.
// Beyond the last, the last.
std::size_t nearest(const std::vector<double> &values, double value)
{
    if (value >= values.back())
        return values.size() - 1;
    std::size_t best = 0;
    for (std::size_t i = 1; i < values.size(); i++) {
        const double before = std::fabs(value - values[best]);
        const double here = std::fabs(value - values[i]);
        if (here < before || (here == before && i % 2 == 0))
            best = i;
    }
    return best;
}

// Numbers of a small type, without a sign: all finite ones.
std::vector<double> numbers(unsigned mantissa, int lowest, unsigned last)
{
    std::vector<double> out;
    for (unsigned code = 0; code <= last; code++) {
        const unsigned exponent = code >> mantissa;
        const unsigned fraction = code & ((1U << mantissa) - 1U);
        const double unit = std::ldexp(1.0, -static_cast<int>(mantissa));
        out.push_back(
            exponent == 0
                ? std::ldexp(fraction * unit, lowest)
                : std::ldexp(1 + fraction * unit,
                             lowest + static_cast<int>(exponent) - 1));
    }
    return out;
}

// Each number, the middles between neighbours, and floats just beside both.
std::vector<float> near(const std::vector<double> &values)
{
    std::vector<float> out;
    const auto add = [&](double value) {
        const auto exact = static_cast<float>(value);
        for (const float each :
             {exact, std::nextafter(exact, 0.0F),
              std::nextafter(exact, std::numeric_limits<float>::max())})
            out.push_back(each);
    };
    for (std::size_t i = 0; i < values.size(); i++) {
        add(values[i]);
        if (i + 1 < values.size())
            add((values[i] + values[i + 1]) / 2);
    }
    add(values.back() * 1.01);
    add(values.back() * 2);
    out.push_back(std::numeric_limits<float>::max());
    return out;
}

TEST(CodesTest, each_e2m1_code_stands_for_its_value)
{
    for (unsigned code = 0; code < 16; code++) {
        const double size = e2m1_values[code % 8];
        const float value = from_e2m1(static_cast<std::uint8_t>(code));
        EXPECT_EQ(value, code < 8 ? size : -size) << code;
        EXPECT_EQ(std::signbit(value), code >= 8) << code;
        EXPECT_EQ(to_e2m1(value), code);
    }
}

TEST(CodesTest, e2m1_rounds_to_the_nearest_and_ties_to_even)
{
    const std::vector<double> all(e2m1_values.begin(), e2m1_values.end());
    for (const float value : near(all)) {
        const std::size_t wanted = nearest(all, value);
        EXPECT_EQ(to_e2m1(value), wanted) << value;
        EXPECT_EQ(to_e2m1(-value), wanted + 8) << value;
    }
    EXPECT_EQ(to_e2m1(std::numeric_limits<float>::infinity()), 7);
}

TEST(CodesTest, each_symmetric_code_stands_for_its_value)
{
    for (int value = -7; value <= 7; value++) {
        const std::uint8_t code = to_symmetric(static_cast<float>(value));
        EXPECT_EQ(code, value & 15);
        EXPECT_EQ(from_symmetric(code), value);
    }
    EXPECT_EQ(from_symmetric(8), -8);
}

TEST(CodesTest, symmetric_rounds_to_the_nearest_and_ties_to_even)
{
    EXPECT_EQ(to_symmetric(0.5F), 0);
    EXPECT_EQ(to_symmetric(1.5F), 2);
    EXPECT_EQ(to_symmetric(2.5F), 2);
    EXPECT_EQ(to_symmetric(-0.5F), 0);
    EXPECT_EQ(to_symmetric(-1.5F), -2 & 15);
    EXPECT_EQ(to_symmetric(std::nextafter(2.5F, 3.0F)), 3);
    // It never makes the code that has no counterpart.
    EXPECT_EQ(to_symmetric(-7.6F), -7 & 15);
    EXPECT_EQ(to_symmetric(1e30F), 7);
    EXPECT_EQ(to_symmetric(-std::numeric_limits<float>::infinity()), -7 & 15);
}

TEST(CodesTest, all_e4m3_scales_are_read_and_made)
{
    const std::vector<double> all = numbers(3, -6, 0x7e);
    EXPECT_EQ(all.back(), largest_e4m3);
    for (unsigned code = 0; code < all.size(); code++) {
        const float value = from_e4m3(static_cast<std::uint8_t>(code));
        EXPECT_EQ(value, all[code]);
        EXPECT_EQ(from_e4m3(static_cast<std::uint8_t>(code | 0x80U)), -value);
    }
    EXPECT_TRUE(std::isnan(from_e4m3(e4m3_nan)));
    EXPECT_TRUE(std::isnan(from_e4m3(0xff)));
    for (const float value : near(all))
        EXPECT_EQ(to_e4m3(value), nearest(all, value)) << value;
}

TEST(CodesTest, all_fp16_scales_are_read_and_made)
{
    const std::vector<double> all = numbers(10, -14, 0x7bff);
    EXPECT_EQ(all.back(), largest_fp16);
    for (unsigned code = 0; code < all.size(); code++) {
        const auto bits = static_cast<std::uint16_t>(code);
        ASSERT_EQ(from_fp16(bits), all[code]);
        ASSERT_EQ(to_fp16_scale(from_fp16(bits)), code);
        ASSERT_EQ(to_fp16(from_fp16(bits)), code);
        if (code + 1 == all.size())
            break;
        // Halfway, and a little to either side.
        const auto middle = static_cast<float>((all[code] + all[code + 1]) / 2);
        const unsigned even = code + code % 2;
        ASSERT_EQ(to_fp16_scale(middle), even);
        ASSERT_EQ(to_fp16(-middle), even | 0x8000U);
        ASSERT_EQ(to_fp16_scale(std::nextafter(middle, 0.0F)), code);
        ASSERT_EQ(to_fp16_scale(std::nextafter(middle, 1e6F)), code + 1);
    }
    // A scale never becomes infinite, and a number does.
    EXPECT_EQ(to_fp16_scale(1e6F), 0x7bff);
    EXPECT_EQ(to_fp16(65519.0F), 0x7bff);
    EXPECT_EQ(to_fp16(65520.0F), 0x7c00);
    EXPECT_EQ(to_fp16(-1e30F), 0xfc00);
    EXPECT_TRUE(std::isnan(from_fp16(to_fp16(std::nanf("")))));
    EXPECT_TRUE(std::isinf(from_fp16(0x7c00)));
}

TEST(CodesTest, bf16_keeps_all_its_numbers_and_rounds_ties_to_even)
{
    for (unsigned code = 0; code < 0x10000; code++) {
        const float value = from_bf16(static_cast<std::uint16_t>(code));
        if (std::isnan(value))
            ASSERT_TRUE(std::isnan(from_bf16(to_bf16(value))));
        else
            ASSERT_EQ(to_bf16(value), code);
    }
    EXPECT_EQ(to_bf16(float_of(0x3f808000)), 0x3f80);
    EXPECT_EQ(to_bf16(float_of(0x3f818000)), 0x3f82);
    EXPECT_EQ(to_bf16(float_of(0x3f808001)), 0x3f81);
    EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()), 0x7f80);
}

// Pairs of all codes in both halves, as 16-bit numbers.
template <typename Pair, typename Read, typename Value>
void expect_pairs(const Pair &pair, const Read &read, const Value &value)
{
    for (unsigned low = 0; low < 16; low++)
        for (unsigned high = 0; high < 16; high++)
            for (unsigned which = 0; which < 4; which++) {
                // All other codes are the opposite.
                std::uint32_t word = 0x96969696U;
                word &= ~(0x000f000fU << (4 * which));
                word |= low << (4 * which) | high << (4 * which + 16);
                const std::uint32_t two = pair(word, which);
                EXPECT_EQ(read(static_cast<std::uint16_t>(two)), value(low));
                EXPECT_EQ(read(static_cast<std::uint16_t>(two >> 16)),
                          value(high));
            }
}

TEST(CodesTest, pairs_of_codes_become_16_bit_numbers)
{
    const auto e2m1 = [](unsigned code) {
        return from_e2m1(static_cast<std::uint8_t>(code));
    };
    const auto whole = [](unsigned code) {
        return from_symmetric(static_cast<std::uint8_t>(code));
    };
    expect_pairs(e2m1_pair_as_fp16, from_fp16,
                 [&](unsigned code) { return std::ldexp(e2m1(code), -14); });
    expect_pairs(e2m1_pair_as_bf16, from_bf16,
                 [&](unsigned code) { return std::ldexp(e2m1(code), -126); });
    expect_pairs(symmetric_pair_as_fp16, from_fp16,
                 [&](unsigned code) { return 1032 + whole(code); });
    expect_pairs(symmetric_pair_as_bf16, from_bf16,
                 [&](unsigned code) { return 136 + whole(code); });
}

} // namespace
} // namespace emuv::kernels
