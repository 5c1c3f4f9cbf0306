#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Slurm's prolog, epilog and sweep leave one instance for each job that is there, and
none for any other. That holds however often and wherever they are killed."""

import fnmatch
import os
import pathlib
import re
import shlex
import signal
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE.parents[1] / "packaging/slurm"
GIB = 1 << 30
# A script is killed before each of so many commands. ctest -L long takes each.
STRIDE = int(os.environ.get("EMUV_KILL_STRIDE", "4"))

SCONTROL = """#!/bin/bash
set -u
cd "$FAKE"
[[ ! -e down ]] || { echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1; }
case "$*" in
'--oneliner show node '*) echo "NodeName=$4 State=IDLE Gres=${GRES:-emuv_vram:48,gpu:1} Port=1" ;;
'show config') echo "AccountingStorageType = accounting_storage/${STORAGE:-slurmdbd}" ;;
*) echo "scontrol $*?" >&2; exit 1 ;;
esac
"""

# The database: a file for each job that ever was.
SACCT = """#!/bin/bash
cd "$FAKE"
[[ ! -e down ]] || exit 1
for word in "$@"; do
    job=${word#--jobs=}
    [[ ! -f comment.$job ]] || echo "$job|$(<comment.$job)"
done
"""

SACCTMGR = """#!/bin/bash
cd "$FAKE"
[[ ! -e down && $* == '--immediate --quiet modify job where JobID='* ]] || exit 1
job=${6#JobID=}
[[ -f comment.$job ]] && echo "${8#AdminComment=}" | tr A-Z a-z >"comment.$job"
"""

SQUEUE = """#!/bin/bash
cd "$FAKE"
[[ ! -e down && -z ${SQUEUE_USERS:-} ]] || exit 1
case "$*" in
*' --format=%A|%b|%S'*)
    # for the first of an array also the other tasks
    for word in "$@"; do
        [[ $word != --jobs=* ]] || echo "1${word#--jobs=}|gres:emuv_vram:1|2000-01-01T00:00:00"
        [[ $word != --jobs=* || ! -f job.${word#--jobs=} ]] || cat "job.${word#--jobs=}"
    done ;;
*' --format=%A '*) cat here ;;
*) echo "squeue $*?" >&2; exit 1 ;;
esac
"""

# Sourced by the script itself: it dies before its command of that number.
KILLER = """
if [[ -n ${DIE_AT:-} ]]; then
    __die_at=$DIE_AT __step=0
    unset DIE_AT
    set -T
    trap '((++__step < __die_at)) || kill -KILL 0' DEBUG
fi
"""


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)


class ScriptsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        for name in ("bin", "fake", "sys", "dev", "run"):
            (self.work / name).mkdir()
        program(self.work / "bin/scontrol", SCONTROL)
        program(self.work / "bin/squeue", SQUEUE)
        program(self.work / "bin/sacct", SACCT)
        program(self.work / "bin/sacctmgr", SACCTMGR)
        (self.work / "killer").write_text(KILLER)
        (self.work / "slurm.conf").write_text(
            f"EMUV_SLURM_PATH={self.work}/bin\nEMUV_SLURM_VRAM=12G\n"
            "EMUV_SLURM_GPU_MODEL='RTX 4070'\n")
        self.classes = self.work / "sys/class/emuv"
        self.notes = self.work / "run/emuv/slurm/n1"
        self.jobs = set()

    # --- the cluster

    def begin(self, job, gres="gres:emuv_vram:24", start="2026-01-01T00:00:00"):
        (self.work / f"fake/job.{job}").write_text(
            f"{job}|{gres or 'N/A'}|{start}\n")
        self.jobs.add(job)
        (self.work / f"fake/comment.{job}").touch()
        self.show()

    def end(self, job, forget=False):
        self.jobs.discard(job)
        if forget:
            (self.work / f"fake/job.{job}").unlink()
        self.show()

    def show(self):
        (self.work / "fake/here").write_text("".join(f"{job}\n" for job in self.jobs))

    def comment(self, job):
        path = self.work / f"fake/comment.{job}"
        return path.read_text().strip() if path.exists() else ""

    def run_script(self, name, job=None, **variables):
        set_ = {
            "PATH": "/nonexistent", "EMUVCTL": str(HERE / "emuvctl"),
            "EMUV_SYSFS_ROOT": str(self.work / "sys"), "EMUV_DEV_ROOT": str(self.work / "dev"),
            "EMUV_RUN_ROOT": str(self.work / "run"), "FAKE": str(self.work / "fake"),
            "EMUV_SLURM_CONF": str(self.work / "slurm.conf"), "SLURMD_NODENAME": "n1",
            "BASH_ENV": str(self.work / "killer"), "SLURM_JOB_UID": str(os.getuid()),
            **variables}
        if job is not None:
            set_["SLURM_JOB_ID"] = str(job)
        done = subprocess.run([SCRIPTS / name], env=set_, text=True, check=False,
                              start_new_session=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def well(self, name, job=None, **variables):
        status, said = self.run_script(name, job, **variables)
        self.assertEqual(status, 0, said)
        return said

    def look_again(self, node="n1"):
        """The figures that Slurm was told are looked for once more, after a while."""
        for path in self.notes.with_name(node).glob("*.told"):
            os.utime(path, (0, 0))
        self.well("sweep", SLURMD_NODENAME=node)

    # --- the machine

    def instances(self):
        """By number: the name and both sizes."""
        names = {path.read_text(): path.name
                 for path in (self.work / "run/emuv/names").glob("*")}
        if not self.classes.is_dir():
            return {}
        return {int(path.name.removeprefix("emuv")):
                (names.get((path / "uuid").read_text()),
                 int((path / "physical_bytes").read_text()),
                 int((path / "virtual_bytes").read_text()))
                for path in self.classes.glob("emuv*")}

    def use(self, number, vram, spilled):
        path = self.classes / f"emuv{number}"
        (path / "physical_peak_bytes").write_text(f"{vram}\n")
        (path / "virtual_peak_bytes").write_text(f"{spilled}\n")

    def files(self):
        return sorted(path.name for path in self.notes.glob("*"))

    def assert_made(self, job, number=512):
        self.assertEqual(self.instances(), {number: (f"slurm-{job}-n1", 6 * GIB, 24 * GIB)})
        self.assertEqual((self.notes / f"{job}.environment").read_text(),
                         f"EMUV_INSTANCE={number}\nEMUV_TRUST=a word\n"
                         "LD_PRELOAD=/nonexistent/libcuda.so.1\n")

    # --- what must hold

    def test_a_job_has_an_instance_from_prolog_to_epilog(self):
        self.begin(7)
        self.well("prolog", 7)
        self.assert_made(7)
        self.use(512, 1536 << 20, 512 << 20)
        self.end(7)
        self.well("epilog", 7)
        self.assertEqual(self.instances(), {})
        self.assertEqual(self.comment(7), "emuv[n1] peak_vram_mib=1536 peak_spilled_mib=512 "
                                          "evicted_mib=0 fetched_mib=0")
        self.look_again()
        self.assertEqual(self.files(), [])

    def test_a_job_that_asks_for_none_has_none(self):
        for gres in ("", "gres:gpu:1", "gres:emuv_vram_other:3"):
            self.begin(7, gres)
            self.well("prolog", 7)
            self.assertEqual(self.instances(), {})
            self.end(7)
            self.well("epilog", 7)
            self.assertEqual(self.comment(7), "")

    def test_options_of_create_may_be_added(self):
        conf = self.work / "slurm.conf"
        conf.write_text(conf.read_text() + 'EMUV_SLURM_CREATE="--overcommit"\n')
        self.begin(7)
        self.well("prolog", 7)
        self.assert_made(7)
        self.assertTrue((self.classes / "overcommit").exists())

    def test_counts_are_read_as_slurm_writes_them(self):
        for gres, gib in (("gres:gpu:1,gres:emuv_vram:3", 3), ("gres:emuv_vram", 1),
                          ("gres:emuv_vram:1K", 1024), ("gres:emuv_vram:08", 8),
                          ("gres/emuv_vram:5", 5), ("gres:emuv_vram:1k", 1024),
                          # Slurm counts one of them: never the greater here
                          ("gres:emuv_vram:48,gres:emuv_vram:2", 2),
                          ("gres:emuv_vram:2,gres:emuv_vram:48", 2)):
            self.begin(7, gres)
            self.well("prolog", 7, GRES="emuv_vram:2K")
            self.assertEqual([one[2] for one in self.instances().values()], [gib * GIB])
            self.end(7)
            self.well("epilog", 7)

    def test_the_shares_of_a_full_node_never_pass_the_card(self):
        for job, gib in enumerate((7, 11, 13, 17)):
            self.begin(job, f"gres:emuv_vram:{gib}")
            self.well("prolog", job)
        shares = [one[1] for one in self.instances().values()]
        self.assertEqual(len(shares), 4)
        self.assertLessEqual(sum(shares), 12 * GIB)
        self.assertGreater(sum(shares), 12 * GIB - (4 << 20))

    def test_the_card_s_vram_is_asked_for_where_nobody_says(self):
        (self.work / "slurm.conf").write_text(f"EMUV_SLURM_PATH={self.work}/bin\n")
        self.begin(7)
        status, said = self.run_script("prolog", 7)
        self.assertNotEqual(status, 0)
        self.assertIn("set EMUV_SLURM_VRAM in", said)
        (self.work / "sys/card").write_text(f"{24 * GIB} your card\n{8 * GIB}\n")
        self.well("prolog", 7)
        self.assertEqual(self.instances(), {512: ("slurm-7-n1", 12 * GIB, 24 * GIB)})

    def test_a_prolog_that_runs_again_keeps_the_instance(self):
        self.begin(7)
        self.well("prolog", 7)
        uuid = (self.classes / "emuv512/uuid").read_text()
        self.well("prolog", 7)
        self.assertEqual((self.classes / "emuv512/uuid").read_text(), uuid)

    def test_a_job_that_was_queued_again_has_a_new_instance(self):
        self.begin(7)
        self.well("prolog", 7)
        self.use(512, GIB, GIB)
        uuid = (self.classes / "emuv512/uuid").read_text()
        self.begin(7, start="2026-01-02T00:00:00")
        self.well("prolog", 7)
        self.assert_made(7)
        self.assertNotEqual((self.classes / "emuv512/uuid").read_text(), uuid)

    def test_the_name_is_the_job_s_where_the_machine_is_one_node(self):
        self.begin(7)
        self.well("prolog", 7, SLURMD_NODENAME="")
        self.assertEqual([one[0] for one in self.instances().values()], ["slurm-7"])

    def test_two_nodes_of_a_machine_are_kept_apart(self):
        self.begin(7)
        for node in ("n1", "n2"):
            self.well("prolog", 7, SLURMD_NODENAME=node)
        self.assertEqual(sorted(one[0] for one in self.instances().values()),
                         ["slurm-7-n1", "slurm-7-n2"])
        self.end(7)
        self.well("epilog", 7)
        self.assertEqual([one[0] for one in self.instances().values()], ["slurm-7-n2"])
        self.well("epilog", 7, SLURMD_NODENAME="n2")
        self.assertEqual(self.instances(), {})
        self.assertRegex(self.comment(7), r"^emuv\[n1\] .*; emuv\[n2\] ")

    def test_nobody_else_can_hold_the_locks(self):
        self.begin(7)
        self.well("prolog", 7)
        for name in ("lock", "telling"):
            path = self.work / "run/emuv/slurm" / name
            self.assertEqual(path.stat().st_mode & 0o777, 0o600, name)
            path.chmod(0o644) # as one of an older version
            self.well("sweep")
            self.assertEqual(path.stat().st_mode & 0o777, 0o600, name)

    def test_long_names_of_nodes_are_cut_and_told_apart(self):
        self.begin(12345678)
        for number in (1, 2):
            self.well("prolog", 12345678, SLURMD_NODENAME="n" * 60 + str(number))
        names = [one[0] for one in self.instances().values()]
        self.assertEqual([len(name) for name in names], [48, 48])
        self.assertEqual(len(set(names)), 2)

    def test_a_job_of_a_great_array_is_found(self):
        self.begin(7)
        path = self.work / "fake/job.7"
        path.write_text(path.read_text() + "9|gres:emuv_vram:1|N/A\n" * 100000)
        self.well("prolog", 7)
        self.assert_made(7)

    def test_an_administrator_s_defaults_hide_no_job(self):
        self.begin(7)
        self.well("prolog", 7)
        self.well("sweep", SQUEUE_USERS="root")
        self.assert_made(7)

    def test_a_prolog_waits_for_no_database(self):
        self.begin(7)
        self.well("prolog", 7)
        (self.work / "fake/comment.7").unlink()
        self.end(7)
        self.well("epilog", 7)
        program(self.work / "bin/sacct", '#!/bin/bash\ntouch "$FAKE/asked"\nexit 1\n')
        self.begin(8)
        self.well("prolog", 8)
        self.assertFalse((self.work / "fake/asked").exists())

    def test_other_instances_are_let_alone(self):
        for number in (0, 511):
            self.standin("create", "--id", str(number), "--name", f"team-{number}",
                         "--physical", "1", "--virtual", "1G")
        self.begin(7)
        self.well("prolog", 7)
        self.end(7)
        self.well("epilog", 7)
        self.well("sweep")
        self.assertEqual(sorted(self.instances()), [0, 511])

    def standin(self, *words):
        subprocess.run([HERE / "emuvctl", *words], check=True, stdout=subprocess.DEVNULL, env={
            **os.environ, "EMUV_SYSFS_ROOT": str(self.work / "sys"),
            "EMUV_DEV_ROOT": str(self.work / "dev"), "EMUV_RUN_ROOT": str(self.work / "run")})

    def test_udev_s_rule_is_for_the_instances_that_are_slurm_s(self):
        rule = (SCRIPTS.parent / "udev/71-emuv-slurm.rules").read_text()
        patterns = re.search(r'KERNEL!="([^"]*)", GOTO=', rule)[1].split("|")
        text = (SCRIPTS / "lib.sh").read_text()
        first, last = (int(re.search(rf"{which}_ID:-(\d+)", text)[1]) for which in ("FIRST", "LAST"))
        covered = [number for number in range(11000) if any(
            fnmatch.fnmatchcase(f"emuv{number}", pattern) for pattern in patterns)]
        self.assertEqual(covered, list(range(first, last + 1)))

    def test_udev_s_rule_asks_for_the_owner_that_a_node_has(self):
        rule = (SCRIPTS.parent / "udev/71-emuv-slurm.rules").read_text()
        command = re.search(r'^PROGRAM=="([^"]*)", OWNER="\$result"$', rule, re.MULTILINE)[1]
        node = self.work / "node"
        node.touch()
        if os.getuid() == 0:
            os.chown(node, 1234, 0)
        words = shlex.split(command.replace("%%", "%").replace("$devnode", str(node)))
        self.assertEqual(int(subprocess.check_output(words)), node.stat().st_uid)

    def test_a_prolog_starts_no_more_programs_where_more_jobs_are(self):
        for name in ("cat", "grep"):
            program(self.work / "bin" / name,
                    f'#!/bin/bash\necho >>"$FAKE/started"\nexec /bin/{name} "$@"\n')
        started = self.work / "fake/started"
        counts = []
        for job in range(1, 9):
            self.begin(job, "gres:emuv_vram:1")
            started.write_text("")
            self.well("prolog", job)
            counts.append(started.stat().st_size)
        self.assertEqual(len(self.instances()), 8)
        self.assertEqual(set(counts[1:]), {counts[-1]})

    def test_sweep_ends_what_no_job_has(self):
        for job in (7, 8, 9):
            self.begin(job)
            self.well("prolog", job, GRES="emuv_vram:96")
        for number, name in ((600, "slurm-99-n1"), (601, "team")):
            self.standin("create", "--id", str(number), "--name", name,
                         "--physical", "1", "--virtual", "1G")
        self.end(7)
        self.end(9, forget=True)
        said = self.well("sweep")
        self.assertIn("instance 601 is team, and not Slurm's", said)
        self.assertEqual(sorted(one[0] for one in self.instances().values()),
                         ["slurm-8-n1", "team"])
        self.look_again()
        self.assertEqual(self.files(), ["8.environment", "8.note"])
        self.assertIn("emuv[n1] ", self.comment(7))

    def test_nothing_goes_while_slurm_does_not_answer(self):
        self.begin(7)
        self.well("prolog", 7)
        self.end(7)
        (self.work / "fake/down").touch()
        self.well("sweep")
        self.assert_made(7)
        # what the epilog is told to end, ends; its figures wait
        self.well("epilog", 7)
        self.assertEqual(self.instances(), {})
        self.assertEqual(self.files(), ["7.figures"])
        (self.work / "fake/down").unlink()
        self.well("sweep")
        self.assertIn("emuv[n1] ", self.comment(7))
        self.look_again()
        self.assertEqual(self.files(), [])

    def test_figures_of_a_node_with_a_great_name_are_found_again(self):
        self.begin(7)
        self.well("prolog", 7, SLURMD_NODENAME="GPU1")
        self.well("epilog", 7, SLURMD_NODENAME="GPU1")
        self.look_again("GPU1")
        self.assertRegex(self.comment(7), r"^emuv\[gpu1\] [^;]*$")
        self.assertEqual(list((self.work / "run/emuv/slurm/GPU1").iterdir()), [])

    def test_figures_of_other_nodes_stay(self):
        self.begin(7)
        self.well("prolog", 7)
        (self.work / "fake/comment.7").write_text("words; emuv[n2] peak_vram_mib=1\n")
        self.well("epilog", 7)
        self.assertRegex(self.comment(7), r"^words; emuv\[n2\] peak_vram_mib=1; emuv\[n1\] peak")

    def test_figures_of_a_job_that_the_database_does_not_have_yet_wait(self):
        self.begin(7)
        self.well("prolog", 7)
        comment = self.work / "fake/comment.7"
        comment.unlink()
        self.well("epilog", 7)
        self.assertEqual(self.files(), ["7.figures"])
        comment.touch()
        self.well("sweep")
        self.assertIn("emuv[n1] ", self.comment(7))
        self.look_again()
        self.assertEqual(self.files(), [])

    def test_figures_that_another_node_has_written_over_are_told_again(self):
        self.begin(7)
        self.well("prolog", 7)
        self.well("epilog", 7)
        # It had read the comment before.
        (self.work / "fake/comment.7").write_text("emuv[n2] peak_vram_mib=1\n")
        self.look_again()
        self.assertRegex(self.comment(7), r"^emuv\[n2\] peak_vram_mib=1; emuv\[n1\] peak")
        self.assertNotEqual(self.files(), [])
        self.look_again()
        self.assertEqual(self.files(), [])

    def test_a_job_s_next_life_has_figures_of_its_own(self):
        for peak in (3, 5):
            self.begin(7, start=f"2026-01-0{peak}T00:00:00")
            (self.work / "fake/comment.7").write_text("") # another record
            self.well("prolog", 7)
            self.use(512, peak << 20, 0)
            self.well("epilog", 7)
            self.assertIn(f"peak_vram_mib={peak} ", self.comment(7))

    def test_figures_that_nobody_takes_go_after_a_day(self):
        self.begin(7)
        self.well("prolog", 7)
        (self.work / "fake/comment.7").unlink()
        self.end(7)
        self.well("epilog", 7)
        os.utime(self.notes / "7.figures", (0, 0))
        self.well("sweep")
        self.assertEqual(self.files(), [])

    def test_figures_go_to_the_log_without_a_database(self):
        program(self.work / "bin/logger", '#!/bin/bash\necho "$*" >"$FAKE/log"\n')
        self.begin(7)
        self.well("prolog", 7)
        self.well("epilog", 7, STORAGE="none")
        self.assertEqual(self.files(), [])
        self.assertIn("job 7: emuv[n1] peak_vram_mib=0", (self.work / "fake/log").read_text())

    def killed_at_each_step(self, script, job, before, after):
        """Runs before(), the script until it dies, and after(), at STRIDE steps' distance."""
        for step in range(1, 2000, STRIDE):
            before()
            status, said = self.run_script(script, job, DIE_AT=str(step))
            with self.subTest(step=step):
                self.assertIn(status, (0, -signal.SIGKILL), said)
                after()
            if status == 0:
                self.assertGreater(step, 40)
                return
        self.fail("it has no end")

    def clean(self):
        self.end(7)
        self.well("epilog", 7)
        self.look_again()
        self.assertEqual(self.instances(), {})
        self.assertEqual(self.files(), [])

    def test_a_prolog_that_was_killed_anywhere_can_run_again(self):
        def again():
            self.well("prolog", 7)
            self.assert_made(7)
            self.clean()
        self.killed_at_each_step("prolog", 7, lambda: self.begin(7), again)

    def test_what_a_killed_prolog_made_goes_with_the_job(self):
        def swept():
            self.end(7)
            self.well("sweep")
            self.look_again()
            self.assertEqual(self.instances(), {})
            self.assertEqual(self.files(), [])
        self.killed_at_each_step("prolog", 7, lambda: self.begin(7), swept)

    def test_an_instance_whose_maker_dies_before_it_has_a_name_goes(self):
        self.begin(7)
        status, _ = self.run_script("prolog", 7, STAND_IN_DIES="create")
        self.assertEqual(status, -signal.SIGKILL)
        self.assertEqual([one[0] for one in self.instances().values()], [None])
        self.well("prolog", 7)
        self.assert_made(7)

    def test_an_epilog_that_was_killed_anywhere_is_made_good(self):
        def begun():
            self.begin(7)
            (self.work / "fake/comment.7").write_text("")
            self.well("prolog", 7)
            self.use(512, 3 << 20, 2 << 20)
            self.end(7)

        def swept():
            self.well("sweep")
            self.look_again()
            self.assertEqual(self.instances(), {})
            self.assertEqual(self.files(), [])
            self.assertEqual(self.comment(7), "emuv[n1] peak_vram_mib=3 peak_spilled_mib=2 "
                                              "evicted_mib=0 fetched_mib=0")
        self.killed_at_each_step("epilog", 7, begun, swept)


if __name__ == "__main__":
    unittest.main()
