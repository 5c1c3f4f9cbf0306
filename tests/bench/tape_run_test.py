#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""movement_bench runs tapes. A program that fits takes its native time, one
that does not is moved, and one without marks is a step as a whole. The figures
are the same each time."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEP = ROOT / "tests/cli/tapes/step.tape"
ENDS_SLOWLY = ROOT / "tests/bench/tapes/report/vit-reduced-overhead.tape.gz"
RECORDED = ROOT / "tests/bench/tapes/tune/graph-network.tape.gz"


class TapeRunTest(unittest.TestCase):
    bench = None

    def run_tape(self, tape, share, *options):
        row, _ = self.run_steps(tape, share, *options)
        return row

    def run_steps(self, tape, share, *options):
        """The table's row, and the times of the steps where they are asked for."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "table.json"
            done = subprocess.run(
                [self.bench, "--tape", tape, "--share", share, "--json", file,
                 "--card", ROOT / "tests/bench/card.json", *options],
                text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 0, done.stderr)
            table = json.loads(file.read_text())["tables"][0]
        self.assertEqual(len(table["rows"]), 1)
        steps = [line for line in done.stdout.splitlines() if line.startswith("    ")]
        return table["rows"][0], " ".join(steps).split()

    def test_what_fits_takes_its_native_time(self):
        row = self.run_tape(STEP, "0.9x")
        self.assertEqual(row["oracle"], row["native"])
        self.assertGreaterEqual(row["moving"], 0.99 * row["native"])
        self.assertLessEqual(row["moving"], 1.01 * row["native"])

    def test_kernels_that_compute_read_often_in_place_if_asked_to(self):
        # Beside kernels that nobody trusts little moves, and much is read in place.
        still = ("--untrusted", "1")
        once = self.run_tape(RECORDED, "1.3x", *still)
        often = self.run_tape(RECORDED, "1.3x", *still, "--in-place", "often")
        self.assertGreater(often["ten"], 1.3 * once["ten"])
        self.assertEqual(often["native"], once["native"])

    def test_figures_are_the_same_however_busy_the_machine_is(self):
        alone = self.run_steps(RECORDED, "1.3x", "--each")
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
                for _ in range(2 * os.cpu_count())]
        try:
            beside = self.run_steps(RECORDED, "1.3x", "--each")
        finally:
            for each in busy:
                each.kill()
                each.wait()
        self.assertEqual(alone, beside)
        self.assertGreater(len(alone[1]), 10)

    def test_the_last_step_comes_again(self):
        _, recorded = self.run_steps(RECORDED, "1.3x", "--each")
        _, longer = self.run_steps(RECORDED, "1.3x", "--each",
                                   "--steps", str(len(recorded) + 7))
        self.assertEqual(longer[:len(recorded)], recorded)
        self.assertEqual(len(longer), len(recorded) + 7)
        # It takes as long as it did, and not as long as the program's end.
        _, longer = self.run_steps(ENDS_SLOWLY, "0.9x", "--each", "--steps", "20")
        self.assertLess(float(longer[-1]), 1.1 * float(longer[5]))

    def test_a_recorded_program_moves(self):
        row = self.run_tape(RECORDED, "1.3x")
        self.assertGreaterEqual(row["oracle"], row["native"])
        self.assertGreaterEqual(row["moving"], row["native"])
        self.assertGreater(row["of_limit"], 0)

    def test_threads_that_notify_each_other_do_not_stop_time(self):
        done = subprocess.run([self.bench, "prefill 12288 mapped 1 in 100"],
                              text=True, check=True, stdout=subprocess.PIPE, timeout=300)
        self.assertEqual(len(done.stdout.splitlines()), 2)

    def test_a_tape_without_marks_is_one_step(self):
        with tempfile.TemporaryDirectory() as folder:
            tape = pathlib.Path(folder) / "unmarked.tape"
            tape.write_bytes(UNMARKED)
            row = self.run_tape(tape, "0.9x")
            asked = subprocess.run(
                [self.bench, "--tape", tape, "--share", "0.9x", "--steps", "5"],
                text=True, check=True, capture_output=True)
        self.assertIn("no step comes again", asked.stderr)
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
