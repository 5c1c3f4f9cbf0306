// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl list: the instances, one a line.
#include "commands.hpp"
#include "environment.hpp"
#include "instances.hpp"

namespace emuvctl {

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
    printer print(options.output, instance_columns(), defaults);
    listing list;
    list.name = "instances";
    list.columns = instance_columns();
    for (const auto &info :
         read_instances(parse_instances(options.instances), env))
        list.rows.push_back(instance_row(info, env));
    if (list.rows.empty() && !options.output.any())
        env.say("there are no instances; 'emuvctl create' makes one");
    print.print(list, env);
}

} // namespace emuvctl
