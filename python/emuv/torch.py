# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a PyTorch program can say of a model's memory, in one line:

    import emuv.torch
    emuv.torch.enable(model, optimizer)

Each layer's weights get a key and a priority: embeddings leave VRAM first,
norms last. Before a layer runs, the next one's weights are prefetched. A layer
that has run is demoted if no gradient is needed and the model spills. Gradients
and optimizer states have keys of their own, so that they are told apart. Once
the library has seen a few passes it knows the order itself, and the hooks go.
"""

import functools
import sys

import torch

from emuv import advice

# From the memory that leaves VRAM first to the one that leaves last. Of an
# embedding few rows are read, which the link carries in no time.
STATE, EMBEDDING, GRADIENT, WEIGHT, NORM = -80, -50, -20, 0, 50

_said = set()


def _say_once(text):
    if text not in _said:
        _said.add(text)
        print(f"emuv: {text}", file=sys.stderr)


def _priority(module):
    name = type(module).__name__
    if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
        return EMBEDDING
    return NORM if "Norm" in name else WEIGHT


class Advice:
    """What enable() has arranged. Its close() takes all of it back."""

    def __init__(self, model, optimizer, passes):
        self._left = passes
        self._handles = []
        self._keys = set()
        self._places = {}  # of keys: where their memory was when registered
        self._layers = []
        self._groups = {}
        self._after = {}  # the layer that was seen to run after each
        self._last = None
        self.spills = False
        if advice.available():
            self._add_layers(model)
        if self._layers:
            self.spills = any(advice.where(key).ram_bytes > 0
                              for key in self._keys)
            self._add_hooks(model)
            if optimizer is not None:
                self._add_optimizer(model, optimizer)

    @property
    def keys(self):
        """All keys, as tuples: ("weight", name), ("gradient", name) and
        ("state", number, name), as emuv.where() and emuv.stats() take them."""
        return frozenset(self._keys)

    def close(self):
        """Takes the hooks away and forgets all keys."""
        self._remove_hooks()
        for key in self._keys:
            advice.forget(key)
        self._keys.clear()
        self._places.clear()

    def _register(self, key, tensor, priority):
        """Registers a tensor, or says that it is used where it lay before.
        Memory of no allocation that the library knows has no key."""
        if not tensor.is_cuda or not tensor.is_contiguous() or not tensor.numel():
            return False
        place = (tensor.data_ptr(), tensor.numel() * tensor.element_size())
        # It may lie there again, in another allocation.
        if (self._places.get(key) == place
                and advice.Group([key]).try_to_tell(advice.ACCESS)
                == advice.OK):
            return True
        try:
            heard = advice.register(key, place[0], place[1], priority)
        except advice.AdviceError:
            self._keys.discard(key)
            self._places.pop(key, None)
            return False
        self._keys.add(key)
        self._places[key] = place
        return heard

    def _add_layers(self, model):
        names = {id(weight): name for name, weight in model.named_parameters()}
        seen = set()
        for module in model.modules():
            keys = []
            for weight in module.parameters(recurse=False):
                key = ("weight", names[id(weight)])
                if key in seen:
                    continue  # tied weights belong to the first layer
                seen.add(key)
                if self._register(key, weight.data, _priority(module)):
                    keys.append(key)
                    if not weight.requires_grad:
                        advice.read_mostly(key)
            if keys:
                self._layers.append(module)
                self._groups[module] = advice.Group(keys)

    def _add_hooks(self, model):
        for before, after in zip(self._layers, self._layers[1:]):
            self._after[before] = after
        for layer in self._layers:
            self._handles.append(layer.register_forward_pre_hook(self._before))
            self._handles.append(layer.register_forward_hook(self._behind))
        self._handles.append(model.register_forward_hook(self._passed))
        for name, weight in model.named_parameters():
            if weight.requires_grad:
                self._handles.append(
                    weight.register_post_accumulate_grad_hook(
                        functools.partial(self._accumulated, name)))

    def _add_optimizer(self, model, optimizer):
        names = {id(weight): name for name, weight in model.named_parameters()}

        def stepped(which, *_):
            keys = []
            for number, (weight, state) in enumerate(which.state.items()):
                for part, value in state.items():
                    key = ("state", number,
                           f"{names.get(id(weight), number)}.{part}")
                    if torch.is_tensor(value) and self._register(key, value,
                                                                 STATE):
                        keys.append(key)
            if keys and self.spills:
                advice.Group(keys).try_to_tell(advice.DEMOTE)
        self._handles.append(optimizer.register_step_post_hook(stepped))

    def _accumulated(self, name, weight):
        self._register(("gradient", name), weight.grad, GRADIENT)

    def _before(self, layer, _):
        if self._last is not None and self._last is not layer:
            self._after[self._last] = layer
        self._last = layer
        following = self._groups.get(self._after.get(layer))
        if following is not None:
            following.try_to_tell(advice.PREFETCH)

    def _behind(self, layer, *_):
        if self.spills and not torch.is_grad_enabled():
            self._groups[layer].try_to_tell(advice.DEMOTE)

    def _passed(self, *_):
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self._remove_hooks()

    def _remove_hooks(self):
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def enable(model, optimizer=None, passes=8):
    """Tells emuV's library of a model's memory. Returns an Advice.

    model: a torch.nn.Module whose weights lie on the card already.
    optimizer: its torch.optim.Optimizer, if it is trained.
    passes: the forward passes after which the hooks go; None: never. The keys
    stay until Advice.close().

    Without the library one line says so, and the model runs as ever.
    """
    made = Advice(model, optimizer, passes)
    if not advice.available():
        _say_once("the library is not loaded, so no advice is heard: start the "
                  "program with \"emuvctl run\"")
    elif not made.keys:
        _say_once("no weight lies in memory that the library knows: move the "
                  "model to the card before enable()")
    return made


class StackLinear(torch.nn.Linear):
    """A linear layer that says itself when its weights are used.

    Beside torch.nn.Linear's arguments it takes `priority`, and `stay`: True pins
    the weights in VRAM.
    """

    def __init__(self, *arguments, priority=WEIGHT, stay=False, **named):
        super().__init__(*arguments, **named)
        self._stack = (priority, stay)
        self._place = None
        self._group = None

    def _tell_place(self):
        priority, stay = self._stack
        keys = []
        for name, weight in self.named_parameters(recurse=False):
            key = (id(self), name)
            try:
                if weight.is_cuda and advice.register(key, weight.data,
                                                      priority=priority):
                    keys.append(key)
            except advice.AdviceError:
                continue
        self._group = advice.Group(keys) if keys else None
        if stay and self._group is not None:
            self._group.tell(advice.PIN)

    def prefetch(self):
        """Its weights are used soon."""
        if self._group is not None:
            self._group.try_to_tell(advice.PREFETCH)

    def forward(self, input):
        if self._place != self.weight.data_ptr():
            self._place = self.weight.data_ptr()
            self._tell_place()
        if self._group is not None:
            self._group.try_to_tell(advice.ACCESS)
        return super().forward(input)
