#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes the inputs that fuzzing of the driver's ABI starts from.

make_corpus.py DIRECTORY

Each is a sequence of calls that makes sense, as abi_executor.hpp lays them out.
"""

import pathlib
import struct
import sys

KINDS = (
    "open driver raw control transfer map change touch close dup pass pipe seek "
    "fallocate inquire device child fail files press own poison debug limited"
).split()
CHUNKS = [n << 2 for n in range(9)]
PAGE = 1 | 1 << 2


def call(kind, thread=0, file=0, other=0, variant=0, slot=0, amount=0, value=0, meek=False):
    """One record."""
    how = thread | (0x80 if meek else 0)
    return struct.pack(
        "<BBBBIQ", KINDS.index(kind), how, file | other << 4, slot | variant << 4, amount, value
    )


OPEN = call("open")
ALLOC = call("driver", variant=0, amount=CHUNKS[2])
MAP = call("map", amount=CHUNKS[2])
WRITE = call("touch", slot=0, amount=PAGE)
FREE = call("driver", variant=2)
EXPORT = call("driver", variant=3)
DMABUF = call("driver", variant=11)
PRESS = call("press")


def guaranteed(chunks, **more):
    """An instance whose memory is guaranteed, open."""
    return call("own", variant=0, amount=chunks - 1, **more)


def swapped(chunks, **more):
    """An instance with a swap file, open."""
    return call("own", variant=2, amount=chunks - 1, **more)


def resize(chunks, **more):
    """Another size of the instance."""
    return call("own", variant=8, amount=chunks, **more)


def alloc(chunks, **more):
    """A region."""
    return call("driver", variant=0, amount=CHUNKS[chunks], **more)


def mapped(chunks, **more):
    """The first region, mapped."""
    return call("map", amount=CHUNKS[chunks], **more)


def write(*chunks, **more):
    """A byte in each of these chunks."""
    return b"".join(call("touch", amount=CHUNKS[chunk], **more) for chunk in chunks)


def discard(chunk=0, **more):
    """A chunk of the first region, which is none any more."""
    return call("driver", variant=5, amount=CHUNKS[1], value=3 | chunk << 37, **more)


def limited(chunks, **more):
    """A region at the expense of a cgroup with room for few chunks."""
    return call("limited", amount=chunks - 1, **more)


DESTROY = call("own", variant=12)
REVOKE = call("own", variant=13)

SEEDS = {
    "map": OPEN + ALLOC + MAP + WRITE + FREE + WRITE,
    "populate": OPEN + call("driver", variant=8, amount=CHUNKS[3]) + MAP + call("child", amount=1),
    "meek": call("open", meek=True) + ALLOC + call("map", amount=CHUNKS[2], meek=True)
    + call("transfer", variant=0, amount=4096, meek=True, value=7 | 12 << 16)
    + call("driver", variant=5, amount=CHUNKS[1], meek=True),
    "export": OPEN + ALLOC + EXPORT + call("map", file=1, amount=CHUNKS[2]) + WRITE
    + call("fallocate", file=1, amount=1 | 1 << 2) + call("pass", file=1)
    + call("transfer", file=2, variant=7, amount=4000) + call("seek", file=1, amount=2),
    "import": OPEN + ALLOC + EXPORT + OPEN + call("driver", file=2, other=1, variant=4)
    + call("close", file=0) + call("map", file=2, amount=CHUNKS[2]) + WRITE
    + call("driver", file=2, variant=2),
    "dmabuf": OPEN + ALLOC + DMABUF + call("map", file=1, amount=CHUNKS[2]) + WRITE
    + call("device", file=1, variant=8, value=1) + call("device", variant=0)
    + call("device", file=2, other=1, variant=2) + call("driver", variant=5, amount=CHUNKS[1])
    + call("device", file=1, variant=8, value=5) + call("device", file=2, variant=5)
    + call("device", file=2, variant=6),
    "charge": OPEN + call("driver", variant=14, amount=CHUNKS[1])
    + call("driver", variant=6, amount=CHUNKS[1]) + call("driver", variant=15, amount=3, value=4)
    + call("driver", variant=7) + call("files", variant=0) + call("files", variant=8, value=17),
    "control": call("control", variant=0, amount=CHUNKS[1], value=2)
    + call("open", slot=8) + call("control", variant=2, value=1) + call("control", variant=1)
    + call("close") + call("control", variant=1) + call("files", slot=8, variant=8, value=3),
    "swap": call("control", variant=4, amount=CHUNKS[1], value=8)
    + call("open", slot=8) + call("driver", variant=8, amount=CHUNKS[2]) + MAP + WRITE
    + call("press") + call("touch", amount=PAGE, value=1) + call("press")
    + call("transfer", variant=2, amount=4096) + call("press") + call("driver", variant=5, amount=CHUNKS[1])
    + call("press") + FREE,
    "swap_race": call("control", variant=4, amount=CHUNKS[1], value=8)
    + call("open", slot=8) + call("driver", variant=8, amount=CHUNKS[2]) + MAP + WRITE
    + b"".join(
        call("press", thread=1) + call("touch", thread=2, amount=PAGE) + call("touch", amount=PAGE)
        for _ in range(3)
    )
    + call("control", thread=2, variant=1, value=1) + call("press", thread=1) + FREE,
    "guaranteed": guaranteed(4) + alloc(4) + mapped(4) + write(0, 1, 2, 3) + discard(0) + discard(1)
    + write(1, 0) + call("files", slot=8, variant=8, value=9) + FREE + call("close") + DESTROY,
    "guaranteed_resize": guaranteed(1) + alloc(1) + mapped(1) + write(0) + resize(4) + alloc(2) + resize(3)
    + resize(2) + FREE + resize(3) + resize(0) + resize(2) + alloc(2) + call("close") + resize(1) + DESTROY,
    "guaranteed_client": guaranteed(4, value=4 | 1 << 3) + alloc(2) + alloc(1) + call("open", slot=8)
    + alloc(2, file=1) + alloc(1, file=1) + call("debug", slot=8, amount=500),
    "guaranteed_failed_memory": guaranteed(2) + alloc(2) + mapped(2) + write(0, 1) + call("poison", value=7 << 12)
    + call("transfer", variant=2, amount=4096) + discard(0) + write(0) + call("poison", value=9 << 12)
    + discard(0) + resize(4) + write(0, 1) + FREE + resize(1) + alloc(1),
    "guaranteed_shrunk": guaranteed(3) + alloc(1) + mapped(1) + write(0) + call("poison", value=1 << 12)
    + discard(0) + resize(1) + resize(3) + write(0) + call("close") + DESTROY,
    "guaranteed_race": guaranteed(1) + alloc(1) + mapped(1)
    + b"".join(write(0, thread=1) + discard(thread=2) + write(0) for _ in range(4)),
    "guaranteed_race_resize": guaranteed(2) + alloc(2) + mapped(2) + write(0, 1)
    + b"".join(discard(thread=1) + write(0, thread=2) + resize(n) + resize(2) for n in (4, 3))
    + call("driver", thread=1, variant=2) + resize(1, thread=2) + resize(0),
    "guaranteed_revoke": guaranteed(2) + alloc(2) + mapped(2) + write(0) + EXPORT + REVOKE + write(0, 1) + alloc(1)
    + guaranteed(2) + alloc(2),
    "guaranteed_race_revoke": guaranteed(2) + alloc(2) + mapped(2) + write(0, thread=1) + discard(thread=2)
    + REVOKE + write(1, thread=1) + discard(1, thread=2) + guaranteed(2),
    "guaranteed_pinned": guaranteed(2) + alloc(2) + mapped(2) + write(0, 1)
    + b"".join(call("pipe", thread=1, variant=12) + discard(thread=2) + write(0) for _ in range(3)) + FREE + resize(1),
    "guaranteed_import": guaranteed(2) + alloc(2) + DMABUF + call("device") + call("device", file=2, other=1, variant=2)
    + discard(0) + FREE + resize(4) + call("close") + call("close", file=1) + REVOKE,
    "guaranteed_fail": b"".join(
        call("fail", amount=n) + guaranteed(2) + call("fail", amount=n) + resize(4) + call("close") + DESTROY
        for n in (3, 7, 12, 20, 28)
    ),
    "guaranteed_group": call("limited", variant=1, amount=3) + call("limited", variant=1, amount=1) + alloc(2)
    + mapped(2) + write(0, 1) + resize(4) + call("poison") + discard(0) + write(0) + FREE + call("close") + DESTROY,
    "full_group": swapped(4) + limited(4) + mapped(4) + write(0, 1, 2, 3) + write(0, 1, 2, 3)
    + call("transfer", variant=2, amount=4096) + discard(0) + write(0) + PRESS + FREE,
    "full_group_race": swapped(4) + limited(4) + mapped(4)
    + b"".join(write(n, thread=1) + write(3 - n, thread=2) + write((n + 1) % 4) for n in range(4))
    + call("driver", variant=2),
    "full_group_revoke": swapped(4) + limited(4) + mapped(4) + write(0, 1, 2) + write(3, 0, thread=1)
    + write(1, thread=2) + REVOKE + write(2) + swapped(4),
    "full_group_two": swapped(4) + swapped(4, slot=1) + limited(4) + limited(4, file=1) + mapped(4)
    + call("map", file=1, slot=1, amount=CHUNKS[4]) + write(0, 1, 2, slot=1) + write(0, 1, 2, 3)
    + write(3, slot=1) + call("change", slot=1, variant=5, amount=CHUNKS[2]) + write(0),
    "full_group_import": swapped(4) + limited(4) + mapped(4) + write(0, 1) + DMABUF + call("device")
    + call("device", file=2, other=1, variant=2) + write(0),
    "full_group_plain": OPEN + limited(4) + mapped(4) + write(0, 1, 2, 3) + discard(0) + write(3),
    "swap_failed_memory": swapped(2) + alloc(2) + mapped(2) + write(0, 1) + call("poison", value=3 << 12) + PRESS
    + write(0, 1) + PRESS + discard(0) + PRESS + write(0),
    "swap_resize": swapped(2) + alloc(2) + mapped(2) + write(0, 1) + PRESS + PRESS + resize(4) + resize(1) + FREE
    + resize(1) + call("press", variant=12) + DESTROY,
    "swap_file_cut": swapped(4) + limited(4) + mapped(4) + write(0, 1, 2, 3) + call("own", variant=10)
    + write(0, 1, 2, 3) + discard(0) + write(0) + call("own", variant=10, amount=1) + write(1, 3, 2) + REVOKE,
    "swap_killed": swapped(4) + limited(4) + mapped(4) + write(0, 1, 2)
    + b"".join(call("child", variant=4, amount=1, value=n % 4 * 2 << 20 | n * 9000 << 32) for n in range(1, 7))
    + write(0, 1, 2, 3),
    "swap_killed_race": swapped(4) + limited(4) + mapped(4) + write(0, 1, 2)
    + b"".join(
        call("child", variant=4, amount=1, thread=1, value=n << 21 | n * 7000 << 32) + write(3 - n, thread=2)
        for n in range(4)
    )
    + write(0, 1, 2, 3),
    "killed": guaranteed(1) + DESTROY
    + b"".join(call("limited", variant=5, amount=1, slot=n, value=(1 + n) * 1500 << 32) for n in range(4))
    + guaranteed(4) + b"".join(call("limited", variant=6, amount=3, value=n * 2500 << 32) for n in range(4)),
    "swap_revoke": swapped(2) + alloc(2) + mapped(2) + write(0, 1) + PRESS + PRESS + EXPORT + REVOKE + write(0)
    + swapped(2),
    "tables": OPEN + alloc(2) + mapped(2) + write(0) + EXPORT + alloc(1) + call("debug", amount=500)
    + call("debug", variant=1, amount=500) + FREE + call("debug", amount=20) + call("close")
    + call("debug", variant=2, amount=100, value=40) + call("debug", variant=3, amount=9, value=70),
    "tables_race": OPEN + alloc(2)
    + b"".join(
        call("debug", thread=1, amount=60) + call("debug", thread=2, variant=1, amount=60) + FREE + alloc(1)
        for _ in range(3)
    ),
    "bind": call("control", variant=8, amount=CHUNKS[1], value=8 | 0x20)
    + call("open", slot=8) + ALLOC + MAP + WRITE
    + call("control", variant=8, amount=CHUNKS[1], value=8)
    + call("control", variant=12, slot=1, amount=CHUNKS[1], value=8 | 0x20)
    + call("control", variant=4, slot=2 | 8, amount=CHUNKS[1], value=8),
    "cancel": OPEN + OPEN + call("driver", variant=14, amount=CHUNKS[8])
    + call("driver", thread=1, variant=14, amount=CHUNKS[8], value=1 | 3999998)
    + call("driver", thread=2, variant=6, amount=CHUNKS[1], value=2)
    + call("driver", thread=2, variant=6, amount=CHUNKS[8]),
    "client_part": call("control", variant=0, amount=CHUNKS[1], value=2 | 0x100 | 4 << 29)
    + call("open", slot=8) + ALLOC + ALLOC + call("open", slot=8) + call("driver", file=1, amount=CHUNKS[2]),
    "revoke": call("control", variant=0, amount=CHUNKS[1], value=8)
    + call("open", slot=8) + ALLOC + MAP + WRITE + EXPORT
    + call("control", variant=1, value=1) + WRITE + ALLOC + call("map", file=1, amount=CHUNKS[2]) + FREE,
    "pipe": OPEN + ALLOC + MAP + WRITE + call("pipe", variant=12, amount=4096)
    + call("pipe", variant=4, amount=4096) + call("inquire", variant=1)
    + call("change", variant=4, amount=CHUNKS[1]),
    "remap": OPEN + ALLOC + MAP + WRITE
    + call("change", variant=2, amount=CHUNKS[1], value=3 << 61 | 4 << 18)
    + call("change", slot=3, variant=1, amount=PAGE) + call("change", variant=7, amount=CHUNKS[1])
    + call("change", variant=7, amount=CHUNKS[1], value=1 << 16),
    "race": OPEN + ALLOC + MAP
    + b"".join(
        call("touch", thread=1, amount=PAGE) + call("driver", thread=2, variant=5, amount=CHUNKS[2])
        for _ in range(3)
    )
    + call("driver", thread=1, variant=2) + ALLOC + call("close", thread=2),
    "race_import": OPEN + OPEN + ALLOC + EXPORT
    + call("driver", thread=1, file=1, other=2, variant=4) + call("driver", thread=2, variant=2)
    + call("close", thread=1) + call("map", thread=2, file=1, amount=CHUNKS[2])
    + call("touch", thread=1, amount=PAGE),
    "fail": OPEN + call("fail", amount=2) + ALLOC + ALLOC + call("fail", amount=1) + EXPORT
    + call("fail", amount=3) + MAP + MAP + call("fail", amount=4) + WRITE + WRITE,
    "raw": OPEN + call("raw", amount=24, value=0, variant=8) + call("raw", amount=5000, value=2)
    + call("raw", variant=4, value=3) + call("raw", variant=2, slot=1, amount=24),
    "reload": b"\xffphysical_vram_mb=16,8 virtual_vram_mb=32,8 gpu_model=4070,RTX instance_id=3",
    "reload_refused": b"\xffphysical_vram_gb=4 virtual_vram_mb=7 numa_node=9",
    "reload_lists": b"\xffphysical_vram_mb=1 pci_device_id=0x2786 host_floor_mb=64 overcommit=1",
}


def main():
    """Writes them all."""
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
