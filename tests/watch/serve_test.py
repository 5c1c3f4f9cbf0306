#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""`emuvctl serve` answers GET and HEAD, bounds each request, and lets no client
hold up another one."""

import argparse
import contextlib
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import unittest

MACHINE = pathlib.Path(__file__).resolve().parents[1] / "cli/machine"
LIMIT = 120  # seconds


class ServeTest(unittest.TestCase):
    emuvctl = None

    def setUp(self):
        self.environment = {
            **os.environ, "LC_ALL": "C", "EMUV_SYSFS_ROOT": str(MACHINE / "sys"),
            "EMUV_PROC_ROOT": str(MACHINE / "proc"), "EMUV_DEV_ROOT": "/nowhere"}
        self.address, self.server = None, None

    def start(self, listen="127.0.0.1:0"):
        self.server = subprocess.Popen(
            (self.emuvctl, "serve", "--listen", listen), env=self.environment,
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.addCleanup(self.server.stderr.close)
        self.addCleanup(self.stop)
        said = ""
        while "a page at" not in said:
            line = self.server.stderr.readline()
            self.assertTrue(line, said)
            said += line
        host, port = re.search(r"http://(\S+):(\d+)/,", said).groups()
        self.address = (host.strip("[]").replace("0.0.0.0", "127.0.0.1"), int(port))
        return said

    def stop(self, number=signal.SIGTERM):
        if self.server.poll() is None:
            self.server.send_signal(number)
        return self.server.wait(LIMIT)

    def connect(self):
        client = socket.create_connection(self.address, LIMIT)
        self.addCleanup(client.close)
        return client

    def ask(self, text, client=None):
        """Head and body of the answer to these bytes, to its end."""
        client = client or self.connect()
        client.sendall(text if isinstance(text, bytes) else text.encode())
        answer = b""
        while block := client.recv(65536):
            answer += block
        head, _, body = answer.decode().partition("\r\n\r\n")
        return head, body

    def get(self, path, method="GET", host="localhost"):
        return self.ask(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")

    def test_shows_metrics_and_a_page(self):
        self.start()
        head, body = self.get("/metrics")
        self.assertIn("200 OK", head)
        self.assertIn("Content-Type: text/plain; version=0.0.4", head)
        self.assertIn('emuv_instance_vram_used_bytes{vgpu="emuv0"} 4294967296\n', body)
        head, body = self.get("/?whatever")
        self.assertIn("200 OK", head)
        self.assertIn("default-src 'none'", head)
        self.assertTrue(body.startswith("<!doctype html>"))
        self.assertIn("404", self.get("/../etc/passwd")[0])

    def test_page_loads_nothing_from_elsewhere(self):
        self.start()
        _, body = self.get("/")
        found = re.findall(r"https?://[^\"' )]*", body)
        self.assertEqual(set(found), {"http://www.w3.org/2000/svg"})
        self.assertNotRegex(body, r"<(script|img|link)[^>]*(src|href)=\"(?!data:)")
        self.assertNotIn("innerHTML", body)

    def test_head_is_the_head_of_get(self):
        self.start()
        head, body = self.get("/", "HEAD")
        self.assertEqual((head, body), (self.get("/")[0], ""))

    def test_answers_nothing_that_writes(self):
        self.start()
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "get"):
            head, _ = self.get("/metrics", method)
            self.assertIn("405 Method Not Allowed", head)
            self.assertIn("Allow: GET, HEAD", head)

    def test_tells_a_client_that_still_sends(self):
        self.start()
        head, _ = self.ask("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n" + 20000 * "x")
        self.assertIn("405", head)

    def test_bounds_requests(self):
        self.start()
        self.assertIn("431", self.ask("GET /" + 9000 * "x")[0])
        self.assertIn("431", self.ask("GET / HTTP/1.1\r\n" + 3000 * "a: b\r\n")[0])

    def test_refuses_what_makes_no_sense(self):
        self.start()
        for text, status in (
                (b"\r\n\r\n", 400), (b"GET\r\n\r\n", 400), (b"GET  HTTP/1.1\r\n\r\n", 400),
                (b"GET /\x00 HTTP/1.1\r\n\r\n", 400), (b"GET x HTTP/1.1\r\n\r\n", 400),
                (b"GET http://a/ HTTP/1.1\r\n\r\n", 400), (b"\x16\x03\x01\n\n", 400),
                (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
                (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
                (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
                (b"GET / HTTP/2.0\r\n\r\n", 505)):
            with self.subTest(text):
                self.assertIn(f"HTTP/1.1 {status} ", self.ask(text)[0])
        self.assertIn("200 OK", self.get("/")[0])

    def test_page_of_another_site_cannot_read_it(self):
        self.start()
        self.assertIn("421", self.get("/metrics", host="evil.example:80")[0])
        for host in ("127.0.0.1:80", "localhost", "[::1]:1"):
            self.assertIn("200", self.get("/metrics", host=host)[0])

    def test_slow_clients_hold_nobody_up(self):
        self.start()
        slow = [self.connect() for _ in range(200)]
        for client in slow:
            # The oldest have been let go of.
            with contextlib.suppress(OSError):
                client.sendall(b"GET /met")
        self.assertIn("200", self.get("/metrics")[0])
        self.assertIn("200", self.ask("rics HTTP/1.1\r\n\r\n", slow[-1])[0])

    def test_lets_the_oldest_go_where_no_more_files_can_be_opened(self):
        self.start()
        most = len(os.listdir(f"/proc/{self.server.pid}/fd")) + 4
        resource.prlimit(self.server.pid, resource.RLIMIT_NOFILE, (most, most))
        slow = [self.connect() for _ in range(6)]
        # The last two have taken the places of the first two.
        for client in slow[:2]:
            with contextlib.suppress(ConnectionError):
                self.assertEqual(client.recv(1), b"")
        for client in slow[:1:-1]:
            self.assertIn("200", self.ask("GET / HTTP/1.1\r\n\r\n", client)[0])

    def test_client_that_goes_away_ends_nothing(self):
        self.start()
        for _ in range(20):
            client = self.connect()
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            client.close()
        self.assertIn("200", self.get("/")[0])

    def test_shows_that_the_module_is_not_loaded(self):
        self.environment["EMUV_SYSFS_ROOT"] = "/nowhere"
        self.start()
        self.assertEqual(self.get("/metrics")[1].splitlines()[-1], "emuv_module_loaded 0")

    def test_ends_on_signals(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self.start()
            self.connect()
            self.assertEqual(self.stop(number), 0)

    def test_says_who_can_read_it(self):
        self.assertIn("anyone who reaches 0.0.0.0:", self.start("0.0.0.0:0"))
        # There the name of the machine is as good as any.
        self.assertIn("200", self.get("/metrics", host="gpu1.example")[0])
        self.stop()
        for listen in (":0", "0", "localhost:0", "127.0.0.1:0"):
            self.assertNotIn("anyone", self.start(listen))
            self.stop()

    def test_refuses_an_address_that_makes_no_sense(self):
        self.start()
        taken = f"127.0.0.1:{self.address[1]}"
        for listen, status, message in (
                ("x:1", 2, "'x' is not a numeric address"), ("::1:80", 2, "brackets"),
                ("127.0.0.1", 2, "a port is missing"), ("1.2.3.4:99999", 2, "is not a port"),
                (":", 2, "is not a port"), ("[::1]", 2, "a port is missing"),
                ("[1.2.3.4]:1", 2, "IPv6"), (taken, 1, "address already in use")):
            with self.subTest(listen):
                done = subprocess.run((self.emuvctl, "serve", "--listen", listen), text=True,
                                      env=self.environment, capture_output=True,
                                      timeout=LIMIT, check=False)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn(message, done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emuvctl", required=True)
    options, rest = parser.parse_known_args()
    ServeTest.emuvctl = options.emuvctl
    unittest.main(argv=[sys.argv[0], *rest])
