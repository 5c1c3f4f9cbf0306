# SPDX-License-Identifier: LGPL-2.1-or-later
"""Exact attention over keys and values that come a block at a time.

    from emuv.attention import attention
    out = attention(q, k, v, causal=True, block=4096)

The scores are never there as a whole, so keys and values of any length need room
for two blocks beside themselves. They may lie in system RAM while the queries lie on
a card: then each block is copied there while the one before is used.

On a card, 16-bit blocks go through PyTorch's own flash kernels. All else is written
as products of matrices.
"""

import collections
import functools
import math

import torch

# Keys, and queries, of a tile that has a mask made for it.
_SIDE = 1024
_BLOCK = 1024
# Of what lies in RAM, a block is as large as the thread takes time to launch the work
# of one. The first is smaller, since no work runs beside its copy.
_FUSED_BYTES = 64 << 20
_FUSED_BLOCK = 4096
_SMALLER = 8


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
    if any(each is not None and each < 1 for each in (block, window)):
        raise ValueError("block and window are at least 1")


# A product of some keys and some queries. Mask: None, where each query sees each key;
# "causal", of as many queries as keys, the first at the first; or "edge".
_Piece = collections.namedtuple("_Piece", "begin end start stop mask")


class _Shape:
    """The keys that a query may see, and the pieces that takes.

    Positions are those of keys: query i stands at i + ahead, so the last query
    stands at the last key. A cache has grown behind it.
    """

    def __init__(self, q, k, causal, window, block, scale, fused=False,
                 first=None):
        self.queries, self.keys = q.shape[2], k.shape[2]
        self.groups = q.shape[1] // k.shape[1]
        self.ahead = self.keys - self.queries
        self.causal = causal or window is not None
        self.window, self.block, self.scale = window, block, scale
        self.fused, self.first = fused, first or block
        # As cuBLAS adds products of 16 bits in 32, so do the sums here.
        self.type = torch.float64 if q.dtype == torch.float64 else torch.float32

    def bounds(self):
        """Begin and end of each block of keys. They double up to the largest."""
        begin, size = 0, self.first
        while begin < self.keys:
            end = min(begin + size, self.keys)
            yield begin, end
            begin, size = end, min(2 * size, self.block)

    def blocks(self):
        """Ranges of keys that any query sees, each with a list of its pieces. A
        query of a piece sees at least one of its keys."""
        for begin, end in self.bounds():
            low, high = self.ahead, self.keys
            if self.causal:
                low = max(low, begin)
            if self.window is not None:
                high = min(high, end - 1 + self.window)
            if low < high:
                yield begin, end, list(self._cut(begin, end, low, high))

    def pieces(self):
        """All pieces, block by block."""
        for _, _, pieces in self.blocks():
            yield from pieces

    def _piece(self, begin, end, low, high, mask):
        return _Piece(begin, end, low - self.ahead, high - self.ahead, mask)

    def _cut(self, begin, end, low, high):
        """Pieces of a block: of keys from begin, and of queries from low on."""
        if not self.causal:
            yield from self._free(begin, end, low, high)
            return
        # The query at the last key sees all of the block.
        if low < end - 1:
            yield from self._behind(begin, low, low, end)
            if self.window is None or end - low <= self.window:
                yield self._piece(low, end, low, end, "causal")
            else:
                yield from self._tiles(low, end, low, end)
            low = end
        yield from self._behind(begin, end, low, high)

    def _behind(self, begin, end, low, high):
        """Pieces of keys that are not later than any of the queries."""
        if begin >= end:
            return
        if self.window is None:
            yield from self._free(begin, end, low, high)
            return
        whole = min(high, max(low, begin + self.window))
        yield from self._free(begin, end, low, whole)
        yield from self._tiles(begin, end, whole,
                               min(high, end - 1 + self.window))

    def _free(self, begin, end, low, high):
        """Pieces of which all is seen."""
        # Without a flash kernel scores would grow with the number of queries.
        step = max(1, high - low) if self.fused else self.block
        for start in range(low, high, step):
            yield self._piece(begin, end, start, min(start + step, high), None)

    def _tiles(self, begin, end, low, high):
        """Pieces at a window's edge, small enough for a mask."""
        side = min(self.block, _SIDE)
        for first in range(begin, end, side):
            last = min(first + side, end)
            for start in range(low, high, side):
                # Those of the queries that see any of these keys.
                near = max(start, first)
                far = min(start + side, high, last - 1 + self.window)
                if near < far:
                    whole = last - 1 <= near and far - 1 - self.window < first
                    yield self._piece(first, last, near, far,
                                      None if whole else "edge")

    def grouped(self, heads):
        """[batch, heads, ...] of queries as [batch, heads of keys, group, ...]."""
        return heads.unflatten(1, (-1, self.groups))

    def scores(self, q, k, piece):
        """Scaled scores of a piece; -inf where a query may not look.

        q: [batch, heads, group, queries, width]. k: [batch, heads, keys, width].
        """
        scores = torch.matmul(q.to(self.type).flatten(2, 3),
                              k.to(self.type).transpose(-2, -1)) * self.scale
        scores = scores.unflatten(2, q.shape[2:4])
        if piece.mask is None:
            return scores
        here = torch.arange(piece.start, piece.stop,
                            device=q.device)[:, None] + self.ahead
        there = torch.arange(piece.begin, piece.end, device=q.device)
        hidden = there > here
        if self.window is not None:
            hidden = hidden | (there <= here - self.window)
        return scores.masked_fill(hidden, -math.inf)


