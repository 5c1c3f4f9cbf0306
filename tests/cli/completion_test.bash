#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Completion in bash: what it offers must be what emuvctl takes.
# Usage: completion_test.bash FOLDER-OF-EMUVCTL
set -uo pipefail # a completion may fail, and so its last command
cd -- "$(dirname -- "${BASH_SOURCE[0]}")" || exit
export PATH=$1:$PATH LC_ALL=C EMUV_SYSFS_ROOT=machine/sys EMUV_CONFIG=profiles.conf
# shellcheck source=packaging/completion/emuvctl.bash
. ../../packaging/completion/emuvctl.bash

failed=0
# offers EXPECTED WORD...: the last word is completed.
offers() {
    local expected=$1
    shift
    COMP_WORDS=(emuvctl "$@")
    COMP_CWORD=$#
    COMPREPLY=()
    _emuvctl
    if [[ ${COMPREPLY[*]} != "$expected" ]]; then
        printf 'emuvctl %s\n  offers    %s\n  should be %s\n' "$*" "${COMPREPLY[*]}" "$expected"
        failed=1
    fi
}

offers 'load unload create destroy list info stats run profile apply export assert gpu doctor' ''
offers 'apply assert' a
offers 'list show' profile ''
offers 'list' gpu l
offers 'emuv0 emuv1 emuv10' destroy ''
offers 'emuv1 emuv10' stats emuv0 emuv1
offers 'vGPU-Profile-1 first lab' profile show ''
offers 'vGPU-Profile-1' create --profile v
offers '--profile --physical --pci-device-id' create --p
offers '--json' list --js
offers 'name,total_bytes' list -o name,tot
offers 'fetched_bytes fetched_per_s' stats --query = fetch
offers 'csv csv,noheader csv,nounits csv,noheader,nounits' list --query = name --format = c
offers 'profiles.conf' apply --config profiles
offers '' create --virtual ''
offers '--trust --trace' run --tr
offers 'none' run --move --trust = n
offers 'profiles.conf' run --ledger prof
offers 'always check' run --move =
offers 'always' run --move = a
offers 'mapped unmapped' run --move --away ''
# The program's own words.
offers '' run --instance 0 -- python -
offers 'profiles.conf' run --instance 0 -- python prof
offers 'emuvctl' run -- emuvct
exit "$failed"
