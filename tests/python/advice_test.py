#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The Python package: what programs say of their memory, before the simulated
driver with the library in front, and without it. PyTorch is a stand-in."""

import argparse
import os
import pathlib
import subprocess
import sys
import textwrap
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parent.parent / "python"

BEGIN = """
import ctypes, sys, time
import emuv
from emuv import advice
MiB = 1 << 20
def until(holds, step=lambda: None):
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        step()
        time.sleep(0.001)
"""
CARD = BEGIN + """
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
def allocate(mib):
    at = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(mib * MiB)) == 0
    return at.value
def error_of(call, *arguments, **named):
    try:
        call(*arguments, **named)
    except Exception as error:
        return type(error).__name__, getattr(error, "code", None)
    return None
"""
MODEL = BEGIN + """
import torch
import emuv.torch
class Model(torch.Module):
    def __init__(self, on_card=True):
        super().__init__()
        self.words = torch.Embedding(2 * MiB, on_card)
        self.first = torch.Layer(2 * MiB, on_card)
        self.norm = torch.LayerNorm(1 * MiB, on_card)
        self.second = torch.Layer(2 * MiB, on_card)
        self.last = torch.Layer(2 * MiB, on_card)
    def forward(self, given):
        for _, each in self.children():
            given = each(given)
        return given
"""


class AdviceTest(unittest.TestCase):
    def run_program(self, program, *, library=True, moves=True, fails=False,
                    **settings):
        environment = {**os.environ, "PYTHONPATH": f"{PACKAGE}:{HERE / 'fake'}",
                       "PYTHONDONTWRITEBYTECODE": "1", "EMUV_SIM_VRAM": "64M",
                       "EMUV_TEST_LIBRARY": OPTIONS.preload}
        preload = [OPTIONS.runtime] if OPTIONS.runtime else []
        if library:
            preload.append(OPTIONS.preload)
            environment |= {"EMUV_LIBCUDA": OPTIONS.driver,
                            "EMUV_PHYSICAL": "16M", "EMUV_VIRTUAL": "64M",
                            "EMUV_STORE": "numa"}
        else:
            environment["LD_LIBRARY_PATH"] = str(
                pathlib.Path(OPTIONS.driver).parent)
        if moves:
            environment |= {"EMUV_MOVE": "1", "EMUV_TRUST": "all"}
        environment |= settings
        if preload:
            environment["LD_PRELOAD"] = " ".join(preload)
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)],
                              env=environment, text=True, check=False,
                              timeout=300, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        self.assertEqual(done.returncode != 0, fails, done.stderr)
        return done.stdout.split(), done.stderr

    def test_memory_is_found_and_comes_as_asked(self):
        said, _ = self.run_program(CARD + """
first, second = allocate(16), allocate(16)
assert emuv.register("first", first, 16 * MiB, priority=-1)
assert emuv.register(("second", 2), second, bytes=16 * MiB)
print(*emuv.where("first"))
print(*emuv.where(("second", 2)))
assert emuv.access("first", ("second", 2))
assert emuv.prefetch(("second", 2))
until(lambda: emuv.where(("second", 2)).tier == "vram")
print(*emuv.where("first"))
found = emuv.stats(("second", 2))
print(found.fetches, found.fetched_bytes, found.accesses, found.ram_hit_bytes)
print(emuv.stats().moves, emuv.stats().accesses, emuv.stats().vram_hit_bytes)
""")
        whole = str(16 << 20)
        self.assertEqual(said, ["vram", whole, "0", "0", "ram", "0", whole, "0",
                                "ram", "0", whole, "0", "1", whole, "1", whole,
                                "True", "2", whole])

    def test_memory_is_found_on_the_card_that_lends(self):
        whole = str(16 << 20)
        for moves in (False, True):
            with self.subTest(moves=moves):
                said, _ = self.run_program(CARD + """
for name in ("own", "lent", "ram"):
    assert emuv.register(name, allocate(16), 16 * MiB)
    assert emuv.access(name)
    print(*emuv.where(name))
found = emuv.stats()
print(found.vram_hit_bytes, found.ram_hit_bytes, found.card_hit_bytes)
""", moves=moves, EMUV_SIM_DEVICES="2", EMUV_TIER="peer:1=16M")
                self.assertEqual(said, ["vram", whole, "0", "0",
                                        "card", "0", "0", whole,
                                        "ram", "0", whole, "0", *[whole] * 3])

    def test_memory_of_a_card_comes_as_asked(self):
        said, _ = self.run_program(CARD + """
