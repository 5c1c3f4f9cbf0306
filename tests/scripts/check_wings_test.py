#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/check-wings names the includes that lead up or round, no others."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class CheckWingsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name).resolve() / "tree"
        (self.tree / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts/check-wings", self.tree / "scripts")
        for name in ("base/size.hpp", "policy/pace.hpp", "memory/memory.hpp",
                     "movement/gate.hpp", "account/ledger.hpp",
                     "interpose/real.hpp"):
            self.write(name, "")

    def write(self, name, text, tree="tools/cuda"):
        path = self.tree / tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def write_test(self, name, text):
        self.write(name, text, tree="tests/cuda")

    def findings(self):
        done = subprocess.run([self.tree / "scripts/check-wings"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    def test_includes_that_lead_down_or_stay_are_not_named(self):
        self.write("memory/table.cpp", '#include "memory/memory.hpp"\n'
                   '#include "memory.hpp"\n#include "movement/gate.hpp"\n'
                   '#include "base/size.hpp"\n#include <memory>\n')
        self.write("nvml/nvml.cpp", '#include "account/ledger.hpp"\n')
        self.assertEqual(self.findings(), [])

    def test_includes_that_lead_up_are_named_however_they_are_written(self):
        for written in ('#include "memory/memory.hpp"',
                        "#include <memory/memory.hpp>",
                        '#  include "../memory/memory.hpp"',
                        '#include "cuda/memory/memory.hpp"',
                        '#include "tools/cuda/memory/memory.hpp"'):
            self.write("movement/mover.cpp", f"// A mover.\n{written}\n")
            self.assertEqual(self.findings(), [
                "tools/cuda/movement/mover.cpp:2: memory does not stand below "
                "movement"], written)

    def test_files_of_c_and_cuda_keep_to_the_order_as_well(self):
        for suffix in ("c", "h", "cu", "cuh"):
            self.write(f"policy/odd.{suffix}", '#include "movement/gate.hpp"\n')
            self.write_test(f"policy/odd.{suffix}", '#include "memory/memory.hpp"\n')
        self.assertEqual(self.findings(), [
            f"{tree}/policy/odd.{suffix}:1: {wing} does not stand below policy"
            for tree, wing in (("tools/cuda", "movement"), ("tests/cuda", "memory"))
            for suffix in ("c", "cu", "cuh", "h")])

    def test_wings_of_one_floor_do_not_know_each_other(self):
        self.write("account/ledger.cpp", '#include "interpose/real.hpp"\n')
        self.assertEqual(self.findings(), [
            "tools/cuda/account/ledger.cpp:1: interpose does not stand below "
            "account"])

    def test_nvml_includes_only_what_it_shares(self):
        self.write("nvml/nvml.cpp", '#include "policy/pace.hpp"\n')
        self.assertEqual(self.findings(), [
            "tools/cuda/nvml/nvml.cpp:1: policy does not stand below nvml"])

    def test_folders_that_are_no_wings_are_named(self):
        self.write("attic/old.hpp", "")
        self.assertEqual(self.findings(),
                         ["tools/cuda/attic/old.hpp: attic is no wing"])

    def test_circles_of_files_are_named_once(self):
        self.write("policy/plan.hpp", '#include "policy/pace.hpp"\n')
        self.write("policy/pace.hpp", '#include "policy/plan.hpp"\n')
        self.assertEqual(self.findings(), [
            "a circle of includes: policy/pace.hpp → policy/plan.hpp → "
            "policy/pace.hpp"])

    def test_tests_of_a_wing_include_it_those_below_and_what_tests_share(self):
        self.write_test("fake_driver.hpp", '#include "base/size.hpp"\n')
        self.write_test("sim/sim.h", "")
        self.write_test("movement/fixture.hpp", '#include "base/size.hpp"\n')
        self.write_test("movement/gate_test.cpp", '#include "fake_driver.hpp"\n'
                        '#include "movement/fixture.hpp"\n'
                        '#include "movement/gate.hpp"\n#include "sim/sim.h"\n'
                        '#include "policy/pace.hpp"\n#include <memory>\n')
        self.write_test("whole_test.cpp", '#include "memory/memory.hpp"\n')
        self.assertEqual(self.findings(), [])

    def test_tests_that_include_a_wing_above_are_named(self):
        self.write_test("memory/fixture.hpp", "")
        for written in ('#include "memory/memory.hpp"',
                        '#include "../memory/fixture.hpp"',
                        '#include "memory/fixture.hpp"'):
            self.write_test("policy/pace_test.cpp", f"// Pace.\n{written}\n")
            self.assertEqual(self.findings(), [
                "tests/cuda/policy/pace_test.cpp:2: memory does not stand "
                "below policy"], written)

    def test_tests_that_share_what_leads_up_are_named(self):
        self.write_test("program.hpp", '#include "circle.hpp"\n')
        self.write_test("circle.hpp", '#include "program.hpp"\n'
                        '#include "movement/gate.hpp"\n')
        self.write_test("policy/pace_test.cpp", '#include "program.hpp"\n')
        self.assertEqual(self.findings(), [
            "tests/cuda/policy/pace_test.cpp:1: movement does not stand below "
            "policy"])


if __name__ == "__main__":
    unittest.main()
