#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs for tests/bench/run-attention. Each part tells its own failures, and the next
goes on; the exit status is 1 if there was any."""

import argparse
import math
import pathlib
import statistics
import sys
import time
import traceback

try:
    import torch
    from torch.nn import functional

    import emuv.attention as module
    from emuv.attention import attention
except ImportError as error:
    sys.exit(f"run-attention: {error}")

CARD = "cuda"
# Of a layer of Llama 3 8B.
HEADS, KEY_HEADS, WIDTH = 32, 8, 128
PREFILL = 4096
# Ours adds blocks that are rounded each, so it may err a little more.
ALLOWED = 1.5


def made(*size, kind=torch.bfloat16):
    return torch.randn(*size, device=CARD, dtype=torch.float32).to(kind)


def seen(queries, keys, causal, window):
    """A mask, true where a query sees a key; None where it sees all."""
    if not causal:
        return None
    here = torch.arange(queries, device=CARD)[:, None] + keys - queries
    there = torch.arange(keys, device=CARD)
    mask = there <= here
    return mask & (there > here - window) if window else mask


def plain(q, k, v, mask):
    """The formula in 64 bits."""
    q, k, v = (each.double() for each in (q, k, v))
    k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], 1) for each in (k, v))
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[3])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(-1) @ v


def theirs(q, k, v, mask, causal):
    """PyTorch's own attention: flash kernels where it takes them."""
    k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], 1) for each in (k, v))
    if causal and q.shape[2] == k.shape[2] and bool(mask[-1].all()):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def with_gradients(function, tensors, behind):
    """The result of a function, and the gradients of its tensors."""
    leaves = [each.detach().requires_grad_() for each in tensors]
    out = function(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, behind.to(out.dtype))]


def in_ram(tensor, tokens_first=False):
    """A copy in pinned memory; the cache has tokens outside of heads."""
    if tokens_first:
        tensor = tensor.permute(2, 0, 1, 3)
    out = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    out.copy_(tensor)
    return out.permute(1, 2, 0, 3) if tokens_first else out


def errors(got, due):
    """Root of the mean square, and the largest."""
    wrong = got.to(CARD).double() - due
    return wrong.square().mean().sqrt().item(), wrong.abs().max().item()


def check_case(case):
    """Prints a case's errors; raises AssertionError where ours are larger."""
    kind, batch, heads, key_heads, queries, keys, width, causal, window, block = case
    q = made(batch, heads, queries, width, kind=kind)
    k, v = (made(batch, key_heads, keys, width, kind=kind) for _ in range(2))
    behind = made(batch, heads, queries, width, kind=kind)
    mask = seen(queries, keys, causal, window)
    due = with_gradients(lambda *each: plain(*each, mask),
                         [each.double() for each in (q, k, v)], behind)
    other = with_gradients(lambda *each: theirs(*each, mask, causal), (q, k, v),
                           behind)
    bad = []
    places = {"card": (k, v), "RAM": (in_ram(k), in_ram(v)),
              "cache": (in_ram(k, True), in_ram(v, True)),
              "swappable": (k.cpu(), v.cpu())}
    for place, pair in places.items():
        got = with_gradients(
            lambda *each: attention(*each, causal=causal, window=window,
                                    block=block), (q, *pair), behind)
        for name, one, two, right in zip(("out", "q", "k", "v"), got, other, due):
            ours, most = errors(one, right)
            own, own_most = errors(two, right)
            fits = ours <= ALLOWED * own
            print(f"  {place:9} {name:3} rms {ours:.2e} (PyTorch {own:.2e})  "
                  f"max {most:.2e} ({own_most:.2e}){'' if fits else '  TOO LARGE'}")
            if not fits:
                bad.append(f"{place} {name}")
    assert not bad, f"errors are larger than PyTorch's: {', '.join(bad)}"


