#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/plots --check names the SVG that was drawn from other files, no other."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDED = ("scripts/plots", "scripts/pictures", "scripts/check-wings",
          "tests/bench/results.py", "docs/results", "docs/plots",
          "docs/explanation", "tools/cuda")
PICTURES = ["docs/plots/halves.svg", "docs/plots/unit-states.svg",
            "docs/explanation/ledger.svg", "docs/explanation/movement.svg",
            "docs/explanation/pools.svg", "docs/explanation/trust.svg"]


class PlotsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name).resolve() / "tree"
        for name in NEEDED:
            source, target = ROOT / name, self.tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target)
            else:
                shutil.copy(source, target)
        # Machines that check have no matplotlib.
        without = self.tree / "without"
        without.mkdir()
        (without / "matplotlib.py").write_text("raise ImportError\n")
        self.environment = {**os.environ, "PYTHONPATH": str(without)}

    def append(self, name, text):
        with (self.tree / name).open("a", encoding="utf-8") as file:
            file.write(text)

    def named(self):
        """The files that are found to be stale."""
        done = subprocess.run([self.tree / "scripts/plots", "--check"],
                              text=True, check=False, env=self.environment,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        lines = done.stdout.splitlines()
        self.assertEqual((done.returncode, done.stderr), (bool(lines), ""))
        return [line.split(":")[0] for line in lines]

    def test_all_are_drawn_from_the_present_files(self):
        self.assertEqual(self.named(), [])

    def test_a_picture_with_another_source_is_named(self):
        self.append("scripts/pictures/pools.py", "# More.\n")
        self.assertEqual(self.named(), ["docs/explanation/pools.svg"])

    def test_all_pictures_are_named_where_their_tool_has_changed(self):
        self.append("scripts/pictures/drawing.py", "# More.\n")
        self.assertEqual(self.named(), PICTURES)

    def test_a_picture_that_is_not_there_is_named(self):
        (self.tree / "docs/explanation/trust.svg").unlink()
        self.assertEqual(self.named(), ["docs/explanation/trust.svg"])

    def test_the_wings_are_named_where_one_includes_another_for_the_first_time(self):
        self.append("tools/cuda/policy/pace.cpp", '#include "base/size.hpp"\n')
        self.assertEqual(self.named(), ["docs/plots/halves.svg"])

    def test_the_wings_are_not_named_for_one_more_include(self):
        self.append("tools/cuda/memory/ranges.cpp", '#include "base/trace.hpp"\n')
        self.assertEqual(self.named(), [])

    def test_the_wings_are_named_where_their_order_changes(self):
        path = self.tree / "scripts/check-wings"
        path.write_text(path.read_text().replace(
            '("record", "policy")', '("record",), ("policy",)'))
        self.assertEqual(self.named(), ["docs/plots/halves.svg"])

    def test_a_plot_with_other_results_is_named(self):
        shutil.copy(self.tree / "docs/results/chain-rows-h200.json",
                    self.tree / "docs/results/chain-h200.json")
        self.assertEqual(self.named(), ["docs/plots/products.svg"])

    def test_drawing_without_matplotlib_says_how_to_get_it(self):
        done = subprocess.run([self.tree / "scripts/plots"], text=True,
                              check=False, env=self.environment,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        self.assertIn("python3-matplotlib", done.stderr)


if __name__ == "__main__":
    unittest.main()
