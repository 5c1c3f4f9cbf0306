// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl export: the instances there are, as a profile file.
#include "environment.hpp"
#include "failure.hpp"
#include "host_memory.hpp"
#include "instances.hpp"
#include "profiles.hpp"
#include "tiers.hpp"
#include "verbs.hpp"

#include <emuv/profile.hpp>

#include <memory>

#include <fmt/format.h>

namespace emuvctl {

namespace {

struct export_options
{
    std::vector<std::string> instances;
    output_options output;
};

void cmd_export(const export_options &options, environment &env)
{
    static constexpr std::string_view defaults[] = {"profile"};
    printer print(options.output, profile_columns(), defaults);
    const auto found =
        read_instances(parse_instances(options.instances, env), env);
    const auto host = read_host_memory(env);

    std::vector<emuv::profile> profiles;
    // In whatever order they are made again, some need the permission. The
    // driver does not tell which had it. Those that are not exported count too:
    // they may be there still.
    const bool beyond = host && promised_bytes(env) > host->promisable();
    for (const auto &info : found) {
        if (is_of_a_device(info.id, env)) {
            env.say(info.name() + " is left out: it is made of a device's "
                                  "memory as the module is loaded");
            continue;
        }
        emuv::profile what;
        what.name = info.name();
        what.spec = to_spec(info);
        what.tiers = tiers_of_instance(info.uuid, env);
        try {
            emuv::check_gpu_model_label(info.gpu_model);
        } catch (const std::invalid_argument &problem) {
            throw failure(fmt::format("{}: its gpu_model cannot be written "
                                      "to a profile file: {}",
                                      info.name(), problem.what()));
        }
        what.spec.overcommit =
            beyond && info.virtual_bytes != 0 && !what.spec.guaranteed;
        if (info.swaps)
            env.say(fmt::format("warning: {} has a swap file; only the driver "
                                "knows where, so add swap=PATH to its profile",
                                info.name()));
        profiles.push_back(std::move(what));
    }
    if (options.output.json) {
        listing list;
        list.name = "profiles";
        list.columns = profile_columns();
        for (const auto &one : profiles)
            list.rows.push_back(profile_row(one));
        print.print(list, env);
        return;
    }
    if (found.empty())
        env.say("there are no instances");
    std::string text;
    for (const auto &one : profiles)
        text += (text.empty() ? "" : "\n") + emuv::format_profile(one);
    env.out.write(text);
}

} // namespace

verb export_verb()
{
    const auto options = std::make_shared<export_options>();
    verb exporting{
        "export", "Profiles", "print instances as a profile file",
        "Prints instances, all without any named, as a profile file that "
        "'emuvctl apply'\nmakes the same ones from."};
    exporting.options = {json_flag(options->output)};
    exporting.arguments = instance_arguments(options->instances);
    exporting.action = [options](environment &env) {
        cmd_export(*options, env);
    };
    return exporting;
}

} // namespace emuvctl
