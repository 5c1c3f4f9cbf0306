// SPDX-License-Identifier: GPL-2.0-or-later
// Figures in messages that people pasted.
#include "text.hpp"

#include "../lib/size_text.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace emuv::diagnose {

namespace {

bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// The power of 1024 that a unit stands for.
std::optional<int> power_of(std::string_view unit)
{
    static constexpr std::string_view powers = "KMGTP";
    if (unit == "B" || unit == "bytes" || unit == "byte" || unit.empty())
        return 0;
    const char first = unit.front() == 'k' ? 'K' : unit.front();
    const std::string_view rest = unit.substr(1);
    const std::size_t found = powers.find(first);
    if (found == none ||
        (!rest.empty() && rest != "B" && rest != "iB" && rest != "i"))
        return {};
    return static_cast<int>(found) + 1;
}

std::uint64_t whole(double value)
{
    return value >= 9e18 ? std::uint64_t{9'000'000'000'000'000'000}
                         : static_cast<std::uint64_t>(value);
}

} // namespace

std::string cleaned(std::string_view text)
{
    std::string made;
    made.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); i++) {
        const char c = text[i];
        if (c == '\x1b') {
            if (i + 1 < text.size() && text[i + 1] == '[') {
                i += 2;
                while (i < text.size() && !is_letter(text[i]) &&
                       text[i] != '\n')
                    i++;
            }
        } else if (c == '\r') {
            if (i + 1 >= text.size() || text[i + 1] != '\n')
                made += '\n';
        } else if (c == '\t') {
            made += ' ';
        } else if (c == '\n' || static_cast<unsigned char>(c) >= 0x20) {
            made += c == '\x7f' ? '?' : c;
        }
    }
    return made;
}

std::size_t line_of(std::string_view text, std::size_t at)
{
    at = std::min(at, text.size());
    return static_cast<std::size_t>(std::count(
               text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at),
               '\n')) +
           1;
}

std::string unbroken(std::string_view text, std::size_t at, std::size_t most)
{
    std::string made;
    for (; at < text.size() && made.size() < most; at++) {
        const char c = text[at] == '\n' ? ' ' : text[at];
        if (c != ' ' || made.empty() || made.back() != ' ')
            made += c;
    }
    return made;
}

std::size_t last(std::string_view text, std::string_view what)
{
    return text.rfind(what);
}

std::size_t count(std::string_view text, std::string_view what)
{
    std::size_t found = 0;
    for (auto at = text.find(what); at != none;
         at = text.find(what, at + what.size()))
        found++;
    return found;
}

namespace {

// True at ",234" that is not ",2345".
bool is_group(std::string_view text, std::size_t at)
{
    if (at + 3 >= text.size() || text[at] != ',')
        return false;
    for (std::size_t i = 1; i <= 3; i++)
        if (!is_digit(text[at + i]))
            return false;
    return at + 4 >= text.size() || !is_digit(text[at + 4]);
}

// The unit at a place, behind one blank at most. @return none if it is no unit
std::optional<int> unit_at(std::string_view text, std::size_t at,
                           std::size_t *end)
{
    if (at < text.size() && text[at] == ' ')
        at++;
    *end = at;
    while (*end < text.size() && is_letter(text[*end]) && *end - at < 6)
        (*end)++;
    return *end == at ? std::nullopt : power_of(text.substr(at, *end - at));
}

// The end of the groups of three digits at @p at, which stand behind commas; or
// @p at, if a comma there parts a fraction. One group may be either: "1,900
// MiB" are many, and "1,900 GiB" are two.
std::size_t end_of_groups(std::string_view text, std::size_t at)
{
    std::size_t end = at;
    std::size_t count = 0;
    for (; is_group(text, end); end += 4)
        count++;
    const bool point =
        end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1]);
    constexpr int mib = 2;
    std::size_t ignored = 0;
    return count > 1 || point || unit_at(text, end, &ignored).value_or(0) <= mib
               ? end
               : at;
}

} // namespace

