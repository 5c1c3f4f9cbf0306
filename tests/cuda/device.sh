#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds the CUDA library alone and tries it on this machine's card: needs a
# GPU with its driver, CUDA's toolkit, CMake, a C++ compiler and Python 3, and
# uses PyTorch if Python has it. Prints a table last; exits 1 if a check failed.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${EMUV_DEVICE_BUILD:-build/device}
out=${OUT:-$build/out}
mkdir -p "$build" "$out"
PATH=$PATH:/usr/local/cuda/bin
physical_gib=${EMUV_DEVICE_PHYSICAL_GIB:-4}
failed=0
rows=()

row() { rows+=("$(printf '%-34s %14s %14s  %s' "$1" "$2" "$3" "$4")"); }
judge() { # NAME UNLIMITED WITH TEST...
  local name=$1 unlimited=$2 with=$3
  shift 3
  if "$@"; then row "$name" "$unlimited" "$with" ok
  else row "$name" "$unlimited" "$with" FAILED; failed=1; fi
}
value() { awk -v name="$2" '$1 == name { print $2; exit }' "$1"; }

echo "== build"
if ! { cmake -S tools/cuda -B "$build/lib" -DCMAKE_BUILD_TYPE=RelWithDebInfo &&
  cmake --build "$build/lib" -j; } >"$out/build.log" 2>&1; then
  tail -n 30 "$out/build.log"
  exit 1
fi
library=$PWD/$build/lib/tools/cuda/lib/libcuda.so.1
[ -f "$library" ] || { cat "$out/build.log"; exit 1; }
toolkit=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
nvcc -O2 -std=c++17 -arch=native -o "$build/device" tests/cuda/device.cu \
  -L"$toolkit/lib64/stubs" -L"$toolkit/lib/stubs" -lcuda -ldl || exit 1
(cd "$build/lib" && ctest --output-on-failure) >"$out/ctest.log" 2>&1
judge "library loads everywhere (ctest)" - - test $? -eq 0
program=$PWD/$build/device

unlimited() { name=$1; shift; timeout 120 "$@" >"$out/$name.plain" 2>"$out/$name.plain.err"; }
with() { name=$1; shift
  LD_PRELOAD=$library EMUV_PHYSICAL=${physical_gib}G EMUV_VIRTUAL=24G \
    timeout 120 "$@" >"$out/$name.emuv" 2>"$out/$name.emuv.err"; }
both() { unlimited "$@"; plain=$?; with "$@"; ours=$?; }

nvidia-smi --query-gpu=name,driver_version,memory.used,memory.total \
  --format=csv,noheader

echo "== queries"
both info "$program" info
judge "cudaMemGetInfo total (MiB)" "$(value "$out/info.plain" total_mib)" \
  "$(value "$out/info.emuv" total_mib)" \
  test "$(value "$out/info.emuv" total_mib)" = $(((physical_gib + 24) * 1024))
judge "totalGlobalMem (MiB)" "$(value "$out/info.plain" properties_mib)" \
  "$(value "$out/info.emuv" properties_mib)" \
  test "$(value "$out/info.emuv" properties_mib)" = $(((physical_gib + 24) * 1024))
judge "silent when nothing spills" - - test ! -s "$out/info.emuv.err"
LD_PRELOAD=$library EMUV_DISABLE=1 EMUV_PHYSICAL=1G "$program" info \
  >"$out/info.disabled" 2>&1
judge "EMUV_DISABLE=1 total (MiB)" "$(value "$out/info.plain" total_mib)" \
  "$(value "$out/info.disabled" total_mib)" \
  test "$(value "$out/info.plain" total_mib)" = "$(value "$out/info.disabled" total_mib)"

echo "== answers to wrong arguments"
both errors "$program" errors
diff "$out/errors.plain" "$out/errors.emuv" >"$out/errors.diff"
same=$?
judge "answers that differ" "$(wc -l <"$out/errors.plain") asked" \
  "$(grep -c '^>' "$out/errors.diff")" test $same -eq 0
[ $same -eq 0 ] || cat "$out/errors.diff"
unlimited procedures "$program" procedures tools/cuda/symbols.def
judge "procedures as the table has them" \
  "$(value "$out/procedures.plain" procedures_same)" \
  "$(value "$out/procedures.plain" procedures_other) others" \
  test "$(value "$out/procedures.plain" procedures_same)" -gt 0
grep differs "$out/procedures.plain"

echo "== memory past the share, static runtime"
base=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -1)
(while :; do nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits |
  head -1; sleep 0.2; done) >"$out/vram.log" &
