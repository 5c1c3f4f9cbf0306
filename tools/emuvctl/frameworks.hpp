// SPDX-License-Identifier: GPL-2.0-or-later
// The variables that have frameworks use memory so that it can move.
#pragma once

#include "settings.hpp"
#include "verb.hpp"

#include <string>
#include <utility>
#include <vector>

namespace emuvctl {

/// Adds variables for JAX and other programs of XLA's, if memory of the program
/// moves. By itself XLA takes one great block, which cannot move in parts. It
/// also launches its kernels as graphs, and nothing moves while those run. A
/// variable that the caller's environment has stays as it is; XLA_FLAGS keeps
/// its words, and says nothing new of command buffers.
void add_for_frameworks(const asked_settings &asked,
                        std::vector<std::pair<std::string, std::string>> &set);

/// The option that has the caller leave them out: --leave-frameworks.
option leave_frameworks_flag(bool &leaves);

} // namespace emuvctl
