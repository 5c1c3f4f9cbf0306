// SPDX-License-Identifier: GPL-2.0-or-later
// Figures in messages that people pasted.
#pragma once

#include "finding.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace emuv::diagnose {

inline constexpr std::size_t none = std::string_view::npos;

/// @p text without what steers terminals, its line breaks as '\n'.
std::string cleaned(std::string_view text);

/// The line, from 1, that holds the byte at @p at.
std::size_t line_of(std::string_view text, std::size_t at);

/// The text from @p at on, as one line: people paste lines that were broken.
std::string unbroken(std::string_view text, std::size_t at,
                     std::size_t most = 2048);

/// The last place of @p what; none.
std::size_t last(std::string_view text, std::string_view what);
std::size_t count(std::string_view text, std::string_view what);

/// Reads "2.00 GiB", "1900,00 MiB", "1,900.5 MiB", "27.93GiB", "524288kB",
/// "1,073,741,824 bytes", "0 bytes", 16Mi.
/// Each unit is a power of 1024. A number alone is bytes.
/// @param used  out: the characters that were read
std::optional<figure> read_figure(std::string_view text,
                                  std::size_t *used = nullptr);

/// The figure right behind the first @p key behind @p from.
std::optional<figure> figure_after(std::string_view text, std::string_view key,
                                   std::size_t from = 0);
/// The figure right before the first @p key.
std::optional<figure> figure_before(std::string_view text,
                                    std::string_view key);

/// The digits right behind @p key, perhaps with commas.
std::optional<std::uint64_t>
number_after(std::string_view text, std::string_view key, std::size_t from = 0);

/// The text between @p key and one of @p ends, @p most long.
std::string word_after(std::string_view text, std::string_view key,
                       std::string_view ends, std::size_t most = 100);

/// Sums and products that stay at the largest number.
std::uint64_t plus(std::uint64_t a, std::uint64_t b);
std::uint64_t times(std::uint64_t a, std::uint64_t b);
inline std::uint64_t minus(std::uint64_t a, std::uint64_t b)
{
    return a > b ? a - b : 0;
}

/// "1.5 GiB"
std::string size(std::uint64_t bytes);

/// "12 %"
std::string percent(std::uint64_t part, std::uint64_t whole);

} // namespace emuv::diagnose
