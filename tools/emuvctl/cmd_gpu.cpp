// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl gpu list: the built-in table of cards.
#include "cards.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "verbs.hpp"

#include <emuv/gpu_model.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace emuvctl {

namespace {

struct gpu_options
{
    std::vector<std::string> names;
    output_options output;
};

constexpr std::array<column, 9> columns = {{
    {"full_name", "GPU", kind::text, "the card's name and variant"},
    {"name", "NAME", kind::text, "as NVML names the card", "name,gpu_name"},
    {"variant", "VARIANT", kind::text, "what tells namesakes apart"},
    {"vram_bytes", "VRAM", kind::bytes, "its memory", "memory.total"},
    {"bandwidth_gb_s", "GB/S", kind::number, "its bandwidth, 10^9 bytes/s"},
    {"pcie_generation", "PCIE", kind::number, "PCIe generation",
     "pcie.link.gen.max"},
    {"pcie_width", "LANES", kind::number, "PCIe lanes", "pcie.link.width.max"},
    {"pci_device_ids", "PCI-IDS", kind::text, "PCI device ids"},
    {"here", "HERE", kind::text, "your card: it is in this machine"},
}};

// The words of a name or of a question, in lower case.
std::vector<std::string> words_of(std::string_view text)
{
    std::vector<std::string> words(1);
    for (const char c : text)
        if (c != ' ' && c != '-')
            words.back() +=
                static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        else if (!words.back().empty())
            words.emplace_back();
    if (words.back().empty())
        words.pop_back();
    return words;
}

// The cards with each of the words in their name, or with a word of it that
// begins so: "rtx", "rtx pro", "50".
std::vector<const emuv::gpu_model *> with_words(std::string_view text)
{
    const auto asked = words_of(text);
    std::vector<const emuv::gpu_model *> found;
    for (const auto &card : emuv::gpu_models()) {
        const auto words = words_of(card.full_name());
        const auto has = [&](const std::string &word) {
            return std::any_of(
                words.begin(), words.end(),
                [&](const std::string &one) { return one.starts_with(word); });
        };
        if (!asked.empty() && std::all_of(asked.begin(), asked.end(), has))
            found.push_back(&card);
    }
    return found;
}

std::vector<const emuv::gpu_model *> cards_called(std::string_view name)
{
    auto found = emuv::find_gpu_models(name);
    return found.empty() ? with_words(name) : found;
}

// The cards that these names mean, each once. The names may be the words of
// one.
std::vector<const emuv::gpu_model *>
cards_of(const std::vector<std::string> &names)
{
    const std::string joined = fmt::format("{}", fmt::join(names, " "));
    auto words = words_of(joined);
    std::sort(words.begin(), words.end());
    const bool repeated =
        std::adjacent_find(words.begin(), words.end()) != words.end();
    std::vector<const emuv::gpu_model *> cards;
    if (names.size() > 1 && !repeated)
        cards = cards_called(joined);
    if (!cards.empty())
        return cards;
    for (const auto &name : names) {
        const auto found = cards_called(name);
        if (found.empty())
            throw failure(fmt::format("'{}' is not in the table of cards; "
                                      "'emuvctl gpu list' shows all of it",
                                      printable(name)));
        for (const auto *card : found)
            if (std::find(cards.begin(), cards.end(), card) == cards.end())
                cards.push_back(card);
    }
    return cards;
}

void cmd_gpu_list(const gpu_options &options, environment &env)
{
    // NVML takes its time, and is not needed to know a card by.
    const auto cards_here = find_cards(env, nvml_state());
    std::vector<const emuv::gpu_model *> here;
    for (const auto &one : cards_here)
        for (const auto *model : models_of(one))
            here.push_back(model);
    std::vector<std::string_view> defaults = {"full_name", "vram_bytes",
                                              "bandwidth_gb_s",
                                              "pcie_generation", "pcie_width"};
    if (!here.empty())
        defaults.emplace_back("here");
    printer print(options.output, columns, defaults);
    auto cards = cards_of(options.names);
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
                     std::move(ids),
                     std::find(here.begin(), here.end(), card) != here.end()
                         ? cell("your card")
                         : cell()};
        list.rows.push_back(std::move(one));
    }
    print.print(list, env);
}

} // namespace

verb gpu_verb()
{
    const auto options = std::make_shared<gpu_options>();
    verb list{
        "list", "Verbs", "list the cards that are known",
        "Lists the cards that emuvctl knows, or those that the names may "
        "mean. A name\nmay be a part, or several words: rtx, rtx pro, 50. "
        "The card of this machine\nis marked."};
    list.arguments = {"MODEL", &options->names};
    add_output(list, options->output, columns);
    list.action = [options](environment &env) { cmd_gpu_list(*options, env); };

    verb gpu{"gpu", "Machine", "list the cards that are known",
             "Lists the GPU models that emuvctl knows by name."};
    gpu.verbs = {std::move(list)};
    return gpu;
}

} // namespace emuvctl
