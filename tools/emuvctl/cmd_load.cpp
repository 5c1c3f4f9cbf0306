// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl load: puts the module into the kernel, with parameters.
#include "cards.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "module_file.hpp"
#include "verbs.hpp"

#include <emuv/error.hpp>
#include <emuv/module.hpp>

#include <algorithm>
#include <cerrno>
#include <memory>

#include <fmt/format.h>

namespace emuvctl {

namespace {

struct load_options
{
    std::string module = "emuv";
    std::vector<std::string> parameters; // NAME=VALUE
    bool dry_run = false;
    output_options output;
};

// The parameters as the kernel wants them: one string, blanks in quotes.
std::string join(const std::vector<std::string> &parameters,
                 const emuv::module_file &file)
{
    std::string joined;
    for (const auto &parameter : parameters) {
        const auto equals = parameter.find('=');
        const std::string name = parameter.substr(0, equals);
        const auto known =
            std::find_if(file.parameters.begin(), file.parameters.end(),
                         [&](const auto &one) { return one.first == name; });
        if (known == file.parameters.end()) {
            std::string names;
            for (const auto &one : file.parameters)
                names.append(names.empty() ? "" : ", ").append(one.first);
            throw usage_error(
                fmt::format("unknown parameter '{}'; the module has {}",
                            printable(name), names));
        }
        const std::string value = parameter.substr(equals + 1);
        if (value.find_first_of("\"\n") != std::string::npos)
            throw usage_error(fmt::format(
                "{}: a quote or a line break cannot be part of a value", name));
        const bool blanks = value.find(' ') != std::string::npos;
        joined += fmt::format("{}{}={}{}{}", joined.empty() ? "" : " ", name,
                              blanks ? "\"" : "", value, blanks ? "\"" : "");
    }
    return joined;
}

void cmd_load(const load_options &options, environment &env)
{
    static constexpr std::string_view defaults[] = {"node"};
    printer print(options.output, instance_columns(), defaults);
    for (const auto &parameter : options.parameters)
        if (parameter.find('=') == std::string::npos ||
            parameter.starts_with('='))
            throw usage_error(
                fmt::format("'{}' is not NAME=VALUE", printable(parameter)));
    if (env.sysfs().loaded()) {
        const std::string version =
            env.sysfs().module_version().value_or("of unknown version");
        if (!options.parameters.empty())
            throw failure(fmt::format(
                "the module is loaded already ({}), and takes parameters only "
                "when it is loaded. 'emuvctl create' makes more instances, "
                "'emuvctl unload' makes room for a new start",
                version));
        env.say(fmt::format("the module is loaded already ({})", version));
        return;
    }
    const auto file = env.modules.info(options.module);
    if (!file)
        throw emuv::error(ENOENT, options.module, "lookup");
    if (options.module.find('/') != std::string::npos) {
        // The kernel judges its release: with versions of symbols it takes
        // modules of another one.
        const std::string why = why_no_module(options.module, "");
        if (!why.empty())
            throw failure(printable(options.module) + ": " + why);
    }
    const std::string parameters = join(options.parameters, *file);
    if (options.dry_run) {
        env.out.write(fmt::format("would load {}{}{}\n", file->path,
                                  parameters.empty() ? "" : " with ",
                                  parameters));
        return;
    }
    env.modules.load(options.module, parameters);

    listing made;
    made.name = "instances";
    made.columns = instance_columns();
    // The module has just come: nobody has given a name yet.
    const auto cards = find_cards(env, nvml_state());
    for (const auto &info : env.sysfs().instances())
        made.rows.push_back(instance_row(info, env, {}, cards));
    if (print.json() || options.output.any())
        print.print(made, env);
    else
        for (const auto &info : env.sysfs().instances())
            env.out.write(env.node(info.id) + "\n");
}

} // namespace

verb load_verb()
{
    const auto options = std::make_shared<load_options>();
    verb load{"load", "Module", "load the module",
              "Loads the module, with parameters as for insmod, and prints the "
              "nodes it makes:\n"
              "  emuvctl load gpu_model=4070 physical_vram_gb=12 "
              "virtual_vram_gb=2\n"
              "'modinfo emuv' lists the parameters."};
    load.options = {module_option(options->module),
                    dry_run_flag(options->dry_run), json_flag(options->output)};
    load.arguments = {"NAME=VALUE", &options->parameters, offered::parameters};
    load.action = [options](environment &env) { cmd_load(*options, env); };
    return load;
}

} // namespace emuvctl
