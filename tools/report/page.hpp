// SPDX-License-Identifier: GPL-2.0-or-later
// The report as a page of HTML, and its figures as JSON.
#pragma once

#include "report/run.hpp"
#include "report/score.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace emuv::report {

/// The most runs that one page compares.
inline constexpr std::size_t most_runs = 2;

/// A page that loads nothing: styles and charts are in it. It has no scripts.
/// @param runs  1 to most_runs; the second one is compared with the first
/// @param maker  the program that wrote it: "emuvctl 1.2"
std::string page(std::span<const run> runs,
                 const std::optional<score> &expected, std::string_view maker);

/// The same figures, without the charts' values.
std::string summary_json(std::span<const run> runs,
                         const std::optional<score> &expected);

/// An estimate, and what came, as they stand there.
std::string score_json(const score &of);

/// The meaning of an event; empty for one that is not known.
std::string_view meaning(std::string_view row, std::string_view name);

/// The run in sentences.
std::vector<std::string> sentences(const run &of);

} // namespace emuv::report