def _matmul_forward(shape, q, k, v, piece):
    scores = shape.scores(q, k, piece)
    most = scores.amax(-1)
    # A query that sees no key has no maximum.
    finite = most.masked_fill(most == -math.inf, 0)
    weights = scores.sub_(finite[..., None]).exp_()
    total = weights.sum(-1)
    out = torch.matmul(weights.flatten(2, 3), v.to(shape.type))
    out = out.unflatten(2, q.shape[2:4])
    return (out / total.masked_fill(total == 0, 1)[..., None],
            finite + total.log())


def _matmul_backward(shape, piece, tensors):
    q, k, v, _, sums, given, own = tensors
    given = given.to(shape.type)
    weights = torch.exp(shape.scores(q, k, piece) - sums[..., None])
    # Heads that share keys add up, as more queries do.
    slope = torch.matmul(given.flatten(2, 3), v.to(shape.type).transpose(-2, -1))
    slope = weights * (slope.unflatten(2, q.shape[2:4]) - own) * shape.scale
    slope, weights = slope.flatten(2, 3), weights.flatten(2, 3)
    of_q = torch.matmul(slope, k.to(shape.type)).unflatten(2, q.shape[2:4])
    of_k = torch.matmul(slope.transpose(-2, -1),
                        q.to(shape.type).flatten(2, 3))
    of_v = torch.matmul(weights.transpose(-2, -1), given.flatten(2, 3))
    return of_q, of_k, of_v


def _folded(tensor, causal):
    """Queries, [batch, heads, group, queries, ...], as a flash kernel takes them.
    Without a mask, a group is more queries of one head."""
    tensor = tensor.flatten(1, 2) if causal else tensor.flatten(2, 3)
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _spread(tensor, groups, causal):
    """Keys, or values, for queries that are folded so."""
    if causal and groups > 1:
        tensor = tensor[:, :, None].expand(-1, -1, groups, -1, -1).flatten(1, 2)
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _flash_forward(q, k, v, causal, scale):
    """A flash kernel's output and log-sum-exp, of q's shape; see _block_forward.
    causal: as many queries as keys, and each sees those up to its own."""
    out, sums = torch.ops.aten._scaled_dot_product_flash_attention(
        _folded(q, causal), _spread(k, q.shape[2], causal),
        _spread(v, q.shape[2], causal), 0.0, causal, False, scale=scale)[:2]
    return out.reshape(q.shape), sums.reshape(q.shape[:-1])


def _flash_backward(tensors, causal, scale):
    """A flash kernel's gradients for q, k and v. It computes weights from the sums
    that it is given, so with those of all keys a block's gradients are exact."""
    q, k, v, out, sums, given = tensors
    groups = q.shape[2]
    queries, keys = _folded(q, causal), _spread(k, groups, causal)
    # Of a random state, which only dropout needs.
    none = torch.empty((), dtype=torch.int64, device=q.device)
    of_q, of_k, of_v = \
        torch.ops.aten._scaled_dot_product_flash_attention_backward(
            _folded(given, causal), queries, keys, _spread(v, groups, causal),
            _folded(out, causal), _folded(sums, causal).contiguous(), None, None,
            queries.shape[2], keys.shape[2], 0.0, causal, none, none, scale=scale)
    if causal and groups > 1:
        of_k, of_v = (each.unflatten(1, (-1, groups)).sum(
            2, dtype=sums.dtype) for each in (of_k, of_v))
    return of_q.reshape(q.shape), of_k, of_v


