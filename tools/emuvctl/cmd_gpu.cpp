// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl gpu list: the built-in table of cards.
#include "environment.hpp"
#include "failure.hpp"
#include "verbs.hpp"

#include <emuv/gpu_model.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace emuvctl {

namespace {

struct gpu_options
{
    std::vector<std::string> names;
    output_options output;
};

constexpr std::array<column, 8> columns = {{
    {"full_name", "GPU", kind::text, "the card's name and variant"},
    {"name", "NAME", kind::text, "as NVML names the card"},
    {"variant", "VARIANT", kind::text, "what tells namesakes apart"},
    {"vram_bytes", "VRAM", kind::bytes, "its memory", "memory.total"},
    {"bandwidth_gb_s", "GB/S", kind::number, "its bandwidth, 10^9 bytes/s"},
    {"pcie_generation", "PCIE", kind::number, "PCIe generation",
     "pcie.link.gen.max"},
    {"pcie_width", "LANES", kind::number, "PCIe lanes", "pcie.link.width.max"},
    {"pci_device_ids", "PCI-IDS", kind::text, "PCI device ids"},
}};

void cmd_gpu_list(const gpu_options &options, environment &env)
{
    static constexpr std::string_view defaults[] = {
        "full_name", "vram_bytes", "bandwidth_gb_s", "pcie_generation",
        "pcie_width"};
    printer print(options.output, columns, defaults);
    std::vector<const emuv::gpu_model *> cards;
    for (const auto &name : options.names) {
        const auto found = emuv::find_gpu_models(name);
        if (found.empty())
            throw failure(fmt::format("'{}' is not in the table of cards",
                                      printable(name)));
        cards.insert(cards.end(), found.begin(), found.end());
    }
    if (options.names.empty())
        for (const auto &card : emuv::gpu_models())
            cards.push_back(&card);

    listing list;
    list.name = "gpu_models";
    list.columns = columns;
    for (const auto *card : cards) {
        std::vector<std::string> ids;
        for (const auto id : card->pci_device_ids)
            ids.push_back(fmt::format("{:#06x}", id));
        row one;
        one.cells = {card->full_name(),
                     std::string(card->name),
                     card->variant.empty() ? cell()
                                           : cell(std::string(card->variant)),
                     card->vram_bytes,
                     std::uint64_t{card->bandwidth_gb_s},
                     std::uint64_t{card->pcie_generation},
                     std::uint64_t{card->pcie_width},
                     std::move(ids)};
        list.rows.push_back(std::move(one));
    }
    print.print(list, env);
}

} // namespace

verb gpu_verb()
{
    const auto options = std::make_shared<gpu_options>();
    verb list{"list", "Verbs", "list the cards that are known",
              "Lists the cards that emuvctl knows, or those that the names may "
              "mean."};
    list.arguments = {"MODEL", &options->names};
    add_output(list, options->output, columns);
    list.action = [options](environment &env) { cmd_gpu_list(*options, env); };

    verb gpu{"gpu", "Machine", "list the cards that are known",
             "Lists the GPU models that emuvctl knows by name."};
    gpu.verbs = {std::move(list)};
    return gpu;
}

} // namespace emuvctl
