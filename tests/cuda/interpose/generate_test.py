#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The generator of the forwarders refuses a table that leaves a hole."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]
                       / "tools" / "cuda" / "interpose"))
import generate  # noqa: E402

VERSIONS = {"cuA": {2000: {""}, 3020: {""}}, "cuB": {11020: {"", "ptsz"}}}


def table(text):
    with tempfile.NamedTemporaryFile("w", suffix=".def") as file:
        file.write(text)
        file.flush()
        return generate.read_table(file.name)


class GenerateTest(unittest.TestCase):
    def test_an_unclassed_symbol_is_named(self):
        wrong = generate.check(table("forwarded cuC\n"), {"cuC", "cuNew"}, {})
        self.assertEqual(wrong,
                         ["cuNew: exported by the driver, not classed"])

    def test_a_version_that_goes_past_the_hooks_is_named(self):
        wrong = generate.check(table("hooked cuA_v2 cuA 3020\n"), {"cuA_v2"},
                               VERSIONS)
        self.assertEqual(len(wrong), 1)
        self.assertIn("cuA: version 2000", wrong[0])

    def test_a_stream_variant_that_goes_past_the_hooks_is_named(self):
        wrong = generate.check(table("hooked cuB cuB 11020\n"), {"cuB"},
                               VERSIONS)
        self.assertEqual(len(wrong), 1)
        self.assertIn("cuB: version 11020 ptsz", wrong[0])

    def test_a_complete_table_passes(self):
        symbols = table("refused cuA cuA 2000\nhooked cuA_v2 cuA 3020 # new\n"
                        "hooked cuB cuB 11020\n"
                        "hooked cuB_ptsz cuB 11020 ptsz\nforwarded cuC\n")
        self.assertEqual(generate.check(
            symbols, {"cuA", "cuA_v2", "cuB", "cuB_ptsz", "cuC"}, VERSIONS),
            [])

    def test_a_wrong_version_is_named(self):
        wrong = generate.check(
            table("refused cuA cuA 2000\nhooked cuA_v2 cuA 4000\n"),
            {"cuA", "cuA_v2"}, VERSIONS)
        self.assertIn("cuA_v2: cudaTypedefs.h has no cuA of version 4000",
                      wrong)

    def test_a_symbol_classed_twice_stops(self):
        with self.assertRaises(SystemExit):
            table("forwarded cuA\nhooked cuA cuA 2000\n")

    def test_both_machines_forward_every_symbol_and_only_refuse_the_refused(
            self):
        symbols = table("forwarded cuA\nrefused cuB cuB 2000\n"
                        "hooked cuC cuC 2000\n")
        for machine in ("x86_64", "aarch64"):
            text = generate.forwarders(symbols, machine, True)
            self.assertIn(".globl cuA\n", text)
            self.assertIn(".globl dlopen\n", text)
            self.assertNotIn(".globl cuC\n", text)
            self.assertEqual(text.count("emuv_refuse"), 1)
            self.assertEqual(text.count(".quad"), 3)

    def test_stubs_without_a_symbol_are_as_many_as_asked_for(self):
        symbols = table("forwarded cuA\n")
        for machine in ("x86_64", "aarch64"):
            self.assertNotIn("newer", generate.forwarders(symbols, machine,
                                                          False))
            text = generate.forwarders(symbols, machine, False, 5)
            self.assertEqual(text.count(".quad"), 1 + 2 * 5)
            self.assertNotIn(".globl emuv_newer_0\n", text)


if __name__ == "__main__":
    unittest.main()
