#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""emuv.attention against the plain formula in 64 bits. Without PyTorch all of it is
skipped."""

import contextlib
import math
import pathlib
import sys
import unittest
from unittest import mock

sys.dont_write_bytecode = True
PACKAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "python/emuv"

import with_torch  # noqa: E402, F401
import torch  # noqa: E402

# The file alone: the package's other modules are named as libraries are.
sys.path.insert(0, str(PACKAGE.parent))
import emuv.attention as module  # noqa: E402
from emuv.attention import attention  # noqa: E402


def plain(q, k, v, causal=False, window=None, scale=None):
    """The formula, with all scores at once, in 64 bits."""
    q, k, v = q.double(), k.double(), v.double()
    groups = q.shape[1] // k.shape[1]
    k, v = (each.repeat_interleave(groups, 1) for each in (k, v))
    scores = q @ k.transpose(-2, -1) * (scale or 1 / math.sqrt(q.shape[3]))
    here = torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
    there = torch.arange(k.shape[2])
    hidden = torch.zeros(q.shape[2], k.shape[2], dtype=torch.bool)
    if causal or window:
        hidden |= there > here
    if window:
        hidden |= there <= here - window
    blind = hidden.all(-1)
    weights = scores.masked_fill(hidden, -math.inf)
    weights = weights.masked_fill(blind[:, None], 0).softmax(-1)
    return (weights @ v).masked_fill(blind[:, None], 0)


def made(seed, *size, kind=torch.float32, grad=True):
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(*size, generator=chance, dtype=torch.float64).to(
        kind).requires_grad_(grad)


class AttentionTest(unittest.TestCase):
    def expect_plain(self, q, k, v, block, within, **how):
        """Result and gradients, both within an error of the formula's."""
        out = attention(q, k, v, block=block, **how)
        wanted = plain(q, k, v, **how)
        self.assertEqual(out.dtype, q.dtype)
        self.assertEqual(out.shape, wanted.shape)
        self.assertLess((out.double() - wanted).abs().max().item(), within)
        behind = made(9, *wanted.shape, grad=False).double()
        got = torch.autograd.grad(out, (q, k, v), behind.to(out.dtype))
        due = torch.autograd.grad(wanted, (q, k, v), behind)
        for one, other in zip(got, due):
            self.assertEqual(one.dtype, q.dtype)
            self.assertLess((one.double() - other.double()).abs().max().item(),
                            within * max(1, other.abs().max().item()))

    def test_result_and_gradients_are_the_formulas_in_64_bits(self):
        for block in (1, 7, 16, 64, 1000):
            for how in ({}, {"causal": True}, {"window": 5}, {"window": 33},
                        {"causal": True, "window": 64}, {"scale": 0.3}):
                with self.subTest(block=block, **how):
                    q = made(1, 2, 2, 37, 8, kind=torch.float64)
                    k = made(2, 2, 2, 37, 8, kind=torch.float64)
                    v = made(3, 2, 2, 37, 8, kind=torch.float64)
                    self.expect_plain(q, k, v, block, 1e-12, **how)

    def test_32_bits_lose_no_more_than_one_softmax_does(self):
        q, k, v = (made(seed, 1, 4, 129, 16) for seed in (1, 2, 3))
        for how in ({}, {"causal": True}, {"window": 50}):
            with self.subTest(**how):
                self.expect_plain(q, k, v, 32, 5e-6, **how)

    def test_16_bits_are_rounded_once(self):
        q, k, v = (made(seed, 1, 2, 65, 16, kind=torch.bfloat16)
                   for seed in (1, 2, 3))
        out = attention(q, k, v, causal=True, block=16)
        wanted = plain(q, k, v, causal=True)
        # Half a step of bf16, and what 32 bits lose.
        allowed = wanted.abs() * 2.0 ** -8 + 1e-5
        self.assertTrue(((out.double() - wanted).abs() <= allowed).all())

    def test_heads_that_share_keys_and_values(self):
        for heads, shared in ((6, 2), (4, 1), (3, 3)):
            with self.subTest(heads=heads, shared=shared):
                q = made(1, 2, heads, 19, 8, kind=torch.float64)
                k = made(2, 2, shared, 19, 8, kind=torch.float64)
                v = made(3, 2, shared, 19, 5, kind=torch.float64)
                self.expect_plain(q, k, v, 4, 1e-12, causal=True)

    def test_a_cache_that_has_grown_ends_at_the_last_query(self):
        for queries, keys in ((1, 50), (3, 50), (50, 51)):
            for how in ({"causal": True}, {"window": 7}, {}):
                with self.subTest(queries=queries, keys=keys, **how):
                    q = made(1, 1, 2, queries, 8, kind=torch.float64)
                    k = made(2, 1, 2, keys, 8, kind=torch.float64)
                    v = made(3, 1, 2, keys, 8, kind=torch.float64)
                    self.expect_plain(q, k, v, 8, 1e-12, **how)

    def test_token_by_token_is_all_at_once(self):
        q, k, v = (made(seed, 1, 2, 20, 8, grad=False) for seed in (1, 2, 3))
        whole = attention(q, k, v, causal=True, block=6)
        for last in range(1, 21):
            one = attention(q[:, :, last - 1:last], k[:, :, :last],
                            v[:, :, :last], causal=True, block=6)
            self.assertLess((one[:, :, 0] - whole[:, :, last - 1]).abs().max(),
                            1e-6)

    def test_queries_that_see_no_key_are_zeros_without_nan(self):
        q = made(1, 1, 1, 9, 8, kind=torch.float64)
        k = made(2, 1, 1, 4, 8, kind=torch.float64)
        v = made(3, 1, 1, 4, 8, kind=torch.float64)
        self.expect_plain(q, k, v, 2, 1e-12, causal=True)
        out = attention(q, k, v, causal=True, block=2)
        self.assertEqual(out[:, :, :5].abs().max(), 0)

    def test_scores_far_apart_neither_overflow_nor_vanish(self):
        q, k, v = (made(seed, 1, 1, 33, 8) for seed in (1, 2, 3))
        big = attention(q * 300, k * 300, v, causal=True, block=4)
        self.assertTrue(torch.isfinite(big).all())
        wanted = plain(q * 300, k * 300, v, causal=True)
        self.assertLess((big.double() - wanted).abs().max(), 1e-3)

    def test_a_window_reads_no_block_that_nobody_sees(self):
        q, k = made(1, 1, 1, 4, 8), made(2, 1, 1, 1000, 8)
        shape = module._Shape(q, k, True, 10, 16, 1.0)
        begins = {piece[0] for piece in shape.pieces()}
        # Keys 987 to 999; those from 996 on are the queries' own.
        self.assertEqual(begins, {976, 992, 996})
        self.assertEqual([each[:2] for each in shape.blocks()],
                         [(976, 992), (992, 1000)])

    def test_no_scores_larger_than_a_block_are_made(self):
        most = []
        kept = module._Shape.scores

        def scores(shape, q, k, place):
            made_here = kept(shape, q, k, place)
            most.append(made_here.shape[-2:])
            return made_here
        module._Shape.scores = scores
        try:
            q, k, v = (made(seed, 1, 1, 101, 8) for seed in (1, 2, 3))
            attention(q, k, v, block=16).sum().backward()
        finally:
            module._Shape.scores = kept
        self.assertGreater(len(most), 2 * 7 * 6)
        self.assertLessEqual(max(max(each) for each in most), 16)

    def test_wrong_arguments_are_errors(self):
        q, k, v = (made(seed, 2, 4, 8, 8, grad=False) for seed in (1, 2, 3))
        for wrong in ((q[0], k, v), (q, k[:, :3], v[:, :3]), (q, k, v[:, :2]),
                      (q, k[..., :4], v), (q, k[:1], v[:1]), (q.double(), k, v),
                      (q.long(), k.long(), v.long()), (q, k[:, :0], v[:, :0]),
                      (q, k[:, :, :4], v)):
            with self.assertRaises(ValueError):
                attention(*wrong)
        for how in ({"block": 0}, {"window": 0}):
            with self.assertRaises(ValueError):
                attention(q, k, v, **how)

    def test_only_what_needs_gradients_gets_them(self):
        q, k, v = (made(seed, 1, 2, 9, 8, grad=seed == 1) for seed in (1, 2, 3))
        attention(q, k, v, causal=True, block=4).sum().backward()
        self.assertIsNotNone(q.grad)
        self.assertIsNone(k.grad)


