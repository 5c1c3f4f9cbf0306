// SPDX-License-Identifier: GPL-2.0-or-later
// Completion in zsh: a function for each verb, which _arguments reads.
#include "completion.hpp"
#include "completion_parts.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace emuvctl {

namespace {

constexpr std::string_view zsh_code = R"zsh(
_emuvctl_instances() {
    local -a names=(${(f)"$(emuvctl list --raw --noheadings -o name 2>/dev/null)"})
    compadd "$@" -a names
}

_emuvctl_profiles() {
    local -a names=(${(f)"$(emuvctl profile list --raw --noheadings -o profile 2>/dev/null)"})
    compadd "$@" -a names
}

_emuvctl_parameters() {
    local -a names=(${(f)"$(modinfo -F parm emuv 2>/dev/null | sed 's/:.*/=/')"})
    compadd "$@" -S '' -a names
}

# _emuvctl_list WORD...: the last of a list, after those that are there.
_emuvctl_list() {
    compset -P '*,'
    compadd -S '' -- "$@"
}

_emuvctl "$@"
)zsh";

// "text" within a specification of _arguments, where ':' and ']' end something.
std::string zsh_escaped(const std::string &text)
{
    std::string result;
    for (const char each : text) {
        if (each == ':' || each == '[' || each == ']' || each == '\\')
            result += '\\';
        result += each;
    }
    return result;
}

std::string zsh_words(std::span<const word> words)
{
    const bool explained =
        std::any_of(words.begin(), words.end(),
                    [](const word &each) { return !each.help.empty(); });
    if (!explained)
        return fmt::format("({})", fmt::join(texts_of(words), " "));
    std::string list;
    for (const auto &each : words)
        list += fmt::format("{}{}\\:\"{}\"", list.empty() ? "" : " ", each.text,
                            zsh_escaped(first_sentence(each.help)));
    return "((" + list + "))";
}

// The action that _arguments takes in the place of a value.
std::string zsh_action(offered what, std::span<const word> words,
                       const verb &of)
{
    switch (what) {
    case offered::nothing:
        return " ";
    case offered::words:
        return zsh_words(words);
    case offered::files:
        return "_files";
    case offered::folders:
        return "_files -/";
    case offered::instances:
        return "_emuvctl_instances";
    case offered::profiles:
        return "_emuvctl_profiles";
    case offered::columns:
        return fmt::format("{{_emuvctl_list {}}}",
                           fmt::join(column_ids(of.columns), " "));
    case offered::parameters:
        return "_emuvctl_parameters";
    case offered::command:
        return "_normal";
    }
    return " ";
}

// The specifications of an option, one for each of its names.
std::vector<std::string> zsh_option(const option &what, const verb &of)
{
    const auto names = names_of(what);
    std::vector<std::string> specs;
    for (const auto &name : names) {
        const bool is_long = name.starts_with("--");
        std::string spec = fmt::format("({})", fmt::join(names, " ")) + name;
        if (!is_flag(what))
            spec += !what.implied.empty() ? "=-" : is_long ? "=" : "+";
        spec += "[" + zsh_escaped(first_sentence(what.help)) + "]";
        if (!is_flag(what))
            spec +=
                (what.implied.empty() ? ":" : "::") +
                zsh_escaped(what.type.empty() ? name.substr(2) : what.type) +
                ":" + zsh_action(what.offers, what.words, of);
        specs.push_back(single_quoted(spec));
    }
    return specs;
}

std::string zsh_function(const std::string &path)
{
    return "_emuvctl" + (path.empty() ? "" : "_at_" + replaced(path, ' ', "_"));
}

// A function that completes what stands behind the words of a path.
std::string zsh_place(const place &at)
{
    std::vector<std::string> specs = {
        "'(- : *)'{-h,--help}'[print this help]'"};
    if (at.what == nullptr)
        specs.emplace_back("'(- : *)'{-V,--version}'[print the version]'");
    else
        for (const auto &each : at.what->options)
            for (auto &spec : zsh_option(each, *at.what))
                specs.push_back(std::move(spec));
    std::string text = "\n" + zsh_function(at.path) + "() {\n";
    if (!at.verbs.empty()) {
        text += "    local curcontext=$curcontext state line\n"
                "    local -A opt_args\n"
                "    local -a verbs=(\n";
        for (const auto &each : at.verbs)
            text += "        " + single_quoted(each.name + ":" + each.summary) +
                    "\n";
        text += "    )\n";
        specs.emplace_back("'1: :->verb'");
        specs.emplace_back("'*:: :->rest'");
    } else if (at.what != nullptr && at.what->arguments) {
        const auto &behind = *at.what->arguments;
        // A program's own command line starts anew.
        specs.push_back(
            single_quoted((behind.offers == offered::command ? "*:::" : "*:") +
                          zsh_escaped(behind.type) + ":" +
                          zsh_action(behind.offers, {}, *at.what)));
    }
    text += fmt::format("    _arguments -C -s -S : \\\n        {}\n",
                        fmt::join(specs, " \\\n        "));
    if (!at.verbs.empty())
        text += "    case $state in\n"
                "    (verb) _describe verb verbs ;;\n"
                "    (rest)\n"
                "        case $words[1] in\n";
    for (const auto &each : at.verbs)
        text += fmt::format("        ({}) {} ;;\n", each.name,
                            zsh_function(at.path.empty()
                                             ? each.name
                                             : at.path + " " + each.name));
    if (!at.verbs.empty())
        text += "        esac ;;\n"
                "    esac\n";
    return text + "}\n";
}

} // namespace

std::string zsh_completion(std::span<const verb> verbs)
{
    std::string text = "#compdef emuvctl\n" + completion_head("zsh");
    for (const auto &at : places_of(verbs))
        text += zsh_place(at);
    return text + std::string(zsh_code);
}

} // namespace emuvctl
