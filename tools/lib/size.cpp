// SPDX-License-Identifier: LGPL-2.1-or-later
// Sizes in bytes as people write and read them.
#include "quoted.hpp"
#include "size_text.hpp"

#include <emuv/size.hpp>

#include <stdexcept>

namespace emuv {

namespace {

constexpr std::string_view units = "KMGTP"; // 1 << 10, 1 << 20 ...

std::string describe(const size_reading &read, unsigned unit_shift)
{
    switch (read.problem) {
    case size_problem::none:
        break;
    case size_problem::not_a_size:
        return unit_shift == 0 ? "is not a size; sizes are written as 12G, "
                                 "512M, 1.5T or in bytes"
                               : "is not a number";
    case size_problem::unknown_unit:
        return "has an unknown unit '" + std::string(read.unit) +
               "'; units are K, M, G, T and P";
    case size_problem::unit_given:
        return "is not a number; the unit is in the key";
    case size_problem::too_large:
        return "is too large";
    case size_problem::not_whole:
        return "is not a whole number of bytes";
    }
    return "";
}

} // namespace

std::uint64_t parse_size(std::string_view text, unsigned unit_shift)
{
    const size_reading read = read_size(text, unit_shift);
    if (read.problem != size_problem::none)
        throw std::invalid_argument(quoted(text) + " " +
                                    describe(read, unit_shift));
    return read.bytes;
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
