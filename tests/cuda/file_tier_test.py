#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that use more than their VRAM and system RAM, with a file behind.

They run under the CUDA library, in front of the simulated driver."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

LIMIT_S = 240  # of a wait for an event, on a busy machine

PROGRAM = r"""
import ctypes, itertools, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
MiB = 1 << 20
SIZE = 4 * MiB
if (error := cuda.cuInit(0)) != 0:
    sys.exit(f"cuInit: {error}")
context = ctypes.c_void_p()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
blocks, values = [], []
def allocate():
    pointer = ctypes.c_uint64()
    error = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(SIZE))
    if error == 0:
        blocks.append(pointer)
        values.append(None)
    return error
def fill(i, value):
    assert cuda.cuMemsetD8Async(blocks[i], ctypes.c_ubyte(value),
                                ctypes.c_size_t(SIZE), None) == 0
    values[i] = value
def check(i):
    bytes = ctypes.create_string_buffer(SIZE)
    assert cuda.cuMemcpyDtoH_v2(bytes, blocks[i], ctypes.c_size_t(SIZE)) == 0
    assert bytes.raw == bytes_of(values[i]), i
def bytes_of(value):
    return value.to_bytes(1, "little") * SIZE
"""

# Fills all that it gets, changes some of it, and reads all again.
ROUNDS = PROGRAM + r"""
while allocate() == 0:
    pass
print(len(blocks), flush=True)
for i in range(len(blocks)):
    fill(i, i + 1)
for turn in range(4):
    for i in range(len(blocks)):
        check(i)
        if i % 3 == turn % 3:
            fill(i, (i + 17 * turn) % 256)
print("right", flush=True)
sys.stdin.read()
for each in blocks:
    assert cuda.cuMemFree_v2(each) == 0
"""

# Goes round until it is killed.
ENDLESS = PROGRAM + r"""
while allocate() == 0:
    pass
print(len(blocks), flush=True)
for turn in itertools.count():
    for i in range(len(blocks)):
        if turn > 0:
            check(i)
        fill(i, (i + turn) % 256)
"""

# Asks for no more than VRAM and system RAM have, and takes all of it.
ALL_IN_MEMORY = PROGRAM + r"""
for i in range(8):
    assert allocate() == 0, i
    fill(i, i)
for i in range(8):
    check(i)
print("right", flush=True)
"""

# A child has no file: what it does leaves that as it is.
FORKS = PROGRAM + r"""
while allocate() == 0:
    pass
for i in range(len(blocks)):
    fill(i, i + 1)
assert cuda.cuCtxSynchronize() == 0
def unnamed():
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if path.startswith(os.environ["FOLDER"]) and "deleted" in path:
            found.add(fd)
    with open("/proc/self/maps") as maps:
        found.update(line for line in maps if os.environ["FOLDER"] in line)
    return found
assert unnamed()
if (child := os.fork()) == 0:
    os._exit(1 if unnamed() else 0)
assert os.waitpid(child, 0)[1] == 0
for i in range(len(blocks)):
    check(i)
print("right", flush=True)
"""

# A graph's launches go on while other memory is in the file, also once nothing
# has moved for a second.
GRAPHS = PROGRAM + r"""
import time
while allocate() == 0:
    pass
for i in range(len(blocks)):
    fill(i, i + 1)
stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
launchable = ctypes.c_void_p()
assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
assert cuda.cuStreamBeginCapture_v2(stream, 2) == 0
for i in (0, len(blocks) - 1):
    assert cuda.cuMemsetD8Async(blocks[i], ctypes.c_ubyte(77),
                                ctypes.c_size_t(SIZE), stream) == 0
assert cuda.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
assert cuda.cuGraphInstantiateWithFlags(ctypes.byref(launchable), graph,
                                        ctypes.c_ulonglong(0)) == 0
for turn in range(3):
    for i in (0, len(blocks) - 1):
        fill(i, turn)
        check(i)
    time.sleep(1.2)
    assert (error := cuda.cuGraphLaunch(launchable, stream)) == 0, error
    assert cuda.cuStreamSynchronize(stream) == 0
    for i in (0, len(blocks) - 1):
        values[i] = 77
        check(i)
for i in range(len(blocks)):
    check(i)
print("right", flush=True)
"""


