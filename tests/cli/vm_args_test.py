#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU takes the options that `emuvctl vm-args` prints, and gets its machine's memory from
`emuvctl vm-serve`. The driver is one in memory; tests/system/machines has the real one."""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "vm"))
from machine import Machine  # noqa: E402

SIZE = 64 << 20
LIMIT = 300


class VmArgsTest(unittest.TestCase):
    emuvctl = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.socket = pathlib.Path(folder.name) / "a,b.sock"
        self.server = subprocess.Popen(
            [self.emuvctl, "vm-serve", "emuv0", "--size", "64M", "--socket", self.socket],
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end_server)
        self.assertIn("64 MiB of emuv0 for each virtual machine", self.heard())
        self.words = self.vm_args().split()

    def end_server(self):
        self.server.terminate()
        self.server.communicate(timeout=LIMIT)

    def heard(self):
        """The server's next line."""
        return self.server.stderr.readline()

    def vm_args(self, *more):
        return subprocess.run([self.emuvctl, "vm-args", "emuv0", "--socket", self.socket, *more],
                              check=True, stdout=subprocess.PIPE, text=True).stdout

    def machine(self, words=None):
        started = Machine(words or self.words)
        self.addCleanup(started.end)
        return started

    def test_a_machine_has_a_device_whose_memory_it_reads_and_writes(self):
        machine = self.machine()
        self.assertEqual(machine.find(), SIZE, machine.messages())
        self.assertRegex(self.heard(), r"process \d+ has 64 MiB$")
        self.assertFalse(any(machine.read(0, 4096) + machine.read(SIZE - 4096, 4096)))
        for place in (0, SIZE // 2 + 1000, SIZE - 4):
            machine.write(place, b"emuV")
            self.assertEqual(machine.read(place, 4), b"emuV")

    def test_nothing_of_the_device_lies_beyond_its_memory(self):
        machine = self.machine()
        self.assertEqual(machine.find(), SIZE)
        machine.write(SIZE, b"emuV")
        self.assertNotEqual(machine.read(SIZE, 4), b"emuV", "nobody is there")

    def test_arguments_in_json_are_the_same_words(self):
        told = json.loads(self.vm_args("--json"))
        self.assertEqual(told["arguments"], self.words)
        self.assertEqual(told["socket"], str(self.socket))

    def test_machines_have_memory_of_their_own_until_there_is_no_more(self):
        one, two = self.machine(), self.machine()
        self.assertEqual((one.find(), two.find()), (SIZE, SIZE))
        one.write(0, b"one's")
        two.write(0, b"two's")
        self.assertEqual(one.read(0, 5), b"one's")
        self.heard()
        self.heard()
        three = self.machine()
        self.assertEqual(three.qemu.wait(LIMIT), 1)
        self.assertIn("shared memory", three.messages())
        self.assertRegex(self.heard(), "gets nothing: the instance has not so much left$")
        one.end()
        self.assertRegex(self.heard(), r"process \d+ has gone$")
        self.assertEqual(self.machine().find(), SIZE)

    def test_a_machine_keeps_its_memory_when_the_server_ends(self):
        machine = self.machine()
        self.assertEqual(machine.find(), SIZE)
        machine.write(0, b"mine")
        self.end_server()
        self.assertFalse(self.socket.exists())
        self.assertEqual(machine.read(0, 4), b"mine")

    def test_a_machine_does_not_start_without_the_server(self):
        self.end_server()
        machine = self.machine()
        self.assertEqual(machine.qemu.wait(LIMIT), 1)
        self.assertIn("a,b.sock", machine.messages())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--emuvctl", required=True)
    options, rest = parser.parse_known_args()
    if not shutil.which("qemu-system-x86_64"):
        print("skipped: there is no QEMU")
        sys.exit(77)
    VmArgsTest.emuvctl = options.emuvctl
    unittest.main(argv=[sys.argv[0], *rest])
