// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl destroy: removes instances.
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "names.hpp"
#include "verbs.hpp"

#include <emuv/control.hpp>

#include <memory>

#include <fmt/format.h>

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
    const auto ids = parse_instances(options.instances, env);
    const auto doomed = read_instances(ids, env);

    // Nothing goes unless all can go, as far as can be told beforehand.
    for (const auto &info : doomed)
        if (info.clients != 0 && !options.force)
            throw failure(fmt::format("{}: in use by {}", info.name(),
                                      describe_clients(info, env)));
    if (options.dry_run) {
        std::string text;
        for (const auto &info : doomed)
            text += fmt::format("would destroy {}: {}{}\n", info.name(),
                                describe(to_spec(info)),
                                info.clients != 0
                                    ? ", used by " + describe_clients(info, env)
                                    : "");
        env.out.write(text);
        return;
    }
    emuv::control control(env.dev, env.kernel);
    for (const auto &info : doomed) {
        if (options.force)
            control.revoke(info.id);
        else
            control.destroy(info.id);
        forget_name(info.uuid, env);
    }
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
