#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""How Slurm's scheduling grows with the jobs that have an instance, on one node.

Slurm's own daemons run as in tests/slurm/cluster_test.py, and the driver is the
stand-in beside that: figures of the real one are those of run-instances. For each
count, as many jobs run. Then five jobs more come, one after the other. Run it as
root. Exit status 77: something is missing."""

import argparse
import os
import pathlib
import re
import shutil
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE), str(HERE.parent / "slurm")]
import cluster_test  # noqa: E402
import results  # noqa: E402

MOST = 1024  # EMUV_MAX_INSTANCES
RUNS = 5
# A node starts its jobs one after the other, and waits five minutes for its lock.
AT_ONCE = 100
COLUMNS = ("jobs=jobs that run=", "sbatch", "start=sbatch to the task's first line", "prolog", "epilog",
           "squeue", "sinfo", "cycle=scheduler's cycle, mean=µs", "fill=to start the last hundred=s")
WAITING = ("jobs=jobs that wait=", "sbatch", "squeue", "sinfo", "cycle=scheduler's cycle, mean=µs",
           "backfill=backfill's cycle, mean=µs")


class Node(cluster_test.Cluster):
    """One node that has room for as many jobs as there can be instances."""

    def __init__(self, work):
        super().__init__(work, nodes=("n1",), cpus=MOST, gib=MOST)
        conf = work / "emuv.conf"
        conf.write_text(conf.read_text() + "EMUV_SLURM_FIRST_ID=0\n"
                        f"EMUV_SLURM_LAST_ID={MOST - 1}\n")
        conf = work / "slurm.conf"
        conf.write_text(conf.read_text().replace("SlurmdTimeout=15", "SlurmdTimeout=900"))

    def write_scripts(self):
        super().write_scripts()
        for name in ("prolog", "epilog"):
            (self.work / name).rename(self.work / f"{name}.timed")
            cluster_test.program(self.work / name, "#!/bin/bash\nbegun=${EPOCHREALTIME/./}\n"
                                 f"{self.work}/{name}.timed\nstatus=$?\n"
                                 "echo $SLURM_JOB_ID $((${EPOCHREALTIME/./} - begun)) "
                                 f">>{self.work}/log/{name}.times\nexit $status\n")

    def took(self, name, jobs):
        """The median of its milliseconds for these jobs, once they are all there."""
        def known():
            path = self.work / f"log/{name}.times"
            found = dict(line.split() for line in path.read_text().splitlines())
            return [int(found[job]) / 1000 for job in jobs] if set(jobs) <= set(found) else None
        return statistics.median(cluster_test.await_event(f"{name} has ended", known))

    def instances_there(self):
        return sum(name.startswith("emuv") for name in os.listdir(self.classes)) \
            if self.classes.is_dir() else 0

    def well(self, *words):
        status, said = self.call(*words)
        if status:
            raise RuntimeError(f"{' '.join(words)}: {said}")
        return said

    def timed(self, *words):
        """Milliseconds of a command, the median of some runs."""
        return statistics.median(self.once(*words)[0] for _ in range(RUNS))

    def once(self, *words):
        begun = time.monotonic()
        said = self.well(*words)
        return (time.monotonic() - begun) * 1000, said

    def submit(self, command, *options):
        return self.once("sbatch", "--parsable", "--output=/dev/null", "--emuv-vram=1G",
                         *options, "--wrap", command)

    def fill(self, count):
        """So many jobs run; returns the seconds that the last ones took."""
        took = None
        while (there := self.instances_there()) < count:
            wanted = min(count, there + AT_ONCE)
            begun = time.monotonic()
            self.submit("exec sleep 1000000", f"--array=1-{wanted - there}")
            cluster_test.await_event(f"{wanted} jobs run", lambda wanted=wanted: self.running() >= wanted)
            took = time.monotonic() - begun if wanted - there == AT_ONCE else None
        return took

    def running(self):
        if self.node_state("n1").startswith("drain"):
            raise RuntimeError(self.well("scontrol", "show", "node", "n1"))
        # A job runs for squeue before its prolog has ended.
        notes = pathlib.Path(self.notes) / "n1"
        return len(list(notes.glob("*.environment"))) if notes.is_dir() else 0

    def cycle(self, of="Main schedule"):
        """The mean of the scheduler's cycles since the last `sdiag --reset`."""
        said = re.split(r"\n(?=\S)", self.well("sdiag").partition(of)[2])[0]
        found = re.search(r"Mean cycle: +(\d+)", said)
        return int(found[1]) if found else None

    def one_more(self, fill):
        """A row for the jobs that run now."""
        count = self.running()
        self.well("sdiag", "--reset")
        submitted, started, jobs = [], [], []
        for number in range(RUNS):
            mark = self.work / f"mark.{count}.{number}"
            begun = time.monotonic()
            took, said = self.submit(f"touch {mark}")
            while not mark.exists():
                if time.monotonic() - begun > cluster_test.LIMIT:
                    raise RuntimeError(f"job {said} does not run")
                time.sleep(0.005)
            started.append((time.monotonic() - begun) * 1000)
            submitted.append(took)
            jobs.append(said.strip())
            cluster_test.await_event("it is gone", lambda: self.instances_there() == count)
        row = [count, statistics.median(submitted), statistics.median(started),
               self.took("prolog", jobs), self.took("epilog", jobs),
               self.timed("squeue", "--noheader"), self.timed("sinfo", "--noheader"), self.cycle(), fill]
        return [one if one is None else round(one, 1) for one in row]

    def waiting(self, count):
        """A row for as many jobs that find no room."""
        there = len(self.well("squeue", "-h", "-r", "-t", "PENDING").splitlines())
        while there < count:
            # Tasks of an array wait as one.
            self.well("bash", "-c", f"for _ in {{1..{min(50, count - there)}}}; do sbatch --output=/dev/null "
                      "--emuv-vram=1024G --wrap true >/dev/null || exit 1; done")
            there += min(50, count - there)
        self.well("sdiag", "--reset")
        submitted = statistics.median(
            self.submit("true", "--begin=now+1hour")[0] for _ in range(RUNS))
        cluster_test.await_event("both schedulers have run", lambda: self.cycle() and
                                 self.cycle("Backfilling stats"))
        return [count, round(submitted, 1), round(self.timed("squeue", "--noheader"), 1),
                round(self.timed("sinfo", "--noheader"), 1), self.cycle(), self.cycle("Backfilling stats")]


