# SPDX-License-Identifier: GPL-2.0-or-later
"""Chooses how to train, by what `emuvctl estimate` says of this machine."""

import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile

GiB = 1 << 30
# By width, as published for GPT-2; tiny is for tests, and for a processor.
PRESETS = {
    "tiny": {"n_layer": 4, "n_embd": 64, "n_head": 2, "n_positions": 64},
    "small": {"n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024},
    "medium": {"n_layer": 24, "n_embd": 1024, "n_head": 16, "n_positions": 1024},
    "large": {"n_layer": 36, "n_embd": 1280, "n_head": 20, "n_positions": 1024},
}
# Words for estimate's options. In 16 bits alone weights lose small updates, so
# that is the last resort.
PRECISIONS = {
    "fp32": ["--dtype", "fp32"],
    "autocast": ["--dtype", "bf16", "--mixed", "autocast"],
    "bf16": ["--dtype", "bf16"],
}
SAYS = {"fp32": "32 bits", "autocast": "products in bf16, weights in 32 bits",
        "bf16": "all in bf16: small updates are lost"}
# Text is cut out of memory: more than one worker has nothing to do.
WORKERS = 1


class PlanError(RuntimeError):
    """Nothing to train with, or no word from emuvctl."""


@dataclasses.dataclass
class Machine:
    """The machine to plan for. None stands for what emuvctl finds."""

    device: str = "cuda"  # or "cpu"
    gpu: str = None
    vram: str = None  # the share, as EMUV_PHYSICAL has it
    instance: str = None
    virtual: str = None  # the spilled bytes that are allowed
    processes: int = 1
    ram: str = None

    def words(self):
        """Options of estimate."""
        out = ["--processes", str(self.processes)]
        for option, value in (("--gpu", self.gpu), ("--vram", self.vram),
                              ("--instance", self.instance),
                              ("--ram", self.ram)):
            if value is not None and not (option == "--vram" and self.instance):
                out += [option, value]
        return out if self.device == "cuda" else ["--ram", self.ram] \
            if self.ram else []

    @property
    def spills(self):
        """True where memory beyond the share can go to RAM: under emuV."""
        return self.instance is not None or self.virtual is not None


def this_machine(device, environment=os.environ, **given):
    """The machine, with the share that `emuvctl run` gave this process."""
    out = Machine(device, **given)
    if device != "cuda":
        return out
    number = environment.get("EMUV_INSTANCE")
    if number is not None and out.instance is None and out.gpu is None:
        out.instance = "emuv" + number.split(",")[0]  # the first card's
    if out.vram is None:
        out.vram = environment.get("EMUV_PHYSICAL")
    if out.virtual is None:
        out.virtual = environment.get("EMUV_VIRTUAL")
    return out


@dataclasses.dataclass
class Plan:
    """How to train, and what comes of it. Bytes and milliseconds are low, likely
    and high."""

    precision: str
    checkpointing: bool
    batch: int  # sequences at once
    accumulate: int  # so many of them make a step
    workers: int
    processes: int
    card: str  # None on a processor
    vram_bytes: int
    verdict: str  # fits, may spill, spills
    memory_bytes: tuple
    context_bytes: tuple  # of the memory: the CUDA context
    spilled_bytes: tuple
    step_ms: tuple  # None where the card's speed is not known
    host_bytes: tuple
    ram_bytes: int
    notes: list
    parameters: int = 0


def ask(tool, shape, words):
    """The answer of `emuvctl estimate` about a shape, as its JSON has it."""
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "config.json")
        config.write_text(json.dumps({"model_type": "gpt2", **shape}))
        command = [tool, "estimate", "--config", str(config), "--mode", "train",
                   "--sequence", str(shape["n_positions"]), "--json", *words]
        try:
            # Under emuV this process has a library that emuvctl has no use for.
            done = subprocess.run(command, text=True, capture_output=True,
                                  check=False, env={
                                      name: value
                                      for name, value in os.environ.items()
                                      if name != "LD_PRELOAD"})
        except OSError as error:
            raise PlanError(f"{tool}: {error.strerror}; --auto needs emuvctl "
                            "(--emuvctl PATH)") from error
    if done.returncode != 0:
        said = [line for line in done.stderr.strip().splitlines()
                if not line.startswith("Try ")]
        raise PlanError("\n".join(said).replace(str(config), "the model"))
    return json.loads(done.stdout)


