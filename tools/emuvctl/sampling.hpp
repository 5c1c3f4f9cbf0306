// SPDX-License-Identifier: GPL-2.0-or-later
// Reads what stats, serve and top show.
#pragma once

#include "watch/sample.hpp"

#include <span>
#include <string>

namespace emuvctl {

struct environment;

/// The choice of instances, and how much of them to read.
struct sampling
{
    std::span<const int> ids = {}; ///< the instances; all without any
    bool clients = true;           ///< and their clients
    /// Without the module a sample says so; else it is a failure.
    bool without_module = false;
};

/// Reads the instances, and their clients where these may be read.
/// @throws failure the module is not loaded, or there is no such instance
watch::sample take_sample(const sampling &what, const environment &env);

/// A number of seconds from 0.01 to 86400. @throws std::invalid_argument
double parse_seconds(const std::string &text);

} // namespace emuvctl
