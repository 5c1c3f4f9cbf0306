// SPDX-License-Identifier: GPL-2.0-or-later
// Figures and foreign texts in words for a page.
#pragma once

#include <string>
#include <string_view>

namespace emuv::report {

/// "1.2 GiB", "812 MiB", "0".
std::string say_bytes(double bytes);
/// "12.5 GB/s", in units of 10^9 bytes as links are told of.
std::string say_rate(double bytes_per_second);
/// "2 min 5 s", "1.25 s", "12.5 ms", "0".
std::string say_seconds(double seconds);
/// "1,234,567".
std::string say_count(double count);
/// "12 %", "0.4 %".
std::string say_share(double part, double of);

/// Text of a file's as UTF-8 without anything that steers: each wrong byte,
/// control character and mark of direction is a replacement character. Text of
/// more than @p most bytes is cut, with "..." behind it.
std::string clean(std::string_view text, std::size_t most = 200);

} // namespace emuv::report