for name in ("first", "second"):
    assert emuv.register(name, allocate(16), 16 * MiB)
print(emuv.where("second").tier)
emuv.prefetch("second")
until(lambda: emuv.where("second").tier == "vram")
found = emuv.where("first")
assert found.vram_bytes == 0, found
""", EMUV_SIM_DEVICES="2", EMUV_TIER="peer:1=16M")
        self.assertEqual(said, ["card"])

    def test_what_is_wrong_raises_and_says_what(self):
        said, _ = self.run_program(CARD + """
at = allocate(4)
print(error_of(emuv.prefetch, "nothing")[0])
print(*error_of(emuv.register, 1, at, 4 * MiB + 1))
print(*error_of(emuv.register, 1, 4096, 1))
print(error_of(emuv.prefetch, 1)[0])
print(error_of(emuv.register, 1, at, -1)[0])
print(error_of(emuv.register, 1, at, 1 << 64)[0])
print(error_of(emuv.register, 1, -5, 1)[0])
print(error_of(emuv.register, 1, at)[0])
print(error_of(emuv.register, 1, at, 1, priority=101)[0])
assert emuv.register(1, at, 4 * MiB)
assert cuda.cuMemFree_v2(ctypes.c_uint64(at)) == 0
print(*error_of(emuv.access, 1))
assert emuv.forget(1)
print(error_of(emuv.forget, 1)[0])
""")
        self.assertEqual(said, [
            "KeyError", "AdviceError", "-5", "AdviceError", "-4", "KeyError",
            "ValueError", "ValueError", "ValueError", "TypeError", "ValueError",
            "AdviceError", "-6", "KeyError"])

    def test_arrays_say_themselves_where_they_are(self):
        said, _ = self.run_program(CARD + """
class Array:
    __cuda_array_interface__ = {"data": (allocate(4), False), "typestr": "<f4",
                                "shape": (1024, 1024), "strides": None}
class Strided:
    __cuda_array_interface__ = {**Array.__cuda_array_interface__,
                                "strides": (8192, 8)}
whole = Array()
assert emuv.register("array", whole)
print(sum(emuv.where("array")[1:]), error_of(emuv.register, 2, Strided())[0])
""")
        self.assertEqual(said, [str(4 << 20), "TypeError"])

    def test_threads_may_say_things_at_once(self):
        self.run_program(CARD + """
import threading
blocks = [allocate(8) for _ in range(6)]
def say(first):
    for step in range(300):
        key = (first, step % 6)
        emuv.register(key, blocks[step % 6], 8 * MiB, priority=step % 9)
        try:
            for tell in (emuv.access, emuv.pin, emuv.prefetch, emuv.unpin,
                         emuv.demote, emuv.promote):
                tell(key)
        except emuv.AdviceError as error:
            assert error.code == -9, error # too much is pinned
        emuv.where(key)
        emuv.forget(key)
threads = [threading.Thread(target=say, args=(i,)) for i in range(4)]
for each in threads: each.start()
for each in threads: each.join()
for at in blocks:
    assert cuda.cuMemFree_v2(ctypes.c_uint64(at)) == 0
""")

    def test_without_the_library_nobody_hears_and_nothing_fails(self):
        said, errors = self.run_program(BEGIN + """
print(emuv.available(), emuv.register("a", 4096, 1), emuv.prefetch("a"))
print(*emuv.where("a"), *emuv.stats())
print(emuv.forget("a"))
""", library=False)
        self.assertEqual(said, ["False", "False", "False", "unknown",
                                *["0"] * 3, "False", *["0"] * 9, "False"])
        self.assertEqual(errors, "")

    def test_before_the_driver_starts_nobody_hears(self):
        said, _ = self.run_program(BEGIN + """
print(emuv.available(), emuv.register("a", 4096, 1), emuv.prefetch("a"))
""" + CARD.removeprefix(BEGIN) + """
print(emuv.prefetch("a"), *emuv.stats("a"), *emuv.where("a"))
""")
        self.assertEqual(said, ["True", "False", "False", "False", "False",
                                *["0"] * 9, "unknown", *["0"] * 3])

    def test_a_library_that_is_loaded_later_is_found(self):
        said, _ = self.run_program(BEGIN + """
