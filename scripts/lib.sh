# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Shared by the scripts beside this file: messages, the cache, and the guest
# kernels. To be sourced by bash under `set -euo pipefail`.

# The top of the source tree, without a trailing slash.
# shellcheck disable=SC2034 # used by the sourcing script
EMUV_ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)

# The kernels that the module is built for and tested on, as Debian numbers
# its series.
# shellcheck disable=SC2034 # used by the sourcing script
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

# The directory for files that are downloaded or built once a machine, created
# if need be.
cache_dir() {
    local dir=${EMUV_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/emuv}
    mkdir -p -- "$dir"
    (cd -- "$dir" && pwd -P)
}

# installed PACKAGE: true if dpkg has it, fully unpacked and configured.
installed() {
    [[ $(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null) == ?i* ]]
}

# apt_of SUITE...: print the configuration of an apt of its own, which knows these
# suites of Debian's. The machine's is left alone.
apt_of() {
    local dir uri
    dir=$(cache_dir)/apt/$1
    if [[ ! -f $dir/apt.conf ]]; then
        # shellcheck disable=SC2016 # for apt to expand
        uri=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Identifier: Packages' |
            grep -E '/debian/?$' | sort -u | head -n 1) || true
        [[ -n $uri ]] || die "apt knows no archive of Debian's"
        mkdir -p -- "$dir/lists/partial" "$dir/cache/archives/partial"
        printf "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri %s main\n" \
            "$@" >"$dir/sources.list"
        {
            printf 'Dir::Etc::sourcelist "%s";\n' "$dir/sources.list"
            printf 'Dir::Etc::sourceparts "-";\n'
            printf 'Dir::State::lists "%s";\n' "$dir/lists"
            printf 'Dir::State::status "/dev/null";\n'
            printf 'Dir::Cache "%s";\n' "$dir/cache"
            printf 'APT::Sandbox::User "root";\n'
        } >"$dir/.apt.conf"
        APT_CONFIG=$dir/.apt.conf apt-get -qq update >&2 || die "cannot read the lists of $*"
        sed -i "s#/\.apt\.conf#/apt.conf#" "$dir/.apt.conf"
        mv -- "$dir/.apt.conf" "$dir/apt.conf"
    fi
    printf '%s\n' "$dir/apt.conf"
}

# choose_apt VERSION: have this shell's apt-get and apt-cache know it.
choose_apt() {
    if [[ $1 == backports || $1 == *+deb13* ]]; then
        # the source of the newest kernels
        APT_CONFIG=$(apt_of trixie trixie-backports) || exit 1
        export APT_CONFIG
    fi
}

# known PACKAGE: true if apt can fetch it. Of a package that others merely name,
# apt-cache says so and succeeds.
known() { [[ $(apt-cache show "$1" 2>/dev/null) == *Package:* ]]; }

# available_release SERIES: the newest generic kernel release of a series (as
# 6.1), or of Debian 13's backports, for which apt knows headers. Prints nothing
# if it knows none.
available_release() (
    choose_apt "$1"
    prefix=linux-headers-$1.
    [[ $1 != backports ]] || prefix=linux-headers-
    { apt-cache pkgnames "$prefix" || true; } |
        sed -nE 's/^linux-headers-([0-9].*-amd64)$/\1/p' |
        { grep -Ev -- '-(cloud|rt)-amd64$' || true; } | sort -rV |
        while read -r name; do
            # For some hours the archive has a kernel's headers alone.
            if known "linux-image-$name"; then
                printf '%s\n' "$name"
                cat >/dev/null
            fi
        done
)

# kernel_release VERSION: the release that a series (6.1), `backports` (of Debian
# 13) or a release stands for on this machine. Kernel and headers have to be a
# pair, so a series keeps its first choice; else it is the newest release that
# apt knows.
kernel_release() {
    local cache
    cache=$(cache_dir)
    if [[ ! $1 =~ ^[0-9]+\.[0-9]+$ && $1 != backports ]]; then
        printf '%s\n' "$1"
    elif [[ -L $cache/series/$1 ]]; then
        readlink -- "$cache/series/$1"
    else
        available_release "$1"
    fi
}

