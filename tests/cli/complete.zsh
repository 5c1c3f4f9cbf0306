#!/usr/bin/zsh -f
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Completes each line of the standard input in an interactive zsh, and prints
# in one line what it offers.
# Usage: complete.zsh FILE-OF-COMPLETION
zmodload zsh/zpty || exit
typeset work=$(mktemp -d)
trap 'rm -rf -- $work' EXIT
cat >$work/.zshrc <<END
PS1= RPS1= PS2=
# A list that is shown may ask first, and take the next key for the answer.
setopt no_auto_list
LISTMAX=10000
stty -echo
fpath=(${(q)1:A:h} \$fpath)
autoload -Uz compinit && compinit -D
# Keeps the words that would be shown.
compadd() {
    if [[ \${@[1,(i)(-|--)]} == *-[OAD]* ]]; then
        builtin compadd "\$@"
        return
    fi
    local -a these
    builtin compadd -O these "\$@"
    offers+=("\${(@)these/#/\$IPREFIX}")
    builtin compadd "\$@"
}
zle -C capture complete-word _main_complete
answer() {
    typeset -ga offers=()
    zle capture
    print -r -- "\$offers" >$work/offers
    BUFFER=
    print -r -- '<done>' >/dev/tty
}
zle -N answer
bindkey '^I' answer
# A key that comes before the editor reads would be lost.
zle-line-init() {
    zle -D zle-line-init
    print -r -- '<done>' >/dev/tty
}
zle -N zle-line-init
END
export ZDOTDIR=$work
zpty shell zsh -i

# Reads line by line, until the shell has said that it is done.
typeset line said
wait_for_shell() {
    said=
    while [[ $said != *'<done>'* ]]; do
        zpty -r shell said || exit
    done
}
wait_for_shell
while IFS= read -r line; do
    zpty -w -n shell "$line"$'\t'
    wait_for_shell
    cat -- $work/offers
done
