#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""emuvctl's metrics are Prometheus' text format, by promtool where it is
installed and by rules of its own. A file of them is replaced as a whole."""

import argparse
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

MACHINE = pathlib.Path(__file__).resolve().parents[1] / "cli/machine"
NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|\})')


def read_metrics(text):
    """The families of a text by name: (type, [(labels, value)]). Raises
    ValueError where a line breaks the format."""
    families = {}
    helped = name = None
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            helped, _, words = line[7:].partition(" ")
            if not words.endswith("."):
                raise ValueError(f"no sentence: {line}")
        elif line.startswith("# TYPE "):
            name, _, kind = line[7:].partition(" ")
            if name != helped or name in families or not NAME.match(name):
                raise ValueError(f"a type without its help, or twice: {line}")
            families[name] = (kind, [])
        else:
            rest, labels = line.removeprefix(name), {}
            if rest.startswith("{"):
                rest, end = rest[1:], ","
                while end == ",":
                    found = LABEL.match(rest)
                    if not found or found[1] in labels:
                        raise ValueError(f"bad labels: {line}")
                    labels[found[1]], end = found[2], found[3]
                    rest = rest[found.end():]
            if not rest.startswith(" "):
                raise ValueError(f"a series outside its family: {line}")
            series = families[name][1]
            if labels in [other for other, _ in series]:
                raise ValueError(f"a series twice: {line}")
            series.append((labels, float(rest)))
    if not text.endswith("\n"):
        raise ValueError("the last line has no end")
    return families


class MetricsTest(unittest.TestCase):
    emuvctl = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {
            **os.environ, "LC_ALL": "C",
            "EMUV_SYSFS_ROOT": str(MACHINE / "sys"),
            "EMUV_PROC_ROOT": str(MACHINE / "proc"),
            "EMUV_DEV_ROOT": str(self.folder / "dev")}

    def stats(self, *options, status=0):
        done = subprocess.run(
            (self.emuvctl, "stats", "--format=prometheus", *options), text=True,
            env=self.environment, capture_output=True, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def test_follows_the_format_and_its_names(self):
        for name, (kind, series) in read_metrics(self.stats()).items():
            with self.subTest(name):
                self.assertTrue(series)
                self.assertIn(kind, ("gauge", "counter"))
                self.assertEqual(kind == "counter", name.endswith("_total"))
                unit = name.removesuffix("_total").rsplit("_", 1)[1]
                self.assertIn(unit, ("bytes", "seconds", "info", "loaded", "clients",
                                     "spills", "faults"))

    def test_is_accepted_by_promtool(self):
        if not shutil.which("promtool"):
            self.skipTest("promtool is not installed")
        done = subprocess.run(("promtool", "check", "metrics"), text=True,
                              input=self.stats(), capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_has_the_figures_in_bytes_and_seconds(self):
        families = read_metrics(self.stats("emuv0"))
        self.assertEqual(families["emuv_instance_vram_used_bytes"],
                         ("gauge", [({"vgpu": "emuv0"}, 4 << 30)]))
        self.assertEqual(families["emuv_instance_stalled_seconds_total"],
                         ("counter", [({"vgpu": "emuv0"}, 1.25)]))

    def test_says_that_the_module_is_not_loaded(self):
        self.environment["EMUV_SYSFS_ROOT"] = str(self.folder)
        self.assertEqual(read_metrics(self.stats()),
                         {"emuv_module_loaded": ("gauge", [({}, 0)])})

    def test_names_the_card_as_dcgm_exporter_does(self):
        uuid = "GPU-11111111-2222-3333-4444-555555555555"
        card = self.folder / "driver/nvidia/gpus/0000:01:00.0"
        card.mkdir(parents=True)
        self.environment["EMUV_PROC_ROOT"] = str(self.folder)
        for text, known in ((f"Model: \t\t A card\nGPU UUID: \t {uuid}\n", True),
                            ("GPU UUID: \t GPU-????????-????-????\n", False)):
            (card / "information").write_text(text)
            _, series = read_metrics(self.stats("emuv0"))["emuv_instance_clients"]
            self.assertEqual(series[0][0].get("UUID"), uuid if known else None)
            # As nvidia-smi has it, so that its lines can be joined with these.
            done = subprocess.run(
                (self.emuvctl, "list", "emuv0", "--query=uuid,gpu_uuid", "--format=csv,noheader"),
                text=True, env=self.environment, capture_output=True, check=True)
            self.assertEqual(done.stdout, ", ".join([uuid if known else "[N/A]"] * 2) + "\n")

    def test_file_is_replaced_as_a_whole(self):
        file = self.folder / "emuv.prom"
        self.stats("--output", str(file))
        first = file.stat()
        mask = os.umask(0)
        os.umask(mask)
        self.assertEqual(stat.S_IMODE(first.st_mode), 0o644 & ~mask)
        with file.open() as reader:  # it keeps the old file
            file.chmod(0o640)
            self.stats("--output", str(file), "-i", "0.01", "-c", "2")
            self.assertNotEqual(file.stat().st_ino, first.st_ino)
            self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o640)
            self.assertEqual(reader.read(), file.read_text())
        self.assertEqual([each.name for each in self.folder.iterdir()], ["emuv.prom"])

    def test_file_stays_where_there_is_no_such_instance(self):
        file = self.folder / "emuv.prom"
        file.write_text("old")
        self.assertIn("emuv7", self.stats("-o", str(file), "emuv7", status=1))
        self.assertEqual(file.read_text(), "old")

    def test_link_is_followed(self):
        file, link = self.folder / "file", self.folder / "link"
        file.touch()
        link.symlink_to("file")
        self.stats("--output", str(link))
        self.assertTrue(link.is_symlink())
        self.assertIn("emuv_module_loaded 1", file.read_text())

    def test_device_or_folder_is_no_place_for_a_file(self):
        for place in ("/dev/null", self.folder):
            self.assertIn("it is not a regular file",
                          self.stats("--output", str(place), status=1))
        self.assertTrue(pathlib.Path("/dev/null").is_char_device())
        self.assertIn("no such file or directory",
                      self.stats("-o", str(self.folder / "no/file"), status=1).lower())

    def test_goes_with_no_other_form(self):
        for option in ("--json", "--bytes", "--raw", "--noheadings", "--query=name"):
            self.assertIn("exclude each other", self.stats(option, status=2))
        self.assertIn("needs --output FILE", self.stats("-i", "1", status=2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emuvctl", required=True)
    options, rest = parser.parse_known_args()
    MetricsTest.emuvctl = options.emuvctl
    unittest.main(argv=[sys.argv[0], *rest])
