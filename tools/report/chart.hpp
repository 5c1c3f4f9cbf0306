// SPDX-License-Identifier: GPL-2.0-or-later
// Charts as SVG within HTML: the lines are stretched, the text is not.
#pragma once

#include "report/run.hpp"

#include <string>
#include <vector>

namespace pugi {
class xml_node;
}

namespace emuv::report {

/// The ways to draw tracks.
enum class shape
{
    stacked,  ///< areas upon each other
    mirrored, ///< the first one up, the second one down
};

/// The units that values are told in.
enum class unit
{
    bytes,
    rate,  ///< bytes a second
    share, ///< 1 is all
};

struct chart
{
    std::string title;
    shape as = shape::stacked;
    unit in = unit::bytes;
    std::vector<track> tracks;
    std::size_t color = 0; ///< of the first track
    double part_seconds = 0;
    double seconds = 0; ///< of the whole axis, which may go on further
    double most = 0;    ///< of the value's axis; see most_of()
};

/// The largest value that is drawn.
double most_of(const chart &of);

/// Draws one. It names each color once, as CSS's classes k0, k1, ...
void draw(pugi::xml_node into, const chart &what);

} // namespace emuv::report
