# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# shellcheck disable=SC2034 # used by the sourcing script
#
# Shared by the scripts beside this file, which Slurm runs on a node as root. Each of
# them may be killed at any moment. So a note says what is about to be made before
# it is made, and goes after it. To be sourced under `set -euo pipefail`.
#
# The notes are in /run/emuv/slurm/NODE:
#   JOB.note         the number and the sizes of the job's instance, and its start
#   JOB.environment  the variables of its tasks, for Slurm's plugin
#   JOB.figures      figures that Slurm has yet to be told
#   JOB.told         when they were first seen there

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
PATH=$PATH:/usr/local/bin:$(cd -- "$here/../../.." && pwd -P)/bin
export PATH LC_ALL=C

# An administrator may change these, in emuv.conf.
EMUV_SLURM_CONF=${EMUV_SLURM_CONF:-/etc/emuv/slurm.conf}
if [[ -f $EMUV_SLURM_CONF ]]; then
    # shellcheck source=/dev/null
    . "$EMUV_SLURM_CONF"
fi
PATH=${EMUV_SLURM_PATH:+$EMUV_SLURM_PATH:}$PATH
gpu_model=${EMUV_SLURM_GPU_MODEL:-}
vram=${EMUV_SLURM_VRAM:-}
read -r -a create_options <<<"${EMUV_SLURM_CREATE:-}"
first_id=${EMUV_SLURM_FIRST_ID:-512}
last_id=${EMUV_SLURM_LAST_ID:-1023}

emuvctl=${EMUVCTL:-emuvctl}
sys=${EMUV_SYSFS_ROOT:-/sys}/class/emuv
dev=${EMUV_DEV_ROOT:-/dev}
# From the job's variables, of the script that Slurm runs.
host=$(uname -n)
host=${host%%.*}
node=${SLURMD_NODENAME:-$host}
state=${EMUV_RUN_ROOT:-/run}/emuv/slurm
notes=$state/$node

say() { printf 'emuv: %s: %s\n' "${0##*/}" "$*" >&2; }

die() {
    say "$*"
    exit 1
}

# enter: make the folder of notes, and keep the node's other scripts out until this
# one has ended, and all that it has started.
enter() {
    umask 022
    mkdir -p -- "$notes"
    # Nobody else can open them: whoever can read a lock can hold it.
    umask 077
    exec 8>"$state/telling" 9>"$state/lock"
    umask 022
    chmod 0600 -- "$state/telling" "$state/lock"
    flock -w 300 9 || die "another script holds $state/lock for five minutes"
}

# write FILE: standard input becomes the file, all at once.
write() {
    cat >"$1.new"
    mv -f -- "$1.new" "$1"
}

# read_note FILE: set note_start, note_id, note_gib and note_uid; fails if there is
# no whole note.
read_note() {
    note_start='' note_id='' note_gib='' note_uid=''
    [[ -f $1 ]] || return 1
    read -r note_start note_id note_gib note_uid <"$1" && [[ $note_id =~ ^[0-9]+$ ]]
}

# --- instances

# uuid_of ID: of an instance; fails if there is none.
uuid_of() { cat -- "$sys/emuv$1/uuid" 2>/dev/null; }

# name_of ID: of an instance; nothing if it has none.
name_of() {
    local uuid file
    uuid=$(uuid_of "$1") || return 0
    file=$(grep -lxF -- "$uuid" "${state%/slurm}"/names/* 2>/dev/null | head -n 1) || :
    printf '%s\n' "${file##*/}"
}

# value FILE: of a file in sysfs, or 0.
value() { cat -- "$1" 2>/dev/null || echo 0; }

