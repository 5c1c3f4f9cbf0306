# SPDX-License-Identifier: GPL-2.0-or-later
"""A run leaves a checkpoint and a log in its folder."""

import json
import os
import pathlib

import torch

CHECKPOINT = "checkpoint.pt"
LOG = "log.jsonl"
FORMAT = 1
# Data alone. PyTorch 1 knows the word, but then reads no floats.
SAFELY = {"weights_only": True} if torch.__version__[:2] != "1." else {}


class StateError(RuntimeError):
    """A folder that a run cannot go on from."""


def random_state(device):
    """The state of the generators that a step draws from."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state, device):
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def save(folder, content, before_it_counts=lambda: None):
    """Writes a checkpoint. Whenever the process ends, the folder has the one
    before or the new one, whole.

    before_it_counts: is called when all is written and nothing is replaced yet.
    """
    folder = pathlib.Path(folder)
    new = folder / (CHECKPOINT + ".new")
    try:
        with open(new, "wb") as file:
            torch.save({"format": FORMAT, **content}, file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    before_it_counts()
    os.replace(new, folder / CHECKPOINT)
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def load(folder):
    """The folder's checkpoint, on the host; None if it has none."""
    file = pathlib.Path(folder) / CHECKPOINT
    if not file.exists():
        return None
    try:
        content = torch.load(file, map_location="cpu", **SAFELY)
    except Exception as error:
        raise StateError(f"{file}: cannot be read: {error}") from error
    if content.get("format") != FORMAT:
        raise StateError(f"{file}: is of another version of this program")
    return content


class Log:
    """A file with a JSON object a line: one for each step, and events."""

    def __init__(self, folder, step):
        """step: the last one that counts. Lines of later steps go: they are
        taken again. So does a line that was cut off."""
        path = pathlib.Path(folder) / LOG
        kept = []
        if path.exists():
            for line in path.read_bytes().splitlines(keepends=True):
                try:
                    said = json.loads(line)
                except ValueError:
                    break
                if not line.endswith(b"\n") or said["step"] > step:
                    break
                kept.append(line)
        new = path.with_suffix(".new")
        with open(new, "wb") as file:
            file.writelines(kept)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
        self._file = open(path, "a", encoding="utf-8")

    def say(self, **what):
        self._file.write(json.dumps(what) + "\n")
        self._file.flush()

    def settle(self):
        """To the disk: a checkpoint's log is there once the checkpoint is."""
        os.fsync(self._file.fileno())

    def close(self):
        self._file.close()
