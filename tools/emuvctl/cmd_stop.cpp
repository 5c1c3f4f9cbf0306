// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl stop: removes instances whose profiles stay.
#include "definitions.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "names.hpp"
#include "removal.hpp"
#include "verbs.hpp"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

namespace emuvctl {

namespace {

struct stop_options
{
    std::vector<std::string> instances;
    std::string config;
    bool force = false;
    bool dry_run = false;
};

// Those of an instance without a profile would be lost.
void check_has_profile(int id, const std::vector<emuv::profile> &profiles,
                       const environment &env)
{
    const auto info = env.sysfs().instance(id);
    if (!info)
        return; // that is told later
    const auto names = read_names(env);
    const auto name = names.find(info->uuid);
    if (name == names.end() ||
        std::none_of(profiles.begin(), profiles.end(),
                     [&](const auto &one) { return one.name == name->second; }))
        throw failure(fmt::format("{}: no profile has its name, so nothing "
                                  "would bring it back; 'emuvctl destroy' "
                                  "removes it for good",
                                  info->name()));
}

void cmd_stop(const stop_options &options, environment &env)
{
    const auto profiles = present_profiles(options.config);
    remove_instances(
        [&] {
            const auto ids = parse_instances(options.instances, env);
            for (const int id : ids)
                check_has_profile(id, profiles, env);
            return ids;
        },
        {options.force, options.dry_run, "stop"}, env);
}

} // namespace

verb stop_verb()
{
    const auto options = std::make_shared<stop_options>();
    verb stop{"stop", "Profiles", "remove instances, and keep their profiles",
              "Removes instances that have a profile of their name, which "
              "stays:\n'emuvctl start' or the next boot brings them back. None "
              "goes unless all can go."};
    stop.options = {
        config_option(options->config),
        flag("--force", options->force, "take them from whoever uses them"),
        dry_run_flag(options->dry_run)};
    stop.arguments = instance_arguments(options->instances);
    stop.arguments->required = true;
    stop.action = [options](environment &env) { cmd_stop(*options, env); };
    return stop;
}

} // namespace emuvctl
