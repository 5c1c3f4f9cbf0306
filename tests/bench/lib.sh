# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Shared by nvcc's benchmarks that run under the CUDA library. To be sourced at
# the top of the source tree, under `set -eu -o pipefail`.

PATH=$PATH:/usr/local/cuda/bin
build=${EMUV_BENCH_BUILD:-build/bench}
# A share is for a benchmark's allocations; its context comes besides.
export EMUV_CHARGE=allocations

# build_benchmark NAME [ARGUMENT...]: build tests/bench/NAME.cu and the CUDA
# library, which $library names then. Arguments are nvcc's.
build_benchmark() {
    local name=$1
    shift
    mkdir -p "$build"
    cmake -S tools/cuda -B "$build/lib" -DCMAKE_BUILD_TYPE=RelWithDebInfo >"$build/configure.log"
    cmake --build "$build/lib" -j >"$build/build.log" 2>&1 || { tail -n 30 "$build/build.log"; exit 1; }
    nvcc -O2 -std=c++17 -arch=native -o "$build/$name" "tests/bench/$name.cu" "$@"
    # shellcheck disable=SC2034 # used by the sourcing script
    library=$(readlink -f "$build/lib/tools/cuda/lib/libcuda.so.1")
}

# json_option ARGUMENT...: the arguments of these scripts, "--json FILE" or none;
# $json names the file then, by its full path.
json_option() {
    json=''
    case $#:${1-} in
    0:) ;;
    # Relative to the directory that the script was started in.
    2:--json) json=$(cd -- "$OLDPWD" && realpath -m -- "$2") ;;
    *)
        echo "usage: ${0##*/} [--json FILE]" >&2
        exit 2
        ;;
    esac
}

# leave_json TITLE UNIT LINK COLUMNS: leave the rows of the input in $json, if it is
# wanted; LINK in GB/s, or empty. COLUMNS as results.py takes them.
leave_json() {
    local name settings
    [ -n "$json" ] || return 0
    name=${0##*/}
    # sed, because grep fails where there are none.
    settings=$(env | sed -En '/^EMUV_(AWAY|CHAIN_[A-Z]+|CHASE_[A-Z]+)=/p' | LC_ALL=C sort | tr '\n' ' ')
    python3 -B tests/bench/results.py "$json" --benchmark "$name" --title "$1" --unit "$2" \
        ${3:+--link "$3"} --columns "$4" --command "${settings}tests/bench/$name"
}
