#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Trains a language model of GPT-2's shape on text.

    train.py --auto                         asks emuvctl how, and trains
    train.py --auto --plan --gpu 4070       only tells how
    train.py --preset tiny --steps 200      as told, on a card or a processor

The text that ships is Alice's Adventures in Wonderland; --text takes your own. A
folder has the run's checkpoint and its log. The same command goes on from it.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import plan as planning  # noqa: E402

WARM_STEPS = 3  # are left out of a step's time
RATE_STEPS = 10  # until the learning rate is whole


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number



def read_options(words):
    parser = argparse.ArgumentParser(
        prog="train.py", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--preset", choices=planning.PRESETS, default="tiny",
        help="the model's size (default: tiny)")
    add("--text", action="append", metavar="FILE",
        help="train on this; may be repeated")
    add("--steps", type=positive, default=100, metavar="N",
        help="in all, with those of earlier runs (default: 100)")
    add("--effective-batch", type=positive, default=32, metavar="N",
        help="sequences that make a step (default: 32)")
    add("--out", default="run", metavar="FOLDER",
        help="for checkpoint and log (default: run)")
    add("--every", type=positive, default=50, metavar="N",
        help="steps from checkpoint to checkpoint (default: 50)")
    add("--rate", type=float, default=3e-4, metavar="R",
        help="the learning rate (default: 3e-4)")
    add("--dropout", type=float, default=0.0, metavar="P",
        help="the share of activations that is left out (default: 0)")
    add("--seed", type=int, default=1, metavar="N",
        help="of weights, dropout and the order of the text (default: 1)")
    add("--device", choices=("cuda", "cpu"),
        help="default: a card where there is one")
    how = parser.add_argument_group("how to train; what is given, --auto keeps")
    add = how.add_argument
    add("--auto", action="store_true", help="ask emuvctl for the rest")
    add("--batch", type=positive, metavar="N",
        help="sequences at once; divides --effective-batch")
    add("--precision", choices=planning.PRECISIONS,
        help="fp32; autocast (bf16 products); bf16 (weights, too)")
    add("--checkpointing", action="store_true",
        help="compute activations again on the way back")
    add("--workers", type=int, metavar="N", help="processes that load text")
    add("--deterministic", action="store_true",
        help="the same bits each time on a card, too; slower")
    about = parser.add_argument_group("the machine, for --auto")
    add = about.add_argument
    add("--plan", action="store_true", help="tell the plan, and end")
    add("--json", action="store_true", help="the plan as JSON; with --plan")
    add("--gpu", metavar="MODEL", help="plan for this card: 4070")
    add("--vram", metavar="SIZE", help="plan for so much of it")
    add("--virtual", metavar="SIZE", help="so much may be in RAM, under emuV")
    add("--processes", type=positive, default=1, metavar="N",
        help="of this kind on the host, one a card")
    add("--ram", metavar="SIZE", help="the host's (default: what it has)")
    add("--emuvctl", default=os.environ.get("EMUVCTL", "emuvctl"),
        metavar="PATH", help="default: $EMUVCTL, or the one in $PATH")
    options = parser.parse_args(words)
    if options.batch and options.effective_batch % options.batch:
        parser.error(f"--batch: {options.batch} does not divide "
                     f"--effective-batch, {options.effective_batch}")
    if (options.plan or options.gpu) and not options.auto:
        parser.error("--plan and --gpu need --auto")
    if options.json and not options.plan:
        parser.error("--json is for --plan")
    if options.gpu and not options.plan:
        parser.error("--gpu is for --plan: a run uses the card that is there")
    if not 0 <= options.dropout < 1:
        parser.error("--dropout is at least 0 and below 1")
    if options.workers is not None and options.workers < 0:
        parser.error("--workers is not below 0")
    return options


def shape_of(options):
    return {**planning.PRESETS[options.preset], "vocab_size": 256}


def plan_for(options, device, half):
    """The plan of --auto. half: the card can compute in bf16."""
    machine = planning.this_machine(
        device, gpu=options.gpu, vram=options.vram, virtual=options.virtual,
        processes=options.processes, ram=options.ram)
    if options.precision:
        precisions = [options.precision]
    else:
        precisions = ["autocast", "bf16"] if half else ["fp32"]
    # As model.py is made: GPT-2's shape, with a GELU in one kernel.
    shape = {**shape_of(options), "activation_function": "gelu",
             "embd_pdrop": 0.0, "attn_pdrop": options.dropout,
             "resid_pdrop": options.dropout}
    made = planning.make(options.emuvctl, shape,
                         options.effective_batch, machine, precisions,
                         options.batch, options.checkpointing)
    if options.workers is not None:
        made.workers = options.workers
    return made


