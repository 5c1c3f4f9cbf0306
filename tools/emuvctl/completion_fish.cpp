// SPDX-License-Identifier: GPL-2.0-or-later
// Completion in fish: a line for each option of each verb.
#include "completion.hpp"
#include "completion_parts.hpp"

#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace emuvctl {

namespace {

std::string fish_quoted(const std::string &text)
{
    return "'" + replaced(replaced(text, '\\', "\\\\"), '\'', "\\'") + "'";
}

constexpr std::string_view fish_code = R"fish(
# The verbs that the command line has so far, in one line.
function __emuvctl_path
    set -l path
    for word in (commandline -opc)[2..-1]
        if contains -- $word (__emuvctl_verbs "$path")
            set path (string trim -- "$path $word")
        else if not string match -q -- '-*' $word; or test -n "$path"
            break
        end
    end
    echo $path
end

# __emuvctl_at VERBS: whether it has these, and no "--" behind them.
function __emuvctl_at
    test (__emuvctl_path) = "$argv[1]"; and not contains -- -- (commandline -opc)
end

function __emuvctl_at_command
    contains -- (__emuvctl_path) $argv; and contains -- -- (commandline -opc)
end

# Behind "--" it is the program's command line that is completed.
function __emuvctl_command
    set -l words (commandline -opc)
    set -l sign (contains -i -- -- $words)
    set -e words[1..$sign]
    complete -C (string join ' ' -- (string escape -- $words) (commandline -ct))
end

function __emuvctl_instances
    emuvctl list --raw --noheadings -o name 2>/dev/null
end

function __emuvctl_profiles
    emuvctl profile list --raw --noheadings -o profile 2>/dev/null
end

function __emuvctl_parameters
    modinfo -F parm emuv 2>/dev/null | string replace -r ':.*' '='
end

# __emuvctl_list WORD...: the last of a list, after those that are there.
function __emuvctl_list
    set -l before (commandline -ct | string replace -r '^--[a-z-]+=' '' | string match -r '.*,')
    for word in $argv
        echo -- "$before$word"
    end
end

complete -c emuvctl -f
)fish";

std::string fish_words(std::span<const word> words)
{
    std::string list;
    for (const auto &each : words) {
        list += (list.empty() ? "" : " ") + each.text;
        if (!each.help.empty())
            list += "\\t" + fish_quoted(first_sentence(each.help));
    }
    return list;
}

// The arguments of `complete` for the value of an option, or for an argument.
std::string fish_offer(offered what, std::span<const word> words,
                       const verb &of)
{
    switch (what) {
    case offered::nothing:
        return "";
    case offered::words:
        return " -a " + fish_quoted(fish_words(words));
    case offered::files:
        return " -F";
    case offered::folders:
        return " -a '(__fish_complete_directories)'";
    case offered::columns:
        return fmt::format(" -a '(__emuvctl_list {})'",
                           fmt::join(column_ids(of.columns), " "));
    default:
        return fmt::format(" -a '(__emuvctl_{})'", name_of(what));
    }
}

std::string fish_option(const option &what, const verb &of)
{
    std::string text;
    for (const auto &name : names_of(what))
        text += name.starts_with("--") ? " -l " + name.substr(2)
                                       : " -s " + name.substr(1);
    if (!is_flag(what)) {
        if (what.implied.empty())
            text += what.offers == offered::files ? " -r" : " -x";
        text += fish_offer(what.offers, what.words, of);
    }
    return text + " -d " + fish_quoted(first_sentence(what.help));
}

std::string fish_place(const place &at)
{
    const std::string start =
        fmt::format("complete -c emuvctl -n '__emuvctl_at \"{}\"'", at.path);
    std::string text = "\n" + start + " -s h -l help -d 'print this help'\n";
    if (at.what == nullptr)
        text += start + " -s V -l version -d 'print the version'\n";
    for (const auto &each : at.verbs)
        text += fmt::format("{} -a {} -d {}\n", start, each.name,
                            fish_quoted(each.summary));
    if (at.what == nullptr)
        return text;
    for (const auto &each : at.what->options)
        text += start + fish_option(each, *at.what) + "\n";
    if (!at.what->arguments || at.what->arguments->offers == offered::nothing)
        return text;
    if (at.what->arguments->offers == offered::command)
        return text + fmt::format("complete -c emuvctl -n "
                                  "'__emuvctl_at_command \"{}\"' -a "
                                  "'(__emuvctl_command)'\n",
                                  at.path);
    return text + start + fish_offer(at.what->arguments->offers, {}, *at.what) +
           "\n";
}

} // namespace

std::string fish_completion(std::span<const verb> verbs)
{
    std::string text = completion_head("fish") +
                       "\n# __emuvctl_verbs VERBS: the verbs below them.\n"
                       "function __emuvctl_verbs\n"
                       "    switch \"$argv[1]\"\n";
    for (const auto &at : places_of(verbs)) {
        if (at.verbs.empty())
            continue;
        text += fmt::format("        case {}\n            printf '%s\\n'",
                            fish_quoted(at.path));
        for (const auto &each : at.verbs)
            text += " " + each.name;
        text += "\n";
    }
    text += "    end\nend\n";
    text += fish_code;
    for (const auto &at : places_of(verbs))
        text += fish_place(at);
    return text;
}

} // namespace emuvctl
