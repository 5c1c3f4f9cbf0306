// SPDX-License-Identifier: GPL-2.0-or-later
// The instances and their clients as they were at one moment.
#pragma once

#include <emuv/types.hpp>

#include <optional>
#include <string>
#include <vector>

namespace emuvctl::watch {

/// An instance at one moment.
struct instance_sample
{
    emuv::instance_info info;
    /// nullopt where its clients may not be read.
    std::optional<std::vector<emuv::client_info>> clients = {};
    /// The UUID of the card that it belongs to, "GPU-..."; empty if unknown.
    std::string card_uuid = {};
};

/// All that was read at one moment.
struct sample
{
    double at = 0;      ///< seconds on a clock that only goes forward
    bool loaded = true; ///< the module is there
    std::string module_version = {}; ///< empty if unknown
    std::vector<instance_sample> instances = {};
};

} // namespace emuvctl::watch
