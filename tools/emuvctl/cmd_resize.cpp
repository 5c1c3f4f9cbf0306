// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl resize: changes the sizes of an instance, in use or not, and its
// tiers.
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "tiers.hpp"
#include "verbs.hpp"

#include <emuv/control.hpp>
#include <emuv/profile.hpp>
#include <emuv/size.hpp>

#include <cstdint>
#include <memory>
#include <optional>

#include <fmt/format.h>

namespace emuvctl {

namespace {

struct resize_options
{
    std::vector<std::string> instances;
    std::string physical;
    std::string virtual_size;
    std::string tier;
    bool dry_run = false;
};

std::optional<std::uint64_t> parse_optional_size(std::string_view option,
                                                 const std::string &text)
{
    if (text.empty())
        return std::nullopt;
    return parse_option(option, [&] { return emuv::parse_size(text); });
}

// The driver refuses this, too, but has no words for it.
void check_room(const emuv::instance_info &info, std::uint64_t physical,
                std::uint64_t virtual_bytes)
{
    const auto refuse = [&info](std::string_view what, std::uint64_t used) {
        throw failure(fmt::format("{}: {} of {} are in use, and stay so until "
                                  "they are freed",
                                  info.name(), say_size(used, false), what));
    };
    if (physical < info.physical_used_bytes)
        refuse("physical VRAM", info.physical_used_bytes);
    if (virtual_bytes < info.virtual_used_bytes)
        refuse("virtual VRAM", info.virtual_used_bytes);
}

std::string say_tiers(const std::vector<emuv::tier> &tiers)
{
    return tiers.empty() ? "none" : emuv::format_tiers(tiers);
}

void cmd_resize(const resize_options &options, environment &env)
{
    if (options.instances.size() != 1)
        throw usage_error("give one instance");
    const bool sizes =
        !options.physical.empty() || !options.virtual_size.empty();
    if (!sizes && options.tier.empty())
        throw usage_error("give --physical, --virtual or --tier");
    const auto physical = parse_optional_size("--physical", options.physical);
    const auto virtual_bytes =
        parse_optional_size("--virtual", options.virtual_size);
    const auto tiers = options.tier.empty()
                           ? std::vector<emuv::tier>()
                           : parse_option("--tier", [&] {
                                 return emuv::parse_tiers(options.tier);
                             });
    const auto info =
        read_instances(parse_instances(options.instances, env), env).front();
    const auto new_physical = physical.value_or(info.physical_bytes);
    const auto new_virtual = virtual_bytes.value_or(info.virtual_bytes);
    try {
        emuv::check_instance_sizes(new_physical, new_virtual);
    } catch (const std::invalid_argument &problem) {
        throw usage_error(problem.what());
    }
    check_room(info, new_physical, new_virtual);
    if (options.dry_run) {
        std::string text;
        if (sizes)
            text = fmt::format(
                "would resize {}: {} + {} to {} + {}\n", info.name(),
                say_size(info.physical_bytes, false),
                say_size(info.virtual_bytes, false),
                say_size(new_physical, false), say_size(new_virtual, false));
        if (!options.tier.empty())
            text += fmt::format(
                "would change the tiers of {}: {} to {}\n", info.name(),
                say_tiers(tiers_of_instance(info.uuid, env)), say_tiers(tiers));
        env.out.write(text);
        return;
    }
    if (sizes)
        emuv::control(env.dev, env.kernel)
            .resize(info.id, physical, virtual_bytes);
    if (!options.tier.empty())
        give_tiers(tiers, info.uuid, env);
}

} // namespace

verb resize_verb()
{
    const auto options = std::make_shared<resize_options>();
    verb resize{"resize", "Instances", "change the sizes of an instance",
                "Changes an instance's share of VRAM, of system RAM or both, "
                "while programs\n"
                "use it. It never becomes smaller than the memory that they "
                "have. Tiers are for programs that start later.\n"
                "  emuvctl resize emuv0 --physical 16G --virtual 48G"};
    resize.options = {
        {"--physical", "SIZE", "share of VRAM", &options->physical},
        {"--virtual", "SIZE", "share of system RAM, a multiple of 2M",
         &options->virtual_size},
        {"--tier", "TIERS",
         "VRAM of other instances' cards that its programs\n"
         "take before system RAM, as of create; or none",
         &options->tier},
        dry_run_flag(options->dry_run)};
    resize.arguments = instance_arguments(options->instances);
    resize.aliases = {"modify"};
    resize.action = [options](environment &env) { cmd_resize(*options, env); };
    return resize;
}

} // namespace emuvctl
