#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A shell offers for a command line what emuvctl takes there, and its
completion file has every word of emuvctl's help."""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent

# By command line: what is offered for its last word.
OFFERS = {
    "emuvctl ": "load unload create destroy resize list info stats top why serve run "
                "batch cdi container-args vm-serve vm-args "
                "profile define start stop undefine apply export assert gpu estimate "
                "kernels tape report diagnose doctor bugreport rm modify ls show",
    "emuvctl a": "apply assert",
    "emuvctl profile ": "list show",
    "emuvctl gpu l": "list",
    "emuvctl kernels prof": "profiles.conf",
    "emuvctl diagnose prof": "profiles.conf",
    "emuvctl report prof": "profiles.conf",
    "emuvctl report --sc": "--score",
    "emuvctl report -o prof": "profiles.conf",
    "emuvctl kernels --no": "--no-cache --noheadings",
    "emuvctl destroy ": "emuv0 emuv1 emuv10",
    "emuvctl resize emuv0 --": "--physical --virtual --tier --dry-run --help",
    "emuvctl modify emuv1": "emuv1 emuv10",
    "emuvctl stats emuv0 emuv1": "emuv1 emuv10",
    "emuvctl profile show ": "vGPU-Profile-1 first lab",
    "emuvctl create --profile v": "vGPU-Profile-1",
    "emuvctl create --p": "--profile --persist --physical --pci-device-id",
    "emuvctl start ": "vGPU-Profile-1 first lab",
    "emuvctl define a --from emuv1": "emuv1 emuv10",
    "emuvctl list --js": "--json",
    "emuvctl ls --sort used": "used_bytes used_percent",
    "emuvctl rm emuv1": "emuv1 emuv10",
    "emuvctl list --color ": "auto always never",
    "emuvctl list -o name,tot": "name,total_bytes",
    "emuvctl stats --query=fetch": "fetched_bytes fetched_per_s",
    "emuvctl list --query=name --format=c":
        "csv csv,noheader csv,nounits csv,noheader,nounits",
    "emuvctl stats --format=p": "prometheus",
    "emuvctl top --n": "--no-color",
    "emuvctl apply --config profiles": "profiles.conf",
    "emuvctl create --virtual ": "",
    "emuvctl cdi ": "generate list refresh",
    "emuvctl container-args emuv1": "emuv1 emuv10",
    "emuvctl vm-args emuv1": "emuv1 emuv10",
    "emuvctl vm-args --l": "--libvirt",
    "emuvctl vm-serve emuv0 --s": "--socket --size",
    "emuvctl batch --ins": "--instances",
    "emuvctl batch --instances emuv1": "emuv1 emuv10",
    "emuvctl batch --le": "--leave-frameworks",
    "emuvctl batch -- emuvct": "emuvctl",
    "emuvctl run --tr": "--trust --trace",
    "emuvctl run --instance ": "emuv0 emuv1 emuv10",
    "emuvctl run --report ": "total physical free",
    "emuvctl run --store ": "auto numa pages",
    "emuvctl run --charge ": "all held allocations",
    "emuvctl run --move --trust=n": "none",
    "emuvctl run --move --trust ": "proven,known proven known all none",
    "emuvctl run --ledger prof": "profiles.conf",
    "emuvctl run --move=": "always check off",
    "emuvctl run --move=a": "always",
    "emuvctl run --away ": "auto mapped unmapped",
    # The program's own words.
    "emuvctl run --instance 0 -- python prof": "profiles.conf",
    "emuvctl run -- emuvct": "emuvctl",
}


class CompletionTest(unittest.TestCase):
    shell = None
    file = None
    emuvctl = None

    def setUp(self):
        self.environment = {
            **os.environ, "LC_ALL": "C", "TERM": "dumb",
            "PATH": f"{self.emuvctl.parent}:{os.environ['PATH']}",
            "EMUV_SYSFS_ROOT": "machine/sys", "EMUV_CONFIG": "profiles.conf"}

    def run_of(self, *words, text=None):
        return subprocess.run(
            words, cwd=FOLDER, env=self.environment, input=text, text=True,
            check=True, stdout=subprocess.PIPE).stdout

    def words_of(self, *verbs):
        """All that the help names of these verbs and those below them."""
        text = self.run_of(self.emuvctl, *verbs, "--help")
        # Options, with one name or two.
        words = set(re.findall(r"^  (?:-[a-z0-9],)?--([a-z-]+)", text, re.MULTILINE))
        below = text.partition("\nOptions:\n")[2].partition("\n\n")[2]
        columns = below.partition("Columns, ")[2]
        words.update(re.findall(r"^  [A-Z]\S* +(\S+)", columns, re.MULTILINE))
        if not columns:
            for verb in re.findall(r"^  ([a-z][a-z-]*)(?:, [a-z]+)* ", below, re.MULTILINE):
                words |= {verb} | self.words_of(*verbs, verb)
        return words

    def test_offers_what_emuvctl_takes(self):
        answers = self.run_of(
            self.shell, *(("--no-config",) if self.shell == "fish" else ()),
            str(FOLDER / f"complete.{self.shell}"), self.file,
            text="".join(line + "\n" for line in OFFERS)).splitlines()
        self.assertEqual(len(answers), len(OFFERS))
        for (line, expected), answer in zip(OFFERS.items(), answers):
            with self.subTest(line):
                # zsh and fish repeat the option of a value.
                offered = [re.sub("^--[a-z-]+=", "", word)
                           for word in answer.split()]
                self.assertEqual(sorted(offered), sorted(expected.split()))

    def test_has_every_word_of_the_help(self):
        words = self.words_of()
        self.assertLessEqual({"load", "profile", "show", "help", "move",
                              "physical_used_bytes"}, words)
        text = pathlib.Path(self.file).read_text()
        self.assertEqual([], sorted(
            word for word in words
            if not re.search(rf"(?<![\w-])(--)?{re.escape(word)}(?![\w-])", text)))

    def test_is_free_of_faults(self):
        self.run_of(self.shell, "-n", self.file)
        if self.shell == "bash" and shutil.which("shellcheck"):
            self.run_of("shellcheck", "-s", "bash", self.file)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shell", required=True, choices=("bash", "zsh", "fish"))
    parser.add_argument("--file", required=True, help="the completion file")
    parser.add_argument("--emuvctl", required=True)
    options, rest = parser.parse_known_args()
    if not shutil.which(options.shell):
        print(f"skipped: {options.shell} is not installed")
        sys.exit(77)
    CompletionTest.shell = options.shell
    CompletionTest.file = options.file
    CompletionTest.emuvctl = pathlib.Path(options.emuvctl)
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
