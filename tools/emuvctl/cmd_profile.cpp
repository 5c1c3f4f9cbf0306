// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl profile list, profile show: what the profile files say.
#include "commands.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "profiles.hpp"

#include <emuv/gpu_model.hpp>
#include <emuv/profile.hpp>

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace emuvctl {

namespace {

constexpr std::array<column, 13> columns = {{
    {"profile", "PROFILE", kind::text, "the section's name"},
    {"gpu_model", "MODEL", kind::text, "GPU model as it is given"},
    {"gpu_name", "GPU", kind::text, "the card's full name"},
    {"physical_bytes", "PHYSICAL", kind::bytes, "share of VRAM"},
    {"virtual_bytes", "VIRTUAL", kind::bytes, "share of system RAM"},
    {"total_bytes", "TOTAL", kind::bytes, "both together"},
    {"count", "COUNT", kind::number, "how many instances"},
    {"instance_id", "ID", kind::number, "the first one's id"},
    {"numa_node", "NUMA", kind::number, "where the RAM comes from"},
    {"pci_device_id", "PCI-ID", kind::text, "the card they belong to"},
    {"overcommit", "OVERCOMMIT", kind::text, "promise more than there is"},
    {"file", "FILE", kind::text, "where it is written"},
    {"line", "LINE", kind::number, "the section's line there"},
}};

void print_profiles(const std::vector<emuv::profile> &profiles, printer &print,
                    environment &env)
{
    listing list;
    list.name = "profiles";
    list.columns = columns;
    for (const auto &one : profiles)
        list.rows.push_back(profile_row(one));
    print.print(list, env);
}

} // namespace

std::span<const column> profile_columns()
{
    return columns;
}

row profile_row(const emuv::profile &what)
{
    const auto &spec = what.spec;
    row result;
    result.cells = {
        what.name,
        spec.gpu_model,
        emuv::gpu_display_name(spec.gpu_model),
        spec.physical_bytes,
        spec.virtual_bytes,
        spec.physical_bytes + spec.virtual_bytes,
        std::uint64_t{what.count},
        spec.id == emuv::any ? cell() : cell(std::int64_t{spec.id}),
        spec.numa_node == emuv::any ? cell()
                                    : cell(std::int64_t{spec.numa_node}),
        spec.pci_device_id == 0
            ? cell()
            : cell(fmt::format("{:#06x}", spec.pci_device_id)),
        spec.overcommit,
        what.file.empty() ? cell() : cell(what.file),
        what.line == 0 ? cell() : cell(std::int64_t{what.line}),
    };
    return result;
}

std::vector<emuv::profile> read_profiles(const std::string &config)
{
    return emuv::load_profiles(config.empty() ? emuv::default_profile_file()
                                              : std::filesystem::path(config));
}

void cmd_profile_list(const profile_options &options, environment &env)
{
    static constexpr std::string_view defaults[] = {
        "profile",     "gpu_model", "physical_bytes", "virtual_bytes",
        "total_bytes", "count",     "instance_id",    "pci_device_id"};
    printer print(options.output, columns, defaults);
    const auto profiles = read_profiles(options.config);
    if (profiles.empty() && !options.output.any())
        env.say("there are no profiles");
    print_profiles(profiles, print, env);
}

void cmd_profile_show(const profile_options &options, environment &env)
{
    static constexpr std::string_view defaults[] = {"profile"};
    printer print(options.output, columns, defaults);
    const auto profiles = read_profiles(options.config);
    std::vector<emuv::profile> chosen;
    for (const auto &name : options.names) {
        const auto found =
            std::find_if(profiles.begin(), profiles.end(),
                         [&](const auto &one) { return one.name == name; });
        if (found == profiles.end())
            throw failure(fmt::format("no profile '{}'; 'emuvctl profile list' "
                                      "shows those there are",
                                      printable(name)));
        chosen.push_back(*found);
    }
    if (options.output.json) {
        print_profiles(chosen, print, env);
        return;
    }
    std::string text;
    for (const auto &one : chosen)
        text += (text.empty() ? "" : "\n") + emuv::format_profile(one);
    env.out.write(text);
}

} // namespace emuvctl
