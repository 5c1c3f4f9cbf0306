# SPDX-License-Identifier: LGPL-2.1-or-later
"""Linear layers with four-bit weights, by libemuv-kernels.

    from emuv.quantize import load, quantize, save
    report = quantize(model, keep=["lm_head"], data=[tokens])
    print(report)
    save(model, "model.safetensors")

This changes the model's numbers: the report says by how much. The library is the one
that $EMUV_KERNELS names, or libemuv-kernels.so.0.
"""

import ctypes
import dataclasses
import fnmatch
import functools
import json
import os
import pathlib

import torch
from torch.nn import functional

_E2M1, _SYMMETRIC = 1, 2
_NO_SCALE, _E4M3, _FP16_SCALE = 0, 1, 2
# By name: code, scale, block, bytes of a scale. <emuv/kernels.h> has their words.
FORMATS = {
    "e2m1-e4m3-16": (_E2M1, _E4M3, 16, 1),
    "e2m1-e4m3-32": (_E2M1, _E4M3, 32, 1),
    "e2m1-fp16-16": (_E2M1, _FP16_SCALE, 16, 2),
    "e2m1-fp16-32": (_E2M1, _FP16_SCALE, 32, 2),
    "symmetric": (_SYMMETRIC, _NO_SCALE, 0, 0),
}
_TYPES = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}
_STEP = 32  # a row has a multiple of so many columns
_FUSED_ROWS = 16
_FAILED = 10  # the status of a failure of CUDA's or cuBLAS's
_REACHED = 1  # a flag: all memory is the current device's
_MOST_WORKSPACE = 256 << 20


class KernelsError(RuntimeError):
    """The library is missing, or refuses something."""


class _Format(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32)
                for name in ("size", "code", "scale", "block")]


class _Matrix(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("format", _Format), ("rows", ctypes.c_uint64),
                ("columns", ctypes.c_uint64), ("codes", ctypes.c_void_p),
                ("scales", ctypes.c_void_p), ("tensor_scale", ctypes.c_void_p)]


class _Plain(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("type", ctypes.c_uint32),
                ("data", ctypes.c_void_p), ("stride", ctypes.c_uint64)]


@functools.lru_cache(maxsize=None)
def _library():
    path = os.environ.get("EMUV_KERNELS", "libemuv-kernels.so.0")
    try:
        out = ctypes.CDLL(path)
    except OSError as error:
        raise KernelsError(f"{error}: install libemuv-kernels, or name "
                           "libemuv-kernels.so in EMUV_KERNELS") from None
    out.emuv_kernels_text.restype = ctypes.c_char_p
    pointer, size = ctypes.c_void_p, ctypes.c_uint64
    out.emuv_kernels_encode.argtypes = [pointer, pointer, pointer]
    out.emuv_kernels_decode.argtypes = [pointer, pointer, pointer]
    out.emuv_kernels_multiply.argtypes = [pointer, pointer, pointer, size,
                                          pointer, size, pointer, pointer]
    return out


def _call(name, *arguments):
    """Calls the library; structures are handed over by address."""
    library = _library()
    status = getattr(library, "emuv_kernels_" + name)(
        *(ctypes.byref(each) if isinstance(each, ctypes.Structure) else each
          for each in arguments))
    if status:
        text = library.emuv_kernels_text(status).decode()
        if status == _FAILED:
            text += f" ({library.emuv_kernels_detail()})"
        raise KernelsError(f"{name}: {text}")


def _plain(tensor):
    return _Plain(ctypes.sizeof(_Plain), _TYPES[tensor.dtype],
                  tensor.data_ptr(), tensor.stride(0))


def _rows(tensor):
    """The same numbers as rows that the library takes."""
    if (tensor.stride(1) != 1 or tensor.stride(0) % 8
            or tensor.stride(0) < tensor.shape[1] or tensor.data_ptr() % 16):
        return tensor.contiguous().clone()
    return tensor


def _on(tensor, name, *arguments):
    """Calls the library's function for the memory that a tensor is in."""
    if not tensor.is_cuda:
        return _call(name + "_host", *arguments)
    with torch.cuda.device(tensor.device):
        stream = torch.cuda.current_stream().cuda_stream
        return _call(name, *arguments, ctypes.c_void_p(stream))


