// SPDX-License-Identifier: GPL-2.0-or-later
// All that a container is handed of an instance.
#include "container.hpp"

#include "cuda_library.hpp"
#include "environment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace emuvctl {

container_part library_part(const std::filesystem::path &folder)
{
    container_part part;
    part.mounts = {{folder.string(), container_library_folder}};
    part.variables = {"LD_PRELOAD=" +
                      preload_list(folder, container_library_folder)};
    return part;
}

container_part instance_part(std::span<const int> ids, const environment &env)
{
    container_part part;
    for (const int id : ids)
        part.nodes.push_back(env.node(id));
    part.variables = {fmt::format("EMUV_INSTANCE={}", fmt::join(ids, ","))};
    return part;
}

} // namespace emuvctl
