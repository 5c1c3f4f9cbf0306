#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Makes packing_ptx.hpp of packing.cu by nvcc, as text for any driver.

    tools/cuda/movement/packing_ptx.py            writes it anew
    tools/cuda/movement/packing_ptx.py --check    fails if it is another one

The text is made for the oldest architecture that nvcc 13 knows, and needs
nothing that PTX 6.0 and the first Maxwell cards lack. So it says that it is for
those, as movement/digest.hpp is. The release of nvcc stands in the file. Another
release makes another text: --check then ends with 77, as a test that is left out.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
INTO = HERE / "packing_ptx.hpp"
HEAD = """\
// SPDX-License-Identifier: LGPL-2.1-or-later
// The kernels of packing.cu as PTX, made by packing_ptx.py.
// clang-format off
#pragma once

namespace emuv::cuda {{

/// By nvcc {release}.
inline constexpr char packing_ptx[] = R"("""
TAIL = """)";

}} // namespace emuv::cuda
"""
NEVER = 77


def release(nvcc):
    """The release of nvcc, as 13.0.88; empty where there is none."""
    try:
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    found = re.search(r", V([0-9.]+)", said)
    return found.group(1) if found else ""


def text_by(nvcc):
    """The text of the header."""
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder) / "packing.ptx"
        subprocess.run(
            [nvcc, "-std=c++17", "-O3", "-ptx", "-arch=compute_75", "-o", made, HERE / "packing.cu"], check=True)
        lines = made.read_text().splitlines()
        ptx = [re.sub(r"\s+", " ", line).strip() for line in lines]
        ptx = [line for line in ptx if line and not line.startswith("//")]
        ptx = [re.sub(r"^\.version .*", ".version 6.0", line) for line in ptx]
        ptx = [re.sub(r"^\.target .*", ".target sm_50", line) for line in ptx]
        ptx = [line.replace("_ZZ9emuv_packPKhyPhyPN4emuv4cuda7packing7outcomeEE6shared", "counts") for line in ptx]
        made.write_text("\n".join(ptx))
        # It really needs no more.
        subprocess.run([pathlib.Path(nvcc).with_name("ptxas") if "/" in nvcc else "ptxas",
                        "-arch=sm_90", "-o", pathlib.Path(folder) / "packing.cubin", made], check=True)
    return HEAD.format(release=release(nvcc)) + "\n".join(ptx) + "\n" + TAIL.format()


def main():
    ask = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    ask.add_argument("--check", action="store_true", help="write nothing; fail if the header is another one")
    ask.add_argument("--nvcc", default="nvcc", help="the compiler")
    asked = ask.parse_args()
    mine = release(asked.nvcc)
    if not mine:
        print(f"{asked.nvcc} is not there", file=sys.stderr)
        return NEVER if asked.check else 1
    if asked.check and f"By nvcc {mine}." not in INTO.read_text():
        print(f"packing_ptx.hpp was made by another nvcc than {mine}")
        return NEVER
    text = text_by(asked.nvcc)
    if not asked.check:
        INTO.write_text(text)
        return 0
    if text == INTO.read_text():
        return 0
    print("packing_ptx.hpp is not what nvcc makes of packing.cu: run tools/cuda/movement/packing_ptx.py",
          file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
