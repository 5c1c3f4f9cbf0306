#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The CUDA library over whole processes: Python programs that open the driver
by ctypes, in front of the simulated driver. They tell what each
setting does, what processes share, and what happens if something is missing."""

import argparse
import contextlib
import inspect
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

LIMIT_S = 900 # of a wait for an event, on a busy machine

PROGRAM = r"""
import ctypes, itertools, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
MiB = 1 << 20
def info():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value // MiB, total.value // MiB
def alloc(mib):
    pointer = ctypes.c_uint64()
    result = cuda.cuMemAlloc_v2(ctypes.byref(pointer),
                                ctypes.c_size_t(mib * MiB))
    return result, pointer
result = cuda.cuInit(0)
if result:
    print("cuInit", result)
    sys.exit(0)
# As runtimes ask before there is a context.
total = ctypes.c_size_t()
assert cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0) == 0
context = ctypes.c_void_p()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
"""

# Prints the fetched bytes of a program whose movement is traced.
TRACED = r"""
import json, os
def spans():
    while True:
        try:
            return json.load(open(os.environ["EMUV_TRACE"]))
        except ValueError:
            pass # an event is being written
def fetched():
    return [int(span["args"]["address"], 16) for span in spans()
            if span["name"] == "fetch"]
"""

# Makes memory for others, says how they come by it, and waits for their end.
MAKER = r"""
import os
class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]
class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int),
                ("location", Location), ("security", ctypes.c_void_p),
                ("flags", ctypes.c_ubyte * 8)]
_, pointer = alloc(20)
assert cuda.cuMemsetD32_v2(pointer, 0x600d, ctypes.c_size_t(5 * MiB)) == 0
assert cuda.cuCtxSynchronize() == 0
handle = ctypes.create_string_buffer(64)
assert cuda.cuIpcGetMemHandle(handle, pointer) == 0
properties = Properties(1, 1, Location(1, 0)) # pinned, of the first device
made, file = ctypes.c_uint64(), ctypes.c_int()
assert cuda.cuMemCreate(ctypes.byref(made), ctypes.c_size_t(20 * MiB),
                        ctypes.byref(properties), ctypes.c_ulonglong(0)) == 0
assert cuda.cuMemExportToShareableHandle(
    ctypes.byref(file), made, 1, ctypes.c_ulonglong(0)) == 0
print(handle.raw.hex(), f"/proc/{os.getpid()}/fd/{file.value}", flush=True)
sys.stdin.read()
"""

# Opens such memory.
USER = r"""
import os
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]
def free():
    return info()[0]
def opened(handle):
    at = ctypes.c_uint64()
    result = cuda.cuIpcOpenMemHandle_v2(
        ctypes.byref(at), Handle.from_buffer_copy(bytes.fromhex(handle)), 1)
    return result, at
def first_word(at):
    word = ctypes.c_uint32()
    assert cuda.cuMemcpyDtoH_v2(ctypes.byref(word), at,
                                ctypes.c_size_t(4)) == 0
    return hex(word.value)
"""


def left_unmapped(spans):
    """The addresses of units that left VRAM and were mapped nowhere then, and
    those of units among them that were mapped again where they lay. Programs
    of the test use it as well."""
    left, again, mapped_at, away = [], [], {}, set()
    for span in sorted((span for span in spans if "dur" in span),
                       key=lambda span: span["ts"] + span["dur"]):
        name, address = span["name"], span["args"]["address"]
        if name == "map":
            mapped_at[address] = span["ts"]
        elif name in ("write back", "drop"):
            if mapped_at.get(address, 0) < span["ts"]:
                left.append(address)
                away.add(address)
        elif name == "fetch":
            away.discard(address)
        elif name == "mapped again" and address in away:
            again.append(address)
            away.discard(address)
    return left, again


class ProcessesTest(unittest.TestCase):
    options = None

    def preloaded(self, library):
        """Python is not built with the sanitizer that the library is built
        with: its runtime comes first, then."""
        return ":".join(filter(None, (self.options.runtime, library)))

    def environment(self, **settings):
        environment = {name: text for name, text in os.environ.items()
                       if not name.startswith("EMUV_")}
        environment.update(LD_PRELOAD=self.preloaded(self.options.preload),
                           EMUV_LIBCUDA=self.options.driver,
                           EMUV_SIM_VRAM="64M")
        environment.update(settings)
        return environment

    def start(self, text, **settings):
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM + text],
            env=self.environment(**settings), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)

    def run_program(self, text, **settings):
        with self.start(text, **settings) as process:
            try:
                out, err = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        self.assertEqual(process.returncode, 0, err)
        return out.split(), err

    def run_traced(self, text, **settings):
        """Its output, and the spans of what moved."""
        with tempfile.NamedTemporaryFile() as trace:
            out, _ = self.run_program(text, EMUV_TRACE=trace.name, **settings)
            spans = pathlib.Path(trace.name).read_text(encoding="ascii")
        return out, json.loads(spans)

    def use_memory_of_others(self, program, makers, **settings):
        """Runs a program that is told of the memory of so many others as
        HANDLES and FILES. They end once it prints "without makers", or after
        it."""
        with contextlib.ExitStack() as stack:
            others = [stack.enter_context(self.start(MAKER))
                      for _ in range(makers)]
            told = [each.stdout.readline().split() for each in others]
            user = stack.enter_context(self.start(
                USER + f"HANDLES = {[each[0] for each in told]}\n"
                f"FILES = {[each[1] for each in told]}\n" + program +
                "print('end', flush=True)\nsys.stdin.read()\n", **settings))
            out = []
            for line in user.stdout:
                if line == "end\n":
                    break
                if line == "without makers\n":
                    for each in others:
                        each.communicate(timeout=LIMIT_S)
                    self.assertEqual([each.returncode for each in others],
                                     [0] * makers)
                    user.stdin.write("\n")
                    user.stdin.flush()
                else:
                    out += line.split()
            _, err = user.communicate(timeout=LIMIT_S)
            self.assertEqual(user.returncode, 0, err)
        return out, err

    def test_memory_of_another_process_is_charged_while_it_is_open(self):
        program = """
print(free())
one = opened(HANDLES[0])[1]
print(free(), first_word(one))
again = opened(HANDLES[0])[1]
print(free(), again.value == one.value)
# 12 MiB are left.
print(opened(HANDLES[1])[0], free())
assert cuda.cuIpcCloseMemHandle(one) == 0
print(free())
print("without makers", flush=True)
sys.stdin.readline()
print(free(), first_word(one))
assert cuda.cuIpcCloseMemHandle(one) == 0
print(free(), cuda.cuIpcCloseMemHandle(one))
"""
        out, _ = self.use_memory_of_others(
            program, 2, EMUV_PHYSICAL="32M", EMUV_VIRTUAL="64M",
            EMUV_CHARGE="held")
        self.assertEqual(out, ["96", "76", "0x600d", "76", "True", "2", "76",
                               "76", "76", "0x600d", "96", "1"])
        out, _ = self.use_memory_of_others(
            program, 2, EMUV_PHYSICAL="32M", EMUV_VIRTUAL="64M")
        self.assertEqual(out[-2:], ["96", "1"])
        self.assertEqual(out[5:7], ["0", "96"], "nothing is charged")

    def test_handle_of_another_process_is_charged_while_it_is_mapped(self):
        out, _ = self.use_memory_of_others("""
