#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands by which run-programs starts programs do what its rows say."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


def run_programs():
    """The module of run-programs."""
    loader = importlib.machinery.SourceFileLoader("measured", str(HERE / "run-programs"))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("measured", loader))
    loader.exec_module(module)
    return module


class Commands(unittest.TestCase):
    def test_emuvctl_is_given_tiers_and_movement_as_options(self):
        measured = run_programs()
        options = {}
        for name, file, more in measured.variants(
                [("emuV", pathlib.Path("lib/libcuda.so.1"))], "peer:1=60G", ""):
            command = measured.started("emuvctl", file, 1 << 30, more)
            self.assertEqual(command[:2] + command[-1:], ["emuvctl", "run", "--"])
            words = iter(command[2:-1])
            options[name] = [(word, next(words)) if word == "--tier" else word
                             for word in words if word in ("--tier", "--move=off")]
        self.assertEqual(options, {
            "emuV": [], "emuV, tier": [("--tier", "peer:1=60G")],
            "emuV, tier, still": [("--tier", "peer:1=60G"), "--move=off"]})


if __name__ == "__main__":
    unittest.main()
