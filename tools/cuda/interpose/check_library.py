#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Checks that a built library loads where it must: on glibc 2.17, with no C++
library and no CUDA. It exports what its table says, and nothing else.
"""

import argparse
import os
import re
import subprocess
import sys

import generate

NEWEST_GLIBC = (2, 17)
# A library built on a newer system than Debian 12 is for that system alone.
NEWEST_GLIBC_OF_RELEASES = (2, 36)
SKIPPED = 77


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readelf", default="readelf")
    parser.add_argument("--soname", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--dlopen", action="store_true")
    parser.add_argument("--extra", action="append", default=[])
    parser.add_argument("checked", metavar="library")
    options = parser.parse_args()

    def readelf(*what):
        return subprocess.run([options.readelf, "--wide", *what,
                               options.checked], check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    wrong = []
    too_new = []
    dynamic = readelf("--dynamic")
    if f"soname: [{options.soname}]" not in dynamic:
        wrong.append(f"its SONAME is not {options.soname}")
    needed = set(re.findall(r"Shared library: \[(.+?)\]", dynamic))
    for name in sorted(needed):
        if not re.match(r"(libc|libdl|libpthread|ld-linux-\S+)\.so\.\d$",
                        name):
            wrong.append(f"needs {name}")
    for name in ("libdl.so.2", "libpthread.so.0"):
        if name not in needed:
            wrong.append(f"does not name {name}, which glibc 2.31 keeps "
                         "functions of it in")
    exported = set()
    imports = 0
    for line in readelf("--dyn-syms").splitlines():
        words = line.split()
        if len(words) < 8 or not words[0].rstrip(":").isdigit():
            continue
        name = words[7]
        if words[6] != "UND":
            exported.add(name.split("@")[0])
            continue
        imports += 1
        version = re.search(r"@GLIBC_(\d+)\.(\d+)", name)
        if version and tuple(map(int, version.groups())) > NEWEST_GLIBC:
            too_new.append(f"imports {name}")
        if re.search(r"@(GLIBCXX|CXXABI|GCC)_", name):
            wrong.append(f"imports {name}")
    table = {symbol.name for symbol in generate.read_table(options.table)}
    table |= {"emuv_stands_in_front", *options.extra}
    if options.dlopen:
        table.add("dlopen")
    wrong += [f"does not export {name}" for name in sorted(table - exported)]
    wrong += [f"exports {name}" for name in sorted(exported - table)]
    if imports == 0:
        wrong.append("imports nothing: readelf was not understood")
    here = os.confstr("CS_GNU_LIBC_VERSION").split()[-1]
    newer = (tuple(map(int, here.split(".")[:2])) > NEWEST_GLIBC_OF_RELEASES)
    if not newer:
        wrong += too_new
    if wrong:
        sys.exit("\n".join(f"{options.checked}: {line}" for line in wrong))
    if too_new:
        print(f"built with glibc {here}, it needs one as new:",
              *too_new, sep="\n")
        sys.exit(SKIPPED)
    print(f"{len(exported)} exported, {imports} imported, needs "
          f"{', '.join(sorted(needed))}")


if __name__ == "__main__":
    main()