file = os.open(FILES[0], os.O_RDWR)
made, at, access = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
assert cuda.cuMemImportFromShareableHandle(
    ctypes.byref(made), ctypes.c_void_p(file), 1) == 0
zero, size = ctypes.c_ulonglong(0), ctypes.c_size_t(20 * MiB)
assert cuda.cuMemAddressReserve(ctypes.byref(at), ctypes.c_size_t(40 * MiB),
                                zero, zero, zero) == 0
def map_at(offset):
    return cuda.cuMemMap(ctypes.c_uint64(at.value + offset * MiB), size,
                         ctypes.c_size_t(0), made, zero)
print(free(), map_at(0), free(), map_at(20), free())
assert cuda.cuMemUnmap(ctypes.c_uint64(at.value + 20 * MiB), size) == 0
print(free())
assert cuda.cuMemRelease(made) == 0
print(free())
assert cuda.cuMemRetainAllocationHandle(ctypes.byref(made), at) == 0
assert cuda.cuMemUnmap(at, size) == 0
print(free())
assert cuda.cuMemRelease(made) == 0
print(free())
# Another 16 MiB leave no room.
assert alloc(16)[0] == 0
assert cuda.cuMemImportFromShareableHandle(
    ctypes.byref(made), ctypes.c_void_p(file), 1) == 0
print(map_at(0), free())
assert cuda.cuMemRelease(made) == 0
""", 1, EMUV_PHYSICAL="32M", EMUV_VIRTUAL="64M", EMUV_CHARGE="held")
        self.assertEqual(out, ["96", "0", "76", "0", "76", "76", "76", "76",
                               "96", "2", "80"])

    def test_context_that_ends_takes_what_was_opened_in_it(self):
        out, _ = self.use_memory_of_others("""
