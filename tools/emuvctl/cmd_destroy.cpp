// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl destroy: removes instances.
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "removal.hpp"
#include "verbs.hpp"

#include <memory>

namespace emuvctl {

namespace {

struct destroy_options
{
    std::vector<std::string> instances;
    bool all = false;
    bool force = false;
    bool dry_run = false;
};

void cmd_destroy(const destroy_options &options, environment &env)
{
    if (options.all == !options.instances.empty())
        throw usage_error("give either instances or --all");
    remove_instances([&] { return parse_instances(options.instances, env); },
                     {options.force, options.dry_run, "destroy"}, env);
}

} // namespace

verb destroy_verb()
{
    const auto options = std::make_shared<destroy_options>();
    verb destroy{
        "destroy", "Instances", "remove instances",
        "Removes instances, written as emuv0, 0, /dev/emuv0 or by name.\n"
        "None goes unless all can go. With --force they are taken from "
        "programs "
        "that\nuse them: their calls fail, and touches of mapped memory end "
        "them by SIGBUS."};
    destroy.options = {
        flag("--all", options->all, "remove all instances"),
        flag("--force", options->force, "take them from whoever uses them"),
        dry_run_flag(options->dry_run)};
    destroy.arguments = instance_arguments(options->instances);
    destroy.aliases = {"rm"};
    destroy.action = [options](environment &env) {
        cmd_destroy(*options, env);
    };
    return destroy;
}

} // namespace emuvctl
