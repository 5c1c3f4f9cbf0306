// SPDX-License-Identifier: GPL-2.0-or-later
// A screenful of characters, drawn without a terminal.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace emuvctl::watch {

/// How a character looks; the terminal decides.
enum class style : std::uint8_t
{
    plain,
    soft,
    title,
    heading,
    selected,
    vram,
    ram,
    in,
    out,
    warning,
};

/// A character and its looks.
struct cell
{
    char32_t glyph = U' ';
    style look = style::plain;

    bool operator==(const cell &) const = default;
};

/// A rectangle of characters. Drawing outside it does nothing.
class frame
{
public:
    frame(int width, int height);

    [[nodiscard]] int width() const { return width_; }
    [[nodiscard]] int height() const { return height_; }
    [[nodiscard]] const cell &at(int y, int x) const;

    void put(int y, int x, char32_t glyph, style look);
    /// Puts text; other bytes than printable ASCII become '?'.
    /// @return the column behind it
    int put(int y, int x, std::string_view text, style look = style::plain);
    /// Gives the rest of a line, from @p x, a look.
    void paint(int y, int x, int width, style look);

    /// A line as UTF-8, without the blanks at its end.
    [[nodiscard]] std::string text(int y) const;

private:
    int width_;
    int height_;
    std::vector<cell> cells_;
};

/// A character as UTF-8.
std::string to_utf8(char32_t glyph);

/// A part of a bar, 0 to 1 of the whole, from the left.
struct bar_part
{
    double end_share;
    char glyph;
    style look;
};

/// The place of a drawing.
struct area
{
    int y;
    int x;
    int width;
    int height = 1;
};

/// Draws "[|||||      4G/12G]". A part begins where the one before it ends.
void draw_bar(frame &to, const area &where, std::span<const bar_part> parts,
              std::string_view text);

/// Draws columns upwards, the last value at the right.
/// @param values  0 to 1 each
/// @param unicode  with eighths of a block; else with '#', ':' and '.'
void draw_graph(frame &to, const area &where, std::span<const double> values,
                style look, bool unicode);

} // namespace emuvctl::watch