second = ctypes.c_void_p()
assert cuda.cuCtxCreate_v2(ctypes.byref(second), 0, 0) == 0
assert opened(HANDLES[0])[0] == 0
assert opened(HANDLES[0])[0] == 0
print(free())
assert cuda.cuCtxSetCurrent(context) == 0
assert opened(HANDLES[0])[0] == 0
print(free())
assert cuda.cuCtxDestroy_v2(second) == 0
print(free())
assert cuda.cuDevicePrimaryCtxReset_v2(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
print(free())
""", 1, EMUV_PHYSICAL="48M", EMUV_VIRTUAL="64M", EMUV_CHARGE="held")
        self.assertEqual(out, ["92", "72", "92", "112"])

    def test_without_a_limit_every_answer_is_the_drivers(self):
        out, err = self.run_program("print(*info(), alloc(65)[0])")
        self.assertEqual(out[1:], ["64", "2"])
        self.assertEqual(err, "")

    def test_disable_lifts_the_limits(self):
        out, err = self.run_program("print(info()[1])", EMUV_DISABLE="1",
                                    EMUV_PHYSICAL="8M", EMUV_INSTANCE="0")
        self.assertEqual(out, ["64"])
        self.assertEqual(err, "")

    def test_reports_are_as_asked_for(self):
        for report, total in (("total", "96"), ("physical", "32"),
                              ("free", "64")):
            out, _ = self.run_program("print(info()[1])", EMUV_PHYSICAL="32M",
                                      EMUV_VIRTUAL="64M", EMUV_REPORT=report)
            self.assertEqual(out, [total], report)

    def test_a_program_whose_files_may_not_grow_runs(self):
        # Python ignores the signal that would end others.
        limited = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE,
                   (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
""" + PROGRAM + """
print(*(alloc(20)[0] for _ in range(3)))
"""
        for store in ("numa", "pages"):
            done = subprocess.run(
                [sys.executable, "-c", limited], check=False, text=True,
                capture_output=True, timeout=LIMIT_S,
                env=self.environment(EMUV_PHYSICAL="24M", EMUV_VIRTUAL="64M",
                                     EMUV_STORE=store, EMUV_MOVE="0"))
            self.assertEqual((done.returncode, done.stdout), (0, "0 0 0\n"),
                             done.stderr)

    def test_the_first_spill_is_one_line_and_the_second_none(self):
        _, err = self.run_program("""
for _ in range(3):
    assert alloc(20)[0] == 0
""", EMUV_PHYSICAL="24M", EMUV_VIRTUAL="64M")
        self.assertEqual(err.count("\n"), 1, err)
        self.assertRegex(err, r"^emuV: 16 MiB of an allocation of 20 MiB went "
                              r"to system RAM .*(GB/s|could not be measured)")

    def test_the_first_refusal_is_one_line_and_says_what_to_do(self):
        for limits, says in (
                ({"EMUV_PHYSICAL": "24M", "EMUV_VIRTUAL": "16M"},
                 r"refused 24 MiB: in use are 20 MiB of 24 MiB VRAM \(20 MiB "
                 r"by this process\) and 0 bytes of 16 MiB system RAM\. It "
                 r"lacks 4 MiB: a larger --virtual would take it, or hold less"),
                ({"EMUV_PHYSICAL": "24M"},
                 r"refused 24 MiB: .* and 0 bytes of 0 bytes system RAM\. No "
                 r"system RAM is granted: with 20 MiB of it, this would spill "
                 r"\(emuvctl run --virtual\)")):
            _, err = self.run_program("""
assert alloc(20)[0] == 0
for _ in range(3):
    assert alloc(24)[0] == 2
""", **limits)
            self.assertEqual(err.count("\n"), 1, err)
            self.assertRegex(err, f"^emuV: {says}$")

    def test_reclaim_refuses_once_whoever_caches_and_nobody_else(self):
        program = f"caching = ctypes.CDLL({self.options.caching!r})" + """
def ask(mib):
    pointer = ctypes.c_uint64()
    result = caching.ask(ctypes.byref(pointer), ctypes.c_size_t(mib * MiB))
    return result, pointer
kept = ask(20)[1]
print(ask(10)[0])
assert cuda.cuMemFree_v2(kept) == 0
print(ask(10)[0], alloc(20)[0], ask(10)[0], ask(10)[0])
"""
        limits = {"EMUV_PHYSICAL": "24M", "EMUV_VIRTUAL": "64M"}
        out, err = self.run_program(program, EMUV_RECLAIM="1", **limits)
        self.assertEqual(out, ["2", "0", "0", "2", "0"], err)
        for other in ({}, {"EMUV_RECLAIM": "1",
                           "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}):
            out, err = self.run_program(program, **limits, **other)
            self.assertEqual(out, ["0"] * 5, err)
        capture = """
stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
assert cuda.cuStreamBeginCapture_v2(stream, 1) == 0
assert cuda.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
"""
        out, err = self.run_program(capture + program, EMUV_RECLAIM="1",
                                    **limits)
        self.assertEqual(out, ["0"] * 5, err)

    def test_a_missing_instance_stops_cuinit_with_one_line(self):
        out, err = self.run_program("", EMUV_INSTANCE="1023")
        self.assertEqual(out, ["cuInit", "304"])
        self.assertEqual(
            err, "emuV: /dev/emuv1023: No such file or directory\n")

    def test_a_wrong_setting_stops_cuinit_with_one_line(self):
        out, err = self.run_program("", EMUV_PHYSICAL="lots")
        self.assertEqual(out, ["cuInit", "304"])
        self.assertEqual(err, "emuV: EMUV_PHYSICAL=lots is not understood\n")

    def test_a_program_without_cuda_is_left_alone(self):
        done = subprocess.run(
            [sys.executable, "-c", "print('fine')"], text=True,
            env=self.environment(EMUV_PHYSICAL="lots",
                                 EMUV_LIBCUDA="/nonexistent"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
        self.assertEqual((done.stdout, done.stderr), ("fine\n", ""))

    def test_without_a_driver_opening_it_fails_as_it_would_have(self):
        environment = self.environment()
        del environment["EMUV_LIBCUDA"]
        if subprocess.run(
                [sys.executable, "-c",
                 "import ctypes; ctypes.CDLL('libcuda.so.1')"],
                env={**environment, "LD_PRELOAD": ""}, check=False,
                stderr=subprocess.DEVNULL).returncode == 0:
            self.skipTest("this machine has a driver")
        done = subprocess.run(
            [sys.executable, "-c",
             "import ctypes\ntry:\n    ctypes.CDLL('libcuda.so.1')\n"
             "except OSError as error:\n    print(error)"],
            env=environment, text=True, check=True, stdout=subprocess.PIPE)
        self.assertIn("cannot open shared object file", done.stdout)

    def test_processes_share_a_ledger_and_the_dead_give_theirs_back(self):
        with tempfile.NamedTemporaryFile() as ledger:
            shared = {"EMUV_PHYSICAL": "32M", "EMUV_VIRTUAL": "64M",
                      "EMUV_LEDGER": ledger.name}
            holder = self.start("""
assert alloc(80)[0] == 0
print("held", flush=True)
sys.stdin.read()
""", **shared)
            try:
                self.assertEqual(holder.stdout.readline(), "held\n")
                out, _ = self.run_program("print(*info(), alloc(17)[0])",
                                          **shared)
                self.assertEqual(out, ["16", "96", "2"])
            finally:
                holder.send_signal(signal.SIGKILL)
                holder.communicate()
            out, _ = self.run_program("print(*info(), alloc(96)[0])",
                                      **shared)
            self.assertEqual(out, ["96", "96", "0"])

    def test_what_is_newer_than_the_library_passes_and_is_told_of_once(self):
        out, err = self.run_program("""
def procedure(name):
    function, status = ctypes.c_void_p(), ctypes.c_int()
    result = cuda.cuGetProcAddress_v2(name, ctypes.byref(function), 99000,
                                      ctypes.c_uint64(0),
                                      ctypes.byref(status))
    assert result == 0, result
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p,
                            ctypes.c_size_t)(function.value)
pointer = ctypes.c_uint64()
assert procedure(b"cuMemPokeOfTomorrow")(None, 0) == 0
tomorrow = procedure(b"cuMemAllocOfTomorrow")
print("quiet", file=sys.stderr, flush=True)
for _ in range(2):
    print(tomorrow(ctypes.byref(pointer), 4096), pointer.value != 0)
    tomorrow = procedure(b"cuMemAllocOfTomorrow")
""", EMUV_PHYSICAL="24M")
        self.assertEqual(out, ["0", "True"] * 2)
        self.assertEqual(
            err, "quiet\nemuV: cuMemAllocOfTomorrow is newer than this "
            "library: what it allocates is not counted\n")

    def test_memory_stays_where_it_is_once_newer_work_is_done(self):
        program = """
function, status = ctypes.c_void_p(), ctypes.c_int()
for _ in range(2):
    assert cuda.cuGetProcAddress_v2(
        b"cuMemcpyOfTomorrow", ctypes.byref(function), 99000,
        ctypes.c_uint64(0), ctypes.byref(status)) == 0
copy = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t,
    ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_double,
    ctypes.c_int)(function.value)
at = alloc(48)[1].value
assert cuda.cuMemsetD8_v2(ctypes.c_uint64(at), 1, 1000) == 0
assert cuda.cuMemsetD8_v2(ctypes.c_uint64(at + 4096), 2, 1000) == 0
print("asked", file=sys.stderr, flush=True)
for _ in range(calls):
    assert copy(at, at + 4096, 100, 4, 5, 6, 0.5, 7) == 0
back = ctypes.create_string_buffer(200)
assert cuda.cuMemcpyDtoH_v2(back, ctypes.c_uint64(at), 200) == 0
assert back.raw == bytes([2 if calls else 1]) * 100 + bytes([1]) * 100
"""
        stays = ("emuV: memory stays where it is from now on: the program "
                 "calls cuMemcpyOfTomorrow, which is newer than this library")
        for moves, calls in (("0", 2), ("always", 0), ("always", 2)):
            with self.subTest(moves=moves, calls=calls):
                _, err = self.run_program(
                    f"calls = {calls}\n" + program, EMUV_PHYSICAL="24M",
                    EMUV_VIRTUAL="64M", EMUV_MOVE=moves)
                lines = err.splitlines()
                self.assertEqual(
                    lines[lines.index("asked") + 1:],
                    [stays] if moves != "0" and calls else [])

    def test_of_what_is_newer_only_the_harmless_lets_memory_move_on(self):
        program = """
called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda given: None)
function, status = ctypes.c_void_p(), ctypes.c_int()
assert cuda.cuGetProcAddress_v2(
    name, ctypes.byref(function), 99000, ctypes.c_uint64(0),
    ctypes.byref(status)) == 0
at = alloc(48)[1].value
print("asked", file=sys.stderr, flush=True)
for _ in range(2):
    assert ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
        ctypes.c_uint)(function.value)(None, called, None, 0) == 0
assert cuda.cuCtxSynchronize() == 0
"""
        for name, harmless in (("cuMemPokeOfTomorrow", False),
                               ("cuMulticastBindAddr", False),
                               ("cuLaunchHostFunc", True),
                               ("cuDeviceGetPokesOfTomorrow", True)):
            with self.subTest(name=name):
                _, err = self.run_program(
                    f"name = b'{name}'\n" + program, EMUV_PHYSICAL="24M",
                    EMUV_VIRTUAL="64M", EMUV_MOVE="always")
                lines = err.splitlines()
                self.assertEqual(
                    lines[lines.index("asked") + 1:],
                    [] if harmless else
                    ["emuV: memory stays where it is from now on: the program "
                     f"calls {name}, which is newer than this library"])

    def test_each_process_tells_at_its_end_why_its_kernels_were_trusted(self):
        with tempfile.TemporaryDirectory() as folder:
            stats = pathlib.Path(folder, "stats")
            for _ in range(2):
                _, err = self.run_program(
                    "alloc(48)", EMUV_PHYSICAL="24M", EMUV_VIRTUAL="64M",
                    EMUV_MOVE="always", EMUV_STATS=str(stats))
                self.assertIn(
                    "emuV: launches: 0 of proven kernels, 0 of kernels "
                    "trusted by name, 0 of untrusted ones\n", err)
            self.assertEqual(
                stats.read_text(encoding="ascii"),
                2 * "proven\tnamed\tuntrusted\treason\tkernel\n")

    def test_why_memory_has_no_ipc_handle_is_told_once(self):
        out, err = self.run_program("""
large = [alloc(20)[1] for _ in range(2)]
small = ctypes.c_uint64()
assert cuda.cuMemAlloc_v2(ctypes.byref(small), ctypes.c_size_t(4096)) == 0
handle = ctypes.create_string_buffer(64)
for each in (*large, small):
    print(cuda.cuIpcGetMemHandle(handle, each))
""", EMUV_PHYSICAL="48M", EMUV_VIRTUAL="64M")
        self.assertEqual(out[:2], ["1", "1"])  # CUDA_ERROR_INVALID_VALUE
        self.assertEqual(
            err, "emuV: cuIpcGetMemHandle: allocations of 2 MiB and more have "
            "an IPC handle only with EMUV_IPC=1\n")
        out, err = self.run_program("""
within, beyond = alloc(20)[1], alloc(40)[1]
handle = ctypes.create_string_buffer(64)
print(cuda.cuIpcGetMemHandle(handle, within))
print(cuda.cuIpcGetMemHandle(handle, beyond))
print(cuda.cuIpcGetMemHandle(handle, beyond))
""", EMUV_PHYSICAL="48M", EMUV_VIRTUAL="64M", EMUV_IPC="1")
        self.assertEqual(out[1:], ["1", "1"])
        self.assertEqual(
            err.splitlines()[1:],
            ["emuV: cuIpcGetMemHandle: memory in system RAM has no IPC handle"])

    def test_a_device_that_is_reset_gives_everything_back(self):
        out, _ = self.run_program("""
for mib in (40, 2):
    assert alloc(mib)[0] == 0
print(*info())
assert cuda.cuDevicePrimaryCtxReset_v2(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
print(*info(), alloc(88)[0])
""", EMUV_PHYSICAL="24M", EMUV_VIRTUAL="64M")
        self.assertEqual(out, ["46", "88", "88", "88", "0"])

    def test_what_moves_is_traced_and_goes_on_after_a_release(self):
        out, spans = self.run_traced(TRACED + """
def go_round(value, count):
    for block in blocks[:count]:
        assert cuda.cuMemsetD8Async(block, ctypes.c_ubyte(value),
                                    ctypes.c_size_t(4 * MiB), None) == 0
def fetches(count):
    before = len(fetched())
    # The next round calls off what is on its way, and a sanitizer takes its
    # time: the pauses grow.
    end = time.monotonic() + 120
    for value in itertools.count():
        if time.monotonic() > end:
            return None
        go_round(value % 256, count)
        assert cuda.cuCtxSynchronize() == 0
        time.sleep(0.01 * min(value, 40))
        new = fetched()[before:]
        if len(new) > 3:
            return {blocks[0].value <= each and
                    each - blocks[0].value < 1 << 40 for each in new}
blocks = [alloc(4)[1] for _ in range(8)]
print(fetches(8))
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
go_round(77, 8) # still under way, perhaps
assert cuda.cuDevicePrimaryCtxRelease_v2(0) == 0
blocks.append(alloc(4)[1])
print(fetches(8))
go_round(99, 8)
go_round(55, 9)
buffer = ctypes.create_string_buffer(4 * MiB)
for block in blocks:
    assert cuda.cuMemcpyDtoH_v2(buffer, block,
                                ctypes.c_size_t(4 * MiB)) == 0
    assert buffer.raw == bytes([55]) * (4 * MiB)
""", EMUV_PHYSICAL="16M", EMUV_VIRTUAL="48M", EMUV_MOVE="always")
        self.assertEqual(out, ["{True}", "{True}"])
        names = {span["name"] for span in spans}
        self.assertLessEqual({"fetch", "write back", "map"}, names)

    def test_allocations_that_share_what_moves_keep_their_bytes(self):
        # Much memory, and much of it freed: then small allocations share a
        # range of 64 MiB. They are freed, and made anew in other sizes, while
        # their neighbours are in use.
        for away in ("mapped", "unmapped"):
            out, spans = self.run_traced(TRACED + """
import random
any = random.Random(7)
def make(mib):
    pointer = ctypes.c_uint64()
    assert cuda.cuMemAllocAsync(ctypes.byref(pointer),
                                ctypes.c_size_t(mib * MiB), None) == 0
    return pointer.value, mib
def give_back(what):
    assert cuda.cuMemFreeAsync(ctypes.c_uint64(what[0]), None) == 0
def fill(what, value):
    assert cuda.cuMemsetD8Async(ctypes.c_uint64(what[0]), ctypes.c_ubyte(value),
                                ctypes.c_size_t(what[1] * MiB), None) == 0
buffer = ctypes.create_string_buffer(80 * MiB)
def holds(what, value):
    assert cuda.cuMemcpyDtoH_v2(buffer, ctypes.c_uint64(what[0]),
                                ctypes.c_size_t(what[1] * MiB)) == 0
    return ctypes.string_at(buffer, what[1] * MiB) == bytes([value]) * (what[1] * MiB)
large = [make(80) for _ in range(7)]
give_back(large.pop())
parts = [make(any.randint(3, 12)) for _ in range(16)]
lowest = min(at for at, _ in parts)
print(sorted(at - lowest < 64 * MiB for at, _ in parts).count(True) > 4)
for which, each in enumerate(large):
    fill(each, 200 + which)
values = {}
def have_moved():
    moved = {int(span["args"]["address"], 16) for span in spans()
             if span["name"] in ("fetch", "write back")}
    return len([at for at in moved if 0 <= at - lowest < 64 * MiB]) > 1
end = time.monotonic() + 120
for round in itertools.count():
    if round >= 24 and (have_moved() or time.monotonic() > end):
        break
    fill(large[round % 6], 200 + round % 6)
    for i in range(16):
        if i in values and (round + i) % 4 == 0:
            assert holds(parts[i], values[i]), (round, i)
        if any.randrange(6) == 0:
            give_back(parts[i])
            parts[i] = make(any.randint(3, 12))
        values[i] = (round * 16 + i) % 199
        fill(parts[i], values[i])
for i in range(16):
    assert holds(parts[i], values[i]), i
for which, each in enumerate(large):
    assert holds(each, 200 + which), which
print(have_moved())
""", EMUV_PHYSICAL="160M", EMUV_VIRTUAL="800M", EMUV_MOVE="always",
                                         EMUV_SIM_VRAM="256M",
                                         EMUV_AWAY=away)
            self.assertEqual(out, ["True", "True"], away)
            self.assertLessEqual({"fetch", "write back"},
                                 {span["name"] for span in spans})

    def ahead(self, lag, uses, until):
        """A program that hardly ever waits. Each piece of work begins up to
        @p lag microseconds late, and a block has several @p uses. It goes round
        until the expression holds of a round, with: how much it had in hand at
        @p most, its @p waits, and how often it @p waited before.
        @return whether that was so within ten minutes"""
        out, _ = self.run_traced(TRACED + f"""
blocks = [alloc(4)[1] for _ in range(8)]
in_hand, part, waited = [], 4 * MiB // {uses}, 0
end = time.monotonic() + 600
for value in itertools.count():
    most = 0
    if value % 8 == 3: # how long it takes is known
        assert cuda.cuCtxSynchronize() == 0
    for place in (block.value + use * part
                  for block in blocks for use in range({uses})):
        assert cuda.cuMemsetD8Async(ctypes.c_uint64(place),
                                    ctypes.c_ubyte(value % 256),
                                    ctypes.c_size_t(part), None) == 0
        event = ctypes.c_void_p()
        assert cuda.cuEventCreate(ctypes.byref(event), 0) == 0
        assert cuda.cuEventRecord(event, None) == 0
        in_hand.append(event)
        while in_hand and cuda.cuEventQuery(in_hand[0]) == 0:
            assert cuda.cuEventDestroy_v2(in_hand.pop(0)) == 0
        most = max(most, len(in_hand))
    waits = sum(span["name"] == "ahead" for span in spans()) - waited
    if {until} or time.monotonic() > end:
        break
    waited += waits
print({until})
buffer = ctypes.create_string_buffer(4 * MiB)
for block in blocks:
    assert cuda.cuMemcpyDtoH_v2(buffer, block,
                                ctypes.c_size_t(4 * MiB)) == 0
    assert buffer.raw == bytes([value % 256]) * (4 * MiB)
""", EMUV_PHYSICAL="28M", EMUV_VIRTUAL="48M", EMUV_MOVE="always",
                                 EMUV_SIM_LAG=str(lag))
        return out == ["True"]

    def test_where_memory_moves_a_program_runs_ahead_only_so_far(self):
        # A round is 128 works. On a busy machine a program may be held back in
        # vain at first.
        self.assertTrue(self.ahead(lag=3000, uses=16,
                                   until="waited > 0 and most < 100"))

    def test_what_does_not_end_is_seldom_waited_for(self):
        # A round is 8 works. Waits that succeed may follow each other.
        self.assertTrue(self.ahead(
            lag=60000, uses=1, until="waited > 0 and waits == 0 and most > 4"))

    def test_a_program_may_end_while_its_work_never_does(self):
        out, _ = self.run_program("""
import time
stream = ctypes.c_void_p()
assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
assert cuda.cuLaunchHostFunc(stream, ctypes.CDLL(None).pause, None) == 0
assert alloc(40)[0] == 0 # from here on memory would move
time.sleep(0.2)
print("ends", flush=True)
""", EMUV_PHYSICAL="32M", EMUV_VIRTUAL="32M", EMUV_STORE="numa", EMUV_MOVE="1")
        self.assertEqual(out, ["ends"])

    def test_a_trace_is_whole_json_with_counters_however_its_program_ends(self):
        program = TRACED + """
blocks = [alloc(4)[1] for _ in range(12)]
said = False
while True:
    for block in blocks:
        assert cuda.cuMemsetD8Async(block, ctypes.c_ubyte(1),
                                    ctypes.c_size_t(4 * MiB), None) == 0
    assert cuda.cuCtxSynchronize() == 0
    if not said and len(fetched()) > 8:
        print("moves", flush=True)
        said = True
"""
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGABRT):
            with tempfile.NamedTemporaryFile() as trace:
                with self.start(program, EMUV_PHYSICAL="24M",
                                EMUV_VIRTUAL="64M", EMUV_MOVE="1",
                                EMUV_TRACE=trace.name) as process:
                    self.assertEqual(process.stdout.readline(), "moves\n")
                    process.send_signal(number)
                    self.assertEqual(process.wait(timeout=LIMIT_S), -number)
                events = json.loads(
                    pathlib.Path(trace.name).read_text(encoding="ascii"))
            counters = [each for each in events if each["ph"] == "C"]
            self.assertEqual({each["name"] for each in counters},
                             {"VRAM", "system RAM", "link to VRAM",
                              "link to RAM"})
            of = {each["name"]: [] for each in counters}
            for each in counters:
                of[each["name"]] += each["args"].values()
            self.assertLessEqual(max(of["VRAM"]), 24 << 20)
            self.assertGreater(max(of["VRAM"]), 0)
            self.assertGreaterEqual(max(of["system RAM"]), 24 << 20)
            self.assertGreater(max(of["link to VRAM"]), 0)

    def test_without_a_schedule_what_is_used_most_comes_to_vram(self):
        with tempfile.NamedTemporaryFile() as trace:
            out, err = self.run_program(TRACED + """
import random
order = random.Random(3)
blocks = [alloc(4)[1] for _ in range(8)]
wanted = [bytearray(4 * MiB) for _ in blocks]
# Ever new addresses: no two steps are alike.
def use(index, first=None):
    if first is None:
        first = order.randrange(1, 4096) * 512
    value = order.randrange(256)
    size = 4 * MiB - first
    assert cuda.cuMemsetD8Async(ctypes.c_uint64(blocks[index].value + first),
                                ctypes.c_ubyte(value), ctypes.c_size_t(size),
                                None) == 0
    wanted[index][first:] = bytes([value]) * size
for index in range(8):
    use(index, 0)
# The last two, in system RAM, nine times as often as all others together.
end = time.monotonic() + 120
for turn in itertools.count():
    for _ in range(8):
        use(order.choice((6, 7)) if order.random() < 0.9 else order.randrange(6))
    assert cuda.cuCtxSynchronize() == 0
    time.sleep(0.002 * (1 + min(turn, 400) // 20))
    # Others come, too, when they are used.
    came = {blocks[6].value, blocks[7].value} <= set(fetched())
    if came or time.monotonic() > end:
        break
print(came)
buffer = ctypes.create_string_buffer(4 * MiB)
for block, held in zip(blocks, wanted):
    assert cuda.cuMemcpyDtoH_v2(buffer, block,
                                ctypes.c_size_t(4 * MiB)) == 0
    assert buffer.raw == held
""", EMUV_PHYSICAL="16M", EMUV_VIRTUAL="48M", EMUV_MOVE="1",
                                        EMUV_TRACE=trace.name)
        self.assertEqual(out, ["True"], err)

    def test_what_is_away_is_mapped_once_it_is_wanted(self):
        program = TRACED + inspect.getsource(left_unmapped) + """
blocks = [alloc(4)[1] for _ in range(16)]
def go_round(value):
    for block in blocks:
        assert cuda.cuMemsetD8Async(block, ctypes.c_ubyte(value), SIZE, None) == 0
    assert cuda.cuCtxSynchronize() == 0
SIZE = ctypes.c_size_t(4 * MiB)
buffer = ctypes.create_string_buffer(4 * MiB)
end = time.monotonic() + 120
for turn in itertools.count():
    value = turn % 256
    go_round(value)
    late = time.monotonic() > end
    if not late and (turn <= 20 or len(fetched()) <= 40):
        continue
    time.sleep(0.05)
    for block in reversed(blocks):
        assert cuda.cuMemcpyDtoH_v2(buffer, block, SIZE) == 0
        assert buffer.raw == bytes([value]) * (4 * MiB)
    # On a busy machine all may be there by now.
    if (late or os.environ["EMUV_AWAY"] == "mapped" or
            left_unmapped(spans())[1]):
        break
"""
        for away, leaves in (("unmapped", True), ("mapped", False)):
            with self.subTest(away):
                _, spans = self.run_traced(
                    program, EMUV_PHYSICAL="32M", EMUV_VIRTUAL="96M",
                    EMUV_MOVE="always", EMUV_AWAY=away)
                self.assertIn("fetch", [span["name"] for span in spans])
                # While the schedule does not predict, units are mapped as they
                # leave. On a busy machine that happens now and then.
                left, again = left_unmapped(spans)
                self.assertEqual((bool(left), bool(again)), (leaves, leaves))

    def test_where_moving_is_hardly_faster_memory_is_arranged_once(self):
        out, _ = self.run_traced(TRACED + """
blocks = [alloc(4)[1] for _ in range(16)]
held = [0] * len(blocks)
def go_round(value):
    # Of another kind in time: if the machine stood still while memory did, that
    # has decided it for this kind.
    for index in range((16, 12, 14)[value // 64 % 3]):
        assert cuda.cuMemsetD8Async(blocks[index], ctypes.c_ubyte(value % 256),
                                    ctypes.c_size_t(4 * MiB), None) == 0
        held[index] = value % 256
    assert cuda.cuCtxSynchronize() == 0
def arrangements():
    # The addresses of what moved while memory was arranged, for each time.
    all, now = [], None
    for span in sorted((span for span in spans() if "ts" in span),
                       key=lambda span: span["ts"]):
        if span["name"].endswith("from here"):
            now = [] if span["name"] == "is arranged from here" else None
            all += [now] if now is not None else []
        elif now is not None and span["name"] in ("fetch", "drop", "write back"):
            now.append(span["args"]["address"])
    return all
def is_arranged():
    with open(os.environ["EMUV_TRACE"]) as trace:
        return "is arranged from here" in trace.read()
end = time.monotonic() + 120
for value in itertools.count():
    go_round(value)
    # The trace grows, and is read after each round.
    if (is_arranged() and any(arrangements())) or time.monotonic() > end:
        break
for _ in range(24):
    go_round(value)
print(json.dumps(arrangements(), separators=(",", ":")))
buffer = ctypes.create_string_buffer(4 * MiB)
for block, value in zip(blocks, held):
    assert cuda.cuMemcpyDtoH_v2(buffer, block,
                                ctypes.c_size_t(4 * MiB)) == 0
    assert buffer.raw == bytes([value]) * (4 * MiB)
""", EMUV_PHYSICAL="32M", EMUV_VIRTUAL="96M", EMUV_MOVE="1")
        arrangements = json.loads(out[0])
        self.assertTrue(any(arrangements))
        for moved in arrangements:
            # A launch may have been waiting for one that then leaves.
            self.assertLessEqual(len(moved), len(set(moved)) + 1)

    def run_moving(self, text, makers=0, **settings):
        """A program of 32 MiB in 24, whose memory moves. Its moves_on() tells
        if it does, and is_right() if each block has its own content."""
        with tempfile.NamedTemporaryFile() as trace:
            return self.use_memory_of_others(TRACED + r"""
SIZE = ctypes.c_size_t(4 * MiB)
blocks, held = [alloc(4)[1] for _ in range(8)], {}
def go_round(value):
    for number, block in enumerate(blocks):
        held[number] = (value + number) % 256
        assert cuda.cuMemsetD8Async(block, ctypes.c_ubyte(held[number]), SIZE,
                                    None) == 0
def moves_on(beside=lambda value: None):
    before, end = len(fetched()), time.monotonic() + 120
    for value in itertools.count():
        go_round(value)
        beside(value)
        assert cuda.cuCtxSynchronize() == 0
        time.sleep(0.001 * min(value, 100))
        if len(fetched()) > before + 8:
            return True
        if time.monotonic() > end:
            return False
def is_right():
    buffer = ctypes.create_string_buffer(4 * MiB)
    for number, block in enumerate(blocks):
        assert cuda.cuMemcpyDtoH_v2(buffer, block, SIZE) == 0
        if buffer.raw != bytes([held[number]]) * (4 * MiB):
            return False
    return True
""" + text, makers, EMUV_PHYSICAL="24M", EMUV_VIRTUAL="64M",
                EMUV_MOVE="always", EMUV_TRACE=trace.name, **settings)

    def test_memory_of_others_is_right_while_the_programs_own_moves(self):
        out, err = self.run_moving("""
theirs = opened(HANDLES[0])[1]
made, at = ctypes.c_uint64(), ctypes.c_uint64()
zero, size = ctypes.c_ulonglong(0), ctypes.c_size_t(20 * MiB)
assert cuda.cuMemImportFromShareableHandle(
    ctypes.byref(made), ctypes.c_void_p(os.open(FILES[0], os.O_RDWR)), 1) == 0
assert cuda.cuMemAddressReserve(ctypes.byref(at), size, zero, zero, zero) == 0
assert cuda.cuMemMap(at, size, ctypes.c_size_t(0), made, zero) == 0
access = (ctypes.c_int * 3)(1, 0, 3) # the first device reads and writes
assert cuda.cuMemSetAccess(at, size, access, ctypes.c_size_t(1)) == 0
wrong = []
def beside(value):
    # From the one to the other, by way of memory that moves.
    assert cuda.cuMemcpyDtoDAsync_v2(blocks[3], theirs, SIZE, None) == 0
    assert cuda.cuMemcpyDtoDAsync_v2(at, blocks[3], SIZE, None) == 0
    go_round(value)
    if first_word(at) != "0x600d" or first_word(theirs) != "0x600d":
        wrong.append(value)
print(moves_on(beside), wrong, is_right())
""", 1)
        self.assertEqual(out, ["True", "[]", "True"])
        self.assertNotIn("memory stays", err)

    def test_contexts_beside_stop_what_they_must_and_no_more(self):
        out, err = self.run_moving("""
print(moves_on())
second, there = ctypes.c_void_p(), ctypes.c_void_p()
# On another device: all that it does.
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(there), 1) == 0
assert cuda.cuCtxSetCurrent(there) == 0
large = alloc(40)[1]
assert cuda.cuMemsetD8_v2(large, ctypes.c_ubyte(9),
                          ctypes.c_size_t(40 * MiB)) == 0
assert cuda.cuCtxSetCurrent(context) == 0
print(moves_on(), is_right())
# On the same device: memory alone, which may be used from the first one.
assert cuda.cuCtxCreate_v2(ctypes.byref(second), 0, 0) == 0
blocks.append(alloc(4)[1])
assert cuda.cuCtxSetCurrent(context) == 0
print(moves_on(), is_right())
print("quiet", file=sys.stderr)
# Its first work ends movement of this device's memory.
assert cuda.cuCtxSetCurrent(second) == 0
assert cuda.cuMemsetD8_v2(blocks[1], ctypes.c_ubyte(77), SIZE) == 0
held[1] = 77
print(is_right())
assert cuda.cuCtxSetCurrent(context) == 0
go_round(3)
print(is_right())
assert cuda.cuCtxSetCurrent(there) == 0
byte = ctypes.c_ubyte()
assert cuda.cuMemcpyDtoH_v2(ctypes.byref(byte), large,
                            ctypes.c_size_t(1)) == 0
print(byte.value)
""", EMUV_SIM_DEVICES="2")
        self.assertEqual(out, ["True"] * 7 + ["9"])
        before, after = err.split("quiet\n")
        self.assertNotIn("memory stays", before)
        self.assertEqual(after.count("memory stays where it is from now on: "
                                     "the program uses several contexts on one "
                                     "device\n"), 1, after)

    def test_handles_of_the_programs_own_stop_nothing(self):
        out, err = self.run_moving("""
made, at = ctypes.c_uint64(), ctypes.c_uint64()
zero, size = ctypes.c_ulonglong(0), ctypes.c_size_t(8 * MiB)
properties = (ctypes.c_int * 8)(1, 0, 1, 0) # pinned, of the first device
assert cuda.cuMemCreate(ctypes.byref(made), size, properties, zero) == 0
assert cuda.cuMemAddressReserve(ctypes.byref(at), size, zero, zero, zero) == 0
access = (ctypes.c_int * 3)(1, 0, 3) # the first device reads and writes
wrong = []
def beside(value):
    # As an allocator does that grows its segments.
    assert cuda.cuMemMap(at, size, ctypes.c_size_t(0), made, zero) == 0
    assert cuda.cuMemSetAccess(at, size, access, ctypes.c_size_t(1)) == 0
    assert cuda.cuMemcpyDtoDAsync_v2(at, blocks[3], SIZE, None) == 0
    go_round(value + 1)
    if int(first_word(at), 16) & 255 != (value + 3) % 256:
        wrong.append(value)
    assert cuda.cuMemUnmap(at, size) == 0
print(moves_on(beside), wrong, is_right())
""")
        self.assertEqual(out, ["True", "[]", "True"])
        self.assertNotIn("memory stays", err)

    def test_peer_access_stops_the_memory_that_it_opens_and_no_other(self):
        out, err = self.run_moving("""
there = ctypes.c_void_p()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(there), 1) == 0
assert cuda.cuCtxSetCurrent(there) == 0
theirs = alloc(4)[1]
assert cuda.cuMemsetD8_v2(theirs, ctypes.c_ubyte(9), SIZE) == 0
assert cuda.cuCtxSetCurrent(context) == 0
print(moves_on())
# The first device reads and writes the other one's memory.
assert cuda.cuCtxEnablePeerAccess(there, 0) == 0
print(moves_on(), is_right())
assert cuda.cuMemcpyDtoD_v2(blocks[0], theirs, SIZE) == 0
held[0] = 9
print(is_right())
# The other way round.
assert cuda.cuCtxSetCurrent(there) == 0
assert cuda.cuCtxEnablePeerAccess(context, 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
moved = len(fetched())
for value in range(20):
    go_round(value)
    assert cuda.cuCtxSynchronize() == 0
print(len(fetched()) == moved, is_right())
""", EMUV_SIM_DEVICES="2")
        self.assertEqual(out, ["True"] * 6)
        # The reason is told once, however many devices it is about.
        self.assertEqual(err.count("memory stays where it is from now on: the "
                                   "program gives a device access to "
                                   "another's\n"), 1, err)

    def test_library_with_functions_that_nobody_follows_stops_movement(self):
        program = f"""
class Name(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 16)]
def name(byte):
    return Name.from_buffer_copy(bytes([byte]) * 16)
table = ctypes.c_void_p()
print(moves_on())
# As CUDA's runtime does, and so each program that has it.
assert cuda.cuGetExportTable(ctypes.byref(table), ctypes.byref(name(0x51))) == 0
assert cuda.cuGetExportTable(ctypes.byref(table), ctypes.byref(name(1))) != 0
print(moves_on())
optix = ctypes.CDLL({self.options.optix!r})
assert optix.take(ctypes.byref(table), ctypes.byref(name(1))) != 0
print(moves_on()) # there is no such table
print("quiet", file=sys.stderr)
for _ in range(2):
    assert optix.take(ctypes.byref(table), ctypes.byref(name(0x51))) == 0
go_round(5)
print(is_right())
"""
        out, err = self.run_moving(program)
        self.assertEqual(out, ["True"] * 4)
        before, after = err.split("quiet\n")
        self.assertNotIn("memory stays", before)
        self.assertEqual(after.count("emuV: memory stays where it is from now "
                                     "on: libnvoptix.so.1 uses memory by "
                                     "functions that nobody follows\n"), 1,
                         after)

    def test_a_program_that_becomes_another_takes_nothing_with_it(self):
        with tempfile.NamedTemporaryFile() as ledger:
            out, _ = self.run_program("""
import os
if len(sys.argv) == 1:
    assert alloc(40)[0] == 0
    code = open("/proc/self/cmdline").read().split(chr(0))[2]
    os.execv(sys.executable, [sys.executable, "-c", code, "again"])
print(*info(), alloc(88)[0])
""", EMUV_PHYSICAL="24M", EMUV_VIRTUAL="64M", EMUV_LEDGER=ledger.name)
        self.assertEqual(out, ["88", "88", "0"])

    def test_each_device_has_the_limits_for_itself(self):
        out, _ = self.run_program("""
print(alloc(88)[0], alloc(1)[0])
other = ctypes.c_void_p()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(other), 1) == 0
assert cuda.cuCtxSetCurrent(other) == 0
print(*info(), alloc(88)[0], alloc(1)[0])
""", EMUV_PHYSICAL="24M", EMUV_VIRTUAL="64M", EMUV_SIM_DEVICES="2")
        self.assertEqual(out, ["0", "2", "88", "88", "0", "2"])

    def count_contexts(self, text, **settings):
        """Each context takes 6 MiB, and NVML says so."""
        return self.run_program("""
import os, time
def another():
    made = ctypes.c_void_p()
    assert cuda.cuCtxCreate_v2(ctypes.byref(made), 0, 0) == 0
    return made
class Held(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong),
                ("parts", ctypes.c_uint * 2)]
nvml = ctypes.CDLL(os.environ["EMUV_LIBNVML"])
def used():
    count, held = ctypes.c_uint(8), (Held * 8)()
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v2(
        ctypes.c_void_p(1), ctypes.byref(count), held) == 0
    return sum(each.bytes // MiB for each in held[:count.value]
               if each.pid == os.getpid())
""" + text,
            EMUV_SIM_CONTEXT="6M", EMUV_LIBNVML=self.options.sim_nvml,
            **{"EMUV_PHYSICAL": "32M", "EMUV_VIRTUAL": "64M", **settings})

    def test_contexts_take_of_the_share(self):
        # 32 MiB and 64, less the context and a sixteenth of the share for code.
        out, err = self.count_contexts("""
print(info()[0])
second = another()
print(info()[0])
third = another()
print(info()[0])
assert cuda.cuCtxDestroy_v2(third) == 0
assert cuda.cuCtxDestroy_v2(second) == 0
assert cuda.cuCtxSetCurrent(context) == 0
print(info()[0])
""")
        self.assertEqual(out, ["88", "84", "78", "88"])
        self.assertEqual(err, "")

    def test_what_is_in_vram_stays_within_the_share_contexts_and_all(self):
        out, _ = self.count_contexts("""
for mib in (1, 9, 20, 1, 30, 1):
    assert alloc(mib)[0] == 0
    print(used())
""")
        self.assertLessEqual(max(map(int, out)), 32)
        self.assertGreater(max(map(int, out)), 28)

    def test_what_can_move_makes_way_for_a_context(self):
        program = """
context = ctypes.c_void_p()
assert cuda.cuCtxGetCurrent(ctypes.byref(context)) == 0
for mib in (16, 16, 16):
    assert alloc(mib)[0] == 0
full = used()
another()
print(full, used())
assert cuda.cuCtxSetCurrent(context) == 0
end = time.monotonic() + (120 if os.environ["EMUV_MOVE"] == "1" else 1)
while used() > 32 and time.monotonic() < end:
    time.sleep(0.02)
    info()
print(used())
"""
        # As far as it can: the second context is there before anything leaves.
        out, _ = self.count_contexts(program, EMUV_MOVE="0")
        self.assertEqual(out, ["30", "36", "36"])
        # On a busy machine something may have left before used() is asked.
        out, _ = self.count_contexts(program, EMUV_MOVE="1")
        self.assertLessEqual(int(out[2]), 32)

    def test_allocations_alone_count_where_that_is_asked_for(self):
        out, err = self.count_contexts("print(info()[0])",
                                       EMUV_CHARGE="allocations")
        self.assertEqual(out, ["96"])
        self.assertEqual(err, "")

    def test_a_share_smaller_than_a_context_is_said_and_memory_spills(self):
        out, err = self.count_contexts(
            "print(alloc(8)[0], alloc(1)[0], info()[0])", EMUV_PHYSICAL="4M")
        self.assertEqual(out, ["0", "0", "54"])
        self.assertRegex(err, r"(?m)^emuV: CUDA itself takes 6 MiB of VRAM, for "
                              r"which the share has 4 MiB: ")

    def test_contexts_of_several_processes_add_up(self):
        other = PROGRAM + "print(info()[0])"
        with tempfile.NamedTemporaryFile() as ledger:
            out, _ = self.count_contexts(f"""
import subprocess
alone = info()[0]
print(alone, subprocess.run([sys.executable, "-c", {other!r}], text=True,
                            capture_output=True, check=True).stdout)
""", EMUV_LEDGER=ledger.name)
        self.assertEqual(out, ["88", "80"])

    def nvml_limits(self, **settings):
        """NVML's answers about both cards, in MiB: limit and use of each."""
        with tempfile.NamedTemporaryFile() as ledger:
            out, _ = self.run_program("""
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
assert alloc(40)[0] == 0
for ordinal in range(2):
    memory = (ctypes.c_ulonglong * 3)()
    assert nvml.nvmlDeviceGetMemoryInfo(ctypes.c_void_p(ordinal + 1),
                                        ctypes.byref(memory)) == 0
    print(memory[0] // MiB, memory[2] // MiB)
""", LD_PRELOAD=self.preloaded(f"{self.options.preload}:{self.options.nvml}"),
                EMUV_LIBNVML=self.options.sim_nvml, EMUV_LEDGER=ledger.name,
                EMUV_VIRTUAL="64M", EMUV_CHARGE="allocations",
                EMUV_SIM_DEVICES="2", **settings)
        return [int(each) for each in out]

    def test_nvml_shows_of_a_card_that_lends_what_it_lends(self):
        both = {"EMUV_PHYSICAL": "24M", "EMUV_TIER": "peer:1=20M"}
        self.assertEqual(self.nvml_limits(EMUV_REPORT="physical", **both),
                         [24, 24, 20, 16])
        self.assertEqual(self.nvml_limits(EMUV_REPORT="total", **both),
                         [24 + 64, 24, 20 + 64, 16])

    def test_nvml_shows_a_card_without_a_limit_as_it_is(self):
        self.assertEqual(self.nvml_limits(EMUV_REPORT="physical",
                                          EMUV_SIM_VRAM="48M"),
                         [48, 40, 48, 0])

    def test_nvml_without_its_library_says_so(self):
        done = subprocess.run(
            [sys.executable, "-c", "import ctypes\n"
             "nvml = ctypes.CDLL('libnvidia-ml.so.1')\n"
             "print(nvml.nvmlInit_v2())"],
            env=self.environment(LD_PRELOAD=self.preloaded(self.options.nvml),
                                 EMUV_LIBNVML="/nonexistent"),
            text=True, check=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        self.assertEqual(done.stdout, "12\n")  # NVML_ERROR_LIBRARY_NOT_FOUND


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", dest="preload", required=True)
    parser.add_argument("--nvml", required=True)
    parser.add_argument("--sim-nvml", required=True)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--caching", required=True)
    parser.add_argument("--optix", required=True)
    parser.add_argument("--runtime", help="a sanitizer's, to preload as well")
    ProcessesTest.options, rest = parser.parse_known_args()
    for path in filter(None, vars(ProcessesTest.options).values()):
        if not pathlib.Path(path).is_file():
            sys.exit(f"{path}: no such file")
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
