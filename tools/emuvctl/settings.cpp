// SPDX-License-Identifier: GPL-2.0-or-later
// The CUDA library's settings, as options of emuvctl run.
#include "settings.hpp"

#include "base/tiers.hpp"
#include "failure.hpp"
#include "verb.hpp"

#include <emuv/size.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/emuv.h>

namespace emuvctl {

namespace {

#define EMUV_KIND_INSTANCES setting_kind::instances
#define EMUV_KIND_SIZE setting_kind::size
#define EMUV_KIND_TIERS setting_kind::tiers
#define EMUV_KIND_LEDGER setting_kind::ledger
#define EMUV_KIND_CHOICE setting_kind::choice
#define EMUV_KIND_SWITCH setting_kind::toggle
#define EMUV_KIND_FLAG setting_kind::flag
#define EMUV_KIND_NAMES setting_kind::names
#define EMUV_KIND_OUTPUT setting_kind::output
#define EMUV_KIND_LIBRARY setting_kind::library

std::vector<setting> read_definitions()
{
    return {
#define EMUV_VALUE(name, word, help, text) {word, help},
#define EMUV_SETTING(kind, member, variable, option, type, needs, help,        \
                     values, text)                                             \
    {EMUV_KIND_##kind, variable, option, type, needs, help, {values}},
#include "base/settings.def"
    };
}

// Of the setting that holds where nobody says otherwise.
constexpr std::string_view moves_variable = "EMUV_MOVE";

// The word that turns a switch off, in its option. The variable has 0.
constexpr std::string_view off_word = "off";

// The words that its option takes. A switch's first one is what the option
// alone means, and its last one turns it off.
std::vector<setting_value> words_of(const setting &what)
{
    auto words = what.values;
    if (what.kind == setting_kind::toggle) {
        std::rotate(words.begin(), words.begin() + 1, words.end());
        words.back().word = off_word;
    }
    return words;
}

// Of a switch, --help says what each word does behind a sign.
std::string help_of_switch(const setting &what)
{
    const auto words = words_of(what);
    std::string text;
    for (const auto &each : std::span(words).subspan(1))
        text += fmt::format(". {}={}: {}", what.option, each.word, each.help);
    return text;
}

// "all (default), all there is; some, what is left" or "all (default) or some".
std::string help_of_values(const setting &what)
{
    const auto words = words_of(what);
    const bool explained =
        std::any_of(words.begin(), words.end(),
                    [](const auto &each) { return !each.help.empty(); });
    std::string text;
    for (const auto &each : words) {
        const bool last = &each == &words.back();
        if (text.empty())
            text = fmt::format(": {} (default)", each.word);
        else if (explained)
            text += fmt::format("; {}", each.word);
        else
            text += fmt::format("{}{}", last ? " or " : ", ", each.word);
        if (explained)
            text += fmt::format(", {}", each.help);
    }
    return text;
}

std::string more_help(const setting &what)
{
    switch (what.kind) {
    case setting_kind::toggle:
        return help_of_switch(what);
    case setting_kind::names:
        return help_of_values(what) +
               "; or file and kernel names, comma-separated, -NAME: not that "
               "one";
    default:
        return help_of_values(what);
    }
}

offered offered_for(const setting &what)
{
    switch (what.kind) {
    case setting_kind::instances:
        return offered::instances;
    case setting_kind::size:
    case setting_kind::tiers:
    case setting_kind::flag:
        return offered::nothing;
    case setting_kind::choice:
    case setting_kind::toggle:
    case setting_kind::names:
        return offered::words;
    case setting_kind::ledger:
    case setting_kind::output:
    case setting_kind::library:
        return offered::files;
    }
    return offered::nothing;
}

// A size as the library is to be told it.
std::string bytes_of(const asked_setting &asked)
{
    const char *const option = asked.what->option;
    const std::uint64_t bytes =
        parse_option(option, [&] { return emuv::parse_size(asked.text); });
    if (bytes > EMUV_MAX_BYTES)
        throw usage_error(fmt::format("{}: {} is more than {}", option,
                                      asked.text,
                                      emuv::format_size_exact(EMUV_MAX_BYTES)));
    return std::to_string(bytes);
}

// Tiers as the library will read them.
std::string tiers_of(const asked_setting &asked)
{
    if (asked.text == "none")
        return asked.text;
    emuv::cuda::places all;
    if (const char *const why =
            emuv::cuda::places_reader::read(asked.text, all);
        why != nullptr)
        throw usage_error(
            fmt::format("{}: '{}' {}", asked.what->option, asked.text, why));
    return asked.text;
}

// The program may go elsewhere before the library opens it.
std::string whole_path(const std::string &path)
{
    return std::filesystem::absolute(path).lexically_normal().string();
}

// A library that is named must be there: the program would only be told that
// there is no driver.
std::string named_library(const asked_setting &asked)
{
    if (!std::filesystem::is_regular_file(asked.text))
        throw failure(fmt::format("{}: {}: no such file", asked.what->option,
                                  asked.text));
    return whole_path(asked.text);
}

std::string value_of(const asked_setting &asked)
{
    switch (asked.what->kind) {
    case setting_kind::flag:
        return "1";
    case setting_kind::size:
        return bytes_of(asked);
    case setting_kind::tiers:
        return tiers_of(asked);
    case setting_kind::ledger:
    case setting_kind::output:
        return whole_path(asked.text);
    case setting_kind::library:
        return named_library(asked);
    case setting_kind::toggle:
        return asked.text == off_word ? "0" : asked.text;
    case setting_kind::instances:
    case setting_kind::choice:
    case setting_kind::names:
        return asked.text;
    }
    return asked.text;
}

void check_words(const asked_setting &asked)
{
    const auto allowed = words_of(*asked.what);
    if (std::any_of(allowed.begin(), allowed.end(),
                    [&](const auto &each) { return each.word == asked.text; }))
        return;
    std::string list;
    for (const auto &each : allowed)
        list += fmt::format("{}{}", list.empty() ? "" : ", ", each.word);
    throw usage_error(fmt::format("{}: '{}' is none of {}", asked.what->option,
                                  asked.text, list));
}

// A name of nothing between two commas would be taken for one that is meant.
void check_names(const asked_setting &asked)
{
    const std::string &list = asked.text;
    if (list.front() == ',' || list.back() == ',' ||
        list.find(",,") != std::string::npos)
        throw usage_error(fmt::format("{}: '{}' has an empty name in it",
                                      asked.what->option, list));
}

} // namespace

std::span<const setting> settings()
{
    static const std::vector<setting> all = read_definitions();
    return all;
}

const setting &setting_of(std::string_view variable)
{
    const auto all = settings();
    return *std::find_if(all.begin(), all.end(), [&](const setting &each) {
        return each.variable == variable;
    });
}

std::string setting::of_caller() const
{
    const char *const value = std::getenv(variable);
    return value == nullptr ? "" : value;
}

std::string setting::default_variable() const
{
    return std::string(variable) + "_DEFAULT";
}

std::string setting::default_of_caller() const
{
    const char *const value = std::getenv(default_variable().c_str());
    return !has_default() || value == nullptr ? "" : value;
}

std::vector<std::string> variables_beside_limits()
{
    std::vector<std::string> all;
    for (const auto &each : settings()) {
        if (!each.goes_with_limits())
            continue;
        all.emplace_back(each.variable);
        if (each.has_default())
            all.push_back(each.default_variable());
    }
    return all;
}

asked_settings::asked_settings()
{
    for (const auto &each : settings())
        all_.push_back({&each});
}

std::vector<option> asked_settings::options()
{
    std::vector<option> made;
    for (auto &each : all_) {
        const setting &what = *each.what;
        option one{what.option, what.type, what.help, &each.text};
        if (what.kind == setting_kind::flag)
            one.value = &each.flag;
        one.joins = what.kind == setting_kind::tiers;
        one.offers = offered_for(what);
        one.more_help = more_help(what);
        for (const auto &value : words_of(what))
            one.words.push_back(
                {std::string(value.word), std::string(value.help)});
        if (what.kind == setting_kind::toggle) {
            one.implied = one.words.front().text;
            one.words.erase(one.words.begin());
        }
        if (*what.needs != '\0' && what.needs != moves_variable)
            one.needs = {setting_of(what.needs).option};
        if (what.kind == setting_kind::instances)
            for (const auto &other : settings())
                if (other.limits() && &other != &what)
                    one.excludes.emplace_back(other.option);
        made.push_back(std::move(one));
    }
    return made;
}

const asked_setting &asked_settings::of(std::string_view variable) const
{
    return *std::find_if(all_.begin(), all_.end(), [&](const auto &each) {
        return each.what->variable == variable;
    });
}

std::string asked_settings::value(std::string_view variable) const
{
    const auto &asked = of(variable);
    if (asked.given())
        return value_of(asked);
    std::string text = asked.what->of_caller();
    if (text.empty() && variable == moves_variable && may_move()) {
        text = asked.what->default_of_caller();
        return text.empty() ? "1" : text;
    }
    return text;
}

bool asked_settings::may_move() const
{
    return value("EMUV_STORE") != "pages" && !of("EMUV_RECORD").given() &&
           !holds("EMUV_DISABLE");
}

bool asked_settings::holds(std::string_view variable) const
{
    const std::string text = value(variable);
    return !text.empty() && text != "0";
}

void asked_settings::check() const
{
    for (const auto &each : all_) {
        if (!each.given())
            continue;
        if (each.what->kind == setting_kind::choice ||
            each.what->kind == setting_kind::toggle)
            check_words(each);
        else if (each.what->kind == setting_kind::names)
            check_names(each);
    }
    if (!holds(moves_variable))
        for (const auto &each : all_)
            if (each.given() && each.what->needs == moves_variable)
                throw usage_error(
                    fmt::format("{} does nothing where no memory moves",
                                each.what->option));
    if (value("EMUV_STORE") != "pages")
        return;
    const char *const why =
        of("EMUV_STORE").given() ? "" : ", and EMUV_STORE asks for them";
    if (holds(moves_variable))
        throw usage_error(fmt::format(
            "{} needs the numa store: pages do not move{}",
            of(moves_variable).given() ? "--move" : "EMUV_MOVE", why));
    if (of("EMUV_TIER").given() && of("EMUV_TIER").text != "none")
        throw usage_error(fmt::format(
            "--tier needs the numa store: pages are system RAM{}", why));
}

std::vector<std::pair<std::string, std::string>>
asked_settings::variables() const
{
    std::vector<std::pair<std::string, std::string>> set;
    for (const auto &each : all_) {
        const setting &what = *each.what;
        if (each.given() && what.kind != setting_kind::instances)
            set.emplace_back(what.variable, value_of(each));
        else if (what.variable == moves_variable && what.of_caller().empty() &&
                 may_move())
            set.emplace_back(what.default_variable(), value(what.variable));
    }
    return set;
}

} // namespace emuvctl
