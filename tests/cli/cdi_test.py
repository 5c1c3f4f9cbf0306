#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The files of `emuvctl cdi` are what container engines take: version 0.3.0 of
the Container Device Interface, each field by its rules, and nothing else."""

import argparse
import fcntl
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import unittest

MACHINE = pathlib.Path(__file__).resolve().parent / "machine"
UUID_OF = "sys/class/emuv/{}/uuid"
LIMIT = 120  # seconds for any event


def is_path(text):
    return isinstance(text, str) and text.startswith("/")


def is_variable(text):
    return isinstance(text, str) and text.find("=") > 0


def is_options(value):
    return isinstance(value, list) and all(isinstance(each, str)
                                           for each in value)


def is_permissions(text):
    return isinstance(text, str) and set(text) <= set("rwm")


def is_device_name(text):
    return (isinstance(text, str) and
            re.fullmatch(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?", text))


# The fields of 0.3.0, by object: required or not, and the rule. Engines
# refuse fields that they do not know. Later versions added a mount's type (0.4),
# a node's hostPath and names that begin with a digit (0.5), annotations and dots
# in the class (0.6).
NODE = {"path": (True, is_path), "type": (False, lambda text: text in "bcup"),
        "major": (False, lambda n: isinstance(n, int)),
        "minor": (False, lambda n: isinstance(n, int)),
        "fileMode": (False, lambda n: isinstance(n, int)),
        "permissions": (False, is_permissions),
        "uid": (False, lambda n: isinstance(n, int)),
        "gid": (False, lambda n: isinstance(n, int))}
MOUNT = {"hostPath": (True, is_path), "containerPath": (True, is_path),
         "options": (False, is_options)}
EDITS = {"env": (False, [is_variable]), "deviceNodes": (False, [NODE]),
         "mounts": (False, [MOUNT]), "hooks": (False, [])}
DEVICE = {"name": (True, is_device_name), "containerEdits": (True, EDITS)}
SPECIFICATION = {
    "cdiVersion": (True, lambda text: text == "0.3.0"),
    "kind": (True, lambda text: re.fullmatch(
        r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]/[A-Za-z][A-Za-z0-9_-]*[A-Za-z0-9]",
        text)),
    "devices": (True, [DEVICE]), "containerEdits": (False, EDITS)}


def faults(value, rule, where="specification"):
    """The faults of a value, by its rule."""
    if isinstance(rule, dict):
        if not isinstance(value, dict):
            return [f"{where}: no object"]
        found = [f"{where}: unknown field {name}"
                 for name in value if name not in rule]
        for name, (required, inner) in rule.items():
            if name in value:
                found += faults(value[name], inner, f"{where}.{name}")
            elif required:
                found.append(f"{where}: no field {name}")
        return found
    if isinstance(rule, list):
        if not isinstance(value, list):
            return [f"{where}: no list"]
        return [fault for i, each in enumerate(value)
                for fault in faults(each, rule[0], f"{where}[{i}]")]
    return [] if rule(value) else [f"{where}: {value!r}"]


class CdiTest(unittest.TestCase):
    emuvctl = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "machine"
        shutil.copytree(MACHINE, self.root)
        shutil.rmtree(self.root / "etc")
        self.mounted = self.root / "emuv"
        (self.root / "run").mkdir(exist_ok=True)
        self.folder = self.root / "run/cdi"
        self.file = self.folder / "emuv.json"

    def name(self, instance, name):
        """As `create --name` does."""
        names = self.root / "run/emuv/names"
        names.mkdir(parents=True, exist_ok=True)
        (names / name).write_text(
            (self.root / UUID_OF.format(instance)).read_text())

    def destroy(self, instance):
        shutil.rmtree(self.root / "sys/class/emuv" / instance)

    def environment(self):
        environment = {name: text for name, text in os.environ.items()
                       if not name.startswith("EMUV_")}
        for name in ("sys", "proc", "dev", "run", "etc"):
            key = "SYSFS" if name == "sys" else name.upper()
            environment[f"EMUV_{key}_ROOT"] = (
                "/dev" if name == "dev" else str(self.root / name))
        return environment

    def run_verb(self, *words, status=0, **more):
        done = subprocess.run(
            [self.emuvctl, *words], env=self.environment(), text=True,
            check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def generate(self, *words, **more):
        return self.run_verb("cdi", "generate", "--library", self.mounted,
                             *words, **more)

    def devices(self):
        return {each["name"]: each["containerEdits"]
                for each in json.loads(self.file.read_text())["devices"]}

    def states(self):
        rows = json.loads(self.run_verb("cdi", "list", "--json").stdout)
        return {row["device"]: row["state"] for row in rows["devices"]}

    def test_a_specification_has_the_fields_of_its_version_alone(self):
        self.name("emuv1", "team-a")
        done = self.generate()
        specification = json.loads(done.stdout)
        self.assertEqual(faults(specification, SPECIFICATION), [])
        self.assertEqual(specification["kind"], "emuv.dev/vgpu")
        names = [each["name"] for each in specification["devices"]]
        self.assertEqual(names, ["emuv0", "emuv1", "team-a", "emuv10"])
        self.assertEqual(len(set(names)), len(names))
        for each in specification["devices"]:
            self.assertTrue(each["containerEdits"], "engines refuse empty ones")

    def test_the_rules_find_what_engines_refuse(self):
        good = json.loads(self.generate().stdout)
        for change in (
                lambda s: s.update(annotations={}),
                lambda s: s.update(cdiVersion="0.6.0"),
                lambda s: s.update(kind="emuv.dev/v.gpu"),
                lambda s: s.pop("devices"),
                lambda s: s["devices"][0].update(name="0"),
                lambda s: s["devices"][0].update(name="a-"),
                lambda s: s["devices"][0].pop("containerEdits"),
                lambda s: s["devices"][0]["containerEdits"]["deviceNodes"][0]
                .update(hostPath="/dev/x"),
                lambda s: s["containerEdits"]["mounts"][0].update(type="bind"),
                lambda s: s["containerEdits"].update(env=["=x"])):
            bad = json.loads(json.dumps(good))
            change(bad)
            self.assertNotEqual(faults(bad, SPECIFICATION), [], bad)

    def test_a_device_is_its_node_its_number_and_the_library(self):
        self.name("emuv1", "team-a")
        specification = json.loads(self.generate("team-a").stdout)
        self.assertEqual(
            [each["name"] for each in specification["devices"]],
            ["emuv1", "team-a"])
        for each in specification["devices"]:
            self.assertEqual(each["containerEdits"], {
                "env": ["EMUV_INSTANCE=1"],
                "deviceNodes": [{"path": "/dev/emuv1", "permissions": "rw"}]})
        self.assertEqual(specification["containerEdits"], {
            "env": ["LD_PRELOAD=/usr/lib/emuv/libcuda.so.1", "EMUV_MOVE_DEFAULT=1"],
            "mounts": [{"hostPath": str(self.mounted),
                        "containerPath": "/usr/lib/emuv",
                        "options": ["ro", "nosuid", "nodev", "bind"]}]})
        (self.mounted / "libnvidia-ml.so.1").touch()
        self.assertEqual(
            json.loads(self.generate().stdout)["containerEdits"]["env"],
            ["LD_PRELOAD=/usr/lib/emuv/libcuda.so.1:"
             "/usr/lib/emuv/libnvidia-ml.so.1", "EMUV_MOVE_DEFAULT=1"])

    def test_container_args_say_the_same_as_a_specification(self):
        edits = json.loads(self.generate("1").stdout)
        device = edits["devices"][0]["containerEdits"]
        common = edits["containerEdits"]
        words = json.loads(self.run_verb(
            "container-args", "--library", self.mounted, "--json",
            "1").stdout)["arguments"]
        pairs = list(zip(words[::2], words[1::2]))
        self.assertEqual(
            pairs,
            [("--device", each["path"]) for each in device["deviceNodes"]] +
            [("-e", each) for each in device["env"]] +
            [("-v", f"{each['hostPath']}:{each['containerPath']}:ro")
             for each in common["mounts"]] +
            [("-e", each) for each in common["env"]])
        line = self.run_verb("container-args", "--library", self.mounted,
                             "1").stdout
        self.assertEqual(line.split(), words)

    def test_container_args_refuse_a_path_that_falls_apart(self):
        for name in ("a b", "a:b", "a*"):
            other = self.root / name
            shutil.copytree(self.mounted, other)
            done = self.run_verb("container-args", "--library", other, "1",
                                 status=1)
            self.assertIn("this path cannot be an engine's option", done.stderr)

    def test_a_name_that_engines_refuse_is_left_out_and_told(self):
        self.name("emuv1", "team-")
        done = self.generate()
        self.assertEqual(faults(json.loads(done.stdout), SPECIFICATION), [])
        self.assertNotIn("team-", done.stdout)
        self.assertEqual(
            done.stderr, "emuvctl: cdi generate: 'team-' is no name for engines, "
            "since it does not end in a letter or digit: emuv1 has its number "
            "alone\n")

    def test_a_file_is_whole_and_readable_by_all(self):
        done = self.generate("--output", self.folder, umask=0o077)
        self.assertEqual(done.stdout, f"{self.file}\n")
        first = self.file.stat()
        self.assertEqual(stat.S_IMODE(first.st_mode), 0o644)
        self.assertEqual(stat.S_IMODE(self.folder.stat().st_mode), 0o755)
        self.generate("--output", self.folder)
        self.assertNotEqual(self.file.stat().st_ino, first.st_ino,
                            "another file takes its place at once")
        self.assertEqual([each.name for each in self.folder.iterdir()],
                         ["emuv.json"])

    def test_somebody_else_s_file_stays(self):
        self.folder.mkdir()
        for text in ('{"kind": "nvidia.com/gpu", "devices": []}', "text", ""):
            self.file.write_text(text)
            for verb in (("generate", "--output", self.folder),
                         ("refresh",), ("list",)):
                words = () if verb == ("list",) else ("--library", self.mounted)
                done = self.run_verb("cdi", *verb, *words, status=1)
                self.assertIn("this is no specification of emuv.dev/vgpu; it is "
                              "left alone", done.stderr)
            self.assertEqual(self.file.read_text(), text)

    def test_refresh_drops_what_is_gone_and_keeps_to_what_was_asked_for(self):
        self.name("emuv1", "team-a")
        self.generate("--output", self.folder, "emuv1", "emuv10")
        self.destroy("emuv10")
        self.assertEqual(self.states(), {
            "emuv.dev/vgpu=emuv1": "ok", "emuv.dev/vgpu=team-a": "ok",
            "emuv.dev/vgpu=emuv10": "gone"})
        shown = self.run_verb("cdi", "refresh", "--dry-run").stdout
        self.assertEqual(shown, "would drop emuv.dev/vgpu=emuv10\n"
                         f"{self.file}: 2 devices\n")
        self.assertIn("emuv10", self.devices())
        done = self.run_verb("cdi", "refresh")
        self.assertEqual(done.stdout, "dropped emuv.dev/vgpu=emuv10\n"
                         f"{self.file}: 2 devices\n")
        self.assertEqual(set(self.devices()), {"emuv1", "team-a"})
        self.assertEqual(
            faults(json.loads(self.file.read_text()), SPECIFICATION), [])

    def test_the_library_that_was_named_stays_until_another_is(self):
        self.generate("--output", self.folder, "emuv1", "emuv10")
        before = json.loads(self.file.read_text())["containerEdits"]
        self.destroy("emuv10")
        self.run_verb("cdi", "refresh")
        self.assertEqual(json.loads(self.file.read_text())["containerEdits"], before)
        other = self.root / "other"
        shutil.copytree(self.mounted, other)
        self.run_verb("cdi", "refresh", "--library", other)
        after = json.loads(self.file.read_text())["containerEdits"]
        self.assertEqual([each["hostPath"] for each in after["mounts"]], [str(other)])

    def test_edits_of_an_administrator_last(self):
        self.name("emuv1", "team-a")
        self.generate("--output", self.folder, "emuv1", "emuv10")
        text = json.loads(self.file.read_text())
        mount = {"hostPath": "/srv/data", "containerPath": "/data", "options": ["ro"]}
        text["containerEdits"]["env"][1:] = ["EMUV_MOVE_DEFAULT=0", "SITE=1"]
        text["containerEdits"]["mounts"].append(mount)
        text["containerEdits"]["hooks"] = []
        for each in text["devices"]:
            each["containerEdits"]["env"].append("TEAM=a")
            each["containerEdits"]["deviceNodes"].append({"path": "/dev/fuse"})
        self.file.write_text(json.dumps(text))
        # One device stays, one leads elsewhere, one goes.
        self.name("emuv0", "team-a")
        self.destroy("emuv10")
        self.run_verb("cdi", "refresh", "--library", self.mounted)
        self.assertEqual(self.devices(), {
            "emuv1": {"env": ["EMUV_INSTANCE=1", "TEAM=a"],
                      "deviceNodes": [{"path": "/dev/emuv1", "permissions": "rw"},
                                      {"path": "/dev/fuse"}]},
            "team-a": {"env": ["EMUV_INSTANCE=0", "TEAM=a"],
                       "deviceNodes": [{"path": "/dev/emuv0", "permissions": "rw"},
                                       {"path": "/dev/fuse"}]}})
        self.assertEqual(json.loads(self.file.read_text())["containerEdits"], {
            "env": ["LD_PRELOAD=/usr/lib/emuv/libcuda.so.1", "EMUV_MOVE_DEFAULT=0", "SITE=1"],
            "mounts": [{"hostPath": str(self.mounted), "containerPath": "/usr/lib/emuv",
                        "options": ["ro", "nosuid", "nodev", "bind"]}, mount],
            "hooks": []})

    def test_a_specification_leaves_the_last_word_on_settings_to_the_user(self):
        """Engines set a file's variables above those of the user's -e."""
        for edits in (json.loads(self.generate().stdout)["containerEdits"],
                      *self.offered().values()):
            for each in edits["env"]:
                self.assertRegex(each, r"^(LD_PRELOAD|EMUV_INSTANCE|EMUV_[A-Z]+_DEFAULT)=")

    def test_a_file_of_before_gets_the_default_with_another_library(self):
        self.generate("--output", self.folder, "emuv1")
        text = json.loads(self.file.read_text())
        text["containerEdits"]["env"].remove("EMUV_MOVE_DEFAULT=1")
        self.file.write_text(json.dumps(text))
        self.run_verb("cdi", "refresh", "--library", self.mounted)
        self.assertIn("EMUV_MOVE_DEFAULT=1",
                      json.loads(self.file.read_text())["containerEdits"]["env"])

    def offered(self):
        """The edits of each device, as they would be written."""
        return {each["name"]: each["containerEdits"]
                for each in json.loads(self.generate().stdout)["devices"]}

    def tiers(self, instance, text):
        """As `create --tier` does."""
        folder = self.root / "run/emuv/tiers"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / (self.root / UUID_OF.format(instance)).read_text().strip()).write_text(
            text + "\n")

    def test_a_device_has_the_tiers_of_its_instance_and_the_nodes_of_those_that_lend(self):
        plain = self.offered()
        self.name("emuv10", "spare")
        self.tiers("emuv1", "emuv0=2GiB,spare=1GiB")
        offered = self.offered()
        self.assertEqual(offered["emuv1"], {
            "env": ["EMUV_INSTANCE=1,0,10",
                    "EMUV_TIER_DEFAULT=peer:1=2147483648,peer:2=1073741824"],
            "deviceNodes": [{"path": f"/dev/emuv{each}", "permissions": "rw"}
                            for each in (1, 0, 10)]})
        self.assertEqual(offered["emuv0"], plain["emuv0"])

    def test_tiers_in_a_file_are_those_that_the_instance_has_now(self):
        self.tiers("emuv1", "emuv10=1GiB")
        self.generate("--output", self.folder, "emuv1")
        lent = self.devices()["emuv1"]
        self.assertEqual(len(lent["deviceNodes"]), 2)
        self.assertEqual(set(self.states().values()), {"ok"})
        text = json.loads(self.file.read_text())
        text["devices"][0]["containerEdits"]["env"].append("TEAM=a")
        text["devices"][0]["containerEdits"]["deviceNodes"].append({"path": "/dev/fuse"})
        self.file.write_text(json.dumps(text))
        # One that has gone lends nothing.
        self.destroy("emuv10")
        self.run_verb("cdi", "refresh")
        self.assertEqual(self.devices()["emuv1"], {
            "env": ["EMUV_INSTANCE=1", "TEAM=a"],
            "deviceNodes": [{"path": "/dev/emuv1", "permissions": "rw"},
                            {"path": "/dev/fuse"}]})
        self.tiers("emuv1", "emuv0=1GiB")
        self.run_verb("cdi", "refresh")
        self.assertEqual(self.devices()["emuv1"]["env"], [
            "EMUV_INSTANCE=1,0", "EMUV_TIER_DEFAULT=peer:1=1073741824", "TEAM=a"])

    def test_the_next_instance_with_a_lender_s_number_has_lent_nothing(self):
        lender = self.root / UUID_OF.format("emuv10")
        self.tiers("emuv1", f"emuv10=1GiB,emuv0=1GiB\n{lender.read_text().strip()} -")
        self.generate("--output", self.folder, "emuv1")
        self.assertEqual(len(self.devices()["emuv1"]["deviceNodes"]), 3)
        lender.write_text("f0a1b2c3-0000-4000-8000-0123456789ab\n")
        self.run_verb("cdi", "refresh")
        self.assertEqual(self.devices()["emuv1"], {
            "env": ["EMUV_INSTANCE=1"],
            "deviceNodes": [{"path": "/dev/emuv1", "permissions": "rw"}]})

    def test_tiers_that_cannot_be_are_left_out_and_told(self):
        self.tiers("emuv1", "lender=1GiB")
        done = self.generate("1")
        self.assertEqual(json.loads(done.stdout)["devices"][0]["containerEdits"]["env"],
                         ["EMUV_INSTANCE=1"])
        why = "a tier of emuv1: no instance is called 'lender'; its containers begin without tiers"
        self.assertEqual(done.stderr, f"emuvctl: cdi generate: warning: {why}\n")
        done = self.run_verb("container-args", "--library", self.mounted, "1")
        self.assertEqual(done.stderr, f"emuvctl: container-args: warning: {why}\n")

    def test_a_file_of_somebody_else_s_keeps_no_other_from_its_turn(self):
        etc = self.root / "etc/cdi"
        etc.mkdir(parents=True)
        (etc / "emuv.json").write_text("text")
        self.generate("--output", self.folder, "emuv1", "emuv10")
        self.destroy("emuv10")
        listed = self.run_verb("cdi", "list", "--json", status=1)
        self.assertEqual([row["device"] for row in json.loads(listed.stdout)["devices"]],
                         ["emuv.dev/vgpu=emuv1", "emuv.dev/vgpu=emuv10"])
        done = self.run_verb("cdi", "refresh", status=1)
        self.assertEqual(done.stdout, "dropped emuv.dev/vgpu=emuv10\n"
                         f"{self.file}: 1 device\n")
        self.assertEqual(set(self.devices()), {"emuv1"})
        for each in (listed, done):
            self.assertIn("this is no specification of emuv.dev/vgpu", each.stderr)
        self.file.write_text("text")
        done = self.run_verb("cdi", "refresh", status=1)
        self.assertEqual([line.split(": ")[2] for line in done.stderr.splitlines()],
                         [str(etc / "emuv.json"), str(self.file)])

    def test_a_name_leads_to_whom_it_belongs_now(self):
        self.name("emuv1", "team-a")
        self.generate("--output", self.folder, "emuv1")
        self.name("emuv10", "team-a")
        self.assertEqual(self.states()["emuv.dev/vgpu=team-a"], "stale")
        self.run_verb("cdi", "refresh")
        self.assertEqual(self.devices()["team-a"]["env"], ["EMUV_INSTANCE=10"])
        self.assertEqual(self.devices()["emuv1"]["env"], ["EMUV_INSTANCE=1"])
        self.assertEqual(set(self.states().values()), {"ok"})

    def test_a_file_without_devices_goes(self):
        self.generate("--output", self.folder, "emuv1")
        self.destroy("emuv1")
        done = self.run_verb("cdi", "refresh")
        self.assertEqual(done.stdout, "dropped emuv.dev/vgpu=emuv1\n"
                         f"{self.file}: 0 devices, removed\n")
        self.assertFalse(self.file.exists())

    def started_while_locked(self, *words):
        """A verb that waits, since another one removes instances."""
        environment = self.environment()
        (self.root / "run/emuv").mkdir(exist_ok=True)
        with open(self.root / "run/emuv/names.lock", "w",
                  encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            verb = subprocess.Popen(
                [self.emuvctl, "cdi", *words], env=environment, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            end = time.monotonic() + LIMIT
            waiter = re.compile(rf"-> FLOCK .* {verb.pid} ")
            while not waiter.search(pathlib.Path("/proc/locks").read_text()):
                self.assertIsNone(verb.poll(), "it waits for nobody")
                self.assertLess(time.monotonic(), end, "it does not wait")
                time.sleep(0.005)
            yield
        out, err = verb.communicate(timeout=LIMIT)
        self.assertEqual(verb.returncode, 0, out + err)

    def test_what_is_destroyed_meanwhile_does_not_come_back(self):
        for words in (("refresh",), ("generate", "--library", self.mounted,
                                     "--output", self.folder)):
            with self.subTest(words):
                self.name("emuv1", "team-a")
                self.generate("--output", self.folder)
                for _ in self.started_while_locked(*words):
                    self.destroy("emuv1")
                self.assertEqual(set(self.devices()), {"emuv0", "emuv10"})
                shutil.copytree(MACHINE / "sys/class/emuv/emuv1",
                                self.root / "sys/class/emuv/emuv1")

    def test_a_file_is_written_under_a_lock_where_nobody_has_given_a_name(self):
        shutil.rmtree(self.root / "run/emuv", ignore_errors=True)
        self.generate("--output", self.folder, "emuv1")
        self.assertTrue((self.root / "run/emuv/names.lock").exists())

    def test_both_folders_of_engines_are_looked_at(self):
        etc = self.root / "etc/cdi"
        self.generate("--output", etc, "emuv0")
        self.generate("--output", self.folder, "emuv1")
        rows = json.loads(self.run_verb("cdi", "list", "--json").stdout)
        self.assertEqual([(row["instance"], row["file"])
                          for row in rows["devices"]],
                         [("emuv0", str(etc / "emuv.json")),
                          ("emuv1", str(self.file))])
        self.destroy("emuv0")
        self.destroy("emuv1")
        self.run_verb("cdi", "refresh")
        self.assertFalse((etc / "emuv.json").exists() or self.file.exists())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emuvctl", required=True)
    options, rest = parser.parse_known_args()
    CdiTest.emuvctl = options.emuvctl
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
