// SPDX-License-Identifier: GPL-2.0-or-later
// Reads profiles, and makes rows of them, for several verbs.
#include "profiles.hpp"

#include "cards.hpp"
#include "failure.hpp"

#include <emuv/gpu_model.hpp>

#include <array>
#include <filesystem>

#include <fmt/format.h>

namespace emuvctl {

namespace {

constexpr std::array<column, 18> columns = {{
    {"profile", "PROFILE", kind::text, "the section's name"},
    {"gpu_model", "MODEL", kind::text, "GPU model as it is given"},
    {"gpu_name", "GPU", kind::text, "the card's full name"},
    {"physical_bytes", "PHYSICAL", kind::bytes, "share of VRAM"},
    {"virtual_bytes", "VIRTUAL", kind::bytes, "share of system RAM"},
    {"client_virtual_bytes", "CLIENT", kind::bytes, "that one client may take"},
    {"total_bytes", "TOTAL", kind::bytes, "both together"},
    {"count", "COUNT", kind::number, "how many instances"},
    {"instance_id", "ID", kind::number, "the first one's id"},
    {"numa_node", "NUMA", kind::number, "where the RAM comes from"},
    {"numa_bind", "BIND", kind::text, "from there only"},
    {"pci_device_id", "PCI-ID", kind::text, "the card they belong to"},
    {"overcommit", "OVERCOMMIT", kind::text, "promise more than there is"},
    {"guaranteed", "GUARANTEED", kind::text, "reserve the RAM at once"},
    {"swap", "SWAP", kind::text, "where cold memory goes"},
    {"tier", "TIER", kind::text, "VRAM of others that it takes first"},
    {"file", "FILE", kind::text, "where it is written"},
    {"line", "LINE", kind::number, "the section's line there"},
}};

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
        what.model_given ? cell(spec.gpu_model) : cell(),
        what.model_given ? cell(emuv::gpu_display_name(spec.gpu_model))
                         : cell(),
        what.physical_given ? cell(spec.physical_bytes) : cell(),
        spec.virtual_bytes,
        spec.client_virtual_bytes == 0 ? cell()
                                       : cell(spec.client_virtual_bytes),
        what.physical_given ? cell(spec.physical_bytes + spec.virtual_bytes)
                            : cell(),
        std::uint64_t{what.count},
        spec.id == emuv::any ? cell() : cell(std::int64_t{spec.id}),
        spec.numa_node == emuv::any ? cell()
                                    : cell(std::int64_t{spec.numa_node}),
        spec.numa_bind,
        spec.pci_device_id == 0
            ? cell()
            : cell(fmt::format("{:#06x}", spec.pci_device_id)),
        spec.overcommit,
        spec.guaranteed,
        spec.swap.empty() ? cell() : cell(spec.swap),
        what.tiers.empty() ? cell() : cell(emuv::format_tiers(what.tiers)),
        what.file.empty() ? cell() : cell(what.file),
        what.line == 0 ? cell() : cell(std::int64_t{what.line}),
    };
    return result;
}

std::vector<emuv::profile> complete_profiles(const std::string &config,
                                             const environment &env)
{
    auto profiles = read_profiles(config);
    for (auto &each : profiles)
        complete(each, env);
    return profiles;
}

std::vector<emuv::profile> read_profiles(const std::string &config)
{
    if (!config.empty())
        return emuv::load_profiles(config);
    const auto file = emuv::default_profile_file();
    auto folder = file;
    folder += ".d";
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored) &&
        !std::filesystem::exists(folder, ignored))
        throw failure(fmt::format("there are no profiles: {} does not exist; "
                                  "'emuvctl define' writes one",
                                  file.string()));
    return emuv::load_profiles(file);
}

} // namespace emuvctl
