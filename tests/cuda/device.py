#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""PyTorch as tests/cuda/device.sh runs it: a model and its gradients of about
`GIB` gibibytes. Prints sums of every bit of the results, and times."""

import sys
import time

import torch

MODE = sys.argv[1]
GIB = float(sys.argv[2])
SIDE = 8192


def bits(tensor):
    """A sum over the bits, in whole numbers: it depends on no order."""
    return int(tensor.contiguous().view(torch.int16).to(torch.int64)
               .mul(torch.arange(1, SIDE + 1, device=tensor.device)).sum())


torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
layers = max(2, int(GIB * 2 ** 30 / (2 * SIDE * SIDE * 2)))
weights = [(torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
            / SIDE ** 0.5).requires_grad_(MODE != "graph")
           for _ in range(layers * (1 if MODE != "graph" else 2))]
x = torch.randn(256, SIDE, device="cuda", dtype=torch.bfloat16)


def forward(y):
    for weight in weights:
        y = torch.tanh(y @ weight)
    return y


if MODE == "graph":
    with torch.no_grad():
        static = x.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            forward(static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = forward(static)
        torch.cuda.synchronize()
        start = time.time()
        for _ in range(2):
            graph.replay()
            static.copy_(out)
        torch.cuda.synchronize()
        print("seconds %.2f" % (time.time() - start))
        print("result", bits(out))
else:
    forward(x)
    torch.cuda.synchronize()
    start = time.time()
    out = forward(x)
    out.float().square().mean().backward()
    torch.cuda.synchronize()
    print("seconds %.2f" % (time.time() - start))
    total = bits(out)
    for weight in weights:
        total ^= bits(weight.grad)
    print("result", total)
print("allocated_mib", torch.cuda.max_memory_allocated() >> 20)
