#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""model_torch.py GIB MODE...: PyTorch with a model of about GIB gibibytes, its
gradients included where there are any, in each of the modes eager, graph and
compile. Prints lines of "name value", the names led by the mode; `result` is a
sum over every bit of what came out."""

import gc
import sys
import time

import torch

SIDE = 8192


def bits(tensor):
    """A sum over the bits, in whole numbers: it depends on no order."""
    return int(tensor.contiguous().view(torch.int16).to(torch.int64)
               .mul(torch.arange(1, SIDE + 1, device=tensor.device)).sum())


def layer(y, weight):
    return torch.tanh(y @ weight)


def make(gib, trains):
    """Weights that fill so much memory, with room for gradients or without."""
    count = max(2, int(gib * 2 ** 30 / (2 * SIDE * SIDE)))
    if trains:
        count //= 2
    torch.manual_seed(0)
    weights = [(torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
                / SIDE ** 0.5).requires_grad_(trains) for _ in range(count)]
    return weights, torch.randn(256, SIDE, device="cuda", dtype=torch.bfloat16)


def timed(work):
    torch.cuda.synchronize()
    start = time.monotonic()
    out = work()
    torch.cuda.synchronize()
    return out, time.monotonic() - start


def eager(gib):
    weights, x = make(gib, True)

    def forward():
        y = x
        for weight in weights:
            y = layer(y, weight)
        return y

    def train():
        y = forward()
        y.float().square().mean().backward()
        return y

    forward()
    out, seconds = timed(train)
    result = bits(out)
    for weight in weights:
        result ^= bits(weight.grad)
    return result, seconds


def graph(gib):
    weights, x = make(gib, False)

    def forward():
        y = x
        for weight in weights:
            y = layer(y, weight)
        return y

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        forward()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        out = forward()

    def replay():
        for _ in range(2):
            captured.replay()
            x.copy_(out)

    _, seconds = timed(replay)
    return bits(out), seconds


def compiled(gib):
    weights, x = make(gib, False)
    fast = torch.compile(lambda y, weight: layer(y, weight) + 0.5 * y)

    def forward():
        y = x
        for weight in weights:
            y = fast(y, weight)
        return y

    forward()
    out, seconds = timed(forward)
    return bits(out), seconds


MODES = {"eager": eager, "graph": graph, "compile": compiled}


def main():
    torch.use_deterministic_algorithms(True)
    for mode in sys.argv[2:]:
        torch.cuda.reset_peak_memory_stats()
        with torch.set_grad_enabled(mode == "eager"):
            result, seconds = MODES[mode](float(sys.argv[1]))
        print(f"{mode}.result {result}")
        print(f"{mode}.seconds {seconds:.2f}")
        print(f"{mode}.allocated_mib {torch.cuda.max_memory_allocated() >> 20}",
              flush=True)
        gc.collect()
        torch.cuda.empty_cache()


main()
