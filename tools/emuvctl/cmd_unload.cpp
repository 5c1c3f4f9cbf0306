// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl unload: takes the module, and all instances with it, out again.
#include "cdi.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "names.hpp"
#include "verbs.hpp"

#include <emuv/module.hpp>

#include <memory>

#include <fmt/format.h>

namespace emuvctl {

namespace {

struct unload_options
{
    bool dry_run = false;
};

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
    follow_cdi_devices(names_lock(env), gone_devices::drop, env);
}

} // namespace

verb unload_verb()
{
    const auto options = std::make_shared<unload_options>();
    verb unload{"unload", "Module", "unload the module and its instances",
                "Unloads the module; its instances go with it. It stays, "
                "untouched, while an\ninstance is in use."};
    unload.options = {dry_run_flag(options->dry_run)};
    unload.action = [options](environment &env) { cmd_unload(*options, env); };
    return unload;
}

} // namespace emuvctl
