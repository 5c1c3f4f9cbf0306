#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A model of Llama's shape with 7 billion weights in bfloat16, 13.5 GiB, drawn
at random. It reads a prompt of 2048 tokens, then goes on from it, each time
with the likeliest token. Prints lines of "name value"; `result` is a sum over
every bit of the logits and the tokens."""

import time

import torch
from torch.nn import functional

HIDDEN, INNER, LAYERS, VOCABULARY = 4096, 14336, 32, 32000
HEADS, KV_HEADS, WIDTH = 32, 8, 128
PROMPT, ANSWER = 2048, 16


def weight(rows, columns):
    """Of a size that keeps that of what it is applied to."""
    return torch.empty(rows, columns).normal_(0, columns ** -0.5)


class Layer:
    def __init__(self):
        self.query = weight(HEADS * WIDTH, HIDDEN)
        self.key = weight(KV_HEADS * WIDTH, HIDDEN)
        self.value = weight(KV_HEADS * WIDTH, HIDDEN)
        self.out = weight(HIDDEN, HEADS * WIDTH)
        self.gate = weight(INNER, HIDDEN)
        self.up = weight(INNER, HIDDEN)
        self.down = weight(HIDDEN, INNER)
        self.keys = torch.zeros(KV_HEADS, PROMPT + ANSWER, WIDTH)
        self.values = torch.zeros(KV_HEADS, PROMPT + ANSWER, WIDTH)

    def __call__(self, x, first, rotation):
        last = first + x.shape[0]
        y = normal(x)
        query = rotate(heads(y @ self.query.T), rotation)
        self.keys[:, first:last] = rotate(heads(y @ self.key.T), rotation)
        self.values[:, first:last] = heads(y @ self.value.T)
        keys, values = (
            cache[:, :last].repeat_interleave(HEADS // KV_HEADS, 0)
            for cache in (self.keys, self.values))
        y = functional.scaled_dot_product_attention(
            query[None], keys[None], values[None], is_causal=first == 0)[0]
        x = x + y.transpose(0, 1).reshape(-1, HEADS * WIDTH) @ self.out.T
        y = normal(x)
        return x + (functional.silu(y @ self.gate.T)
                    * (y @ self.up.T)) @ self.down.T


def normal(x):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, True) + 1e-5)).to(x.dtype)


def heads(x):
    return x.view(x.shape[0], -1, WIDTH).transpose(0, 1)


def rotate(x, rotation):
    cosine, sine = rotation
    left, right = x.float().chunk(2, -1)
    return torch.cat((left * cosine - right * sine,
                      right * cosine + left * sine), -1).to(x.dtype)


def bits(tensor):
    """A sum over the bits, in whole numbers: it depends on no order."""
    flat = tensor.contiguous().view(torch.int16).to(torch.int64).flatten()
    return int((flat * torch.arange(1, flat.numel() + 1)).sum())


def timed(work, *arguments):
    torch.cuda.synchronize()
    start = time.monotonic()
    out = work(*arguments)
    torch.cuda.synchronize()
    return out, time.monotonic() - start


def main():
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    torch.set_default_device("cuda")
    angles = (torch.arange(PROMPT + ANSWER).float()[:, None]
              * 10000.0 ** (-torch.arange(0, WIDTH, 2).float() / WIDTH))
    torch.set_default_dtype(torch.bfloat16)
    embedding = torch.empty(VOCABULARY, HIDDEN).normal_()
    layers = [Layer() for _ in range(LAYERS)]
    last = weight(VOCABULARY, HIDDEN)
    prompt = torch.randint(VOCABULARY, (PROMPT,))

    def read(tokens, first):
        at = angles[first:first + tokens.shape[0]]
        rotation = at.cos(), at.sin()
        x = embedding[tokens]
        for one in layers:
            x = one(x, first, rotation)
        return normal(x[-1:]) @ last.T

    read(prompt, 0)
    logits, prefill = timed(read, prompt, 0)
    result = bits(logits)
    times = []
    for i in range(ANSWER):
        token = logits.argmax(-1)
        logits, taken = timed(read, token, PROMPT + i)
        result = (result * 31 + bits(logits) + int(token)) % 2 ** 63
        times.append(taken)
    print("result", result)
    print(f"prefill_ms {prefill * 1e3:.0f}")
    print(f"decode_ms {sorted(times)[len(times) // 2] * 1e3:.1f}")
    print("allocated_mib", torch.cuda.max_memory_allocated() >> 20)


with torch.no_grad():
    main()
