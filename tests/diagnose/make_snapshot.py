#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes samples/snapshot*.pickle, in the form of PyTorch's memory snapshots.

snapshot.pickle: a program that keeps one more block of 24 MiB each step, until
512 MiB are refused. 1 GiB is cached then, in pieces of 8 MiB.
snapshot_devices.pickle: two cards. The first one holds more, and had a refusal
earlier; the second one refused last.
"""

import pathlib
import pickle

MIB = 1 << 20
KEPT = [{"filename": "/home/ada/train.py", "line": 31, "name": "step"},
        {"filename": "/home/ada/train.py", "line": 80, "name": "main"}]


def main():
    """Writes the file."""
    segments = []
    for number in range(128):
        base = 0x7F0000000000 + number * 32 * MIB
        segments.append({
            "device": 0, "address": base, "total_size": 32 * MIB,
            "allocated_size": 24 * MIB, "active_size": 24 * MIB,
            "requested_size": 24 * MIB - 100, "stream": 0,
            "segment_type": "large", "segment_pool_id": (0, 0),
            "is_expandable": False, "frames": [],
            "blocks": [
                {"address": base, "size": 24 * MIB, "requested_size": 24 * MIB - 100,
                 "state": "active_allocated", "frames": KEPT},
                {"address": base + 24 * MIB, "size": 8 * MIB, "requested_size": 0,
                 "state": "inactive", "frames": []}]})
    trace = []
    for number in range(128):
        base = 0x7F0000000000 + number * 32 * MIB
        trace.append({"action": "alloc", "addr": base, "size": 24 * MIB, "stream": 0,
                      "time_us": number, "frames": KEPT})
        for action in ("alloc", "free_completed"):
            trace.append({"action": action, "addr": base + 24 * MIB, "size": 8 * MIB,
                          "stream": 0, "time_us": number, "frames": []})
    trace.append({"action": "oom", "size": 512 * MIB, "stream": 0, "device_free": 96 * MIB,
                  "time_us": 128, "frames": KEPT})
    data = {"segments": segments, "device_traces": [trace],
            "allocator_settings": {"expandable_segments": False, "roundup": 1.5}}
    write("snapshot.pickle", data)
    write("snapshot_devices.pickle", {
        "segments": [whole(0, 6 * 1024), whole(1, 1024), whole(1, 512)],
        "device_traces": [[refusal(2048, 5), freed(2048, 9)], [refusal(256, 7)]]})


def whole(device, mib):
    """A segment that is one block."""
    return {"device": device, "address": 0x7E0000000000, "total_size": mib * MIB,
            "blocks": [{"address": 0x7E0000000000, "size": mib * MIB,
                        "state": "active_allocated", "frames": KEPT}]}


def refusal(mib, when):
    """An event of a history."""
    return {"action": "oom", "size": mib * MIB, "device_free": 64 * MIB, "time_us": when,
            "frames": KEPT}


def freed(mib, when):
    """The same."""
    return {"action": "free_completed", "addr": 0, "size": mib * MIB, "time_us": when,
            "frames": []}


def write(name, data):
    """Writes one file."""
    (pathlib.Path(__file__).parent / "samples" / name).write_bytes(
        pickle.dumps(data, protocol=4))


if __name__ == "__main__":
    main()
