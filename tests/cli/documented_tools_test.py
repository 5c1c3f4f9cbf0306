#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The documents show commands of other tools, too. Words there that are ours are those of
the tree. They are presets, module parameters, units, packages, devices of containers,
settings, Slurm's option, programs of the tree and their options. Nothing is run."""

import json
import os
import pathlib
import re
import shlex
import unittest

import documented_commands_test as shown

ROOT = shown.ROOT
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=")
PROGRAM = re.compile(r"(?:\./)?((?:scripts|tests|examples)(?:/[\w-]+)+(?:\.py)?)")
# Verbs of systemctl that take no unit.
WITHOUT_UNIT = {"daemon-reload"}
# Debian's own packages that a reader installs and no build needs.
OF_READERS = {"mokutil", "openssl"}


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


def texts(folder, suffixes):
    """All that such files below a folder say."""
    return "\n".join(path.read_text(encoding="utf-8") for path in
                     sorted((ROOT / folder).rglob("*"))
                     if path.suffix in suffixes and path.is_file())


def command_of(words):
    """The words without assignments before them, and the variables assigned."""
    assigned = []
    while words and (found := ASSIGNMENT.match(words[0])):
        assigned.append(found[1])
        words = words[1:]
    return words, assigned


def all_shown():
    """The commands in blocks, sentences and the manual, and those that emuvctl starts."""
    for where, words in [*shown.in_blocks(), *shown.in_sentences(), *shown.in_manual()]:
        yield where, words
        if words[0] == "emuvctl" and "--" in words[:-1]:
            yield where, words[words.index("--") + 1:]


def of(*names):
    """The commands of these tools: where, their words, without the name."""
    for where, words in all_shown():
        words, _ = command_of(words)
        if words and words[0] in names and words[1:]:
            yield where, words[1:]


def values_of(words, *options):
    """The values of options: `--preset a` or `--preset=a`."""
    for word, following in zip(words, [*words[1:], None]):
        name, sign, value = word.partition("=")
        if name in options:
            yield value if sign else following


def packages():
    """Ours, by their names."""
    return set(re.findall(r"^Package: (\S+)", text_of("packaging/debian/control"), re.MULTILINE))


def settings():
    """The variables of the CUDA library."""
    found = re.findall(r'^EMUV_SETTING\((\w+), \w+, "(\w+)"',
                       text_of("tools/cuda/base/settings.def"), re.MULTILINE)
    return {name for kind, variable in found for name in
            [variable, *([variable + "_DEFAULT"] if kind in ("SWITCH", "TIERS") else [])]}


