#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The trainer on a processor: what survives a kill, and what memory that runs out
changes. Without PyTorch all of it is skipped."""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
TRAIN = pathlib.Path(__file__).resolve().parent.parent.parent / "examples/train"

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import with_torch  # noqa: E402, F401
import torch  # noqa: E402

sys.path.insert(0, str(TRAIN))
import train  # noqa: E402

COMMON = ["--device", "cpu", "--preset", "tiny", "--effective-batch", "4",
          "--dropout", "0.1", "--seed", "7"]


class StepsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def run_program(self, name, *words, inject="", status=0):
        """Trains in a child; returns what it printed. PyTorch is loaded once,
        for all children."""
        said = self.folder / f"{name}.said"
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                os.setpgid(0, 0)
                file = os.open(said, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
                os.dup2(file, 1)
                os.dup2(file, 2)
                os.environ["EMUV_TRAIN_INJECT"] = inject
                ended = train.main([*COMMON, "--out", str(self.folder / name),
                                    *words])
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(ended)
            os._exit(99)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        text = said.read_text()
        self.assertEqual(ended, status, text)
        self.assertNotIn("Traceback", text)
        return text

    def log(self, name):
        lines = (self.folder / name / "log.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def losses(self, name):
        return {line["step"]: line["loss"] for line in self.log(name)
                if "event" not in line}

    def content(self, name):
        return torch.load(self.folder / name / "checkpoint.pt",
                          map_location="cpu")

    def expect_same(self, one, other, steps):
        """The same losses and the same weights, to the bit."""
        self.assertEqual(list(self.losses(one)), list(range(1, steps + 1)))
        self.assertEqual(self.losses(one), self.losses(other))
        kept = [self.content(name) for name in (one, other)]
        for name, weight in kept[0]["model"].items():
            self.assertTrue(torch.equal(weight, kept[1]["model"][name]), name)
        self.assertEqual(kept[0]["step"], kept[1]["step"])
        validation = [self.log(name)[-1] for name in (one, other)]
        self.assertEqual(validation[0]["event"], "validation")
        self.assertEqual(validation[0]["loss"], validation[1]["loss"])

    def test_a_run_killed_in_mid_step_goes_on_with_the_same_bits(self):
        words = ("--steps", "8", "--every", "3", "--batch", "2")
        self.run_program("whole", *words)
        self.run_program("killed", *words, inject="kill:5",
                         status=-signal.SIGKILL)
        # Step 4 was taken, but no checkpoint has it.
        self.assertEqual(list(self.losses("killed")), [1, 2, 3, 4])
        said = self.run_program("killed", *words)
        self.assertIn("going on after step 3, with a batch of 2", said)
        self.expect_same("killed", "whole", 8)
        self.assertEqual(len(set(self.losses("whole").values())), 8)

    def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(self):
        words = ("--steps", "6", "--every", "2")
        self.run_program("whole", *words)
        self.run_program("killed", *words, inject="kill-save:4",
                         status=-signal.SIGKILL)
        self.assertEqual(self.content("killed")["step"], 2)
        # It may also be cut off anywhere.
        new = self.folder / "killed/checkpoint.pt.new"
        new.write_bytes(new.read_bytes()[:1000])
        self.run_program("killed", *words)
        self.expect_same("killed", "whole", 6)
        self.assertFalse(new.exists())

    def test_a_log_line_that_was_cut_off_is_written_again(self):
        words = ("--steps", "4", "--every", "2")
        self.run_program("whole", *words)
        self.run_program("killed", *words, inject="kill:4",
                         status=-signal.SIGKILL)
        with open(self.folder / "killed/log.jsonl", "a", encoding="utf-8") as file:
            file.write('{"step": 4, "lo')
        self.run_program("killed", *words)
        self.expect_same("killed", "whole", 4)

    def test_a_run_that_is_told_to_end_saves_first(self):
        words = ("--steps", "5", "--every", "50")
        self.run_program("whole", *words)
        said = self.run_program("ended", *words, inject="term:2",
                                status=128 + signal.SIGTERM)
        self.assertIn("ended after step 2; the same command goes on", said)
        self.run_program("ended", *words)
        self.expect_same("ended", "whole", 5)

    def test_an_interrupted_run_with_workers_saves_first(self):
        words = ("--steps", "5", "--every", "50", "--workers", "1")
        said = self.run_program("run", *words, inject="interrupt:2",
                                status=128 + signal.SIGINT)
        self.assertIn("ended after step 2; the same command goes on", said)
        self.assertEqual(self.content("run")["step"], 2)

    def test_out_of_memory_lowers_the_batch_and_keeps_the_effective_one(self):
        said = self.run_program("short", "--steps", "6", inject="oom:3")
        self.assertIn("step 3: memory ran out: the batch is 2 from now on", said)
        # The same as a run whose batch was lowered there by hand.
        self.run_program("by hand", "--steps", "2")
        self.run_program("by hand", "--steps", "6", "--batch", "2")
        steps = [line for line in self.log("short") if "event" not in line]
        self.assertEqual([line["batch"] for line in steps], [4, 4, 2, 2, 2, 2])
        for line in steps:
            self.assertEqual(line["batch"] * line["accumulate"], 4)
        by_hand = [line for line in self.log("by hand") if "event" not in line]
        self.assertEqual([line["loss"] for line in steps],
                         [line["loss"] for line in by_hand])
        events = [line for line in self.log("short") if "event" in line]
        self.assertEqual(events[0], {"step": 2, "event": "out of memory",
                                     "batch": 2, "checkpointing": False})

    def test_a_run_that_goes_on_keeps_its_lowered_batch(self):
        self.run_program("run", "--steps", "3", inject="oom:2")
        said = self.run_program("run", "--steps", "4")
        self.assertIn("with a batch of 2", said)
        self.assertEqual(self.log("run")[-2]["batch"], 2)

    def test_out_of_memory_while_weights_change_goes_back_to_the_checkpoint(self):
        words = ("--steps", "6", "--every", "2")
        said = self.run_program("short", *words, inject="update-oom:4")
        self.assertIn("step 3: memory ran out: the batch is 2", said)
        self.run_program("by hand", "--steps", "2")
        self.run_program("by hand", *words, "--batch", "2")
        self.assertEqual(list(self.losses("short")), [1, 2, 3, 4, 5, 6])
        # The order in which weights are changed differs, not what they become.
        for step, loss in self.losses("by hand").items():
            self.assertAlmostEqual(self.losses("short")[step], loss, places=5)

    def test_what_never_fits_ends_with_a_line_and_an_intact_checkpoint(self):
        self.run_program("run", "--steps", "2")
        said = self.run_program("run", "--steps", "4",
                                inject="oom:3,oom:3,oom:3,oom:3", status=1)
        self.assertIn("the batch is 1 from now on", said)
        self.assertIn("activations are computed again from now on", said)
        self.assertIn("train.py: not even one sequence fits", said)
        self.assertEqual(self.content("run")["step"], 2)

    def test_a_run_that_diverges_ends_with_a_line(self):
        said = self.run_program("run", "--steps", "9", "--rate", "1e30",
                                status=1)
        self.assertRegex(said, "train.py: step [2-9]: the loss is (nan|inf)")
        for line in self.log("run"):
            self.assertLess(line.get("loss", 0), 1e30)
        self.assertEqual(self.content("run")["step"], 0)

    def test_a_run_that_is_over_says_so(self):
        self.run_program("run", "--steps", "1")
        before = self.log("run")
        said = self.run_program("run", "--steps", "1")
        self.assertIn("1 steps are taken already", said)
        self.assertEqual(self.log("run"), before)

    def test_neither_checkpointing_nor_workers_change_a_bit(self):
        self.run_program("plain", "--steps", "3")
        self.run_program("again", "--steps", "3", "--checkpointing")
        self.run_program("workers", "--steps", "3", "--workers", "1")
        self.expect_same("again", "plain", 3)
        self.expect_same("workers", "plain", 3)

    def test_accumulation_changes_rounding_alone(self):
        words = ("--steps", "3", "--dropout", "0")
        self.run_program("whole", *words)
        self.run_program("parts", *words, "--batch", "1")
        for step, loss in self.losses("whole").items():
            self.assertAlmostEqual(self.losses("parts")[step], loss, places=4)

    def test_a_folder_of_another_run_is_refused(self):
        self.run_program("run", "--steps", "1")
        said = self.run_program("run", "--steps", "2", "--seed", "8", status=1)
        self.assertIn("has a run with another seed", said)
        text = self.folder / "text"
        text.write_bytes(b"Another text. " * 100)
        said = self.run_program("run", "--text", str(text), status=1)
        self.assertIn("has a run with another text", said)
        self.assertEqual(self.content("run")["step"], 1)

    def test_mistakes_are_a_line_each(self):
        (self.folder / "run").mkdir()
        (self.folder / "run/checkpoint.pt").write_bytes(b"no checkpoint")
        said = self.run_program("run", status=1)
        self.assertIn("checkpoint.pt: cannot be read", said)
        short = self.folder / "short"
        short.write_bytes(b"short")
        said = self.run_program("new", "--text", str(short), status=1)
        self.assertIn("the text has 5 bytes", said)
        said = self.run_program("new", "--text", "/nonexistent", status=1)
        self.assertIn("No such file", said)

    def test_what_was_predicted_stands_beside_what_came(self):
        said = self.run_program("run", "--steps", "4", "--auto", "--emuvctl",
                                OPTIONS.emuvctl)
        self.assertIn("plan for the processor", said)
        memory = [line.split() for line in said.splitlines()
                  if line.startswith("memory, GiB")][0]
        self.assertEqual(len(memory), 6)
        self.assertGreater(float(memory[-1]), 0)
        self.assertIn("validation loss", said)

    def test_the_model_has_the_parameters_that_the_plan_counts(self):
        import model
        import plan

        for preset in ("tiny", "small"):
            shape = {**plan.PRESETS[preset], "vocab_size": 256}
            if preset == "small":
                shape["n_layer"] = 1
            made = model.Model(shape)
            said = plan.ask(OPTIONS.emuvctl, shape, ["--dtype", "fp32"])
            self.assertEqual(sum(each.numel() for each in made.parameters()),
                             said["parameters"])

    def test_a_model_never_sees_the_byte_that_it_predicts(self):
        import model
        import plan

        made = model.Model({**plan.PRESETS["tiny"], "vocab_size": 256}).eval()
        tokens = torch.arange(64)[None]
        other = tokens.clone()
        other[0, 40:] = 0
        with torch.no_grad():
            one, two = made(tokens), made(other)
        self.assertTrue(torch.equal(one[0, :40], two[0, :40]))
        self.assertFalse(torch.equal(one[0, 40:], two[0, 40:]))

    def test_losses_fall_on_the_text_that_ships(self):
        self.run_program("run", "--steps", "30", "--rate", "3e-3", "--dropout",
                         "0")
        losses = self.losses("run")
        self.assertLess(losses[30], losses[1] - 1.5)


if __name__ == "__main__":
    PARSER = argparse.ArgumentParser()
    PARSER.add_argument("--emuvctl", required=True)
    OPTIONS, REST = PARSER.parse_known_args()
    torch.set_num_threads(1)
    unittest.main(argv=[sys.argv[0], *REST], verbosity=2)
