# SPDX-License-Identifier: GPL-2.0-or-later
"""As much of PyTorch as emuv.torch asks for, over ctypes and the driver that
the process has: modules, hooks, parameters on the card, one optimizer."""

import ctypes
import types


channels_last = "channels last"


class Driver:
    """The card's memory. It is asked for with the first tensor on it."""

    cuda = None

    @classmethod
    def get(cls):
        if cls.cuda is None:
            cls.cuda = ctypes.CDLL("libcuda.so.1")
            context = ctypes.c_void_p()
            assert cls.cuda.cuInit(0) == 0
            assert cls.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context),
                                                     0) == 0
            assert cls.cuda.cuCtxSetCurrent(context) == 0
        return cls.cuda


class Tensor:
    def __init__(self, count, on_card=True):
        self.count = count
        self.is_cuda = on_card
        self.at = ctypes.c_uint64()
        self.requires_grad = True
        self.grad = None
        self.grad_hooks = Hooks()
        if on_card:
            assert Driver.get().cuMemAlloc_v2(ctypes.byref(self.at),
                                              ctypes.c_size_t(4 * count)) == 0

    @property
    def data(self):
        return self

    def free(self):
        assert Driver.get().cuMemFree_v2(self.at) == 0

    def data_ptr(self):
        return self.at.value

    def numel(self):
        return self.count

    def element_size(self):
        return 4

    def is_contiguous(self, memory_format=None):
        return True

    def dim(self):
        return 2

    def register_post_accumulate_grad_hook(self, hook):
        return self.grad_hooks.add(hook)


class Hooks(list):
    def add(self, hook):
        self.append(hook)
        return types.SimpleNamespace(remove=lambda: self.remove(hook))

    def run(self, *arguments):
        for each in list(self):
            assert each(*arguments) is None, "it would replace something"


class Module:
    def __init__(self):
        self.before, self.after = Hooks(), Hooks()

    def register_forward_pre_hook(self, hook):
        return self.before.add(hook)

    def register_forward_hook(self, hook):
        return self.after.add(hook)

    def children(self):
        return [(name, each) for name, each in vars(self).items()
                if isinstance(each, Module)]

    def modules(self):
        yield self
        for _, each in self.children():
            yield from each.modules()

    def parameters(self, recurse=True):
        return [each for _, each in self.named_parameters(recurse=recurse)]

    def named_parameters(self, recurse=True):
        found = [(name, each) for name, each in vars(self).items()
                 if isinstance(each, Tensor)]
        for name, child in self.children() if recurse else ():
            found += [(f"{name}.{part}", each)
                      for part, each in child.named_parameters()]
        return found

    def __call__(self, *arguments):
        self.before.run(self, arguments)
        made = self.forward(*arguments)
        self.after.run(self, arguments, made)
        return made


class Layer(Module):
    def __init__(self, count, on_card=True):
        super().__init__()
        self.weight = Tensor(count, on_card)

    def forward(self, given):
        assert Driver.get().cuMemsetD8_v2(self.weight.at, 0,
                                          ctypes.c_size_t(4)) == 0
        return given


class Linear(Layer):
    def __init__(self, inputs, outputs):
        super().__init__(inputs * outputs)


class Embedding(Layer):
    pass


class EmbeddingBag(Layer):
    pass


class LayerNorm(Layer):
    pass


class Optimizer:
    def __init__(self):
        self.state = {}
        self.hooks = Hooks()

    def register_step_post_hook(self, hook):
        return self.hooks.add(hook)

    def step(self):
        self.hooks.run(self, (), {})


_grad = [True]


def is_grad_enabled():
    return _grad[0]


def is_tensor(value):
    return isinstance(value, Tensor)


nn = types.SimpleNamespace(Module=Module, Linear=Linear, Embedding=Embedding,
                           EmbeddingBag=EmbeddingBag, LayerNorm=LayerNorm)
