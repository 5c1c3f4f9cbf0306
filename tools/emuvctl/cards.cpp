// SPDX-License-Identifier: GPL-2.0-or-later
// The NVIDIA cards of this machine, as sysfs, their driver and NVML show them.
#include "cards.hpp"

#include "failure.hpp"
#include "lib/entries.hpp"
#include "output.hpp"

#include <emuv/size.hpp>

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace emuvctl {

namespace {

using model_list = std::vector<const emuv::gpu_model *>;

std::string attribute(const std::filesystem::path &path)
{
    return emuv::read_line_file(path).value_or("");
}

// "Device Minor: 	 3" of a text of such lines; empty if it is not there.
std::string_view field(std::string_view text, std::string_view key)
{
    const auto at = text.find(key);
    if (at == std::string_view::npos)
        return {};
    text.remove_prefix(at + key.size());
    text = text.substr(0, text.find('\n'));
    const auto start = text.find_first_not_of(" \t");
    return start == std::string_view::npos ? "" : text.substr(start);
}

template <typename Number>
std::optional<Number> number(std::string_view text, int base = 10)
{
    Number value = 0;
    const auto [stop, problem] =
        std::from_chars(text.data(), text.data() + text.size(), value, base);
    return problem == std::errc() && stop != text.data() ? std::optional(value)
                                                         : std::nullopt;
}

// Until its first use a card's UUID reads as question marks.
std::string known_uuid(std::string_view text)
{
    text = text.substr(0, text.find_last_not_of(" \t\r") + 1);
    const bool known = text.starts_with("GPU-") &&
                       text.find_first_not_of("0123456789abcdefABCDEF-", 4) ==
                           std::string_view::npos;
    return known ? std::string(text) : std::string();
}

std::filesystem::path driven_cards(const environment &env)
{
    return env.proc / "driver/nvidia/gpus";
}

card read_card(const std::filesystem::path &path, const environment &env)
{
    card one;
    one.address = path.filename().string();
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored))
        one.path = path;
    one.driven =
        std::filesystem::exists(driven_cards(env) / one.address, ignored);
    const std::string id = attribute(path / "device");
    if (id.starts_with("0x"))
        one.pci_device_id =
            number<std::uint16_t>(std::string_view(id).substr(2), 16)
                .value_or(0);
    // The driver knows it by the name that NVML gives it.
    const std::string about =
        attribute(driven_cards(env) / one.address / "information");
    one.name = field(about, "Model:");
    one.uuid = known_uuid(field(about, "GPU UUID:"));
    one.minor = number<int>(field(about, "Device Minor:"));
    return one;
}

// True if both could be the memory of one card: NVML counts what is left of it.
bool near(std::uint64_t table, std::uint64_t told)
{
    return told <= table + table / 8 && told >= table - table / 8;
}

bool same_vram(const model_list &models)
{
    return !models.empty() &&
           std::all_of(models.begin(), models.end(), [&](const auto *one) {
               return one->vram_bytes == models.front()->vram_bytes;
           });
}

// Fills in from the table what nobody told.
void complete(card &one)
{
    const auto models = models_of(one);
    if (models.empty())
        return;
    const auto same_name =
        std::all_of(models.begin(), models.end(), [&](const auto *model) {
            return model->name == models.front()->name;
        });
    if (one.name.empty() && same_name)
        one.name = models.size() == 1 ? models.front()->full_name()
                                      : std::string(models.front()->name);
    if (one.vram_bytes == 0 && same_vram(models))
        one.vram_bytes = models.front()->vram_bytes;
}

std::string names_of(const model_list &models)
{
    std::string names;
    for (const auto *one : models)
        names += (names.empty() ? "" : ", ") + one->full_name();
    return names;
}

} // namespace

std::vector<card> find_cards(const environment &env, const nvml_state &nvml)
{
    std::vector<card> cards;
    for (const auto &entry : emuv::entries(env.sys / "bus/pci/devices"))
        if (attribute(entry.path() / "vendor") == "0x10de" &&
            attribute(entry.path() / "class").starts_with("0x03"))
            cards.push_back(read_card(entry.path(), env));
    const auto is_at = [](const std::string &address) {
        return [&address](const card &one) { return one.address == address; };
    };
    // A container may lack sysfs.
    for (const auto &entry : emuv::entries(driven_cards(env))) {
        const std::string address = entry.path().filename().string();
        if (std::none_of(cards.begin(), cards.end(), is_at(address)))
            cards.push_back(
                read_card(env.sys / "bus/pci/devices" / address, env));
    }
    for (const auto &told : nvml.cards) {
        auto found =
            std::find_if(cards.begin(), cards.end(), is_at(told.address));
        if (found == cards.end()) {
            // A container may show another bus.
            found = cards.insert(cards.end(), card());
            found->address = told.address;
        }
        if (!told.name.empty())
            found->name = told.name;
        found->vram_bytes = told.memory_bytes;
        if (found->pci_device_id == 0)
            found->pci_device_id = told.pci_device_id;
        if (told.minor >= 0)
            found->minor = told.minor;
    }
    for (auto &one : cards)
        complete(one);
    std::sort(cards.begin(), cards.end(), [](const card &a, const card &b) {
        return a.address < b.address;
    });
    return cards;
}

