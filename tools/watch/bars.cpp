// SPDX-License-Identifier: GPL-2.0-or-later
// Bars of an instance's shares, for top and for stats on a terminal.
#include "bars.hpp"

#include <emuv/size.hpp>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace emuvctl::watch {

namespace {

double share_of(std::uint64_t part, std::uint64_t whole)
{
    return whole == 0 ? 0
                      : static_cast<double>(part) / static_cast<double>(whole);
}

std::string of_text(std::uint64_t part, std::uint64_t whole)
{
    return fmt::format("{}/{}", emuv::format_size(part),
                       emuv::format_size(whole));
}

} // namespace

void draw_shares(frame &to, const area &where, const emuv::instance_info &of)
{
    const int half = where.width / 2;
    const bar_part vram[] = {
        {share_of(of.physical_used_bytes, of.physical_bytes), '|',
         style::vram}};
    to.put(where.y, where.x, "VRAM");
    draw_bar(to, {where.y, where.x + 4, half - 5}, vram,
             of_text(of.physical_used_bytes, of.physical_bytes));
    const bar_part ram[] = {
        {share_of(of.resident_bytes, of.virtual_bytes), '|', style::ram},
        {share_of(of.virtual_used_bytes, of.virtual_bytes), ':', style::ram}};
    to.put(where.y, where.x + half, "RAM");
    draw_bar(to, {where.y, where.x + half + 3, where.width - half - 3}, ram,
             of_text(of.virtual_used_bytes, of.virtual_bytes));
}

std::string share_lines(const sample &of, int width)
{
    std::size_t name = 0;
    for (const auto &one : of.instances)
        name = std::max(name, one.info.name().size() + 1);
    std::string text;
    for (const auto &one : of.instances) {
        frame line(width, 1);
        line.put(0, 0, one.info.name());
        const int start = static_cast<int>(name);
        draw_shares(line, {0, start, width - start}, one.info);
        text += line.text(0) + "\n";
    }
    return text;
}

int lines_to_redraw()
{
    const char *const name = std::getenv("TERM");
    winsize size{};
    if (name == nullptr || std::string_view(name) == "dumb" ||
        ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
        return 0;
    return size.ws_row;
}

} // namespace emuvctl::watch
