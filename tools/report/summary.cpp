// SPDX-License-Identifier: GPL-2.0-or-later
// A report's figures as JSON, and in sentences.
#include "report/page.hpp"
#include "report/words.hpp"

#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace emuv::report {

namespace {

using json = nlohmann::ordered_json;

/// Raised when a key changes its meaning or goes; new keys come without.
constexpr int schema = 1;

json whole(double bytes)
{
    return std::llround(bytes);
}

json whole(const std::optional<double> &bytes)
{
    return bytes ? whole(*bytes) : json();
}

// To the nanosecond: sums of such have more digits than they mean.
json seconds(double value)
{
    return std::round(value * 1e9) / 1e9;
}

json json_of(const run &of)
{
    const bool trace = of.from == source::trace;
    json out = {{"file", of.file},
                {"kind", trace ? "trace" : "tape"},
                {"whole", !of.cut && of.ended},
                {"seconds", seconds(of.seconds)},
                {"step_seconds", of.step ? seconds(*of.step) : json()},
                {"peak_vram_bytes", whole(of.peak_vram)},
                {"peak_ram_bytes", whole(of.peak_ram)},
                {"to_vram_bytes", whole(of.to_vram)},
                {"to_ram_bytes", whole(of.to_ram)},
                {"waited_seconds", seconds(of.waited)}};
    if (trace) {
        out["missed_bytes"] = whole(of.missed);
        out["unforeseen_bytes"] = whole(of.unforeseen);
        out["peak_cards_bytes"] = whole(of.peak_cards.value_or(0));
        out["from_cards_bytes"] = whole(of.from_cards);
        out["to_cards_bytes"] = whole(of.to_cards);
    }
    for (const auto &[key, value] : of.about)
        out["about"][key] = value;
    out["events"] = json::array();
    for (const sum &each : of.moved)
        out["events"].push_back({{"row", each.row},
                                 {"name", each.name},
                                 {"count", each.count},
                                 {"bytes", whole(each.bytes)},
                                 {"seconds", seconds(each.seconds)}});
    out["holders"] = json::array();
    for (const holder &each : of.holders) {
        json made = {{"what", each.what}, {"bytes", whole(each.bytes)}};
        if (trace) {
            made["to_vram_bytes"] = whole(each.to_vram);
            made["to_ram_bytes"] = whole(each.to_ram);
            made["moves"] = each.moves;
        } else {
            made["kind"] = each.kind;
            made["since_seconds"] = seconds(each.since);
        }
        out["holders"].push_back(std::move(made));
    }
    out["kernels"] = json::array();
    for (const kernel &each : of.kernels) {
        json made = {{"name", each.name}};
        if (trace) {
            made["why_not_trusted"] = each.why;
        } else {
            made["count"] = each.count;
            made["seconds"] = seconds(each.seconds);
        }
        out["kernels"].push_back(std::move(made));
    }
    out["notes"] = of.notes;
    return out;
}

json json_of(const score &of)
{
    const auto three = [](const std::optional<score::range> &is,
                          const char *unit) {
        if (!is)
            return json();
        return json{{fmt::format("low_{}", unit), is->low},
                    {fmt::format("likely_{}", unit), is->likely},
                    {fmt::format("high_{}", unit), is->high}};
    };
    json out = {{"model", of.model},
                {"job", of.job},
                {"gpu", of.gpu},
                {"peak", three(of.peak, "bytes")},
                {"spilled", three(of.spilled, "bytes")},
                {"pass", three(of.pass_ms, "ms")},
                {"token", three(of.token_ms, "ms")},
                {"came", nullptr}};
    if (of.came)
        out["came"] = {
            {"peak_vram_bytes", whole(of.came->peak_vram)},
            {"peak_ram_bytes", whole(of.came->peak_ram)},
            {"step_ms", of.came->step_ms ? json(*of.came->step_ms) : json()},
            {"processes", of.came->processes},
            {"ended", of.came->ended}};
    return out;
}

void tell_tape(const run &of, std::vector<std::string> &to)
{
    to.push_back(
        fmt::format("The program held {} of the card's memory at most.",
                    say_bytes(of.peak_vram.value_or(0))));
    if (of.peak_ram)
        to.push_back(fmt::format("It pinned {} of system RAM at most.",
                                 say_bytes(*of.peak_ram)));
    to.push_back(fmt::format("{} were copied to the card, {} back.",
                             say_bytes(of.to_vram), say_bytes(of.to_ram)));
    to.push_back(fmt::format("Of {}, the program waited {} for the card ({}).",
                             say_seconds(of.seconds), say_seconds(of.waited),
                             say_share(of.waited, of.seconds)));
    if (of.step)
        to.push_back(
            fmt::format("A step took {}: the median from mark to mark.",
                        say_seconds(*of.step)));
}

} // namespace