std::optional<figure> read_figure(std::string_view text, std::size_t *used)
{
    std::size_t at = 0;
    double value = 0;
    double last_digit = 1;
    const auto digits = [&](bool fraction) {
        const std::size_t from = at;
        for (; at < text.size() && is_digit(text[at]) && at < 40; at++) {
            value = value * 10 + (text[at] - '0');
            if (fraction)
                last_digit /= 10;
        }
        return at > from;
    };
    if (!digits(false))
        return {};
    // "0,500" is a fraction, and so is "1234,500".
    if (value >= 1 && at <= 3)
        for (const std::size_t end = end_of_groups(text, at); at < end;) {
            at++;
            digits(false);
        }
    // A comma parts a fraction in some languages.
    if (at + 1 < text.size() && (text[at] == '.' || text[at] == ',') &&
        is_digit(text[at + 1])) {
        at++;
        digits(true);
    }
    value *= last_digit;
    std::size_t end = at;
    auto power = unit_at(text, at, &end);
    if (!power) {
        // Another word follows.
        power = 0;
        end = at;
    }
    if (used != nullptr)
        *used = end;
    const double unit = std::pow(1024.0, *power);
    figure made;
    made.bytes = whole(value * unit);
    made.slack = *power == 0 ? 0 : whole(last_digit * unit / 2);
    return made;
}

std::optional<figure> figure_after(std::string_view text, std::string_view key,
                                   std::size_t from)
{
    const std::size_t found = text.find(key, from);
    if (found == none)
        return {};
    std::size_t at = found + key.size();
    while (at < text.size() && (text[at] == ' ' || text[at] == '\n'))
        at++;
    return read_figure(text.substr(at));
}

std::optional<figure> figure_before(std::string_view text, std::string_view key)
{
    const std::size_t found = text.find(key);
    if (found == none)
        return {};
    // At most a number, a blank and a unit.
    const std::size_t from = found > 32 ? found - 32 : 0;
    const std::string_view before = text.substr(from, found - from);
    for (std::size_t at = 0; at < before.size(); at++) {
        const bool begins =
            is_digit(before[at]) &&
            (at == 0 || (!is_digit(before[at - 1]) && before[at - 1] != '.' &&
                         before[at - 1] != ','));
        std::size_t used = 0;
        if (!begins)
            continue;
        const auto made = read_figure(before.substr(at), &used);
        if (made && at + used == before.size())
            return made;
    }
    return {};
}

std::optional<std::uint64_t>
number_after(std::string_view text, std::string_view key, std::size_t from)
{
    const std::size_t found = text.find(key, from);
    if (found == none)
        return {};
    std::size_t at = found + key.size();
    while (at < text.size() && text[at] == ' ')
        at++;
    std::uint64_t made = 0;
    const std::size_t first = at;
    for (; at < text.size() && (is_digit(text[at]) || text[at] == ','); at++)
        if (is_digit(text[at]))
            made = plus(times(made, 10),
                        static_cast<std::uint64_t>(text[at] - '0'));
    return at > first ? std::optional(made) : std::nullopt;
}

std::string word_after(std::string_view text, std::string_view key,
                       std::string_view ends, std::size_t most)
{
    const std::size_t found = text.find(key);
    if (found == none)
        return {};
    const std::string_view rest = text.substr(found + key.size(), most);
    return std::string(rest.substr(0, rest.find_first_of(ends)));
}

std::uint64_t plus(std::uint64_t a, std::uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

std::uint64_t times(std::uint64_t a, std::uint64_t b)
{
    std::uint64_t made = 0;
    return __builtin_mul_overflow(a, b, &made) ? UINT64_MAX : made;
}

std::string size(std::uint64_t bytes)
{
    return show_size(bytes).text;
}

std::string percent(std::uint64_t part, std::uint64_t whole)
{
    return whole == 0
               ? "-"
               : fmt::format("{:.0f} %", 100.0 * static_cast<double>(part) /
                                             static_cast<double>(whole));
}

} // namespace emuv::diagnose
