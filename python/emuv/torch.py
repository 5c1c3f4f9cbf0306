# SPDX-License-Identifier: LGPL-2.1-or-later
"""Tells emuV's library of a PyTorch model's memory, in one line:

    import emuv.torch
    emuv.torch.enable(model, optimizer)

Each layer's weights get a key and a priority: embeddings leave VRAM first,
norms last. Before a layer runs, the next one's weights are prefetched. A layer
that has run is demoted if no gradient is needed and the model spills. Gradients
and optimizer states have keys of their own, so that they are told apart. Once
the library has seen a few passes it knows the order itself, and the hooks go.

Nothing here raises while the model runs. If advice fails, one line on stderr
says so, the hooks go, and the model runs as ever.
"""

import itertools
import sys
import weakref

import torch

from emuv import advice

# From the memory that leaves VRAM first to the one that leaves last. Of an
# embedding few rows are read, which the link carries in no time.
STATE, EMBEDDING, GRADIENT, WEIGHT, NORM = -80, -50, -20, 0, 50

_said = set()
_numbers = itertools.count(1)  # of models


def _say_once(text):
    if text not in _said and sys.stderr is not None:
        _said.add(text)
        try:
            print(f"emuv: {text}", file=sys.stderr)
        except (OSError, ValueError):
            pass  # it is closed


def _is_compiling():
    """A compiler reads the model instead of running it."""
    asked = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    return asked is not None and asked()


def _priority(module):
    name = type(module).__name__
    if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
        return EMBEDDING
    return NORM if "Norm" in name else WEIGHT


def _is_dense(tensor):
    return tensor.is_contiguous() or (
        tensor.dim() == 4
        and tensor.is_contiguous(memory_format=torch.channels_last))


def _bytes(tensor):
    return tensor.numel() * tensor.element_size()


def _register(key, tensor, priority):
    """Registers a tensor for as long as it lives. Memory of no allocation that
    the library knows has no key. Returns True if the library heard it."""
    if not tensor.is_cuda or not tensor.numel() or not _is_dense(tensor):
        return False
    try:
        return advice.register(key, tensor, bytes=_bytes(tensor),
                               priority=priority)
    except advice.AdviceError:
        return False


def _forget(keys):
    for key in list(keys):
        try:
            advice.forget(key)
        except KeyError:
            pass  # its memory has gone


def _do_nothing(*_):
    """Stands for a hook in a copy of a model."""


def _hook_of_a_copy():
    return _do_nothing


class _Hook:
    """A hook in a model. It raises nothing, and replaces nothing."""

    def __init__(self, told, step, *given):
        self._told, self._step, self._given = told, step, given

    def __call__(self, *arguments):
        if not _is_compiling():
            self._told.run(self._step, *self._given, *arguments)

    def __deepcopy__(self, _):
        return _do_nothing

    def __reduce__(self):
        return _hook_of_a_copy, ()


class _Layer:
    """A layer's weights: their keys, and where they were when registered. It
    holds none of them."""

    def __init__(self, weights, priority, frozen=()):
        self._weights = {key: weakref.ref(weight)
                         for key, weight in weights.items()}
        self._priority = priority
        self._frozen = frozen  # keys
        self._places = None
        self.keys = []
        self._group = advice.Group([])

    def look(self):
        """Registers those anew that lie elsewhere."""
        weights = [found() for found in self._weights.values()]
        places = [0 if weight is None else weight.data_ptr()
                  for weight in weights]
        if places == self._places:
            return
        before = self._places or [0] * len(places)
        for key, weight, old, now in zip(self._weights, weights, before,
                                         places):
            if weight is None or old == now:
                continue
            if not _register(key, weight, self._priority):
                _forget([key])
            elif key in self._frozen:
                advice.Group([key]).try_to_tell(advice.READ_MOSTLY)
        self._places = places
        self.keys = [key for key in self._weights if advice.registered(key)]
        self._group = advice.Group(self.keys)

    def is_over(self):
        """One of its weights has gone."""
        return any(found() is None for found in self._weights.values())

    def tell(self, what):
        self._group.try_to_tell(what)


