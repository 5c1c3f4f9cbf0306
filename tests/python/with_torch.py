# SPDX-License-Identifier: GPL-2.0-or-later
"""Imported first by tests that need PyTorch. If this Python lacks it, the test
goes on in Debian's, which Debian's PyTorch is for. It ends as skipped
where that lacks it, too."""

import os
import subprocess
import sys

SKIPPED = 77

try:
    import torch  # noqa: F401
except ImportError:
    OTHER = "/usr/bin/python3"
    if os.environ.get("EMUV_TORCH_TEST") or subprocess.run(
            [OTHER, "-c", "import torch"], check=False,
            stderr=subprocess.DEVNULL).returncode != 0:
        print("skipped: PyTorch is missing (apt-get install python3-torch)")
        sys.exit(SKIPPED)
    os.environ["EMUV_TORCH_TEST"] = "1"
    os.execv(OTHER, [OTHER, *sys.argv])
