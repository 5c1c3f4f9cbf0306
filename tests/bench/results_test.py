#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The format of results: what is one, what is none, and what the benchmarks
leave. Arguments: growth_bench's file, and then unittest's."""

import copy
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
import results  # noqa: E402

growth_bench = None
GOOD = {
    "schema": 1, "benchmark": "run-chain", "title": "Products",
    "command": "tests/bench/run-chain", "commit": "85bce01", "card": "a card",
    "driver": None, "link_gb_s": 54.7, "date": "2026-11-25",
    "tables": [{"unit": "ms", "columns": [
        {"name": "work", "title": "work"},
        {"name": "native", "title": "native"},
        {"name": "of_limit", "title": "of the limit", "unit": ""}],
        "rows": [{"work": "products", "native": 2.5, "of_limit": None}]}]}


def with_cell(name, value):
    """GOOD with another cell."""
    document = copy.deepcopy(GOOD)
    document["tables"][0]["rows"][0][name] = value
    return document


class Format(unittest.TestCase):
    def refused(self, document, why):
        found = results.problems(document)
        self.assertEqual(len(found), 1, found)
        self.assertIn(why, found[0])

    def test_a_good_file_is_one(self):
        self.assertEqual(results.problems(GOOD), [])

    def test_a_cell_of_two_numbers_is_refused(self):
        for text in ("52; 2.3", "1.1 to 1.4", "140, 149", "17.0", "~20",
                     "170–250"):
            with self.subTest(text):
                self.refused(with_cell("native", text), "numbers as text")

    def test_text_with_a_number_in_it_is_no_number(self):
        for text in ("GPT-2 of 1.5 B", "2 MiB", "memfd, 4 KiB pages"):
            with self.subTest(text):
                self.assertEqual(results.problems(with_cell("work", text)), [])

    def test_a_cell_is_neither_truth_nor_list_nor_infinite(self):
        self.refused(with_cell("native", True), "neither number")
        self.refused(with_cell("native", [1, 2]), "neither number")
        self.refused(with_cell("native", float("inf")), "not finite")
        self.refused(with_cell("work", ""), "empty text")

    def test_a_number_has_a_unit(self):
        document = copy.deepcopy(GOOD)
        document["tables"][0]["unit"] = None
        self.refused(document, "without a unit")
        table = document["tables"][0]
        table["columns"].insert(1, {"name": "unit", "title": "unit"})
        table["rows"] = [{"work": "a launch", "unit": "µs", "native": 2.5,
                          "of_limit": None}]
        self.assertEqual(results.problems(document), [])

    def test_a_row_has_a_cell_for_each_column(self):
        document = copy.deepcopy(GOOD)
        del document["tables"][0]["rows"][0]["of_limit"]
        self.refused(document, "its cells are not the columns'")
        self.refused(with_cell("moving", 3), "its cells are not the columns'")

    def test_each_field_has_to_be_there_and_no_other(self):
        for name in GOOD:
            with self.subTest(name):
                document = copy.deepcopy(GOOD)
                del document[name]
                self.refused(document, f"no {name}")
        self.refused(dict(GOOD, machine="mine"), "unknown field machine")

    def test_a_commit_a_day_and_a_schema_are_told_from_what_is_none(self):
        self.refused(dict(GOOD, commit="the present one"), "is no commit")
        self.assertEqual(results.problems(dict(GOOD, commit="85bce01-dirty")),
                         [])
        self.refused(dict(GOOD, date="25.11.2026"), "is no day")
        self.refused(dict(GOOD, recorded="2026-11-31"), "is no day")
        self.refused(dict(GOOD, schema=2), "schema 2")

    def test_a_file_without_tables_is_none(self):
        self.refused(dict(GOOD, tables=[]), "no table")
        self.assertIn("not an object", results.problems([])[0])


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "is.json"

    def test_those_of_the_tree_keep_to_the_format(self):
        files = sorted((ROOT / "docs/results").glob("*.json"))
        self.assertTrue(files)
        for path in files:
            with self.subTest(path.name):
                self.assertEqual(results.problems(results.read(path)), [])

    def test_shares_of_the_limit_are_those_of_their_row(self):
        compared = 0
        for path in sorted((ROOT / "docs/results").glob("*.json")):
            for table in results.read(path)["tables"]:
                for row in table["rows"]:
                    known = [row.get(name) for name in
                             ("limit", "moving", "of_limit")]
                    if None not in known:
                        limit, moving, share = known
                        compared += 1
                        self.assertAlmostEqual(limit / moving, share,
                                               delta=0.012,
                                               msg=f"{path.name}: {row}")
        self.assertGreater(compared, 0)

    def test_what_is_read_back_is_what_was_written(self):
        results.write(self.file, GOOD)
        self.assertEqual(results.read(self.file), GOOD)

    def test_what_is_no_file_of_results_is_not_written(self):
        with self.assertRaises(ValueError):
            results.write(self.file, with_cell("native", "52; 2.3"))
        self.assertFalse(self.file.exists())

    def test_a_number_that_json_does_not_have_is_not_read(self):
        self.file.write_text('{"schema": NaN}')
        with self.assertRaises(ValueError):
            results.read(self.file)

    def test_a_text_table_becomes_a_file(self):
        def run(rows):
            return subprocess.run(
                [sys.executable, HERE / "results.py", self.file, "--benchmark",
                 "run-chain", "--title", "Products", "--command", "run-chain",
                 "--link", "54.7", "--unit", "ms a pass", "--columns",
                 "rows==,native,still=standing still,bits"], input=rows,
                text=True, capture_output=True)
        self.assertEqual(run("1 2.25 - same\n\n64 2.34 3e1 varies_itself\n")
                         .returncode, 0)
        document = results.read(self.file)
        self.assertEqual(document["link_gb_s"], 54.7)
        self.assertEqual(document["tables"][0]["rows"], [
            {"rows": 1, "native": 2.25, "still": None, "bits": "same"},
            {"rows": 64, "native": 2.34, "still": 30.0,
             "bits": "varies itself"}])
        failed = run("1 2.25\n")
        self.assertEqual(failed.returncode, 1)
        self.assertIn("is.json", failed.stderr)

    def test_a_program_of_c_leaves_such_a_file(self):
        if growth_bench is None:
            self.skipTest("growth_bench is not named")
        plain = subprocess.run([growth_bench, "schedule"], text=True,
                               check=True, capture_output=True).stdout
        done = subprocess.run([growth_bench, "--json", self.file, "schedule"],
                              text=True, check=True, capture_output=True)
        self.assertEqual(len(done.stdout.splitlines()),
                         len(plain.splitlines()))
        document = results.read(self.file)
        self.assertEqual(results.problems(document), [])
        self.assertEqual(document["benchmark"], "growth_bench")
        self.assertEqual(document["card"], "none")
        self.assertEqual(document["commit"], results.commit())
        self.assertEqual(document["command"],
                         "tests/bench/growth_bench schedule")
        self.assertEqual(len(document["tables"]), 1)
        numbers = [row["value"] for row in document["tables"][0]["rows"]]
        self.assertEqual(len(numbers), 3)
        self.assertTrue(all(results.is_number(one) for one in numbers))

    def test_a_program_of_c_says_when_it_cannot_write(self):
        if growth_bench is None:
            self.skipTest("growth_bench is not named")
        done = subprocess.run(
            [growth_bench, "--json", "/nowhere/is.json", "schedule"],
            text=True, capture_output=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere/is.json", done.stderr)


# Instead of nvcc: the "program" that it leaves prints as a real one would.
NVCC = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
cat >"$2" <<'END'
#!/bin/sh
echo 'emuV: the link moves 50.0 GB/s' >&2
case $0 in
*/chain)
    shift
    for m; do echo "$m 10.5 0123456789abcdef"; done ;;
*) printf '%s 20.25 0123456789abcdef\\n' chase gather sequence ;;
esac
END
chmod +x "$2"
"""
# In the stead of cmake.
CMAKE = """#!/bin/sh
[ "$1" != --build ] || mkdir -p "$2/tools/cuda/lib"
"""
# In the stead of a model.
MODEL = """import json, os, sys
moving = os.environ.get("EMUV_MOVE") == "1"
if moving and os.environ.get("FAILS"):
    sys.exit(1)
print("emuV: the link moves 50.0 GB/s", file=sys.stderr)
print(json.dumps({"ms": 125.0 if moving else 100.0, "loop_ms": 0.25,
                  "used_gib": 14.0, "held_gib": 15.0, "digests": ["a"]}))
"""


