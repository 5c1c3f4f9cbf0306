// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl create: makes instances, from a profile or from options.
#include "cards.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "names.hpp"
#include "profiles.hpp"
#include "verbs.hpp"

#include <emuv/gpu_model.hpp>
#include <emuv/profile.hpp>
#include <emuv/size.hpp>

#include <algorithm>
#include <memory>

#include <fmt/format.h>

namespace emuvctl {

namespace {

struct create_options
{
    std::string profile;
    std::string config;
    std::string gpu_model;
    std::string physical;
    std::string virtual_size;
    std::string client_virtual;
    std::string id;
    std::string count;
    std::string name;
    std::string numa_node;
    std::string pci_device_id;
    bool overcommit = false;
    bool guaranteed = false;
    bool numa_bind = false;
    std::string swap;
    std::string module = "emuv";
    bool dry_run = false;
    output_options output;
};

// The model and the VRAM that the options name, or the card that is here.
void set_card(const create_options &options, emuv::instance_spec &spec,
              const environment &env)
{
    spec.gpu_model = options.gpu_model;
    if (options.gpu_model.empty()) {
        try {
            const card one = only_card(env);
            spec.gpu_model = one.name;
            spec.physical_bytes = one.vram_bytes;
        } catch (const failure &problem) {
            throw usage_error(fmt::format("{}; give --gpu-model or --profile",
                                          problem.what()));
        }
    }
    parse_option("--gpu-model", [&] {
        emuv::check_gpu_model_label(spec.gpu_model);
        return 0;
    });
    if (!options.physical.empty())
        spec.physical_bytes = parse_option(
            "--physical", [&] { return emuv::parse_size(options.physical); });
    else if (!options.gpu_model.empty()) {
        try {
            spec.physical_bytes = vram_of(options.gpu_model, env);
        } catch (const std::invalid_argument &problem) {
            throw usage_error(fmt::format("--gpu-model: {}; give --physical "
                                          "with it",
                                          problem.what()));
        }
    } else if (spec.physical_bytes == 0)
        throw usage_error(fmt::format("the VRAM of the {} is unknown here; "
                                      "give --physical",
                                      spec.gpu_model));
}

void warn_if_larger_than_card(const emuv::instance_spec &spec,
                              const environment &env)
{
    const auto cards = emuv::find_gpu_models(spec.gpu_model);
    const auto largest = std::max_element(
        cards.begin(), cards.end(), [](const auto *a, const auto *b) {
            return a->vram_bytes < b->vram_bytes;
        });
    if (largest != cards.end() && spec.physical_bytes > (*largest)->vram_bytes)
        env.say(fmt::format("warning: {} of physical VRAM is more than the "
                            "{} that {} has",
                            emuv::format_size_exact(spec.physical_bytes),
                            emuv::format_size_exact((*largest)->vram_bytes),
                            (*largest)->full_name()));
}

emuv::profile from_options(const create_options &options,
                           const environment &env)
{
    emuv::profile what;
    if (options.virtual_size.empty())
        throw usage_error("--virtual is missing; it takes a size such as 2G, "
                          "or 0. Or give --profile");
    emuv::instance_spec &spec = what.spec;
    set_card(options, spec, env);
    spec.virtual_bytes = parse_option(
        "--virtual", [&] { return emuv::parse_size(options.virtual_size); });
    try {
        emuv::check_instance_sizes(spec.physical_bytes, spec.virtual_bytes);
    } catch (const std::invalid_argument &problem) {
        throw usage_error(problem.what());
    }
    if (!options.client_virtual.empty())
        spec.client_virtual_bytes = parse_option("--client-virtual", [&] {
            return emuv::parse_client_size(options.client_virtual);
        });
    if (!options.numa_node.empty())
        spec.numa_node = parse_option("--numa-node", [&] {
            return static_cast<int>(
                emuv::parse_integer(options.numa_node, -1, 1023));
        });
    if (!options.pci_device_id.empty())
        spec.pci_device_id = parse_option("--pci-device-id", [&] {
            return emuv::parse_pci_device_id(options.pci_device_id);
        });
    spec.overcommit = options.overcommit;
    spec.guaranteed = options.guaranteed;
    return what;
}

emuv::profile from_profile(const create_options &options,
                           const environment &env)
{
    const auto profiles = read_profiles(options.config);
    const auto found =
        std::find_if(profiles.begin(), profiles.end(), [&](const auto &one) {
            return one.name == options.profile;
        });
    if (found == profiles.end()) {
        std::string names;
        for (const auto &one : profiles)
            names.append(names.empty() ? "" : ", ").append(one.name);
        throw failure(fmt::format(
            "no profile '{}'; {}", printable(options.profile),
            names.empty() ? "there are none" : "there are " + names));
    }
    emuv::profile what = *found;
    complete(what, env);
    what.spec.overcommit = what.spec.overcommit || options.overcommit;
    what.spec.guaranteed = what.spec.guaranteed || options.guaranteed;
    return what;
}

void cmd_create(const create_options &options, environment &env)
{
    static constexpr std::string_view defaults[] = {"node"};
    printer print(options.output, instance_columns(), defaults);

    emuv::profile what = options.profile.empty() ? from_options(options, env)
                                                 : from_profile(options, env);
    if (what.spec.overcommit && what.spec.guaranteed)
        throw usage_error("--guaranteed and --overcommit: RAM that is promised "
                          "beyond what there is cannot be reserved");
    what.spec.numa_bind = what.spec.numa_bind || options.numa_bind;
    if (what.spec.numa_bind && what.spec.numa_node == emuv::any)
        throw usage_error("--numa-bind: needs --numa-node");
    if (!options.swap.empty())
        what.spec.swap = options.swap;
    if (!what.spec.swap.empty() && what.spec.guaranteed)
        throw usage_error("--guaranteed and --swap: memory that is reserved "
                          "never leaves RAM");
    if (!options.id.empty())
        what.spec.id = parse_option("--id", [&] {
            return static_cast<int>(
                emuv::parse_integer(options.id, 0, EMUV_MAX_INSTANCES - 1));
        });
    if (!options.count.empty())
        what.count = parse_option("--count", [&] {
            return static_cast<unsigned>(
                emuv::parse_integer(options.count, 1, EMUV_MAX_INSTANCES));
        });
    if (!options.name.empty()) {
        parse_option("--name", [&] {
            check_name(options.name);
            return 0;
        });
        if (what.count != 1)
            throw usage_error("--name: one name is for one instance, not for "
                              "several");
        if (const int other = find_name(options.name, env); other >= 0)
            throw failure(fmt::format("the name '{}' is taken by {}",
                                      options.name,
                                      emuv::instance_name(other)));
    }
    const auto specs = what.instances();
    if (what.spec.id != emuv::any && specs.back().id >= EMUV_MAX_INSTANCES)
        throw usage_error(fmt::format(
            "--id and --count: {} instances from {} on would pass the last "
            "id, {}",
            what.count, what.spec.id, EMUV_MAX_INSTANCES - 1));
    warn_if_larger_than_card(what.spec, env);

    if (options.dry_run) {
        const auto ids = predict_ids(specs, env);
        std::string text;
        if (!env.sysfs().loaded())
            text += "would load the module " + options.module + "\n";
        for (std::size_t i = 0; i < specs.size(); i++)
            text += fmt::format("would create {}: {}\n", env.node(ids[i]),
                                describe(specs[i]));
        env.out.write(text);
        return;
    }

    ensure_module(options.module, env);
    creation work(env);
    std::vector<emuv::instance_info> made;
    made.reserve(specs.size());
    for (const auto &spec : specs)
        made.push_back(work.make(spec));
    if (!options.name.empty())
        give_name(options.name, made.front().uuid, env);
    work.commit();

    listing list;
    list.name = "instances";
    list.columns = instance_columns();
    std::string nodes;
    const auto names = read_names(env);
    for (const auto &info : made) {
        list.rows.push_back(instance_row(info, env, names));
        nodes += env.node(info.id) + "\n";
    }
    if (options.output.any())
        print.print(list, env);
    else
        env.out.write(nodes);
}

} // namespace

verb create_verb()
{
    const auto options = std::make_shared<create_options>();
    verb create{
        "create", "Instances", "make instances",
        "Makes instances, all or none, and prints their nodes. Loads the "
        "module if need\nbe.\n"
        "  emuvctl create --virtual 48G\n"
        "  emuvctl create --gpu-model 4070 --virtual 2G\n"
        "  emuvctl create --profile vGPU-Profile-1\n"
        "Sizes are written as 12G, 512M or 1.5T (powers of 1024), or in "
        "bytes."};
    option profile{"--profile", "NAME", "make what this profile says",
                   &options->profile, offered::profiles};
    profile.excludes = {"--gpu-model",      "--physical",  "--virtual",
                        "--client-virtual", "--numa-node", "--pci-device-id"};
    create.options = {
        profile,
        config_option(options->config),
        {"--gpu-model", "MODEL",
         "the card: 4070, \"RTX 4070\" or any label.\n"
         "Default: the one in this machine",
         &options->gpu_model},
        {"--physical", "SIZE", "share of VRAM. Default: what the card has",
         &options->physical},
        {"--virtual", "SIZE", "share of system RAM, a multiple of 2M",
         &options->virtual_size},
        {"--client-virtual", "SIZE",
         "the part of it that one client may allocate.\nDefault: all",
         &options->client_virtual},
        {"--id", "N",
         "number of the (first) instance. Default:\nthe lowest free one",
         &options->id},
        {"--name", "NAME",
         "call it so: list, info, stats, run and\ndestroy take the name",
         &options->name},
        {"--count", "N", "how many to make. Default: 1", &options->count},
        {"--numa-node", "N", "where its RAM comes from; -1: any",
         &options->numa_node},
        flag("--numa-bind", options->numa_bind, "take no RAM from other nodes"),
        {"--pci-device-id", "0xID", "the card it belongs to, a label",
         &options->pci_device_id},
        flag("--overcommit", options->overcommit,
             "promise more RAM than the host has"),
        flag("--guaranteed", options->guaranteed,
             "reserve its share of RAM at once"),
        {"--swap", "PATH",
         "let cold memory leave RAM for this device,\nfile or folder",
         &options->swap, offered::files},
        module_option(options->module),
        dry_run_flag(options->dry_run),
        json_flag(options->output)};
    create.action = [options](environment &env) { cmd_create(*options, env); };
    return create;
}

} // namespace emuvctl
