#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""model_jax.py GIB: JAX with about GIB gibibytes of weights. Prints lines of
"name value"; `result` is a sum over every bit of what came out."""

import sys
import time

import jax
import jax.numpy as jnp

SIDE = 8192


@jax.jit
def make(key):
    return jax.random.normal(key, (SIDE, SIDE), jnp.bfloat16) / SIDE ** 0.5


@jax.jit
def layer(y, weight):
    return jnp.tanh(y @ weight)


@jax.jit
def bits(y):
    """Modulo 2^32, so that it depends on no order."""
    words = jax.lax.bitcast_convert_type(y, jnp.uint16).astype(jnp.uint32)
    odd = 2 * jnp.arange(words.size, dtype=jnp.uint32) + 1
    return jnp.sum(words.reshape(-1) * odd, dtype=jnp.uint32)


def forward(y, weights):
    for weight in weights:
        y = layer(y, weight)
    return y.block_until_ready()


def main():
    device = jax.devices("gpu")[0]
    count = int(float(sys.argv[1]) * 2 ** 30 / (2 * SIDE * SIDE))
    keys = jax.random.split(jax.random.key(0), count + 1)
    weights = [make(key).block_until_ready() for key in keys[1:]]
    x = jax.random.normal(keys[0], (256, SIDE), jnp.bfloat16)
    forward(x, weights)
    start = time.monotonic()
    out = forward(x, weights)
    seconds = time.monotonic() - start
    print("result", int(bits(out)))
    print(f"seconds {seconds:.2f}")
    print("allocated_mib", device.memory_stats()["peak_bytes_in_use"] >> 20)


main()
