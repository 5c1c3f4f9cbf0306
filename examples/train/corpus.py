# SPDX-License-Identifier: GPL-2.0-or-later
"""Text as bytes, and the sequences of each step."""

import hashlib
import pathlib
import signal

import torch

OWN = pathlib.Path(__file__).resolve().parent / "alice.txt"
WORDS = 256  # a byte is a word


class Corpus:
    """The text of some files. The last tenth is kept for validation."""

    def __init__(self, files, length):
        """length: bytes that a sequence has, and one more to predict."""
        text = b"".join(pathlib.Path(each).read_bytes()
                        for each in files or [OWN])
        self.digest = hashlib.sha256(text).hexdigest()
        self.length = length
        cut = len(text) - len(text) // 10
        if len(text) - cut <= length or cut <= length:
            raise ValueError(f"the text has {len(text)} bytes: a sequence of "
                             f"{length} needs at least {10 * (length + 1)}")
        everything = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self.train, self.validation = everything[:cut], everything[cut:]

    def sequences(self, seed, step, count):
        """The sequences of a step, [count, length + 1]. They depend on seed and
        step alone, so a run that goes on gets the same."""
        chance = torch.Generator().manual_seed((seed << 32) + step)
        starts = torch.randint(len(self.train) - self.length, (count,),
                               generator=chance)
        return self._cut(self.train, starts)

    def check(self, count):
        """Sequences for validation, the same each time."""
        starts = torch.linspace(0, len(self.validation) - self.length - 1,
                                count).long()
        return self._cut(self.validation, starts)

    def _cut(self, text, starts):
        places = starts[:, None] + torch.arange(self.length + 1)
        return text[places].long()


class Steps(torch.utils.data.Dataset):
    """Each step's sequences, for a DataLoader."""

    def __init__(self, corpus, seed, count):
        self.corpus, self.seed, self.count = corpus, seed, count

    def __getitem__(self, step):
        return self.corpus.sequences(self.seed, step, self.count)


def _be_a_worker(_):
    """Of signals: the terminal's interrupt is for the run, which saves first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def load(corpus, seed, count, steps, workers, pinned):
    """An iterator over the sequences of a range of steps. It draws nothing from
    the generator that dropout uses: a run that goes on would draw otherwise."""
    return iter(torch.utils.data.DataLoader(
        Steps(corpus, seed, count), sampler=steps, batch_size=None,
        num_workers=workers, pin_memory=pinned,
        worker_init_fn=_be_a_worker, generator=torch.Generator()))
