#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""emuv.quantize on this machine's processor. Without PyTorch all of it is skipped."""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
PACKAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "python"

import with_torch  # noqa: E402, F401
import torch  # noqa: E402

sys.path.insert(0, str(PACKAGE))
from emuv import quantize as module  # noqa: E402
from emuv.quantize import FORMATS, Linear, load, quantize, save  # noqa: E402

# Relative errors that a normal distribution's weights have at the most.
WITHIN = {"e2m1-e4m3-16": 0.11, "e2m1-e4m3-32": 0.125, "e2m1-fp16-16": 0.11,
          "e2m1-fp16-32": 0.125, "symmetric": 0.25}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(64, 64)
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.GELU(),
                                torch.nn.Linear(96, 64, bias=False))
            for _ in range(2))
        self.odd = torch.nn.Linear(64, 40)
        self.narrow = torch.nn.Linear(40, 64)
        self.head = torch.nn.Linear(64, 64, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        given = self.words(tokens)
        for block in self.blocks:
            given = given + block(given)
        return self.head(given + self.narrow(self.odd(given)))


def made():
    torch.manual_seed(5)
    return Model().eval()


TOKENS = torch.arange(60).reshape(4, 15)


class QuantizeTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def test_linear_layers_become_small_and_others_stay(self):
        model = made()
        report = quantize(model, keep=["odd"])
        self.assertEqual([each.name for each in report.layers],
                         ["blocks.0.0", "blocks.0.2", "blocks.1.0",
                          "blocks.1.2"])
        self.assertEqual(report.kept, {
            "odd": "named", "narrow": "40 inputs, no multiple of 32",
            "head": "shares its weight"})
        for each in report.layers:
            self.assertIsInstance(model.get_submodule(each.name), Linear)
        self.assertIsInstance(model.odd, torch.nn.Linear)
        self.assertIs(model.head.weight, model.words.weight)
        # Half a byte and a sixteenth of one, in place of four.
        self.assertEqual(report.layers[0].bytes_before, 96 * 64 * 4)
        self.assertEqual(report.layers[0].bytes_after, 96 * 64 * 9 // 16 + 4)
        self.assertEqual(report.bytes_saved,
                         4 * (96 * 64 * 4 - 96 * 64 * 9 // 16 - 4))

    def test_a_pattern_keeps_all_that_it_names(self):
        report = quantize(made(), keep=["blocks.*"])
        self.assertEqual([each.name for each in report.layers], ["odd"])
        self.assertEqual(report.kept["blocks.0.0"], "named")

    def test_each_format_errs_as_little_as_it_can(self):
        torch.manual_seed(1)
        weight = torch.randn(64, 256)
        errors = {}
        for form in FORMATS:
            small = Linear.of(weight, form)
            errors[form] = module._relative(small.weight(), weight)
            self.assertLess(errors[form], WITHIN[form], form)
            self.assertGreater(errors[form], 0.02, form)
        self.assertLess(errors["e2m1-e4m3-16"], errors["e2m1-e4m3-32"])
        self.assertLess(errors["e2m1-e4m3-32"], errors["symmetric"])

    def test_a_layer_is_that_of_its_decoded_weight(self):
        torch.manual_seed(2)
        for kind in (torch.float32, torch.bfloat16):
            layer = torch.nn.Linear(64, 24).to(kind)
            small = Linear.of(layer.weight, "e2m1-e4m3-16", layer.bias)
            given = torch.randn(2, 3, 64).to(kind)
            wanted = torch.nn.functional.linear(given, small.weight(kind),
                                                layer.bias)
            self.assertTrue(torch.equal(small(given), wanted))

    def test_gradients_go_through_to_what_it_was_given(self):
        small = Linear.of(torch.randn(24, 64), "e2m1-e4m3-16")
        given = torch.randn(3, 64, requires_grad=True)
        small(given).sum().backward()
        self.assertTrue(torch.allclose(given.grad[0], small.weight().sum(0),
                                       atol=1e-5))

    def test_errors_are_measured_on_the_users_data(self):
        model, whole = made(), made()
        report = quantize(model, data=[TOKENS[:2], (TOKENS[2:],)])
        with torch.no_grad():
            error = module._relative(model(TOKENS), whole(TOKENS))
            first = whole.blocks[0][0]
            given = whole.words(TOKENS)
            of_first = module._relative(
                torch.nn.functional.linear(
                    given, model.blocks[0][0].weight(), first.bias),
                first(given))
        self.assertAlmostEqual(report.output_error, error, places=6)
        self.assertAlmostEqual(report.layers[0].output_error, of_first, places=6)
        for each in report.layers:
            self.assertGreater(each.output_error, 0.01)
            self.assertLess(each.output_error, 0.2)
        self.assertFalse(any(each._forward_hooks for each in model.modules()))
        self.assertIn("error of the output: 0.", str(report))
        without = quantize(made())
        self.assertIsNone(without.output_error)
        self.assertIsNone(without.layers[0].output_error)

    def test_a_saved_model_answers_with_the_same_bits(self):
        for form in FORMATS:
            model = made()
            quantize(model, form=form)
            file = self.folder / f"{form}.safetensors"
            save(model, file)
            torch.manual_seed(99)
            other = Model().eval()
            load(other, file)
            with torch.no_grad():
                self.assertTrue(torch.equal(model(TOKENS), other(TOKENS)), form)
            # Once more, into a model that is small already.
            load(other, file)
            with torch.no_grad():
                self.assertTrue(torch.equal(model(TOKENS), other(TOKENS)), form)
        self.assertEqual(len(list(self.folder.iterdir())), len(FORMATS))

    def test_the_file_is_a_safetensors_file(self):
        model = made().to(torch.bfloat16)
        quantize(model)
        file = self.folder / "model.safetensors"
        save(model, file)
        content = file.read_bytes()
        length = int.from_bytes(content[:8], "little")
        self.assertEqual(length % 8, 0)
        header = json.loads(content[8:8 + length])
        header.pop("__metadata__")
        self.assertEqual(set(header), set(model.state_dict()))
        end = 0
        for said in header.values():
            self.assertEqual(said["data_offsets"][0], end)
            end = said["data_offsets"][1]
        self.assertEqual(8 + length + end, len(content))
        self.assertEqual(header["odd.bias"]["dtype"], "BF16")
        with contextlib.suppress(ImportError):
            from safetensors.torch import load_file

            for name, tensor in load_file(file).items():
                self.assertTrue(torch.equal(tensor, model.state_dict()[name]))

    def test_files_that_are_broken_or_anothers_are_refused(self):
        model = made()
        quantize(model)
        file = self.folder / "model.safetensors"
        save(model, file)
        content = file.read_bytes()
        for broken in (b"", content[:100], content[:-1],
                       b"\xff" * 8 + content[8:], b"{}"):
            file.write_bytes(broken)
            with self.assertRaises(ValueError):
                load(made(), file)
        file.write_bytes(content)
        with self.assertRaises(ValueError):
            load(torch.nn.Sequential(torch.nn.Linear(64, 96)), file)

    def test_wrong_arguments_are_errors_and_change_nothing(self):
        model = made()
        for how in ({"keep": ["nothing"]}, {"form": "int8"}):
            with self.assertRaises(ValueError):
                quantize(model, **how)
        with self.assertRaises(ValueError):
            Linear(40, 8, "symmetric")
        self.assertFalse(any(isinstance(each, Linear)
                             for each in model.modules()))

    def test_without_the_library_the_error_names_the_remedy(self):
        done = subprocess.run(
            [sys.executable, "-c",
             "import torch; from emuv.quantize import Linear\n"
             "Linear.of(torch.zeros(8, 32), 'symmetric')"],
            env={**os.environ, "EMUV_KERNELS": "/nonexistent.so",
                 "PYTHONPATH": str(PACKAGE)},
            capture_output=True, text=True, check=False)
        self.assertIn("KernelsError: /nonexistent.so", done.stderr)
        self.assertIn("name libemuv-kernels.so in EMUV_KERNELS", done.stderr)


if __name__ == "__main__":
    PARSER = argparse.ArgumentParser()
    PARSER.add_argument("--library", dest="kernels", required=True)
    OPTIONS, REST = PARSER.parse_known_args()
    os.environ["EMUV_KERNELS"] = OPTIONS.kernels
    torch.set_num_threads(1)
    unittest.main(argv=[sys.argv[0], *REST], verbosity=2)
