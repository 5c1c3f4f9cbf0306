// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl list: the instances, one a line.
#include "environment.hpp"
#include "instances.hpp"
#include "names.hpp"
#include "verbs.hpp"

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
    if (!read_names(env).empty())
        shown.insert(shown.begin() + 1, "given_name");
    printer print(options.output, instance_columns(), shown);
    listing list;
    list.name = "instances";
    list.columns = instance_columns();
    for (const auto &info :
         read_instances(parse_instances(options.instances, env), env))
        list.rows.push_back(instance_row(info, env));
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
