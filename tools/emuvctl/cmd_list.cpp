// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl list: the instances, one a line.
#include "cards.hpp"
#include "environment.hpp"
#include "instances.hpp"
#include "names.hpp"
#include "verbs.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>
#include <vector>

namespace emuvctl {

namespace {

struct list_options
{
    std::vector<std::string> instances;
    output_options output;
};

void cmd_list(const list_options &options, environment &env)
{
    static constexpr std::string_view defaults[] = {"name",
                                                    "gpu_model",
                                                    "physical_bytes",
                                                    "virtual_bytes",
                                                    "total_bytes",
                                                    "physical_used_bytes",
                                                    "virtual_used_bytes",
                                                    "resident_bytes",
                                                    "clients"};
    std::vector<std::string_view> shown(std::begin(defaults),
                                        std::end(defaults));
    const auto names = read_names(env);
    const auto found =
        read_instances(parse_instances(options.instances, env), env);
    if (std::any_of(found.begin(), found.end(), [&](const auto &info) {
            return names.contains(info.uuid);
        }))
        shown.insert(shown.begin() + 1, "given_name");
    printer print(options.output, instance_columns(), shown);
    listing list;
    list.name = "instances";
    list.columns = instance_columns();
    const auto cards = find_cards(env, nvml_state());
    for (const auto &info : found)
        list.rows.push_back(instance_row(info, env, names, cards));
    if (list.rows.empty() && !options.output.any())
        env.say("there are no instances; 'emuvctl create' makes one");
    print.print(list, env);
}

} // namespace

verb list_verb()
{
    const auto options = std::make_shared<list_options>();
    verb list{"list", "Instances", "list instances",
              "Lists instances, all without any named."};
    list.arguments = instance_arguments(options->instances);
    add_output(list, options->output, instance_columns());
    list.aliases = {"ls"};
    list.action = [options](environment &env) { cmd_list(*options, env); };
    return list;
}

} // namespace emuvctl
