#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""model_cupy.py GIB: CuPy with about GIB gibibytes of weights. Prints lines of
"name value"; `result` is a sum over every bit of what came out."""

import sys
import time

import cupy

SIDE = 8192


def drawn(rows, seed):
    """Numbers between -1 and 1, by a hash of their place."""
    x = cupy.arange(rows * SIDE, dtype=cupy.uint32)
    x += cupy.uint32(seed * 0x9e3779b9 & 0xffffffff)
    for factor in (0x7feb352d, 0x846ca68b):
        x ^= x >> cupy.uint32(16)
        x *= cupy.uint32(factor)
    x ^= x >> cupy.uint32(16)
    drawn_to = x.astype(cupy.float32)
    drawn_to *= cupy.float32(2.0 ** -31)
    drawn_to -= cupy.float32(1)
    return drawn_to.reshape(rows, SIDE)


def forward(y, weights):
    for weight in weights:
        y = cupy.tanh(y @ weight)
    cupy.cuda.Device().synchronize()
    return y


def main():
    count = int(float(sys.argv[1]) * 2 ** 30 / (4 * SIDE * SIDE))
    weights = []
    for seed in range(count):
        weight = drawn(SIDE, seed + 1)
        weight *= cupy.float32((3 / SIDE) ** 0.5)
        weights.append(weight)
    x = drawn(256, 0)
    forward(x, weights)
    start = time.monotonic()
    out = forward(x, weights)
    seconds = time.monotonic() - start
    words = out.view(cupy.uint32).ravel().astype(cupy.uint64)
    odd = 2 * cupy.arange(words.size, dtype=cupy.uint64) + 1
    print("result", int((words * odd).sum()))
    print(f"seconds {seconds:.2f}")
    print("allocated_mib", cupy.get_default_memory_pool().total_bytes() >> 20)


main()
