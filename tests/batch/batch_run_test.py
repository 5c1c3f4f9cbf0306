#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""`emuvctl batch` runs each item of its list to one end, whatever is killed."""

import argparse
import collections
import json
import os
import pathlib
import pty
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
import unittest

MACHINE = pathlib.Path(__file__).resolve().parents[1] / "cli/machine"
LIMIT = 120  # seconds for any event

# Notes the item's end, in one write. $1: item, $2: the file
NOTE = 'echo "$1 $EMUV_INSTANCE" >> "$2"'


class BatchTest(unittest.TestCase):
    emuvctl = None
    build = None
    cuda = False

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "libcuda.so.1").touch()  # the dynamic linker skips it
        self.ends = self.folder / "ends"
        self.ends.touch()
        self.environment = {name: text for name, text in os.environ.items()
                            if not name.startswith(("EMUV_", "LD_PRELOAD"))}
        self.environment.update(
            LC_ALL="C", EMUV_SYSFS_ROOT=str(MACHINE / "sys"),
            EMUV_DEV_ROOT=str(self.folder), EMUV_RUN_ROOT=str(self.folder))

    def words(self, *words):
        """A batch on the recorded machine's instances, which have no nodes."""
        return [self.emuvctl, "batch", "--library", self.folder, "--disable",
                *words]

    def batch(self, *words, items, **more):
        return subprocess.run(
            self.words(*words), input="".join(f"{each}\n" for each in items),
            text=True, env=self.environment, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=10 * LIMIT,
            **more)

    def shell(self, script, *words):
        return ["--", "sh", "-c", script, "sh", "{}", *words]

    def ended(self):
        """How often each item came to its end."""
        return collections.Counter(
            line.split()[0] for line in self.ends.read_text().splitlines())

    def await_(self, event, what):
        end = time.monotonic() + LIMIT
        while not event():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.005)

    def test_items_are_shared_out_among_instances(self):
        done = self.batch("--jobs", "3", "--json",
                          *self.shell(NOTE, self.ends), items=range(30))
        self.assertEqual(done.returncode, 0, done.stderr)
        summary = json.loads(done.stdout)
        self.assertEqual(
            (summary["items"], summary["done"], summary["failed"],
             summary["left"], summary["interrupted"]),
            (30, 30, [], 0, False))
        self.assertEqual([each["instance"] for each in summary["workers"]],
                         ["emuv0", "emuv1", "emuv10"])
        self.assertEqual(sum(each["done"] for each in summary["workers"]), 30)
        self.assertEqual(set(self.ended().values()), {1})
        instances = {line.split()[1]
                     for line in self.ends.read_text().splitlines()}
        self.assertLessEqual(instances, {"0", "1", "10"})

    def test_a_killed_worker_loses_nothing_of_a_thousand_items(self):
        # Item 500 waits until its worker is killed, the first time.
        script = (f'if [ "$1" = 500 ] && [ ! -e {self.folder}/worker ]; then '
                  f'echo $PPID > {self.folder}/draft; '
                  f'mv {self.folder}/draft {self.folder}/worker; sleep 600; fi; '
                  + NOTE.replace("$2", str(self.ends)))
        with subprocess.Popen(
                self.words("--jobs", "5", "--instances", "0,1,10", "--json",
                           "--journal", self.folder / "journal",
                           *self.shell(script)),
                env=self.environment, text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE) as batch:
            batch.stdin.write("".join(f"{i}\n" for i in range(1000)))
            batch.stdin.close()
            batch.stdin = None
            worker = self.folder / "worker"
            self.await_(worker.exists, "item 500 was not begun")
            os.kill(int(worker.read_text()), signal.SIGKILL)
            out, err = batch.communicate(timeout=10 * LIMIT)
        self.assertEqual(batch.returncode, 0, err[-2000:])
        summary = json.loads(out)
        self.assertEqual((summary["done"], summary["run_again"]), (1000, 1))
        self.assertIn("emuvctl: batch: 500: killed by signal 9; again\n", err)
        self.assertEqual(self.ended(),
                         collections.Counter(str(i) for i in range(1000)))

    def test_a_killed_batch_goes_on_by_its_journal(self):
        journal = self.folder / "journal"
        # Two items are at work as it is killed; they end later.
        script = (f'case $1 in 20|21) touch {self.folder}/at-$1; '
                  f'while [ ! -e {self.folder}/go ]; do sleep 0.01; done;; esac; '
                  + NOTE.replace("$2", str(self.ends)))
        words = ("--jobs", "2", "--journal", journal, *self.shell(script))
        with subprocess.Popen(
                self.words(*words), env=self.environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL) as batch:
            batch.stdin.write("".join(f"{i}\n" for i in range(40)))
            batch.stdin.close()
            batch.stdin = None
            self.await_(lambda: all((self.folder / f"at-{i}").exists()
                                    for i in (20, 21)), "20 and 21 at work")
            batch.kill()
            batch.wait(LIMIT)
        self.assertEqual(len(self.ended()), 20)
        with subprocess.Popen(
                self.words("--json", *words), env=self.environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE) as batch:
            batch.stdin.write("".join(f"{i}\n" for i in range(40)))
            batch.stdin.close()
            batch.stdin = None
            # Its workers are still at the items that it had begun.
            first = batch.stderr.readline()
            self.assertIn("are at work on it; waiting for their end", first)
            (self.folder / "go").touch()
            out, err = batch.communicate(timeout=10 * LIMIT)
        self.assertEqual(batch.returncode, 0, err)
        summary = json.loads(out)
        self.assertEqual((summary["done_before"], summary["done"]), (22, 18))
        self.assertEqual(self.ended(),
                         collections.Counter(str(i) for i in range(40)))
        again = self.batch(*words, items=range(40))
        self.assertIn("40 items: 0 done, 40 done before", again.stderr)

    def test_an_item_without_room_goes_where_there_is_more(self):
        # emuv10 has 764 MiB, emuv1 7 GiB, emuv0 14 GiB.
        script = ('[ $EMUV_INSTANCE = 0 ] || [ "$1" != large ] || { '
                  'echo "emuV: refused 8 GiB: in use are" >&2; exit 1; }; '
                  + NOTE.replace("$2", str(self.ends)))
        done = self.batch("--instances", "10,0,1", "--json",
                          *self.shell(script),
                          items=["large", *range(20)])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("large 0\n", self.ends.read_text())
        self.assertIn("emuvctl: batch: large: out of memory on emuv10, with "
                      "764 MiB; again with more\n", done.stderr)
        self.assertEqual(set(self.ended().values()), {1})

    def test_an_item_that_aborts_without_room_goes_where_there_is_more(self):
        script = ('[ $EMUV_INSTANCE = 0 ] || [ "$1" != large ] || { '
                  'echo "emuV: refused 8 GiB: in use are" >&2; kill -ABRT $$; }; '
                  + NOTE.replace("$2", str(self.ends)))
        done = self.batch("--instances", "10,0,1", "--json",
                          *self.shell(script),
                          items=["large", *range(20)])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("large 0\n", self.ends.read_text())
        self.assertEqual(set(self.ended().values()), {1})

    def test_a_caller_that_ignores_ended_children_has_them_counted(self):
        done = self.batch(
            "--json", *self.shell(NOTE.replace("$2", str(self.ends))),
            items=range(3),
            preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["done"], 3, done.stderr)
        self.assertEqual(set(self.ended().values()), {1})

    def test_programs_ignore_no_signal_that_emuvctl_ignores(self):
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            done = self.batch("--json", *self.shell(f"kill -{int(number)} $$"),
                              items=["x"])
            self.assertEqual(json.loads(done.stdout)["failed"],
                             [{"item": "x", "ending": "lost",
                               "status": 128 + number}], done.stderr)

    def test_an_item_that_fits_nowhere_fails(self):
        done = self.batch("--json", "--oom-status", "3",
                          *self.shell("exit 3"), items=["x"])
        self.assertEqual(done.returncode, 123, done.stderr)
        self.assertEqual(json.loads(done.stdout)["failed"],
                         [{"item": "x", "ending": "out of memory", "status": 3}])

    def test_a_failure_is_told_and_not_repeated(self):
        done = self.batch("--jobs", "1",
                          *self.shell(f"echo x >> {self.ends}; exit 7"),
                          items=["a b"])
        self.assertEqual(done.returncode, 123)
        self.assertEqual(self.ends.read_text(), "x\n")
        self.assertIn("emuvctl: batch: a b: exit status 7\n", done.stderr)
        self.assertIn("emuvctl: batch: 1 item: 0 done, 1 failed; ", done.stderr)

    def test_a_command_that_cannot_start_ends_the_batch(self):
        for command, status, text in (
                ("no-such-program", 127, "no such file or directory"),
                ("/etc/passwd", 126, "permission denied")):
            done = self.batch("--jobs", "2", "--", command, items=range(9))
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(f"emuvctl: batch: {command}: {text}\n", done.stderr)

    def test_an_interruption_lets_items_end_and_a_second_ends_them(self):
        for interruptions, left in ((1, 8), (2, 10)):
            with self.subTest(interruptions):
                for each in self.folder.glob("at-*"):
                    each.unlink()
                (self.folder / "go").unlink(missing_ok=True)
                script = (f'touch {self.folder}/at-$1; while [ ! -e '
                          f'{self.folder}/go ]; do sleep 0.01; done')
                with subprocess.Popen(
                        self.words("--jobs", "2", "--json",
                                   *self.shell(script)),
                        env=self.environment, text=True,
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE) as batch:
                    batch.stdin.write("".join(f"{i}\n" for i in range(10)))
                    batch.stdin.close()
                    batch.stdin = None
                    self.await_(lambda: len(list(self.folder.glob("at-*"))) == 2,
                                "two at work")
                    batch.send_signal(signal.SIGINT)
                    line = batch.stderr.readline()
                    while "items are at work" not in line:
                        self.assertNotEqual(line, "")
                        line = batch.stderr.readline()
                    if interruptions == 2:
                        batch.send_signal(signal.SIGINT)
                    else:
                        (self.folder / "go").touch()
                    out, err = batch.communicate(timeout=LIMIT)
                self.assertEqual(batch.returncode, 130, err)
                summary = json.loads(out)
                self.assertEqual((summary["left"], summary["interrupted"]),
                                 (left, True))

    def test_an_interruption_ends_the_wait_for_the_list(self):
        with subprocess.Popen(
                self.words("--", "echo"), env=self.environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE) as batch:
            status = pathlib.Path(f"/proc/{batch.pid}/status")
            self.await_(lambda: self.catches(status, signal.SIGINT),
                        "emuvctl catches signals")

            def interrupted():
                batch.send_signal(signal.SIGINT)
                return batch.poll() is not None
            self.await_(interrupted, "its end")
            self.assertEqual(batch.returncode, 130)
            self.assertEqual(batch.stderr.read(),
                             "emuvctl: batch: interrupted\n")
            self.assertEqual(batch.stdout.read(), "")

    @staticmethod
    def catches(status, number):
        for line in status.read_text().splitlines():
            if line.startswith("SigCgt:"):
                return int(line.split()[1], 16) >> (number - 1) & 1
        return False

    def test_an_item_that_is_noted_as_done_is_not_run_again(self):
        # Its worker is killed between its note and its report.
        script = (f'if [ ! -e {self.folder}/killed ]; then '
                  f'touch {self.folder}/killed; '
                  f'echo \'{{"item": "x", "ending": "done"}}\' >> '
                  f'{self.folder}/journal; kill -9 $PPID; sleep 600; fi; '
                  f'echo "$1" >> {self.ends}')
        done = self.batch("--jobs", "1", "--json", "--journal",
                          self.folder / "journal", *self.shell(script),
                          items="xy")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["done"], 2)
        self.assertEqual(self.ended(), collections.Counter("y"))

    def test_a_batch_goes_on_where_nobody_reads_its_words(self):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = subprocess.run(
                self.words("--jobs", "2", "--json", *self.shell(
                    f'echo "$1" >> {self.ends}; exit 7')),
                input="".join(f"{i}\n" for i in range(20)), text=True,
                env=self.environment, check=False, stdout=writer,
                stderr=writer, timeout=10 * LIMIT)
        finally:
            os.close(writer)
        self.assertEqual(self.ended(),
                         collections.Counter(str(i) for i in range(20)))
        self.assertEqual(done.returncode, 123)

    def test_messages_that_cannot_be_written_change_no_status(self):
        full = pathlib.Path("/dev/full")
        for lost, program, status in (
                ("closed", "true", 0), ("full", "true", 0), ("closed", "exit 7", 123),
                ("full", "exit 7", 123), ("full", None, 127)):
            with self.subTest(lost=lost, program=program), full.open("w") as nowhere:
                command = (self.shell(program) if program else
                           ["--", "no-such-program"])
                done = subprocess.run(
                    self.words("--jobs", "1", *command), input="a\na\nb\n", text=True,
                    env=self.environment, check=False, stdout=subprocess.DEVNULL,
                    stderr=nowhere, timeout=10 * LIMIT,
                    preexec_fn=(lambda: os.close(2)) if lost == "closed" else None)
                self.assertEqual(done.returncode, status)

    def test_a_summary_that_a_full_disk_does_not_take_is_told(self):
        with open("/dev/full", "w", encoding="ascii") as nowhere:
            done = subprocess.run(
                self.words("--jobs", "1", "--json", *self.shell("true")), input="a\n",
                text=True, env=self.environment, check=False, stdout=nowhere,
                stderr=subprocess.PIPE, timeout=10 * LIMIT)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.splitlines()[-1],
                         "emuvctl: batch: write error: no space left on device")

    def test_files_that_are_closed_do_no_harm(self):
        names = self.folder / "names"
        names.write_text("a\nb\n")
        done = self.batch(
            "--from", names, "--jobs", "1", *self.shell(
                f'cat; echo lost; echo kept >&2; echo "$1" >> {self.ends}'),
            items=[], preexec_fn=lambda: os.closerange(0, 2))
        self.assertEqual(self.ended(), collections.Counter("ab"))
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.splitlines().count("kept"), 2)
        self.assertIn("\nemuvctl: batch: 2 items: 2 done; ", done.stderr)
        self.assertEqual(done.returncode, 0)

    def test_what_a_program_leaves_behind_holds_nobody_up(self):
        much = 200 << 20
        logs = self.folder / "logs"
        done = self.batch("--jobs", "1", "--logs", logs,
                          *self.shell(f"yes | head -c {much} &"), items="a")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLess(sum(each.stat().st_size for each in logs.iterdir()),
                        much)

    def test_a_terminal_neither_stops_workers_nor_asks_programs(self):
        names = self.folder / "names"
        names.write_text("a\nb\n")
        script = ('if (: </dev/tty) 2>/dev/null; then echo a terminal; '
                  'else echo no terminal; fi')
        child, master = pty.fork()
        if child == 0:
            try:
                settings = termios.tcgetattr(1)
                settings[3] |= termios.TOSTOP
                termios.tcsetattr(1, termios.TCSANOW, settings)
                os.execve(self.emuvctl, [str(each) for each in self.words(
                    "--from", names, "--jobs", "2", *self.shell(script))],
                          self.environment)
            finally:
                os._exit(99)
        self.addCleanup(os.close, master)
        text = b""
        while select.select([master], [], [], LIMIT)[0]:
            try:
                text += os.read(master, 65536)
            except OSError:
                break  # nobody writes any more
        else:
            os.kill(child, signal.SIGKILL)
        self.assertEqual(os.waitpid(child, 0)[1], 0, text)
        self.assertEqual(text.count(b"no terminal\r\n"), 2, text)

    def test_progress_on_a_terminal_leaves_redirected_output_alone(self):
        master, terminal = pty.openpty()
        self.addCleanup(os.close, master)
        try:
            done = subprocess.run(
                self.words("--jobs", "1", "--", "echo"), input="a\nb\n",
                text=True, env=self.environment, check=False,
                stdout=subprocess.PIPE, stderr=terminal, timeout=10 * LIMIT)
        finally:
            os.close(terminal)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "a\nb\n")

    def test_items_need_no_journal_s_letters_without_one(self):
        names = self.folder / "names"
        names.write_bytes(b"a\ncaf\xe9\n")
        words = ("--jobs", "1", "--from", names)
        done = self.batch(*words, "--", "printf", "[%s]", items=[],
                          errors="surrogateescape")
        self.assertEqual(done.stdout, "[a]\n[caf\udce9]\n")
        done = self.batch(*words, "--journal", self.folder / "journal", "--",
                          "echo", items=[])
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr, "emuvctl: batch: item 2 is no UTF-8, so "
                         "no journal can hold it\n")

    def test_a_list_of_find_needs_its_option(self):
        done = self.batch("--", "touch", self.ends, items=["a\0b\0"])
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "emuvctl: batch: item 1 has a zero byte in "
                         "it; --null is for lists whose items end in one\n")

    def test_words_are_kept_in_a_file_an_item(self):
        logs = self.folder / "logs"
        done = self.batch("--jobs", "1", "--logs", logs,
                          *self.shell('echo "to $1"; echo "from $1" >&2'),
                          items=["x/one", "two words"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(sorted(each.name for each in logs.iterdir()),
                         ["000001-one.log", "000002-two_words.log"])
        text = (logs / "000001-one.log").read_text()
        self.assertIn("to x/one\n", text)
        self.assertIn("from x/one\n", text)

    def test_items_come_from_a_folder_or_a_file(self):
        photos = self.folder / "photos"
        photos.mkdir()
        for name in ("a b.jpg", "c.jpg"):
            (photos / name).touch()
        done = self.batch("--jobs", "1", "--from", photos, "--", "echo",
                          items=[])
        self.assertEqual(done.stdout, f"{photos}/a b.jpg\n{photos}/c.jpg\n")
        names = self.folder / "names"
        names.write_bytes(b"x\ny\0z\0")
        done = self.batch("--jobs", "1", "--from", names, "-0", "--", "printf",
                          "[%s]", items=[])
        self.assertEqual(done.stdout, "[x\ny]\n[z]\n")

    def test_a_dry_run_runs_nothing(self):
        done = self.batch("--jobs", "2", "--dry-run",
                          *self.shell(f"echo x > {self.ends}"), items="abb")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(
            done.stdout, "would run for 2 items, by 2 workers: emuv0 emuv1\n"
            f"first: sh -c echo x > {self.ends} sh a\n")
        self.assertIn("1 item is named again, and run once", done.stderr)
        self.assertEqual(self.ends.read_text(), "")

    def test_mistakes_are_told_before_anything_is_run(self):
        for words, status, message in (
                (("--jobs", "4"), 1, "there are 3 instances for 4 workers; "
                 "--instances lets several work on one"),
                (("--jobs", "0"), 2, "--jobs: '0' is no number from 1 to 1024"),
                (("--instances", "7"), 1, "emuv7: no such instance"),
                (("--instances", "0", "--virtual", "1G"), 2,
                 "--instances does not go with --physical and --virtual"),
                (("--up-to", "1G"), 2, "--up-to needs --virtual"),
                (("--virtual", "2G", "--up-to", "1G"), 2,
                 "--up-to: this is less than --virtual"),
                (("--oom-status", "3,x"), 2,
                 "--oom-status: 'x' is no number from 1 to 255"),
                (("--from", "/no/such"), 1, "/no/such: no such file or "
                 "directory")):
            with self.subTest(words):
                done = self.batch(*words, "--", "touch", self.ends, items="a")
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertEqual(done.stderr.splitlines()[0],
                                 f"emuvctl: batch: {message}")

    def test_a_list_that_is_not_there_is_told_before_a_node_that_is_not(self):
        for name, message in (("/no/such", "/no/such: no such file or directory"),
                              ("-", f"{self.folder}/emuv0: there is no such node here")):
            words = self.words("--from", name, "--", "touch", self.ends)
            words.remove("--disable")
            done = subprocess.run(words, input="a", text=True, env=self.environment, check=False,
                                  stderr=subprocess.PIPE, timeout=LIMIT)
            self.assertEqual(done.returncode, 1)
            self.assertIn(message, done.stderr)

    def test_own_limits_need_no_instance_and_leave_no_ledger(self):
        before = set(pathlib.Path("/dev/shm").glob("emuv-ledger-*"))
        ledgers = self.folder / "ledgers"
        done = self.batch(
            "--jobs", "2", "--physical", "64M", "--virtual", "1G",
            *self.shell(f'echo $EMUV_PHYSICAL $EMUV_VIRTUAL $EMUV_LEDGER >> '
                        f'{ledgers}; [ -e "$EMUV_LEDGER" ]'), items=range(4))
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line.split() for line in ledgers.read_text().splitlines()]
        self.assertEqual({tuple(row[:2]) for row in rows},
                         {("67108864", "1073741824")})
        ours = {pathlib.Path(row[2]) for row in rows}
        self.assertLessEqual(len(ours), 2)
        self.assertFalse(ours & before)
        self.assertFalse([each for each in ours if each.exists()])

    def test_a_batch_that_is_killed_leaves_its_ledgers_to_its_workers_alone(self):
        for number in (signal.SIGKILL, signal.SIGHUP):
            (self.folder / "go").unlink(missing_ok=True)
            (self.folder / "there").unlink(missing_ok=True)
            script = (f'echo $EMUV_LEDGER > {self.folder}/draft; '
                      f'mv {self.folder}/draft {self.folder}/ledger; '
                      f'while [ ! -e {self.folder}/go ]; do sleep 0.01; done; '
                      f'[ -e "$EMUV_LEDGER" ] && touch {self.folder}/there')
            with subprocess.Popen(
                    self.words("--physical", "64M", *self.shell(script)),
                    env=self.environment, text=True, stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)
                    ) as batch:
                batch.stdin.write("a\n")
                batch.stdin.close()
                batch.stdin = None
                self.await_((self.folder / "ledger").exists, "the item was not begun")
                batch.send_signal(number)
                batch.wait(LIMIT)
            ledger = pathlib.Path((self.folder / "ledger").read_text().strip())
            (self.folder / "ledger").unlink()
            # Its program may open it yet.
            self.assertTrue(ledger.exists())
            (self.folder / "go").touch()
            self.await_(lambda: not ledger.exists(), "the ledger stays")
            self.assertTrue((self.folder / "there").exists())

    def test_a_program_that_the_library_refuses_memory_gets_more(self):
        if not self.cuda:
            self.skipTest("the CUDA library is not built")
        sim = self.build / "tests/cuda/sim"
        done = subprocess.run(
            [self.emuvctl, "batch", "--library", self.build / "tools/cuda/lib",
             "--libcuda", sim / "libcuda.so.1", "--libnvml",
             sim / "libnvidia-ml.so.1", "--charge", "allocations", "--physical",
             "32M", "--virtual", "64M", "--up-to", "512M", "--json", "--",
             self.build / "tests/cuda/cuda_press", "{}"],
            input="24\n200\n1000\n", text=True, env=self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
            timeout=10 * LIMIT)
        self.assertEqual(done.returncode, 123, done.stderr)
        summary = json.loads(done.stdout)
        self.assertEqual(summary["done"], 2, done.stderr)
        self.assertEqual([(each["item"], each["ending"])
                          for each in summary["failed"]],
                         [("1000", "out of memory")])
        self.assertIn("200: out of memory with 64 MiB of system RAM; again with "
                      "more", done.stderr)
        self.assertIn("1000: out of memory with 512 MiB of system RAM; nobody "
                      "has more", done.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emuvctl", required=True)
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--cuda", action="store_true")
    options, rest = parser.parse_known_args()
    BatchTest.emuvctl = options.emuvctl
    BatchTest.build = options.build
    BatchTest.cuda = options.cuda
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
