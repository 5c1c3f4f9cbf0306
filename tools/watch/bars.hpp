// SPDX-License-Identifier: GPL-2.0-or-later
// Bars of an instance's shares, for top and for stats on a terminal.
#pragma once

#include "frame.hpp"
#include "sample.hpp"

#include <string>

namespace emuvctl::watch {

/// Draws "VRAM[||||  4G/8G] RAM[||::  2G/8G]" over the width of a place.
/// Resident RAM is '|', RAM that is only reserved ':'.
void draw_shares(frame &to, const area &where, const emuv::instance_info &of);

/// A line of bars for each instance, with its name before them.
std::string share_lines(const sample &of, int width);

/// The lines of the terminal of standard output; 0 if it is none, or cannot be
/// drawn on again.
int lines_to_redraw();

} // namespace emuvctl::watch
