// SPDX-License-Identifier: GPL-2.0-or-later
// A screenful of characters, drawn without a terminal.
#include "frame.hpp"

#include <algorithm>
#include <cmath>

namespace emuvctl::watch {

frame::frame(int width, int height)
    : width_(std::max(width, 0)), height_(std::max(height, 0)),
      cells_(static_cast<std::size_t>(width_) *
             static_cast<std::size_t>(height_))
{}

const cell &frame::at(int y, int x) const
{
    return cells_.at(static_cast<std::size_t>(y) *
                         static_cast<std::size_t>(width_) +
                     static_cast<std::size_t>(x));
}

void frame::put(int y, int x, char32_t glyph, style look)
{
    if (y < 0 || y >= height_ || x < 0 || x >= width_)
        return;
    cells_[static_cast<std::size_t>(y) * static_cast<std::size_t>(width_) +
           static_cast<std::size_t>(x)] = {glyph, look};
}

int frame::put(int y, int x, std::string_view text, style look)
{
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        put(y, x++, byte >= 0x20 && byte < 0x7f ? char32_t{byte} : U'?', look);
    }
    return x;
}

void frame::paint(int y, int x, int width, style look)
{
    for (int i = x; i < std::min(x + width, width_); i++)
        put(y, i, at(y, i).glyph, look);
}

std::string frame::text(int y) const
{
    std::string result;
    for (int x = 0; x < width_; x++)
        result += to_utf8(at(y, x).glyph);
    result.erase(result.find_last_not_of(' ') + 1);
    return result;
}

std::string to_utf8(char32_t glyph)
{
    const auto byte = [](char32_t value) { return static_cast<char>(value); };
    if (glyph < 0x80)
        return {byte(glyph)};
    if (glyph < 0x800)
        return {byte(0xc0 | glyph >> 6), byte(0x80 | (glyph & 0x3f))};
    return {byte(0xe0 | glyph >> 12), byte(0x80 | (glyph >> 6 & 0x3f)),
            byte(0x80 | (glyph & 0x3f))};
}

void draw_bar(frame &to, const area &where, std::span<const bar_part> parts,
              std::string_view text)
{
    const int inside = where.width - 2;
    if (inside < 1)
        return;
    to.put(where.y, where.x, U'[', style::plain);
    to.put(where.y, where.x + where.width - 1, U']', style::plain);
    int x = 0;
    for (const auto &part : parts) {
        const double end_share = std::clamp(part.end_share, 0.0, 1.0);
        const int end = static_cast<int>(std::lround(end_share * inside));
        for (; x < end; x++)
            to.put(where.y, where.x + 1 + x, static_cast<char32_t>(part.glyph),
                   part.look);
    }
    text = text.substr(0, static_cast<std::size_t>(inside));
    to.put(where.y, where.x + where.width - 1 - static_cast<int>(text.size()),
           text);
}

void draw_graph(frame &to, const area &where, std::span<const double> values,
                style look, bool unicode)
{
    constexpr int eighths = 8;
    constexpr char32_t lowest_block = 0x2581; // one eighth
    const auto shown = std::min(
        values.size(), static_cast<std::size_t>(std::max(where.width, 0)));
    values = values.last(shown);
    int x = where.x + where.width - static_cast<int>(shown);
    for (const double value : values) {
        const double share = std::clamp(value, 0.0, 1.0);
        int left =
            static_cast<int>(std::lround(share * where.height * eighths));
        // Little is not nothing.
        if (left == 0 && share > 0)
            left = 1;
        for (int y = where.y + where.height - 1; left > 0; y--) {
            const int here = std::min(left, eighths);
            left -= here;
            const char32_t plain = here == eighths       ? U'#'
                                   : here >= eighths / 2 ? U':'
                                                         : U'.';
            to.put(y, x,
                   unicode ? lowest_block + static_cast<char32_t>(here) - 1
                           : plain,
                   look);
        }
        x++;
    }
}

} // namespace emuvctl::watch
