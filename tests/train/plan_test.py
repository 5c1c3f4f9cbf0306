#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The trainer's plans: they come from `emuvctl estimate`, and need no PyTorch."""

import argparse
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
TRAIN = pathlib.Path(__file__).resolve().parent.parent.parent / "examples/train"
sys.path.insert(0, str(TRAIN))

import plan  # noqa: E402
import train  # noqa: E402

GiB = 1 << 30


class PlanTest(unittest.TestCase):
    def run_program(self, *words, fails=False, **environment):
        """The output of `train.py --auto --plan`; on a failure its messages."""
        out, err = io.StringIO(), io.StringIO()
        kept = dict(os.environ)
        for name in ("EMUV_PHYSICAL", "EMUV_VIRTUAL", "EMUV_INSTANCE"):
            os.environ.pop(name, None)
        os.environ.update(environment)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = train.main(["--auto", "--plan", "--emuvctl",
                                     OPTIONS.emuvctl, *words])
        finally:
            os.environ.clear()
            os.environ.update(kept)
        self.assertEqual(status, 1 if fails else 0, err.getvalue())
        return err.getvalue() if fails else out.getvalue()

    def made(self, *words, **environment):
        return json.loads(self.run_program("--json", *words, **environment))

    def test_a_model_that_fits_gets_the_largest_batch_that_surely_does(self):
        made = self.made("--preset", "small", "--gpu", "4070")
        self.assertEqual(made["verdict"], "fits")
        self.assertEqual(made["precision"], "autocast")
        self.assertFalse(made["checkpointing"])
        self.assertEqual(made["batch"] * made["accumulate"], 32)
        self.assertGreater(made["accumulate"], 1)
        self.assertLessEqual(made["memory_bytes"][2], made["vram_bytes"])
        twice = plan.one(OPTIONS.emuvctl, train.shape_of(train.read_options(
            ["--preset", "small"])), 32, plan.Machine(gpu="4070"),
            ("autocast", False, 2 * made["batch"]))
        self.assertGreater(twice.memory_bytes[2], made["vram_bytes"])

    def test_a_larger_card_takes_more_at_once(self):
        here = self.made("--preset", "medium", "--gpu", "4070")
        there = self.made("--preset", "medium", "--gpu", "4090")
        self.assertGreater(there["batch"], here["batch"])
        self.assertEqual(there["batch"] * there["accumulate"], 32)

    def test_a_share_lowers_the_batch(self):
        whole = self.made("--preset", "small", "--gpu", "4070")
        given = self.made("--preset", "small", "--gpu", "4070", "--vram", "5G")
        told = self.made("--preset", "small", "--gpu", "4070",
                         EMUV_PHYSICAL="5G")
        self.assertLess(given["batch"], whole["batch"])
        self.assertEqual(given, told)
        self.assertEqual(told["vram_bytes"], 5 * GiB)

    def test_a_small_share_computes_activations_again(self):
        made = self.made("--preset", "medium", "--gpu", "4070", "--vram", "6700M")
        self.assertTrue(made["checkpointing"])
        self.assertEqual(made["precision"], "autocast")

    def test_16_bit_weights_are_the_last_resort_and_are_said(self):
        made = self.made("--preset", "large", "--gpu", "4070")
        self.assertEqual(made["precision"], "bf16")
        self.assertIn("nothing better than 16-bit weights fits", made["notes"])

    def test_under_emuv_memory_may_be_in_ram(self):
        made = self.made("--preset", "large", "--gpu", "4070",
                         EMUV_VIRTUAL="16G")
        self.assertEqual(made["precision"], "autocast")
        self.assertEqual(made["verdict"], "spills")
        self.assertGreater(made["spilled_bytes"][1], 0)
        self.assertLessEqual(made["spilled_bytes"][1], 16 * GiB)
        less = self.made("--preset", "large", "--gpu", "4070",
                         EMUV_VIRTUAL="3G")
        self.assertLessEqual(less["spilled_bytes"][1], 3 * GiB)

    def test_without_emuv_it_tells_the_command_that_runs_it(self):
        said = self.run_program("--preset", "large", "--gpu", "4070",
                                "--precision", "fp32", fails=True)
        self.assertIn("emuvctl run --physical ", said)
        self.assertNotIn("Traceback", said)

    def test_four_cards_with_little_ram_get_a_worker_each_and_accumulate(self):
        made = self.made("--preset", "medium", "--gpu", "3060-12GB",
                         "--processes", "4", "--ram", "44G")
        self.assertEqual(made["workers"], 1)
        self.assertLessEqual(made["batch"], 4)
        self.assertGreaterEqual(made["accumulate"], 8)
        self.assertLessEqual(made["host_bytes"][2], 44 * GiB)

    def test_four_cards_that_spill_share_the_ram(self):
        words = ("--preset", "large", "--gpu", "3060-12GB", "--virtual", "64G",
                 "--processes", "4", "--effective-batch", "64")
        rich = self.made(*words, "--ram", "512G")
        poor = self.made(*words, "--ram", "44G")
        self.assertEqual(rich["workers"], 1)
        self.assertEqual(poor["workers"], 0)
        self.assertRegex(poor["notes"][0], "^RAM is ")
        self.assertLessEqual(poor["host_bytes"][1], 44 * GiB)

    def test_less_ram_means_no_workers_and_too_little_is_refused(self):
        words = ("--preset", "small", "--gpu", "4070", "--processes", "4")
        self.assertEqual(self.made(*words, "--ram", "24G")["workers"], 1)
        short = self.made(*words, "--ram", "18G")
        self.assertEqual(short["workers"], 0)
        said = self.run_program(*words, "--ram", "8G", fails=True)
        self.assertIn("RAM is too short", said)

    def test_a_control_group_counts_as_the_ram(self):
        root = pathlib.Path("/sys/fs/cgroup")
        limit = "memory.max"
        if not (root / "cgroup.controllers").exists():
            root, limit = root / "memory", "memory.limit_in_bytes"
        group = root / f"emuv-plan-test-{os.getpid()}"
        if not (root / "cgroup.procs").exists() or not os.access(root, os.W_OK):
            self.skipTest("no control group can be made here")
        group.mkdir()
        try:
            (group / limit).write_text(str(18 * GiB))
        except OSError as error:
            group.rmdir()
            self.skipTest(f"no control group can have a limit here: {error}")
        try:
            done = subprocess.run(
                [sys.executable, "-c",
                 "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid()))\n"
                 "os.execv(sys.argv[2], sys.argv[2:])",
                 str(group / "cgroup.procs"), sys.executable, "-B",
                 str(TRAIN / "train.py"), "--auto", "--plan", "--json",
                 "--emuvctl", OPTIONS.emuvctl, "--preset", "small", "--gpu",
                 "4070", "--processes", "4"],
                capture_output=True, text=True, check=False)
        finally:
            group.rmdir()
        self.assertEqual(done.returncode, 0, done.stderr)
        made = json.loads(done.stdout)
        self.assertEqual(made["ram_bytes"], 18 * GiB)
        self.assertEqual(made["workers"], 0)

    def test_what_the_user_gives_is_kept(self):
        made = self.made("--preset", "small", "--gpu", "4070", "--batch", "2",
                         "--checkpointing", "--precision", "fp32",
                         "--workers", "3")
        self.assertEqual((made["batch"], made["accumulate"], made["workers"]),
                         (2, 16, 3))
        self.assertTrue(made["checkpointing"])
        self.assertEqual(made["precision"], "fp32")

    def test_a_processor_trains_in_32_bits_and_has_no_known_speed(self):
        made = self.made("--device", "cpu", "--ram", "16G")
        self.assertEqual(made["precision"], "fp32")
        self.assertIsNone(made["card"])
        self.assertIsNone(made["step_ms"])
        self.assertEqual(made["workers"], 0)

    def test_the_plan_fits_a_terminal(self):
        for words in (["--gpu", "4070"], ["--device", "cpu"],
                      ["--preset", "large", "--gpu", "4070", "--processes", "4",
                       "--ram", "44G", "--virtual", "32G"]):
            said = self.run_program(*words)
            for line in said.splitlines():
                self.assertLessEqual(len(line), 79, line)
            for word in ("memory", "step", "batch", "workers", "precision"):
                self.assertIn(f"  {word} ", said)

    def test_mistakes_are_a_line_each(self):
        said = self.run_program("--gpu", "no-such-card", fails=True)
        self.assertIn("'no-such-card' is not in the table of cards", said)
        self.assertEqual(said.count("\n"), 1)
        with contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(train.main(["--auto", "--plan", "--gpu", "4070",
                                         "--emuvctl", "/nonexistent/emuvctl"]), 1)
        self.assertIn("--auto needs emuvctl", err.getvalue())
        for words in (["--auto", "--batch", "5"], ["--plan"], ["--gpu", "4070"],
                      ["--auto", "--gpu", "4070"], ["--steps", "0"],
                      ["--dropout", "1"], ["--workers", "-1"]):
            with self.assertRaises(SystemExit) as ended, \
                    contextlib.redirect_stderr(io.StringIO()):
                train.main(words)
            self.assertEqual(ended.exception.code, 2, words)

    def test_the_share_is_that_of_emuvctl_run(self):
        here = plan.this_machine("cuda", {"EMUV_INSTANCE": "2,3"})
        self.assertEqual(here.instance, "emuv2")
        self.assertTrue(here.spills)
        here = plan.this_machine("cuda", {"EMUV_PHYSICAL": "11G",
                                          "EMUV_VIRTUAL": "32G"})
        self.assertEqual((here.vram, here.virtual), ("11G", "32G"))
        self.assertTrue(here.spills)
        self.assertEqual(here.words(), ["--processes", "1", "--vram", "11G"])
        # The words of the user go first, and a processor has no share.
        here = plan.this_machine("cuda", {"EMUV_PHYSICAL": "11G"}, vram="5G")
        self.assertEqual(here.vram, "5G")
        self.assertFalse(here.spills)
        here = plan.this_machine("cpu", {"EMUV_PHYSICAL": "11G"}, ram="8G")
        self.assertEqual(here.words(), ["--ram", "8G"])

    def test_sizes_are_read_as_emuv_reads_them(self):
        for text, size in (("12G", 12 * GiB), ("512M", GiB // 2),
                           ("1.5 GiB", 3 * GiB // 2), ("4096", 4096)):
            self.assertEqual(plan.bytes_of(text), size)


if __name__ == "__main__":
    PARSER = argparse.ArgumentParser()
    PARSER.add_argument("--emuvctl", required=True)
    OPTIONS, REST = PARSER.parse_known_args()
    unittest.main(argv=[sys.argv[0], *REST], verbosity=2)
