# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Completion of emuvctl's command line in bash. Verbs, options and columns are
# those that emuvctl's own help names, so that the two cannot differ.

# _emuvctl_help WORD...: what `emuvctl WORD... --help` says.
_emuvctl_help() { emuvctl "$@" --help 2>/dev/null; }

# _emuvctl_verbs [WORD]: the verbs there, or below another verb.
_emuvctl_verbs() {
    # They are the lines of two columns outside the options.
    _emuvctl_help "$@" | awk '/^[A-Z][a-z]*:$/ { part = $1 }
        /^  [a-z]/ && part != "" && part != "Options:" { print $1 }'
}

_emuvctl_options() {
    _emuvctl_help "$@" | grep -oE '^  (-[a-z],)?--[a-z-]+' | grep -oE -- '--[a-z-]+'
}

_emuvctl_columns() {
    _emuvctl_help "$@" | awk '/^Columns/ { on = 1; next } on && /^  [A-Z]/ { print $2 }'
}

# What an option may be, where that is one of a few words.
_emuvctl_values() {
    case $1 in
    --report) echo 'total physical free' ;;
    --store) echo 'auto numa pages' ;;
    --charge) echo 'all allocations' ;;
    --away) echo 'mapped unmapped' ;;
    --trust) echo 'known all none' ;;
    --move) echo 'always check' ;;
    --format) echo 'csv csv,noheader csv,nounits csv,noheader,nounits' ;;
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
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            compopt -o filenames 2>/dev/null
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
    if [[ $cur == '=' ]]; then
        cur=''
    elif [[ $prev == '=' ]] && ((cword > 1)); then
        prev=${words[cword - 2]}
    fi
    # A flag that may have a value has it behind the sign, and nowhere else.
    if [[ $prev == --move && ${words[cword - 1]} != '=' && ${words[cword]} != '=' ]]; then
        prev=''
    fi

    local verb=() word
    for word in "${words[@]:1:cword-1}"; do
        case $word in
        -*) [[ ${#verb[@]} -gt 0 ]] && break ;;
        profile | gpu) verb=("$word") ;;
        list | show) verb+=("$word") && break ;;
        load | unload | create | destroy | info | stats | run | apply | export | assert | doctor)
            verb=("$word") && break
            ;;
        *) break ;;
        esac
    done

    if [[ ${verb[*]} == run ]] && _emuvctl_command; then
        return
    fi

    case $prev in
    --config | --module | --ledger | --trace | --libcuda | --libnvml)
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        compopt -o filenames 2>/dev/null
        return
        ;;
    --profile)
        mapfile -t COMPREPLY < <(compgen -W \
            "$(emuvctl profile list --raw --noheadings -o profile 2>/dev/null)" -- "$cur")
        return
        ;;
    -o | --output | --query)
        # The last of a list, after those that are there.
        local before=''
        [[ $cur != *,* ]] || before=${cur%,*},
        mapfile -t COMPREPLY < <(compgen -P "$before" -W "$(_emuvctl_columns "${verb[@]}")" -- "${cur##*,}")
        compopt -o nospace 2>/dev/null
        return
        ;;
    --instance)
        mapfile -t COMPREPLY < <(compgen -W "$(emuvctl list --raw --noheadings -o name 2>/dev/null)" -- "$cur")
        return
        ;;
    --report | --store | --charge | --away | --trust | --move | --format)
        mapfile -t COMPREPLY < <(compgen -W "$(_emuvctl_values "$prev")" -- "$cur")
        return
        ;;
    --library)
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        compopt -o filenames 2>/dev/null
        return
        ;;
    --gpu-model | --physical | --virtual | --id | --count | --numa-node | --pci-device-id | -i | --interval | -c)
        return
        ;;
    esac

    local choices=''
    if [[ $cur == -* ]]; then
        choices=$(_emuvctl_options "${verb[@]}")
    else
        case ${verb[*]} in
        '' | profile | gpu) choices=$(_emuvctl_verbs "${verb[@]}") ;;
        list | info | stats | destroy | export)
            choices=$(emuvctl list --raw --noheadings -o name 2>/dev/null)
            ;;
        'profile show') choices=$(emuvctl profile list --raw --noheadings -o profile 2>/dev/null) ;;
        load) choices=$(modinfo -F parm emuv 2>/dev/null | sed 's/:.*/=/') ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$cur")
    [[ ${verb[*]} != load ]] || compopt -o nospace 2>/dev/null
}

complete -F _emuvctl emuvctl
