# SPDX-License-Identifier: GPL-2.0-or-later
"""A machine of QEMU's whose processor is the test. By QEMU's qtest protocol it finds the
ivshmem device, gives its memory an address, reads and writes there."""

import subprocess
import tempfile

ADDRESS = 0xC000_0000  # free for a device


class Machine:
    def __init__(self, words):
        """@param words: more options for QEMU"""
        self.said = tempfile.TemporaryFile()
        self.qemu = subprocess.Popen(
            ["qemu-system-x86_64", "-nodefaults", "-display", "none", "-M", "q35", "-m", "64M",
             "-accel", "tcg", "-S", "-qtest", "stdio", "-qtest-log", "/dev/null", *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said)

    def ask(self, *words):
        """The answer's words; none once QEMU has ended."""
        try:
            self.qemu.stdin.write((" ".join(words) + "\n").encode())
            self.qemu.stdin.flush()
        except BrokenPipeError:
            return []
        answer = self.qemu.stdout.readline().decode().split()
        return answer[1:] if answer[:1] == ["OK"] else []

    def config(self, slot, register, value=None):
        """Reads or writes 32 bits of a device's configuration."""
        self.ask("outl", "0xcf8", hex(1 << 31 | slot << 11 | register))
        if value is None:
            return int((self.ask("inl", "0xcfc") or ["0"])[0], 16)
        self.ask("outl", "0xcfc", hex(value))
        return None

    def find(self):
        """Gives the device's memory its address. Its size; 0 without a device."""
        for slot in range(32):
            if self.config(slot, 0) == 0x1110_1AF4:
                self.config(slot, 0x18, 0xFFFF_FFFF)
                size = -(self.config(slot, 0x18) & ~0xF) & 0xFFFF_FFFF
                self.config(slot, 0x18, ADDRESS)
                self.config(slot, 0x1C, 0)
                self.config(slot, 0x04, 2)
                return size
        return 0

    def read(self, place, size):
        answer = self.ask("read", hex(ADDRESS + place), hex(size))
        return bytes.fromhex(answer[0][2:]) if answer else b""

    def write(self, place, data):
        self.ask("write", hex(ADDRESS + place), hex(len(data)), "0x" + data.hex())

    def messages(self):
        """Everything that QEMU has said."""
        self.said.seek(0)
        return self.said.read().decode()

    def end(self):
        """As a crash of QEMU's would."""
        self.qemu.kill()
        self.qemu.communicate()
        self.said.close()
