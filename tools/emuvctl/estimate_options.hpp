// SPDX-License-Identifier: GPL-2.0-or-later
// The command line of `emuvctl estimate` as a model, a job and a machine.
#pragma once

#include "output.hpp"
#include "verb.hpp"

#include <optional>
#include <string>
#include <vector>

#include <fit.hpp>
#include <host.hpp>

namespace emuvctl {

struct environment;
namespace estimate = emuv::estimate;

/// The command line's words, as they are written.
struct estimate_options
{
    std::vector<std::string> model; ///< a built-in name, or a path
    std::string config;
    std::string parameters;
    std::string layers;
    std::string hidden;
    std::string mode = "inference";
    std::string dtype;
    std::string mixed = "none";
    std::string batch;
    std::string sequence;
    std::string optimizer = "adamw";
    std::string attention = "flash";
    bool checkpointing = false;
    bool accumulate = false;
    std::string freeze;
    std::string rank;
    bool all_linear = false;
    std::string images;
    std::string image;
    std::string cache_dtype;
    std::string activation_factor;
    std::string gpu;
    std::string instance;
    std::string vram;
    std::string link;
    std::string cpu_bandwidth;
    std::string processes;
    std::string workers;
    std::string ram;
    std::string save; ///< a file to keep the estimate in
    output_options output;

    /// True if the host's side was asked for.
    [[nodiscard]] bool asks_host() const
    {
        return !processes.empty() || !workers.empty() || !ram.empty();
    }
};

/// The options as the verb has them; they refer to @p to.
std::vector<option> options_of(estimate_options &to);

/// @throws usage_error, failure
estimate::model model_of(const estimate_options &from);
/// @throws usage_error
estimate::job job_of(const estimate_options &from, const estimate::model &of);
/// The card that is named, the instance's, or the machine's; nullopt if none
/// is named and the machine has none. @throws usage_error, failure
std::optional<estimate::machine> machine_of(const estimate_options &from,
                                            const environment &env);
/// @throws usage_error
estimate::host_job host_job_of(const estimate_options &from);
/// RAM for the job: said, or the smaller of the machine's and the control
/// group's; 0 if none is known. @throws usage_error
double ram_of(const estimate_options &from, const environment &env);

} // namespace emuvctl