sampler=$!
with hold "$program" hold $(((physical_gib + 4) * 1024)); ours=$?
kill $sampler; wait $sampler 2>/dev/null
peak=$(sort -n "$out/vram.log" | tail -1)
judge "holds (MiB) of share $((physical_gib * 1024))" - "$(value "$out/hold.emuv" held_mib)" \
  test "$ours" -eq 0 -a "$(value "$out/hold.emuv" "done")" = 1
judge "wrong words, by kernels" - "$(value "$out/hold.emuv" kernel_wrong)" \
  test "$(value "$out/hold.emuv" kernel_wrong)" = 0
judge "wrong words, by copies" - "$(value "$out/hold.emuv" copy_wrong)" \
  test "$(value "$out/hold.emuv" copy_wrong)" = 0
judge "one line on stderr" - "$(wc -l <"$out/hold.emuv.err")" \
  test "$(wc -l <"$out/hold.emuv.err")" -eq 1
cat "$out/hold.emuv.err"; grep -E 'failed|wrong' "$out/hold.emuv"
row "peak VRAM by NVML over idle (MiB)" - "$((peak - base))" "share $((physical_gib * 1024)) + context"
EMUV_STORE=pages with pages "$program" hold $(((physical_gib + 2) * 1024)); ours=$?
judge "the same, registered pages (MiB)" - "$(value "$out/pages.emuv" held_mib)" \
  test "$ours" -eq 0 -a "$(value "$out/pages.emuv" copy_wrong)" = 0
cat "$out/pages.emuv.err"; grep -E 'failed|wrong' "$out/pages.emuv"
row "fill and verify, HOST_NUMA/pages (s)" "$(value "$out/hold.emuv" fill_verify_s)" \
  "$(value "$out/pages.emuv" fill_verify_s)" "columns are the two stores"

echo "== NVML"
: >"$out/ledger"
LD_PRELOAD=$library:${library%/*}/libnvidia-ml.so.1 EMUV_LEDGER=$out/ledger \
  EMUV_PHYSICAL=${physical_gib}G EMUV_VIRTUAL=24G nvidia-smi \
  --query-gpu=memory.total,memory.used --format=csv,noheader,nounits \
  >"$out/nvml.emuv" 2>"$out/nvml.emuv.err"
row "nvidia-smi total, used (MiB)" "$(nvidia-smi --query-gpu=memory.total \
  --format=csv,noheader,nounits | head -1)" "$(head -1 "$out/nvml.emuv")" \
  "expected $(((physical_gib + 24) * 1024))"

echo "== times"
unlimited times "$program" times
LD_PRELOAD=$library EMUV_PHYSICAL=64G EMUV_VIRTUAL=8G timeout 120 \
  "$program" times >"$out/times.emuv" 2>"$out/times.emuv.err"
while read -r name plain; do
  row "$name" "$plain" "$(value "$out/times.emuv" "$name")" ""
done <"$out/times.plain"

if python3 -c 'import torch' 2>/dev/null; then
  echo "== PyTorch $(python3 -c 'import torch; print(torch.__version__)')"
  export CUBLAS_WORKSPACE_CONFIG=:4096:8
  for mode in eager graph expandable; do
    if [ $mode = expandable ]; then
      export PYTORCH_ALLOC_CONF=expandable_segments:True
      export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    fi
    both torch-$mode python3 tests/cuda/device.py $mode $((physical_gib + 3))
    judge "torch $mode, same bits" "$(value "$out/torch-$mode.plain" result)" \
      "$(value "$out/torch-$mode.emuv" result)" \
      test $plain -eq 0 -a $ours -eq 0 -a -n "$(value "$out/torch-$mode.plain" result)" \
      -a "$(value "$out/torch-$mode.plain" result)" = "$(value "$out/torch-$mode.emuv" result)"
    row "torch $mode, seconds" "$(value "$out/torch-$mode.plain" seconds)" \
      "$(value "$out/torch-$mode.emuv" seconds)" ""
    row "torch $mode, allocated (MiB)" "$(value "$out/torch-$mode.plain" allocated_mib)" \
      "$(value "$out/torch-$mode.emuv" allocated_mib)" "share $((physical_gib * 1024))"
    [ $ours -eq 0 ] || tail -5 "$out/torch-$mode.emuv.err"
    [ $plain -eq 0 ] || tail -5 "$out/torch-$mode.plain.err"
    grep emuV "$out/torch-$mode.emuv.err"
  done
else
  row "PyTorch" - - "not installed"
fi

echo
printf '%-34s %14s %14s  %s\n' check unlimited "with emuV" verdict
printf '%s\n' "${rows[@]}"
exit $failed
