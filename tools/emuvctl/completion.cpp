// SPDX-License-Identifier: GPL-2.0-or-later
// Completion in bash, zsh and fish. A file is a table, made from the verbs, and
// a fixed part that reads it.
#include "completion.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace emuvctl {

namespace {

constexpr std::string_view head =
    "# SPDX-License-Identifier: GPL-2.0-or-later\n"
    "# Completion of emuvctl's command line. Made by 'emuvctl __complete "
    "{}'.\n";

// What each command line begins with, and what may follow.
struct place
{
    std::string path; // "profile show"; empty for emuvctl alone
    std::span<const verb> verbs;
    const verb *what = nullptr; // null for emuvctl alone
};

std::vector<verb> shown(std::span<const verb> verbs)
{
    std::vector<verb> result;
    std::copy_if(verbs.begin(), verbs.end(), std::back_inserter(result),
                 [](const verb &each) { return !each.group.empty(); });
    return result;
}

void add_places(std::vector<place> &to, const std::string &path,
                std::span<const verb> verbs)
{
    for (const auto &each : verbs) {
        const std::string below = path + (path.empty() ? "" : " ") + each.name;
        to.push_back({below, each.verbs, &each});
        add_places(to, below, each.verbs);
    }
}

std::vector<place> places_of(std::span<const verb> verbs)
{
    std::vector<place> places = {{"", verbs}};
    add_places(places, "", verbs);
    return places;
}

// The first sentence of a help text, in one line.
std::string first_sentence(std::string text)
{
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text.substr(0, text.find(". "));
}

// "-o,--output" as "-o" and "--output".
std::vector<std::string> names_of(const option &what)
{
    const auto comma = what.names.find(',');
    if (comma == std::string::npos)
        return {what.names};
    return {what.names.substr(0, comma), what.names.substr(comma + 1)};
}

bool is_flag(const option &what)
{
    return std::holds_alternative<bool *>(what.value);
}

std::vector<std::string_view> column_ids(std::span<const column> columns)
{
    std::vector<std::string_view> ids;
    for (const auto &each : columns)
        ids.push_back(each.id);
    return ids;
}

std::vector<std::string> texts_of(std::span<const word> words)
{
    std::vector<std::string> texts;
    for (const auto &each : words)
        texts.push_back(each.text);
    return texts;
}

std::string replaced(std::string text, char what, std::string_view by)
{
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos;
         at += by.size())
        text.replace(at, 1, by);
    return text;
}

// In single quotes, for bash and zsh.
std::string quoted(const std::string &text)
{
    return "'" + replaced(text, '\'', "'\\''") + "'";
}

std::string fish_quoted(const std::string &text)
{
    return "'" + replaced(replaced(text, '\\', "\\\\"), '\'', "\\'") + "'";
}

// The name of what is offered, as the fixed parts know it.
std::string_view kind_of(offered what)
{
    switch (what) {
    case offered::nothing:
        return "nothing";
    case offered::words:
        return "words";
    case offered::files:
        return "files";
    case offered::folders:
        return "folders";
    case offered::instances:
        return "instances";
    case offered::profiles:
        return "profiles";
    case offered::columns:
        return "columns";
    case offered::parameters:
        return "parameters";
    case offered::command:
        return "command";
    }
    return "";
}

// What is offered in the place of a value, with the words that belong to it.
std::string offer(offered what, std::span<const word> words, const verb &of)
{
    std::string text(kind_of(what));
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
            text +=
                fmt::format("    {}) echo {} ;;\n", quoted(key), quoted(value));
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

// What _arguments is to do in the place of a value.
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
        specs.push_back(quoted(spec));
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
        specs.emplace_back("'(- : *)--version[print the version]'");
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
            text += "        " + quoted(each.name + ":" + each.summary) + "\n";
        text += "    )\n";
        specs.emplace_back("'1: :->verb'");
        specs.emplace_back("'*:: :->rest'");
    } else if (at.what != nullptr && at.what->arguments) {
        const auto &behind = *at.what->arguments;
        // A program's own command line starts anew.
        specs.push_back(
            quoted((behind.offers == offered::command ? "*:::" : "*:") +
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

// What `complete` is told of the value of an option, or of an argument.
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
        return fmt::format(" -a '(__emuvctl_{})'", kind_of(what));
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
        text += start + " -l version -d 'print the version'\n";
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

std::string bash_completion(std::span<const verb> all)
{
    const auto verbs = shown(all);
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
                         ? std::string(kind_of(at.what->arguments->offers))
                         : "nothing");
    }
    return fmt::format(head, "bash") + "# shellcheck shell=bash\n" +
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

std::string zsh_completion(std::span<const verb> all)
{
    const auto verbs = shown(all);
    std::string text = "#compdef emuvctl\n" + fmt::format(head, "zsh");
    for (const auto &at : places_of(verbs))
        text += zsh_place(at);
    return text + std::string(zsh_code);
}

std::string fish_completion(std::span<const verb> all)
{
    const auto verbs = shown(all);
    std::string text = fmt::format(head, "fish") +
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
