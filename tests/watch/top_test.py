#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""`emuvctl top` on a terminal: what its screen shows, what keys do, and how it
leaves the terminal."""

import argparse
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import unittest

try:
    import pyte
except ImportError:
    print("skipped: python3-pyte is not installed")
    sys.exit(77)

MACHINE = pathlib.Path(__file__).resolve().parents[1] / "cli/machine"
LIMIT = 120  # seconds


class TopTest(unittest.TestCase):
    emuvctl = None
    fake = None

    def start(self, program, *options, verb="top", size=(24, 80), term="linux", preexec_fn=None,
              **variables):
        """Runs top on a terminal, whose screen is self.screen. pyte knows what
        Linux' console does, and less than all of xterm's."""
        self.screen = pyte.Screen(size[1], size[0])
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self.modes = termios.tcgetattr(slave)
        environment = {**os.environ, "TERM": term, "LC_ALL": "C.UTF-8", **variables}
        if "NO_COLOR" not in variables:
            environment.pop("NO_COLOR", None)
        self.top = subprocess.Popen(
            (program, verb, "-i", "0.05", *options), stdin=slave, stdout=slave,
            stderr=slave, env=environment, start_new_session=True, preexec_fn=preexec_fn)
        self.master, self.slave = master, slave
        self.ends = [master, slave]
        self.addCleanup(self.close, self.ends)
        self.addCleanup(self.end)

    @staticmethod
    def close(ends):
        while ends:
            os.close(ends.pop())

    def end(self):
        if self.top.poll() is None:
            self.top.kill()
        self.top.wait()

    def read(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            data = os.read(self.master, 65536)
            self.raw += data
            self.stream.feed(data)

    def wait_for(self, pattern, absent=False):
        """Reads until the screen has it, or has it no more."""
        end = time.monotonic() + LIMIT
        while True:
            text = "\n".join(self.screen.display)
            found = re.search(pattern, text)
            if bool(found) != absent:
                return found
            self.assertLess(time.monotonic(), end, text)
            self.read(0.2)

    def press(self, text):
        os.write(self.master, text.encode())

    def status(self):
        """Its exit status; reads what it still writes."""
        end = time.monotonic() + LIMIT
        while self.top.poll() is None:
            self.assertLess(time.monotonic(), end)
            self.read(0.05)
        while select.select([self.master], [], [], 0)[0]:
            self.read(0)
        return self.top.returncode

    def start_fake(self, *options, **more):
        self.start(self.fake, *options, **more)
        self.wait_for(r"python +\d+")

    def start_machine(self, *options, **more):
        more = {"EMUV_SYSFS_ROOT": str(MACHINE / "sys"),
                "EMUV_PROC_ROOT": str(MACHINE / "proc"),
                "EMUV_DEV_ROOT": "/nowhere", **more}
        self.start(self.emuvctl, *options, **more)

    def test_shows_instances_processes_rates_and_a_forecast(self):
        self.start_fake()
        self.wait_for(r"1 instance, 2 clients")
        self.wait_for(r"\[.*M/8G\]")
        self.wait_for(r"hits 75%")
        self.wait_for(r"to VRAM [\d.]+[KMG]/s")
        self.wait_for(r"full in .* at this growth")
        self.wait_for("[▁▂▃▄▅▆▇█]")
        self.assertIn("F1Help F3Search", self.screen.display[23])

    def test_leaves_the_terminal_as_it_was(self):
        for how in ("q", "\x1b[21~", signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            self.start_fake(term="xterm-256color")
            self.assertNotEqual(termios.tcgetattr(self.slave), self.modes)
            if isinstance(how, str):
                self.press(how)
            else:
                self.top.send_signal(how)
            self.assertEqual(self.status(), 0)
            self.assertEqual(termios.tcgetattr(self.slave), self.modes)
            self.assertIn(b"\x1b[?1049l", self.raw)  # the other screen

    def test_ends_with_its_terminal(self):
        self.start_machine(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.wait_for("emuv10 lab card")
        self.close(self.ends)
        self.assertEqual(self.top.wait(LIMIT), 0)

    def test_kills_a_process_after_a_question(self):
        self.start_fake()
        pid = int(self.wait_for(r"python +(\d+)")[1])
        self.press("/python\r")
        self.press("k")
        self.wait_for(rf"end {pid} python\?")
        self.press("x")
        self.wait_for(r"F1Help")
        self.assertTrue(os.path.exists(f"/proc/{pid}"))
        self.press("kt")
        self.wait_for(rf"sent SIGTERM to {pid}")
        self.wait_for(rf"python +{pid}", absent=True)
        self.assertFalse(os.path.exists(f"/proc/{pid}"))

    def test_keys_sort_filter_list_and_help(self):
        self.start_fake()
        self.press("\\train\r")
        self.wait_for("python", absent=True)
        self.press("\\\x1b")
        self.wait_for("python")
        self.press("t")
        self.wait_for("python emuv0")
        self.press("N")
        self.wait_for(r"\*PID")
        self.press("\x1b[[A")
        self.wait_for("as in htop and nvtop")
        self.press(" ")
        self.wait_for("F1Help")

    def test_pause_stops_the_figures(self):
        self.start_fake()
        self.press("Z")
        self.wait_for("PAUSED")
        line = self.wait_for(r"python.*")[0]
        self.press("M")  # drawn again
        self.wait_for(r"\*VRAM")
        self.assertEqual(self.wait_for(r"python.*")[0], line)
        self.press("Z")
        self.wait_for("PAUSED", absent=True)
        self.wait_for(re.escape(line), absent=True)

    def test_follows_the_size_of_the_terminal(self):
        self.start_fake()
        self.screen.resize(12, 60)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 60, 0, 0))
        self.top.send_signal(signal.SIGWINCH)
        self.wait_for(r"F1Help.*F10Quit *\Z")
        self.wait_for("EVICT/S", absent=True)

    def test_has_colours_unless_told_otherwise(self):
        for options, variables, coloured in (
                ((), {}, True), (("--no-color",), {}, False), ((), {"NO_COLOR": "1"}, False),
                ((), {"term": "vt100"}, False)):
            self.start_machine(*options, **variables)
            self.wait_for("emuv10 lab card")
            self.assertEqual(bool(re.search(rb"\x1b\[(\d+;)*3[0-7](;\d+)*m", self.raw)), coloured,
                             (options, variables))
            self.press("q")
            self.assertEqual(self.status(), 0)

    def test_draws_in_ascii_where_the_locale_is(self):
        self.start(self.fake, LC_ALL="C")
        self.wait_for(r"full in .* at this growth")
        self.assertTrue("".join(self.screen.display).isascii())

    def test_shows_instances_without_their_clients(self):
        self.start_machine()
        self.wait_for(r"3 instances, 2 clients")
        self.wait_for(r"emuv0 4070 +4G +33% +512M +300M")
        self.wait_for(r"resident 300M of 512M")

    def test_refuses_what_it_cannot_draw_on(self):
        for term, message in (("dumb", "cannot be drawn on"), ("nosuch", "is not known")):
            self.start_machine(term=term)
            self.assertEqual(self.status(), 1)
            self.assertIn(message, self.raw.decode())
        done = subprocess.run((self.emuvctl, "top"), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("'emuvctl stats -i 1' prints", done.stderr)

    def test_stats_redraws_with_bars(self):
        self.start(self.fake, verb="stats")
        self.wait_for(r"\Aemuv0 VRAM\[.*M/8G\] RAM\[ +0/8G\] *\n *\n *NAME")
        line = self.wait_for(r"emuv0 VRAM.*M/8G.*")[0]
        self.wait_for(re.escape(line), absent=True)
        # In between the screen is empty.
        self.wait_for(r"NAME(?s:.)*train")
        self.assertEqual("\n".join(self.screen.display).count("NAME"), 1)
        self.top.send_signal(signal.SIGTERM)
        self.assertEqual(self.status(), 0)

    def test_stats_prints_on_where_it_cannot_redraw(self):
        for size, term in (((24, 80), "dumb"), ((5, 80), "linux")):
            self.start(self.fake, verb="stats", size=size, term=term)
            while self.raw.count(b"NAME") < 3:
                self.wait_for("python|train|emuv0")
                self.read(0.2)
            # Headings may be bold, but not there; the cursor goes nowhere.
            bold = rb"\x1b\[[0-9;]*m" if term != "dumb" else rb"(?!)"
            self.assertNotIn(b"\x1b", re.sub(bold, b"", bytes(self.raw)))
            self.end()

    def test_says_that_the_module_is_not_loaded(self):
        self.start_machine(EMUV_SYSFS_ROOT="/nowhere")
        self.assertEqual(self.status(), 1)
        self.assertIn("the emuv module is not loaded", self.raw.decode())

    def test_ends_where_a_named_instance_is_not(self):
        self.start_machine("emuv7")
        self.assertEqual(self.status(), 1)
        self.assertIn("emuv7", self.raw.decode())
        self.assertEqual(termios.tcgetattr(self.slave), self.modes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emuvctl", required=True)
    parser.add_argument("--fake", required=True, help="emuvctl with a driver in memory")
    options, rest = parser.parse_known_args()
    TopTest.emuvctl, TopTest.fake = options.emuvctl, options.fake
    unittest.main(argv=[sys.argv[0], *rest])
