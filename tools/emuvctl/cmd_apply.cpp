// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl apply: makes the instances of the profiles that are not there yet.
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "names.hpp"
#include "plan.hpp"
#include "profiles.hpp"
#include "tiers.hpp"
#include "verbs.hpp"

#include <emuv/name.hpp>
#include <emuv/profile.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <span>

#include <fmt/format.h>

namespace emuvctl {

namespace {

struct apply_options
{
    std::string config;
    std::string module = "emuv";
    bool dry_run = false;
    output_options output;
};

constexpr std::array<column, 8> columns = {{
    {"action", "ACTION", kind::text, "create or keep"},
    {"name", "NAME", kind::text, "emuvN"},
    {"node", "NODE", kind::text, "its device node"},
    {"profile", "PROFILE", kind::text, "who asks for it"},
    {"gpu_model", "MODEL", kind::text, "GPU model"},
    {"physical_bytes", "PHYSICAL", kind::bytes, "share of VRAM"},
    {"virtual_bytes", "VIRTUAL", kind::bytes, "share of system RAM"},
    {"tier", "TIER", kind::text, "VRAM of others that it takes first"},
}};

// Those that an instance has once this is done.
std::vector<emuv::tier> tiers_of(const plan_item &item, const environment &env)
{
    return item.missing() || item.named
               ? item.from->tiers
               : tiers_of_instance(item.found->uuid, env);
}

row action_row(std::string action, int id, const plan_item &item,
               const environment &env)
{
    const emuv::instance_spec is =
        item.differs() ? to_spec(*item.found) : item.wanted;
    const auto tiers = tiers_of(item, env);
    row result;
    result.cells = {std::move(action),
                    emuv::instance_name(id),
                    env.node(id),
                    item.from->name,
                    is.gpu_model,
                    is.physical_bytes,
                    is.virtual_bytes,
                    tiers.empty() ? cell() : cell(emuv::format_tiers(tiers))};
    return result;
}

// The order of making. Those that may promise more than the host has come last:
// the driver counts what they promise against the others. Of each kind those
// come first that must have a certain id.
std::vector<plan_item *> missing_items(plan &work)
{
    std::vector<plan_item *> order;
    for (const bool overcommit : {false, true})
        for (const bool with_id : {true, false})
            for (auto &item : work.items)
                if (item.missing() && item.wanted.overcommit == overcommit &&
                    (item.wanted.id != emuv::any) == with_id)
                    order.push_back(&item);
    return order;
}

// Gives those that may have any id, and are made before one that must have a
// certain id, another one than that.
void settle_ids(const std::vector<plan_item *> &order,
                std::span<const emuv::instance_info> instances)
{
    std::set<int> taken;
    for (const auto &one : instances)
        taken.insert(one.id);
    for (const auto *item : order)
        if (item->wanted.id != emuv::any)
            taken.insert(item->wanted.id);
    auto wanting =
        std::count_if(order.begin(), order.end(), [](const plan_item *item) {
            return item->wanted.id != emuv::any;
        });
    int id = 0;
    for (auto *item : order) {
        if (wanting == 0)
            return;
        if (item->wanted.id != emuv::any) {
            wanting--;
            continue;
        }
        while (taken.contains(id))
            id++;
        // Past the last one the driver says that none is free.
        if (id >= EMUV_MAX_INSTANCES)
            return;
        taken.insert(item->wanted.id = id);
    }
}

// Calls an instance that was made by its profile's name, if it can be a name.
void give_profiles_name(const emuv::profile &from,
                        const emuv::instance_info &made, environment &env)
{
    try {
        emuv::check_name(from.name);
    } catch (const std::invalid_argument &) {
        return;
    }
    if (from.count == 1 && find_name(from.name, env) < 0)
        give_name(from.name, made.uuid, env);
}

// An instance that has a profile's name is that profile's, and somebody has
// changed one of the two: programs may use it, so it stays. Of another one the
// number is in the way.
void check_differences(const plan &work, const environment &env)
{
    std::string conflicts;
    std::vector<std::string> kept;
    for (const auto &item : work.items) {
        if (!item.differs())
            continue;
        const std::string difference = fmt::format(
            "{}: [{}] wants {}, and it is {}", item.found->name(),
            item.from->name, describe(item.wanted), describe(*item.found));
        if (item.named)
            kept.push_back(
                fmt::format("{}; it is kept so. 'emuvctl stop {}' and 'start "
                            "{}' make it anew",
                            difference, item.from->name, item.from->name));
        else
            conflicts += (conflicts.empty() ? "" : "\n") + difference;
    }
    if (!conflicts.empty())
        throw failure(conflicts + "\nnothing was changed; 'emuvctl destroy' "
                                  "makes room");
    for (const auto &each : kept)
        env.say(each);
}

// Tiers are what programs begin with later, so they may change in use. Those of
// an instance that is made are told where it is not there yet.
// @param ids  of the items
void update_tiers(const plan &work, std::span<const int> ids, bool dry_run,
                  const environment &env)
{
    for (std::size_t i = 0; i < work.items.size(); i++) {
        const auto &item = work.items[i];
        if (dry_run && item.missing() && !item.from->tiers.empty())
            env.say(fmt::format("{}: its tiers would be {}",
                                emuv::instance_name(ids[i]),
                                emuv::format_tiers(item.from->tiers)));
        if (!item.named)
            continue;
        const auto wanted = emuv::format_tiers(item.from->tiers);
        const auto had =
            emuv::format_tiers(tiers_of_instance(item.found->uuid, env));
        if (had == wanted)
            continue;
        if (!dry_run)
            give_tiers(item.from->tiers, item.found->uuid, env);
        env.say(fmt::format("{}: its tiers {} {}, and {} {}",
                            item.found->name(), dry_run ? "are" : "were",
                            had.empty() ? "none" : had,
                            dry_run ? "would be" : "are now",
                            wanted.empty() ? "none" : wanted));
    }
}

void cmd_apply(const apply_options &options, environment &env)
{
    static constexpr std::string_view defaults[] = {
        "action",    "name",           "profile",
        "gpu_model", "physical_bytes", "virtual_bytes"};
    printer print(options.output, columns, defaults);
    const auto profiles = complete_profiles(options.config, env);
    if (profiles.empty())
        env.say("there are no profiles; nothing to do");

    const auto instances = env.sysfs().instances();
    plan work = match(profiles, instances, read_names(env));
    check_differences(work, env);

    const auto order = missing_items(work);
    settle_ids(order, instances);
    std::vector<int> ids(work.items.size(), -1);
    const auto index_of = [&](const plan_item *item) {
        return static_cast<std::size_t>(item - work.items.data());
    };
    for (const auto &item : work.items)
        if (item.found)
            ids[index_of(&item)] = item.found->id;
    if (options.dry_run) {
        std::vector<emuv::instance_spec> specs;
        std::vector<std::string> names;
        for (const auto *item : order) {
            specs.push_back(item->wanted);
            names.push_back(item->from->name);
        }
        const auto predicted = predict_ids(specs, env, names);
        for (std::size_t i = 0; i < order.size(); i++)
            ids[index_of(order[i])] = predicted[i];
    } else if (!order.empty()) {
        ensure_module(options.module, env);
        creation making(env);
        for (const auto *item : order) {
            const auto made =
                making.make(item->wanted, item->from->tiers, item->from->name);
            give_profiles_name(*item->from, made, env);
            ids[index_of(item)] = made.id;
        }
        making.commit();
    }

    update_tiers(work, ids, options.dry_run, env);

    listing list;
    list.name = "actions";
    list.columns = columns;
    list.beside.emplace_back("dry_run", options.dry_run);
    for (const auto &item : work.items)
        list.rows.push_back(action_row(item.found ? "keep" : "create",
                                       ids[index_of(&item)], item, env));
    print.print(list, env);
}

} // namespace

verb apply_verb()
{
    const auto options = std::make_shared<apply_options>();
    verb apply{"apply", "Profiles", "make what the profiles ask for",
               "Makes the instances that the profiles ask for and that are not "
               "there yet, all\nor none. A profile with instance_id is matched "
               "with that instance, another\nwith the one of its name, or one "
               "that has its values. A new instance has its\nprofile's name. "
               "One of that name with other values is kept as it is. Loads\n"
               "the module if need be."};
    apply.options = {config_option(options->config),
                     module_option(options->module),
                     dry_run_flag(options->dry_run)};
    add_output(apply, options->output, columns);
    apply.action = [options](environment &env) { cmd_apply(*options, env); };
    return apply;
}

} // namespace emuvctl
