#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Shows the gain of a program that says what it knows of its memory. Five tests
that stacks of memory tiers are shown by, in bytes and in time.

    advice.py --library LIBCUDA [--driver SIM] [--only TEST] [--json FILE]

hits       a tier of 10 MiB and one of 50 MiB: the bytes found in each
promotion  the accesses, and the time, until memory in system RAM is in VRAM
many       1,000 tensors, 10,000 random accesses: ns an access that hits
mlp        three linear layers whose weights spill: ms a step
deep       32 layers at twice the share: the first steps, and the settled one

The first three need no card: --driver names the simulated one. The last two need
PyTorch and a card. They run with the library and advice, with the library alone,
and with neither, which is plain PyTorch. A tier of 200 MiB behind those two, a
file, does not exist.
"""

import argparse
import ctypes
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests/bench"))
import results  # noqa: E402

MIB = 1 << 20
# By test: the share of VRAM and of system RAM.
SHARES = {"hits": ("10M", "50M"), "promotion": ("16M", "64M"),
          "many": ("48M", "64M"), "mlp": ("1G", "8G"), "deep": ("2G", "16G")}
WITH_TORCH = ("mlp", "deep")
PATIENCE_S = 120
TENSORS, ACCESSES = 1000, 10000
# By the end of a measure's name.
UNITS = {"_ns": "ns", "ms": "ms", "_mib": "MiB", "_percent": "%",
         "hits": "accesses", "accesses": "accesses"}
NOTE = ("Of many, an access that hits is one of 1,000 tensors: by a call of "
        "Python's each, and by one call for all of them, as C makes it.")


# ---- What runs under the library


class Card:
    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.ask("cuInit", 0)
        self.ask("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.ask("cuCtxSetCurrent", context)

    def ask(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result:
            sys.exit(f"advice.py: {name}: error {result}")

    def allocate(self, size):
        at = ctypes.c_uint64()
        self.ask("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
        return at.value


def hits(emuv):
    card = Card()
    for number in range(15): # 60 MiB
        emuv.register(number, card.allocate(4 * MIB), 4 * MIB)
    for number in range(15):
        emuv.access(number)
    found = emuv.stats()
    return {"vram_hit_mib": found.vram_hit_bytes // MIB,
            "ram_hit_mib": found.ram_hit_bytes // MIB}


def promotion(emuv):
    card = Card()
    for number in range(3): # the last one lies in system RAM
        emuv.register(number, card.allocate(8 * MIB), 8 * MIB)
    begin = time.perf_counter()
    accesses = 0
    while emuv.where(2).tier != "vram":
        if time.perf_counter() - begin > PATIENCE_S:
            sys.exit("advice.py: promotion: nothing came")
        emuv.access(2)
        accesses += 1
        time.sleep(0.001)
    return {"accesses": accesses,
            "ms": round((time.perf_counter() - begin) * 1e3, 1)}


def many(emuv):
    card = Card()
    size = 64 << 10
    each = 4 * MIB // size
    for first in range(0, TENSORS, each):
        block = card.allocate(4 * MIB)
        for number in range(first, min(first + each, TENSORS)):
            emuv.register(number, block + (number - first) * size, size)
    chosen = random.Random(35).choices(range(TENSORS), k=ACCESSES)
    there = [key for key in chosen if emuv.where(key).tier == "vram"]

    def ns_each(call):
        begin = time.perf_counter_ns()
        call()
        return round((time.perf_counter_ns() - begin) / len(there))

    def one_by_one():
        access = emuv.access
        for key in there:
            access(key)
    group = emuv.Group(there)
    if not group.tell(emuv.advice.ACCESS):
        sys.exit("advice.py: many: nobody heard it")
    # The machine may do other things beside: the least counts.
    runs = [(ns_each(one_by_one),
             ns_each(lambda: group.tell(emuv.advice.ACCESS)))
            for _ in range(5)]
    for key in chosen:
        emuv.access(key)
    found = emuv.stats()
    all_bytes = found.vram_hit_bytes + found.ram_hit_bytes
    return {"hits": len(there), "python_ns": min(a for a, _ in runs),
            "c_ns": min(b for _, b in runs),
            "vram_hit_percent": round(found.vram_hit_bytes / all_bytes * 100)}


def torch_steps(layers, width, batch, advised):
    import torch
    torch.manual_seed(0)
    with torch.device("cuda"), torch.no_grad():
        model = torch.nn.Sequential(*(
            torch.nn.Linear(width, width, bias=False, dtype=torch.bfloat16)
            for _ in range(layers)))
        given = torch.randn(batch, width, dtype=torch.bfloat16)
        told = None
        if advised:
            import emuv.torch
            told = emuv.torch.enable(model)
        times = []
        for _ in range(60):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            out = model(given)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - begin) * 1e3)
        made = {"first_ms": round(times[0], 1), "second_ms": round(times[1], 1),
                "third_ms": round(times[2], 1),
                "settled_ms": round(statistics.median(times[-10:]), 1),
                "sum": out.double().sum().item()}
        if told is not None:
            import emuv
            found = emuv.stats()
            made |= {"fetched_mib": found.fetched_bytes // MIB,
                     "evicted_mib": found.evicted_bytes // MIB}
        return made


def run_inside(test, advised):
    if test == "mlp":
        return torch_steps(3, 16384, 256, advised)
    if test == "deep":
        return torch_steps(32, 8192, 256, advised)
    import emuv
    import emuv.advice
    return {"hits": hits, "promotion": promotion, "many": many}[test](emuv)


# ---- What starts it


def start(options, test, way):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"),
                   "PYTHONDONTWRITEBYTECODE": "1"}
    if way != "plain":
        environment |= {"LD_PRELOAD": str(options.preload.resolve()),
                        "EMUV_PHYSICAL": SHARES[test][0],
                        "EMUV_VIRTUAL": SHARES[test][1],
                        "EMUV_CHARGE": "allocations", "EMUV_MOVE": "1"}
        if options.driver:
            environment |= {"EMUV_LIBCUDA": str(options.driver.resolve()),
                            "EMUV_SIM_VRAM": "128M", "EMUV_STORE": "numa",
                            "EMUV_TRUST": "all"}
    done = subprocess.run(
        [sys.executable, __file__, "--inside", test]
        + (["--advised"] if way == "advised" else []),
        env=environment, text=True, check=False, stdout=subprocess.PIPE)
    if done.returncode:
        return {"failed": done.returncode}
    return json.loads(done.stdout.splitlines()[-1])


def write_json(path, options, found):
    """Leaves the measures in the form of docs/results."""
    made = results.start(
        "advice.py", "A program that says what it knows of its memory",
        "tests/bench/advice.py" + (f" --only {options.only}" if options.only
                                   else ""), card=not options.driver)
    if options.driver:
        made["note"] = "The simulated driver. " + NOTE
    columns = [results.column(each)
               for each in ("test", "measure", "value", "unit")]
    rows = []
    for test, measures in found.items():
        for name, value in measures.items():
            for end, unit in UNITS.items():
                if name.endswith(end): # of the sum of results there is none
                    named = name.removesuffix(end).replace("_", " ")
                    rows.append([test, named or {"ms": "time"}.get(end, end),
                                 value, unit])
    made["tables"].append(results.table(None, columns, rows))
    made["detail"] = True
    results.write(path, made)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", dest="preload", type=pathlib.Path, metavar="LIBCUDA",
                        help="emuV's libcuda.so.1")
    parser.add_argument("--driver", type=pathlib.Path,
                        help="the simulated libcuda.so.1, for want of a card")
    parser.add_argument("--only", choices=SHARES)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE",
                        help="leave the measures there")
    parser.add_argument("--inside", choices=SHARES, help=argparse.SUPPRESS)
    parser.add_argument("--advised", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(run_inside(options.inside, options.advised)))
        return 0
    if options.preload is None:
        parser.error("--library is needed")
    found = {}
    for test in SHARES:
        if options.only not in (None, test):
            continue
        if test in WITH_TORCH and options.driver:
            print(f"{test}: left out: it needs a card", file=sys.stderr)
            continue
        ways = ("advised", "alone", "plain") if test in WITH_TORCH else ("",)
        for way in ways:
            name = f"{test} {way}".strip()
            found[name] = start(options, test, way)
            print(f"{name:15}", *(f"{key} {value}" for key, value
                                  in found[name].items()), sep="  ")
    if any("failed" in each for each in found.values()):
        return 1
    if options.json:
        write_json(options.json, options, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
