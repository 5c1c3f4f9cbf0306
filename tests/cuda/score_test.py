#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""`emuvctl run --score` in front of the simulated driver: an estimate is printed
beside what came, however the program ends. To the shell that starts it the
command is the program."""

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

MIB = 1 << 20
LIMIT_S = 300 # of a wait for an event, on a busy machine

PROGRAM = r"""
import ctypes, itertools, os, signal, subprocess, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
MiB = 1 << 20
def alloc(mib):
    pointer = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mib * MiB)) == 0
    return pointer
def start():
    assert cuda.cuInit(0) == 0
    context = ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
def again(*more):
    return [sys.executable, "-c", open("/proc/self/cmdline").read().split("\0")[2], *more]
start()
"""

# Ends with the number of the first signal that comes.
WAITS = r"""
alloc(4)
for each in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGCONT}:
    signal.signal(each, lambda number, _: sys.exit(number))
print("ready", flush=True)
while True: # one that comes just before a pause() would be seen behind it only
    time.sleep(0.05)
"""

# All signals that somebody may send to a program, for it to make something of.
SENT = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
        signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU, signal.SIGVTALRM, signal.SIGPROF,
        signal.SIGPWR, signal.SIGIO, signal.SIGURG, signal.SIGWINCH, signal.SIGTSTP,
        signal.SIGTTIN, signal.SIGTTOU, signal.SIGRTMIN, signal.SIGRTMIN + 7, signal.SIGRTMAX]


class ScoreTest(unittest.TestCase):
    options = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "state/emuv/estimate.json"
        self.call("estimate", "gpt2", "--mode", "train", "--vram", "24M", "--gpu", "4070",
                  "--save")

    def environment(self):
        environment = {name: text for name, text in os.environ.items()
                       if not name.startswith(("EMUV_", "LD_PRELOAD"))}
        environment.update(XDG_STATE_HOME=str(self.folder / "state"), EMUV_SIM_VRAM="64M")
        return environment

    def call(self, *words):
        return subprocess.run((self.options.emuvctl, *map(str, words)), check=True, text=True,
                              capture_output=True, env=self.environment(), timeout=LIMIT_S)

    def scored(self, *more, score="--score", command=()):
        return [str(each) for each in (
            self.options.emuvctl, "run", "--library",
            pathlib.Path(self.options.cuda_library).parent, "--libcuda", self.options.driver,
            "--libnvml", self.options.sim_nvml, "--physical", "24M", "--virtual", "96M",
            "--charge", "allocations", score, *more, "--", *command)]

    def words(self, text, *more, **how):
        return self.scored(*more, command=(sys.executable, "-c", PROGRAM + text), **how)

    def run_scored(self, text, *more, score="--score", **how):
        return subprocess.run(self.words(text, *more, score=score), check=False, text=True,
                              capture_output=True, timeout=LIMIT_S, env=self.environment(),
                              **how)

    def start(self, text, *more, **how):
        """A program that is ready."""
        process = subprocess.Popen(self.words(text, *more), text=True, env=self.environment(),
                                   **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
                                      **how})
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def came(self, file=None):
        return json.loads((file or self.file).read_text()).get("came")

    @staticmethod
    def folders():
        return sorted(str(each) for each in pathlib.Path("/dev/shm").glob("emuv-score-*")
                      if each.stat().st_uid == os.getuid())

    def await_end_of_folders(self, since):
        """Other programs on this machine may have folders as well, for a while."""
        left = set(self.folders()) - set(since)
        self.wait_until(lambda: not left & set(self.folders()))

    def wait_until(self, holds):
        end = time.monotonic() + LIMIT_S
        while not holds():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def test_the_estimate_stands_beside_what_came(self):
        done = self.run_scored("for _ in range(3): alloc(20)\nprint('done')")
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"), done.stderr)
        came = self.came()
        self.assertEqual((came["ended"], came["processes"], came["step_ms"]), ("0", 1, None))
        self.assertGreater(came["peak_vram_bytes"], 20 * MIB)
        self.assertLessEqual(came["peak_vram_bytes"], 24 * MIB)
        self.assertGreaterEqual(came["peak_vram_bytes"] + came["peak_ram_bytes"], 60 * MIB)
        lines = done.stderr.splitlines()
        head = lines.index("emuvctl: run: the estimate, and what came")
        self.assertIn("GPT-2", lines[head + 1])
        self.assertEqual(lines[head + 2].split(), ["LOW", "LIKELY", "HIGH", "CAME", "OF",
                                                   "LIKELY"])
        self.assertTrue(lines[head + 3].lstrip().startswith("memory in all"))
        self.assertIn("below, ", lines[head + 3])
        self.assertIn("in RAM of that", lines[head + 4])
        self.assertIn("a step", lines[head + 5])
        self.assertIn("not known", lines[head + 5])
        self.assertIn("known where memory moves", lines[head + 6])
        self.assertEqual(len(lines), head + 7)
        self.assertLess(max(map(len, lines[head:])), 80)

    def test_memory_that_was_given_back_counts(self):
        self.run_scored("a = alloc(20)\nassert cuda.cuMemFree_v2(a) == 0\nalloc(2)")
        self.assertGreaterEqual(self.came()["peak_vram_bytes"], 20 * MIB)

    def test_json_goes_to_standard_output(self):
        done = self.run_scored("alloc(20)", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        made = json.loads(done.stdout)
        self.assertEqual(made["schema"], 1)
        self.assertEqual(made["estimate"]["came"], self.came())
        self.assertGreater(made["estimate"]["peak"]["likely_bytes"], 0)
        self.assertNotIn("LIKELY", done.stderr)

    def test_report_shows_what_came(self):
        self.run_scored("alloc(20)")
        tape = pathlib.Path(__file__).parent.parent / "cli/tapes/step.tape"
        made = json.loads(self.call("report", "--json", "--score", tape).stdout)
        self.assertEqual(made["estimate"]["came"], self.came())

    def test_the_end_is_the_programs(self):
        self.assertEqual(self.run_scored("alloc(4)\nsys.exit(7)").returncode, 7)
        self.assertEqual(self.came()["ended"], "7")
        for number in (signal.SIGKILL, signal.SIGABRT, signal.SIGTERM):
            done = self.run_scored(f"alloc(4)\nos.kill(os.getpid(), {int(number)})")
            self.assertEqual(done.returncode, -number, done.stderr)
            self.assertEqual(self.came()["ended"], f"signal {int(number)}")
            self.assertIn("memory in all", done.stderr)

    def test_the_end_is_the_programs_where_children_are_ignored(self):
        done = self.run_scored(
            "alloc(4)\nsys.exit(5 if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN else 6)",
            preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(done.returncode, 5, done.stderr)

    def test_signals_reach_the_program(self):
        for number in SENT:
            process = self.start(WAITS)
            process.send_signal(number)
            _, err = process.communicate(timeout=LIMIT_S)
            self.assertEqual(process.returncode, number, err)
            self.assertEqual(self.came()["ended"], str(int(number)))

    def test_what_a_signal_carries_reaches_the_program(self):
        # All its threads keep the signal waiting, as a caller may have them do.
        process = self.start("""