import os
print(emuv.available(), emuv.register("a", 4096, 1))
later = ctypes.CDLL(os.environ["EMUV_TEST_LIBRARY"])
print(emuv.available(), emuv.register("a", 4096, 1))
""", library=False)
        self.assertEqual(said, ["False", "False", "True", "False"])

    def test_in_the_child_of_a_fork_nobody_hears_and_nothing_waits(self):
        said, _ = self.run_program(CARD + """
import os
at = allocate(4)
assert emuv.register("a", at, 4 * MiB)
with emuv.advice._lock: # as another thread may
    child = os.fork()
    if child == 0:
        import threading
        answers = []
        def ask():
            answers.extend((emuv.access("a"), emuv.register("b", at, 1),
                            emuv.where("a").tier, emuv.forget("a")))
        other = threading.Thread(target=ask)
        other.start()
        other.join(120)
        os._exit(0 if answers == [False, False, "unknown", False] else 1)
print(os.waitpid(child, 0)[1], emuv.access("a"))
""")
        self.assertEqual(said, ["0", "True"])

    def test_a_key_goes_with_the_object_that_owns_its_memory(self):
        said, _ = self.run_program(CARD + """
at = allocate(4)
class Array:
    __cuda_array_interface__ = {"data": (at, False), "typestr": "<f4",
                                "shape": (1024, 1024), "strides": None}
one, other = Array(), Array()
emuv.register("array", one)
number = emuv.advice._records["array"].number[0]
group = emuv.Group(["array"])
assert group.tell(emuv.advice.ACCESS)
emuv.register("array", other) # which owns it from now on
del one
print(emuv.access("array"), group.try_to_tell(emuv.advice.ACCESS))
del other
print(error_of(emuv.access, "array")[0], emuv.registered("array"))
print(len(emuv.advice._records))
""")
        self.assertEqual(said, ["True", "-3", "KeyError", "False", "0"])

    def test_a_model_is_told_of_in_one_line(self):
        said, errors = self.run_program(MODEL + """
model, optimizer = Model(), torch.Optimizer()
told = emuv.torch.enable(model, optimizer, passes=3)
print(len(told.keys), told.spills)
torch._grad[0] = False
for _ in range(5):
    model(0)
hooks = [len(each.before) + len(each.after) for each in model.modules()]
print(*hooks)
print(emuv.stats((1, "weight", "second.weight")).moves)
told.close()
print(len(told.keys))
""")
        self.assertEqual(said, ["5", "True", *["0"] * 6, "True", "0"])
        self.assertNotIn("Traceback", errors)

    def test_the_next_layer_comes_and_the_last_one_leaves(self):
        said, _ = self.run_program(MODEL + """
model = Model()
told = emuv.torch.enable(model, passes=None)
torch._grad[0] = False
def fetched():
    return sum(emuv.stats(key).fetches for key in told.keys)
until(lambda: fetched() >= 5, lambda: model(0))
print(all(len(each.before) for each in model.modules() if each is not model))
""")
        self.assertEqual(said, ["True"])

    def test_gradients_and_the_optimizer_s_states_are_told_apart(self):
        said, _ = self.run_program(MODEL + """
model, optimizer = Model(), torch.Optimizer()
told = emuv.torch.enable(model, optimizer)
weight = model.first.weight
weight.grad = torch.Tensor(MiB)
weight.grad_hooks.run(weight)
optimizer.state[weight] = {"step": 5, "exp_avg": torch.Tensor(MiB)}
optimizer.step()
print(*sorted(key[1] for key in told.keys))
# Gradients come and go.
weight.grad.free()
weight.grad = torch.Tensor(MiB)
weight.grad_hooks.run(weight)
print(*sorted({key[0] for key in told.keys}))
emuv.access((1, "gradient", "first.weight"))
weight.grad = None
print(emuv.registered((1, "gradient", "first.weight")))
""")
        self.assertEqual(said, ["gradient", "state", *["weight"] * 5, "1",
                                "False"])

    def test_a_failure_of_ours_ends_advice_and_never_the_model(self):
        said, errors = self.run_program(MODEL + """
