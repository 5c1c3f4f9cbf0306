#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Slurm's own daemons pack jobs by virtual VRAM, give each an instance, and take it
away again, whatever ends a job.

slurmctld, two slurmd and munged run on this machine, as root, on ports of its own. So
does slurmdbd with MariaDB, where both are installed. The driver is the stand-in
beside this file, or with --real the one of this machine: as packages have it.
Exit status 77: something is missing."""

import argparse
import atexit
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
LIMIT = int(os.environ.get("EMUV_TEST_LIMIT", "900"))  # seconds: in emulation all is slow
GIB = 1 << 30

# A task: it charges VRAM and allocates RAM of its instance, and waits.
TASK = """#!/usr/bin/env python3
import fcntl, os, pathlib, struct, sys, time
print(" ".join(sys.argv[1:]), flush=True)
number = os.environ["EMUV_INSTANCE"]
vram, spilled = int(sys.argv[1]) << 20, int(sys.argv[2]) << 20
if @REAL@:
    node = os.open(f"/dev/emuv{number}", os.O_RDWR)
    # EMUV_IOC_CHARGE and EMUV_IOC_ALLOC
    fcntl.ioctl(node, 0xEB25, bytearray(struct.pack("IIQQQ", 32, 0, vram, 0, 0)))
    fcntl.ioctl(node, 0xEB20, bytearray(struct.pack("IIQQ", 24, 0, spilled, 0)))
else:
    path = pathlib.Path(f"@SYS@/class/emuv/emuv{number}")
    (path / "physical_peak_bytes").write_text(f"{vram}\\n")
    (path / "virtual_peak_bytes").write_text(f"{spilled}\\n")
pathlib.Path(sys.argv[3]).touch()
while len(sys.argv) > 4 and not os.path.exists(sys.argv[4]):
    time.sleep(0.1)