alloc(4)
libc = ctypes.CDLL(None)
print("ready", flush=True)
mask, news = (ctypes.c_uint64 * 16)(1 << (signal.SIGRTMIN - 1)), (ctypes.c_int * 32)()
for _ in range(2):
    assert libc.sigwaitinfo(mask, news) == signal.SIGRTMIN
    print(news[6], flush=True)
""", preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN]))
        for value in (1234, 5678):
            self.assertEqual(ctypes.CDLL(None).sigqueue(
                process.pid, signal.SIGRTMIN, ctypes.c_void_p(value)), 0)
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(out, "1234\n5678\n", err)

    def test_signals_are_to_the_program_as_its_caller_has_them(self):
        ignored = {signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ,
                   signal.SIGHUP, signal.SIGALRM}

        def have(numbers):
            for each in ignored:
                signal.signal(each, signal.SIG_IGN if each in numbers else signal.SIG_DFL)

        def seen(words, numbers):
            done = subprocess.run(
                words, check=False, text=True, capture_output=True, timeout=LIMIT_S,
                env=self.environment(), restore_signals=False,
                preexec_fn=lambda: have(numbers))
            mask = int(done.stdout.split()[1], 16)
            return {each for each in ignored if mask >> (each - 1) & 1}

        words = self.scored(command=("grep", "SigIgn", "/proc/self/status"))
        for numbers in (ignored, set()):
            self.assertEqual(seen(words, numbers), numbers)
            self.assertEqual(seen([each for each in words if each != "--score"], numbers),
                             numbers)

    def await_stop(self, process):
        """@return the signal that has stopped it."""
        status = []

        def has_changed():
            pid, now = os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG)
            status[:] = [now]
            return pid != 0
        self.wait_until(has_changed)
        self.assertTrue(os.WIFSTOPPED(status[0]), status)
        return os.WSTOPSIG(status[0])

    def test_it_stops_as_the_program_does_and_has_it_go_on(self):
        process = self.start("""
