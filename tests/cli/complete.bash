#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Completes each line of the standard input, and prints in one line what bash
# offers.
# Usage: complete.bash FILE-OF-COMPLETION
set -uo pipefail # a completion may fail, and so its last command
# shellcheck source=/dev/null
. "$1" || exit

while IFS= read -r line; do
    # As readline takes a line apart: at blanks, and a '=' is a word.
    read -ra COMP_WORDS <<<"${line//=/ = }"
    [[ $line != *' ' ]] || COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _emuvctl
    printf '%s\n' "${COMPREPLY[*]}"
done