class PiecesTest(unittest.TestCase):
    SHAPES = [(queries, keys, causal, window, block, fused)
              for queries, keys in ((1, 1), (1, 9), (9, 9), (5, 23), (23, 5),
                                    (37, 41))
              for causal, window in ((False, None), (True, None), (True, 1),
                                     (True, 3), (True, 8), (True, 100))
              for block in (1, 4, 7, 64) for fused in (False, True)]

    def pieces(self, queries, keys, causal, window, block, fused):
        return module._Shape(made(1, 1, 1, queries, 8), made(2, 1, 1, keys, 8),
                             causal, window, block, 1.0, fused).pieces()

    def setUp(self):
        # Tiles of a window's edge are small enough to be several.
        kept = mock.patch.object(module, "_SIDE", 3)
        kept.start()
        self.addCleanup(kept.stop)

    def test_pieces_are_all_that_is_seen_and_each_pair_once(self):
        for one in self.SHAPES:
            queries, keys, causal, window = one[:4]
            here = torch.arange(queries)[:, None] + keys - queries
            there = torch.arange(keys)
            due = torch.ones(queries, keys, dtype=torch.bool)
            if causal:
                due = (there <= here) & (there > here - (window or keys + queries))
            got = torch.zeros(queries, keys, dtype=torch.int64)
            for begin, end, start, stop, mask in self.pieces(*one):
                part = torch.ones(stop - start, end - begin, dtype=torch.int64)
                if mask == "causal":
                    part = part.tril()
                elif mask == "edge":
                    part = due[start:stop, begin:end].long()
                got[start:stop, begin:end] += part
            self.assertTrue(torch.equal(got, due.long()), one)

    def test_blocks_double_up_to_the_largest_and_are_all_keys(self):
        shape = module._Shape(made(1, 1, 1, 5, 8), made(2, 1, 1, 1000, 8), True,
                              None, 256, 1.0, True, 64)
        bounds = list(shape.bounds())
        self.assertEqual([end - begin for begin, end in bounds],
                         [64, 128, 256, 256, 256, 40])
        self.assertEqual([0] + [end for _, end in bounds],
                         [begin for begin, _ in bounds] + [1000])

    def test_growing_blocks_give_what_blocks_of_one_size_give(self):
        q, k, v = made(1, 1, 2, 70, 8), made(2, 1, 1, 333, 8), made(3, 1, 1, 333, 8)
        due = attention(q, k, v, causal=True, block=64)
        shape = module._Shape(q, k, True, None, 128, 8 ** -0.5, False, 16)
        got = module._Attention.apply(q, k, v, shape)
        self.assertLess((got - due).abs().max().item(), 2e-6)

    def test_what_lies_in_ram_comes_in_blocks_of_64_mib(self):
        for heads, width, largest in ((4, 128, 32768), (128, 128, 4096)):
            k = torch.empty(1, heads, 8, width, dtype=torch.bfloat16)
            self.assertEqual(module._block_in_ram(k, k),
                             (largest, max(1024, largest // 8)))

    def test_a_causal_piece_is_a_square_and_each_query_sees_a_key(self):
        for one in self.SHAPES:
            queries, keys, _, window = one[:4]
            for begin, end, start, stop, mask in self.pieces(*one):
                self.assertLess(begin, end, one)
                self.assertLess(start, stop, one)
                if mask == "causal":
                    self.assertEqual(stop - start, end - begin, one)
                    self.assertEqual(begin, start + keys - queries, one)
                if mask == "edge":
                    for query in range(start, stop):
                        at = query + keys - queries
                        self.assertTrue(begin <= at and end > at + 1 - window, one)


class MergeTest(unittest.TestCase):
    def merged(self, parts):
        out = torch.zeros(1, 8, dtype=torch.float64)
        sums = torch.full((1,), -math.inf, dtype=torch.float64)
        for scores, values in parts:
            scores, values = scores.double(), values.double()
            part_sums = scores.logsumexp(0)[None]
            weights = torch.exp(scores - part_sums).nan_to_num(0)
            module._merge(out, sums, (weights @ values)[None], part_sums)
        return out, sums

    def test_blocks_of_very_different_maxima(self):
        for offsets in ((0, 0, 0), (0, 50, -50), (700, -700, 0), (-1e5, 1e5, 0),
                        (1e5, 0, -1e5)):
            parts = [(made(turn, 5, grad=False) + offset,
                      made(turn + 9, 5, 8, grad=False))
                     for turn, offset in enumerate(offsets)]
            out, sums = self.merged(parts)
            scores = torch.cat([each for each, _ in parts]).double()
            values = torch.cat([each for _, each in parts]).double()
            self.assertLess((out - scores.softmax(0) @ values).abs().max(), 1e-9)
            self.assertLess((sums - scores.logsumexp(0)).abs().max(), 1e-9)

    def test_averages_of_blocks_are_wrong_and_their_sums_make_them_right(self):
        parts = [(made(turn, 5, grad=False) + 3 * turn,
                  made(turn + 9, 5, 8, grad=False)) for turn in range(3)]
        scores = torch.cat([each for each, _ in parts]).double()
        due = scores.softmax(0) @ torch.cat([each for _, each in parts]).double()
        averages = sum(one.double().softmax(0) @ other.double()
                       for one, other in parts) / len(parts)
        self.assertGreater((averages - due).abs().max(), 0.1)
        self.assertLess((self.merged(parts)[0] - due).abs().max(), 1e-12)

    def test_a_block_that_is_not_seen_adds_nothing(self):
        blind = (torch.full((5,), -math.inf), made(7, 5, 8, grad=False))
        seen = (made(1, 5, grad=False), made(2, 5, 8, grad=False))
        alone, sums = self.merged([seen])
        for parts in ([blind, seen], [seen, blind], [blind, blind, seen, blind]):
            out, others = self.merged(parts)
            self.assertLess((out - alone).abs().max(), 1e-12)
            self.assertLess((others - sums).abs().max(), 1e-12)
        out, sums = self.merged([blind, blind])
        self.assertEqual((out.abs().max(), sums[0]), (0, -math.inf))

    def test_no_number_is_hidden_that_is_none(self):
        q, k, v = (made(seed, 1, 1, 20, 8, grad=False) for seed in (1, 2, 3))
        k[0, 0, 3] = math.nan
        out = attention(q, k, v, causal=True, block=4)
        self.assertTrue(torch.isfinite(out[:, :, :3]).all())
        self.assertTrue(torch.isnan(out[:, :, 3:]).all())


def flash(q, k, v, dropout, causal, debug, scale):
    """The flash operator's promises, in any type and on any device."""
    assert q.shape[:2] == k.shape[:2] == v.shape[:2] and not dropout and not debug
    assert all(each.stride(-1) == 1 for each in (q, k, v))
    scores = q @ k.transpose(-2, -1) * scale
    if causal:
        assert q.shape[2] == k.shape[2]
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    # The kernel keeps tokens outside of heads.
    out = (scores.softmax(-1) @ v).transpose(1, 2).contiguous().transpose(1, 2)
    return out, scores.logsumexp(-1), None, None, q.shape[2], k.shape[2], 1, 2, 3


def flash_backward(given, q, k, v, out, sums, _one, _other, queries, keys, dropout,
                   causal, _seed, _offset, scale):
    assert sums.is_contiguous() and sums.shape == q.shape[:3] and not dropout
    assert (queries, keys) == (q.shape[2], k.shape[2])
    scores = q @ k.transpose(-2, -1) * scale
    if causal:
        assert queries == keys
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    weights = torch.exp(scores - sums[..., None])
    slope = weights * (given @ v.transpose(-2, -1)
                       - (given * out).sum(-1, keepdim=True)) * scale
    return slope @ k, slope.transpose(-2, -1) @ q, weights.transpose(-2, -1) @ given


class ModesTest(unittest.TestCase):
    def test_autocast_does_not_shorten_the_sums(self):
        def grads():
            q, k, v = (made(seed, 1, 2, 40, 16) for seed in (1, 2, 3))
            out = attention(20 * q, k, v, window=9, block=16)
            out.square().sum().backward()
            return out, q.grad, k.grad, v.grad
        due = grads()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got = grads()
        for one, other in zip(got, due):
            self.assertTrue(torch.equal(one, other))

    def test_a_second_derivative_is_an_error_and_not_wrong(self):
        q, k, v = (made(seed, 1, 1, 8, 8) for seed in (1, 2, 3))
        out = attention(q, k, v).square().sum()
        slope, = torch.autograd.grad(out, q, create_graph=True)
        with self.assertRaises(RuntimeError):
            slope.sum().backward()


class FlashTest(AttentionTest):
    """The same, with operators in place of a card's kernels."""

    def setUp(self):
        for patch in (
                mock.patch.object(module, "_fused",
                                  lambda q, v: q.shape[3] == v.shape[3]),
                mock.patch.object(module, "_SIDE", 5),
                mock.patch.object(
                    torch.ops.aten, "_scaled_dot_product_flash_attention", flash,
                    create=True),
                mock.patch.object(
                    torch.ops.aten, "_scaled_dot_product_flash_attention_backward",
                    flash_backward, create=True)):
            patch.start()
            self.addCleanup(patch.stop)

    # Kernels round each block's output, and take any number of scores. Tiles are
    # other ones.
    test_16_bits_are_rounded_once = None
    test_a_window_reads_no_block_that_nobody_sees = None
    test_no_scores_larger_than_a_block_are_made = None

    def test_odd_lengths_grouped_and_with_windows(self):
        for how in ({}, {"causal": True}, {"window": 6}, {"window": 30}):
            for queries, keys in ((1, 41), (13, 41), (41, 41), (41, 13)):
                with self.subTest(queries=queries, keys=keys, **how):
                    q = made(1, 2, 6, queries, 8, kind=torch.float64)
                    k = made(2, 2, 2, keys, 8, kind=torch.float64)
                    v = made(3, 2, 2, keys, 8, kind=torch.float64)
                    for block in (1, 7, 16, None):
                        self.expect_plain(q, k, v, block, 1e-12, **how)

    def test_widths_apart_are_contiguous_for_the_kernel(self):
        q, k, v = (made(seed, 1, 2, 8, 8, kind=torch.float64).transpose(2, 3)
                   for seed in (1, 2, 3))
        self.expect_plain(q, k, v, 4, 1e-12, causal=True)

    def test_the_kernel_gets_all_but_a_windows_edge(self):
        masks = []
        kept = module._Shape.scores

        def scores(shape, q, k, piece):
            masks.append(piece.mask)
            return kept(shape, q, k, piece)
        q, k, v = (made(seed, 1, 2, 40, 8, grad=False) for seed in (1, 2, 3))
        with mock.patch.object(module._Shape, "scores", scores):
            attention(q, k, v, block=16)
            attention(q, k, v, causal=True, block=16)
            self.assertEqual(masks, [])
            attention(q, k, v, window=9, block=16)
        self.assertEqual(set(masks), {"edge"})


class Stream:
    """Does nothing before it must. Its work is in `log`."""

    def __init__(self):
        self.waiting, self.log = [], []

    def add(self, name, work=None):
        self.waiting.append((name, work))

    def wait_stream(self, other):
        other.run()
        self.log.append("stream")

    def wait_event(self, event):
        if event.stream is self:
            raise AssertionError("it waits for itself")
        event.synchronize()
        self.add("wait")

    def record_event(self):
        event = Event()
        event.record(self)
        return event

    def run(self, most=None):
        while self.waiting and most != 0:
            name, work = self.waiting.pop(0)
            self.log.append(name)
            if work is not None:
                work()
            most = None if most is None else most - 1


class Event:
    def __init__(self):
        self.stream = None

    def record(self, stream):
        self.stream, self.done = stream, []
        stream.add("record", lambda: self.done.append(1))

    def synchronize(self):
        while not self.done:
            self.stream.run(1)


class AheadTest(AttentionTest):
    """The same, with k and v that are copied by streams as late as they may be."""

    def setUp(self):
        self.current, self.sides = Stream(), {}
        now = [self.current]

        @contextlib.contextmanager
        def on(stream):
            now.append(stream)
            yield
            now.pop()

        def copy(to, of):
            now[-1].add("copy", lambda: to.copy_(of))
        for patch in (
                mock.patch.object(module, "_spilled", lambda q, k: True),
                mock.patch.object(module, "_copy", copy),
                mock.patch.object(
                    module, "_side_stream",
                    lambda _, way: self.sides.setdefault(way, Stream())),
                mock.patch.object(torch.cuda, "current_stream",
                                  lambda device=None: self.current),
                mock.patch.object(torch.cuda, "stream", on),
                mock.patch.object(torch.cuda, "Event", Event)):
            patch.start()
            self.addCleanup(patch.stop)

    def test_a_block_is_copied_ahead_once_and_waits_for_its_room(self):
        q, k, v = (made(seed, 1, 1, 40, 8, grad=False) for seed in (1, 2, 3))
        attention(q, k, v, causal=True, block=8)
        copied = ["copy", "copy", "record"]
        self.assertEqual(self.sides["in"].log,
                         ["stream", *copied * 2, *["wait", *copied] * 3])

    def test_all_gradients_have_arrived(self):
        q, k, v = (made(seed, 1, 2, 40, 8) for seed in (1, 2, 3))
        attention(q, k, v, causal=True, block=8).sum().backward()
        self.assertEqual(self.sides["out"].waiting, [])
        self.assertEqual(self.sides["out"].log.count("copy"), 2 * 5)

    def test_blocks_of_a_cache_that_keeps_tokens_outside_of_heads(self):
        for batch in (1, 3):
            q = made(1, batch, 2, 21, 8, kind=torch.float64)
            k, v = (made(seed, 21, batch, 2, 8, kind=torch.float64)
                    .permute(1, 2, 0, 3) for seed in (2, 3))
            self.expect_plain(q, k, v, 4, 1e-12, causal=True)


class CopyTest(unittest.TestCase):
    def test_parts_of_a_copy_are_contiguous(self):
        parts = []

        class Noted:
            def __init__(self, tensor):
                self.tensor = tensor

            def __getattr__(self, name):
                return getattr(self.tensor, name)

            def __iter__(self):
                return (Noted(each) for each in self.tensor)

            def copy_(self, of, non_blocking):
                parts.append((self.tensor.is_contiguous(), of.is_contiguous(),
                              non_blocking))
        for size, due in (((1, 1, 4, 8), 1), ((2, 3, 4, 8), 6)):
            parts.clear()
            k = torch.zeros(*size[:2], 9, 8)[:, :, :4]
            module._copy(Noted(torch.zeros(*size)), k)
            self.assertEqual(parts, [(True, True, True)] * due)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(verbosity=2)
