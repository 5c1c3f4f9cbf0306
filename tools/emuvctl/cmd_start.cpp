// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl start: makes the instances of profiles that are named.
#include "cards.hpp"
#include "definitions.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "names.hpp"
#include "verbs.hpp"

#include <emuv/name.hpp>

#include <memory>

#include <fmt/format.h>

namespace emuvctl {

namespace {

struct start_options
{
    std::vector<std::string> names;
    std::string config;
    std::string module = "emuv";
    bool dry_run = false;
    output_options output;
};

std::vector<emuv::profile> chosen_profiles(const start_options &options,
                                           const environment &env)
{
    const auto profiles = present_profiles(options.config);
    std::vector<emuv::profile> chosen;
    for (const auto &name : options.names) {
        emuv::profile what = find_profile(profiles, name);
        try {
            emuv::check_name(name);
        } catch (const std::invalid_argument &) {
            throw failure(fmt::format("an instance cannot be called '{}'; "
                                      "'emuvctl apply' makes it without a name",
                                      printable(name)));
        }
        if (const int id = find_name(name, env); id >= 0)
            throw failure(fmt::format("{} is there already: {}", name,
                                      emuv::instance_name(id)));
        complete(what, env);
        chosen.push_back(std::move(what));
    }
    return chosen;
}

void cmd_start(const start_options &options, environment &env)
{
    static constexpr std::string_view defaults[] = {"node"};
    printer print(options.output, instance_columns(), defaults);
    const auto chosen = chosen_profiles(options, env);
    if (options.dry_run) {
        std::vector<emuv::instance_spec> specs;
        for (const auto &what : chosen)
            specs.push_back(what.spec);
        const auto ids = predict_ids(specs, env, options.names);
        std::string text;
        for (std::size_t i = 0; i < ids.size(); i++)
            text += fmt::format("would create {}: {}{}\n", env.node(ids[i]),
                                describe(specs[i]), describe(chosen[i].tiers));
        env.out.write(text);
        return;
    }

    ensure_module(options.module, env);
    creation work(env);
    std::vector<emuv::instance_info> made;
    for (const auto &what : chosen) {
        made.push_back(work.make(what.spec, what.tiers, what.name));
        give_name(what.name, made.back().uuid, env);
    }
    work.commit();
    print_instances(made, print, options.output, env);
}

} // namespace

verb start_verb()
{
    const auto options = std::make_shared<start_options>();
    verb start{"start", "Profiles", "make the instances of named profiles",
               "Makes the instances of these profiles, all or none, under "
               "their names, and\nprints their nodes. Loads the module if need "
               "be."};
    start.options = {
        config_option(options->config), module_option(options->module),
        dry_run_flag(options->dry_run), json_flag(options->output)};
    start.arguments = {"PROFILE", &options->names, offered::profiles, true};
    start.action = [options](environment &env) { cmd_start(*options, env); };
    return start;
}

} // namespace emuvctl
