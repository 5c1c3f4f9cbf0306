// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl create: makes instances, from a profile or from options.
#include "cards.hpp"
#include "definitions.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "instance_options.hpp"
#include "instances.hpp"
#include "names.hpp"
#include "profiles.hpp"
#include "verbs.hpp"

#include <emuv/gpu_model.hpp>
#include <emuv/name.hpp>
#include <emuv/profile.hpp>
#include <emuv/size.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

namespace emuvctl {

namespace {

struct create_options
{
    std::string profile;
    std::string config;
    std::string count;
    std::string name;
    bool persist = false;
    instance_options instance;
    std::string module = "emuv";
    bool dry_run = false;
    output_options output;
};

// The model and the VRAM that no option names: of the card that is here.
void set_card(emuv::profile &what, const environment &env)
{
    emuv::instance_spec &spec = what.spec;
    if (!what.model_given) {
        try {
            const card one = only_card(env);
            spec.gpu_model = one.name;
            if (!what.physical_given)
                spec.physical_bytes = one.vram_bytes;
        } catch (const failure &problem) {
            throw usage_error(fmt::format("{}; give --gpu-model or --profile",
                                          problem.what()));
        }
        parse_option("--gpu-model", [&] {
            emuv::check_gpu_model_label(spec.gpu_model);
            return 0;
        });
        if (spec.physical_bytes == 0 && !what.physical_given)
            throw usage_error(fmt::format("the VRAM of the {} is unknown here; "
                                          "give --physical",
                                          spec.gpu_model));
    } else if (!what.physical_given) {
        try {
            spec.physical_bytes = vram_of(spec.gpu_model, env);
        } catch (const std::invalid_argument &problem) {
            throw usage_error(fmt::format("--gpu-model: {}; give --physical "
                                          "with it",
                                          problem.what()));
        }
    }
    what.model_given = what.physical_given = true;
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
    emuv::profile what = read_instance_options(options.instance);
    set_card(what, env);
    try {
        emuv::check_instance_sizes(what.spec.physical_bytes,
                                   what.spec.virtual_bytes);
    } catch (const std::invalid_argument &problem) {
        throw usage_error(problem.what());
    }
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
    what.model_given = what.physical_given = true;
    return what;
}

// Throws unless one instance may be called so, and be defined if it is to last.
void check_name_option(const create_options &options, emuv::profile &what,
                       const environment &env)
{
    if (options.name.empty()) {
        if (options.persist)
            throw usage_error("--persist: needs --name, by which the instance "
                              "is known from now on");
        return;
    }
    parse_option("--name", [&] {
        emuv::check_name(options.name);
        return 0;
    });
    if (what.count != 1)
        throw usage_error("--name: one name is for one instance, not for "
                          "several");
    if (const int other = find_name(options.name, env); other >= 0)
        throw failure(fmt::format("the name '{}' is taken by {}", options.name,
                                  emuv::instance_name(other)));
    what.name = options.name;
    if (!options.persist)
        return;
    std::error_code ignored;
    if (std::filesystem::exists(definition_file(options.name, options.config),
                                ignored))
        throw failure(fmt::format("{} is defined already; 'emuvctl start {}' "
                                  "makes it, 'emuvctl undefine' forgets it",
                                  options.name, options.name));
    check_definition(what, options.config);
}

void cmd_create(const create_options &options, environment &env)
{
    static constexpr std::string_view defaults[] = {"node"};
    printer print(options.output, instance_columns(), defaults);

    emuv::profile what = options.profile.empty() ? from_options(options, env)
                                                 : from_profile(options, env);
    add_to_profile(options.instance, what);
    check_together(what.spec);
    if (!options.count.empty())
        what.count = parse_option("--count", [&] {
            return static_cast<unsigned>(
                emuv::parse_integer(options.count, 1, EMUV_MAX_INSTANCES));
        });
    check_name_option(options, what, env);
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
            text += fmt::format("would create {}: {}{}\n", env.node(ids[i]),
                                describe(specs[i]), describe(what.tiers));
        if (options.persist)
            text += fmt::format(
                "would write {}\n",
                definition_file(options.name, options.config).string());
        env.out.write(text);
        return;
    }

    ensure_module(options.module, env);
    creation work(env);
    std::vector<emuv::instance_info> made;
    made.reserve(specs.size());
    for (const auto &spec : specs)
        made.push_back(work.make(spec, what.tiers));
    if (!options.name.empty())
        give_name(options.name, made.front().uuid, env);
    if (options.persist)
        write_definition(what, options.config, env);
    work.commit();

    print_instances(made, print, options.output, env);
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
    profile.excludes = options_of_a_profile();
    create.options = {
        profile,
        config_option(options->config),
        {"--name", "NAME",
         "call it so: list, info, stats, run and\ndestroy take the name",
         &options->name},
        flag("--persist", options->persist,
             "define it, too: every boot brings it back"),
        {"--count", "N", "how many to make. Default: 1", &options->count}};
    for (auto &each : options_of_an_instance(options->instance))
        create.options.push_back(std::move(each));
    for (auto &&each :
         {module_option(options->module), dry_run_flag(options->dry_run),
          json_flag(options->output)})
        create.options.push_back(each);
    create.action = [options](environment &env) { cmd_create(*options, env); };
    return create;
}

} // namespace emuvctl
