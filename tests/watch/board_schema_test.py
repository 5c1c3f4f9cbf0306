#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The Grafana board has the types that Grafana publishes. They are TypeScript:

    npm install --prefix FOLDER @grafana/schema typescript
    EMUV_GRAFANA_SCHEMA=FOLDER ctest --preset default -R watch.board_schema

Skipped without them."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOARD = ROOT / "packaging/grafana/emuv.json"
FOLDER = pathlib.Path(os.environ.get("EMUV_GRAFANA_SCHEMA", "/nonexistent"))
COMPILER = FOLDER / "node_modules/typescript/bin/tsc"
SCHEMA = FOLDER / "node_modules/@grafana/schema"
# In JSON a member of an enumeration is its value. Unknown members are errors.
CHECK = """
import type {{ Dashboard, Panel }} from "@grafana/schema";
import type {{ Options, FieldConfig }} from
    "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";
type Plain<T> = T extends string ? `${{T}}` : T extends number | boolean | null | undefined ? T
    : T extends readonly (infer E)[] ? Plain<E>[] : T extends object ? {{ [K in keyof T]: Plain<T[K]> }} : T;
export const board: Plain<Dashboard> = {board};
export const panels: Plain<Panel>[] = {panels};
export const options: Plain<Options>[] = {options};
export const fields: Partial<Plain<FieldConfig>>[] = {fields};
"""


class BoardSchemaTest(unittest.TestCase):
    def complaints(self, board):
        """The compiler's messages about a board."""
        panels = board["panels"]
        parts = {"board": board, "panels": panels,
                 "options": [each["options"] for each in panels],
                 "fields": [each["fieldConfig"]["defaults"]["custom"] for each in panels]}
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "node_modules").symlink_to(FOLDER / "node_modules")
            (folder / "board.ts").write_text(CHECK.format(
                **{key: json.dumps(value, indent=1) for key, value in parts.items()}))
            return subprocess.run(
                ("node", COMPILER, "--noEmit", "--strict", "--skipLibCheck", "--target", "es2022",
                 "--module", "esnext", "--moduleResolution", "bundler", "board.ts"),
                cwd=folder, text=True, check=False, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT).stdout

    def setUp(self):
        self.board = json.loads(BOARD.read_text())
        self.assertEqual({each["type"] for each in self.board["panels"]}, {"timeseries"})

    def test_the_board_has_grafanas_types(self):
        self.assertEqual(self.complaints(self.board), "")

    def test_a_board_with_another_member_or_value_has_not(self):
        self.board["panels"][0]["options"]["tooltip"]["mode"] = "some"
        self.board["panels"][1]["fieldConfig"]["defaults"]["custom"]["lineWidht"] = 1
        said = self.complaints(self.board)
        self.assertIn('"some"', said)
        self.assertIn("lineWidht", said)


if __name__ == "__main__":
    if not (COMPILER.exists() and SCHEMA.exists() and shutil.which("node")):
        print("EMUV_GRAFANA_SCHEMA names no folder with @grafana/schema and typescript")
        sys.exit(77)
    unittest.main()
