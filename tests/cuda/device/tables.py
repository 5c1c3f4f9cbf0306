#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""tables.py NAME ROUNDS: kernels that find addresses in memory, between passes
over more memory than the share. Prints "right" or "wrong".

  inverse    CuPy's linalg.inv of 64 matrices of 512 x 512
  embedding  PyTorch's embedding(scale_grad_by_freq=True) back, 2^21 indices
  batched    cublasSgemmBatched with its tables in managed memory
"""

import sys

GIB = 2 ** 30


def inverse(rounds):
    import cupy
    ballast = [cupy.zeros(GIB // 8, dtype=cupy.float32) for _ in range(10)]
    rng = cupy.random.default_rng(1)
    a = rng.standard_normal((64, 512, 512), dtype=cupy.float32) + 64 * cupy.eye(512, dtype=cupy.float32)
    good = True
    for _ in range(rounds):
        for each in ballast:
            each += 1
        made = cupy.linalg.inv(a)
        good = good and bool(cupy.abs(a @ made - cupy.eye(512)).max() < 1e-2)
    return good and all(bool((each == rounds).all()) for each in ballast)


def embedding(rounds):
    import torch
    ballast = [torch.zeros(GIB // 8, device="cuda") for _ in range(10)]
    torch.manual_seed(1)
    indices = torch.randint(1000, (1 << 21,), device="cuda")
    table = torch.randn(1000, 64, device="cuda", requires_grad=True)
    good = True
    for _ in range(rounds):
        for each in ballast:
            each += 1
        table.grad = None
        out = torch.nn.functional.embedding(indices, table, scale_grad_by_freq=True)
        out.backward(torch.ones_like(out))
        # Each row's gradients add up to one.
        seen = torch.bincount(indices, minlength=1000) > 0
        good = good and torch.allclose(table.grad[seen], torch.ones(1, device="cuda"), atol=1e-3)
    return good and all(bool((each == rounds).all()) for each in ballast)


def batched(rounds):
    import cupy
    from cupy_backends.cuda.libs import cublas
    import numpy
    ballast = [cupy.zeros(GIB // 8, dtype=cupy.float32) for _ in range(10)]
    count, side = 16, 1024
    rng = cupy.random.default_rng(1)
    a, b, c = ([rng.standard_normal((side, side), dtype=cupy.float32) for _ in range(count)] for _ in range(3))
    tables = []
    for matrices in (a, b, c):
        memory = cupy.cuda.malloc_managed(8 * count)
        table = cupy.ndarray(count, cupy.uint64, memory)
        # Written by the processor, so that nothing is copied.
        import ctypes
        ctypes.memmove(memory.ptr, numpy.array([each.data.ptr for each in matrices], dtype=numpy.uint64).tobytes(), 8 * count)
        tables.append(table)
    one = numpy.array(1, dtype=numpy.float32)
    none = numpy.array(0, dtype=numpy.float32)
    handle = cupy.cuda.device.get_cublas_handle()
    good = True
    for _ in range(rounds):
        for each in ballast:
            each += 1
        for each in c:
            each.fill(0)
        cublas.sgemmBatched(handle, cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, side, side, side, one.ctypes.data,
                            tables[1].data.ptr, side, tables[0].data.ptr, side, none.ctypes.data, tables[2].data.ptr,
                            side, count)
        good = good and all(bool(cupy.allclose(z, x @ y, rtol=1e-2, atol=1e-1)) for x, y, z in zip(a, b, c))
    return good and all(bool((each == rounds).all()) for each in ballast)


def main():
    name, rounds = sys.argv[1], int(sys.argv[2])
    good = {"inverse": inverse, "embedding": embedding, "batched": batched}[name](rounds)
    print("right" if good else "wrong")
    sys.exit(0 if good else 1)


main()