# choose_release SERIES RELEASE: let the series stand for it from now on.
choose_release() {
    local series
    series=$(cache_dir)/series
    mkdir -p -- "$series"
    if [[ $(readlink -- "$series/$1") != "$2" ]]; then
        ln -sfnT -- "$2" "$series/$1"
    fi
}

# fetch KIND VERSION: have unpack_KIND put a Debian kernel's files into the
# cache, whole or not at all, and print their directory. Nothing is installed.
fetch() {
    local kind=$1 release store dir
    release=$(kernel_release "$2")
    [[ -n $release ]] || die "apt knows no kernel $2 (as root: apt-get update)"
    store=$(cache_dir)/$kind
    dir=$store/$release
    mkdir -p -- "$store"
    if [[ ! -d $dir ]]; then
        (
            # One of several that start at once does the work, and clears away
            # the rests of a killed one.
            flock 9
            if [[ ! -d $dir ]]; then
                rm -rf -- "$store"/.new.*
                new=$(mktemp -d -- "$store/.new.XXXXXX") || exit 1
                trap 'rm -rf -- "$new"' EXIT
                mkdir -- "$new/root" && cd -- "$new" || exit 1
                "unpack_$kind" "$release" "$dir" || exit 1
                chmod 755 root && mv -T -- root "$dir" || exit 1
            fi
        ) 9>"$store/.lock" || exit 1
    fi
    if [[ $2 != "$release" ]]; then
        choose_release "$2" "$release"
    fi
    printf '%s\n' "$dir"
}

# unpack PACKAGE...: download Debian packages and unpack them in ./root.
unpack() {
    local package
    say "fetching $*"
    # The download needs no sandbox, whose user cannot write here.
    apt-get -qq -o APT::Sandbox::User=root download "$@" >&2 || die "apt-get cannot download $*"
    for package in *.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -x -C root --exclude ./usr/share ||
            die "cannot unpack $package"
        rm -- "$package"
    done
}

# fetch_kernel VERSION: a kernel to boot. Its directory has vmlinuz,
# lib/modules/RELEASE and, if the kernel can be started that way, vmlinux.
fetch_kernel() { fetch kernels "$1"; }