class FileTierTest(unittest.TestCase):
    options = None

    def setUp(self):
        # On a disk, where data can pass the page cache by.
        folder = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, text, tier=None, **settings):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("EMUV_")}
        environment.update(
            LD_PRELOAD=":".join(filter(None, (self.options.runtime,
                                              self.options.cuda_library))),
            EMUV_LIBCUDA=self.options.driver, EMUV_SIM_VRAM="64M",
            EMUV_PHYSICAL="16M", EMUV_MOVE="always",
            EMUV_TIER=tier or f"ram=16M,file:{self.folder}=128M")
        environment.update(settings)
        process = subprocess.Popen(
            [sys.executable, "-c", text], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def finish(self, process):
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 0, err)
        return out, err

    def tiers(self, process):
        done = subprocess.run(
            [self.options.emuvctl, "why", "--json", str(process.pid)],
            text=True, stdout=subprocess.PIPE, check=True)
        [one] = json.loads(done.stdout)["processes"]
        return one["devices"][0]["tiers"]

    def await_disk_use(self, process, folder):
        """Waits until the process has written to a file in that folder."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            self.assertIsNone(process.poll())
            for fd in pathlib.Path(f"/proc/{process.pid}/fd").iterdir():
                try:
                    if (os.readlink(fd).startswith(str(folder)) and
                            os.stat(fd).st_blocks > 0):
                        return
                except FileNotFoundError:
                    pass  # it was closed meanwhile
            time.sleep(0.05)
        self.fail("nothing was written to the file")

    def test_bytes_are_right_beyond_vram_and_system_ram(self):
        process = self.start(ROUNDS)
        blocks = int(process.stdout.readline() or 0)
        # 16 MiB each in VRAM and in system RAM, and the file but for a part.
        self.assertEqual(blocks, 4 + 4 + 24)
        self.assertEqual(process.stdout.readline(), "right\n",
                         process.poll() is not None and process.stderr.read())
        self.assertEqual(list(self.folder.iterdir()), [])
        if self.options.emuvctl:
            vram, ram, file = self.tiers(process)
            self.assertEqual([each["tier"] for each in (vram, ram, file)],
                             ["vram", "ram", "file"])
            self.assertEqual(ram["limit_bytes"], 16 << 20)
            self.assertEqual(file["limit_bytes"], 96 << 20)
            self.assertGreater(file["bytes"], 0)
            self.assertGreater(file["fetched_bytes"], 0)
            self.assertGreater(file["evicted_bytes"], 0)
        _, err = self.finish(process)
        self.assertNotIn("work is refused", err)
        self.assertIn("112 MiB beyond it", err)

    def test_the_end_tells_what_the_file_held(self):
        process = self.start(ROUNDS, EMUV_STATS=str(self.folder / "stats"))
        _, err = self.finish(process)
        self.assertRegex(err, r"(?m)^emuV:   file .* 96 MiB ")

    def test_a_killed_process_leaves_no_file_and_an_exact_ledger(self):
        ledger = self.folder / "ledger"
        ledger.touch()
        files = self.folder / "files"
        files.mkdir()
        settings = {"EMUV_LEDGER": str(ledger)}
        process = self.start(ENDLESS, tier=f"ram=16M,file:{files}=128M",
                             **settings)
        self.assertEqual(process.stdout.readline(), "32\n")
        self.await_disk_use(process, files)
        self.assertEqual(list(files.iterdir()), [], "it has no name")
        process.kill()
        process.wait(LIMIT_S)
        self.assertEqual(list(files.iterdir()), [])
        for _ in range(2):
            out, _ = self.finish(self.start(
                ALL_IN_MEMORY, tier="ram=16M", **settings))
            self.assertEqual(out, "right\n")

    def test_a_child_leaves_the_file_to_its_parent(self):
        out, _ = self.finish(self.start(FORKS, FOLDER=str(self.folder)))
        self.assertEqual(out, "right\n")

    def test_a_graph_runs_while_other_memory_is_in_the_file(self):
        out, err = self.finish(self.start(GRAPHS))
        self.assertEqual(out, "right\n")
        self.assertNotIn("work is refused", err)

    def test_a_folder_that_is_not_there_is_named(self):
        for folder, why in ((self.folder / "none", "No such file or directory"),
                            (pathlib.Path("/proc"), "")):
            process = self.start(ALL_IN_MEMORY,
                                 tier=f"ram=16M,file:{folder}=128M")
            _, err = process.communicate(timeout=LIMIT_S)
            self.assertEqual(process.returncode, 1)
            self.assertIn(f"emuV: EMUV_TIER=file:{folder}: {why}", err)

    def test_it_stands_in_the_place_of_tiers_by_default(self):
        # Movement by default will do.
        process = self.start(ROUNDS, EMUV_MOVE="", EMUV_MOVE_DEFAULT="always",
                             EMUV_TIER_DEFAULT="peer:1=12M")
        self.assertEqual(process.stdout.readline(), "32\n")
        self.assertEqual(process.stdout.readline(), "right\n")
        if self.options.emuvctl:
            self.assertEqual([each["tier"] for each in self.tiers(process)],
                             ["vram", "ram", "file"])
        _, err = self.finish(process)
        self.assertNotIn("is not used", err)

    def test_a_file_that_cannot_serve_is_refused(self):
        for settings, why in (
                ({"EMUV_TIER": f"ram=16M,file:{self.folder}=48M"},
                 "48 MiB are too few"),
                ({"EMUV_TIER": f"file:{self.folder}=128M"},
                 "by way of system RAM"),
                ({"EMUV_SIM_DEVICES": "2"}, "it serves one card")):
            with self.subTest(settings):
                process = self.start(ALL_IN_MEMORY, **settings)
                _, err = process.communicate(timeout=LIMIT_S)
                self.assertEqual(process.returncode, 1)
                self.assertIn(why, err)

    def test_settings_that_do_not_go_with_a_file_are_refused(self):
        for settings, why in (
                ({"EMUV_MOVE": "0"}, "EMUV_MOVE=1 is missing"),
                ({"EMUV_MOVE": "check"}, "EMUV_MOVE=1 is missing"),
                ({"EMUV_AWAY": "mapped"}, "EMUV_AWAY=unmapped is missing"),
                ({"EMUV_TRUST": "all"}, "EMUV_AWAY=unmapped is missing"),
                ({"EMUV_VIRTUAL": "1G"}, "and so has EMUV_VIRTUAL"),
                ({"EMUV_TIER_DEFAULT": f"file:{self.folder}=128M"},
                 "a default may name cards alone")):
            with self.subTest(settings):
                process = self.start(ALL_IN_MEMORY, **settings)
                _, err = process.communicate(timeout=LIMIT_S)
                self.assertEqual(process.returncode, 1)
                self.assertIn(why, err)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", dest="cuda_library", required=True)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--emuvctl")
    parser.add_argument("--runtime")
    FileTierTest.options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
