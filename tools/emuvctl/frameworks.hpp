// SPDX-License-Identifier: GPL-2.0-or-later
// The variables that have frameworks use memory so that it can move.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace emuvctl {

/// Variables for JAX and other programs of XLA's, to be set for a program whose
/// memory moves. By itself XLA takes one great block, which cannot move in
/// parts. It also launches its kernels as graphs, and nothing moves while
/// those run. A variable that the caller's environment has stays as it is;
/// XLA_FLAGS keeps its words, and says nothing new of command buffers.
std::vector<std::pair<std::string, std::string>> variables_for_frameworks();

} // namespace emuvctl
