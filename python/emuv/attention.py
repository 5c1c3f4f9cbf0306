# SPDX-License-Identifier: LGPL-2.1-or-later
"""Exact attention over keys and values that come a block at a time.

    from emuv.attention import attention
    out = attention(q, k, v, causal=True, block=4096)

The scores are never there as a whole, so keys and values of any length need room
for one block beside themselves. They may lie in system RAM while the queries lie on
a card: then each block is copied there, and no longer.
"""

import math

import torch


def _check(q, k, v, block, window):
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4:
            raise ValueError(f"{name} has {tensor.dim()} dimensions, not 4: "
                             "[batch, heads, tokens, width]")
        if not tensor.is_floating_point():
            raise ValueError(f"{name} has no floating-point numbers")
        if tensor.dtype != q.dtype:
            raise ValueError("q, k and v have one type")
    if k.shape[:3] != v.shape[:3] or k.device != v.device:
        raise ValueError("k and v have the same batch, heads, tokens and device")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError("q and k have the same batch and width")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"{q.shape[1]} heads of q are not a multiple of "
                         f"{k.shape[1]} heads of k")
    if block < 1 or (window is not None and window < 1):
        raise ValueError("block and window are at least 1")


class _Shape:
    """What a query may see, and which blocks that takes."""

    def __init__(self, q, k, causal, window, block, scale):
        self.queries, self.keys = q.shape[2], k.shape[2]
        self.groups = q.shape[1] // k.shape[1]
        # The last query stands at the last key: a cache has grown behind it.
        self.ahead = self.keys - self.queries
        self.causal = causal or window is not None
        self.window, self.block, self.scale = window, block, scale
        # As cuBLAS adds products of 16 bits in 32, so do the sums here.
        self.type = torch.float64 if q.dtype == torch.float64 else torch.float32

    def pieces(self):
        """Pairs of a range of keys and the queries that see any of them."""
        for begin in range(0, self.keys, self.block):
            end = min(begin + self.block, self.keys)
            first, last = 0, self.queries
            if self.causal:
                first = max(0, begin - self.ahead)
            if self.window is not None:
                last = min(last, end - 1 + self.window - self.ahead)
            # Queries in parts as well, or scores would grow with their number.
            for start in range(first, last, self.block):
                yield begin, end, start, min(start + self.block, last)

    def grouped(self, heads):
        """[batch, heads, ...] of queries as [batch, heads of keys, group, ...]."""
        return heads.unflatten(1, (-1, self.groups))

    def scores(self, q, k, place):
        """Scaled scores of a piece; -inf where a query may not look."""
        begin, end, start, stop = place
        scores = torch.matmul(q.to(self.type),
                              k.to(self.type).transpose(-2, -1)) * self.scale
        if not self.causal:
            return scores
        here = torch.arange(start, stop, device=q.device)[:, None] + self.ahead
        there = torch.arange(begin, end, device=q.device)
        hidden = there > here
        if self.window is not None:
            hidden = hidden | (there <= here - self.window)
        return scores.masked_fill(hidden, -math.inf)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, shape):
        grouped = shape.grouped(q)
        size = grouped.shape[:-1]
        out = torch.zeros(*size, v.shape[3], dtype=shape.type, device=q.device)
        most = torch.full(size, -math.inf, dtype=shape.type, device=q.device)
        total = torch.zeros(size, dtype=shape.type, device=q.device)
        for place, keys, values in _blocks(shape, q, k, v):
            _, _, start, stop = place
            scores = shape.scores(grouped[..., start:stop, :], keys, place)
            before = most[..., start:stop]
            after = torch.maximum(before, scores.amax(-1))
            # A query that has seen no key yet has no maximum.
            finite = after.masked_fill(after == -math.inf, 0)
            weights = torch.exp(scores - finite[..., None])
            shrunk = torch.exp(before - finite)
            total[..., start:stop] = \
                total[..., start:stop] * shrunk + weights.sum(-1)
            out[..., start:stop, :] = out[..., start:stop, :] \
                * shrunk[..., None] + torch.matmul(weights,
                                                   values.to(shape.type))
            most[..., start:stop] = after
        seen = total > 0
        total = total.masked_fill(~seen, 1)
        out = (out / total[..., None]).flatten(1, 2)
        # Of a query that sees nothing, -inf would make NaN of all that follows.
        sums = torch.where(seen, most + total.log(), torch.full_like(total,
                                                                     math.inf))
        ctx.shape = shape
        ctx.save_for_backward(q, k, v, out, sums)
        return out.to(q.dtype)

    @staticmethod
    def backward(ctx, given):
        q, k, v, out, sums = ctx.saved_tensors
        shape = ctx.shape
        grouped = shape.grouped(q)
        given = shape.grouped(given.to(shape.type))
        own = (given * shape.grouped(out)).sum(-1, keepdim=True)
        of_q = torch.zeros_like(grouped, dtype=shape.type)
        of_k = torch.zeros_like(k)
        of_v = torch.zeros_like(v)
        block = None
        for place, keys, values in _blocks(shape, q, k, v):
            begin, end, start, stop = place
            if block is None or block[0] != begin:
                _put(of_k, of_v, block)
                block = (begin, end,
                         torch.zeros_like(keys[:, :, 0], dtype=shape.type),
                         torch.zeros_like(values[:, :, 0], dtype=shape.type))
            part = grouped[..., start:stop, :]
            behind = given[..., start:stop, :]
            weights = torch.exp(shape.scores(part, keys, place)
                                - sums[..., start:stop, None])
            slope = weights * (torch.matmul(
                behind, values.to(shape.type).transpose(-2, -1))
                - own[..., start:stop, :]) * shape.scale
            of_q[..., start:stop, :] += torch.matmul(slope, keys.to(shape.type))
            # Heads that share keys add up.
            block[2].add_(torch.matmul(slope.transpose(-2, -1),
                                       part.to(shape.type)).sum(2))
            block[3].add_(torch.matmul(weights.transpose(-2, -1),
                                       behind).sum(2))
        _put(of_k, of_v, block)
        return of_q.flatten(1, 2).to(q.dtype), of_k, of_v, None