# ids_of_slurm: the instances whose numbers are Slurm's.
ids_of_slurm() {
    local entry id
    for entry in "$sys"/emuv[0-9]*; do
        id=${entry##*/emuv}
        if [[ $id =~ ^[0-9]+$ ]] && ((id >= first_id && id <= last_id)); then
            printf '%s\n' "$id"
        fi
    done
}

# destroy ID: take the instance from whoever uses it. True if there is none.
destroy() {
    [[ -d $sys/emuv$1 ]] || return 0
    "$emuvctl" destroy --force "$1" >/dev/null || [[ ! -d $sys/emuv$1 ]]
}

# noted_ids: the numbers that are in notes, of all nodes that this machine is.
noted_ids() {
    local file
    for file in "$state"/*/*.note; do
        if read_note "$file"; then
            printf '%s\n' "$note_id"
        fi
    done
}

# free_id: the lowest number of Slurm's that neither a note nor an instance has.
free_id() {
    local id
    local -A taken=()
    while read -r id; do
        taken[$id]=1
    done < <(noted_ids)
    for ((id = first_id; id <= last_id; id++)); do
        if [[ -z ${taken[$id]:-} && ! -d $sys/emuv$id ]]; then
            printf '%s\n' "$id"
            return
        fi
    done
    die "all instances from $first_id to $last_id are in use"
}

# --- Slurm

# An administrator's own defaults would hide jobs, or write times in other ways.
unset "${!SQUEUE_@}" SLURM_CLUSTERS SLURM_TIME_FORMAT

# Slurm's own commands, within a limit.
slurm() { timeout -k 5 60 "$@"; }

# field NAME LINE: what a line of scontrol has for NAME.
field() {
    local pattern="(^| )$1=([^ ]*)"
    [[ $2 =~ $pattern ]] && printf '%s\n' "${BASH_REMATCH[2]}"
}

# gib_in TEXT: how many of gres/emuv_vram a list of GRES has; 0 without any. Of
# several the least: Slurm counts one of them.
gib_in() {
    local pattern='^(gres[:/])?emuv_vram(:([0-9]{1,9})([KMGTkmgt]?))?(\(.*)?$' least='' count word words
    IFS=, read -r -a words <<<"$1"
    for word in "${words[@]}"; do
        [[ $word =~ $pattern ]] || continue
        count=$((10#${BASH_REMATCH[3]:-1}))
        case ${BASH_REMATCH[4]^^} in
        K) count=$((count << 10)) ;;
        M) count=$((count << 20)) ;;
        G | T) die "more emuv_vram than an instance can have: $1" ;;
        esac
        if [[ -z $least ]] || ((count < least)); then
            least=$count
        fi
    done
    printf '%s\n' "${least:-0}"
}

# about JOB: the GRES for each node and the start of a job, with a | between. Not by
# scontrol, whose line has the name that the user chose.
about() {
    local lines
    # For the first of an array all its tasks: squeue is heard to its end.
    lines=$(slurm squeue --all --noheader --states=all --jobs="$1" --format='%A|%b|%S') || return 1
    lines=$(grep -m 1 "^$1|" <<<"$lines") && printf '%s\n' "${lines#*|}"
}

# jobs_here: the jobs that Slurm has on this node; fails if it does not say.
jobs_here() {
    slurm squeue --all --noheader --nodelist="$node" --format=%A \
        --states=CONFIGURING,COMPLETING,RUNNING,RESIZING,SIGNALING,STAGE_OUT,STOPPED,SUSPENDED
}

# --- the end of a job

# keep_figures JOB ID: note what the instance has seen, in words that sacctmgr leaves
# as they are: it makes all letters small.
keep_figures() {
    [[ -d $sys/emuv$2 ]] || return 0
    # Those that were told are of the job's former life on this node.
    [[ ! -f $notes/$1.figures || -f $notes/$1.told ]] || return 0
    printf 'emuv[%s] peak_vram_mib=%d peak_spilled_mib=%d evicted_mib=%d fetched_mib=%d\n' "${node,,}" \
        $(($(value "$sys/emuv$2/physical_peak_bytes") >> 20)) \
        $(($(value "$sys/emuv$2/virtual_peak_bytes") >> 20)) \
        $(($(value "$sys/emuv$2/evicted_bytes") >> 20)) \
        $(($(value "$sys/emuv$2/fetched_bytes") >> 20)) | write "$notes/$1.figures"
    rm -f -- "$notes/$1.told"
}

# comment_of JOB: its number and its AdminComment in the database; nothing if it is
# not there. slurmctld changes nothing about a job that has ended.
comment_of() {
    slurm sacct --noheader --parsable2 --allocations --jobs="$1" --format=JobIDRaw,AdminComment
}

# tell_figures JOB: add them to the job's AdminComment, behind those of other nodes.
# They stay until they are seen there twice, or a day has passed. Another node that had
# read the comment before may write it without them. Its commands have a minute for
# that, so two minutes lie between. Without slurmdbd they go to the system's log. Fails
# if Slurm does not answer.
tell_figures() {
    local file=$notes/$1.figures told=$notes/$1.told line known
    [[ -f $file ]] || return 0
    # A prolog may take it away at any moment.
    line=$(cat -- "$file" 2>/dev/null) && [[ -n $line ]] || return 0
    known=$(slurm scontrol show config 2>/dev/null) || return 1
    if [[ $known != *accounting_storage/slurmdbd* ]]; then
        logger --tag emuv -- "job $1: $line" || :
        rm -f -- "$told" "$file"
        return
    fi
    # Once more each time that another node was faster.
    for _ in 1 2 3 4 5; do
        known=$(comment_of "$1" 2>/dev/null) || return 1
        if [[ $known == *"emuv[${node,,}] "* ]]; then
            if [[ ! -f $told ]]; then
                : >"$told"
            elif [[ -n $(find "$told" -mmin +2) ]]; then
                rm -f -- "$told" "$file"
            fi
            return
        fi
        rm -f -- "$told"
        [[ $known == "$1|"* ]] || break
        known=${known#*|}
        slurm sacctmgr --immediate --quiet modify job where "JobID=$1" \
            set "AdminComment=${known:+$known; }$line" >/dev/null 2>&1 || break
    done
    find "$file" -mmin +1440 -delete || :
}

# tell_all: of all jobs. The database may be slow, so others need not wait for it: the
# lock is given back first.
tell_all() {
    local file job
    exec 9>&-
    flock -w 20 8 || return 0
    for file in "$notes"/*.figures; do
        job=${file##*/}
        tell_figures "${job%.figures}" || break
    done
}