unpack_kernels() {
    local packages
    choose_apt "$1"
    # Newer ones come in parts.
    mapfile -t packages < <(apt-cache depends "linux-image-$1" |
        sed -nE 's/^ +Depends: (linux-(base|binary|modules)-[0-9].*)$/\1/p')
    unpack "linux-image-$1" "${packages[@]}"
    if [[ -f root/usr/lib/modules/$1/vmlinuz ]]; then
        mkdir root/boot
        mv -- "root/usr/lib/modules/$1/vmlinuz" "root/boot/vmlinuz-$1"
    fi
    if [[ -d root/usr/lib/modules ]]; then
        mkdir -p root/lib
        mv -- root/usr/lib/modules root/lib/modules || exit 1
        rm -f -- root/lib/modules/*/{build,source}
    fi
    mv -- "root/boot/vmlinuz-$1" root/vmlinuz || exit 1
    rm -rf -- root/boot root/usr
    extract_vmlinux root/vmlinuz root/vmlinux || true
    PATH=$PATH:/sbin:/usr/sbin depmod -b "$PWD/root" "$1" ||
        die "cannot index the modules of $1 (is kmod installed?)"
}

# fetch_headers VERSION: the headers to build a module with; the build tree is
# usr/src/linux-headers-RELEASE there. Not installed as a package: that would
# install the kernel as well, and the machine would boot another one.
fetch_headers() { fetch headers "$1"; }

unpack_headers() {
    local tree=usr/src/linux-headers-$1 packages
    choose_apt "$1"
    mapfile -t packages < <(apt-cache depends "linux-headers-$1" |
        sed -nE 's/^ +Depends: (linux-headers-.*-common|linux-kbuild-.*)$/\1/p')
    unpack "linux-headers-$1" "${packages[@]}"
    # It names the other package's file by its installed path.
    sed -i "s#^\(include \|KBUILD_OUTPUT=\)/usr/src/#\1$2/usr/src/#" "root/$tree/Makefile" || exit 1
    # Only for making type information of modules, with a tool of its own.
    rm -f -- "root/$tree/vmlinux"
    # Tools of a newer Debian want a newer C library.
    local tools=(root/usr/lib/linux-kbuild-*)
    if { SRCARCH=x86 "${tools[0]}/tools/objtool/objtool" --help 2>&1 || true; } |
        grep 'GLIBC_.* not found' >/dev/null; then
        carry_libraries "$2"
    fi
}

# fetch_source VERSION: the source of the newest kernel of the same series, as
# Debian has it. Its directory is the source's.
fetch_source() { fetch sources "$1"; }

unpack_sources() {
    local package
    [[ $1 =~ ^[0-9]+\.[0-9]+ ]] || die "no kernel's release: $1"
    package=linux-source-${BASH_REMATCH[0]}
    choose_apt "$1"
    unpack "$package"
    # The source has a folder usr, too.
    mv -- "root/usr/src/$package.tar.xz" . && rm -rf -- root/usr || exit 1
    tar -xJf "$package.tar.xz" -C root --strip-components=1 --exclude '*/Documentation/*/*' ||
        die "cannot unpack the source of $1"
}

# fetch_system SUITE: as much of another Debian as Python needs. Its directory is
# that system's root.
fetch_system() { fetch systems "$1"; }

unpack_systems() {
    local packages
    APT_CONFIG=$(apt_of "$1") || exit 1
    export APT_CONFIG
    mapfile -t packages < <(apt-cache depends --recurse --important --no-recommends --no-suggests \
        --no-conflicts --no-breaks --no-replaces --no-enhances python3-minimal libpython3-stdlib |
        grep -E '^(lib|python|zlib)')
    unpack "${packages[@]}"
}

# carry_libraries DIR: have the tools in ./root, which is to be DIR, use
# libraries that lie beside them.
carry_libraries() {
    local tool libraries=$1/libraries/usr/lib/x86_64-linux-gnu
    mv -- root/usr headers
    unpack libc6 libelf1t64 libssl3t64 libzstd1 zlib1g
    mkdir -- root/libraries
    mv -- root/usr root/libraries/usr
    rm -rf -- root/{etc,lib,lib64,sbin,bin}
    mv -- headers root/usr
    find root/usr/lib -path '*/linux-kbuild-*' -type f -perm -u+x -print0 |
        while IFS= read -r -d '' tool; do
            # an ELF file for this machine: 64 bits, x86-64
            if [[ $(od -An -tx1 -N5 -- "$tool") == ' 7f 45 4c 46 02' ]]; then
                mv -- "$tool" "$tool.elf"
                # Some go by the name that they were called by.
                # shellcheck disable=SC2016 # for that shell to expand
                printf '#!/bin/sh\nexec %s --argv0 "$0" --library-path %s "$0.elf" "$@"\n' \
                    "$libraries/ld-linux-x86-64.so.2" "$libraries" >"$tool"
                chmod 755 -- "$tool"
            fi
        done
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
    # The last four bytes are the unpacked size.
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

# can_build TARGET: true if build/default knows it. Without CUDA's toolkit it
# lacks the targets that need one.
can_build() {
    cmake --build "$EMUV_ROOT/build/default" --target help 2>/dev/null | grep -E "^(\.\.\. )?$1(:|\$)" >/dev/null
}

# build_tools [--preset PRESET] [TARGET]...: configure and build everything but
# the kernel module, or these targets, in build/PRESET (default). Prints a line
# for every tenth of the way.
build_tools() {
    local preset=default log
    if [[ ${1:-} == --preset ]]; then
        preset=$2
        shift 2
    fi
    log=$EMUV_ROOT/build/$preset.log
    mkdir -p -- "$EMUV_ROOT/build"
    need cmake cmake
    need ninja ninja-build
    (
        cd -- "$EMUV_ROOT"
        # A lane of scripts/test may build something there at the same time.
        exec 9>"build/$preset.lock"
        flock 9
        cmake --preset "$preset" >"$log" 2>&1 &&
            cmake --build --preset "$preset" ${1:+--target "$@"} 2>&1 | tee -a -- "$log"
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
