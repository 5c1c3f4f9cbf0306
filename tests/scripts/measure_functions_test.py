#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/measure-functions finds functions that are too long, or ask too much of
a reader at once, and remembers files without any."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def function(lines):
    return "int f(int a)\n{\n" + "    a++;\n" * (lines - 4) + "    return a;\n}\n"


def tangle(depth):
    text = "int g(int a)\n{\n"
    for level in range(depth):
        text += f"    if (a > {level}) {{\n"
    return text + "    a++;\n" + "    }\n" * depth + "    return a;\n}\n"


@unittest.skipUnless(shutil.which("clang-tidy"), "clang-tidy is not installed")
class MeasureFunctionsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name).resolve()
        for name in ("scripts", "tools", "tests", "commands"):
            (self.tree / name).mkdir(parents=True)
        for name in ("scripts/measure-functions", "scripts/lib.sh", ".clang-tidy",
                     "tests/.clang-tidy"):
            shutil.copy(ROOT / name, self.tree / name)
        (self.tree / "commands/compile_commands.json").write_text(json.dumps(
            [{"directory": str(self.tree), "file": str(self.tree / "tools/a.cpp"),
              "command": "c++ -std=c++20 -Wno-restrict -c tools/a.cpp"}]))
        self.passed = self.tree / "passed"

    def measure(self, name, text):
        self.passed.unlink(missing_ok=True)
        (self.tree / name).write_text(text)
        done = subprocess.run(["scripts/measure-functions", "commands", self.passed, name],
                              cwd=self.tree, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_a_file_without_any_is_remembered(self):
        self.assertEqual(self.measure("tools/a.cpp", function(100) + tangle(7)), "")
        self.assertTrue(self.passed.exists())

    def test_a_long_function_is_found(self):
        self.assertIn("tools/a.cpp:1: f() has ",
                      self.measure("tools/a.cpp", function(110)))
        self.assertFalse(self.passed.exists())

    def test_a_tangled_function_is_found_in_a_header_too(self):
        self.assertEqual(
            self.measure("tools/b.hpp", "#pragma once\ninline " + tangle(9)),
            "tools/b.hpp:2: g() asks too much at once: its complexity is 45, at most 35\n")
        self.assertFalse(self.passed.exists())

    def test_a_test_may_be_longer(self):
        self.assertEqual(self.measure("tests/a_test.cpp", function(170) + tangle(9)), "")

    def test_a_file_that_cannot_be_read_is_told(self):
        self.assertIn("tools/a.cpp:1: clang-tidy cannot read it: 'absent.hpp' file not found",
                      self.measure("tools/a.cpp", '#include "absent.hpp"\n'))
        self.assertFalse(self.passed.exists())


if __name__ == "__main__":
    unittest.main()