std::string uuid_of_card(const std::vector<card> &cards,
                         std::uint16_t pci_device_id)
{
    const card *found = nullptr;
    for (const auto &one : cards) {
        if (!one.driven ||
            (pci_device_id != 0 && one.pci_device_id != pci_device_id))
            continue;
        if (found != nullptr)
            return {};
        found = &one;
    }
    return found != nullptr ? found->uuid : std::string();
}

model_list models_of(const card &one)
{
    model_list by_id;
    for (const auto &model : emuv::gpu_models())
        if (one.pci_device_id != 0 &&
            std::find(model.pci_device_ids.begin(), model.pci_device_ids.end(),
                      one.pci_device_id) != model.pci_device_ids.end())
            by_id.push_back(&model);
    const model_list by_name =
        one.name.empty() ? model_list() : emuv::find_gpu_models(one.name);
    model_list both;
    for (const auto *model : by_id)
        if (std::find(by_name.begin(), by_name.end(), model) != by_name.end())
            both.push_back(model);
    model_list models = !both.empty()     ? both
                        : by_name.empty() ? by_id
                                          : by_name;
    if (one.vram_bytes != 0)
        std::erase_if(models, [&](const auto *model) {
            return !near(model->vram_bytes, one.vram_bytes);
        });
    return models;
}

card only_card(const environment &env)
{
    const auto cards = find_cards(env, env.nvml());
    if (cards.empty())
        throw failure("there is no NVIDIA card here whose model and VRAM could "
                      "be taken");
    std::set<std::string> kinds;
    for (const auto &one : cards)
        kinds.insert(
            fmt::format("{}, {}", one.name.empty() ? one.address : one.name,
                        one.vram_bytes == 0 ? "VRAM unknown"
                                            : say_size(one.vram_bytes, false)));
    if (kinds.size() > 1)
        throw failure(
            fmt::format("the cards here differ ({})",
                        printable(fmt::format("{}", fmt::join(kinds, "; ")))));
    card one = cards.front();
    if (one.name.empty())
        throw failure(fmt::format("the model of the card {} is unknown here",
                                  one.address));
    // The driver takes 63 printable characters.
    one.name = printable(one.name).substr(0, EMUV_MODEL_LEN - 1);
    return one;
}

std::uint64_t vram_of(const std::string &model, const environment &env)
{
    const auto models = emuv::find_gpu_models(model);
    if (same_vram(models))
        return models.front()->vram_bytes;
    // Left open: the card that is here settles it.
    std::set<std::uint64_t> here;
    for (const auto &one : find_cards(env, env.nvml()))
        if (const auto its = models_of(one);
            one.vram_bytes != 0 &&
            (one.name == model ||
             std::any_of(its.begin(), its.end(), [&](const auto *each) {
                 return std::find(models.begin(), models.end(), each) !=
                        models.end();
             })))
            here.insert(one.vram_bytes);
    if (here.size() == 1)
        return *here.begin();
    if (models.empty())
        throw std::invalid_argument(
            fmt::format("'{}' is not in the table of cards (see 'emuvctl gpu "
                        "list')",
                        printable(model)));
    throw std::invalid_argument(fmt::format(
        "'{}' may be any of {}", printable(model), names_of(models)));
}

void complete(emuv::profile &what, const environment &env)
{
    if (what.model_given && what.physical_given)
        return;
    const std::string place =
        fmt::format("[{}] at {}:{}", what.name, what.file, what.line);
    if (!what.model_given) {
        try {
            const card one = only_card(env);
            what.spec.gpu_model = one.name;
            if (!what.physical_given)
                what.spec.physical_bytes = one.vram_bytes;
        } catch (const failure &problem) {
            throw failure(fmt::format("{} has no gpu_model, and {}; write it "
                                      "there",
                                      place, problem.what()));
        }
    } else {
        try {
            what.spec.physical_bytes = vram_of(what.spec.gpu_model, env);
        } catch (const std::invalid_argument &problem) {
            throw failure(fmt::format("{} has no physical_vram_gb, and its "
                                      "gpu_model {}; write it there",
                                      place, problem.what()));
        }
    }
    if (!what.physical_given && what.spec.physical_bytes == 0)
        throw failure(fmt::format("{} has no physical_vram_gb, and the VRAM of "
                                  "the {} is unknown here; write it there",
                                  place, what.spec.gpu_model));
    what.model_given = true;
    what.physical_given = true;
    try {
        emuv::check_instance_sizes(what.spec.physical_bytes,
                                   what.spec.virtual_bytes);
    } catch (const std::invalid_argument &problem) {
        throw failure(place + ": " + problem.what());
    }
}

} // namespace emuvctl
