// SPDX-License-Identifier: GPL-2.0-or-later
// An estimate beside what came.
#include "report/score.hpp"

#include "report/run.hpp"
#include "report/words.hpp"

#include <cerrno>
#include <cmath>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <json_text.hpp>

namespace emuv::report {

namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t most_text = std::size_t{1} << 20;
constexpr double most = 1e18;

// A number of a JSON object; nullopt if it is not there, or impossible.
std::optional<double> number(const nlohmann::json &of, const std::string &key)
{
    const auto found = of.find(key);
    if (found == of.end() || !found->is_number())
        return {};
    const double value = found->get<double>();
    return value >= 0 && value <= most ? std::optional(value) : std::nullopt;
}

std::string text(const nlohmann::json &of, const char *key)
{
    const auto found = of.find(key);
    return found != of.end() && found->is_string()
               ? clean(found->get<std::string>(), 100)
               : std::string();
}

// Three members whose names differ in one word.
std::optional<score::range> three(const nlohmann::json &of,
                                  const std::string &before,
                                  const std::string &likely,
                                  const std::string &behind)
{
    const auto a = number(of, before + "low_" + behind);
    const auto b = number(of, likely);
    const auto c = number(of, before + "high_" + behind);
    if (!a || !b || !c)
        return {};
    return score::range{*a, *b, *c};
}

std::optional<came> came_of(const nlohmann::json &of)
{
    const auto found = of.find("came");
    if (found == of.end() || !found->is_object())
        return {};
    const auto vram = number(*found, "peak_vram_bytes");
    const auto ram = number(*found, "peak_ram_bytes");
    if (!vram || !ram)
        return {};
    came out{.peak_vram = *vram,
             .peak_ram = *ram,
             .step_ms = number(*found, "step_ms"),
             .processes = 0,
             .ended = text(*found, "ended")};
    out.processes = static_cast<unsigned>(
        std::min(number(*found, "processes").value_or(0), 1e6));
    return out;
}

nlohmann::json parse(const std::string &name, std::string_view content)
{
    if (content.size() > most_text)
        throw unreadable(name + ": no estimate: it is larger than 1 MiB");
    try {
        return estimate::parse_json(name, content);
    } catch (const estimate::unreadable &problem) {
        throw unreadable(problem.what());
    }
}

std::string read_text(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    std::string content(most_text + 1, '\0');
    if (!file)
        throw std::system_error(errno, std::generic_category(), clean(path));
    file.read(content.data(), static_cast<std::streamsize>(content.size()));
    content.resize(static_cast<std::size_t>(file.gcount()));
    if (file.bad())
        throw unreadable(clean(path) + ": cannot be read");
    return content;
}

// "within, 5 % above likely"
std::string verdict(const score::range &expected, double is)
{
    const char *const place = is < expected.low    ? "below"
                              : is > expected.high ? "above"
                                                   : "within";
    if (expected.likely <= 0)
        return place;
    const double off = 100 * (is / expected.likely - 1);
    if (std::abs(off) < 0.5)
        return fmt::format("{}, as likely", place);
    return fmt::format("{}, {:.0f} % {} likely", place,
                       std::min(std::abs(off), 9999.0),
                       off > 0 ? "over" : "under");
}

} // namespace

score read_score(const std::string &name, std::string_view content)
{
    const std::string called = clean(name);
    const nlohmann::json of = parse(called, content);
    score out;
    const auto parts = of.find("estimate");
    std::optional<score::range> peak;
    if (parts != of.end() && parts->is_array())
        for (const auto &each : *parts)
            if (each.is_object() && text(each, "part") == "peak")
                peak = three(each, "", "likely_bytes", "bytes");
    if (!peak)
        throw unreadable(called + ": no estimate: it has no peak. 'emuvctl "
                                  "estimate MODEL --save' makes one");
    out.peak = *peak;
    out.model = text(of, "model");
    out.job = text(of, "mode");
    if (const auto batch = number(of, "batch"))
        out.job += fmt::format(", batch {:.0f}", *batch);
    if (const auto tokens = number(of, "sample_tokens"); tokens && *tokens > 0)
        out.job += fmt::format(", {:.0f} tokens", *tokens);
    out.gpu = text(of, "gpu");
    out.spilled = three(of, "spilled_", "spilled_bytes", "bytes");
    out.pass_ms = three(of, "pass_", "pass_ms", "ms");
    out.token_ms = three(of, "token_", "token_ms", "ms");
    out.came = came_of(of);
    return out;
}

score read_score_file(const std::string &path)
{
    return read_score(path, read_text(path));
}

std::string with_came(const std::string &name, std::string_view content,
                      const came &what)
{
    parse(clean(name), content); // within its limits
    json of = json::parse(content, nullptr, false);
    of["came"] = {{"peak_vram_bytes", std::llround(what.peak_vram)},
                  {"peak_ram_bytes", std::llround(what.peak_ram)},
                  {"step_ms", what.step_ms ? json(*what.step_ms) : json()},
                  {"processes", what.processes},
                  {"ended", what.ended}};
    return of.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

bool same_estimate(std::string_view one, std::string_view other)
{
    try {
        auto first = parse("", one);
        auto second = parse("", other);
        if (!first.is_object() || !second.is_object())
            return one == other;
        first.erase("came");
        second.erase("came");
        return first == second;
    } catch (const unreadable &) {
        return one == other;
    }
}

std::vector<score_line> lines_of(const score &of)
{
    std::vector<score_line> out;
    const auto add = [&](const char *what,
                         const std::optional<score::range> &expected,
                         std::optional<double> is, auto &&say) {
        if (!expected && !is)
            return;
        score_line made{what, "-", "-", "-", "not known", ""};
        if (expected) {
            made.low = say(expected->low);
            made.likely = say(expected->likely);
            made.high = say(expected->high);
        }
        if (is)
            made.came = say(*is);
        if (expected && is)
            made.verdict = verdict(*expected, *is);
        out.push_back(std::move(made));
    };
    const auto ms = [](double value) { return say_seconds(value / 1e3); };
    const bool known = of.came.has_value();
    const auto is = of.came.value_or(came());
    add("memory in all", of.peak,
        known ? std::optional(is.peak_vram + is.peak_ram) : std::nullopt,
        say_bytes);
    add("in RAM of that", of.spilled,
        known ? std::optional(is.peak_ram) : std::nullopt, say_bytes);
    // A rhythm of text that is written is a token's.
    const bool writes = of.token_ms.has_value();
    add(writes ? "a token" : "a step", writes ? of.token_ms : of.pass_ms,
        is.step_ms, ms);
    return out;
}

} // namespace emuv::report