class Scripts(unittest.TestCase):
    """The scripts that run benchmarks on a card, with programs made up."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in (("nvcc", NVCC), ("cmake", CMAKE),
                           ("nvidia-smi", "#!/bin/sh\necho 'a card, 1.2'\n")):
            file = self.folder / "bin" / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
            file.chmod(0o755)
        self.environment = {
            name: value for name, value in os.environ.items()
            if not name.startswith("EMUV_")}
        self.environment.update(
            PATH=f"{self.folder}/bin:{os.environ['PATH']}",
            EMUV_BENCH_BUILD=str(self.folder / "build"))

    def left_by(self, *command, status=0, **environment):
        """The file that @p command leaves, as results; it is started where the
        file shall be."""
        done = subprocess.run([HERE / command[0], *command[1:], "--json",
                               "is.json"], cwd=self.folder, text=True,
                              env=dict(self.environment, **environment),
                              capture_output=True)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        document = results.read(self.folder / "is.json")
        self.assertEqual(results.problems(document), [])
        self.assertEqual((document["card"], document["driver"]),
                         ("a card", "1.2"))
        return document

    def test_run_chain_leaves_its_table(self):
        document = self.left_by("run-chain", EMUV_CHAIN_RATIOS="2",
                                EMUV_CHAIN_ROWS="1 64", EMUV_AWAY="unmapped")
        self.assertEqual(document["link_gb_s"], 50.0)
        self.assertEqual(document["command"],
                         "EMUV_AWAY=unmapped EMUV_CHAIN_RATIOS=2 "
                         "EMUV_CHAIN_ROWS=1 64 tests/bench/run-chain")
        self.assertEqual(document["tables"][0]["rows"], [
            {"over": 2, "rows": rows, "native": 10.5, "limit": 96.64,
             "moving": 10.5, "still": None, "of_limit": 9.204,
             "bits": "same"} for rows in (1, 64)])

    def test_run_chase_leaves_its_table(self):
        document = self.left_by("run-chase", EMUV_CHASE_GIB="4")
        rows = document["tables"][0]["rows"]
        self.assertEqual([row["work"] for row in rows],
                         ["chase", "gather", "sequence"])
        self.assertEqual(rows[0]["moving"], 20.25)
        self.assertEqual(rows[0]["of_pinned"], 1.0)

    def test_run_workloads_leaves_its_table(self):
        model = self.folder / "model.py"
        model.write_text(MODEL)
        command = ("run-workloads", "--only", "prefill", "--library",
                   str(model), "--program", str(model))
        rows = self.left_by(*command)["tables"][0]["rows"]
        self.assertEqual([row["share"] for row in rows], [12.0, 6.8])
        self.assertEqual(rows[1]["limit"], round(7.2 * 2 ** 30 / 50e6, 1))
        self.assertEqual(rows[1]["moving"], 125.0)
        self.assertEqual(rows[1]["link"], 50.0)
        self.assertEqual(rows[1]["bits"], "same")
        self.assertIsNone(rows[1]["still"])
        rows = self.left_by(*command, status=1, FAILS="1")["tables"][0]["rows"]
        self.assertIsNone(rows[0]["moving"])
        self.assertEqual(rows[0]["bits"], "failed")


class Page(unittest.TestCase):
    def test_it_is_what_the_files_give(self):
        done = subprocess.run([ROOT / "scripts/results", "--check"], text=True,
                              capture_output=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, "", ""))

    def test_another_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            there = pathlib.Path(folder)
            for name in ("scripts", "tests/bench"):
                (there / name).mkdir(parents=True)
            for name in ("scripts/results", "tests/bench/results.py"):
                shutil.copy(ROOT / name, there / name)
            shutil.copytree(ROOT / "docs/results", there / "docs/results")

            def run(*arguments):
                return subprocess.run([there / "scripts/results", *arguments],
                                      text=True, capture_output=True)
            self.assertEqual(run("--check").returncode, 1)
            self.assertEqual(run().returncode, 0)
            self.assertEqual(run("--check").returncode, 0)
            with (there / "docs/results.md").open("a") as page:
                page.write("by hand\n")
            done = run("--check")
            self.assertEqual(done.returncode, 1)
            self.assertIn("docs/results.md", done.stdout)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        growth_bench = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
