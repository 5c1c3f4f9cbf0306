// SPDX-License-Identifier: GPL-2.0-or-later
// Figures and foreign texts in words for a page.
#include "report/words.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

namespace emuv::report {

namespace {

// Three digits: 1.25, 12.5, 125.
std::string digits(double value)
{
    if (value >= 99.95)
        return fmt::format("{:.0f}", value);
    std::string text = fmt::format("{:.{}f}", value, value >= 9.995 ? 1 : 2);
    while (text.ends_with('0'))
        text.pop_back();
    if (text.ends_with('.'))
        text.pop_back();
    return text;
}

// A character of UTF-8 at the start of a text. @return its bytes, and its code;
// 0 bytes if it is none
struct character
{
    std::size_t bytes = 0;
    std::uint32_t code = 0;
};
character first_of(std::string_view text)
{
    const auto byte = [&](std::size_t i) {
        return static_cast<unsigned char>(text[i]);
    };
    const unsigned char head = byte(0);
    if (head < 0x80)
        return {1, head};
    const std::size_t count = head >= 0xf0   ? 4
                              : head >= 0xe0 ? 3
                              : head >= 0xc2 ? 2
                                             : 0;
    if (count == 0 || head > 0xf4 || text.size() < count)
        return {};
    std::uint32_t code = head & (0xffU >> (count + 1));
    for (std::size_t i = 1; i < count; i++) {
        if ((byte(i) & 0xc0U) != 0x80)
            return {};
        code = code << 6 | (byte(i) & 0x3fU);
    }
    constexpr std::array<std::uint32_t, 5> least = {0, 0, 0x80, 0x800, 0x10000};
    const bool surrogate = code >= 0xd800 && code < 0xe000;
    if (code < least[count] || code > 0x10ffff || surrogate)
        return {};
    return {count, code};
}

// Controls, and marks that turn the direction of text.
bool steers(std::uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c ||
           (code >= 0x200b && code <= 0x200f) ||
           (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2060 && code <= 0x206f) || code == 0xfeff ||
           code >= 0xfff9;
}

} // namespace

std::string say_bytes(double bytes)
{
    if (!(bytes >= 0.5))
        return "0";
    constexpr std::array<const char *, 6> units = {"bytes", "KiB", "MiB",
                                                   "GiB",   "TiB", "PiB"};
    std::size_t unit = 0;
    while (unit + 1 < units.size() && bytes >= 1023.5) {
        bytes /= 1024;
        unit++;
    }
    return fmt::format("{} {}", digits(bytes), units[unit]);
}

std::string say_rate(double bytes_per_second)
{
    if (!(bytes_per_second >= 0.5))
        return "0";
    constexpr std::array<const char *, 4> units = {"B/s", "kB/s", "MB/s",
                                                   "GB/s"};
    std::size_t unit = 0;
    while (unit + 1 < units.size() && bytes_per_second >= 999.5) {
        bytes_per_second /= 1000;
        unit++;
    }
    return fmt::format("{} {}", digits(bytes_per_second), units[unit]);
}

std::string say_seconds(double seconds)
{
    if (!(seconds >= 1e-9))
        return "0";
    if (seconds >= 3600)
        return fmt::format("{} h {} min", static_cast<long>(seconds / 3600),
                           static_cast<long>(seconds / 60) % 60);
    if (seconds >= 120)
        return fmt::format("{} min {} s", static_cast<long>(seconds / 60),
                           static_cast<long>(seconds) % 60);
    return seconds >= 1      ? digits(seconds) + " s"
           : seconds >= 1e-3 ? digits(seconds * 1e3) + " ms"
                             : digits(seconds * 1e6) + " µs";
}

std::string say_count(double count)
{
    const std::string text = fmt::format("{:.0f}", std::max(count, 0.0));
    std::string made;
    for (std::size_t i = 0; i < text.size(); i++) {
        if (i > 0 && (text.size() - i) % 3 == 0)
            made += ',';
        made += text[i];
    }
    return made;
}

std::string say_share(double part, double of)
{
    if (!(of > 0))
        return "0 %";
    const double share = 100 * part / of;
    return share > 0 && share < 9.95 ? fmt::format("{:.1f} %", share)
                                     : fmt::format("{:.0f} %", share);
}

std::string clean(std::string_view text, std::size_t most)
{
    std::string made;
    while (!text.empty()) {
        if (made.size() >= most) {
            made += "...";
            break;
        }
        const character next = first_of(text);
        if (next.bytes == 0 || steers(next.code))
            made += "\xef\xbf\xbd";
        else
            made += text.substr(0, next.bytes);
        text.remove_prefix(std::max<std::size_t>(next.bytes, 1));
    }
    return made;
}

} // namespace emuv::report
