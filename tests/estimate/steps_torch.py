#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Holds the times of `emuvctl estimate` against PyTorch's steps on a card.

  steps_torch.py measure FILE LIBRARY  on a machine with a card, torch, transformers
                                       and torchvision; LIBRARY is emuV's libcuda.so.1
  steps_torch.py compare FILE TOOL     where emuvctl is; FILE is what was measured

Each job runs natively, then in shares of VRAM that it does not fit in. A step's time
is the median of the last five of a run of 10 s, or of 60 steps.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import peaks_torch

# Model, mode, batch, and the shares in GiB: a fifth and two fifths too small.
JOBS = [
    ("GPT-2 XL", "train", 1, (13, 11)),
    ("Llama-3.2 1B", "train", 4, (17, 13)),
    ("Gemma 2B", "train", 1, (21, 16)),
    ("ViT-L/16", "train", 64, (10, 8)),
    ("Llama-2 7B", "inference", 4, (13, 8)),
    ("Phi-3 mini", "inference", 4, (7, 5)),
]
LONGEST_S = 10
MOST_STEPS = 60


def step_of(name, mode, batch):
    """A call that does one step, and waits for it."""
    import torch

    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        if name in peaks_torch.NETS:
            import torchvision

            model = torchvision.models.get_model(peaks_torch.NETS[name][0])
            images = torch.rand(batch, 3, 224, 224)
            loss = lambda: model(images).float().logsumexp(1).mean()  # noqa: E731
        else:
            from transformers import AutoConfig, AutoModelForCausalLM

            kind, shape = peaks_torch.SHAPES[name]
            model = AutoModelForCausalLM.from_config(
                AutoConfig.for_model(kind, **shape))
            tokens = torch.randint(0, 1000, (batch, 1024))
            if mode == "inference":
                def pass_forward():
                    with torch.no_grad():
                        # The last token's logits, as a prompt's pass needs them.
                        model(tokens, use_cache=True, logits_to_keep=1)
                        torch.cuda.synchronize()
                model.eval()
                return pass_forward
            loss = lambda: model(tokens, labels=tokens).loss  # noqa: E731
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
    return step


def work(name, mode, batch):
    step = step_of(name, mode, int(batch))
    times = []
    begun = time.monotonic()
    while len(times) < MOST_STEPS and time.monotonic() - begun < LONGEST_S:
        start = time.monotonic()
        step()
        times.append(time.monotonic() - start)
    print(json.dumps({"steps": times}))


def measure(file, library):
    import torch

    card = torch.cuda.get_device_name()
    rows = []
    for name, mode, batch, shares in JOBS:
        for share in (None, *shares):
            environment = dict(os.environ)
            if share is not None:
                environment |= {"LD_PRELOAD": library, "EMUV_MOVE": "1",
                                "EMUV_PHYSICAL": f"{share}G", "EMUV_VIRTUAL": "64G"}
            done = subprocess.run(
                [sys.executable, __file__, "work", name, mode, str(batch)],
                capture_output=True, text=True, env=environment, timeout=120)
            row = {"model": name, "mode": mode, "batch": batch, "share_gib": share}
            try:
                steps = json.loads(done.stdout.splitlines()[-1])["steps"]
                row |= {"step_s": statistics.median(steps[-5:]), "steps": len(steps),
                        "first_s": steps[0]}
            except (IndexError, ValueError, KeyError):
                row["error"] = done.stderr[-400:]
            rate = re.search(r"the link moves ([0-9.]+) GB/s", done.stderr)
            if rate:
                row["link_gb_s"] = float(rate[1])
            if name not in peaks_torch.NETS:
                from transformers import AutoConfig

                kind, shape = peaks_torch.SHAPES[name]
                row["config"] = AutoConfig.for_model(kind, **shape).to_dict()
            rows.append(row)
            print(name, mode, share, row.get("step_s"), row.get("error", ""), flush=True)
            file.write_text(json.dumps(
                {"card": card, "torch": torch.__version__, "rows": rows}, indent=1))


def estimate(tool, row, card):
    words = ["--mode", row["mode"], "--dtype", "bf16", "--batch", str(row["batch"]),
             "--json", "--gpu", card]
    if row["share_gib"] is not None:
        words += ["--vram", f"{row['share_gib']}G",
                  "--link", str(row.get("link_gb_s", 53))]
    with tempfile.TemporaryDirectory() as folder:
        if "config" in row:
            path = pathlib.Path(folder, "config.json")
            path.write_text(json.dumps(row["config"]))
            words += ["--config", str(path), "--sequence", "1024"]
        else:
            words.insert(0, peaks_torch.NETS[row["model"]][1])
        done = subprocess.run([tool, "estimate", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{row['model']}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def compare(file, tool, card):
    measured = json.loads(file.read_text())
    print(f"| {measured['card']}, PyTorch {measured['torch']} | share, GiB | took, ms "
          "| low | likely | high | off |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in measured["rows"]:
        if "step_s" not in row:
            print(f"| {row['model']}, {row['mode']} | {row['share_gib']} | failed |||||")
            continue
        told = estimate(tool, row, card)
        low, likely, high = told["pass_low_ms"], told["pass_ms"], told["pass_high_ms"]
        took = 1e3 * row["step_s"]
        print(f"| {row['model']}, {row['mode']} | {row['share_gib'] or 'native'} "
              f"| {took:.0f} | {low:.0f} | {likely:.0f} | {high:.0f} "
              f"| {100 * (likely / took - 1):+.0f} % |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "compare", "work"))
    parser.add_argument("words", nargs="+")
    parser.add_argument("--card", default="NVIDIA H100 SXM5 80GB HBM3")
    given = parser.parse_args()
    if given.what == "work":
        work(*given.words)
    elif given.what == "measure":
        measure(pathlib.Path(given.words[0]), given.words[1])
    else:
        compare(pathlib.Path(given.words[0]), given.words[1], given.card)


if __name__ == "__main__":
    main()