alloc(4)
print("ready", flush=True)
for _ in range(3):
    os.kill(os.getpid(), signal.SIGSTOP)
sys.exit(5)
""")
        for _ in range(3):
            self.assertEqual(self.await_stop(process), signal.SIGSTOP)
            process.send_signal(signal.SIGCONT)
        process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 5)

    # A shell with job control. It starts a job, prints how that stops or ends, and has
    # it go on.
    SHELL = r"""
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
def give(group):
    os.tcsetpgrp(0, group)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    give(os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    _, status = os.waitpid(job, os.WUNTRACED)
    give(os.getpid())
    if not os.WIFSTOPPED(status):
        print(f"[ended {os.waitstatus_to_exitcode(status)}]", flush=True)
        break
    give(job)
    os.killpg(job, signal.SIGCONT)
    print(f"[stopped {os.WSTOPSIG(status)}]", flush=True)
"""

    def in_shell(self, text, **variables):
        """The other end of the terminal of a program in a shell."""
        words = [sys.executable, "-c", self.SHELL, "/usr/bin/env",
                 *(f"{name}={value}" for name, value in variables.items()), *self.words(text)]
        child, master = pty.fork()
        if child == 0:
            try:
                os.execve(words[0], words, self.environment())
            finally:
                os._exit(99)

        def end():
            os.close(master)
            os.waitpid(child, 0)
        self.addCleanup(end)
        return master

    def read_until(self, master, word):
        text = b""
        while word not in text:
            self.assertTrue(select.select([master], [], [], LIMIT_S)[0], text)
            try:
                text += os.read(master, 65536)
            except OSError:
                self.fail(text)
        return text

    def test_a_key_that_stops_the_program_stops_both_and_they_go_on(self):
        master = self.in_shell("""
alloc(4)
print("ready", flush=True)
input()
print("on", flush=True)
sys.exit(6)
""")
        self.read_until(master, b"ready")
        for _ in range(2):
            os.write(master, b"\x1a")
            self.read_until(master, b"[stopped %d]" % signal.SIGTSTP)
        os.write(master, b"\n")
        self.assertIn(b"on\r\n", self.read_until(master, b"[ended 6]"))

    def test_a_program_that_ignores_the_key_is_not_stopped(self):
        master = self.in_shell("""
alloc(4)
signal.signal(signal.SIGTSTP, lambda *_: print("kept", flush=True))
print("ready", flush=True)
input()
sys.exit(6)
""")
        self.read_until(master, b"ready")
        os.write(master, b"\x1a")
        self.read_until(master, b"kept")
        os.write(master, b"\n")
        self.assertNotIn(b"[stopped", self.read_until(master, b"[ended 6]"))

    def test_a_key_that_ends_the_program_does_so_before_it_is_there(self):
        for call in ("mkdtemp", "fork"):
            with self.subTest(before=call):
                stalled = self.folder / call
                master = self.in_shell("sys.exit(6)", LD_PRELOAD=self.options.stalled_calls,
                                       STALL_CALL=call, STALL_FILE=stalled)
                self.wait_until(stalled.exists)
                os.write(master, b"\x03")
                text = self.read_until(master, b"]")
                self.assertIn(b"[ended -%d]" % signal.SIGINT, text)

    def test_a_signal_ends_it_as_the_program_once_that_has_ended(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"x" * 4096)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"x")
        os.set_blocking(writer, True)
        process = self.start("alloc(4)\nprint('ready', flush=True)\ninput()\nsys.exit(3)",
                             stderr=writer, stdin=subprocess.PIPE)
        os.close(writer)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        self.assertNotEqual(children.read_text(), "")
        process.stdin.write("\n")
        process.stdin.close()
        process.stdin = None
        self.wait_until(lambda: children.read_text() == "")
        self.assertIsNone(process.poll())
        process.terminate()
        self.assertEqual(process.wait(LIMIT_S), 3)

    def test_the_program_ends_with_a_command_that_is_killed(self):
        before = self.folders()
        process = self.start("alloc(4)\nprint('ready', flush=True)\nsignal.pause()")
        self.assertNotEqual(set(self.folders()) - set(before), set())
        process.kill()
        # The program has its output open as long as it lives.
        process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, -signal.SIGKILL)
        self.await_end_of_folders(before)

    def test_meanwhile_why_tells_of_the_program(self):
        process = self.start("alloc(20)\nprint('ready', flush=True)\nsignal.pause()")
        [one] = json.loads(self.call("why", "--json", process.pid).stdout)["processes"]
        self.assertNotEqual(one["pid"], process.pid)
        self.assertEqual(one["devices"][0]["vram_bytes"], 20 * MIB)

    def test_of_several_processes_the_largest_counts(self):
        done = self.run_scored("""
alloc(2)
if len(sys.argv) == 1:
    subprocess.run(again("child"), check=True)
else:
    alloc(20)
""")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.came()["processes"], 2)
        self.assertEqual(self.came()["peak_vram_bytes"] + self.came()["peak_ram_bytes"],
                         22 * MIB)
        self.assertIn("in the largest of 2 processes", done.stderr)

    def test_a_process_that_becomes_another_program_counts_as_both(self):
        done = self.run_scored("""
if len(sys.argv) == 1:
    alloc(12)
    os.execv(sys.executable, again("other"))
alloc(2)
""")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.came()["processes"], 2)
        self.assertEqual(self.came()["peak_vram_bytes"], 12 * MIB)

    def test_a_program_without_memory_of_a_card_is_said_to_be_one(self):
        before = self.folders()
        for command, status in ((("true",), 0), (("/nonexistent",), 127)):
            done = subprocess.run(self.scored(command=command), check=False, text=True,
                                  capture_output=True, timeout=LIMIT_S,
                                  env=self.environment())
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn("no process of the program held memory", done.stderr)
        self.assertIsNone(self.came())
        self.await_end_of_folders(before)

    def test_files_that_are_no_figures_do_no_harm(self):
        before = self.folders()
        done = self.run_scored("""
alloc(4)
stem = os.environ["EMUV_SCORE"]
os.mkfifo(stem + ".fifo")
os.symlink("/dev/zero", stem + ".link")
os.mkdir(stem + ".folder")
open(stem + ".text", "w").write("x" * 100000)
open(stem + ".short", "w").write("emuV")
sys.exit(3)
""")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(done.stderr.count("a process is left out"), 2, done.stderr)
        self.assertEqual(self.came()["peak_vram_bytes"], 4 * MIB)
        self.await_end_of_folders(before)

    def test_another_file_may_be_named(self):
        file = self.folder / "mine.json"
        file.write_text(self.call("estimate", "gpt2", "--json").stdout)
        done = self.run_scored("alloc(4)", score=f"--score={file}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.came(file)["peak_vram_bytes"], 4 * MIB)
        self.assertIsNone(self.came())

    def test_an_estimate_that_cannot_be_added_to_is_shown_all_the_same(self):
        text = self.call("estimate", "gpt2", "--json").stdout
        done = self.run_scored("alloc(4)\nsys.exit(4)", score="--score=/dev/stdin",
                               input=text)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("memory in all", done.stderr)
        self.assertIn("cannot write /dev/stdin", done.stderr)

    def test_of_two_runs_on_one_estimate_both_add_what_came(self):
        first = self.start("alloc(20)\nprint('ready', flush=True)\ninput()",
                           stdin=subprocess.PIPE)
        done = self.run_scored("alloc(4)")
        self.assertEqual(self.came()["peak_vram_bytes"], 4 * MIB, done.stderr)
        _, err = first.communicate("\n", timeout=LIMIT_S)
        self.assertEqual(self.came()["peak_vram_bytes"], 20 * MIB, err)

    def test_an_estimate_that_another_one_writes_is_waited_for(self):
        process = self.start("alloc(20)\nprint('ready', flush=True)\ninput()",
                             stdin=subprocess.PIPE)
        with open(self.file, encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            process.stdin.write("\n")
            process.stdin.close()
            process.stdin = None
            while "known where memory moves" not in process.stderr.readline():
                self.assertIsNone(process.poll())
            other = self.file.with_suffix(".new")
            other.write_text("another")
            other.rename(self.file)
        _, err = process.communicate(timeout=LIMIT_S)
        self.assertIn("has changed meanwhile", err)
        self.assertEqual(self.file.read_text(), "another")

    def test_what_came_is_kept_where_nobody_reads_of_it(self):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = subprocess.run(
                self.words("alloc(4)\nsys.exit(3)", "--json"), check=False, stdout=writer,
                stderr=writer, timeout=LIMIT_S, env=self.environment())
        finally:
            os.close(writer)
        self.assertEqual(done.returncode, 3)
        self.assertEqual(self.came()["peak_vram_bytes"], 4 * MIB)

    def test_an_estimate_that_was_kept_meanwhile_stays_as_it_is(self):
        done = self.run_scored(f"""
alloc(4)
open({str(self.file)!r}, "w").write("another")
""")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("memory in all", done.stderr)
        self.assertIn("has changed meanwhile", done.stderr)
        self.assertEqual(self.file.read_text(), "another")

    def test_without_an_estimate_nothing_is_started(self):
        before = self.folders()
        self.file.unlink()
        done = self.run_scored("print('started')")
        self.assertEqual((done.returncode, done.stdout), (125, ""))
        self.assertIn("'emuvctl estimate MODEL --save' makes one", done.stderr)
        self.file.write_text("[]")
        done = self.run_scored("print('started')")
        self.assertEqual((done.returncode, done.stdout), (125, ""))
        self.await_end_of_folders(before)

    def test_a_program_with_a_rhythm_has_the_time_of_a_step(self):
        enough = self.folder / "enough"
        process = self.start(f"""
blocks = [alloc(4) for _ in range(8)]
print("ready", flush=True)
for value in itertools.count():
    for block in blocks:
        assert cuda.cuMemsetD8Async(block, ctypes.c_ubyte(value % 256),
                                    ctypes.c_size_t(4 * MiB), None) == 0
    assert cuda.cuCtxSynchronize() == 0
    time.sleep(0.005)
    if os.path.exists({str(enough)!r}):
        break
""", "--move=always")

        def has_a_rhythm():
            [one] = json.loads(self.call("why", "--json", process.pid).stdout)["processes"]
            step = one["devices"][0]["step"]
            return step and step["round_launches"]
        self.wait_until(has_a_rhythm)
        enough.touch()
        _, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 0, err)
        # A step has a pause of 5 ms.
        self.assertIsNotNone(self.came()["step_ms"], err)
        self.assertGreaterEqual(self.came()["step_ms"], 4)
        self.assertRegex(err, r"  a step  .* m?s  ")
        self.assertNotIn("known where memory moves", err)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("emuvctl", "driver", "sim-nvml", "stalled-calls"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--library", dest="cuda_library", required=True)
    ScoreTest.options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
