// SPDX-License-Identifier: GPL-2.0-or-later
// The command line: finds the verb that it asks for.
#pragma once

#include <span>
#include <string>

namespace emuvctl {

struct environment;

/// Reads a command line, runs its verb, or prints the help it asks for. Sets
/// env.verb as soon as the verb is known.
/// @throws usage_error and whatever the verb throws
void run_command_line(std::span<const std::string> arguments, environment &env);

} // namespace emuvctl
