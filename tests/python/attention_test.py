#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""emuv.attention against the plain formula in 64 bits. Without PyTorch all of it is
skipped."""

import math
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
PACKAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "python/emuv"

import with_torch  # noqa: E402, F401
import torch  # noqa: E402

# The file alone: the package's other modules are named as libraries are.
sys.path.insert(0, str(PACKAGE.parent))
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
        from emuv import attention as module

        q, k = made(1, 1, 1, 4, 8), made(2, 1, 1, 1000, 8)
        shape = module._Shape(q, k, True, 10, 16, 1.0)
        begins = {piece[0] for piece in shape.pieces()}
        # Keys 987 to 999.
        self.assertEqual(begins, {976, 992})

    def test_no_scores_larger_than_a_block_are_made(self):
        from emuv import attention as module

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


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(verbosity=2)