class Progress:
    """A line that is drawn again on a terminal; elsewhere one each tenth."""

    def __init__(self, first, steps, stream=sys.stderr):
        self.first, self.steps, self.stream = first, steps, stream
        self.drawn = stream.isatty()
        self.begun = time.monotonic()
        self.tenth = None

    def show(self, step, loss, ms):
        left = (time.monotonic() - self.begun) / (step - self.first) \
            * (self.steps - step)
        text = (f"loss {loss:.4f}  {ms:.0f} ms a step  "
                f"{int(left) // 60}:{int(left) % 60:02} left")
        if self.drawn:
            done = step * 20 // self.steps
            bar = "#" * done + "." * (20 - done)
            line = f"{step}/{self.steps} [{bar}] {text}"
            columns = shutil.get_terminal_size().columns
            self.stream.write("\r" + line[:columns - 1] + "\x1b[K")
        elif step * 10 // self.steps != self.tenth or step == self.steps:
            self.tenth = step * 10 // self.steps
            self.stream.write(f"{step}/{self.steps} {text}\n")
        self.stream.flush()

    def say(self, text):
        """A line of its own."""
        self.stream.write(("\r\x1b[K" if self.drawn else "") + f"{text}\n")
        self.stream.flush()

    def end(self):
        if self.drawn:
            self.stream.write("\n")


