#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""`emuvctl report` of any file: a trace that was cut, one that is large, a tape,
two of them, and what is neither. Its page is whole or not written."""

import argparse
import fcntl
import gzip
import html.parser
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
TAPE = HERE.parent / "cli/tapes/step.tape"
MIB = 1 << 20


def rows():
    return [{"ph": "M", "pid": 7, "tid": i + 1, "name": "thread_name",
             "args": {"name": name}}
            for i, name in enumerate(("to VRAM", "to RAM", "waits", "calls"))]


def fetch(number):
    return {"ph": "X", "pid": 7, "tid": 1, "name": "fetch", "ts": 1000.0 * number,
            "dur": 500.0, "args": {"address": hex(0x7f0000000000 + number * 2 * MIB),
                                   "bytes": 2 * MIB, "next_use": number}}


def text_of(events):
    """As the library writes: an event a line."""
    return "[\n" + ",\n".join(json.dumps(each) for each in events) + "\n]\n"


class Wellformed(html.parser.HTMLParser):
    """Notes elements that are not closed, and what runs or loads."""

    def __init__(self):
        super().__init__()
        self.open, self.wrong = [], []

    def handle_starttag(self, tag, attrs):
        self.check(tag, attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.check(tag, attrs)

    def check(self, tag, attrs):
        names = {name for name, _ in attrs}
        if tag in ("script", "link", "img", "iframe", "object") or \
                names & {"src", "href"} or any(name.startswith("on") for name in names):
            self.wrong.append((tag, attrs))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"/{tag}")


class ReportTest(unittest.TestCase):
    emuvctl = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, content):
        path = self.folder / name
        (path.write_bytes if isinstance(content, bytes) else path.write_text)(content)
        return path

    def report(self, *words, **variables):
        # Freed memory may be used again: the test of memory needs that.
        options = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"
        return subprocess.run(
            (self.emuvctl, "report", *map(str, words)), text=True, check=False,
            capture_output=True, timeout=600,
            env={**os.environ, "ASAN_OPTIONS": options, **variables})

    def figures(self, *words):
        done = self.report("--json", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def assert_page(self, text):
        page = Wellformed()
        page.feed(text)
        self.assertEqual((page.open, page.wrong), ([], []))

    def assert_refused(self, *words, because):
        done = self.report(*words)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(done.stdout, "")
        self.assertIn(because, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_the_page_lies_beside_the_trace(self):
        trace = self.write("t.json", text_of(rows() + [fetch(1)]))
        done = self.report(trace)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((done.stdout, done.stderr),
                         ("", f"emuvctl: report: wrote {trace}.html\n"))
        self.assert_page(pathlib.Path(f"{trace}.html").read_text())
        self.assertEqual(self.report(trace, "-o", "-").stdout,
                         pathlib.Path(f"{trace}.html").read_text())

    def test_a_page_that_cannot_be_written_leaves_the_old_one(self):
        trace = self.write("t.json", text_of(rows() + [fetch(1)]))
        page = self.write("page.html", "old")
        cut = self.write("no.json", "[1, 2")
        self.assert_refused(cut, "-o", page, because="not a trace")
        self.assertEqual(page.read_text(), "old")
        self.assert_refused(trace, "-o", "/dev/null", because="not a regular file")
        self.assert_refused(trace, "-o", self.folder / "none/page.html",
                            because="no such file")
        self.assertEqual(sorted(each.name for each in self.folder.iterdir()),
                         ["no.json", "page.html", "t.json"])

    def test_a_trace_that_was_cut_anywhere_is_reported_as_far_as_it_goes(self):
        text = text_of(rows() + [fetch(1), fetch(2), fetch(3)])
        for end in range(len(text) - 4, text.index('"fetch"'), -37):
            trace = self.write("cut.json", text[:end])
            run = self.figures(trace)["runs"][0]
            self.assertFalse(run["whole"])
            self.assertIn("is not whole", run["notes"][0])
            self.assertEqual(run["to_vram_bytes"], text[:end].count("}}") * 2 * MIB
                             - len(rows()) * 2 * MIB)
            self.assert_page(self.report(trace, "-o", "-").stdout)

    def test_a_large_trace_takes_no_more_memory_than_a_small_one(self):
        def peak_kib(path):
            # The child's own peak: that of this process would hide it.
            code = ("import resource, subprocess, sys;"
                    "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
                    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
            options = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"
            return int(subprocess.run(
                (sys.executable, "-c", code, self.emuvctl, "report", "--json", str(path)),
                check=True, text=True, stdout=subprocess.PIPE, timeout=600,
                env={**os.environ, "ASAN_OPTIONS": options}).stdout)

        small = self.write("small.json", text_of(rows() + [fetch(i) for i in range(1000)]))
        large = self.folder / "large.json"
        block = "".join(",\n" + json.dumps(fetch(i)) for i in range(1000))
        with large.open("w") as file:
            file.write(text_of(rows())[:-3])
            for _ in range(24 * MIB // len(block)):
                file.write(block)
            file.write("\n]\n")
        self.assertGreater(large.stat().st_size, 23 * MIB)
        self.assertLess(peak_kib(large) - peak_kib(small), 8 << 10)

    def test_a_tape_is_reported_packed_or_not(self):
        packed = self.write("packed.tape.gz", gzip.compress(TAPE.read_bytes()))
        one, other = (self.figures(each)["runs"][0] for each in (TAPE, packed))
        self.assertEqual(one["kind"], "tape")
        self.assertGreater(one["peak_vram_bytes"], 0)
        del one["file"], other["file"]
        self.assertEqual(one, other)
        self.assert_page(self.report(TAPE, "-o", "-").stdout)

    def of_pipe(self, verb, content):
        """Its answer to a pipe whose writer is slow with the first bytes."""
        with subprocess.Popen((self.emuvctl, verb, "--json", "/dev/stdin"),
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            process.stdin.write(content[:3])
            process.stdin.flush()
            end = time.monotonic() + 240
            while process.poll() is None and time.monotonic() < end and struct.unpack(
                    "i", fcntl.ioctl(process.stdin, termios.FIONREAD, b"\0" * 4)) != (0,):
                time.sleep(0.01)
            out, _ = process.communicate(content[3:], timeout=600)
        self.assertEqual(process.returncode, 0, out)
        return json.loads(out)

    def test_of_a_pipe_the_same_is_reported(self):
        trace = self.write("t.json", text_of(rows() + [fetch(1), fetch(2)]))
        packed = self.write("packed.tape.gz", gzip.compress(TAPE.read_bytes()))
        for file in (trace, TAPE, packed):
            runs = self.figures(file)["runs"] + self.of_pipe(
                "report", pathlib.Path(file).read_bytes())["runs"]
            for each in runs:
                del each["file"]
            self.assertEqual(runs[0], runs[1], file)
        for file in (TAPE, packed):
            [tape] = self.of_pipe("tape", pathlib.Path(file).read_bytes())["tapes"]
            self.assertGreater(tape["peak"], 0)

    def test_two_runs_are_compared(self):
        first = self.write("first.json", text_of(rows() + [fetch(1), fetch(2)]))
        second = self.write("second.json", text_of(rows() + [fetch(1)]))
        self.assertEqual([each["to_vram_bytes"]
                          for each in self.figures(first, second)["runs"]],
                         [4 * MIB, 2 * MIB])
        page = self.report(first, second, "-o", "-").stdout
        self.assert_page(page)
        self.assertIn("50 % less", page)
        self.assert_page(self.report(first, TAPE, "-o", "-").stdout)
        done = self.report(first, second, first)
        self.assertEqual(done.returncode, 2)
        self.assertIn("one file, or two", done.stderr)

    def test_names_that_would_harm_are_text(self):
        hostile = "</style><script>alert(1)</script>\"'&\u202e"
        kernel = {"ph": "i", "s": "p", "pid": 7, "tid": 3, "name": "not trusted",
                  "ts": 5, "args": {"kernel": hostile, "why": hostile}}
        odd = {**fetch(1), "name": hostile}
        trace = self.write("<img src=x>.json", text_of(rows() + [kernel, odd]))
        page = self.report(trace, "-o", "-").stdout
        self.assert_page(page)
        self.assertNotIn("\u202e", page)
        self.assertIn("&lt;script&gt;", page)

    def test_what_is_neither_is_named(self):
        for name, content, because in (
                ("empty", "", "it is empty"),
                ("zip", b"PK\x03\x04rest", "a zip archive"),
                ("pickle", b"\x80\x04\x95rest", "'emuvctl diagnose'"),
                ("log", "epoch 1: loss 0.3\n", "it is text"),
                ("page", "<!DOCTYPE html>", "HTML or XML"),
                ("stats", "proven\tnamed\tuntrusted\treason\tkernel\n", "a table of kernels"),
                ("json", "{\"a\": [1]}", "JSON, but no trace"),
                ("other", "[{\"ph\": \"X\", \"name\": \"mm\", \"ts\": 1, \"dur\": 1}]",
                 "none of emuV's"),
                ("packed", gzip.compress(b"hello"), "no tape")):
            self.assert_refused(self.write(name, content), because=because)
        self.assert_refused(sys.executable, because="a program or a library")
        self.assert_refused(self.folder, because="directory")
        self.assert_refused(self.folder / "none", because="no such file")

    def test_an_estimate_stands_beside_the_peaks(self):
        counters = [{"ph": "C", "pid": 7, "name": name, "ts": 1, "args": {"bytes": value}}
                    for name, value in (("VRAM", 300 * MIB), ("system RAM", 200 * MIB))]
        trace = self.write("t.json", text_of(rows() + counters + [fetch(1)]))
        state = str(self.folder / "state")
        subprocess.run((self.emuvctl, "estimate", "gpt2", "--save"), check=True,
                       capture_output=True, env={**os.environ, "XDG_STATE_HOME": state})
        page = self.report(trace, "--score", "-o", "-", XDG_STATE_HOME=state).stdout
        self.assert_page(page)
        self.assertIn("The estimate beside what came", page)
        self.assertIn("500 MiB", page)
        self.assert_refused(trace, f"--score={trace}", because="no JSON object")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emuvctl", required=True)
    options, rest = parser.parse_known_args()
    ReportTest.emuvctl = options.emuvctl
    unittest.main(argv=[sys.argv[0], *rest])