def _part(said, name):
    for row in said["estimate"]:
        if row["part"] == name:
            return (row["low_bytes"], row["likely_bytes"], row["high_bytes"])
    return (0, 0, 0)


def _three(said, *names):
    return tuple(said.get(name, 0) for name in names)


def bytes_of(text):
    """A size as emuV's settings have it: 12G, 512M, bytes."""
    units = "KMGTP"
    text = text.strip().upper().rstrip("B").rstrip("I")
    if text and text[-1] in units:
        return int(float(text[:-1]) * (1 << (10 * (units.index(text[-1]) + 1))))
    return int(text)


def _made(said, precision, checkpointing, batch, effective, machine):
    accumulate = effective // batch
    memory = _part(said, "peak")
    context = _part(said, "context")
    step = None
    if "pass_ms" in said:
        step = tuple(each * accumulate for each in
                     _three(said, "pass_low_ms", "pass_ms", "pass_high_ms"))
    if machine.device != "cuda":
        memory = tuple(all_ - own for all_, own in zip(memory, context))
        context = (0, 0, 0)
        verdict = "fits" if memory[2] < said["host_ram_bytes"] else \
            "may spill" if memory[1] < said["host_ram_bytes"] else "too large"
    else:
        verdict = said["verdict"]
    safe = said.get("safe_workers")
    notes = []
    wanted = WORKERS if machine.device == "cuda" else 0
    workers = min(wanted, safe or 0)
    if safe is None and machine.device == "cuda":
        notes.append("RAM is short even without workers")
    elif workers < wanted:
        notes.append("RAM is too short for workers")
    if precision == "bf16":
        notes.append("nothing better than 16-bit weights fits")
    return Plan(
        precision, checkpointing, batch, accumulate, workers, machine.processes,
        said.get("gpu"), said.get("vram_bytes", 0), verdict, memory, context,
        _three(said, "spilled_low_bytes", "spilled_bytes", "spilled_high_bytes"),
        step, _three(said, "host_low_bytes", "host_bytes", "host_high_bytes"),
        said["host_ram_bytes"], notes, said["parameters"])


def _allowed(plan, machine):
    """A plan's place behind those that are surer; None if it cannot be."""
    if plan.host_bytes[1] > plan.ram_bytes and machine.device == "cuda":
        return None
    if plan.verdict == "fits":
        return 0
    if plan.verdict == "may spill":
        return 1
    if plan.verdict == "too large" or not machine.spills:
        return None
    if machine.virtual is not None and \
            plan.spilled_bytes[1] > bytes_of(machine.virtual):
        return None
    return 2


def one(tool, shape, effective, machine, how):
    """The plan of one way to train. how: precision, checkpointing, batch."""
    precision, checkpointing, batch = how
    words = [*PRECISIONS[precision], "--batch", str(batch), *machine.words()]
    words += ["--checkpointing"] if checkpointing else []
    words += ["--accumulate"] if batch < effective else []
    workers = WORKERS if machine.device == "cuda" else 0
    said = ask(tool, shape, [*words, "--workers", str(workers)])
    if workers > (said.get("safe_workers") or 0):
        said = ask(tool, shape, [*words, "--workers", "0"])
    return _made(said, precision, checkpointing, batch, effective, machine)


