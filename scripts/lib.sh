# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# What the scripts beside this file share: messages, the cache, and the guest
# kernels. To be sourced by bash under `set -euo pipefail`.

# The top of the source tree, without a trailing slash.
# shellcheck disable=SC2034 # for whoever sources this
EMUV_ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)

# The kernels that the module is built for and tested on, as Debian numbers
# its series.
# shellcheck disable=SC2034 # for whoever sources this
EMUV_KERNELS=(6.1 6.12)

# The name that messages start with.
EMUV_SELF=${0##*/}

say() { printf '%s: %s\n' "$EMUV_SELF" "$*" >&2; }

# die MESSAGE: end the script with status 1.
die() {
    say "$*"
    exit 1
}

# usage_error MESSAGE: end the script with status 2.
usage_error() {
    say "$*"
    say "see '$EMUV_SELF --help'"
    exit 2
}

have() { command -v "$1" >/dev/null 2>&1; }

# need COMMAND PACKAGE: end the script unless COMMAND can be run.
need() { have "$1" || die "$1 is missing: run scripts/setup, or install the package $2"; }

is_root() { [[ $(id -u) -eq 0 ]]; }

# The directory for what is downloaded or built once a machine, created if
# need be.
cache_dir() {
    local dir=${EMUV_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/emuv}
    mkdir -p -- "$dir"
    (cd -- "$dir" && pwd -P)
}

# installed PACKAGE: whether dpkg has it, fully unpacked and configured.
installed() {
    [[ $(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null) == ?i* ]]
}

# available_release SERIES: the newest generic kernel release of a series (as
# 6.1) that apt knows of; nothing if it knows none.
available_release() {
    local name
    { apt-cache pkgnames "linux-image-$1." || true; } |
        sed -nE 's/^linux-image-([0-9].*-amd64)$/\1/p' |
        { grep -Ev -- '-(cloud|rt)-amd64$' || true; } | sort -rV |
        while read -r name; do
            if apt-cache show "linux-image-$name" >/dev/null 2>&1; then
                printf '%s\n' "$name"
                cat >/dev/null
            fi
        done
}

# kernel_release VERSION: the release that a series (6.1) or a release stands
# for on this machine. Kernel and headers have to be a pair: a series stands for
# the kernel in the cache, else for the newest installed headers, else for the
# newest release that apt knows.
kernel_release() {
    local cache dir
    if [[ ! $1 =~ ^[0-9]+\.[0-9]+$ ]]; then
        printf '%s\n' "$1"
        return
    fi
    cache=$(cache_dir)
    if [[ -L $cache/kernels/$1 ]]; then
        readlink -- "$cache/kernels/$1"
        return
    fi
    for dir in /usr/src/linux-headers-"$1".*-amd64; do
        if [[ -d $dir && $dir != *-cloud-amd64 && $dir != *-rt-amd64 ]]; then
            printf '%s\n' "${dir#/usr/src/linux-headers-}"
        fi
    done | sort -rV | { read -r dir && printf '%s\n' "$dir" && cat >/dev/null; } ||
        available_release "$1"
}

# extract_vmlinux BZIMAGE OUT: take the uncompressed kernel out of a bzImage.
# Booting that spares an emulated processor seconds of decompression.
extract_vmlinux() {
    local image=$1 out=$2 setup_sects offset length packed=$2.packed unpack
    # The boot protocol (Documentation/x86/boot.rst) gives the places.
    setup_sects=$(od -An -tu1 -j $((0x1f1)) -N1 -- "$image")
    offset=$(od -An -tu4 -j $((0x248)) -N4 -- "$image")
    length=$(od -An -tu4 -j $((0x24c)) -N4 -- "$image")
    offset=$(((setup_sects + 1) * 512 + offset))
    # The last four bytes are the size of what is packed.
    tail -c +$((offset + 1)) -- "$image" | head -c $((length - 4)) >"$packed" || true
    case $(od -An -tx1 -N4 -- "$packed") in
    " fd 37 7a 58") unpack=(xz -dc) ;;
    " 28 b5 2f fd") unpack=(zstd -qdc) ;;
    " 1f 8b "*) unpack=(gzip -dc) ;;
    *)
        rm -f -- "$packed"
        return 1
        ;;
    esac
    "${unpack[@]}" <"$packed" >"$out"
    rm -f -- "$packed"
    # Only a kernel with the PVH entry (an ELF note of Xen's, type 18) can be
    # started from its ELF file.
    LC_ALL=C readelf -n -- "$out" 2>/dev/null | grep -E 'Xen .*0x0*12\b' >/dev/null || {
        rm -f -- "$out"
        return 1
    }
}