"""


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)


def await_event(what, condition, limit=LIMIT):
    end = time.monotonic() + limit
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"after {limit} s: not {what}")
        time.sleep(0.1)


class Cluster:
    """The daemons, and their files: nodes of so many processors and GiB each."""

    def __init__(self, work, nodes=("n1", "n2"), cpus=8, gib=48):
        self.work = work
        self.nodes = nodes
        self.daemons = {}
        self.has_database = not OPTIONS.no_database and all(map(shutil.which, ("slurmdbd", "mariadbd", "mariadb-install-db")))
        for name in ("sys", "dev", "run", "log", "spool", "state", "key"):
            (work / name).mkdir()
        work.chmod(0o755)
        ctld, dbd, *ports = free_ports(2 + len(nodes))
        self.socket = work / "munge.socket"
        self.write_scripts()
        accounting = ("AccountingStorageType=accounting_storage/slurmdbd\n"
                      f"AccountingStorageHost=127.0.0.1\nAccountingStoragePort={dbd}\n"
                      f"AccountingStoragePass={self.socket}\n"
                      if self.has_database else "")
        (work / "slurm.conf").write_text(textwrap.dedent(f"""\
            ClusterName=emuv
            SlurmctldHost=localhost(127.0.0.1)
            SlurmctldPort={ctld}
            SlurmUser=root
            SlurmdUser=root
            AuthType=auth/munge
            AuthInfo=socket={self.socket}
            CredType=cred/munge
            StateSaveLocation={work}/state
            SlurmdSpoolDir={work}/spool/%n
            SlurmctldPidFile={work}/slurmctld.pid
            SlurmdPidFile={work}/slurmd.%n.pid
            SlurmctldLogFile={work}/log/slurmctld
            SlurmdLogFile={work}/log/%n
            ProctrackType=proctrack/linuxproc
            TaskPlugin=task/none
            SlurmdParameters=config_overrides
            SwitchType=switch/none
            MpiDefault=none
            ReturnToService=2
            SlurmdTimeout=15
            MessageTimeout=100
            BatchStartTimeout=900
            KillWait=2
            SchedulerParameters=sched_interval=5,bf_interval=5
            SelectType=select/cons_tres
            SelectTypeParameters=CR_CPU
            GresTypes=emuv_vram
            JobSubmitPlugins=lua
            PrologFlags=Alloc
            Prolog={work}/prolog
            Epilog={work}/epilog
            HealthCheckProgram={work}/sweep
            HealthCheckInterval=3600
            PlugStackConfig={work}/plugstack.conf
            PartitionName=all Nodes={",".join(nodes)} Default=YES OverSubscribe=YES:8
            """) + "".join(
                f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} "
                f"CPUs={cpus} Gres=emuv_vram:{gib}\n" for node, port in zip(nodes, ports)) +
            accounting)
        # No systemd may be there to ask for cgroups.
        (work / "cgroup.conf").write_text("IgnoreSystemd=yes\nIgnoreSystemdOnFailure=yes\n")
        (work / "gres.conf").write_text(
            f"NodeName={','.join(nodes)} Name=emuv_vram Count={gib}\n")
        (work / "plugstack.conf").write_text(f"required {OPTIONS.plugin} state={self.notes}\n")
        shutil.copy(OPTIONS.lua, work / "job_submit.lua")
        if self.has_database:
            self.database_port = dbd

    @property
    def notes(self):
        return "/run/emuv/slurm" if OPTIONS.real else f"{self.work}/run/emuv/slurm"

    @property
    def classes(self):
        return pathlib.Path("/sys" if OPTIONS.real else self.work / "sys") / "class/emuv"

    def write_scripts(self):
        work = self.work
        (work / "emuv.conf").write_text("EMUV_SLURM_VRAM=12G\nEMUV_SLURM_GPU_MODEL=4070\n"
                                        "EMUV_SLURM_CREATE=--overcommit\n")
        roots = (f"export EMUVCTL={OPTIONS.emuvctl}\n" if OPTIONS.real else
                 f"export EMUVCTL={HERE}/emuvctl EMUV_SYSFS_ROOT={work}/sys "
                 f"EMUV_DEV_ROOT={work}/dev EMUV_RUN_ROOT={work}/run\n")
        for name in ("prolog", "epilog", "sweep"):
            program(work / name, "#!/bin/bash\n" + roots +
                    f"export EMUV_SLURM_CONF={work}/emuv.conf SLURM_CONF={work}/slurm.conf\n"
                    f"[[ ! -f {work}/{name}.first ]] || . {work}/{name}.first\n"
                    f"exec {OPTIONS.scripts}/{name} >>{work}/log/{name} 2>&1\n")
        program(work / "task", TASK.replace("@REAL@", str(bool(OPTIONS.real)))
                .replace("@SYS@", f"{work}/sys"))

    def environment(self, **more):
        return {"PATH": PATH, "SLURM_CONF": f"{self.work}/slurm.conf", "HOME": "/root",
                "LC_ALL": "C", **more}

    # --- daemons

    def start(self, name, *words, **variables):
        with open(self.work / "log" / f"{name}.out", "a", encoding="utf-8") as out:
            self.daemons[name] = subprocess.Popen(  # pylint: disable=consider-using-with
                words, env=self.environment(**variables), stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True)

    def start_all(self):
        key = self.work / "key/munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self.start("munged", "munged", "--foreground", "--force", f"--socket={self.socket}",
                   f"--key-file={key}", f"--pid-file={self.work}/munged.pid",
                   f"--log-file={self.work}/log/munged", f"--seed-file={self.work}/seed")
        await_event("munged answers", self.socket.exists)
        if self.has_database:
            self.start_database()
        self.start("slurmctld", "slurmctld", "-D", "-i")
        for node in self.nodes:
            self.start_node(node)
        for node in self.nodes:
            await_event(f"{node} is idle", lambda node=node: self.node_state(node) == "idle")

    def start_node(self, node):
        self.start(node, "slurmd", "-D", "-N", node, SLURMD_NODENAME=node)

    def start_database(self):
        data, sql = self.work / "database", self.work / "sql.socket"
        data.mkdir()
        subprocess.run(["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root",
                        "--auth-root-authentication-method=normal", "--skip-test-db"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.start("mariadbd", "mariadbd", "--no-defaults", f"--datadir={data}", "--user=root",
                   f"--socket={sql}", "--skip-networking", "--innodb-buffer-pool-size=64M",
                   f"--pid-file={self.work}/mariadbd.pid")
        await_event("MariaDB answers", lambda: subprocess.run(
            ["mariadb-admin", "--no-defaults", f"--socket={sql}", "--user=root", "ping"],
            check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0)
        conf = self.work / "slurmdbd.conf"
        conf.write_text(textwrap.dedent(f"""\
            AuthType=auth/munge
            AuthInfo=socket={self.socket}
            DbdHost=localhost
            DbdAddr=127.0.0.1
            DbdPort={self.database_port}
            SlurmUser=root
            LogFile={self.work}/log/slurmdbd
            PidFile={self.work}/slurmdbd.pid
            StorageType=accounting_storage/mysql
            StorageHost=localhost
            StorageUser=root
            StorageLoc=slurm
            """))
        conf.chmod(0o600)
        self.start("slurmdbd", "slurmdbd", "-D", MYSQL_UNIX_PORT=str(sql))
        await_event("slurmdbd answers",
                    lambda: self.call("sacctmgr", "-n", "list", "cluster")[0] == 0)
        self.call("sacctmgr", "-i", "add", "cluster", "emuv")
        self.call("sacctmgr", "-i", "add", "account", "all")
        self.call("sacctmgr", "-i", "add", "user", "root", "account=all")

    def kill(self, name):
        """A daemon, and all that it has started."""
        session = self.daemons.pop(name)
        for number in self.processes_of(session.pid, name):
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass
        session.wait()

    def processes_of(self, leader, name):
        """Those of the session; the step daemons of the node of that name, and its
        tasks, which have sessions of their own."""
        found = [leader]
        ours = {f"SLURM_CONF={self.work}/slurm.conf".encode(),
                f"SLURMD_NODENAME={name}".encode()}
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                session = int((path / "stat").read_text().rpartition(")")[2].split()[3])
                if session == leader or ours <= set(
                        (path / "environ").read_bytes().split(b"\0")):
                    found.append(int(path.name))
            except OSError:
                pass
        return found

    def end_all(self):
        for name in (*self.nodes, "slurmctld", "slurmdbd", "mariadbd", "munged"):
            if name in self.daemons:
                self.kill(name)

    # --- commands

    def call(self, *words, **variables):
        done = subprocess.run(words, env=self.environment(**variables), text=True, check=False,
                              cwd=self.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def node_state(self, node):
        return self.call("sinfo", "-h", "-n", node, "-o", "%t")[1].strip()

    def instances(self):
        if not self.classes.is_dir():
            return {}
        found = {}
        for path in self.classes.glob("emuv*"):
            try:
                found[int(path.name.removeprefix("emuv"))] = (
                    int((path / "physical_bytes").read_text()),
                    int((path / "virtual_bytes").read_text()))
            except OSError:
                pass
        return {number: sizes for number, sizes in found.items() if number >= 512}


class ClusterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        cls.work = pathlib.Path(cls.folder.name)
        cls.cluster = Cluster(cls.work)
        cls.addClassCleanup(cls.folder.cleanup)
        cls.addClassCleanup(cls.cluster.end_all)
        # whatever ends this program
        atexit.register(cls.cluster.end_all)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            cls.cluster.start_all()
        except BaseException:
            cls.show_logs()
            raise

    @classmethod
    def show_logs(cls):
        for path in sorted((cls.work / "log").iterdir()):
            lines = path.read_text(errors="replace").splitlines()[-15:]
            print(f"--- {path.name}", *lines, sep="\n", file=sys.stderr)

    def setUp(self):
        self.number = 0
        self.addCleanup(self.clean)

    def clean(self):
        # pylint: disable=protected-access
        if any(problem for _, problem in self._outcome.result.failures + self._outcome.result.errors
               if _ is self):
            self.show_logs()
        self.cluster.call("scancel", "--user=root")
        await_event("no job", lambda: not self.cluster.call("squeue", "-h")[1])
        await_event("no instance", lambda: not self.cluster.instances())

    def file(self, name):
        self.number += 1
        return self.work / f"{self.id().rpartition('.')[2]}.{self.number}.{name}"

    def submit(self, vram, *options, task=(100, 200), before=""):
        """A batch job; returns its number, the file that says it runs, and the one
        that ends it."""
        runs, ends = self.file("runs"), self.file("ends")
        script = self.file("sh")
        script.write_text(f"#!/bin/bash\n{before}\nexec {self.work}/task "
                          f"{task[0]} {task[1]} {runs} {ends}\n")
        words = ["sbatch", "--parsable", "--output", str(self.file("out"))]
        if vram:
            words.append(f"--emuv-vram={vram}")
        status, said = self.cluster.call(*words, *options, str(script))
        self.assertEqual(status, 0, said)
        return said.strip(), runs, ends

    def reason(self, job):
        return self.cluster.call("squeue", "-h", "-j", job, "-o", "%T %r")[1].strip()

    def show(self, job):
        return self.cluster.call("scontrol", "show", "job", job)[1]

    def runs(self, path):
        await_event(f"{path.name} is there", path.exists)

    # --- what must hold

    def test_help_lists_the_option(self):
        for command in ("srun", "sbatch", "salloc"):
            status, said = self.cluster.call(command, "--help")
            self.assertEqual(status, 0)
            self.assertIn("--emuv-vram=SIZE", said)

    def test_a_size_that_is_none_is_refused_at_once(self):
        status, said = self.cluster.call("srun", "--emuv-vram=48", "true")
        self.assertNotEqual(status, 0)
        self.assertIn("'48' is less than 1 MiB; a size has a unit, as 48G", said)

    def test_more_than_any_node_has_is_refused_at_once(self):
        status, said = self.cluster.call("srun", "--emuv-vram=49G", "true")
        self.assertNotEqual(status, 0)
        self.assertIn("Requested node configuration is not available", said)

    def test_a_task_runs_under_the_library_in_an_instance_of_its_share(self):
        status, said = self.cluster.call(
            "srun", "--emuv-vram=23.5G", "bash", "-c",
            "echo $EMUV_INSTANCE; echo $LD_PRELOAD; stat -c '%a %u' "
            f"{'/dev' if OPTIONS.real else self.work / 'dev'}/emuv$EMUV_INSTANCE; "
            f"cat {self.cluster.classes}/emuv$EMUV_INSTANCE/{{physical,virtual}}_bytes",
            LD_PRELOAD="")
        self.assertEqual(status, 0, said)
        words = [line for line in said.splitlines() if "ERROR: ld.so" not in line]
        self.assertGreaterEqual(int(words[0]), 512)
        self.assertRegex(words[1], r"/libcuda\.so\.1")
        self.assertEqual(words[2:], ["600 0", str(6 * GIB), str(24 * GIB)])
        await_event("no instance", lambda: not self.cluster.instances())

    def test_a_job_without_the_option_is_let_alone(self):
        status, said = self.cluster.call("srun", "env")
        self.assertEqual(status, 0, said)
        self.assertNotIn("EMUV_INSTANCE", said)
        self.assertNotIn("LD_PRELOAD", said)

    def test_gres_alone_does_what_the_option_does(self):
        status, said = self.cluster.call("srun", "--gres=emuv_vram:2", "env")
        self.assertEqual(status, 0, said)
        self.assertIn("EMUV_INSTANCE=", said)

    def test_a_script_may_have_the_option(self):
        script = self.file("sh")
        out = self.file("out")
        script.write_text("#!/bin/bash\n#SBATCH --emuv-vram=3G\nsrun env\n")
        status, said = self.cluster.call("sbatch", "--wait", "--output", str(out), str(script))
        self.assertEqual(status, 0, said + out.read_text())
        self.assertIn("EMUV_INSTANCE=", out.read_text())
        self.assertIn("gres:emuv_vram:3", self.show(said.split()[-1]))

    def test_a_step_cannot_have_what_its_job_has_not(self):
        status, said = self.cluster.call(
            "salloc", "bash", "-c", "srun --emuv-vram=1G true")
        self.assertNotEqual(status, 0)
        self.assertIn("the job has no instance on this node", said)

    def test_jobs_are_packed_by_virtual_vram_and_a_third_waits(self):
        jobs = [self.submit("40G"), self.submit("40G")]
        for _, runs, _ in jobs:
            self.runs(runs)
        nodes = {self.cluster.call("squeue", "-h", "-j", job, "-o", "%N")[1].strip()
                 for job, _, _ in jobs}
        self.assertEqual(nodes, {"n1", "n2"})
        self.assertEqual(len(self.cluster.instances()), 2)
        third, third_runs, _ = self.submit("16G")
        await_event("the reason is known", lambda: self.reason(third) == "PENDING Resources")
        small, small_runs, _ = self.submit("8G", "--nice=-100")
        self.runs(small_runs)
        self.assertEqual(self.reason(third), "PENDING Resources")
        jobs[0][2].touch()
        self.runs(third_runs)
        self.assertNotEqual(small, third)

    def test_a_killed_job_s_memory_is_back(self):
        jobs = [self.submit("48G"), self.submit("48G")]
        for _, runs, _ in jobs:
            self.runs(runs)
        waits, waits_runs, _ = self.submit("48G")
        await_event("the reason is known", lambda: "Resources" in self.reason(waits))
        self.cluster.call("scancel", "--signal=KILL", "--full", jobs[0][0])
        self.runs(waits_runs)
        self.assertEqual(len(self.cluster.instances()), 2)

    def comment(self, job):
        return self.cluster.call("sacct", "-n", "-X", "-P", "-j", job, "-o", "AdminComment")[1]

    def test_figures_reach_sacct(self):
        if not self.cluster.has_database:
            self.skipTest("no slurmdbd, or no MariaDB")
        job, runs, ends = self.submit("4G", task=(300, 600))
        self.runs(runs)
        ends.touch()
        await_event("sacct has the figures", lambda: "peak_vram_mib=300 peak_spilled_mib=600" in
                    self.comment(job))

    def test_figures_of_two_nodes_both_reach_sacct(self):
        if not self.cluster.has_database:
            self.skipTest("no slurmdbd, or no MariaDB")
        job, runs, ends = self.submit("4G", "--nodes=2")
        self.runs(runs)
        await_event("both have an instance", lambda: len(self.cluster.instances()) == 2)
        ends.touch()
        await_event("sacct has the figures of both", lambda: "emuv[n1] " in self.comment(job) and
                    "emuv[n2] " in self.comment(job))

    def test_a_lost_node_comes_back_clean(self):
        job, runs, _ = self.submit("40G", "--nodelist=n2", "--no-requeue")
        self.runs(runs)
        self.cluster.kill("n2")
        # slurmctld asks every third of SlurmdTimeout; an administrator may be faster
        self.cluster.call("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=lost")
        await_event("the job has failed", lambda: "JobState=NODE_FAIL" in self.show(job))
        self.assertEqual(len(self.cluster.instances()), 1)
        self.cluster.start_node("n2")
        await_event("its instance is gone", lambda: not self.cluster.instances())
        self.cluster.call("scontrol", "update", "NodeName=n2", "State=RESUME")
        await_event("it is idle", lambda: self.cluster.node_state("n2") == "idle")
        status, said = self.cluster.call("srun", "--nodelist=n2", "--emuv-vram=48G", "env")
        self.assertEqual(status, 0, said)
        self.assertIn("EMUV_INSTANCE=", said)

    def test_a_job_that_is_queued_again_has_an_instance_on_its_new_node(self):
        job, runs, _ = self.submit("40G", "--requeue")
        self.runs(runs)
        runs.unlink()
        self.cluster.call("scontrol", "requeue", job)
        self.cluster.call("scontrol", "update", f"JobId={job}", "StartTime=now")
        self.runs(runs)
        self.assertEqual(len(self.cluster.instances()), 1)

    def test_an_epilog_that_was_killed_is_made_good(self):
        job, runs, ends = self.submit("40G", "--nodelist=n1")
        self.runs(runs)
        first = self.work / "epilog.first"
        dead = self.file("dead")
        first.write_text(f"touch {dead}; kill -KILL $$\n")
        ends.touch()
        self.runs(dead)
        await_event("the job has ended", lambda: not self.reason(job))
        first.unlink()
        self.assertEqual(len(self.cluster.instances()), 1)
        # Slurm drains a node whose epilog fails; an administrator brings it back
        await_event("it is drained", lambda: self.cluster.node_state("n1").startswith("drain"))
        self.cluster.call("scontrol", "update", "NodeName=n1", "State=RESUME")
        status, said = self.cluster.call("srun", "--nodelist=n1", "--emuv-vram=48G", "env")
        self.assertEqual(status, 0, said)
        if self.cluster.has_database:
            await_event("sacct has the figures", lambda: "emuv[n1] " in self.comment(job))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plugin", required=True, help="emuv.so, as it was built")
    parser.add_argument("--scripts", default=str(HERE.parents[1] / "packaging/slurm"),
                        help="the folder of prolog and epilog")
    parser.add_argument("--lua", default=str(HERE.parents[1] / "packaging/slurm/job_submit.lua"))
    parser.add_argument("--real", action="store_true", help="with this machine's driver")
    parser.add_argument("--emuvctl", default="emuvctl", help="with --real: the tool")
    parser.add_argument("--no-database", action="store_true", help="leave slurmdbd out")
    options, rest = parser.parse_known_args()
    for name in ("munged", "slurmctld", "slurmd", "srun"):
        if not shutil.which(name, path=PATH):
            print(f"{name} is not installed")
            return 77
    if os.geteuid() != 0:
        print("only root can run Slurm's daemons")
        return 77
    for key in ("plugin", "scripts", "lua"):
        setattr(options, key, os.path.abspath(getattr(options, key)))
    globals()["OPTIONS"] = options
    program_ = unittest.main(argv=sys.argv[:1] + rest, exit=False)
    return 0 if program_.result.wasSuccessful() else 1


OPTIONS = argparse.Namespace()
if __name__ == "__main__":
    sys.exit(main())
