// SPDX-License-Identifier: GPL-2.0-or-later
// Completion in bash, zsh and fish, made from the verbs.
#pragma once

#include "verb.hpp"

#include <span>
#include <string>

namespace emuvctl {

// Each is a whole file for its shell.
std::string bash_completion(std::span<const verb> verbs);
std::string zsh_completion(std::span<const verb> verbs);
std::string fish_completion(std::span<const verb> verbs);

} // namespace emuvctl