# unpack_kernel RELEASE DIR: download a Debian kernel and make DIR of it, whole
# or not at all. For fetch_kernel, in a subshell of its own.
unpack_kernel() {
    local release=$1 tmp
    say "fetching Debian's kernel $release"
    # What an earlier download left when it was killed; the caller has the lock.
    rm -rf -- "${2%/*}"/.new.*
    tmp=$(mktemp -d -- "${2%/*}/.new.XXXXXX") || exit 1
    # shellcheck disable=SC2064 # this very directory
    trap "rm -rf -- ${tmp@Q}" EXIT
    mkdir -- "$tmp/root" || exit 1
    cd -- "$tmp" || exit 1
    # The download needs no sandbox, whose user cannot write here.
    apt-get -qq -o APT::Sandbox::User=root download "linux-image-$release" >&2 ||
        die "apt-get cannot download linux-image-$release"
    dpkg-deb --fsys-tarfile linux-image-*.deb | tar -x -C root ./boot ./lib ||
        die "cannot unpack linux-image-$release"
    mv -- "root/boot/vmlinuz-$release" root/vmlinuz || exit 1
    rm -r -- root/boot
    extract_vmlinux root/vmlinuz root/vmlinux || true
    PATH=$PATH:/sbin:/usr/sbin depmod -b "$tmp/root" "$release" ||
        die "cannot index the modules of $release (is kmod installed?)"
    chmod 755 root
    mv -T -- root "$2" || exit 1
}

# fetch_kernel VERSION [RELEASE]: see to it that a Debian kernel is in the
# cache, and print its directory. It holds vmlinuz, lib/modules/RELEASE and,
# where the kernel can be started that way, vmlinux. Nothing is installed. With
# RELEASE, that is what the series VERSION stands for from now on.
fetch_kernel() {
    local version=$1 release=${2:-} cache dir
    cache=$(cache_dir)
    mkdir -p -- "$cache/kernels"
    [[ -n $release ]] || release=$(kernel_release "$version")
    [[ -n $release ]] || die "apt knows no kernel $version (as root: apt-get update)"
    dir=$cache/kernels/$release
    if [[ ! -d $dir ]]; then
        (
            # One of several that start at once does the work.
            flock 9
            [[ -d $dir ]] || unpack_kernel "$release" "$dir"
        ) 9>"$cache/kernels/.lock" || return 1
    fi
    if [[ $version != "$release" && $(readlink -- "$cache/kernels/$version") != "$release" ]]; then
        ln -sfnT -- "$release" "$cache/kernels/$version"
    fi
    printf '%s\n' "$dir"
}

# build_tools: configure and build what is not the kernel module, in
# build/default, with a line for every tenth of the way.
build_tools() {
    local log=$EMUV_ROOT/build/default.log
    mkdir -p -- "$EMUV_ROOT/build"
    need cmake cmake
    need ninja ninja-build
    (
        cd -- "$EMUV_ROOT"
        cmake --preset default >"$log" 2>&1 && cmake --build --preset default 2>&1 | tee -a -- "$log"
    ) | awk '
        match($0, /^\[[0-9]+\/[0-9]+\] /) {
            split(substr($0, 2, RLENGTH - 3), of, "/")
            tenth = int(10 * of[1] / of[2])
            if (tenth != last)
                printf "built %d of %d\n", of[1], of[2]
            last = tenth
            fflush()
        }' >&2 || {
        tail -n 100 -- "$log" >&2
        die "cannot build; all of it is in $log"
    }
}
