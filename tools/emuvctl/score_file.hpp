// SPDX-License-Identifier: GPL-2.0-or-later
// An estimate that is kept, for `emuvctl run --score` and `emuvctl report`.
#pragma once

#include <string>
#include <string_view>

namespace emuvctl {

/// The file that --save and --score mean without one:
/// $XDG_STATE_HOME/emuv/estimate.json, or that below ~/.local/state.
std::string usual_score_file();

/// The text of an estimate's file, of 1 MiB at most and a byte; read once, so
/// that a pipe is one, too. @throws failure
std::string read_estimate(const std::string &path);

/// Puts an estimate there, whole or not at all. Makes the folder of
/// usual_score_file(). @throws failure
void save_estimate(const std::string &path, std::string_view json);

} // namespace emuvctl
