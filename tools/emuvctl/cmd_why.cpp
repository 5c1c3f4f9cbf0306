// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl why: where the time of a running program goes.
#include "base/summary.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "statistics_file.hpp"
#include "verbs.hpp"

#include <emuv/profile.hpp>

#include <algorithm>
#include <climits>
#include <cmath>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace emuvctl {

namespace cuda = emuv::cuda;

namespace {

struct why_options
{
    std::vector<std::string> pids;
    output_options output;
};

constexpr std::size_t columns = 79;

// A device that the process has used.
struct device_summary
{
    std::size_t number;
    cuda::summary all;
};

std::vector<device_summary> summaries(const process_statistics &of)
{
    std::vector<device_summary> made;
    for (std::size_t i = 0; i < of.devices.size(); i++) {
        auto all = cuda::summarize(of.devices[i], of.memory);
        if (all.charged.any() || all.steps_ever > 0)
            made.push_back({i, std::move(all)});
    }
    return made;
}

std::string text_of(const process_statistics &of)
{
    std::string text = fmt::format("{} {}\n", printable(of.command), of.pid);
    for (const auto &each : of.vain)
        text += "  " + wrap("! " + printable(each), 4, columns) + "\n";
    const auto devices = summaries(of);
    if (devices.empty())
        text += "  it holds no memory of a card\n";
    for (const auto &each : devices) {
        if (of.devices.size() > 1)
            text += fmt::format("  device {}:\n", each.number);
        for (const auto &line : cuda::describe(each.all, of.memory))
            text += printable(line) + "\n";
        if (!each.all.advice.empty())
            text +=
                "  " + wrap("advice: " + each.all.advice, 10, columns) + "\n";
    }
    return text;
}

using json = nlohmann::ordered_json;

// Whole nanoseconds and bytes: more would be false.
json whole(double value)
{
    return static_cast<std::uint64_t>(std::clamp(std::round(value), 0.0, 9e15));
}

json part_of(double share)
{
    return share < 0 ? json(nullptr) : json(std::round(share * 1000) / 1000);
}

std::string_view name_of(cuda::treatment is)
{
    static constexpr std::string_view names[] = {"resident", "still", "moving",
                                                 "arranged", "ended"};
    return names[static_cast<std::size_t>(is)];
}

std::string_view name_of(cuda::mobility memory)
{
    static constexpr std::string_view names[] = {
        "possible", "unasked", "off", "pages", "impossible", "checked"};
    return names[static_cast<std::size_t>(memory)];
}

json step_json(const cuda::summary &of)
{
    if (of.steps == 0)
        return nullptr;
    return {{"measured", of.steps},
            {"round_launches", of.round == 0 ? json(nullptr) : json(of.round)},
            {"launches", whole(of.launches)},
            {"took_ns", whole(of.took_ns)},
            {"slowest_ns", whole(of.slowest_ns)},
            {"computing_ns", whole(of.computing_ns)},
            {"link_ns", whole(of.link_ns)},
            {"mapping_ns", whole(of.mapping_ns)},
            {"standing_ns", whole(of.standing_ns)},
            {"program_ns", whole(of.program_ns)},
            {"untrusted_ns", whole(of.untrusted_ns)},
            {"fetched_bytes", whole(of.fetched_bytes)},
            {"evicted_bytes", whole(of.evicted_bytes)},
            {"from_cards_bytes", whole(of.from_cards_bytes)},
            {"to_cards_bytes", whole(of.to_cards_bytes)},
            {"in_place_bytes", whole(of.missed_bytes)},
            {"used_bytes", whole(of.used_bytes)},
            {"link_share_to_vram", part_of(of.link_share(of.link_to_vram()))},
            {"link_share_to_ram", part_of(of.link_share(of.link_to_ram()))},
            {"limit_ns", of.limit_ns > 0 ? whole(of.limit_ns) : json(nullptr)}};
}

// The places of its memory, from the fastest on.
json tiers_json(const cuda::summary &of)
{
    json tiers = json::array();
    tiers.push_back({{"tier", "vram"},
                     {"bytes", of.charged.vram},
                     {"most_bytes", of.charged.most_vram},
                     {"limit_bytes", of.share_bytes},
                     {"lends_bytes", of.charged.lends}});
    for (const auto &each : of.beyond)
        tiers.push_back(
            {{"tier", each.card == cuda::summary::tier::file ? "file"
                      : each.card < 0 ? std::string("ram")
                                      : fmt::format("peer:{}", each.card)},
             {"bytes", each.charged_bytes},
             {"most_bytes", each.most_bytes},
             {"limit_bytes", each.limit_bytes},
             {"fetched_bytes", each.moved.fetched_bytes},
             {"evicted_bytes", each.moved.evicted_bytes}});
    return tiers;
}

json device_json(const device_summary &what)
{
    const cuda::summary &of = what.all;
    json allocations = json::array();
    for (const auto &each : of.allocations)
        allocations.push_back({{"address", fmt::format("{:#x}", each.address)},
                               {"bytes", each.bytes},
                               {"ram_bytes", each.ram_bytes},
                               {"fetched_bytes", each.fetched_bytes},
                               {"evicted_bytes", each.evicted_bytes}});
    json kernels = json::array();
    for (const auto &each : of.kernels)
        kernels.push_back(
            {{"name",
              each.name.empty() ? json(nullptr) : json(printable(each.name))},
             {"reason",
              each.why.empty() ? json(nullptr) : json(printable(each.why))},
             {"launches", std::round(each.launches * 10) / 10},
             {"busy_ns", whole(each.busy_ns)},
             {"waited_ns", whole(each.waited_ns)}});
    return {{"device", what.number},
            {"state", name_of(of.is)},
            {"stopped",
             of.stopped.empty() ? json(nullptr) : json(printable(of.stopped))},
            {"vram_bytes", of.charged.vram},
            {"ram_bytes", of.charged.ram},
            {"most_vram_bytes", of.charged.most_vram},
            {"most_ram_bytes", of.charged.most_ram},
            {"tiers", tiers_json(of)},
            {"share_bytes", of.share_bytes},
            {"virtual_bytes", of.virtual_bytes},
            {"card_bytes", of.card_bytes},
            {"in_ram_bytes", of.in_ram_bytes},
            {"on_cards_bytes", of.on_cards_bytes},
            {"in_file_bytes", of.in_file_bytes},
            {"packed",
             {{"raw_bytes", of.packed.raw_bytes},
              {"coded_bytes", of.packed.coded_bytes},
              {"refused_bytes", of.packed.refused_bytes},
              {"fetched_bytes", of.packed.fetched_bytes},
              {"saved_bytes", of.packed.saved_bytes}}},
            {"link_bytes_per_second",
             of.link_rate == 0 ? json(nullptr) : json(of.link_rate)},
            {"steps", of.steps_ever},
            {"step", step_json(of)},
            {"crossing", std::move(allocations)},
            {"untrusted", std::move(kernels)},
            {"advice", of.advice.empty() ? json(nullptr) : json(of.advice)}};
}

std::string json_of(const std::vector<process_statistics> &all)
{
    json processes = json::array();
    for (const auto &each : all) {
        json vain = json::array();
        for (const auto &one : each.vain)
            vain.push_back(printable(one));
        json devices = json::array();
        for (const auto &one : summaries(each))
            devices.push_back(device_json(one));
        processes.push_back({{"pid", each.pid},
                             {"comm", printable(each.command)},
                             {"moves", each.memory == cuda::mobility::moves},
                             {"movement", name_of(each.memory)},
                             {"without_effect", std::move(vain)},
                             {"devices", std::move(devices)}});
    }
    const json whole_text = {{"schema", 1},
                             {"processes", std::move(processes)}};
    return whole_text.dump(2, ' ', false, json::error_handler_t::replace) +
           "\n";
}

void cmd_why(const why_options &options, environment &env)
{
    std::vector<int> pids;
    for (const auto &each : options.pids)
        pids.push_back(parse_option("PID", [&] {
            return static_cast<int>(emuv::parse_integer(each, 1, INT_MAX));
        }));
    std::vector<process_statistics> all;
    for (const int pid : pids)
        for (auto &each : statistics_of(pid, env))
            all.push_back(std::move(each));
    if (pids.empty()) {
        all = all_statistics(env);
        if (all.empty() && !options.output.json)
            throw failure("no process whose files this user may read runs "
                          "under emuV's CUDA library");
    }
    if (options.output.json) {
        env.out.write(json_of(all));
        return;
    }
    std::string text;
    for (const auto &each : all)
        text += (text.empty() ? "" : "\n") + text_of(each);
    env.out.write(text);
}

} // namespace

verb why_verb()
{
    const auto options = std::make_shared<why_options>();
    verb why{"why", "Instances", "tell where a program's time goes",
             "Tells of programs under the CUDA library where their time goes, "
             "step by step:\ncomputing, waiting for the link or for mappings, "
             "standing still. Tells what\ncrosses the link, and what would "
             "help, if the figures allow to say so. Without\na PID of all that "
             "this user may look at; of a shell, of what it started.\n"
             "  emuvctl why $(pidof python)"};
    why.arguments = {"PID", &options->pids};
    why.options = {json_flag(options->output)};
    why.action = [options](environment &env) { cmd_why(*options, env); };
    return why;
}

} // namespace emuvctl
