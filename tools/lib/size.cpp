// SPDX-License-Identifier: LGPL-2.1-or-later
// Sizes in bytes as people write and read them.
#include <emuv/size.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <optional>
#include <stdexcept>
#include <vector>

namespace emuv {

namespace {

constexpr std::uint64_t max64 = std::numeric_limits<std::uint64_t>::max();
constexpr std::string_view units = "KMGTP"; // 1 << 10, 1 << 20 ...

bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

[[noreturn]] void refuse(std::string_view text, const std::string &why)
{
    throw std::invalid_argument("'" + std::string(text) + "' " + why);
}

// The shift that a unit such as "G", "gb" or "GiB" stands for.
std::optional<unsigned> unit_to_shift(std::string_view unit)
{
    std::string name;
    for (const char c : unit)
        name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (name.empty() || name == "B")
        return 0;
    const auto index = units.find(name.front());
    if (index == std::string_view::npos)
        return std::nullopt;
    name.erase(0, 1);
    if (!name.empty() && name != "B" && name != "IB")
        return std::nullopt;
    return static_cast<unsigned>(10 * (index + 1));
}

// 0.DIGITS times 2^shift, if that is a whole number: doubles the decimal
// fraction shift times and collects the digits that pass the point. Any number
// of digits is exact this way.
std::optional<std::uint64_t> scale_fraction(std::string_view digits,
                                            unsigned shift)
{
    std::vector<unsigned> fraction;
    for (const char c : digits)
        fraction.push_back(static_cast<unsigned>(c - '0'));
    std::uint64_t whole = 0;
    for (unsigned step = 0; step < shift; step++) {
        unsigned carry = 0;
        for (auto digit = fraction.rbegin(); digit != fraction.rend();
             ++digit) {
            const unsigned doubled = *digit * 2 + carry;
            *digit = doubled % 10;
            carry = doubled / 10;
        }
        whole = whole * 2 + carry;
    }
    const bool exact = std::all_of(fraction.begin(), fraction.end(),
                                   [](unsigned digit) { return digit == 0; });
    return exact ? std::optional(whole) : std::nullopt;
}

} // namespace

std::uint64_t parse_size(std::string_view text, unsigned unit_shift)
{
    std::string_view rest = text;
    const auto take_digits = [&rest] {
        std::size_t n = 0;
        while (n < rest.size() && is_digit(rest[n]))
            n++;
        const auto digits = rest.substr(0, n);
        rest.remove_prefix(n);
        return digits;
    };

    const std::string_view whole = take_digits();
    std::string_view fraction;
    if (!whole.empty() && rest.starts_with('.')) {
        rest.remove_prefix(1);
        fraction = take_digits();
        if (fraction.empty())
            refuse(text, "is not a size");
    }
    if (whole.empty())
        refuse(text, unit_shift == 0
                         ? "is not a size; sizes are written as 12G, 512M, "
                           "1.5T or in bytes"
                         : "is not a number");

    unsigned shift = unit_shift;
    if (unit_shift == 0) {
        while (rest.starts_with(' '))
            rest.remove_prefix(1);
        const auto given = unit_to_shift(rest);
        if (!given)
            refuse(text, "has an unknown unit '" + std::string(rest) +
                             "'; units are K, M, G, T and P");
        shift = *given;
    } else if (!rest.empty()) {
        refuse(text, "is not a number; the unit is in the key");
    }

    std::uint64_t value = 0;
    const auto [stop, problem] =
        std::from_chars(whole.data(), whole.data() + whole.size(), value);
    if (problem != std::errc() || value > (max64 >> shift))
        refuse(text, "is too large");
    value <<= shift;
    while (fraction.ends_with('0'))
        fraction.remove_suffix(1);
    const auto part = scale_fraction(fraction, shift);
    if (!part)
        refuse(text, "is not a whole number of bytes");
    return value + *part; // part < 1 << shift, the low bits of value are 0
}

std::string format_decimal(std::uint64_t bytes, unsigned shift)
{
    std::string text = std::to_string(bytes >> shift);
    std::uint64_t rest = bytes - ((bytes >> shift) << shift);
    if (rest == 0)
        return text;
    text += '.';
    // At most shift digits; shift is at most 50, so that rest * 10 fits.
    while (rest != 0) {
        rest *= 10;
        text += static_cast<char>('0' + (rest >> shift));
        rest -= (rest >> shift) << shift;
    }
    return text;
}

std::string format_size(std::uint64_t bytes)
{
    unsigned index = 0; // 0: bytes, 1: K ...
    while (index < units.size() && (bytes >> (10 * index)) >= 1024)
        index++;
    if (index == 0)
        return std::to_string(bytes) + (bytes == 0 ? "" : "B");
    // In tenths, rounded half up; the remainder is below 2^50, so times ten
    // it fits.
    const auto in_tenths = [bytes](unsigned shift) {
        const std::uint64_t whole = bytes >> shift;
        const std::uint64_t rest = bytes - (whole << shift);
        return whole * 10 + (rest * 10 + (std::uint64_t{1} << (shift - 1))) /
                                (1ULL << shift);
    };
    std::uint64_t tenths = in_tenths(10 * index);
    if (tenths >= 10240 && index < units.size()) // 1023.96M is 1G
        tenths = in_tenths(10 * ++index);
    std::string text = std::to_string(tenths / 10);
    if (tenths % 10 != 0) {
        text += '.';
        text += static_cast<char>('0' + tenths % 10);
    }
    return text + units[index - 1];
}

std::string format_size_exact(std::uint64_t bytes)
{
    for (unsigned index = static_cast<unsigned>(units.size()); index > 0;
         index--) {
        const unsigned shift = 10 * index;
        if ((bytes >> shift) == 0)
            continue;
        const std::string text = format_decimal(bytes, shift);
        const auto point = text.find('.');
        if (point == std::string::npos || text.size() - point <= 2)
            return text + " " + units[index - 1] + "iB";
    }
    return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

} // namespace emuv
