// SPDX-License-Identifier: GPL-2.0-or-later
// Completion in bash: tables, made from the verbs, and a fixed part that reads
// them.
#include "completion.hpp"
#include "completion_parts.hpp"

#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace emuvctl {

namespace {

// The offer in the place of a value, with the words that belong to it.
std::string offer(offered what, std::span<const word> words, const verb &of)
{
    std::string text(name_of(what));
    if (what == offered::words)
        text += fmt::format(" {}", fmt::join(texts_of(words), " "));
    else if (what == offered::columns)
        text += fmt::format(" {}", fmt::join(column_ids(of.columns), " "));
    return text;
}

// A function of bash that prints, by its arguments, one line of a table.
std::string
bash_table(const char *comment, const char *name,
           const std::vector<std::pair<std::string, std::string>> &table)
{
    std::string text =
        fmt::format("\n# {}\n{}() {{\n    case $* in\n", comment, name);
    for (const auto &[key, value] : table)
        if (!value.empty())
            text += fmt::format("    {}) echo {} ;;\n", single_quoted(key),
                                single_quoted(value));
    return text + "    esac\n}\n";
}

constexpr std::string_view bash_code = R"bash(
# _emuvctl_offer KIND [WORD...]: offer that in the place of $cur.
_emuvctl_offer() {
    local kind=$1
    shift
    case $kind in
    words) mapfile -t COMPREPLY < <(compgen -W "$*" -- "$cur") ;;
    files)
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        compopt -o filenames 2>/dev/null
        ;;
    folders)
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        compopt -o filenames 2>/dev/null
        ;;
    instances)
        _emuvctl_offer words "$(emuvctl list --raw --noheadings -o name 2>/dev/null)"
        ;;
    profiles)
        _emuvctl_offer words "$(emuvctl profile list --raw --noheadings -o profile 2>/dev/null)"
        ;;
    columns)
        # The last of a list, after those that are there.
        local before=''
        [[ $cur != *,* ]] || before=${cur%,*},
        mapfile -t COMPREPLY < <(compgen -P "$before" -W "$*" -- "${cur##*,}")
        compopt -o nospace 2>/dev/null
        ;;
    parameters)
        _emuvctl_offer words "$(modinfo -F parm emuv 2>/dev/null | sed 's/:.*/=/')"
        compopt -o nospace 2>/dev/null
        ;;
    esac
}

# Behind "--" it is the program's command line that is completed.
_emuvctl_command() {
    local at
    for ((at = 2; at < COMP_CWORD; at++)); do
        [[ ${COMP_WORDS[at]} == -- ]] || continue
        if declare -F _command_offset >/dev/null; then
            _command_offset $((at + 1))
        elif ((at + 1 == COMP_CWORD)); then
            mapfile -t COMPREPLY < <(compgen -c -- "$cur")
        else
            _emuvctl_offer files
        fi
        return 0
    done
    return 1
}

_emuvctl() {
    local cur prev words cword
    COMPREPLY=()
    # --option=value comes apart at the sign; take it as two words.
    _get_comp_words_by_ref -n : cur prev words cword 2>/dev/null || {
        cur=${COMP_WORDS[COMP_CWORD]}
        prev=${COMP_WORDS[COMP_CWORD - 1]}
        words=("${COMP_WORDS[@]}")
        cword=$COMP_CWORD
    }
    local sign=''
    if [[ $cur == '=' ]]; then
        cur='' sign=1
    elif [[ $prev == '=' ]] && ((cword > 1)); then
        prev=${words[cword - 2]} sign=1
    fi

    local verb=() word
    for word in "${words[@]:1:cword-1}"; do
        if [[ " $(_emuvctl_verbs "${verb[@]}") " == *" $word "* ]]; then
            verb+=("$word")
        elif [[ $word != -* || ${#verb[@]} -gt 0 ]]; then
            break
        fi
    done

    local arguments value
    arguments=$(_emuvctl_arguments "${verb[@]}")
    if [[ $arguments == command ]] && _emuvctl_command; then
        return
    fi
    value=$(_emuvctl_value "${verb[@]}" "$prev")
    # A value that may be left out stands behind the sign, and nowhere else.
    if [[ $value == optional* ]]; then
        value=${sign:+${value#optional }}
    fi
    if [[ -n $value ]]; then
        # shellcheck disable=SC2086 # a kind, and words
        _emuvctl_offer $value
    elif [[ $cur == -* ]]; then
        _emuvctl_offer words "$(_emuvctl_options "${verb[@]}")"
    elif [[ -n $(_emuvctl_verbs "${verb[@]}") ]]; then
        _emuvctl_offer words "$(_emuvctl_verbs "${verb[@]}")"
    else
        _emuvctl_offer "$arguments"
    fi
}

complete -F _emuvctl emuvctl
)bash";

} // namespace

std::string bash_completion(std::span<const verb> verbs)
{
    using table = std::vector<std::pair<std::string, std::string>>;
    table below;
    table options;
    table values;
    table arguments;
    for (const auto &at : places_of(verbs)) {
        std::vector<std::string> names;
        for (const auto &each : at.verbs)
            names.push_back(each.name);
        below.emplace_back(at.path, fmt::format("{}", fmt::join(names, " ")));
        names = {"--help"};
        if (at.what == nullptr) {
            names.emplace_back("--version");
            options.emplace_back(at.path,
                                 fmt::format("{}", fmt::join(names, " ")));
            continue;
        }
        for (const auto &each : at.what->options) {
            names.push_back(each.long_name());
            if (is_flag(each))
                continue;
            for (const auto &name : names_of(each))
                values.emplace_back(
                    at.path + " " + name,
                    (each.implied.empty() ? "" : "optional ") +
                        offer(each.offers, each.words, *at.what));
        }
        options.emplace_back(at.path, fmt::format("{}", fmt::join(names, " ")));
        arguments.emplace_back(
            at.path, at.what->arguments
                         ? std::string(name_of(at.what->arguments->offers))
                         : "nothing");
    }
    return completion_head("bash") + "# shellcheck shell=bash\n" +
           bash_table("_emuvctl_verbs [VERB...]: the verbs below it.",
                      "_emuvctl_verbs", below) +
           bash_table("_emuvctl_options [VERB...]: its options.",
                      "_emuvctl_options", options) +
           bash_table("_emuvctl_value VERB... OPTION: what the option's value "
                      "is, and words.",
                      "_emuvctl_value", values) +
           bash_table("_emuvctl_arguments VERB...: what stands behind the "
                      "options.",
                      "_emuvctl_arguments", arguments) +
           std::string(bash_code);
}

} // namespace emuvctl
