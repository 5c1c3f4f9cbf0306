#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Holds `emuvctl estimate` against PyTorch's peaks on a card.

  peaks_torch.py measure FILE        on a machine with a card, torch, transformers
                                     and torchvision; downloads nothing
  peaks_torch.py compare FILE TOOL   where emuvctl is; FILE is what was measured

Peaks are what the process takes of the card: PyTorch's reserved bytes at most, and
the context. Models have random weights.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

# By name: a kind that transformers knows, and its shape.
SHAPES = {
    "GPT-2": ("gpt2", {}),
    "GPT-2 XL": ("gpt2", {"n_layer": 48, "n_embd": 1600, "n_head": 25}),
    "Pythia 1B": ("gpt_neox", {
        "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 8,
        "intermediate_size": 8192, "vocab_size": 50304}),
    "Llama-3.2 1B": ("llama", {
        "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256,
        "tie_word_embeddings": True}),
    "Llama-2 7B": ("llama", {
        "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 32000}),
    "Mistral 7B": ("mistral", {}),
    "Qwen2 0.5B": ("qwen2", {
        "num_hidden_layers": 24, "hidden_size": 896, "num_attention_heads": 14,
        "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151936,
        "tie_word_embeddings": True}),
    "Gemma 2B": ("gemma", {
        "num_hidden_layers": 18, "hidden_size": 2048, "num_attention_heads": 8,
        "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 16384}),
    "Phi-3 mini": ("phi3", {"pad_token_id": 0}),
}
# By name: torchvision's, and the tool's.
NETS = {"ResNet-50": ("resnet50", "resnet-50"), "ViT-L/16": ("vit_l_16", "vit-l")}


def peak_of(job):
    """The bytes of the card that `job` takes at most, and the context's."""
    import torch

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    free, total = torch.cuda.mem_get_info()
    context = total - free - torch.cuda.memory_reserved()
    try:
        job()
    except torch.cuda.OutOfMemoryError:
        return None
    return {"reserved": torch.cuda.max_memory_reserved(),
            "allocated": torch.cuda.max_memory_allocated(), "context": context}


def forget_making():
    """Weights that are tied afterwards are made twice."""
    import torch

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def run(model, mode, step):
    import torch

    if mode == "inference":
        with torch.no_grad():
            model.eval()
            step(model)
        return
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        step(model).backward()
        optimizer.step()
        optimizer.zero_grad()


def text_job(config, mode, batch, length):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config)
        tokens = torch.randint(0, 1000, (batch, length))
    forget_making()
    if mode == "inference":
        run(model, mode, lambda is_: is_.generate(
            tokens, max_new_tokens=1, do_sample=False))
    else:
        run(model, mode, lambda is_: is_(tokens, labels=tokens).loss)


def net_job(name, mode, batch):
    import torch
    import torchvision

    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = torchvision.models.get_model(name)
        images = torch.rand(batch, 3, 224, 224)
    forget_making()
    run(model, mode, lambda is_: is_(images).float().logsumexp(1).mean())


def measure(file):
    import torch
    from transformers import AutoConfig

    torch.zeros(1, device="cuda") @ torch.zeros(1, device="cuda")
    rows = []

    def note(name, mode, batch, job, **more):
        peak = peak_of(job)
        rows.append({"model": name, "mode": mode, "batch": batch, "peak": peak, **more})
        print(name, mode, batch, more.get("length", ""), peak, flush=True)
        file.write_text(json.dumps(
            {"card": torch.cuda.get_device_name(), "torch": torch.__version__,
             "rows": rows}, indent=1))

    for mode in ("inference", "train"):
        for name, (net, ours) in NETS.items():
            note(name, mode, 64, lambda: net_job(net, mode, 64), ours=ours)
        for name, (kind, shape) in SHAPES.items():
            config = AutoConfig.for_model(kind, **shape)
            for batch in (1, 4):
                note(name, mode, batch, lambda: text_job(config, mode, batch, 1024),
                     length=1024, config=config.to_dict())


def estimate(tool, row):
    words = ["--mode", row["mode"], "--dtype", "bf16", "--batch", str(row["batch"]),
             "--json"]
    with tempfile.TemporaryDirectory() as folder:
        if "config" in row:
            path = pathlib.Path(folder, "config.json")
            path.write_text(json.dumps(row["config"]))
            words += ["--config", str(path), "--sequence", str(row["length"])]
        else:
            words.insert(0, row["ours"])
        done = subprocess.run([tool, "estimate", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{row['model']}: {done.stderr.strip()}")
    return {part["part"]: part for part in json.loads(done.stdout)["estimate"]}


def compare(file, tool):
    measured = json.loads(file.read_text())
    print(f"| {measured['card']}, PyTorch {measured['torch']} | batch | took, GiB "
          "| low | likely | high | off |\n| --- | --- | --- | --- | --- | --- | --- |")
    for row in measured["rows"]:
        if row["peak"] is None:
            continue
        took = row["peak"]["reserved"] + row["peak"]["context"]
        peak = estimate(tool, row)["peak"]
        low, likely, high = (peak[f"{which}_bytes"] for which in ("low", "likely", "high"))
        print(f"| {row['model']}, {row['mode']} | {row['batch']} | {took / 2**30:.2f} "
              f"| {low / 2**30:.2f} | {likely / 2**30:.2f} | {high / 2**30:.2f} "
              f"| {100 * (likely / took - 1):+.0f} % |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "compare"))
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("tool", nargs="?", default="emuvctl")
    given = parser.parse_args()
    if given.what == "measure":
        measure(given.file)
    else:
        compare(given.file, given.tool)


if __name__ == "__main__":
    main()
