#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""`emuvctl why` on running programs under the CUDA library, in front of the
simulated driver."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

LIMIT_S = 240 # of a wait for an event, on a busy machine

PROGRAM = r"""
import ctypes, itertools, os, select, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
MiB = 1 << 20
def alloc(mib):
    pointer = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer),
                              ctypes.c_size_t(mib * MiB)) == 0
    return pointer
assert cuda.cuInit(0) == 0
context = ctypes.c_void_p()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
def go_round(value):
    for block in blocks:
        assert cuda.cuMemsetD8Async(block, ctypes.c_ubyte(value % 256),
                                    ctypes.c_size_t(4 * MiB), None) == 0
def may_go_on():
    return not select.select([sys.stdin], [], [], 0)[0]
"""

# Goes round until its input ends.
ROUNDS = PROGRAM + r"""
blocks = [alloc(4) for _ in range(8)]
print("ready", flush=True)
for value in itertools.count():
    if not may_go_on():
        break
    go_round(value)
    assert cuda.cuCtxSynchronize() == 0
"""

HOLDS = PROGRAM + r"""
blocks = [alloc(4) for _ in range(8)]
go_round(7)
assert cuda.cuCtxSynchronize() == 0
print("ready", flush=True)
sys.stdin.read()
"""

# Each round has a kernel that nobody trusts, of two milliseconds.
UNTRUSTED = PROGRAM + r"""
CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
class Parameter(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_size_t), ("size", ctypes.c_size_t)]
class Kernel(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("run", CALL),
                ("params", ctypes.POINTER(Parameter)),
                ("param_count", ctypes.c_size_t)]
class Module(ctypes.Structure):
    _fields_ = [("magic", ctypes.c_char * 8),
                ("kernels", ctypes.POINTER(Kernel)),
                ("kernel_count", ctypes.c_size_t),
                ("globals", ctypes.c_void_p),
                ("global_count", ctypes.c_size_t)]
run = CALL(lambda launch, values: time.sleep(0.002))
kernel = Kernel(b"stroll_through_memory", run, None, 0)
image = Module(b"EMUVSIM1", ctypes.pointer(kernel), 1, None, 0)
module, function = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuModuleLoadData(ctypes.byref(module), ctypes.byref(image)) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(function), module,
                                b"stroll_through_memory") == 0
blocks = [alloc(4) for _ in range(8)]
print("ready", flush=True)
for value in itertools.count():
    if not may_go_on():
        break
    go_round(value)
    assert cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None,
                               None) == 0
    assert cuda.cuCtxSynchronize() == 0
"""

MOVING = {"EMUV_PHYSICAL": "16M", "EMUV_VIRTUAL": "48M",
          "EMUV_MOVE": "always"}