def make(tool, shape, effective, machine, precisions, batch=None,
         checkpointing=False):
    """The plan to train a shape with so many sequences a step.

    precisions: words of PRECISIONS; a later one counts only where the ones before
    fit in no way. Of what fits alike surely the fastest is taken, then what
    computes nothing again, then the smallest. A predicted time of memory that
    spills is the least sure of all, so what fits goes first.
    batch, checkpointing: what the user wants, if anything.
    """
    batches = [batch] if batch else \
        [each for each in range(effective, 0, -1) if effective % each == 0]
    smallest = None
    for precision in precisions:
        found = []
        for again in (True,) if checkpointing else (False, True):
            for size in batches:
                plan = one(tool, shape, effective, machine,
                           (precision, again, size))
                if machine.device == "cuda" and plan.card is None:
                    raise PlanError("emuvctl finds no card that it knows: name "
                                    "one with --gpu")
                smallest = plan
                place = _allowed(plan, machine)
                if place is not None:
                    time = plan.step_ms[1] if plan.step_ms else 0
                    found.append(((place, time, again, plan.memory_bytes[1]),
                                  plan))
                if place == 0:
                    break  # smaller ones take longer
        if found:
            return min(found, key=lambda each: each[0])[1]
    raise PlanError(_nothing(smallest, machine))


def _size(count):
    return f"{count / GiB:.1f} GiB" if count >= GiB else \
        f"{count / (1 << 20):.0f} MiB"


def _sizes(three):
    return f"{_size(three[1])} ({_size(three[0])} to {_size(three[2])})"


def _nothing(least, machine):
    """Words for why nothing fits."""
    if least.host_bytes[1] > least.ram_bytes and machine.device == "cuda":
        return (f"RAM is too short: the least takes {_sizes(least.host_bytes)} "
                f"of {_size(least.ram_bytes)}")
    text = (f"it does not fit: with a batch of {least.batch} it takes "
            f"{_sizes(least.memory_bytes)}")
    if least.verdict == "spills" and not machine.spills:
        text += (f" of {_size(least.vram_bytes)}. It runs with memory in RAM:\n"
                 f"  emuvctl run --physical {least.vram_bytes // (1 << 20)}M "
                 f"--virtual {int(least.spilled_bytes[2] / GiB * 1.25) + 1}G "
                 "-- python3 train.py ...")
    return text


def _times(three):
    return "{1:.0f} ms ({0:.0f} to {2:.0f} ms)".format(*three)


def lines(plan):
    """The plan for people, in at most 79 columns."""
    out = [f"plan for {plan.card or 'the processor'}"
           + (f", {_size(plan.vram_bytes)}" if plan.card else "")
           + (f", {plan.processes} processes" if plan.processes > 1 else "")]
    rows = [
        ("parameters", f"{plan.parameters / 1e6:.1f} million"),
        ("precision", SAYS[plan.precision]),
        ("checkpointing", "yes" if plan.checkpointing else "no"),
        ("batch", f"{plan.batch}, {plan.accumulate} to a step"),
        ("workers", str(plan.workers)),
        ("memory", f"{_sizes(plan.memory_bytes)}: {plan.verdict}"),
    ]
    if plan.spilled_bytes[2]:
        rows.append(("in RAM", _sizes(plan.spilled_bytes)))
    if plan.card:
        rows.append(("host", f"{_sizes(plan.host_bytes)} of "
                             f"{_size(plan.ram_bytes)}"))
    rows.append(("step", _times(plan.step_ms) if plan.step_ms
                 else "not known: the speed is in no table"))
    out += [f"  {name:14} {text}" for name, text in rows]
    return out + [f"  note: {note}" for note in plan.notes]


def score(plan, memory_bytes, step_ms):
    """The prediction beside what came, as a table. A number that is not known
    is None."""
    out = [f"{'':14} {'low':>9} {'likely':>9} {'high':>9} {'took':>9}"]

    def row(name, three, took, form):
        cells = [form(each) for each in three] if three else ["-"] * 3
        cells.append(form(took) if took is not None else "-")
        out.append(f"{name:14} " + " ".join(f"{each:>9}" for each in cells))

    row("memory, GiB", plan.memory_bytes, memory_bytes,
        lambda count: f"{count / GiB:.3f}")
    row("step, ms", plan.step_ms, step_ms, lambda time: f"{time:.0f}")
    return out