def resident_bytes():
    """The most that this process has had in RAM."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Run:
    """A training run in its folder."""

    def __init__(self, options, device):
        import torch
        import corpus
        import model
        import state
        import steps

        self.torch, self.state, self.steps_module = torch, state, steps
        self.options, self.device = options, device
        self.corpus_module = corpus
        self.injected = steps.Injected(os.environ.get("EMUV_TRAIN_INJECT", ""))
        self.folder = pathlib.Path(options.out)
        shape = shape_of(options)
        self.corpus = corpus.Corpus(options.text, shape["n_positions"])
        # A checkpoint of other settings is no beginning for this run.
        self.identity = {
            "shape": shape, "text": self.corpus.digest, "seed": options.seed,
            "effective_batch": options.effective_batch, "rate": options.rate,
            "dropout": options.dropout}
        self.kept = state.load(self.folder)
        if self.kept is not None:
            differ = [name for name, value in self.identity.items()
                      if self.kept["identity"].get(name) != value]
            if differ:
                raise state.StateError(
                    f"{self.folder} has a run with another "
                    f"{', '.join(differ).replace('_', ' ')}: name another "
                    "folder with --out")
        self.model_class, self.shape = model.Model, shape
        self.own_bytes = resident_bytes()
        self.times = []
        self.signal = None

    def prepare(self, how):
        """Makes model and optimizer; how: precision, checkpointing, batch."""
        torch = self.torch
        torch.manual_seed(self.options.seed)
        made = self.model_class(self.shape, self.options.dropout)
        if how["precision"] == "bf16":
            made = made.to(torch.bfloat16)
        made = made.to(self.device).train()
        made.checkpointing = how["checkpointing"]
        matrices = [each for each in made.parameters() if each.dim() > 1]
        others = [each for each in made.parameters() if each.dim() <= 1]
        optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1},
             {"params": others, "weight_decay": 0.0}],
            lr=self.options.rate, betas=(0.9, 0.95))
        self.precision = how["precision"]
        self.steps = self.steps_module.Steps(made, optimizer, self.device,
                                             how["precision"], how["batch"],
                                             self.injected)
        self.step = 0
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.kept is not None:
            self.restore(self.kept)
            self.kept = None
        self.log = self.state.Log(self.folder, self.step)
        if self.step == 0:
            self.save()

    def restore(self, kept):
        self.step = kept["step"]
        self.steps.model.load_state_dict(kept["model"])
        self.steps.optimizer.load_state_dict(kept["optimizer"])
        self.state.set_random_state(kept["random"], self.device)

    def save(self):
        self.log.settle()
        self.state.save(self.folder, {
            "identity": self.identity, "step": self.step,
            "batch": self.steps.batch, "precision": self.precision,
            "checkpointing": self.steps.model.checkpointing,
            "model": self.steps.model.state_dict(),
            "optimizer": self.steps.optimizer.state_dict(),
            "random": self.state.random_state(self.device)},
            lambda: self.injected.kill("kill-save", self.step))

    def note(self, progress, text):
        progress.say(f"step {self.step + 1}: memory ran out: {text}")
        self.log.say(step=self.step, event="out of memory",
                     batch=self.steps.batch,
                     checkpointing=self.steps.model.checkpointing)

    def go_back(self, progress):
        """Goes on from the checkpoint, with less: weights are half changed."""
        text = self.steps.lower()
        self.steps.optimizer.zero_grad(set_to_none=True)
        if self.device.type == "cuda":
            self.torch.cuda.empty_cache()
        self.restore(self.state.load(self.folder))
        for group in self.steps.optimizer.param_groups:
            group["foreach"] = False  # it needs a copy of all weights
        self.log.close()
        self.log = self.state.Log(self.folder, self.step)
        self.note(progress, text)

    def train(self, workers):
        """Takes the steps that are left. Returns False if a signal ended it."""
        options = self.options
        progress = Progress(self.step, options.steps)
        sequences = None
        while self.step < options.steps and self.signal is None:
            if sequences is None:
                sequences = self.corpus_module.load(
                    self.corpus, options.seed, options.effective_batch,
                    range(self.step, options.steps), workers,
                    self.device.type == "cuda")
            for group in self.steps.optimizer.param_groups:
                group["lr"] = options.rate * min(1, (self.step + 1) / RATE_STEPS)
            begun = time.monotonic()
            number = self.step + 1
            try:
                loss = self.steps.take(number, next(sequences),
                                       lambda text: self.note(progress, text))
            except self.steps_module.LostUpdate:
                self.go_back(progress)
                progress = Progress(self.step, options.steps)
                sequences = None
                continue
            ms = (time.monotonic() - begun) * 1e3
            self.step = number
            self.times.append(ms)
            self.log.say(step=number, loss=loss, ms=round(ms, 3),
                         batch=self.steps.batch,
                         accumulate=options.effective_batch // self.steps.batch)
            progress.show(number, loss, ms)
            if self.injected.happens("term", number):
                os.kill(os.getpid(), signal.SIGTERM)
            if self.injected.happens("interrupt", number):
                os.killpg(os.getpgrp(), signal.SIGINT)
            if number % options.every == 0 or self.signal is not None \
                    or number == options.steps:
                self.save()
        progress.end()
        return self.signal is None

    def memory_bytes(self, plan):
        """The most that it took, beside what the plan counts."""
        if self.device.type != "cuda":
            return resident_bytes() - self.own_bytes
        return (self.torch.cuda.max_memory_reserved(self.device)
                + plan.context_bytes[1])

    def step_ms(self):
        times = self.times[WARM_STEPS:] or self.times
        return statistics.median(times) if times else None


def settings_of(options, plan, half):
    """Precision, checkpointing and batch: planned, or as given."""
    if plan is not None:
        return {"precision": plan.precision, "batch": plan.batch,
                "checkpointing": plan.checkpointing}
    return {"precision": options.precision or ("autocast" if half else "fp32"),
            "batch": options.batch or options.effective_batch,
            "checkpointing": options.checkpointing}


def choose_device(options):
    import torch

    name = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("PyTorch finds no card")
    # Older cards only imitate bf16.
    half = name == "cuda" and torch.cuda.get_device_capability()[0] >= 8
    if options.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    return torch.device(name), half


def train(options):
    device, half = choose_device(options)
    run = Run(options, device)
    if run.kept is not None:
        # Other ones would give other bits. The user's go first.
        for name in ("precision", "batch", "checkpointing"):
            setattr(options, name, getattr(options, name) or run.kept[name])
    plan = plan_for(options, device.type, half) if options.auto else None
    if plan is not None:
        print("\n".join(planning.lines(plan)), flush=True)
    how = settings_of(options, plan, half)
    run.prepare(how)
    if run.step:
        print(f"going on after step {run.step}, with a batch of "
              f"{run.steps.batch}", flush=True)

    if run.step >= options.steps:
        run.log.close()
        print(f"{run.step} steps are taken already; --steps asks for more")
        return 0

    def stop(number, _):
        run.signal = number
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    workers = options.workers or 0
    if plan is not None:
        workers = plan.workers
    whole = run.train(workers)
    if not whole:
        run.log.close()
        print(f"ended after step {run.step}; the same command goes on")
        return 128 + run.signal
    loss = run.steps.validate(run.corpus.check(min(32, options.effective_batch)))
    run.log.say(step=run.step, event="validation", loss=loss)
    run.log.close()
    print(f"validation loss {loss:.4f} nats a byte")
    if plan is not None:
        print("\n".join(planning.score(plan, run.memory_bytes(plan),
                                       run.step_ms())))
    return 0


def main(words=None):
    """The program; returns its exit status."""
    options = read_options(words)
    try:
        if not options.plan:
            return train(options)
        device = options.device or "cuda"
        made = plan_for(options, device, device == "cuda")
        print(json.dumps(dataclasses.asdict(made), indent=2) if options.json
              else "\n".join(planning.lines(made)))
        return 0
    except ModuleNotFoundError as error:
        print(f"train.py: {error}; training needs PyTorch", file=sys.stderr)
    except (planning.PlanError, OSError, ValueError, RuntimeError) as error:
        print(f"train.py: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
