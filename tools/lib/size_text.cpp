// SPDX-License-Identifier: LGPL-2.1-or-later
// Sizes as text, for libemuv and for the CUDA library.
#include "size_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <optional>
#include <system_error>

namespace emuv {

namespace {

constexpr std::uint64_t max64 = std::numeric_limits<std::uint64_t>::max();
constexpr std::string_view units = "KMGTP"; // 1 << 10, 1 << 20 ...
constexpr unsigned max_shift = 10 * units.size();

bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

char upper(char c)
{
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

std::string_view take_digits(std::string_view &rest)
{
    const auto *const end =
        std::find_if_not(rest.begin(), rest.end(), is_digit);
    const auto digits =
        rest.substr(0, static_cast<std::size_t>(end - rest.begin()));
    rest.remove_prefix(digits.size());
    return digits;
}

// The shift that a unit such as "G", "gb" or "GiB" stands for.
std::optional<unsigned> unit_to_shift(std::string_view unit)
{
    unsigned shift = 0;
    if (!unit.empty() && upper(unit[0]) != 'B') {
        const auto index = units.find(upper(unit[0]));
        if (index == std::string_view::npos)
            return std::nullopt;
        shift = static_cast<unsigned>(10 * (index + 1));
        unit.remove_prefix(1);
        if (unit.size() == 2 && upper(unit[0]) == 'I')
            unit.remove_prefix(1);
    }
    if (unit.empty() || (unit.size() == 1 && upper(unit[0]) == 'B'))
        return shift;
    return std::nullopt;
}

// 0.DIGITS times 2^shift, if that is a whole number: doubles the decimal
// fraction shift times and collects what passes the point.
std::optional<std::uint64_t> scale_fraction(std::string_view digits,
                                            unsigned shift)
{
    while (digits.ends_with('0'))
        digits.remove_suffix(1);
    // The last digit is none of 10's multiples: each of them takes a doubling.
    if (digits.size() > shift || digits.size() > max_shift)
        return std::nullopt;
    std::array<unsigned, max_shift> fraction{};
    std::transform(digits.begin(), digits.end(), fraction.begin(),
                   [](char c) { return static_cast<unsigned>(c - '0'); });
    std::uint64_t whole = 0;
    for (unsigned step = 0; step < shift; step++) {
        unsigned carry = 0;
        for (std::size_t at = digits.size(); at-- > 0;) {
            const unsigned doubled = fraction[at] * 2 + carry;
            fraction[at] = doubled % 10;
            carry = doubled / 10;
        }
        whole = whole * 2 + carry;
    }
    const bool exact = std::all_of(fraction.begin(), fraction.end(),
                                   [](unsigned digit) { return digit == 0; });
    return exact ? std::optional(whole) : std::nullopt;
}

} // namespace

size_reading read_size(std::string_view text, unsigned unit_shift)
{
    std::string_view rest = text;
    const std::string_view whole = take_digits(rest);
    std::string_view fraction;
    if (!whole.empty() && rest.starts_with('.')) {
        rest.remove_prefix(1);
        fraction = take_digits(rest);
        if (fraction.empty())
            return {size_problem::not_a_size};
    }
    if (whole.empty())
        return {size_problem::not_a_size};

    unsigned shift = unit_shift;
    if (unit_shift == 0) {
        while (rest.starts_with(' '))
            rest.remove_prefix(1);
        const auto given = unit_to_shift(rest);
        if (!given)
            return {size_problem::unknown_unit, 0, rest};
        shift = *given;
    } else if (!rest.empty()) {
        return {size_problem::unit_given};
    }

    std::uint64_t bytes = 0;
    const auto [stop, problem] =
        std::from_chars(whole.data(), whole.data() + whole.size(), bytes);
    if (problem != std::errc() || bytes > (max64 >> shift))
        return {size_problem::too_large};
    const auto part = scale_fraction(fraction, shift);
    if (!part)
        return {size_problem::not_whole};
    // part < 1 << shift, and the low bits of the rest are 0.
    return {size_problem::none, (bytes << shift) + *part};
}

size_text show_size(std::uint64_t bytes)
{
    size_text shown{};
    static constexpr char units_shown[] = "KMGTPE";
    int unit = -1;
    std::uint64_t whole = bytes;
    std::uint64_t rest = 0;
    while (whole >= 1024 && unit < 5) {
        rest = whole % 1024;
        whole /= 1024;
        unit++;
    }
    if (unit < 0) {
        std::snprintf(shown.text, sizeof shown.text, "%u bytes",
                      static_cast<unsigned>(whole));
        return shown;
    }
    const auto tenths = static_cast<unsigned>((rest * 10 + 512) / 1024);
    auto full = static_cast<unsigned>(whole + tenths / 10);
    if (full == 1024 && unit < 5) { // 1023.96 MiB is 1 GiB
        full = 1;
        unit++;
    }
    if (tenths % 10 == 0)
        std::snprintf(shown.text, sizeof shown.text, "%u %ciB", full,
                      units_shown[unit]);
    else
        std::snprintf(shown.text, sizeof shown.text, "%u.%u %ciB", full,
                      tenths % 10, units_shown[unit]);
    return shown;
}

} // namespace emuv