# end_job JOB: the instance goes, and then its notes. After a kill the next call does
# what remains.
end_job() {
    local file=$notes/$1.note
    if read_note "$file"; then
        keep_figures "$1" "$note_id"
        destroy "$note_id" || die "instance $note_id of job $1 cannot be destroyed"
    fi
    rm -f -- "$notes/$1.environment" "$file"
}

# sweep JOB: end what belongs to no job that this node has, that one apart; it may be
# empty. Nothing happens while Slurm does not say which jobs there are.
sweep() {
    local jobs file job id name
    local -A present=() noted=()
    rm -f -- "$notes"/*.new
    if ! compgen -G "$notes/*" >/dev/null && [[ -z $(ids_of_slurm) ]]; then
        return
    fi
    jobs=$(jobs_here) || {
        say "Slurm does not say which jobs $node has; nothing is swept"
        return 0
    }
    while read -r job; do
        present[${job:-none}]=1
    done <<<"$jobs"
    for file in "$notes"/*.note; do
        job=${file##*/}
        job=${job%.note}
        if [[ -f $file && $job != "$1" && -z ${present[$job]:-} ]]; then
            say "job $job is not on $node any more: its instance goes"
            end_job "$job"
        fi
    done
    # One whose maker was killed before the name was given, or its note lost.
    while read -r id; do
        noted[$id]=1
    done < <(noted_ids)
    for id in $(ids_of_slurm); do
        if [[ -n ${noted[$id]:-} ]]; then
            continue
        fi
        name=$(name_of "$id")
        if [[ -n $name && $name != slurm-* ]]; then
            say "instance $id is $name, and not Slurm's, though its number is"
        else
            say "instance $id is of no job: it goes"
            destroy "$id" || say "instance $id cannot be destroyed"
        fi
    done
}
