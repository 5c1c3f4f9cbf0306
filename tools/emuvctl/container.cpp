// SPDX-License-Identifier: GPL-2.0-or-later
// All that a container is handed of an instance.
#include "container.hpp"

#include "cuda_library.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "lenders.hpp"
#include "settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace emuvctl {

container_part library_part(const std::filesystem::path &folder)
{
    container_part part;
    part.mounts = {{folder.string(), container_library_folder}};
    part.variables = {"LD_PRELOAD=" +
                          preload_list(folder, container_library_folder),
                      setting_of("EMUV_MOVE").default_variable() + "=1"};
    return part;
}

container_part instance_part(std::span<const int> ids, const environment &env)
{
    container_part part;
    program_instances all;
    all.ids.assign(ids.begin(), ids.end());
    try {
        all = with_tiers(all.ids, env);
    } catch (const failure &problem) {
        part.without_tiers = problem.what();
    }
    for (const int id : all.ids)
        part.nodes.push_back(env.node(id));
    part.variables = {fmt::format("EMUV_INSTANCE={}", fmt::join(all.ids, ","))};
    if (!all.tier.empty())
        part.variables.push_back(setting_of("EMUV_TIER").default_variable() +
                                 "=" + all.tier);
    return part;
}

void say_without_tiers(const container_part &part, const environment &env)
{
    if (!part.without_tiers.empty())
        env.say(fmt::format("warning: {}; its containers begin without tiers",
                            part.without_tiers));
}

} // namespace emuvctl