class DocumentedToolsTest(unittest.TestCase):
    def each(self, commands, least, check):
        """Checks each in a subtest; there are so many at least."""
        found = list(commands)
        self.assertGreaterEqual(len(found), least)
        for where, words in found:
            with self.subTest(where=where, command=shlex.join(words)):
                check(where, words)

    def test_presets_and_folders_of_a_build_are_there(self):
        presets = json.loads(text_of("CMakePresets.json"))
        names = {kind: {each["name"] for each in presets[f"{kind}Presets"]
                        if not each.get("hidden")} for kind in ("configure", "build", "test")}
        folders = {f"build/{name}" for name in names["configure"]}
        folders |= {value for _, words in of("cmake") for value in values_of(words, "-B")}

        def check(_, words):
            kind = "build" if words[0] == "--build" else "configure"
            for preset in values_of(words, "--preset"):
                self.assertIn(preset, names[kind])
            for folder in values_of(words, "--build", "--install"):
                if folder and not folder.startswith("-"):
                    self.assertIn(folder, folders)

        def check_tests(_, words):
            for preset in values_of(words, "--preset"):
                self.assertIn(preset or "default", names["test"])

        self.each(of("cmake"), 6, check)
        self.each(of("ctest"), 3, check_tests)

    def test_variables_of_a_build_are_cmakes_or_ours(self):
        known = set(re.findall(r"^\s*(?:option|set)\(([A-Z]\w+)", texts("cmake", {".cmake"}) +
                               text_of("CMakeLists.txt"), re.MULTILINE))
        self.assertIn("EMUV_WERROR", known)

        def check(_, words):
            for word in words:
                if found := re.match(r"-D(\w+)=", word):
                    self.assertTrue(found[1].startswith(("CMAKE_", "BUILD_")) or
                                    found[1] in known, found[1])

        self.each(of("cmake"), 6, check)

    def test_parameters_of_the_module_are_its_own(self):
        known = set(re.findall(r"^module_param\w*\((\w+)", texts("kernel", {".c"}), re.MULTILINE))

        def check(_, words):
            for word in words:
                self.assertIn(word.partition("=")[0], known)

        self.each(((where, words[1:]) for where, words in of("insmod", "modprobe", "options")
                   if words[0] in ("emuv", "emuv.ko")), 3, check)

    def test_units_are_installed(self):
        units = {path.name.removesuffix(".in") for path in (ROOT / "packaging/systemd").iterdir()}

        def check(_, words):
            named = [word for word in words[1:] if not word.startswith("-")]
            self.assertTrue(named or words[0] in WITHOUT_UNIT)
            for unit in named:
                self.assertIn(unit if "." in unit else f"{unit}.service", units)

        self.each(of("systemctl"), 5, check)

    def test_packages_are_made_or_are_what_the_build_needs(self):
        needed = text_of("scripts/setup") + text_of("packaging/debian/control")

        def check(_, words):
            named = [word for word in words if not word.startswith("-")]
            if words[0] in ("install", "purge", "remove"):
                named.remove(words[0])
            for word in named:
                name = re.sub(r"^\./|_\*\.deb$", "", word)
                if word.startswith("./") or re.match("(lib)?emuv", name):
                    self.assertIn(name, packages())
                elif not name.startswith("linux-headers-") and name not in OF_READERS:
                    self.assertTrue(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w+-])", needed),
                                    f"neither scripts/setup nor our packages ask for {name}")

        self.each(of("apt", "apt-get", "dpkg-reconfigure"), 7, check)

    def test_devices_and_variables_of_containers_are_offered(self):
        kind = re.search(r'cdi_kind = "([^"]+)"', text_of("tools/emuvctl/cdi.hpp"))[1]
        devices = []

        def check(where, words):
            for device in values_of(words, "--device"):
                vendor, _, name = device.rpartition("=")
                if vendor.startswith("emuv"):
                    devices.append(name)
                    self.assertEqual(vendor, kind)
                    # The document has made it before.
                    self.assertTrue(re.fullmatch(r"emuv\d+", name) or
                                    f"--name {name} " in text_of(where.partition(":")[0]))
            for variable in values_of(words, "-e", "--env"):
                if variable.startswith("EMUV_"):
                    self.assertIn(variable.partition("=")[0], settings())

        self.each(of("podman", "docker"), 4, check)
        self.assertTrue(devices)

    def test_variables_before_a_command_are_read_by_something(self):
        read = settings() | set(re.findall(
            r"\bEMUV_[A-Z_]+\b", texts("scripts", {""}) + texts("tests/bench", {"", ".py", ".cpp"})))

        def check(_, words):
            for name in command_of(words)[1]:
                if name.startswith("EMUV_"):
                    self.assertIn(name, read)

        self.each(((where, words) for where, words in all_shown() if all(command_of(words))),
                  2, check)

    def test_libraries_for_compilers_are_installed(self):
        known = {path.name.removesuffix(".pc.in") for path in (ROOT / "tools").rglob("*.pc.in")}

        def check(_, words):
            for name in words:
                if not name.startswith("-"):
                    self.assertIn(name, known)

        self.each(of("pkg-config"), 1, check)

    def test_what_jobs_ask_slurm_for_is_there(self):
        option = re.search(r'name\{"([\w-]+)"\}', text_of("tools/slurm/plugin.cpp"))[1]
        gres = text_of("packaging/slurm/gres.conf")

        def check(_, words):
            for word in words:
                name, _, value = word.partition("=")
                if name.startswith("--emuv"):
                    self.assertEqual(name, f"--{option}")
                elif name == "--gres":
                    self.assertIn(f"Name={value.partition(':')[0]} ", gres)

        self.each(of("srun", "sbatch", "salloc"), 3, check)

    def programs(self):
        """Programs of the tree, with their options."""
        for where, words in all_shown():
            words, _ = command_of(words)
            words = words[1:] if words and words[0].startswith("python") else words
            if words and (found := PROGRAM.fullmatch(words[0])):
                yield where, [found[1], *words[1:]]

    def test_programs_of_the_tree_are_there_and_take_these_options(self):
        options = []

        def check(_, words):
            path = ROOT / words[0]
            if path.is_dir():
                return
            source = path if path.is_file() else path.with_suffix(".cpp")
            self.assertTrue(source.is_file(), f"there is no {words[0]}")
            if source == path and path.suffix != ".py":
                self.assertTrue(os.access(path, os.X_OK), f"{words[0]} cannot be run")
            text = source.read_text(encoding="utf-8")
            # Others beside it may read them for it.
            for other in sorted(source.parent.iterdir()):
                if other.suffix in (".py", ".cpp") and re.search(rf"\b{other.stem}\b", text):
                    text += other.read_text(encoding="utf-8")
            for word in words[1:words.index("--") if "--" in words else None]:
                if found := re.match(r"--[a-z][a-z-]*", word):
                    options.append(found[0])
                    self.assertTrue(re.search(rf"(?<![\w-]){re.escape(found[0])}(?![\w-])", text),
                                    f"{words[0]} does not take {found[0]}")

        self.each(self.programs(), 60, check)
        self.assertGreaterEqual(len(options), 40)


if __name__ == "__main__":
    unittest.main()
