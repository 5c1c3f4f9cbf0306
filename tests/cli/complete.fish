#!/usr/bin/env fish
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Completes each line of the standard input, and prints in one line what fish
# offers.
# Usage: complete.fish FILE-OF-COMPLETION
source $argv[1]; or exit
while read -l line
    # The text behind a tabulator explains the word before it.
    echo (complete -C $line | string replace -r '\t.*' '')
end
exit 0 # a completion may fail
