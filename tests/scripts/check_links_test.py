#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/check-links names the links that lead nowhere, and no others."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class CheckLinksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name).resolve() / "tree"
        (self.tree / "scripts").mkdir(parents=True)
        self.script = self.tree / "scripts/check-links"
        shutil.copy(ROOT / "scripts/check-links", self.script)
        self.write("docs/other.md", "# A `word`, and_more\n\n## Twice\n\n## Twice\n"
                   "## [Linked](x) text\n<a id=\"by-id\"></a>\n"
                   "```\n# not a heading\n```\n")
        self.write("docs/picture.svg", "<svg/>")

    def write(self, name, text):
        path = self.tree / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def findings(self, text, name="README.md"):
        self.write(name, text)
        done = subprocess.run([self.script, name], cwd=self.tree, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    def test_links_that_resolve_are_not_named(self):
        self.assertEqual(self.findings(
            "# Top\n[a](docs/other.md) [b](#top) [c](docs/) [d](/docs/other.md)\n"
            "![e](docs/picture.svg) [f](docs/other.md#a-word-and_more)\n"
            "[g](docs/other.md#twice) [h](docs/other.md#twice-1)\n"
            "[i](docs/other.md#linked-text) [j](docs/other.md#by-id)\n"
            "[over\nlines](docs/other.md \"a title\") [k]\n\n[k]: docs/other.md\n"
            "<img src=\"docs/picture.svg\">\n"), [])

    def test_paths_that_are_not_there_are_named_with_their_lines(self):
        for link in ("[a](gone.md)", "![a](docs/gone.svg)", "[a](docs/gone.md#x)",
                     "[a](/gone)", "[a]: gone.md", "<img src=\"gone.svg\">",
                     "[![in a link](docs/picture.svg)](gone.md)"):
            with self.subTest(link):
                found = self.findings(f"# Top\n\n{link}\n")
                self.assertEqual(len(found), 1, found)
                self.assertRegex(found[0], r"^README\.md:3: .*gone.* leads nowhere$")

    def test_anchors_that_no_heading_has_are_named(self):
        for anchor in ("docs/other.md#thrice", "docs/other.md#twice-2", "#top",
                       "docs/other.md#not-a-heading", "docs/other.md#Twice"):
            with self.subTest(anchor):
                self.assertEqual(
                    self.findings(f"# Bottom\n[a]({anchor})\n"),
                    [f"README.md:2: the link to {anchor} names no heading there"])

    def test_links_out_of_the_tree_are_named(self):
        (self.tree.parent / "beside.md").write_text("")
        self.assertEqual(self.findings("[a](../beside.md)\n"),
                         ["README.md:1: the link to ../beside.md leads out of the tree"])

    def test_paths_are_of_the_documents_own_folder(self):
        self.assertEqual(self.findings("[a](other.md)\n"),
                         ["README.md:1: the link to other.md leads nowhere"])
        self.assertEqual(
            self.findings("[a](other.md) [b](../README.md)\n", "docs/new.md"), [])

    def test_code_comments_and_addresses_are_left_alone(self):
        self.assertEqual(self.findings(
            "`[a](gone.md)` ``[b](gone`.md)``\n\n```\n[c](gone.md)\n```\n"
            "<!-- [d](gone.md)\n[e](gone.md) -->\n"
            "[f](https://example.org/x#y) [g](mailto:a@example.org)\n"), [])

    def test_help_is_given(self):
        done = subprocess.run([self.script, "--help"], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("lead nowhere", done.stdout)


if __name__ == "__main__":
    unittest.main()
