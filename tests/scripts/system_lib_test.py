#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The assertions of tests/system/lib.sh do not take a guest that is dead for one that
does as it should."""

import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class SystemLibTest(unittest.TestCase):
    def holds(self, text):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                ["bash", "-c", f"""
                    set -euo pipefail
                    . {ROOT}/scripts/lib.sh
                    . {ROOT}/tests/system/lib.sh
                    guest_work={folder} guest_share={folder}/share guest_qemu=
                    mkdir "$guest_share"; touch "$guest_work/console.log"
                    if {text}; then echo holds; else echo fails; fi"""],
                check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return done.stdout.splitlines()[-1] == "holds"

    def test_a_word_is_said_whatever_the_status(self):
        self.assertTrue(self.holds("says word echo a word"))
        self.assertTrue(self.holds("says word bash -c 'echo a word >&2; exit 3'"))
        self.assertFalse(self.holds("says word echo nothing"))

    def test_a_word_is_not_said_by_a_command_that_succeeds(self):
        self.assertTrue(self.holds("does_not_say word echo nothing"))
        self.assertTrue(self.holds("does_not_say . true"))
        self.assertFalse(self.holds("does_not_say word echo a word"))
        self.assertFalse(self.holds("does_not_say word false"))
        self.assertFalse(self.holds("does_not_say word guest echo nothing"))

    def test_a_command_that_came_to_no_end_refused_nothing(self):
        self.assertTrue(self.holds("refuses false"))
        self.assertFalse(self.holds("refuses true"))
        self.assertFalse(self.holds("refuses guest false"))


if __name__ == "__main__":
    unittest.main()