class Linear(torch.nn.Module):
    """A linear layer with four-bit weights. Its weights are not trained; gradients
    go through it to what it was given.

    codes: [outputs, inputs / 2] bytes; scales: the bytes of a row's; tensor_scale:
    one number. <emuv/kernels.h> says how they are laid out.
    """

    def __init__(self, inputs, outputs, form, bias=None, device=None):
        super().__init__()
        if inputs % _STEP:
            raise ValueError(f"{inputs} inputs are not a multiple of {_STEP}")
        _, _, block, scale_bytes = FORMATS[form]
        self.in_features, self.out_features, self.form = inputs, outputs, form
        scales = inputs // block * scale_bytes if block else 0

        def made(*size, kind=torch.uint8):
            return torch.zeros(*size, dtype=kind, device=device)
        self.register_buffer("codes", made(outputs, inputs // 2))
        self.register_buffer("scales", made(outputs, scales))
        self.register_buffer("tensor_scale", made(1, kind=torch.float32))
        self.bias = bias

    @classmethod
    def of(cls, weight, form, bias=None):
        """Encodes a weight, [outputs, inputs], where it lies."""
        weight = _rows(weight.detach())
        made = cls(weight.shape[1], weight.shape[0], form, bias, weight.device)
        _on(weight, "encode", _plain(weight), made._matrix())
        return made

    def _matrix(self):
        code, scale, block, scale_bytes = FORMATS[self.form]
        # Tensors tell where they are, so the library need not ask the driver.
        return _Matrix(ctypes.sizeof(_Matrix), _REACHED,
                       _Format(ctypes.sizeof(_Format), code, scale, block),
                       self.out_features, self.in_features,
                       self.codes.data_ptr(),
                       self.scales.data_ptr() if scale_bytes else None,
                       self.tensor_scale.data_ptr())

    def weight(self, kind=torch.float32):
        """The decoded weights, [outputs, inputs]."""
        out = torch.empty(self.out_features, self.in_features, dtype=kind,
                          device=self.codes.device)
        _on(out, "decode", self._matrix(), _plain(out))
        return out

    def held_bytes(self):
        """Bytes of codes and scales."""
        return sum(each.numel() * each.element_size()
                   for each in (self.codes, self.scales, self.tensor_scale))

    def _product(self, given):
        """[count, inputs] of 16-bit numbers on a card."""
        if any(each.device != given.device for each in
               (self.codes, self.scales, self.tensor_scale)):
            raise ValueError(f"the input lies on {given.device}, and the "
                             f"weights lie on {self.codes.device}")
        count, outputs = given.shape[0], self.out_features
        if count == 0:  # an expert without tokens
            return given.new_empty(0, outputs)
        given = _rows(given)
        out = torch.empty(count, (outputs + 7) // 8 * 8, dtype=given.dtype,
                          device=given.device)
        space, handle = None, None
        with torch.cuda.device(given.device):
            if count > _FUSED_ROWS:
                row = 2 * self.in_features
                rows = max(16, min(outputs, _MOST_WORKSPACE // row))
                space = torch.empty(rows * row, dtype=torch.uint8,
                                    device=given.device)
                handle = torch.cuda.current_blas_handle()
            _call("multiply", self._matrix(), _plain(given), _plain(out), count,
                  space.data_ptr() if count > _FUSED_ROWS else None,
                  space.numel() if count > _FUSED_ROWS else 0, handle,
                  torch.cuda.current_stream().cuda_stream)
        return out[:, :outputs]

    def forward(self, given):
        fused = (given.is_cuda and given.dtype != torch.float32
                 and not (given.requires_grad and torch.is_grad_enabled()))
        if not fused:
            return functional.linear(given, self.weight(given.dtype), self.bias)
        out = self._product(given.reshape(-1, self.in_features))
        out = out.reshape(*given.shape[:-1], self.out_features)
        return out if self.bias is None else out + self.bias

    def extra_repr(self):
        return f"{self.in_features}, {self.out_features}, {self.form}"


@dataclasses.dataclass
class Layer:
    """A layer that was replaced. Errors are relative: of the root mean squares."""

    name: str
    bytes_before: int
    bytes_after: int
    weight_error: float
    output_error: float = None  # on the data; None without


@dataclasses.dataclass
class Report:
    """The report of quantize()."""

    layers: list
    kept: dict  # by the name of a linear layer: why it stays
    output_error: float = None  # of the model's, on the data; None without

    @property
    def bytes_saved(self):
        return sum(each.bytes_before - each.bytes_after for each in self.layers)

    def __str__(self):
        def said(error):
            return "-" if error is None else f"{error:.4f}"
        wide = max([5, *(len(each.name) for each in self.layers)])
        out = [f"{'layer':{wide}} {'MiB':>9} {'now':>9} {'weights':>8} "
               f"{'output':>8}"]
        for each in self.layers:
            out.append(f"{each.name:{wide}} {each.bytes_before / 2**20:9.2f} "
                       f"{each.bytes_after / 2**20:9.2f} "
                       f"{said(each.weight_error):>8} "
                       f"{said(each.output_error):>8}")
        out += [f"kept {name}: {why}" for name, why in self.kept.items()]
        out.append(f"{self.bytes_saved / 2**20:.2f} MiB saved; error of the "
                   f"output: {said(self.output_error)}")
        return "\n".join(out)


def _relative(wrong, right):
    """The root mean square of an error over that of the truth."""
    wrong, right = wrong.double(), right.double()
    size = right.square().sum().item()
    return ((wrong - right).square().sum().item() / size) ** 0.5 if size else 0.0


def _uses(model):
    """How many modules have each weight, by its identity."""
    out = {}
    for module in model.modules():
        for weight in module.parameters(recurse=False):
            out[id(weight)] = out.get(id(weight), 0) + 1
    return out


def _why_kept(name, module, keep, uses):
    if any(fnmatch.fnmatchcase(name, each) for each in keep):
        return "named"
    if type(module) is not torch.nn.Linear:
        return "of a kind of its own"
    if module.in_features % _STEP:
        return f"{module.in_features} inputs, no multiple of {_STEP}"
    if module.weight.dtype not in _TYPES:
        return f"of {module.weight.dtype}"
    return "shares its weight" if uses[id(module.weight)] > 1 else None


def _outputs(model, data):
    """A model's answers to each of the data, as one row of numbers."""
    out = []
    with torch.no_grad():
        for each in data:
            said = model(*each) if isinstance(each, tuple) else model(each)
            said = getattr(said, "logits", said)
            said = said[0] if isinstance(said, (tuple, list)) else said
            out.append(said.detach().flatten().double().cpu())
    return torch.cat(out)


def _watch(module, made, sums):
    """Adds up the error of a layer's output while the whole model runs."""
    weight = made.weight(module.weight.dtype)

    def hook(_, given, right):
        wrong = functional.linear(given[0], weight, module.bias)
        sums[0] += (wrong.double() - right.double()).square().sum().item()
        sums[1] += right.double().square().sum().item()
    return module.register_forward_hook(hook)


def _replace(model, name, module):
    where, _, last = name.rpartition(".")
    setattr(model.get_submodule(where), last, module)


def quantize(model, keep=(), form="e2m1-e4m3-16", data=None):
    """Replaces a model's linear layers by ones with four-bit weights, in place.

    keep: names of layers that stay, as named_modules() has them; * stands for any
    text. Layers that share their weight with another stay, too, and so do those
    whose inputs are no multiple of 32.
    form: one of FORMATS.
    data: what the model is given to measure errors: tensors, or tuples of
    arguments. The model runs twice over it; put it into eval() first.

    Returns a Report. Raises ValueError, and KernelsError before anything changes.
    """
    if form not in FORMATS:
        raise ValueError(f"{form} is none of {', '.join(FORMATS)}")
    names = [name for name, _ in model.named_modules()]
    for each in keep:
        if not fnmatch.filter(names, each):
            raise ValueError(f"keep: the model has no {each}")
    data = None if data is None else list(data)
    uses, made, kept = _uses(model), {}, {}
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or not name:
            continue
        why = _why_kept(name, module, keep, uses)
        if why:
            kept[name] = why
        else:
            made[name] = (module, Linear.of(module.weight, form, module.bias))
    sums = {name: [0.0, 0.0] for name in made}
    before = None
    if data:
        hooks = [_watch(*both, sums[name]) for name, both in made.items()]
        try:
            before = _outputs(model, data)
        finally:
            for each in hooks:
                each.remove()
    layers = []
    for name, (module, small) in made.items():
        wrong, right = sums[name]
        layers.append(Layer(
            name, module.weight.numel() * module.weight.element_size(),
            small.held_bytes(), _relative(small.weight(), module.weight.detach()),
            (wrong / right) ** 0.5 if right else None))
        _replace(model, name, small)
    error = _relative(_outputs(model, data), before) if data else None
    return Report(layers, kept, error)


# The words of safetensors for types of numbers.
_WORDS = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16",
          torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32",
          torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
          torch.bool: "BOOL"}
_KINDS = {word: kind for kind, word in _WORDS.items()}
_MOST_HEADER = 100 << 20


def save(model, file):
    """Writes a model that quantize() has changed as a safetensors file, whole or
    not at all. Tensors that several names share are written for each."""
    forms = {name: [each.form, each.in_features, each.out_features]
             for name, each in model.named_modules() if isinstance(each, Linear)}
    header = {"__metadata__": {"emuv.quantize": json.dumps(forms)}}
    parts, at = [], 0
    for name, tensor in model.state_dict().items():
        tensor = tensor.detach().cpu().contiguous()
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _WORDS[tensor.dtype],
                        "shape": list(tensor.shape),
                        "data_offsets": [at, at + size]}
        parts.append((tensor, size))
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file = pathlib.Path(file)
    new = file.with_name(file.name + ".new")
    try:
        with open(new, "wb") as to:
            to.write(len(text).to_bytes(8, "little") + text)
            for tensor, size in parts:
                to.write(ctypes.string_at(tensor.data_ptr(), size) if size
                         else b"")
            to.flush()
            os.fsync(to.fileno())
        os.replace(new, file)
    finally:
        new.unlink(missing_ok=True)


def _read(file):
    """The metadata and the tensors of a safetensors file."""
    with open(file, "rb") as source:
        length = int.from_bytes(source.read(8), "little")
        if length > _MOST_HEADER:
            raise ValueError(f"{file}: is no safetensors file")
        try:
            header = json.loads(source.read(length))
            forms = json.loads(header.pop("__metadata__")["emuv.quantize"])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"{file}: was not written by emuv.quantize"
                             ) from None
        content = source.read()
    tensors = {}
    for name, said in header.items():
        begin, end = said["data_offsets"]
        kind = _KINDS.get(said["dtype"])
        count = 1
        for extent in said["shape"]:
            count *= extent
        if kind is None or not 0 <= begin <= end <= len(content) or \
                end - begin != count * torch.empty(0, dtype=kind).element_size():
            raise ValueError(f"{file}: {name} is cut off, or of a type that is "
                             "not known")
        tensor = torch.frombuffer(bytearray(content[begin:end]), dtype=kind) \
            if count else torch.empty(0, dtype=kind)
        tensors[name] = tensor.reshape(said["shape"])
    return forms, tensors


def load(model, file):
    """Fills a model of the same shape with what save() wrote: its linear layers
    become the file's. Raises ValueError, and RuntimeError of what does not fit."""
    forms, tensors = _read(file)
    layers = dict(model.named_modules())
    for name, (form, inputs, outputs) in forms.items():
        own = layers.get(name)
        if form not in FORMATS or not isinstance(own, (torch.nn.Linear, Linear)) \
                or (own.in_features, own.out_features) != (inputs, outputs):
            raise ValueError(f"{file}: {name} is no layer of this model")
    for name, (form, inputs, outputs) in forms.items():
        own = layers[name]
        where = own.codes if isinstance(own, Linear) else own.weight
        _replace(model, name, Linear(inputs, outputs, form, own.bias,
                                     where.device))
    model.load_state_dict(tensors)
