// SPDX-License-Identifier: GPL-2.0-or-later
// Removes instances, for the verbs that do.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

namespace emuvctl {

struct environment;

/// How instances are removed.
struct removal
{
    bool force = false;    ///< from whoever uses them, too
    bool dry_run = false;  ///< only say so
    std::string_view word; ///< for what would be done: "would WORD emuv0"
};

/// Removes instances, none unless all can go, as far as can be told beforehand.
/// @param which  names their ids; all without any. It is asked while no other
///   emuvctl destroys instances, so that a name cannot come to mean another one
/// @throws failure one is not there, or is in use
/// @throws emuv::error
void remove_instances(const std::function<std::vector<int>()> &which,
                      const removal &how, environment &env);

} // namespace emuvctl