def check_errors():
    """Results and gradients beside the formula."""
    half, brain = torch.float16, torch.bfloat16
    cases = [
        # kind, batch, heads, key heads, queries, keys, width, causal, window, block
        (brain, 1, 8, 8, 1024, 1024, 128, True, None, None),
        (brain, 2, 8, 2, 777, 1555, 64, True, None, 256),
        (half, 1, 8, 2, 1000, 3001, 128, True, 700, 256),
        (brain, 1, 4, 2, 2500, 2500, 128, True, 1300, None),
        (half, 1, 4, 4, 513, 1025, 128, False, None, 200),
        (brain, 1, 16, 4, 1, 5000, 128, True, None, 512),
        (brain, 1, 4, 1, 300, 900, 256, True, None, 128),
    ]
    bad = []
    for case in cases:
        print(f"kind, batch, heads, key heads, queries, keys, width, causal, window, "
              f"block: {case}")
        try:
            check_case(case)
        except Exception as problem:  # pylint: disable=broad-except
            print(f"  FAILED: {type(problem).__name__}: {problem}")
            bad.append(problem)
    assert not bad, f"{len(bad)} of {len(cases)} cases failed"


def check_kernels():
    """Flash kernels are in use, for both types."""
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    for kind in (torch.float16, torch.bfloat16):
        q = made(1, 2, 16, WIDTH, kind=kind)
        assert module._fused(q, q), f"no flash kernels for {kind}"


def check_order():
    """No block is overwritten while it is used: what lies in RAM gives bit for bit
    what lies on the card gives, many times."""
    for queries in (1, 700):
        q = made(1, HEADS, queries, WIDTH)
        k, v = (made(1, KEY_HEADS, 20000, WIDTH) for _ in range(2))
        due = attention(q, k, v, causal=True, block=1024)
        for pair in ((in_ram(k), in_ram(v)), (in_ram(k, True), in_ram(v, True))):
            for _ in range(20):
                # Memory that is given back and taken at once.
                noise = torch.full((1 << 22,), math.nan, device=CARD)
                del noise
                out = attention(q, *pair, causal=True, block=1024)
                assert torch.equal(out, due), "RAM and card differ"
    print("bit for bit the same, 80 times")


def check_published():
    """A merge that averages blocks' softmaxes, and one by their log-sum-exp."""
    q, v = made(1, 8, 512, WIDTH), made(1, 8, 8192, WIDTH)
    k = made(1, 8, 8192, WIDTH)
    # Blocks whose scores are of different sizes, as those of real text are.
    k = k * torch.linspace(0.2, 2, 8, device=CARD).repeat_interleave(1024)[:, None]
    k = k.to(q.dtype)
    due = plain(q, k, v, None)
    blocks = [slice(begin, begin + 1024) for begin in range(0, 8192, 1024)]
    average = sum(plain(q, k[:, :, one], v[:, :, one], None) for one in blocks) / 8
    wrong, right = errors(average, due), errors(attention(q, k, v, block=1024), due)
    print(f"largest error: {wrong[1]:.2e} where blocks are averaged, "
          f"{right[1]:.2e} where their log-sum-exp counts")
    double = [each.double() for each in (q, k, v)]
    exact = errors(attention(*double, block=1024), due)
    print(f"in 64 bits: {exact[1]:.2e} by log-sum-exp")
    assert wrong[1] > 0.1 and exact[1] < 1e-12


def timed(work, times=7):
    """The median of a step, in ms."""
    for _ in range(2):
        work()
    taken = []
    for _ in range(times):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        work()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end))
    return statistics.median(taken)


def measured_link():
    """The rate of pinned memory to the card, in GB/s."""
    host = torch.empty(1 << 29, dtype=torch.uint8, pin_memory=True)
    card = torch.empty(1 << 29, dtype=torch.uint8, device=CARD)
    return host.numel() / timed(lambda: card.copy_(host, non_blocking=True)) / 1e6


def flash(q, k, v, causal):
    return torch.ops.aten._scaled_dot_product_flash_attention(
        q, k, v, 0.0, causal, False)[0]


