// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl undefine: removes the profiles that define wrote.
#include "definitions.hpp"
#include "environment.hpp"
#include "verbs.hpp"

#include <memory>

#include <fmt/format.h>

namespace emuvctl {

namespace {

struct undefine_options
{
    std::vector<std::string> names;
    std::string config;
    bool dry_run = false;
};

void cmd_undefine(const undefine_options &options, environment &env)
{
    if (!options.dry_run) {
        remove_definitions(options.names, options.config, env);
        return;
    }
    for (const auto &file : own_files(options.names, options.config))
        env.out.write(fmt::format("would remove {}\n", file.string()));
}

} // namespace

verb undefine_verb()
{
    const auto options = std::make_shared<undefine_options>();
    verb undefine{
        "undefine", "Profiles", "forget instances that last",
        "Removes what 'emuvctl define' wrote, so that no boot makes these "
        "instances any\nmore. One that is there stays until it is destroyed."};
    undefine.options = {config_option(options->config),
                        dry_run_flag(options->dry_run)};
    undefine.arguments = {"PROFILE", &options->names, offered::profiles, true};
    undefine.action = [options](environment &env) {
        cmd_undefine(*options, env);
    };
    return undefine;
}

} // namespace emuvctl