def show(row):
    print(*("-" if one is None else one for one in row), flush=True)


def measure(node, options):
    rows, waiting = [], []
    print(*(one.split("=")[0] for one in COLUMNS))
    for count in options.counts:
        rows.append(node.one_more(node.fill(count)))
        show(rows[-1])
    print(*(one.split("=")[0] for one in WAITING))
    for count in options.waiting:
        waiting.append(node.waiting(count))
        show(waiting[-1])
    return rows, waiting


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plugin", required=True, help="emuv.so, as it was built")
    parser.add_argument("--counts", type=lambda text: [int(one) for one in text.split(",")],
                        default=[1, 10, 100, 300, 1000], help="how many jobs run (1,10,100,300,1000)")
    parser.add_argument("--waiting", type=lambda text: [int(one) for one in text.split(",")],
                        default=[10, 100, 1000], help="how many wait beside these (10,100,1000)")
    parser.add_argument("--json", help="leave the figures there as well (docs/results/README.md)")
    options = parser.parse_args()
    if os.geteuid() or not all(shutil.which(name, path=cluster_test.PATH)
                               for name in ("munged", "slurmctld", "slurmd", "sdiag")):
        print("this wants root, and munge, slurmctld and slurmd")
        return 77
    packaging = HERE.parents[1] / "packaging/slurm"
    cluster_test.OPTIONS = argparse.Namespace(
        plugin=os.path.abspath(options.plugin), scripts=str(packaging), real=False,
        lua=str(packaging / "job_submit.lua"), no_database=True)
    with tempfile.TemporaryDirectory() as folder:
        node = Node(pathlib.Path(folder))
        try:
            node.start_all()
            rows, waiting = measure(node, options)
        except BaseException:
            for path in sorted((node.work / "log").iterdir()):
                print(f"--- {path.name}", *path.read_text(errors="replace").splitlines()[-10:],
                      sep="\n", file=sys.stderr)
            raise
        finally:
            node.end_all()
    if options.json:
        document = results.start("slurm_bench.py", "One job more on a node, by the jobs that it has",
                                 "tests/bench/slurm_bench.py", card=False)
        document["note"] = (f"Slurm's daemons and all jobs on one machine of {os.cpu_count()} processors; "
                            "a stand-in takes the driver's place. Medians of five jobs.")
        document["tables"] = [
            results.table("ms", [results.column(one) for one in COLUMNS], rows),
            results.table("ms", [results.column(one) for one in WAITING], waiting,
                          title="Beside the most of these, jobs that wait for room")]
        results.write(options.json, document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
