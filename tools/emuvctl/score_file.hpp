// SPDX-License-Identifier: GPL-2.0-or-later
// An estimate that is kept, for `emuvctl run --score` and `emuvctl report`.
#pragma once

#include <emuv/unique_fd.hpp>

#include <string>
#include <string_view>

namespace emuvctl {

/// The file that --save and --score mean without one:
/// $XDG_STATE_HOME/emuv/estimate.json, or that below ~/.local/state.
std::string usual_score_file();

/// The text of an estimate's file, of 1 MiB at most and a byte; read once, so
/// that a pipe is one, too. @throws failure
std::string read_estimate(const std::string &path);

/// While it lives, no other emuvctl writes this estimate. One that is not there
/// yet, is no regular file or cannot be read is held by nobody.
class estimate_lock
{
public:
    /// @throws failure another program holds it for a minute
    explicit estimate_lock(const std::string &path);

private:
    emuv::unique_fd file_;
};

/// Puts an estimate there, whole or not at all. Makes the folder of
/// usual_score_file(). @throws failure
void save_estimate(const estimate_lock &held, const std::string &path,
                   std::string_view json);

} // namespace emuvctl
