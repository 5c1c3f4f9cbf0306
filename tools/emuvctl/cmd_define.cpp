// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl define: writes the profile of an instance that lasts.
#include "definitions.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "instance_options.hpp"
#include "instances.hpp"
#include "tiers.hpp"
#include "verbs.hpp"

#include <emuv/name.hpp>

#include <cstdint>
#include <memory>

#include <fmt/format.h>

namespace emuvctl {

namespace {

struct define_options
{
    std::vector<std::string> names;
    std::string config;
    std::string from;
    instance_options instance;
    bool dry_run = false;
};

// A profile with the values of an instance, but for its number.
emuv::profile of_instance(const std::string &word, const environment &env)
{
    const std::vector<std::string> words = {word};
    const auto found = read_instances(parse_instances(words, env), env);
    const auto &info = found.front();
    if (info.swaps)
        throw failure(fmt::format("{} has a swap file, and the driver does not "
                                  "tell where; give its values and --swap",
                                  info.name()));
    emuv::profile what;
    what.spec = to_spec(info);
    what.spec.id = emuv::any;
    what.tiers = tiers_of_instance(info.uuid, env);
    return what;
}

// The VRAM that is left to the card is taken to be there.
void check_sizes(const emuv::profile &what)
{
    constexpr std::uint64_t some = 1ULL << 30;
    try {
        emuv::check_instance_sizes(
            what.physical_given ? what.spec.physical_bytes : some,
            what.spec.virtual_bytes);
    } catch (const std::invalid_argument &problem) {
        throw usage_error(problem.what());
    }
}

void cmd_define(const define_options &options, environment &env)
{
    if (options.names.size() != 1)
        throw usage_error("give one name");
    const std::string &name = options.names.front();
    try {
        emuv::check_name(name);
    } catch (const std::invalid_argument &problem) {
        throw usage_error(problem.what());
    }
    if (options.from.empty() && options.instance.virtual_size.empty())
        throw usage_error("--virtual is missing; it takes a size such as 2G, "
                          "or 0. Or give --from");
    emuv::profile what = options.from.empty()
                             ? read_instance_options(options.instance)
                             : of_instance(options.from, env);
    what.name = name;
    add_to_profile(options.instance, what);
    check_together(what.spec);
    check_sizes(what);
    if (options.dry_run) {
        check_definition(what, options.config);
        env.out.write(
            fmt::format("would write {}:\n{}",
                        definition_file(name, options.config).string(),
                        emuv::format_profile(what)));
        return;
    }
    const auto file = write_definition(what, options.config, env);
    env.out.write(file.string() + "\n");
}

} // namespace

verb define_verb()
{
    const auto options = std::make_shared<define_options>();
    verb define{"define", "Profiles", "write down an instance that lasts",
                "Writes the profile of an instance to FILE.d/NAME.conf, and "
                "prints that "
                "path.\nEvery boot makes the instance, and 'emuvctl start' "
                "does so now. "
                "One that is\nthere stays as it is until it is stopped.\n"
                "  emuvctl define team-a --virtual 48G\n"
                "  emuvctl define team-a --from emuv0"};
    option from{"--from", "INSTANCE", "with the values of this one",
                &options->from, offered::instances};
    from.excludes = options_of_a_profile();
    define.options = options_of_an_instance(options->instance);
    define.options.insert(define.options.begin(), {from});
    define.options.push_back(config_option(options->config));
    define.options.push_back(dry_run_flag(options->dry_run));
    define.arguments = {"NAME", &options->names, offered::nothing, true};
    define.action = [options](environment &env) { cmd_define(*options, env); };
    return define;
}

} // namespace emuvctl