def _blocks(shape, q, k, v):
    """Pieces with their keys and values, [batch, heads, 1, tokens, width], at the
    queries' device. Each block is copied there once."""
    held = None
    for place in shape.pieces():
        begin, end = place[:2]
        if held is None or held[0] != begin:
            held = (begin, *(each[:, :, None, begin:end].to(q.device)
                             for each in (k, v)))
        yield place, held[1], held[2]


def _put(of_k, of_v, block):
    """Keeps the gradients of a block where k and v lie."""
    if block is not None:
        begin, end, keys, values = block
        of_k[:, :, begin:end] = keys.to(of_k)
        of_v[:, :, begin:end] = values.to(of_v)


def attention(q, k, v, causal=False, block=1024, window=None, scale=None):
    """softmax(q · kᵀ · scale) · v, exactly, a block of keys at a time.

    q: [batch, heads, queries, width]. k: [batch, key heads, keys, width]. v: the
    same but for its width. The heads of q are a multiple of those of k; heads next
    to each other share theirs. k and v may lie in system RAM.
    causal: a query sees no later key. The last query stands at the last key, so
    queries of a cache that has grown are its end.
    block: keys, and queries, that are multiplied at once.
    window: each query sees so many keys, its own the last; implies causal.
    scale: of the scores; 1 / sqrt(width) by default.

    Sums run in 32 bits (64 for float64), with the largest score so far taken out.
    Returns [batch, heads, queries, width of v] of q's type, at q's device; zeros
    for a query that sees no key. Has gradients for q, k and v. Raises ValueError.
    """
    _check(q, k, v, block, window)
    if scale is None:
        scale = 1 / math.sqrt(q.shape[3])
    return _Attention.apply(q, k, v, _Shape(q, k, causal, window, block, scale))