std::string_view meaning(std::string_view row, std::string_view name)
{
    struct known
    {
        std::string_view row;
        std::string_view name;
        std::string_view is;
    };
    static constexpr std::array<known, 26> all = {{
        {"to VRAM", "fetch", "came ahead of its use, with a copy"},
        {"to VRAM", "make place", "came without a copy: its bytes were freed"},
        {"to VRAM", "called off", "was needed where it was"},
        {"to RAM", "write back", "left, and had changed: with a copy"},
        {"to RAM", "drop", "left without a copy: RAM had its bytes"},
        {"to RAM", "rehouse", "left another card that others wait for"},
        {"to RAM", "called off", "was needed where it was"},
        {"waits", "launch", "a launch waited for memory; still missing then"},
        {"waits", "missed", "foreseen work found it in RAM, and read it there"},
        {"waits", "not expected", "unforeseen work found it in RAM"},
        {"waits", "hopeless", "a launch gave up: nothing more could come"},
        {"waits", "being mapped", "a launch waited for the end of a move"},
        {"waits", "mapped again", "was needed where it lay, unmapped"},
        {"waits", "ahead", "the program was held back: far ahead of the card"},
        {"waits", "settles", "untrusted work waited for moves to end"},
        {"waits", "drains", "untrusted work waited for its stream to end"},
        {"waits", "planned", "is to leave in a round"},
        {"waits", "moves from here", "moving is fastest, or measured"},
        {"waits", "stands still from here",
         "standing still is fastest, or measured"},
        {"waits", "is arranged from here",
         "one arrangement is fastest, or measured"},
        {"waits", "reaches further", "a kernel reads to its block's end"},
        {"calls", "map", "the driver mapped it elsewhere"},
        {"calls", "unmap", "the driver unmapped it"},
        {"calls", "make room", "system RAM was allocated for it"},
        {"copies", "to the card", "copies of the program's own"},
        {"copies", "to the host", "copies of the program's own"},
    }};
    for (const known &each : all)
        if (each.row == row && each.name == name)
            return each.is;
    return {};
}

std::vector<std::string> sentences(const run &of)
{
    std::vector<std::string> out;
    if (of.from == source::tape) {
        tell_tape(of, out);
        return out;
    }
    if (of.peak_vram)
        out.push_back(fmt::format(
            "At most {} lay in VRAM, and {} in system RAM.",
            say_bytes(*of.peak_vram), say_bytes(of.peak_ram.value_or(0))));
    if (of.peak_cards.value_or(0) > 0)
        out.push_back(fmt::format("At most {} lay in the VRAM of other cards.",
                                  say_bytes(*of.peak_cards)));
    const double in = of.to_vram - of.from_cards;
    const double back = of.to_ram - of.to_cards;
    out.push_back(
        fmt::format("{} came to VRAM over the link, and {} went back: {} of "
                    "traffic on average.",
                    say_bytes(in), say_bytes(back),
                    say_rate(of.seconds > 0 ? (in + back) / of.seconds : 0)));
    if (of.from_cards + of.to_cards > 0)
        out.push_back(fmt::format(
            "{} came from other cards, and {} went there: {} on average.",
            say_bytes(of.from_cards), say_bytes(of.to_cards),
            say_rate(of.seconds > 0 ? (of.from_cards + of.to_cards) / of.seconds
                                    : 0)));
    if (of.waited > 0)
        out.push_back(fmt::format(
            "Launches waited {} for memory, all threads together: {} of the "
            "time.",
            say_seconds(of.waited), say_share(of.waited, of.seconds)));
    else
        out.emplace_back("No launch waited for memory.");
    if (of.missed + of.unforeseen > 0)
        out.push_back(fmt::format(
            "Work found {} in system RAM, and read them over the "
            "link{}.",
            say_bytes(of.missed + of.unforeseen),
            of.unforeseen > 0 ? fmt::format("; {} of that were not foreseen",
                                            say_bytes(of.unforeseen))
                              : ""));
    if (!of.kernels.empty())
        out.push_back(fmt::format(
            "{} {} not trusted: nothing moves while {}.", of.kernels.size(),
            of.kernels.size() == 1 ? "kernel is" : "kernels are",
            of.kernels.size() == 1 ? "it runs" : "they run"));
    return out;
}

std::string score_json(const score &of)
{
    const json out = {{"schema", schema}, {"estimate", json_of(of)}};
    return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string summary_json(std::span<const run> runs,
                         const std::optional<score> &expected)
{
    json out = {{"schema", schema}, {"runs", json::array()}};
    for (const run &each : runs)
        out["runs"].push_back(json_of(each));
    out["estimate"] = expected ? json_of(*expected) : json();
    return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

} // namespace emuv::report