def _block_forward(shape, q, k, v, piece):
    """The softmax of a piece alone, as if there were no other keys.

    q: [batch, heads, group, queries, width], k and v: [batch, heads, keys, width].
    Returns the output, as q but of v's width, and the logarithm of the sum of
    exp(score), [batch, heads, group, queries].
    """
    if shape.fused and piece.mask != "edge":
        return _flash_forward(q, k, v, piece.mask == "causal", shape.scale)
    return _matmul_forward(shape, q, k, v, piece)


def _block_backward(shape, piece, tensors):
    """Returns a piece's part of the gradients of q, k and v. tensors: q, k, v,
    output, sums, output's gradient, and the sum of output times gradient. Output
    and sums are those of all keys."""
    if shape.fused and piece.mask != "edge":
        return _flash_backward(tensors[:6], piece.mask == "causal", shape.scale)
    return _matmul_backward(shape, piece, tensors)


def _merge(out, sums, part, part_sums):
    """Adds a block's output to that of the blocks before, in place. Each counts by
    its sum of exp(score), of which sums have the logarithm."""
    # Both shares add up to 1, so this one says all.
    share = torch.sigmoid(part_sums - sums)
    share = share.masked_fill(part_sums == -math.inf, 0)
    out.lerp_(part.to(out.dtype), share[..., None])
    sums.copy_(torch.logaddexp(sums, part_sums))


def _plain(function):
    """A function in which autocast does not shorten the sums."""
    @functools.wraps(function)
    def called(*arguments):
        with torch.autocast("cuda", enabled=False), \
                torch.autocast("cpu", enabled=False):
            return function(*arguments)
    return called


class _Attention(torch.autograd.Function):
    @staticmethod
    @_plain
    def forward(ctx, q, k, v, shape):
        grouped = shape.grouped(q)
        size = grouped.shape[:-1]
        out = torch.zeros(*size, v.shape[3], dtype=shape.type, device=q.device)
        sums = torch.full(size, -math.inf, dtype=shape.type, device=q.device)
        for begin, _, pieces, keys, values in _blocks(shape, q, k, v):
            for piece in pieces:
                there = slice(piece.begin - begin, piece.end - begin)
                here = slice(piece.start, piece.stop)
                part, part_sums = _block_forward(
                    shape, grouped[..., here, :], keys[:, :, there],
                    values[:, :, there], piece)
                _merge(out[..., here, :], sums[..., here], part, part_sums)
        # Of a query that sees nothing, -inf would make NaN of all that follows.
        sums = sums.masked_fill(sums == -math.inf, math.inf)
        out = out.flatten(1, 2)
        given = out.to(q.dtype)
        ctx.shape = shape
        # A flash kernel wants an output of its own type.
        ctx.save_for_backward(q, k, v, given if shape.fused else out, sums)
        return given

    # The sums are taken for constants, so there is no second derivative.
    @staticmethod
    @torch.autograd.function.once_differentiable
    @_plain
    def backward(ctx, given):
        q, k, v, out, sums = ctx.saved_tensors
        shape = ctx.shape
        q, out, given = (shape.grouped(each) for each in (q, out, given))
        own = (given.to(shape.type) * out.to(shape.type)).sum(-1, keepdim=True)
        of_q = torch.zeros_like(q, dtype=shape.type)
        gradients = _Gradients(q, k, v, any(ctx.needs_input_grad[1:3]))
        for begin, end, pieces, keys, values in _blocks(shape, q, k, v):
            of_k = torch.zeros_like(keys, dtype=shape.type)
            of_v = torch.zeros_like(values, dtype=shape.type)
            for piece in pieces:
                there = slice(piece.begin - begin, piece.end - begin)
                here = slice(piece.start, piece.stop)
                parts = _block_backward(shape, piece, (
                    q[..., here, :], keys[:, :, there], values[:, :, there],
                    out[..., here, :], sums[..., here], given[..., here, :],
                    own[..., here, :]))
                of_q[..., here, :] += parts[0]
                of_k[:, :, there] += parts[1]
                of_v[:, :, there] += parts[2]
            gradients.put(begin, end, of_k, of_v)
        return (of_q.flatten(1, 2).to(q.dtype), *gradients.all(), None)


def _spilled(q, k):
    return q.is_cuda and k.device.type == "cpu"


