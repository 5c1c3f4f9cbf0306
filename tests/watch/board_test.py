#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The Grafana board and the alerts ask for metrics that emuvctl has; promtool,
where it is installed, accepts them and sees the alerts come."""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOARD = ROOT / "packaging/grafana/emuv.json"
RULES = ROOT / "packaging/prometheus/emuv-rules.yml"
# Of instances that have them alone.
SELDOM = {"emuv_instance_ram_reserve_bytes", "emuv_instance_ram_swapped_bytes"}


def promtool(*words):
    return subprocess.run(("promtool", *words), capture_output=True, text=True,
                          check=False)


class BoardTest(unittest.TestCase):
    fake = None

    def setUp(self):
        text = subprocess.run((self.fake, "stats", "--format=prometheus"), text=True,
                              check=True, stdout=subprocess.PIPE).stdout
        self.metrics = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)) | SELDOM
        self.assertIn("emuv_client_vram_used_bytes", self.metrics)
        self.board = json.loads(BOARD.read_text())

    def expressions(self):
        return [target["expr"] for panel in self.board["panels"]
                for target in panel["targets"]]

    def assert_known(self, text):
        self.assertEqual(set(re.findall(r"\bemuv_\w+", text)) - self.metrics, set())

    def test_asks_for_metrics_that_there_are(self):
        self.assert_known("\n".join(self.expressions()))
        self.assert_known(RULES.read_text())

    def test_board_has_what_grafana_loads(self):
        self.assertIsInstance(self.board["schemaVersion"], int)
        ids = [panel["id"] for panel in self.board["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        taken = set()
        for panel in self.board["panels"]:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24)
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                     for y in range(place["y"], place["y"] + place["h"])}
            self.assertFalse(taken & cells, panel["title"])
            taken |= cells
            refs = [target["refId"] for target in panel["targets"]]
            self.assertEqual(len(refs), len(set(refs)))
        names = {each["name"] for each in self.board["templating"]["list"]}
        used = set(re.findall(r"\$(?:\{)?(\w+)", json.dumps(self.board["panels"])))
        self.assertEqual(used - names - {"__rate_interval"}, set())

    def test_expressions_are_promql(self):
        if not shutil.which("promtool"):
            self.skipTest("promtool is not installed")
        rules = [{"record": "a:b", "expr": each.replace("$__rate_interval", "5m"),
                  "labels": {"n": str(i)}} for i, each in enumerate(self.expressions())]
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            # JSON is YAML.
            json.dump({"groups": [{"name": "board", "rules": rules}]}, file)
            file.flush()
            done = promtool("check", "rules", file.name)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_alerts_come_when_they_should(self):
        if not shutil.which("promtool"):
            self.skipTest("promtool is not installed")
        done = promtool("check", "rules", str(RULES))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        text = (pathlib.Path(__file__).parent / "alerts.yml").read_text()
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            file.write(text.replace("RULES", str(RULES)))
            file.flush()
            done = promtool("test", "rules", file.name)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fake", required=True, help="emuvctl with a driver in memory")
    options, rest = parser.parse_known_args()
    BoardTest.fake = options.fake
    unittest.main(argv=[sys.argv[0], *rest])
