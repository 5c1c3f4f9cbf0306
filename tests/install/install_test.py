#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""`cmake --install` serves people who have no source tree, under any prefix."""

import argparse
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")

PROGRAM = """#include <emuv/size.hpp>
#include <emuv/sysfs.hpp>
#include <emuv/version.hpp>
#include <iostream>
#include <span>
int main()
{
    // a word of C++20, and a call that needs libkmod or inih where they are linked
    const emuv::sysfs machine("/nonexistent");
    const std::span<const char> nothing;
    std::cout << emuv::version() << machine.loaded() << nothing.size();
}
"""

KERNELS_PROGRAM = """#include <emuv/kernels.h>
#include <stdio.h>
int main(void)
{
    return puts(emuv_kernels_text(EMUV_KERNELS_OK)) < 0;
}
"""

PROJECT = """cmake_minimum_required(VERSION 3.20)
project(user LANGUAGES CXX)
find_package(emuv @VERSION@ REQUIRED)
add_executable(user user.cpp)
target_link_libraries(user PRIVATE emuv::emuv)
"""


def install(folder, *arguments, **variables):
    done = subprocess.run(
        [OPTIONS.cmake, "--install", OPTIONS.build, *arguments], cwd=folder, text=True,
        env={**os.environ, **variables}, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(f"cmake --install: {done.stdout}")


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp())
        # It says what to remove, to whoever installed from this folder.
        cls.manifest = pathlib.Path(OPTIONS.build) / "install_manifest.txt"
        cls.installed = cls.manifest.read_bytes() if cls.manifest.exists() else None
        cls.prefix = cls.work / "a folder/usr"
        cls.docs = cls.prefix / "share/doc/emuv"
        install(cls.work, "--prefix", str(cls.prefix))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work)
        if cls.installed is None:
            cls.manifest.unlink(missing_ok=True)
        else:
            cls.manifest.write_bytes(cls.installed)

    def run_command(self, *command, **variables):
        done = subprocess.run(command, cwd=self.work, text=True, check=False,
                              env={**os.environ, **variables},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, f"{command}: {done.stdout}")
        return done.stdout

    def files(self, root):
        return {str(path.relative_to(root)) for path in root.rglob("*")
                if not path.is_dir()}

    def test_all_that_a_user_needs_is_installed(self):
        wanted = {
            "bin/emuvctl", "share/man/man1/emuvctl.1", "share/man/man4/emuv.4",
            "share/man/man5/vgpu-profiles.conf.5",
            "share/bash-completion/completions/emuvctl",
            "share/zsh/site-functions/_emuvctl",
            "share/fish/vendor_completions.d/emuvctl.fish",
            "share/doc/emuv/LICENSE", "share/doc/emuv/LICENSES/LGPL-2.1-or-later.txt",
            "share/doc/emuv/README.md", "share/doc/emuv/CHANGELOG.md",
            "share/doc/emuv/docs/howto/install.md",
            "share/doc/emuv/docs/howto/containers.md",
            "share/doc/emuv/examples/vgpu-profiles.conf",
            "share/doc/emuv/examples/compose.yaml",
            "lib/udev/rules.d/70-emuv.rules", "lib/systemd/system/emuv-restore.service",
            f"{OPTIONS.libdir}/pkgconfig/emuv.pc",
            f"{OPTIONS.libdir}/cmake/emuv/emuvConfig.cmake",
            f"{OPTIONS.libdir}/libemuv.a", "include/emuv/client.hpp",
            "include/emuv/advice.h", "include/emuv/stack.hpp",
            "share/man/man3/emuv_advice.3",
            "include/linux/emuv.h"}
        if any(name.endswith("emuv/slurm/prolog") for name in self.files(self.prefix)):
            wanted.add("lib/udev/rules.d/71-emuv-slurm.rules")
        self.assertEqual(wanted - self.files(self.prefix), set())

    def test_nothing_of_developers_is_installed(self):
        for name in self.files(self.prefix):
            self.assertNotRegex(name, r"(?i)gtest|gmock|_test|\.cpp$|src/")

    def test_no_installed_text_names_the_tree_that_it_was_built_in(self):
        folders = [OPTIONS.build.encode(), str(ROOT).encode()]
        texts = 0
        for name in self.files(self.prefix):
            content = (self.prefix / name).read_bytes()
            if b"\0" in content:
                continue  # a program has its sources' names for debuggers
            texts += 1
            for folder in folders:
                self.assertNotIn(folder, content.replace(bytes(self.work), b""), name)
        self.assertGreater(texts, 30)

    def test_links_of_installed_documents_lead_to_installed_files(self):
        documents = list(self.docs.rglob("*.md"))
        self.assertGreater(len(documents), 10)
        for document in documents:
            text = re.sub(r"(?ms)^```.*?^```|`[^`\n]*`", "", document.read_text())
            for target in LINK.findall(text):
                if not re.match(r"[a-z]+:", target):
                    self.assertTrue((document.parent / target).exists(),
                                    f"{document.relative_to(self.docs)}: {target}")

    def test_the_tool_runs_and_the_unit_starts_it(self):
        said = self.run_command(str(self.prefix / "bin/emuvctl"), "--version")
        self.assertIn(OPTIONS.version, said)
        unit = (self.prefix / "lib/systemd/system/emuv-restore.service").read_text()
        self.assertIn(f'\nExecStart="{self.prefix}/bin/emuvctl" apply\n', unit)

    def test_the_cuda_library_can_be_configured_on_its_own(self):
        self.run_command(OPTIONS.cmake, "-S", str(ROOT / "tools/cuda"), "-B",
                         str(self.work / "alone"), "-DBUILD_TESTING=OFF")

    def test_the_installed_library_is_found_from_the_tool(self):
        place = self.work / "plain"
        install(self.work, "--prefix", str(place))
        library = place / OPTIONS.libdir / "emuv/libcuda.so.1"
        if not library.exists():
            self.skipTest("the CUDA library is not built")
        said = self.run_command(str(place / "bin/emuvctl"), "run", "--physical", "1G",
                                "--", "env", LD_PRELOAD="", EMUV_DISABLE="1")
        self.assertIn(f"LD_PRELOAD={library}", said)

    def test_the_python_package_comes_with_the_library(self):
        package = self.prefix / "lib/python3/dist-packages"
        if OPTIONS.cuda != "yes":
            self.assertFalse((package / "emuv").exists())
            self.skipTest("the CUDA library is not built")
        modules = {path.name for path in (ROOT / "python/emuv").glob("*.py")}
        self.assertEqual({path.name for path in (package / "emuv").iterdir()},
                         modules)
        said = self.run_command(
            sys.executable, "-c", "import emuv; print(emuv.available())",
            PYTHONPATH=str(package), PYTHONDONTWRITEBYTECODE="1")
        self.assertEqual(said, "False\n")

    def test_destdir_stands_before_the_prefix(self):
        root = self.work / "a root"
        install(self.work, "--prefix", "/opt/emuv", DESTDIR=str(root))
        self.assertEqual({name.removeprefix("opt/emuv/") for name in self.files(root)},
                         self.files(self.prefix))

    def test_components_share_no_file_and_leave_none_out(self):
        seen = {}
        for component in ("emuv", "libemuv-cuda", "libemuv-dev", "libemuv-kernels0",
                          "libemuv-kernels-dev", "emuv-slurm"):
            root = self.work / component
            install(self.work, "--prefix", "/usr", "--component", component,
                    DESTDIR=str(root))
            if root.exists():
                for name in self.files(root / "usr"):
                    self.assertNotIn(name, seen)
                    seen[name] = component
        self.assertEqual(set(seen), self.files(self.prefix))

    def test_the_module_s_sources_are_a_component_of_their_own(self):
        root = self.work / "module"
        install(self.work, "--prefix", "/usr", "--component", "emuv-dkms",
                DESTDIR=str(root))
        source = root / f"usr/src/emuv-{OPTIONS.version}"
        kbuild = (source / "Kbuild").read_text()
        for name in re.findall(r"kernel/(?!\w*_kunit)\w+(?=\.o\b)", kbuild):
            self.assertTrue((source / f"{name}.c").exists(), name)
        self.assertTrue((source / "include/uapi/linux/emuv.h").exists())
        self.assertIn(f'PACKAGE_VERSION="{OPTIONS.version}"',
                      (source / "dkms.conf").read_text())

    def build_by_pkg_config(self, prefix):
        (self.work / "user.cpp").write_text(PROGRAM)
        flags = shlex.split(self.run_command(
            "pkg-config", "--cflags", "--libs", "emuv",
            PKG_CONFIG_PATH=str(prefix / OPTIONS.libdir / "pkgconfig")))
        # Without one of its own: the flags have to name the language.
        self.run_command(OPTIONS.compiler, "user.cpp", "-o", "user", *flags)
        self.assertEqual(self.run_command("./user"), f"{OPTIONS.version}00")

    def test_a_program_builds_by_pkg_config_whatever_the_prefix(self):
        if not shutil.which("pkg-config"):
            self.skipTest("pkg-config is not installed")
        self.build_by_pkg_config(self.prefix)

    def test_a_program_of_c_builds_with_the_kernels(self):
        library = self.prefix / OPTIONS.libdir
        if OPTIONS.kernels != "yes":
            self.assertFalse((library / "libemuv-kernels.so.0").exists())
            self.skipTest("the kernels are not built for a card")
        if not shutil.which("pkg-config"):
            self.skipTest("pkg-config is not installed")
        (self.work / "user.c").write_text(KERNELS_PROGRAM)
        flags = shlex.split(self.run_command(
            "pkg-config", "--cflags", "--libs", "emuv-kernels",
            PKG_CONFIG_PATH=str(library / "pkgconfig")))
        self.run_command(OPTIONS.compiler, "-x", "c", "user.c", "-o", "coder", *flags)
        said = self.run_command("./coder", LD_LIBRARY_PATH=str(library))
        self.assertNotEqual(said.strip(), "")

    def test_a_program_builds_by_find_package_whatever_the_prefix(self):
        user = self.work / "a user"
        user.mkdir()
        (user / "user.cpp").write_text(PROGRAM)
        (user / "CMakeLists.txt").write_text(PROJECT.replace("@VERSION@", OPTIONS.version))
        self.run_command(OPTIONS.cmake, "-S", str(user), "-B", str(user / "build"),
                         "-G", OPTIONS.generator,
                         f"-DCMAKE_PREFIX_PATH={self.prefix}",
                         f"-DCMAKE_CXX_COMPILER={OPTIONS.compiler}",
                         "-DCMAKE_CXX_COMPILER_WORKS=1")
        self.run_command(OPTIONS.cmake, "--build", str(user / "build"))
        self.assertEqual(self.run_command(str(user / "build/user")), f"{OPTIONS.version}00")


def parse():
    parser = argparse.ArgumentParser()
    for name in ("build", "cmake", "generator", "compiler", "version", "libdir",
                 "cuda", "kernels"):
        parser.add_argument(f"--{name}", required=True)
    return parser.parse_known_args()


if __name__ == "__main__":
    OPTIONS, others = parse()
    OPTIONS.build = os.path.abspath(OPTIONS.build)
    unittest.main(argv=[sys.argv[0], *others], verbosity=2)
