#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Each setting of docs/reference/settings.md, asked for by its option of `emuvctl
run`, reaches the program's environment; and the page has every option."""

import argparse
import fcntl
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| `(EMUV_\w+)` \| `(--[a-z]+)` \|", re.MULTILINE)
WORD = re.compile(r"^\| \| \| `([^`]+)`")

# By setting: the option's value, None for a flag; what the program is to find;
# and what the option takes beside it. FOLDER is one that exists.
LIMIT = ("--physical", "64M")
EXAMPLES = {
    "EMUV_PHYSICAL": ("1.5 GiB", "1610612736", ()),
    "EMUV_VIRTUAL": ("48G", "51539607552", ()),
    "EMUV_TIER": ("peer:1=40G,ram=1.5 GiB", "peer:1=40G,ram=1.5 GiB", LIMIT),
    # Without the module an instance can be named where nothing is charged.
    "EMUV_INSTANCE": ("emuv3,0,0", "3,0,0", ("--disable",)),
    "EMUV_LEDGER": ("FOLDER/x/../ledger", "FOLDER/ledger", LIMIT),
    "EMUV_REPORT": ("physical", "physical", LIMIT),
    "EMUV_STORE": ("pages", "pages", LIMIT),
    "EMUV_CHARGE": ("allocations", "allocations", LIMIT),
    "EMUV_IPC": (None, "1", LIMIT),
    "EMUV_RECLAIM": (None, "1", LIMIT),
    "EMUV_MOVE": ("check", "check", LIMIT),
    "EMUV_AWAY": ("unmapped", "unmapped", LIMIT),
    "EMUV_CACHED": ("used", "used", LIMIT),
    "EMUV_TRUST": ("known,lib*.so", "known,lib*.so", LIMIT),
    "EMUV_TRACE": ("FOLDER/trace", "FOLDER/trace", LIMIT),
    "EMUV_STATS": ("FOLDER/stats", "FOLDER/stats", LIMIT),
    "EMUV_RECORD": ("FOLDER/tape", "FOLDER/tape", ()),
    "EMUV_DISABLE": (None, "1", ()),
    "EMUV_LIBCUDA": ("FOLDER/libcuda.so.1", "FOLDER/libcuda.so.1", LIMIT),
    "EMUV_LIBNVML": ("FOLDER/libcuda.so.1", "FOLDER/libcuda.so.1", LIMIT),
}


class RunSettingsTest(unittest.TestCase):
    emuvctl = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "x").mkdir()
        (self.folder / "libcuda.so.1").touch()  # the dynamic linker skips it
        self.page = (ROOT / "docs/reference/settings.md").read_text()

    def run_under(self, *options, **variables):
        environment = {name: text for name, text in os.environ.items()
                       if not name.startswith(("EMUV_", "LD_PRELOAD"))}
        environment.update(variables)
        return subprocess.run(
            [self.emuvctl, "run",
             *(() if "--library" in options else ("--library", self.folder)),
             *options, "--", "/usr/bin/env"], env=environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def environment_under(self, *options, **variables):
        done = self.run_under(*options, **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        return dict(line.split("=", 1) for line in done.stdout.splitlines()
                    if "=" in line)

    def in_folder(self, text):
        return text.replace("FOLDER", str(self.folder))

    def test_a_tape_is_emptied_unless_somebody_writes_it(self):
        tape = self.folder / "tape"
        tape.write_bytes(b"of before")
        with tape.open("rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            self.environment_under("--record", tape)
            self.assertEqual(tape.read_bytes(), b"of before")
        self.environment_under("--record", tape)
        self.assertEqual(tape.read_bytes(), b"")
        self.environment_under("--record", "/dev/null")

    def test_every_setting_reaches_the_program(self):
        rows = dict(ROW.findall(self.page))
        self.assertEqual(set(rows), set(EXAMPLES))
        for setting, (given, expected, beside) in EXAMPLES.items():
            with self.subTest(setting):
                words = [rows[setting]]
                if setting == "EMUV_MOVE":
                    words = [f"{words[0]}={given}"]
                elif given is not None:
                    words.append(self.in_folder(given))
                found = self.environment_under(*words, *beside)
                self.assertEqual(found.get(setting), self.in_folder(expected))
                # And only where it is asked for.
                if setting not in ("EMUV_PHYSICAL", "EMUV_LEDGER"):
                    self.assertNotIn(setting, self.environment_under(*LIMIT))

    def test_every_word_of_the_page_reaches_the_program(self):
        option = setting = None
        seen = set()
        for line in self.page.splitlines():
            if found := ROW.match(line):
                setting, option = found.groups()
            elif found := WORD.match(line):
                word = found[1]
                said = "off" if (option, word) == ("--move", "0") else word
                with self.subTest(option, word=word):
                    environment = self.environment_under(
                        f"{option}={said}", *LIMIT)
                    self.assertEqual(environment[setting], word)
                seen.add((option, word))
        self.assertLessEqual({("--away", "unmapped"), ("--move", "check"),
                              ("--store", "auto"), ("--trust", "none")}, seen)

    def test_the_library_reads_no_variable_that_the_page_has_not(self):
        read = set()
        for file in (ROOT / "tools/cuda").rglob("*"):
            if file.suffix in (".cpp", ".hpp", ".def", ".txt"):
                read.update(re.findall(r'(?:"|SETTING )(EMUV_[A-Z]+)(?=["\s])',
                                       file.read_text()))
        # Of emuvctl's own use: no option asks for it by itself.
        internal = {"EMUV_SCORE"}
        self.assertEqual(read, set(dict(ROW.findall(self.page))) | internal)
        for each in internal:
            self.assertIn(f"`{each}`", self.page)

    def test_the_page_has_the_defaults_of_settings_that_can_have_one(self):
        # A switch and tiers, of which emuvctl and containers' files say a default.
        for each in ("EMUV_MOVE_DEFAULT", "EMUV_TIER_DEFAULT"):
            self.assertIn(f"`{each}`", self.page)

    def test_limits_from_outside_do_not_mix_with_those_asked_for(self):
        found = self.environment_under(*LIMIT, EMUV_VIRTUAL="1G", EMUV_TIER="peer:1=1G",
                                       EMUV_TIER_DEFAULT="peer:2=1G",
                                       EMUV_INSTANCE="5", EMUV_REPORT="free")
        self.assertFalse({"EMUV_TIER", "EMUV_TIER_DEFAULT"} & {*found})
        self.assertNotIn("EMUV_VIRTUAL", found)
        self.assertNotIn("EMUV_INSTANCE", found)
        self.assertEqual(found["EMUV_REPORT"], "free")

    def test_a_named_ledger_is_kept_and_an_own_one_is_not(self):
        ledger = self.folder / "ledger"
        ledger.write_bytes(b"")
        self.assertEqual(
            self.environment_under(*LIMIT, "--ledger",
                                   ledger)["EMUV_LEDGER"], str(ledger))
        self.assertTrue(ledger.is_file())
        own = self.environment_under(*LIMIT)["EMUV_LEDGER"]
        self.assertTrue(own.startswith("/dev/shm/emuv-ledger-"), own)

    def test_what_cannot_be_is_refused_before_the_program_starts(self):
        missing = self.folder / "none" / "there"
        for words, message, status in (
                (("--ipc",), "give --instance, or --physical, --virtual or "
                 "both", 125),
                (("--trust", "all", "--move=off", *LIMIT),
                 "--trust does nothing where no memory moves", 125),
                (("--trace", "x", "--store", "pages", *LIMIT),
                 "--trace does nothing where no memory moves", 125),
                (("--record", "x", *LIMIT), "--record goes without a limit: "
                 "a tape is of a program by itself", 125),
                (("--move", "--store", "pages", *LIMIT),
                 "--move needs the numa store: pages do not move", 125),
                (("--tier", "peer:1", *LIMIT),
                 "--tier: 'peer:1' is no list of tiers, such as peer:1=40G, "
                 "packed=8G, ram=48G or file:/var/lib/emuv=200G", 125),
                (("--tier", "file:here=1G", *LIMIT),
                 "--tier: 'file:here=1G' has no whole path for the file: write "
                 "file:/var/lib/emuv=200G, the folder without a comma in it",
                 125),
                (("--tier", "file:/here=1G", "--tier", "ram=1G", *LIMIT),
                 "--tier: 'file:/here=1G,ram=1G' names tiers twice, or not "
                 "from the fastest on: cards, then packed, then ram, then a file",
                 125),
                (("--tier", "ram=1G,packed=1G", *LIMIT),
                 "--tier: 'ram=1G,packed=1G' names tiers twice, or not "
                 "from the fastest on: cards, then packed, then ram, then a file",
                 125),
                (("--tier", "peer:1=1G", "--store", "pages", *LIMIT),
                 "--tier needs the numa store: pages are system RAM", 125),
                (("--move", "--trust", "known,,x", *LIMIT),
                 "--trust: 'known,,x' has an empty name in it", 125),
                (("--instance", "0,", "--disable"), "'' names no instance; "
                 "write emuv0, 0, /dev/emuv0, or a name that 'create --name' gave",
                 125),
                (("--instance", "0", "--ledger", "x"),
                 "--instance does not go with --ledger", 125),
                (("--physical", "2000T"), "--physical: 2000T is more than "
                 "1 PiB", 125),
                (("--libcuda", missing, *LIMIT),
                 f"--libcuda: {missing}: no such file", 125),
                (("--move", "--trace", missing, *LIMIT),
                 f"{missing}: no such file or directory", 125),
                (("--ledger", missing, *LIMIT),
                 f"{missing}: no such file or directory", 125),
                (("--library", missing, *LIMIT),
                 f"--library: {missing}: no libcuda.so.1 in it", 125)):
            with self.subTest(words):
                done = self.run_under(*words)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertEqual(done.stderr.splitlines()[0],
                                 f"emuvctl: run: {message}")
                self.assertEqual(done.stdout, "")

    def test_tiers_may_be_given_one_by_one(self):
        found = self.environment_under(
            "--tier", "peer:1=1G", "--tier", "packed=1G", "--tier", "ram=2G",
            "--tier", "file:/a b=3G", *LIMIT)
        self.assertEqual(found["EMUV_TIER"],
                         "peer:1=1G,packed=1G,ram=2G,file:/a b=3G")

    def test_a_store_of_the_environment_is_checked_as_that_of_the_option(self):
        for words, message in (
                (("--move",), "--move needs the numa store: pages do not move"),
                (("--tier", "peer:1=1G"),
                 "--tier needs the numa store: pages are system RAM")):
            with self.subTest(words):
                done = self.run_under(*words, *LIMIT, EMUV_STORE="pages")
                self.assertEqual(done.returncode, 125, done.stderr)
                self.assertEqual(
                    done.stderr.splitlines()[0],
                    f"emuvctl: run: {message}, and EMUV_STORE asks for them")
                # An option stands above it.
                self.environment_under(*words, "--store", "numa", *LIMIT,
                                       EMUV_STORE="pages")
        self.environment_under("--tier", "none", *LIMIT, EMUV_STORE="pages")
        done = self.run_under("--store", "pages", *LIMIT, EMUV_MOVE="check")
        self.assertEqual(done.returncode, 125)
        self.assertEqual(done.stderr.splitlines()[0], "emuvctl: run: EMUV_MOVE needs "
                         "the numa store: pages do not move")
        self.environment_under("--store", "pages", *LIMIT, EMUV_MOVE="0")

    def test_a_folder_with_a_blank_cannot_be_preloaded(self):
        folder = self.folder / "a b"
        folder.mkdir()
        (folder / "libcuda.so.1").touch()
        done = self.run_under("--library", folder, *LIMIT)
        self.assertEqual(done.returncode, 125)
        self.assertEqual(done.stderr, f"emuvctl: run: {folder}: LD_PRELOAD "
                         "takes no path with a blank in it\n")

    def test_the_exit_status_tells_the_program_s_own_from_ours(self):
        for command, status in (
                (("sh", "-c", "exit 7"), 7), (("sh", "-c", "exit 1"), 1),
                (("/etc/passwd",), 126), (("no-such-program",), 127)):
            with self.subTest(command):
                done = subprocess.run(
                    [self.emuvctl, "run", "--library", self.folder, *LIMIT,
                     "--", *command], check=False, stderr=subprocess.PIPE,
                    text=True)
                self.assertEqual(done.returncode, status, done.stderr)

    def test_with_movement_jax_is_told_to_have_memory_that_can_move(self):
        def dry(*options, **variables):
            shown = subprocess.run(
                [self.emuvctl, "run", "--library", self.folder, "--dry-run",
                 *LIMIT, *options, "--", "true"],
                env={"PATH": os.environ["PATH"], **variables}, check=True,
                stdout=subprocess.PIPE, text=True).stdout.splitlines()
            return [line for line in shown if line.startswith("XLA_")]
        no_graphs = "--xla_gpu_enable_command_buffer="
        usual = [f"XLA_FLAGS={no_graphs}",
                 "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async",
                 "XLA_PYTHON_CLIENT_PREALLOCATE=false"]
        self.assertEqual(dry(), usual)
        self.assertEqual(dry("--move"), usual)
        self.assertEqual(dry(EMUV_MOVE="1"), usual)
        self.assertEqual(dry("--move", XLA_FLAGS="--xla_a=1",
                             XLA_PYTHON_CLIENT_PREALLOCATE="true"),
                         [f"XLA_FLAGS='--xla_a=1 {no_graphs}'", usual[1]])
        for known in (no_graphs + "FUSION", "/a/file/of/flags"):
            self.assertEqual(dry("--move", XLA_FLAGS=known), usual[1:])
        for still in (dry("--move=off"), dry("--leave-frameworks"),
                      dry("--store", "pages"), dry(EMUV_MOVE="0"), dry("--move", "--disable"),
                      dry("--move", EMUV_DISABLE="1")):
            self.assertEqual(still, [])
        self.assertEqual(dry("--move", EMUV_DISABLE="0"), usual)

    def test_memory_moves_unless_something_else_is_asked_for(self):
        for words, variables, found in (
                ((), {}, "1"), (("--move",), {}, "1"),
                (("--move=off",), {}, "0"), ((), {"EMUV_MOVE": "0"}, "0"),
                ((), {"EMUV_MOVE": ""}, "1"),
                ((), {"EMUV_MOVE": "always"}, "always"),
                (("--move",), {"EMUV_MOVE": "0"}, "1"),
                (("--store", "pages"), {}, None),
                ((), {"EMUV_STORE": "pages"}, None),
                (("--disable",), {}, None), ((), {"EMUV_DISABLE": "1"}, None)):
            with self.subTest(words, **variables):
                environment = self.environment_under(*words, *LIMIT, **variables)
                # By default it is no wish of the user's.
                self.assertEqual(environment.get("EMUV_MOVE") or
                                 environment.get("EMUV_MOVE_DEFAULT"), found)
                self.assertEqual("EMUV_MOVE_DEFAULT" in environment,
                                 found == "1" and "--move" not in words)
        self.assertFalse({"EMUV_MOVE", "EMUV_MOVE_DEFAULT"} & {*self.environment_under(
            "--record", self.folder / "tape")})
        # A default from outside stays, as of a container.
        environment = self.environment_under(*LIMIT, EMUV_MOVE_DEFAULT="always")
        self.assertEqual(environment["EMUV_MOVE_DEFAULT"], "always")
        self.assertNotIn("EMUV_MOVE", environment)

    def test_the_callers_environment_disables_as_the_option_does(self):
        for more, variables in ((("--disable",), {}), ((), {"EMUV_DISABLE": "1"})):
            self.assertEqual(self.environment_under(*more, **variables)["EMUV_DISABLE"], "1")
            estimate = self.folder / "estimate.json"
            estimate.write_text(subprocess.run(
                [self.emuvctl, "estimate", "gpt2", "--json"], check=True, text=True,
                stdout=subprocess.PIPE).stdout)
            done = self.run_under(*LIMIT, f"--score={estimate}", *more, **variables)
            self.assertEqual(done.returncode, 125)
            self.assertIn("--score does not go with", done.stderr)
            self.assertIn((*more, *variables)[0], done.stderr)
        self.assertIn("give --instance", self.run_under(EMUV_DISABLE="0").stderr)

    def test_a_dry_run_shows_what_would_hold(self):
        def dry(*command, **variables):
            environment = {"PATH": os.environ["PATH"], **variables}
            return subprocess.run(
                [self.emuvctl, "run", "--library", self.folder, "--dry-run",
                 *LIMIT, "--", *command], env=environment, check=True,
                stdout=subprocess.PIPE, text=True).stdout.splitlines()
        shown = dry("sh", "-c", "it's", EMUV_DISABLE="1", EMUV_REPORT="",
                    EMUV_VIRTUAL="1G")
        self.assertEqual(shown[0], "EMUV_DISABLE=1 # as it is already")
        self.assertIn("EMUV_PHYSICAL=67108864", shown)
        self.assertIn("EMUV_LEDGER=/dev/shm/emuv-ledger-XXXXXX # made for "
                      "this run", shown)
        self.assertFalse([line for line in shown
                          if line.startswith(("EMUV_VIRTUAL", "EMUV_REPORT"))])
        # A shell would run the words that it makes of the last line.
        words = subprocess.run(
            ["sh", "-c", "printf '%s\\n' " + shown[-1]], check=True,
            stdout=subprocess.PIPE, text=True).stdout
        self.assertEqual(words, "sh\n-c\nit's\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emuvctl", required=True)
    options, rest = parser.parse_known_args()
    if not pathlib.Path(options.emuvctl).is_file():
        sys.exit(f"{options.emuvctl}: no such file")
    RunSettingsTest.emuvctl = options.emuvctl
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
