#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""One tensor in two processes, as tests/cuda/device/run runs it: what one writes
the other reads, and the ledger that they share counts it once."""

import torch
import torch.multiprocessing

MIB = 64


def reader(given, answer):
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    tensor = given.get()
    answer.put((before - torch.cuda.mem_get_info()[0]) >> 20)
    answer.put(int(tensor.sum(dtype=torch.int64)))
    tensor.add_(1)
    torch.cuda.synchronize()
    answer.put("written")
    given.get()  # the memory is the other's, who still looks at it


def main():
    context = torch.multiprocessing.get_context("spawn")
    given, answer = context.Queue(), context.Queue()
    count = (MIB << 20) // 4
    tensor = torch.arange(count, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    other = context.Process(target=reader, args=(given, answer))
    other.start()
    given.put(tensor)
    print("counted_mib", answer.get(timeout=60))
    print("read", int(answer.get(timeout=60) == count * (count - 1) // 2))
    answer.get(timeout=60)
    seen = int(tensor.sum(dtype=torch.int64))
    print("written", int(seen == count * (count + 1) // 2))
    given.put(None)
    other.join()


if __name__ == "__main__":
    main()
