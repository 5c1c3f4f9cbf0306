#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""convolutions_torch.py: convolutions of cuDNN, forth and back, in several
shapes and types. Prints "ok N" for N of them that come out as on the CPU."""

import torch
import torch.nn.functional as F

torch.backends.cudnn.allow_tf32 = False
torch.backends.cuda.matmul.allow_tf32 = False
TYPES = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
# Dimensions, channels in and out, size, kernel, stride, padding, groups.
SHAPES = [
    (1, 32, 64, 256, 5, 1, 2, 1),
    (2, 3, 64, 64, 7, 2, 3, 1),
    (2, 64, 64, 32, 3, 1, 1, 1),
    (2, 64, 128, 32, 1, 2, 0, 1),
    (2, 64, 64, 32, 3, 1, 1, 64),
    (2, 64, 96, 30, 3, 2, 1, 4),
    (3, 16, 32, 12, 3, 1, 1, 1),
]


def close(made, wanted, most):
    made, wanted = made.float().cpu(), wanted.float()
    return bool((made - wanted).abs().max() <= most * (1 + wanted.abs().max()))


def run(shape, dtype, last, transposed):
    dims, inputs, outputs, size, kernel, stride, padding, groups = shape
    name = f"conv{'_transpose' if transposed else ''}{dims}d"
    torch.manual_seed(1)
    x = torch.randn(4, inputs, *[size] * dims)
    first, second = (inputs, outputs) if transposed else (outputs, inputs)
    w = torch.randn(first, second // groups, *[kernel] * dims) / (inputs * kernel ** dims) ** 0.5
    x, w = x.to(dtype).float(), w.to(dtype).float()
    sides = []
    for device in ("cpu", "cuda"):
        a = x.clone().to(device, torch.float32 if device == "cpu" else dtype)
        b = w.clone().to(a.device, a.dtype)
        if last and dims == 2:
            a = a.to(memory_format=torch.channels_last)
        a.requires_grad_()
        b.requires_grad_()
        y = getattr(F, name)(a, b, stride=stride, padding=padding, groups=groups)
        y.float().square().mean().backward()
        sides.append([y.detach(), a.grad, b.grad])
    return all(close(made, wanted, TYPES[dtype]) for wanted, made in zip(*sides))


def main():
    good = 0
    for benchmark in (False, True):
        torch.backends.cudnn.benchmark = benchmark
        for shape in SHAPES:
            for dtype in TYPES:
                for last, transposed in ((False, False), (True, False), (False, True)):
                    if run(shape, dtype, last, transposed):
                        good += 1
                    else:
                        print("wrong", shape, dtype, last, transposed)
    print("ok", good)


main()
