#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Models as people run them, timed, with a digest of what they computed.

    workloads.py prefill|prompts|decode|resnet|lora|checkpointed|texts
                 [--steps N] [...]

With --within GIB as people make them fit who know nothing else. Accelerate keeps
weights beyond that in system RAM, save_on_cpu what a training step saves.

Prints a line: what, milliseconds a step (the median), how many of them the
program's own thread takes, the first steps' own. Then come the time of a loop of
Python between the steps, GiB held, and a digest of each step's results.
"""

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import statistics
import time

# As deterministic cuBLAS wants it, before it starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
# Attention as PyTorch does it on the cards of people who run out of memory. On an
# H100 or H200 it prefers cuDNN's. For that the program's thread makes a plan at
# each new length, which takes most of the time of a decoded token.
os.environ.setdefault("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1")

import torch  # noqa: E402


# The part of a model's memory limit that accelerate leaves to everything that is
# no weight.
APART_GIB = 1.2


def llama(options):
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    config = LlamaConfig(hidden_size=4096, intermediate_size=14336,
                         num_hidden_layers=options.layers,
                         num_attention_heads=32,
                         num_key_value_heads=8, vocab_size=32000)
    with torch.device("cuda"):
        return LlamaForCausalLM(config)


def fit(model, options):
    """@p model with its weights offloaded as room demands, if within a limit.
    Not for training: accelerate trains no weights that it offloads."""
    if not options.within:
        return model
    from accelerate import dispatch_model, infer_auto_device_map
    model = model.cpu()
    share = f"{int((options.within - APART_GIB) * 1024)}MiB"
    where = infer_auto_device_map(
        model, max_memory={0: share, "cpu": "1000GiB"},
        no_split_module_classes=["LlamaDecoderLayer"])
    return dispatch_model(model, where)


def limit_to(gib):
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(gib * 2**30 / total)
    torch.cuda.reset_peak_memory_stats()


def saving(options):
    """The context for the forward pass of a training step."""
    return (torch.autograd.graph.save_on_cpu(pin_memory=True)
            if options.within else contextlib.nullcontext())


def prefill(options):
    model = fit(llama(options), options).eval()
    tokens = torch.randint(0, 32000, (1, 2048), device="cuda")

    @torch.no_grad()
    def step():
        return model(tokens, use_cache=False).logits
    return step


def lengths(of):
    """Numbers of tokens, each another one for a long time, as people's texts
    are: the most is @p of, the least half of it."""
    return (of - count * 389 % (of // 2) for count in itertools.count())


def prompts(options):
    """Prefill as it is where people ask: no prompt is as long as the last."""
    model = fit(llama(options), options).eval()
    tokens = torch.randint(0, 32000, (1, 2048), device="cuda")
    long = lengths(2048)

    @torch.no_grad()
    def step():
        return model(tokens[:, :next(long)], use_cache=False).logits
    return step


def decode(options):
    model = fit(llama(options), options).eval()
    tokens = torch.randint(0, 32000, (1, 64), device="cuda")
    with torch.no_grad():
        cache = model(tokens, use_cache=True).past_key_values

    @torch.no_grad()
    def step():
        return model(tokens[:, :1], past_key_values=cache,
                     use_cache=True).logits
    return step


def lora(options, checkpointing=False, long=itertools.repeat(2048)):
    from peft import LoraConfig, get_peft_model
    # Attention's backward pass adds up in any order otherwise.
    torch.use_deterministic_algorithms(True)
    model = get_peft_model(
        llama(options),
        LoraConfig(r=16, target_modules=["q_proj", "v_proj"]))
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    tokens = torch.randint(0, 32000, (1, 2048), device="cuda")
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=1e-4)

    def step():
        batch = tokens[:, :next(long)]
        with saving(options):
            loss = model(batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()
    return step


def checkpointed(options):
    """LoRA that keeps no more of a layer than what it was given, and does the
    rest again. People tune so who have no room for more."""
    return lora(options, checkpointing=True)


def texts(options):
    """The same with texts as they come: none is as long as the last."""
    return lora(options, checkpointing=True, long=lengths(2048))


def resnet(options):
    import torchvision
    torch.manual_seed(0)
    model = torchvision.models.resnet50().cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(options.batch, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (options.batch,), device="cuda")

    def step():
        with saving(options):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()
    return step


def digest_of(out, whole):
    """A digest of @p out, or of its last row. That is the last token of a model,
    which all of its weights have a part in, or a loss."""
    if not whole:
        out = out.flatten()[-out.shape[-1] if out.dim() else 0:]
    return hashlib.sha256(out.float().cpu().numpy().tobytes()).hexdigest()[:8]


def loop():
    """Milliseconds, a fraction of one, for work that is always the same. A
    virtual machine's processor may be half as fast for seconds at a time. A step
    that is bound by the program's thread takes twice as long then."""
    start = time.perf_counter()
    kept = {}
    for count in range(3000):
        kept[count & 63] = count ^ (count & 7)
    return (time.perf_counter() - start) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("prefill", "prompts", "decode",
                                         "resnet", "lora", "checkpointed",
                                         "texts"))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--within", type=float, default=0, metavar="GIB",
                        help="make it fit by accelerate and save_on_cpu")
    options = parser.parse_args()

    step = globals()[options.what](options)
    if options.within:
        limit_to(options.within)
    digests = []
    taken = []
    issued = []
    worked = []
    looped = []
    for count in range(options.warm_up + options.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        worked_before = time.thread_time()
        out = step()
        issued.append((time.perf_counter() - start) * 1e3)
        worked.append((time.thread_time() - worked_before) * 1e3)
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - start) * 1e3)
        digests.append(digest_of(out, count < 5))
        looped.append(loop())
    print(json.dumps({
        "what": options.what,
        "ms": round(statistics.median(taken[options.warm_up:]), 2),
        # Of these, the time until the program has handed over its last kernel,
        # and the processor time of its thread by then.
        "issue_ms": round(statistics.median(issued[options.warm_up:]), 2),
        "thread_ms": round(statistics.median(worked[options.warm_up:]), 2),
        "loop_ms": round(statistics.median(looped[options.warm_up:]), 3),
        "first_ms": [round(t, 1) for t in taken[:options.warm_up]],
        "held_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2),
        "used_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
        # How often it has given its cached memory back.
        "retries": torch.cuda.memory_stats()["num_alloc_retries"],
        "digests": digests,
    }), flush=True)


if __name__ == "__main__":
    main()
