#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A series of kernels stands for a release of which apt has all that is fetched."""

import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# As Debian's archive is for some hours after a new kernel: its headers are there,
# its image is not. Only other packages name that, which apt-cache shows nothing of,
# and succeeds.
APT_CACHE = r"""#!/bin/sh
case "$1 $2" in
"pkgnames linux-headers-6.1.")
    printf 'linux-headers-6.1.0-%s\n' 9-amd64 56-amd64 57-amd64 56-rt-amd64 57-common ;;
"show linux-headers-6.1.0-"* | "show linux-image-6.1.0-56-amd64" | "show linux-image-6.1.0-9-amd64")
    printf 'Package: %s\nVersion: 1\n' "$2" ;;
"show linux-image-6.1.0-57-amd64") ;;
*) exit 100 ;;
esac
"""


class KernelReleaseTest(unittest.TestCase):
    def said(self, command):
        with tempfile.TemporaryDirectory() as folder:
            tool = pathlib.Path(folder, "apt-cache")
            tool.write_text(APT_CACHE, encoding="utf-8")
            tool.chmod(0o755)
            done = subprocess.run(
                ["bash", "-c", f"""
                    set -euo pipefail
                    . {ROOT}/scripts/lib.sh
                    PATH={folder}:$PATH EMUV_CACHE={folder}/cache
                    {command}"""],
                check=True, text=True, stdout=subprocess.PIPE)
        return done.stdout.strip()

    def test_the_newest_whose_kernel_is_there_too(self):
        self.assertEqual(self.said("available_release 6.1"), "6.1.0-56-amd64")
        self.assertEqual(self.said("kernel_release 6.1"), "6.1.0-56-amd64")

    def test_a_package_that_others_merely_name_is_not_known(self):
        self.assertEqual(self.said("known linux-image-6.1.0-57-amd64 || echo no"), "no")
        self.assertEqual(self.said("known linux-image-6.1.0-1-amd64 || echo no"), "no")
        self.assertEqual(self.said("known linux-image-6.1.0-56-amd64 && echo yes"), "yes")


if __name__ == "__main__":
    unittest.main()