def on_card(q, k, v):
    """PyTorch's flash kernels over the same, with all of it on the card. Heads that
    share keys are one with more queries; the last keys are the queries' own."""
    groups, queries = q.shape[1] // k.shape[1], q.shape[2]
    folded = q.unflatten(1, (-1, groups)).flatten(2, 3).contiguous()
    if queries == 1:
        return lambda: flash(folded, k, v, False)
    last = [each[:, :, -queries:].repeat_interleave(groups, 1) for each in (k, v)]
    before = [each[:, :, :-queries].contiguous() for each in (k, v)]

    def both():
        flash(folded, *before, False)
        flash(q, *last, True)
    return both


def row(rows, step, keys, ours, card, link):
    """A line of the table, in ms; None is not measured."""
    bound = max(each for each in (card, link) if each is not None)
    cells = [f"{each:.3f}" if each is not None else "-"
             for each in (ours, card, link)]
    rows.append(" ".join([step, str(keys), *cells, f"{bound / ours:.2f}"]))
    print(rows[-1], flush=True)


def measure_layer(rows, rate, keys):
    """One layer's attention to keys in RAM."""
    k, v = (made(1, KEY_HEADS, keys, WIDTH) for _ in range(2))
    link = 2 * k.numel() * k.element_size() / rate / 1e6
    spilled = in_ram(k, True), in_ram(v, True)
    for step, queries in (("decode", 1), ("prefill", PREFILL)):
        q = made(1, HEADS, queries, WIDTH)
        card = timed(on_card(q, k, v))
        row(rows, step, keys,
            timed(lambda: attention(q, *spilled, causal=True)), card, link)
        # With the same function, and all on the card.
        row(rows, step + "-resident", keys,
            timed(lambda: attention(q, k, v, causal=True)), card, None)
    q = made(1, HEADS, 1, WIDTH)
    row(rows, "decode-window", keys, timed(lambda: attention(
        q, *spilled, window=4096)), None, link * min(1, 4096 / keys))
    swappable = [each.cpu() for each in (k, v)]
    row(rows, "decode-swappable", keys, timed(lambda: attention(
        q, *swappable, causal=True), 3), None, link)


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000, hidden_size=2048, intermediate_size=5632,
        num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4,
        max_position_embeddings=1 << 18)
    torch.manual_seed(1)
    with torch.device(CARD):
        return LlamaForCausalLM(config).to(torch.bfloat16).eval()


def check_model(model):
    """A model's logits with both caches. Their losses by 16 bits differ."""
    from transformers import DynamicCache

    from emuv.cache import SpilledCache, enable

    tokens = torch.randint(32000, (1, 3004), device=CARD)
    parts = [tokens[:, :2048], tokens[:, 2048:3000],
             *(tokens[:, at:at + 1] for at in range(3000, 3004))]
    said = []
    for kind in (DynamicCache, SpilledCache):
        if kind is SpilledCache:
            enable(model)
        else:
            model.set_attn_implementation("sdpa")
        cache = kind()
        said.append(torch.cat([model(one, past_key_values=cache).logits[0, -4:]
                               for one in parts]).double())
        assert cache.get_seq_length() == 3004
    wrong = ((said[1] - said[0]).square().mean() / said[0].square().mean()).sqrt()
    same = (said[0].argmax(-1) == said[1].argmax(-1)).double().mean()
    print(f"logits differ by {wrong.item():.2e} of their size; "
          f"{100 * same.item():.0f}% name the same token")
    assert wrong < 0.05
    model.generate(tokens[:, :100], max_new_tokens=8, do_sample=False,
                   pad_token_id=0, past_key_values=SpilledCache())


def token_time(model, cache, count=12):
    """ms a token. The first three are not counted."""
    token = torch.zeros(1, 1, dtype=torch.int64, device=CARD)
    for turn in range(count + 3):
        if turn == 3:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        model(token, past_key_values=cache)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count * 1e3