class Advice:
    """The hooks and keys of enable(). Its close() takes all of it back."""

    def __init__(self, model, optimizer, passes):
        self._number = next(_numbers)
        self._left = passes
        self._over = False
        self._handles = []  # of hooks in modules
        self._others = []  # of hooks in weights and in the optimizer
        self._keys = set()
        self._layers = weakref.WeakKeyDictionary()  # by module
        # The module that was seen to run after each. None is held.
        self._after = weakref.WeakKeyDictionary()
        self._last = None
        self.spills = False
        self.run(self._begin, model, optimizer)

    @property
    def keys(self):
        """All keys whose memory is there, as emuv.where() and emuv.stats() take
        them: tuples of the model's number and ("weight", name), ("gradient",
        name) or ("state", name)."""
        return frozenset(filter(advice.registered, list(self._keys)))

    def close(self):
        """Takes the hooks away and forgets all keys. May be called again."""
        self._over = True
        self._remove_hooks(self._handles)
        self._remove_hooks(self._others)
        _forget(self._keys)
        self._keys.clear()

    def run(self, step, *arguments):
        """Takes a step of ours in the middle of a program's own. An error of
        that is none of the program's."""
        if self._over:
            return
        try:
            step(*arguments)
        except Exception as error:  # pylint: disable=broad-except
            self._over = True
            _say_once("advice for a model ends, which runs as ever: "
                      f"{type(error).__name__}: {error}")
            # The others may be called just now, one after the other. They do
            # nothing from here on.
            self._remove_hooks(self._handles)
            _forget(self._keys)
            self._keys.clear()

    def _key(self, kind, name):
        return (self._number, kind, name)

    def _begin(self, model, optimizer):
        if not advice.available():
            return
        modules = self._add_layers(model)
        if not modules:
            return
        places = [advice.where(key) for key in self.keys]
        self.spills = any(each.ram_bytes + each.card_bytes > 0
                          for each in places)
        self._add_hooks(model, modules)
        # Of older versions of PyTorch neither is there.
        if optimizer is not None and hasattr(optimizer,
                                             "register_step_post_hook"):
            names = {id(weight): name
                     for name, weight in model.named_parameters()}
            self._others.append(optimizer.register_step_post_hook(
                _Hook(self, self._stepped, names)))

    def _add_layers(self, model):
        names = {id(weight): name for name, weight in model.named_parameters()}
        seen = set()
        found = []
        for module in model.modules():
            weights = {}
            for weight in module.parameters(recurse=False):
                key = self._key("weight", names[id(weight)])
                if key not in seen:  # tied weights belong to the first layer
                    weights[key] = weight
                seen.add(key)
            frozen = {key for key, weight in weights.items()
                      if not weight.requires_grad}
            layer = _Layer(weights, _priority(module), frozen)
            layer.look()
            if layer.keys:
                self._keys.update(layer.keys)
                self._layers[module] = layer
                found.append(module)
        return found

    def _add_hooks(self, model, modules):
        for module, after in zip(modules, modules[1:]):
            self._after[module] = weakref.ref(after)
        for module in modules:
            self._handles.append(module.register_forward_pre_hook(
                _Hook(self, self._before)))
            self._handles.append(module.register_forward_hook(
                _Hook(self, self._behind)))
        self._handles.append(model.register_forward_hook(
            _Hook(self, self._passed)))
        for name, weight in model.named_parameters():
            if weight.requires_grad and hasattr(
                    weight, "register_post_accumulate_grad_hook"):
                self._others.append(
                    weight.register_post_accumulate_grad_hook(
                        _Hook(self, self._accumulated, name)))

    def _stepped(self, names, optimizer, *_):
        keys = []
        for number, (weight, state) in enumerate(optimizer.state.items()):
            for part, value in state.items():
                key = self._key(
                    "state", f"{names.get(id(weight), number)}.{part}")
                if torch.is_tensor(value) and _register(key, value, STATE):
                    keys.append(key)
        self._keys.update(keys)
        if keys and self.spills:
            advice.Group(keys).try_to_tell(advice.DEMOTE)

    def _accumulated(self, name, weight):
        key = self._key("gradient", name)
        if weight.grad is not None and _register(key, weight.grad, GRADIENT):
            self._keys.add(key)

    def _before(self, module, *_):
        layer = self._layers[module]
        layer.look()
        last = self._last() if self._last is not None else None
        if last is not None and last is not module:
            self._after[last] = weakref.ref(module)
        self._last = weakref.ref(module)
        after = self._after[module]() if module in self._after else None
        if after is not None:
            self._layers[after].tell(advice.PREFETCH)

    def _behind(self, module, *_):
        if self.spills and not torch.is_grad_enabled():
            self._layers[module].tell(advice.DEMOTE)

    def _passed(self, *_):
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self._remove_hooks(self._handles)
                self._remove_hooks(self._others)

    @staticmethod
    def _remove_hooks(handles):
        while handles:
            handles.pop().remove()


def enable(model, optimizer=None, passes=8):
    """Tells emuV's library of a model's memory. Returns an Advice.

    model: a torch.nn.Module whose weights lie on the card already. A weight
    that lies elsewhere later is registered anew as its layer runs. Keys go with
    their weights.
    optimizer: its torch.optim.Optimizer, if it is trained.
    passes: the forward passes after which the hooks go; None: never. The keys
    stay until Advice.close().

    Without the library one line says so, and the model runs as ever. Copies of
    the model have no advice. Raises TypeError if there is no model.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError("a model is a torch.nn.Module, and not a "
                        + type(model).__name__)
    made = Advice(model, optimizer, passes)
    if not advice.available():
        _say_once("the library is not loaded, so no advice is heard: start the "
                  "program with \"emuvctl run\"")
    elif not made.keys:
        _say_once("no weight lies in memory that the library knows: move the "
                  "model to the card before enable()")
    return made


# By layer, so that copies of a layer have keys of their own.
_linears = weakref.WeakKeyDictionary()


class StackLinear(torch.nn.Linear):
    """A linear layer that says itself when its weights are used.

    Beside torch.nn.Linear's arguments it takes `priority`, and `stay`: True pins
    the weights in VRAM, as far as three quarters of the share allow.
    """

    def __init__(self, *arguments, priority=WEIGHT, stay=False, **named):
        super().__init__(*arguments, **named)
        self._priority, self._stays = priority, stay

    def _told(self):
        told = _linears.get(self)
        if told is None or told.is_over():
            number = next(_numbers)
            weights = {(number, "linear", name): weight
                       for name, weight in self.named_parameters(recurse=False)}
            told = _linears[self] = _Layer(weights, self._priority)
        before = told.keys
        told.look()
        if self._stays and told.keys is not before:
            told.tell(advice.PIN)
        return told

    def _tell(self, what):
        if _is_compiling():
            return
        try:
            self._told().tell(what)
        except Exception as error:  # pylint: disable=broad-except
            _say_once("no advice is heard of a layer, which runs as ever: "
                      f"{type(error).__name__}: {error}")

    @property
    def keys(self):
        """The keys of its weights, once it has run on the card."""
        told = _linears.get(self)
        return tuple(told.keys) if told is not None else ()

    def prefetch(self):
        """Its weights are used soon."""
        self._tell(advice.PREFETCH)

    def forward(self, input):
        self._tell(advice.ACCESS)
        return super().forward(input)