def _blocks(shape, q, k, v):
    """Blocks of keys and values, [batch, heads, tokens, width], at the queries'
    device: begin, end, pieces, keys, values. Each is copied there once."""
    if not _spilled(q, k):
        for begin, end, pieces in shape.blocks():
            yield (begin, end, pieces,
                   *(each[:, :, begin:end].to(q.device) for each in (k, v)))
        return
    blocks = list(shape.blocks())
    if not blocks:
        return
    ahead = _Ahead(q.device, k, v, max(block[1] - block[0] for block in blocks),
                   min(2, len(blocks)))
    try:
        ahead.fetch(0, *blocks[0][:2])
        for turn, (begin, end, pieces) in enumerate(blocks):
            yield (begin, end, pieces, *ahead.take(turn))
            ahead.used(turn)
            # Memory that is not pinned holds up the thread, so the block's work
            # is launched first.
            if turn + 1 < len(blocks):
                ahead.fetch(turn + 1, *blocks[turn + 1][:2])
    finally:
        ahead.close()


@functools.lru_cache(maxsize=None)
def _side_stream(device, _way):
    """A stream of a device beside that of its work, for each way of the link."""
    return torch.cuda.Stream(device)


def _order(tensor):
    """A tensor's dimensions, the one with the widest steps first."""
    return sorted(range(tensor.dim()), key=lambda one: -tensor.stride(one))


def _copy(to, of):
    """Copies without a wait, in parts that are contiguous at both ends. Others
    PyTorch would gather in memory that is not pinned, and wait for."""
    if to.dim() <= 2 or (to.is_contiguous() and of.is_contiguous()):
        to.copy_(of, non_blocking=True)
        return
    for part, source in zip(to, of):
        _copy(part, source)


class _Ahead:
    """Two blocks' room on a card. One is filled from system RAM on a stream of its
    own, while the current stream uses the other."""

    def __init__(self, device, k, v, block, rooms):
        self.sources = k, v
        self.current = torch.cuda.current_stream(device)
        self.stream = _side_stream(device, "in")
        self.room = [[torch.empty(each[:, :, :block].numel(), dtype=each.dtype,
                                  device=device) for each in (k, v)]
                     for _ in range(rooms)]
        self.ready = [torch.cuda.Event() for _ in self.room]
        self.free = [None for _ in self.room]
        self.held = [None for _ in self.room]
        # The room may be in use until now, and k and v may be written until now.
        self.stream.wait_stream(self.current)

    def fetch(self, turn, begin, end):
        """Starts to copy a block, once the block before the last is used."""
        slot = turn % len(self.room)
        if self.free[slot] is not None:
            self.stream.wait_event(self.free[slot])
        self.held[slot] = []
        with torch.cuda.stream(self.stream):
            for source, room in zip(self.sources, self.room[slot]):
                part = source[:, :, begin:end]
                order = _order(part)
                part = part.permute(order)
                here = room[:part.numel()].view(part.shape)
                _copy(here, part)
                back = [order.index(one) for one in range(len(order))]
                self.held[slot].append(here.permute(back))
            self.ready[slot].record(self.stream)

    def take(self, turn):
        """Keys and values of a block, which the current stream has waited for."""
        slot = turn % len(self.room)
        self.current.wait_event(self.ready[slot])
        return self.held[slot]

    def used(self, turn):
        """Says that all work with a block has been launched."""
        self.free[turn % len(self.room)] = self.current.record_event()

    def close(self):
        """Nothing is filled any more once the current stream is past here. So the
        room can be given back."""
        self.current.wait_stream(self.stream)


class _Gradients:
    """Gradients of k and v, where those lie."""

    def __init__(self, q, k, v, wanted):
        self.device, self.spilled = q.device, _spilled(q, k)
        self.tensors = []
        # Copies on their way, each with the event of its arrival.
        self.away = collections.deque()
        if wanted and self.spilled:
            self.tensors = [
                torch.empty_like(each, pin_memory=each.is_pinned()).zero_()
                for each in (k, v)]
            self.stream = _side_stream(q.device, "out")
        elif wanted:
            self.tensors = [torch.zeros_like(each) for each in (k, v)]

    def put(self, begin, end, *parts):
        """Keeps a block's gradients; they are copied beside later work."""
        if not self.tensors:
            return
        parts = [part.to(each.dtype) for part, each in zip(parts, self.tensors)]
        there = [each[:, :, begin:end] for each in self.tensors]
        if not self.spilled:
            for each, part in zip(there, parts):
                each.copy_(part)
            return
        # Two blocks at most take room while they wait for the link.
        while len(self.away) > 1:
            self.away.popleft()[0].synchronize()
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            for each, part in zip(there, parts):
                order = _order(each)
                _copy(each.permute(order), part.permute(order))
            self.away.append((self.stream.record_event(), parts))

    def all(self):
        """Both, once they have arrived. None for each where neither is wanted."""
        while self.away:
            self.away.popleft()[0].synchronize()
        return self.tensors or (None, None)


