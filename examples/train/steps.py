# SPDX-License-Identifier: GPL-2.0-or-later
"""Training steps that go on with less where memory runs out."""

import contextlib
import math
import os
import signal

import torch

from state import random_state, set_random_state


class TooLarge(RuntimeError):
    """Not even one sequence fits."""


class Diverged(RuntimeError):
    """The loss is no number. The weights are left as they are."""


class LostUpdate(RuntimeError):
    """Memory ran out while weights were changed: some are, and some are not."""


def is_out_of_memory(error):
    """True of PyTorch's own word for it, and of those of libraries below it."""
    return (isinstance(error, torch.cuda.OutOfMemoryError)
            or "out of memory" in str(error).lower()
            or "CUBLAS_STATUS_ALLOC_FAILED" in str(error)
            or "can't allocate memory" in str(error))


class Injected:
    """Failures on purpose, for tests: EMUV_TRAIN_INJECT="WHAT:STEP,...".

    oom: memory runs out in the step's last backward pass; update-oom: while
    weights change; kill: SIGKILL between forward and backward; kill-save: when
    a checkpoint is written but does not count yet; term: SIGTERM; interrupt: SIGINT
    to the process group, as a terminal sends it.
    """

    def __init__(self, text):
        self._left = [tuple(each.split(":")) for each in text.split(",") if each]

    def happens(self, what, step):
        if (what, str(step)) not in self._left:
            return False
        self._left.remove((what, str(step)))
        return True

    def run_out(self, what, step):
        if self.happens(what, step):
            raise RuntimeError("CUDA out of memory (injected)")

    def kill(self, what, step):
        if self.happens(what, step):
            os.kill(os.getpid(), signal.SIGKILL)


class Steps:
    """Takes steps of one effective batch, whatever the batch is.

    batch: sequences that go through the model at once; it divides the effective
    batch, and falls where memory runs out.
    """

    def __init__(self, model, optimizer, device, precision, batch, injected):
        self.model, self.optimizer, self.device = model, optimizer, device
        self.precision, self.batch, self.injected = precision, batch, injected

    def _products(self):
        if self.precision == "autocast":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()

    def _gradients(self, step, sequences):
        """Adds up the gradients of a step; returns the loss."""
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self.device)
        parts = sequences.split(self.batch)
        for number, part in enumerate(parts):
            part = part.to(self.device, non_blocking=True)
            with self._products():
                loss = self.model.loss(part)
            loss = loss * (len(part) / len(sequences))
            if number + 1 == len(parts):
                self.injected.kill("kill", step)
                self.injected.run_out("oom", step)
            loss.backward()
            total += loss.detach()
        return total.item()

    def lower(self):
        """Asks for less memory. Returns a line about it."""
        if self.batch > 1:
            self.batch = next(each for each in range(self.batch // 2, 0, -1)
                              if self.batch % each == 0)
            return f"the batch is {self.batch} from now on"
        if not self.model.checkpointing:
            self.model.checkpointing = True
            return "activations are computed again from now on"
        raise TooLarge("not even one sequence fits, with --checkpointing")

    def take(self, step, sequences, tell):
        """One step; returns its loss. If memory runs out, the whole step is taken
        again with less: the effective batch and its sequences stay.

        tell: is called with a line about each time.
        """
        while True:
            before = random_state(self.device)
            try:
                loss = self._gradients(step, sequences)
                break
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            # Here the error, and with it what it holds, is gone.
            self.optimizer.zero_grad(set_to_none=True)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            tell(self.lower())
            set_random_state(before, self.device)
        if not math.isfinite(loss):
            raise Diverged(f"step {step}: the loss is {loss}; a lower --rate "
                           "may help")
        self._update(step)
        return loss

    def _update(self, step):
        try:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.injected.run_out("update-oom", step)
            self.optimizer.step()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise LostUpdate(str(error)) from None
        self.optimizer.zero_grad(set_to_none=True)

    def validate(self, sequences):
        """The mean loss of sequences that are not trained on."""
        self.model.eval()
        total = 0.0
        with torch.no_grad(), self._products():
            for part in sequences.split(self.batch):
                total += self.model.loss(part.to(self.device)).item() * len(part)
        self.model.train()
        return total / len(sequences)