for broken in ("tell", "look"):
    model = Model()
    told = emuv.torch.enable(model, passes=None)
    def fail(*_):
        raise RuntimeError("broken " + broken)
    kept = getattr(emuv.torch._Layer, broken)
    setattr(emuv.torch._Layer, broken, fail)
    model(0)
    model(0)
    setattr(emuv.torch._Layer, broken, kept)
    print(len(told.keys), sum(len(each.before) + len(each.after)
                              for each in model.modules()))
    told.close()
    for each in model.parameters():
        each.free()
# Nor where the model is unlike all others.
class Odd(Model):
    def named_parameters(self, recurse=True):
        raise ValueError("odd")
odd = emuv.torch.enable(Odd())
print(len(odd.keys))
try:
    emuv.torch.enable(None)
except TypeError:
    print("TypeError")
""")
        self.assertEqual(said, ["0", "0", "0", "0", "0", "TypeError"])
        for each in ("broken tell", "broken look", "odd"):
            self.assertEqual(errors.count(each + "\n"), 1, errors)
        self.assertNotIn("Traceback", errors)

    def test_each_model_has_keys_of_its_own(self):
        said, _ = self.run_program(MODEL + """
class Small(torch.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.Layer(2 * MiB)
        self.norm = torch.LayerNorm(2 * MiB)
    def forward(self, given):
        return self.norm(self.first(given))
one, two = Small(), Small()
first, second = emuv.torch.enable(one), emuv.torch.enable(two)
print(len(first.keys), len(second.keys), len(first.keys & second.keys))
first.close()
print(len(second.keys))
# The keys go with the model.
del one, two
import gc
second.close = None
gc.collect()
print(len(second.keys))
""")
        self.assertEqual(said, ["2", "2", "0", "2", "0"])

    def test_a_copy_of_a_model_has_no_advice(self):
        said, _ = self.run_program(MODEL + """
import copy, pickle
model = Model()
told = emuv.torch.enable(model, passes=None)
for hook in (*model.before, *model.after, *model.first.before,
             *model.first.after):
    for each in (copy.deepcopy(hook), copy.copy(hook),
                 pickle.loads(pickle.dumps(hook))):
        assert each is not hook
        assert each(model, 1, 2) is None
print(len(told.keys))
""")
        self.assertEqual(said, ["5"])

    def test_weights_that_lie_elsewhere_are_registered_anew(self):
        said, _ = self.run_program(MODEL + """
model = Model()
told = emuv.torch.enable(model, passes=None)
key = (1, "weight", "first.weight")
weight = model.first.weight
weight.free()
weight.at = torch.Tensor(2 * MiB).at
try:
    emuv.access(key)
except emuv.AdviceError as error:
    print(error.code)
model(0)
print(emuv.access(key), len(told.keys))
""")
        self.assertEqual(said, ["-6", "True", "5"])

    def test_without_the_library_a_model_runs_and_one_line_says_so(self):
        _, errors = self.run_program(MODEL + """
model = Model(on_card=False)
model.forward = lambda given: given
told = emuv.torch.enable(model)
emuv.torch.enable(model)
model(0)
told.close()
""", library=False)
        self.assertEqual(errors.count("\n"), 1, errors)
        self.assertIn("the library is not loaded", errors)

    def test_a_model_that_is_not_on_the_card_is_named(self):
        _, errors = self.run_program(MODEL + """
emuv.torch.enable(Model(on_card=False))
""")
        self.assertIn("no weight lies in memory that the library knows", errors)

    def test_layers_that_cannot_all_be_pinned_run_all_the_same(self):
        said, errors = self.run_program(MODEL + """
layers = [emuv.torch.StackLinear(1024, 2048, stay=True) for _ in range(3)]
for _ in range(2):
    for each in layers:
        each(0)
print(*(emuv.stats(each.keys[0]).accesses for each in layers))
""")
        self.assertEqual(said, ["2", "2", "2"])
        self.assertNotIn("runs as ever", errors)

    def test_a_layer_by_hand_says_itself_when_it_is_used(self):
        said, _ = self.run_program(MODEL + """
layer = emuv.torch.StackLinear(1024, 1024, priority=7, stay=True)
layer(0)
layer(0)
layer.prefetch()
print(*(emuv.stats(key).accesses for key in layer.keys))
""")
        self.assertEqual(said, ["2"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", dest="preload", required=True)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--runtime", help="a sanitizer's, to be preloaded")
    OPTIONS, left = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *left])
