// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl unload: takes the module, and all instances with it, out again.
#include "commands.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"

#include <emuv/module.hpp>

#include <fmt/format.h>

namespace emuvctl {

void cmd_unload(const unload_options &options, environment &env)
{
    if (!env.sysfs().loaded()) {
        env.say("the module is not loaded");
        return;
    }
    if (options.dry_run) {
        const auto instances = env.sysfs().instances();
        const std::string users = describe_users(env);
        if (!users.empty())
            throw failure("in use: " + users);
        env.out.write(fmt::format("would unload emuv, and {} instance{} with "
                                  "it\n",
                                  instances.size(),
                                  instances.size() == 1 ? "" : "s"));
        return;
    }
    env.modules.unload("emuv");
}

} // namespace emuvctl
