// SPDX-License-Identifier: GPL-2.0-or-later
// Removes instances, for the verbs that do.
#include "removal.hpp"

#include "cdi.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "names.hpp"

#include <emuv/control.hpp>

#include <optional>

#include <fmt/format.h>

namespace emuvctl {

namespace {

void say_what_would_go(const std::vector<emuv::instance_info> &doomed,
                       std::string_view word, environment &env)
{
    std::string text;
    for (const auto &info : doomed)
        text += fmt::format(
            "would {} {}: {}{}\n", word, info.name(), describe(to_spec(info)),
            info.clients != 0 ? ", used by " + describe_clients(info, env)
                              : "");
    env.out.write(text);
}

// The number of one that went may be another's by now, if a program other than
// this one makes and destroys instances.
void check_is_the_same(const emuv::instance_info &info, const environment &env)
{
    const auto now = env.sysfs().instance(info.id);
    if (!now || now->uuid != info.uuid)
        throw failure(info.name() + ": has gone meanwhile");
}

} // namespace

void remove_instances(const std::function<std::vector<int>()> &which,
                      const removal &how, environment &env)
{
    std::optional<names_lock> lock;
    if (!how.dry_run)
        lock.emplace(env, names_lock::folder::make);
    const auto doomed = read_instances(which(), env);

    for (const auto &info : doomed)
        if (info.clients != 0 && !how.force)
            throw failure(fmt::format("{}: in use by {}", info.name(),
                                      describe_clients(info, env)));
    if (!lock)
        return say_what_would_go(doomed, how.word, env);
    emuv::control control(env.dev, env.kernel);
    for (const auto &info : doomed) {
        check_is_the_same(info, env);
        if (how.force)
            control.revoke(info.id);
        else
            control.destroy(info.id);
    }
    forget_names(*lock, env);
    follow_cdi_devices(*lock, gone_devices::drop, env);
}

} // namespace emuvctl
