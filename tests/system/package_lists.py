#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares the files of emuV's packages for rpm with those of Debian's: names the ones
that only one kind has. Exit status 1 if there are any."""

import argparse
import pathlib
import re
import subprocess
import sys

# By package, in rpm's names.
NAMES = {"libemuv-dev": "libemuv-devel", "libemuv-kernels0": "libemuv-kernels",
         "libemuv-kernels-dev": "libemuv-kernels-devel"}
# Each kind has these in a way of its own: licences, changelogs, links by build.
OWN = re.compile(r"/usr/share/doc/[^/]+/(copyright|changelog.*|CHANGELOG\.md|LICENSE|LICENSES/.*)|"
                 r"/usr/share/lintian/.*|/usr/lib/\.build-id/.*")
# Places that are called otherwise, and what stands for both.
PLACES = ((r"^(/usr)?/lib/(udev|systemd|modules-load\.d|modprobe\.d)/", r"/usr/lib/\2/"),
          (r"^/usr/lib(64|/x86_64-linux-gnu|/aarch64-linux-gnu)?/"
           r"(emuv|libemuv\.a|libemuv-kernels\.so|cmake|pkgconfig|slurm)", r"/usr/LIB/\2"),
          (r"^/usr/LIB/slurm[^/]*/", "/usr/LIB/slurm/"),
          (r"^/usr/lib/python3[.0-9]*/(dist|site)-packages/", "/usr/lib/PYTHON/"),
          (r"^(/usr/share/man/.*)\.gz$", r"\1"),
          (r"^/usr/share/doc/libemuv-devel/", "/usr/share/doc/libemuv-dev/"))


def place(path):
    """The path under the name that both kinds have for it."""
    for pattern, name in PLACES:
        path = re.sub(pattern, name, path)
    return path


def lines(*words):
    return subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()


def files_of_deb(file):
    """Folders end in a slash there."""
    return {line.split(None, 5)[5].split(" -> ")[0].removeprefix(".")
            for line in lines("dpkg-deb", "-c", file) if not line.startswith("d")}


def files_of_rpm(file):
    out = lines("rpm", "-qp", "--nosignature", "--queryformat",
                "[%{FILEMODES:perms} %{FILENAMES}\n]", file)
    return {line.split(None, 1)[1] for line in out if not line.startswith("d")}


def packages(folder, kind, revision):
    """The files of each package, by its name for rpm."""
    out = {}
    for file in sorted(folder.glob(f"*.{kind}")):
        if kind == "deb":
            name, version = lines("dpkg-deb", "-W", "--showformat=${Package} ${Version}\n",
                                  file)[0].split()
            files = files_of_deb(file)
        else:
            name, version = lines("rpm", "-qp", "--nosignature", "--queryformat",
                                  "%{NAME} %{VERSION}-%{RELEASE}\n", file)[0].split()
            files = files_of_rpm(file)
        if version.endswith(f"-{revision}"):
            out[NAMES.get(name, name)] = {place(each) for each in files if not OWN.fullmatch(each)}
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("debs", type=pathlib.Path)
    parser.add_argument("rpms", type=pathlib.Path)
    parser.add_argument("--revision", default="1")
    options = parser.parse_args()
    debs = packages(options.debs, "deb", options.revision)
    rpms = packages(options.rpms, "rpm", options.revision)
    if not debs or not rpms:
        sys.exit("package_lists: there are no packages of that revision")
    differ = False
    for name in sorted({*debs, *rpms}):
        ours, theirs = debs.get(name, set()), rpms.get(name, set())
        print(f"{name}: {len(ours)} files of Debian's, {len(theirs)} of rpm's")
        for kind, more in (("Debian's", ours - theirs), ("rpm's", theirs - ours)):
            for each in sorted(more):
                print(f"  only {kind}: {each}")
                differ = True
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
