// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl profile list, profile show: print the profiles of the files.
#include "environment.hpp"
#include "failure.hpp"
#include "profiles.hpp"
#include "verbs.hpp"

#include <emuv/profile.hpp>

#include <algorithm>
#include <memory>

#include <fmt/format.h>

namespace emuvctl {

namespace {

struct profile_options
{
    std::string config;
    std::vector<std::string> names; // show: which
    output_options output;
};

void print_profiles(const std::vector<emuv::profile> &profiles, printer &print,
                    environment &env)
{
    listing list;
    list.name = "profiles";
    list.columns = profile_columns();
    for (const auto &one : profiles)
        list.rows.push_back(profile_row(one));
    print.print(list, env);
}

void cmd_profile_list(const profile_options &options, environment &env)
{
    static constexpr std::string_view defaults[] = {
        "profile",     "gpu_model", "physical_bytes", "virtual_bytes",
        "total_bytes", "count",     "instance_id",    "pci_device_id"};
    printer print(options.output, profile_columns(), defaults);
    const auto profiles = read_profiles(options.config);
    if (profiles.empty() && !options.output.any())
        env.say("there are no profiles");
    print_profiles(profiles, print, env);
}

void cmd_profile_show(const profile_options &options, environment &env)
{
    static constexpr std::string_view defaults[] = {"profile"};
    printer print(options.output, profile_columns(), defaults);
    const auto profiles = read_profiles(options.config);
    std::vector<emuv::profile> chosen;
    for (const auto &name : options.names) {
        const auto found =
            std::find_if(profiles.begin(), profiles.end(),
                         [&](const auto &one) { return one.name == name; });
        if (found == profiles.end())
            throw failure(fmt::format("no profile '{}'; 'emuvctl profile list' "
                                      "shows those there are",
                                      printable(name)));
        chosen.push_back(*found);
    }
    if (options.output.json) {
        print_profiles(chosen, print, env);
        return;
    }
    std::string text;
    for (const auto &one : chosen)
        text += (text.empty() ? "" : "\n") + emuv::format_profile(one);
    env.out.write(text);
}

} // namespace

verb profile_verb()
{
    const auto options = std::make_shared<profile_options>();
    verb list{"list", "Verbs", "list profiles",
              "Lists the profiles of vgpu-profiles.conf(5)."};
    list.options = {config_option(options->config)};
    add_output(list, options->output, profile_columns());
    list.action = [options](environment &env) {
        cmd_profile_list(*options, env);
    };

    verb show{"show", "Verbs", "show profiles",
              "Shows profiles as a profile file has them."};
    show.options = {config_option(options->config), json_flag(options->output)};
    show.arguments = {"PROFILE", &options->names, offered::profiles, true};
    show.action = [options](environment &env) {
        cmd_profile_show(*options, env);
    };

    verb profile{"profile", "Profiles", "list or show profiles",
                 "Lists or shows the profiles of vgpu-profiles.conf(5)."};
    profile.verbs = {std::move(list), std::move(show)};
    return profile;
}

} // namespace emuvctl