@functools.lru_cache(maxsize=None)
@_plain
def _flash_works(device, kind, width):
    """True if PyTorch has the flash kernels in the form that is called here, and
    they say what products of matrices say. Asked once a process."""
    count = 2 * 2 * 16 * width
    made = [torch.sin(torch.arange(count, device=device) * factor).to(kind)
            for factor in (0.7, 1.1, 1.3, 1.7)]
    q, given = (each.view(1, 1, 2, 32, width) for each in (made[0], made[3]))
    k, v = (each.view(1, 2, 32, width)[:, :1] for each in made[1:3])
    for causal in (False, True):
        shape = _Shape(q.flatten(1, 2), k, causal, None, 32, width ** -0.5)
        piece = _Piece(0, 32, 0, 32, "causal" if causal else None)
        out, sums = _matmul_forward(shape, q, k, v, piece)
        own = (given * out).sum(-1, keepdim=True)
        due = (out, sums, *_matmul_backward(shape, piece, (q, k, v, out, sums,
                                                           given, own)))
        try:
            got = (*_flash_forward(q, k, v, causal, shape.scale),
                   *_flash_backward((q, k, v, out.to(kind), sums, given), causal,
                                    shape.scale))
        except torch.cuda.OutOfMemoryError:
            raise
        except (AttributeError, RuntimeError, TypeError):
            return False
        for one, other in zip(got, due):
            if not (one - other).abs().max() <= 0.05 * other.abs().max():
                return False
    return True


def _fused(q, v):
    """True if flash kernels take these."""
    width = q.shape[3]
    return (q.is_cuda and q.dtype in (torch.float16, torch.bfloat16)
            and v.shape[3] == width and width % 8 == 0 and width <= 256
            and _flash_works(q.device, q.dtype, width))


def _block_in_ram(k, v):
    """Keys of the largest block of what lies in RAM, and of the first."""
    a_key = sum(each.element_size() * each.shape[0] * each.shape[1] *
                each.shape[3] for each in (k, v))
    largest = max(_FUSED_BLOCK, _FUSED_BYTES // max(1, a_key) // 1024 * 1024)
    return largest, max(1024, largest // _SMALLER)


def attention(q, k, v, causal=False, block=None, window=None, scale=None):
    """softmax(q · kᵀ · scale) · v, exactly, a block of keys at a time.

    q: [batch, heads, queries, width]. k: [batch, key heads, keys, width]. v: the
    same but for its width. The heads of q are a multiple of those of k; heads next
    to each other share theirs. k and v may lie in system RAM. Pinned memory is
    copied at the full rate of the link. As with copies that do not block, change it
    only after the card is done.
    causal: a query sees no later key. The last query stands at the last key, so
    queries of a cache that has grown are its end.
    block: keys, and without flash kernels queries, that are multiplied at once. By
    default 1024. Without a window, flash kernels take all that lies on the card.
    Of keys in RAM they take up to 64 MiB, or 4096 keys.
    window: each query sees so many keys, its own the last; implies causal.
    scale: of the scores; 1 / sqrt(width) by default.

    Sums run in 32 bits (64 for float64), with the largest score taken out. On a
    card, blocks of 16-bit numbers go through flash kernels where PyTorch has them.
    Each block's output is rounded to 16 bits then, before it is added.
    Returns [batch, heads, queries, width of v] of q's type, at q's device; zeros
    for a query that sees no key. Has gradients for q, k and v. Raises ValueError.
    """
    _check(q, k, v, block, window)
    if scale is None:
        scale = 1 / math.sqrt(q.shape[3])
    fused = _fused(q, v)
    first = None
    if block is None:
        block = _BLOCK
        if fused and window is None:
            block = max(1, k.shape[2])
            if _spilled(q, k):
                block, first = _block_in_ram(k, v)
    return _Attention.apply(q, k, v, _Shape(q, k, causal, window, block, scale,
                                            fused, first))
