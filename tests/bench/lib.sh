# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# What benchmarks of nvcc's that run under the CUDA library share. To be
# sourced at the top of the source tree, under `set -eu -o pipefail`.

PATH=$PATH:/usr/local/cuda/bin
build=${EMUV_BENCH_BUILD:-build/bench}
# A share is for what a benchmark allocates; its context comes besides.
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
    # shellcheck disable=SC2034 # for whoever sources this
    library=$(readlink -f "$build/lib/tools/cuda/lib/libcuda.so.1")
}