class WhyTest(unittest.TestCase):
    options = None

    def start(self, text, shell=(), **settings):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("EMUV_")}
        environment.update(
            LD_PRELOAD=":".join(filter(None, (self.options.runtime,
                                              self.options.preload))),
            EMUV_LIBCUDA=self.options.driver, EMUV_SIM_VRAM="64M")
        environment.update(settings)
        process = subprocess.Popen(
            [*shell, sys.executable, "-c", text], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        self.addCleanup(self.end, process)
        self.assertEqual(process.stdout.readline(), "ready\n",
                         "" if process.poll() is None else
                         process.stderr.read())
        return process

    def end(self, process):
        """Has it end. @return what it said on stderr"""
        if process.stdin.closed:
            return ""
        _, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 0, err)
        return err

    def why(self, *words, status=0, **how):
        done = subprocess.run(
            [self.options.emuvctl, "why", *map(str, words)], check=False,
            text=True, capture_output=True, timeout=LIMIT_S, **how)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def device(self, process):
        """The figures of its only device."""
        [one] = json.loads(self.why("--json", process.pid))["processes"]
        self.assertEqual(one["pid"], process.pid)
        [device] = one["devices"]
        return device

    def wait_for(self, process, holds):
        """Its figures, once that holds of them."""
        end = time.monotonic() + LIMIT_S
        while True:
            device = self.device(process)
            if holds(device):
                return device
            self.assertLess(time.monotonic(), end, device)
            self.assertIsNone(process.poll())
            time.sleep(0.05)

    def told(self, process, *parts):
        """The text of its figures, once that has all these parts: a program
        that stands still for a moment may have no step just then."""
        end = time.monotonic() + LIMIT_S
        while True:
            text = self.why(process.pid)
            missing = [part for part in parts if part not in text]
            if not missing:
                return text
            self.assertLess(time.monotonic(), end, (missing, text))
            self.assertIsNone(process.poll())
            time.sleep(0.05)

    def test_of_a_program_whose_memory_moves_each_step_is_told(self):
        process = self.start(ROUNDS, **MOVING)
        device = self.wait_for(
            process, lambda now: now["step"] and now["crossing"] and
            now["step"]["round_launches"] == 8 and
            now["step"]["fetched_bytes"] > 0)
        self.assertEqual(device["state"], "moving")
        self.assertEqual(device["share_bytes"], 16 << 20)
        self.assertGreaterEqual(device["vram_bytes"], 12 << 20)
        self.assertLessEqual(device["most_vram_bytes"], 16 << 20)
        self.assertEqual(device["card_bytes"], 64 << 20)
        self.assertLessEqual(device["in_ram_bytes"], 32 << 20)
        step = device["step"]
        self.assertGreaterEqual(step["launches"], 8)
        # The program runs ahead of the step whose end is seen.
        self.assertAlmostEqual(step["used_bytes"] / (32 << 20), 1, delta=0.25)
        parts = sum(step[name + "_ns"] for name in
                    ("computing", "link", "mapping", "standing", "program"))
        self.assertAlmostEqual(parts / step["took_ns"], 1, delta=0.01)
        self.assertGreater(step["program_ns"], 0)
        self.assertLessEqual(len(device["crossing"]), 5)
        for each in device["crossing"]:
            self.assertEqual(each["bytes"], 4 << 20)
            self.assertGreater(each["fetched_bytes"] + each["evicted_bytes"],
                               0)
        text = self.told(process, "python", str(process.pid),
                         "it moves ahead of its use", "a step takes",
                         "8 launches each", "computing", "to VRAM",
                         "crosses most")
        for line in text.splitlines():
            self.assertLess(len(line), 80, line)

    def test_where_everything_fits_that_is_the_answer(self):
        process = self.start(ROUNDS, EMUV_PHYSICAL="48M", EMUV_VIRTUAL="48M",
                             EMUV_MOVE="always")
        text = self.why(process.pid)
        self.assertIn("all of its memory is in VRAM", text)
        self.assertNotIn("advice", text)
        self.assertIsNone(self.device(process)["advice"])

    def test_without_movement_it_is_told_how_much_lies_in_ram(self):
        process = self.start(HOLDS, EMUV_PHYSICAL="16M", EMUV_VIRTUAL="48M")
        device = self.device(process)
        self.assertEqual(device["ram_bytes"], 16 << 20)
        self.assertIn("try --move: 16 MiB lie in system RAM", device["advice"])
        self.assertIn("raise the share by 16 MiB", device["advice"])
        self.assertIn("nothing moves", self.why(process.pid))

    def test_the_advice_fits_the_settings_in_force(self):
        for settings, movement, line, advice in (
                ({"EMUV_MOVE": "0"}, "off", "--move=off", "Without --move=off"),
                ({"EMUV_STORE": "pages"}, "pages", "--store pages", "without --store pages"),
                # A default gives way.
                ({"EMUV_STORE": "pages", "EMUV_MOVE_DEFAULT": "1"}, "pages", "--store pages",
                 "without --store pages"),
                ({"EMUV_MOVE": "0", "EMUV_MOVE_DEFAULT": "1"}, "off", "--move=off",
                 "Without --move=off"),
                ({"EMUV_SIM_HOST_NUMA": "0"}, "impossible", "no HOST_NUMA memory",
                 "raise the share")):
            with self.subTest(**settings):
                process = self.start(HOLDS, EMUV_PHYSICAL="16M", EMUV_VIRTUAL="48M", **settings)
                [one] = json.loads(self.why("--json", process.pid))["processes"]
                self.assertEqual((one["moves"], one["movement"]), (False, movement))
                [device] = one["devices"]
                self.assertNotIn("try --move", device["advice"])
                self.assertIn(advice, device["advice"])
                self.assertIn(f"nothing moves ({line})", self.why(process.pid))

    def test_memory_moves_by_default_where_its_user_says_nothing_else(self):
        process = self.start(HOLDS, EMUV_PHYSICAL="16M", EMUV_VIRTUAL="48M",
                             EMUV_MOVE_DEFAULT="1")
        [one] = json.loads(self.why("--json", process.pid))["processes"]
        self.assertEqual((one["moves"], one["movement"]), (True, "possible"))

    def test_where_movement_is_the_default_and_cannot_be_no_variable_is_named(self):
        process = self.start(HOLDS, EMUV_PHYSICAL="16M", EMUV_VIRTUAL="48M",
                             EMUV_MOVE_DEFAULT="1", EMUV_SIM_HOST_NUMA="0")
        self.assertNotIn("!", self.why(process.pid))
        said = self.end(process)
        self.assertIn("emuV: nothing moves: this card or driver has no HOST_NUMA memory. "
                      "Kernels read over the link what spills; a larger share of VRAM "
                      "spares that\n", said)
        self.assertNotIn("EMUV_MOVE", said)

    def lent(self, program, **settings):
        """Such a program, whose second card lends 12 MiB."""
        return self.start(program, EMUV_SIM_DEVICES="2",
                          EMUV_TIER="peer:1=12M", **{**MOVING, **settings})

    def test_tiers_by_default_are_used_and_their_user_has_the_last_word(self):
        for more, tiers in (({}, ["vram", "peer:1", "ram"]),
                            ({"EMUV_TIER": "none"}, ["vram", "ram"])):
            with self.subTest(**more):
                process = self.start(HOLDS, EMUV_SIM_DEVICES="2", **MOVING,
                                     EMUV_TIER_DEFAULT="peer:1=12M", **more)
                self.assertEqual([each["tier"] for each in self.both(process)[0]["tiers"]],
                                 tiers)
                self.assertEqual(self.end(process).count("is not used"), 0)

    def test_a_tier_by_default_is_left_out_where_it_cannot_be(self):
        for settings, why in (({"EMUV_SIM_DEVICES": "1"}, "there is no such card"),
                              ({"EMUV_SIM_DEVICES": "2", "EMUV_SIM_HOST_NUMA": "0"},
                               "this card or driver has no HOST_NUMA memory")):
            with self.subTest(**settings):
                process = self.start(HOLDS, EMUV_PHYSICAL="16M", EMUV_VIRTUAL="48M",
                                     EMUV_TIER_DEFAULT="peer:1=12M", **settings)
                self.assertEqual([each["tier"] for each in self.both(process)[0]["tiers"]],
                                 ["vram", "ram"])
                self.assertIn("emuV: the tier on card 1 of the instance is not used: " + why,
                              self.end(process))

    def test_tiers_by_default_are_judged_anew_where_one_is_left_out(self):
        # Its card is the program's own from there on, and reaches no other.
        process = self.start(HOLDS, EMUV_PHYSICAL="16M", EMUV_VIRTUAL="48M",
                             EMUV_SIM_DEVICES="3", EMUV_SIM_APART="1",
                             EMUV_TIER_DEFAULT="peer:1=12M,peer:2=12M")
        self.assertEqual([each["tier"] for each in self.both(process)[0]["tiers"]],
                         ["vram", "ram"])
        said = self.end(process)
        for card in (1, 2):
            self.assertEqual(said.count(
                f"emuV: the tier on card {card} of the instance is not used: this "
                "program's card does not reach that card's memory"), 1, said)
        self.assertNotIn("EMUV_TIER", said)

    def both(self, process):
        """The figures of its devices, once there are both."""
        [one] = json.loads(self.why("--json", process.pid))["processes"]
        return {each["device"]: each for each in one["devices"]}

    def test_bytes_and_traffic_are_told_by_tier(self):
        process = self.lent(ROUNDS)
        end = time.monotonic() + LIMIT_S
        while True:
            devices = self.both(process)
            vram, peer, ram = devices[0]["tiers"]
            step = devices[0]["step"]
            if (peer["fetched_bytes"] > 0 and ram["fetched_bytes"] > 0 and
                    step and step["from_cards_bytes"] > 0):
                break
            self.assertLess(time.monotonic(), end, devices)
            time.sleep(0.05)
        self.assertEqual([each["tier"] for each in (vram, peer, ram)],
                         ["vram", "peer:1", "ram"])
        self.assertEqual(vram["limit_bytes"], 16 << 20)
        self.assertEqual(peer["limit_bytes"], 12 << 20)
        self.assertEqual(peer["most_bytes"], 12 << 20)
        self.assertEqual(ram["limit_bytes"], 48 << 20)
        self.assertEqual(ram["bytes"], devices[0]["ram_bytes"])
        self.assertLessEqual(step["from_cards_bytes"], step["fetched_bytes"])
        text = self.told(process, "beyond VRAM", "peer:1", "from cards",
                         "to cards", "of that VRAM are lent")
        self.assertLess(max(map(len, text.splitlines())), 80)

    def test_a_card_that_lends_says_how_much_and_nothing_counts_twice(self):
        process = self.lent(HOLDS, EMUV_MOVE="0")
        devices = self.both(process)
        vram, peer, ram = devices[0]["tiers"]
        self.assertEqual(vram["bytes"], 16 << 20)
        self.assertEqual(peer["bytes"], 12 << 20)
        self.assertEqual(ram["bytes"], 4 << 20)
        [lender, *_] = devices[1]["tiers"]
        self.assertEqual(lender["limit_bytes"], 12 << 20)
        self.assertEqual(lender["bytes"], 12 << 20)
        self.assertEqual(lender["lends_bytes"], 12 << 20)
        self.assertIn("what lies beyond VRAM is read there",
                      self.why(process.pid))

    def test_the_end_tells_what_each_tier_held_and_moved(self):
        with tempfile.TemporaryDirectory() as folder:
            process = self.lent(ROUNDS, EMUV_STATS=str(
                pathlib.Path(folder, "stats")))
            end = time.monotonic() + LIMIT_S
            while not self.both(process)[0]["tiers"][1]["fetched_bytes"]:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.05)
            err = self.end(process)
        self.assertRegex(err, r"(?m)^emuV:   peer:1 .* 12 MiB .*MiB")
        self.assertRegex(err, r"(?m)^emuV:   system RAM .* 48 MiB ")

    def test_a_kernel_that_stops_movement_is_named_with_what_it_costs(self):
        process = self.start(UNTRUSTED, **MOVING)
        device = self.wait_for(
            process, lambda now: now["step"] and now["untrusted"] and
            now["step"]["round_launches"])
        [kernel] = device["untrusted"]
        self.assertEqual(kernel["name"], "stroll_through_memory")
        self.assertTrue(kernel["reason"])
        self.assertGreater(kernel["busy_ns"], 0)
        self.assertGreater(device["step"]["untrusted_ns"], 0)
        self.told(process, "stroll_through_memory", "nothing moves for")

    def test_why_movement_has_ended_is_told(self):
        process = self.start(ROUNDS.replace('print("ready"', r"""
for value in range(20):
    go_round(value)
other = ctypes.c_void_p()
assert cuda.cuCtxCreate_v2(ctypes.byref(other), 0, 0) == 0
go_round(1)
print("ready" """), **MOVING)
        device = self.wait_for(process, lambda now: now["state"] == "ended")
        self.assertIn("several contexts", device["stopped"])
        self.assertIn("several contexts", self.why(process.pid))

    def test_a_setting_without_effect_is_said_at_once_and_by_why(self):
        process = self.start(HOLDS, EMUV_PHYSICAL="128M", EMUV_MOVE="1",
                             EMUV_SIM_HOST_NUMA="0")
        text = self.why(process.pid)
        err = self.end(process)
        for part in ("EMUV_MOVE has no effect", "EMUV_PHYSICAL=128 MiB has no "
                     "effect: the card has 64 MiB"):
            self.assertIn(part, " ".join(text.split()))
            self.assertIn("emuV: " + part, err)

    def test_settings_that_have_an_effect_are_not_spoken_of(self):
        process = self.start(HOLDS, EMUV_PHYSICAL="64M", EMUV_VIRTUAL="48M",
                             EMUV_MOVE="1")
        self.assertNotIn("!", self.why(process.pid))
        self.assertEqual(self.end(process), "")

    def test_of_a_shell_its_program_is_told(self):
        process = self.start(HOLDS, shell=("sh", "-c", '"$@"; exit', "sh"),
                             EMUV_PHYSICAL="16M", EMUV_VIRTUAL="48M")
        [one] = json.loads(self.why("--json", process.pid))["processes"]
        self.assertNotEqual(one["pid"], process.pid)
        self.assertEqual(one["devices"][0]["ram_bytes"], 16 << 20)

    def test_the_figures_of_a_parent_are_not_its_childs(self):
        process = self.start(HOLDS.replace('print("ready"', r"""
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print(child, file=sys.stderr, flush=True)
print("ready" """), EMUV_PHYSICAL="16M", EMUV_VIRTUAL="48M")
        lines = iter(process.stderr.readline, "")
        child = next(line for line in lines if line.strip().isdigit())
        self.assertIn("publishes nothing", self.why(child.strip(), status=1))
        self.assertIn("try --move", self.why(process.pid))

    def test_the_same_is_told_at_the_end_where_statistics_are_asked_for(self):
        # A program that stands still for a moment may have no step just then.
        err, latest = "", time.monotonic() + LIMIT_S
        while "a step takes" not in err and time.monotonic() < latest:
            with tempfile.TemporaryDirectory() as folder:
                process = self.start(ROUNDS, EMUV_STATS=str(
                    pathlib.Path(folder, "stats")), **MOVING)
                self.wait_for(process, lambda now: now["step"])
                err = self.end(process)
        for part in ("a step takes", "computing", "to VRAM"):
            self.assertIn("emuV:   " + part, err)

    def test_what_is_not_there_or_has_no_library_is_said(self):
        with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"],
                              stdin=subprocess.PIPE) as plain:
            self.assertIn("runs without emuV's CUDA library",
                          self.why(plain.pid, status=1))
            plain.stdin.close()
            plain.wait(timeout=LIMIT_S)
        self.assertIn(f"there is no process {plain.pid}",
                      self.why(plain.pid, status=1))

    def test_another_users_process_is_not_looked_into(self):
        nobody = 65534
        process = self.start(HOLDS, EMUV_PHYSICAL="16M", EMUV_VIRTUAL="48M")
        with tempfile.TemporaryDirectory() as folder:
            # The build's folder may be closed to others.
            os.chmod(folder, 0o755)
            tool = pathlib.Path(folder, "emuvctl")
            tool.write_bytes(pathlib.Path(self.options.emuvctl).read_bytes())
            tool.chmod(0o755)
            if os.geteuid() != 0:
                self.skipTest("needs root, to become another user")
            done = subprocess.run(
                [tool, "why", str(process.pid)], user=nobody, group=nobody,
                extra_groups=[], check=False, text=True, capture_output=True,
                timeout=LIMIT_S)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("another user's process", done.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", dest="preload", required=True)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--emuvctl", required=True)
    parser.add_argument("--runtime", help="a sanitizer's, to preload as well")
    WhyTest.options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
