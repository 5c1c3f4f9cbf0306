#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/install-hooks puts a hook into a clone that looks at what is staged,
and leaves other people's hooks alone."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Stands in for scripts/lint: tells what it was given, and finds fault with the
# word BAD.
LINT = """#!/bin/bash
for file in "$@"; do echo "looked at ${file##*/}"; done
! grep -l BAD -- "$@"
"""


class InstallHooksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name).resolve()
        # Nothing of the clone that the test lies in, nor of its user's.
        self.environment = {name: text for name, text in os.environ.items()
                            if not name.startswith("GIT_")}
        self.environment.update(
            HOME=folder.name, GIT_CONFIG_NOSYSTEM="1",
            GIT_AUTHOR_NAME="A", GIT_AUTHOR_EMAIL="a@example.org",
            GIT_COMMITTER_NAME="A", GIT_COMMITTER_EMAIL="a@example.org")
        (self.tree / "scripts").mkdir()
        for name in ("install-hooks", "lib.sh"):
            shutil.copy(ROOT / "scripts" / name, self.tree / "scripts" / name)
        lint = self.tree / "scripts/lint"
        lint.write_text(LINT)
        lint.chmod(0o755)
        self.assertEqual(self.call("git", "init", "-q")[0], 0)
        self.assertEqual(self.call("git", "add", "scripts")[0], 0)
        self.assertEqual(self.call("git", "commit", "-qm", "first")[0], 0)
        self.hook = self.tree / ".git/hooks/pre-commit"
        self.hook.unlink(missing_ok=True)

    def call(self, *command):
        done = subprocess.run(command, cwd=self.tree, env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              check=False)
        return done.returncode, done.stdout

    def install(self):
        return self.call("scripts/install-hooks")

    def stage(self, name, text):
        (self.tree / name).write_text(text)
        self.assertEqual(self.call("git", "add", "--", name)[0], 0)

    def test_a_commit_is_stopped_by_what_is_staged(self):
        self.assertEqual(self.install()[0], 0)
        self.stage("a file", "BAD")
        (self.tree / "a file").write_text("good again, and not staged")
        status, said = self.call("git", "commit", "-qm", "second")
        self.assertNotEqual(status, 0, said)
        self.assertIn("looked at a file\n", said)

    def test_a_commit_passes_whatever_is_not_staged(self):
        self.assertEqual(self.install()[0], 0)
        self.stage("a", "good")
        (self.tree / "a").write_text("BAD")
        (self.tree / "b").write_text("BAD")
        status, said = self.call("git", "commit", "-qm", "second")
        self.assertEqual(status, 0, said)
        self.assertEqual(said, "looked at a\n")

    def test_a_commit_that_only_removes_passes(self):
        self.stage("a", "BAD")
        self.assertEqual(self.call("git", "commit", "-qm", "second")[0], 0)
        self.assertEqual(self.install()[0], 0)
        self.assertEqual(self.call("git", "rm", "-q", "a")[0], 0)
        status, said = self.call("git", "commit", "-qm", "third")
        self.assertEqual((status, said), (0, ""))

    def test_installed_twice_it_is_the_same(self):
        self.assertEqual(self.install()[0], 0)
        before = self.hook.read_text()
        status, said = self.install()
        self.assertEqual(status, 0)
        self.assertIn("is there already", said)
        self.assertEqual(self.hook.read_text(), before)

    def test_an_older_one_of_ours_is_renewed(self):
        self.assertEqual(self.install()[0], 0)
        now = self.hook.read_text()
        self.hook.write_text(now + "# as it was\n")
        self.assertEqual(self.install()[0], 0)
        self.assertEqual(self.hook.read_text(), now)

    def test_another_hook_is_left_alone(self):
        self.hook.parent.mkdir(exist_ok=True)
        self.hook.write_text("#!/bin/sh\nexit 0\n")
        status, said = self.install()
        self.assertEqual(status, 1)
        self.assertIn("another hook", said)
        self.assertEqual(self.hook.read_text(), "#!/bin/sh\nexit 0\n")

    def test_a_hook_that_is_a_link_to_nowhere_is_left_alone(self):
        self.hook.parent.mkdir(exist_ok=True)
        self.hook.symlink_to("gone")
        self.assertEqual(self.install()[0], 1)
        self.assertTrue(self.hook.is_symlink())

    def test_where_there_is_no_clone_nothing_is_done(self):
        shutil.rmtree(self.tree / ".git")
        status, said = self.install()
        self.assertEqual(status, 1)
        self.assertIn("is no git clone", said)


if __name__ == "__main__":
    unittest.main()
