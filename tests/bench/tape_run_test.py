#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""movement_bench runs tapes: a program that fits takes about its native time, one
that does not is moved, and one without marks is a step as a whole."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEP = ROOT / "tests/cli/tapes/step.tape"
RECORDED = ROOT / "tests/bench/tapes/tune/graph-network.tape.gz"
LIMIT_S = 180


class TapeRunTest(unittest.TestCase):
    bench = None

    def run_tape(self, tape, share):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "table.json"
            done = subprocess.run(
                [self.bench, "--tape", tape, "--share", share, "--json", file,
                 "--card", ROOT / "tests/bench/card.json"],
                text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 0, done.stderr)
            table = json.loads(file.read_text())["tables"][0]
        self.assertEqual(len(table["rows"]), 1)
        return table["rows"][0]

    def test_what_fits_takes_about_its_native_time(self):
        # The player goes by the clock, so a busy machine gets several tries. A
        # wait that counts twice takes twice as long in each of them.
        until = time.monotonic() + LIMIT_S
        while True:
            row = self.run_tape(STEP, "0.9x")
            self.assertEqual(row["oracle"], row["native"])
            self.assertGreaterEqual(row["moving"], 0.9 * row["native"])
            if row["moving"] <= 1.25 * row["native"]:
                break
            self.assertLess(time.monotonic(), until, row)

    def test_a_recorded_program_moves(self):
        row = self.run_tape(RECORDED, "1.3x")
        self.assertGreaterEqual(row["oracle"], row["native"])
        self.assertGreaterEqual(row["moving"], row["native"])
        self.assertGreater(row["of_limit"], 0)

    def test_a_tape_without_marks_is_one_step(self):
        with tempfile.TemporaryDirectory() as folder:
            tape = pathlib.Path(folder) / "unmarked.tape"
            tape.write_bytes(UNMARKED)
            row = self.run_tape(tape, "0.9x")
        self.assertGreater(row["native"], 0)
        self.assertGreater(row["moving"], 0)
        self.assertGreater(row["of_limit"], 0)


# An allocation of 64 MiB, and a kernel of a millisecond that uses it.
UNMARKED = (b"emuvtape\x01"
            b"\x02\x01k" + b"\x03\x00\x01\x01\x01\x20\x01\x01\x00\x01\x00"
            + b"\x10\x00\x00\x00\x80\x80\x80\x20\x00"
            + b"\x12\x00\x00\x00\x00\x00\x00" + b"\x20\x01\xc0\x84\x3d"
            + b"\x1a\x00\x00\x00\x00" + b"\x00")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    TapeRunTest.bench = parser.parse_args().bench
    unittest.main(argv=sys.argv[:1])