def prompt_time(model, cache, count=3):
    """ms of a prompt of PREFILL tokens behind all that the cache has. The first is
    not counted."""
    prompt = torch.zeros(1, PREFILL, dtype=torch.int64, device=CARD)
    before = cache.get_seq_length()
    for turn in range(count + 1):
        if turn == 1:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        model.model(prompt, past_key_values=cache)
        cache.crop(before)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count * 1e3


def measure_model(rows, rate, model, keys=131072):
    """Tokens, and prompts, with a cache that is full of made-up keys. Each is held
    against the faster of the model's own attention and ours with it on the card."""
    from transformers import DynamicCache

    from emuv.cache import SpilledCache, enable

    shape = [1, model.config.num_key_value_heads, keys,
             model.config.hidden_size // model.config.num_attention_heads]
    link = 2 * math.prod(shape) * model.config.num_hidden_layers * 2 / rate / 1e6
    kinds = {"its own": DynamicCache, "ours, on the card": DynamicCache,
             "ours, in RAM": SpilledCache}
    for step, time_of, added in (("llama-decode", token_time, 64),
                                 ("llama-prefill", prompt_time, PREFILL)):
        taken = {}
        for name, kind in kinds.items():
            cache = kind() if kind is DynamicCache else kind(reserve=keys)
            shape[2] = keys - added
            for layer in range(model.config.num_hidden_layers):
                cache.update(made(*shape), made(*shape), layer)
            if name == "its own":
                model.set_attn_implementation("sdpa")
            else:
                enable(model)
            torch.cuda.reset_peak_memory_stats()
            taken[name] = time_of(model, cache)
            print(f"{step}, {name}: {taken[name]:.1f} ms, "
                  f"{torch.cuda.max_memory_allocated() / 1e9:.2f} GB of VRAM at most",
                  flush=True)
            del cache
            torch.cuda.empty_cache()
        spilled = taken.pop("ours, in RAM")
        row(rows, step, keys, spilled, min(taken.values()), link)


class Parts:
    """Runs each part, and counts those that failed."""

    def __init__(self):
        self.failed = []

    def run(self, name, work, *arguments):
        begin = time.monotonic()
        print(f"== {name}", flush=True)
        out = None
        try:
            out = work(*arguments)
        except Exception as problem:  # pylint: disable=broad-except
            traceback.print_exc(file=sys.stdout)
            print(f"FAILED: {name}: {type(problem).__name__}: {problem}")
            self.failed.append(name)
        torch.cuda.empty_cache()
        print(f"== {name}: {time.monotonic() - begin:.1f} s", flush=True)
        return out


def with_transformers(parts, rows, rate):
    """Parts with a model. Without a rate they only check."""
    try:
        import transformers
    except ImportError as problem:
        print(f"transformers is missing, and the model left out: {problem}")
        return
    print(f"transformers {transformers.__version__}")
    model = parts.run("build a model", llama)
    if model is None:
        return
    with torch.no_grad():
        parts.run("check a model's logits", check_model, model)
        if rate is not None:
            parts.run("measure a model", measure_model, rows, rate, model)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="do not measure")
    parser.add_argument("--rows", type=pathlib.Path, required=True)
    parser.add_argument("--link", type=pathlib.Path, required=True)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("run-attention: PyTorch finds no card")
    torch.manual_seed(0)
    parts, rows, rate = Parts(), [], None
    parts.run("check for kernels", check_kernels)
    parts.run("check errors", check_errors)
    parts.run("check the order of copies", check_order)
    parts.run("check the published merge", check_published)
    if not options.check:
        rate = parts.run("measure the link", measured_link)
    if rate is not None:
        print(f"link: {rate:.1f} GB/s")
        options.link.write_text(f"{rate:.1f}\n", encoding="utf-8")
        for keys in (32768, 131072):
            parts.run(f"measure a layer, {keys} keys", measure_layer, rows, rate,
                      keys)
    with_transformers(parts, rows, rate)
    options.rows.write_text("".join(f"{each}\n" for each in rows), encoding="utf-8")
    if parts.failed:
        print(f"FAILED: {', '.join(parts.failed)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
