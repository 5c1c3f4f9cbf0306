// SPDX-License-Identifier: LGPL-2.1-or-later
// Sizes in bytes, as settings write them and as sentences show them.
#include "base/size.hpp"

#include <cstdio>

namespace emuv::cuda {

namespace {

bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

char upper(char c)
{
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

// The power of two that a unit stands for; nothing for what is none.
std::optional<unsigned> unit_shift(std::string_view unit)
{
    if (unit.empty() || (unit.size() == 1 && upper(unit[0]) == 'B'))
        return 0;
    const auto index = std::string_view("KMGTP").find(upper(unit[0]));
    if (index == std::string_view::npos)
        return std::nullopt;
    unit.remove_prefix(1);
    const bool known =
        unit.empty() || (unit.size() == 1 && upper(unit[0]) == 'B') ||
        (unit.size() == 2 && upper(unit[0]) == 'I' && upper(unit[1]) == 'B');
    if (!known)
        return std::nullopt;
    return static_cast<unsigned>(10 * (index + 1));
}

} // namespace

std::optional<std::uint64_t> parse_size(std::string_view text)
{
    // 128 bits hold any product of 20 digits and a unit.
    __extension__ using wide = unsigned __int128;
    wide number = 0;
    wide scale = 1;
    unsigned digits = 0;
    bool point = false;
    std::size_t at = 0;
    for (; at < text.size() && (is_digit(text[at]) || text[at] == '.'); at++) {
        if (text[at] == '.') {
            if (point || digits == 0)
                return std::nullopt;
            point = true;
            continue;
        }
        if (++digits > 20)
            return std::nullopt;
        number = number * 10 + static_cast<unsigned>(text[at] - '0');
        if (point)
            scale *= 10;
    }
    if (digits == 0 || (point && scale == 1))
        return std::nullopt;
    while (at < text.size() && text[at] == ' ')
        at++;
    const auto shift = unit_shift(text.substr(at));
    if (!shift)
        return std::nullopt;
    // At most 2^67 * 2^50: it fits.
    const wide scaled = number << *shift;
    const wide bytes = scaled / scale;
    if (bytes * scale != scaled || bytes >> 64 != 0)
        return std::nullopt;
    return static_cast<std::uint64_t>(bytes);
}

size_text show_size(std::uint64_t bytes)
{
    size_text shown{};
    static constexpr char units[] = "KMGTPE";
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
    const auto full = static_cast<unsigned>(whole + tenths / 10);
    if (tenths % 10 == 0)
        std::snprintf(shown.text, sizeof shown.text, "%u %ciB", full,
                      units[unit]);
    else
        std::snprintf(shown.text, sizeof shown.text, "%u.%u %ciB", full,
                      tenths % 10, units[unit]);
    return shown;
}

} // namespace emuv::cuda
