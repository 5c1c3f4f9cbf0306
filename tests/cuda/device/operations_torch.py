#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""operations_torch.py [NAME...]: PyTorch's operations, or those
with these in their names, each on memory of its own. Prints "NAME digest" for
each, "NAME varies" if two runs of it differ, and "NAME cannot" if this PyTorch or
card has no such thing. It prints "NAME ends" for one that ends the process, and
goes on with the next in another process. Kernels that find addresses in memory
are found so (EMUV_MOVE=check)."""

import argparse
import hashlib
import os
import subprocess
import sys

# Each tensor from 2 MiB on is an allocation.
os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

HALF = torch.bfloat16


def rand(*shape, dtype=torch.float32, trains=False):
    made = torch.randn(*shape, device="cuda").to(dtype)
    return made.requires_grad_(trains)


def whole(most, *shape):
    return torch.randint(most, shape, device="cuda")


def trained(function, *inputs):
    """The results of a function and, for what trains, the gradients."""
    out = function(*inputs)
    out.float().square().mean().backward()
    return [out.detach()] + [each.grad for each in inputs if each.requires_grad]


def module(made, *inputs):
    """The same of a module and its parameters."""
    made = made.cuda()
    out = made(*inputs)
    while isinstance(out, tuple):
        out = out[0]
    out.float().square().mean().backward()
    return [out.detach()] + [each.grad for each in made.parameters()]


def spd(count, side):
    """Matrices that have inverses and roots."""
    a = rand(count, side, side)
    return a @ a.transpose(1, 2) + side * torch.eye(side, device="cuda")


def pointwise():
    x, y = rand(4 << 20), rand(4 << 20)
    return [x + y, x * y, torch.where(x > 0, x, y), F.gelu(x), F.silu(x), x.exp(),
            x.clamp(-1, 1), torch.addcmul(x, x, y), x.lerp(y, 0.3), x.to(HALF)]


def reduced():
    x = rand(2048, 2048)
    return [x.sum(), x.mean(0), x.var(1), x.argmax(1), x.amax(0), x.cumsum(1),
            x.cumprod(0), x.logsumexp(1), x.norm(), (x > 3).any(1), x.prod(1)]


def sorted_():
    x = rand(2048, 2048)
    return [x.sort(1)[0], x.sort(0)[1], x.flatten().sort()[0], x.topk(50)[0],
            x.median(1)[0], x.kthvalue(7, 1)[0], x.mode(1)[0],
            (x * 9).int().unique(return_counts=True)[1], x.flatten().msort()]


def counted():
    x = whole(1000, 4 << 20)
    return [x.bincount(), x.float().histc(100), x.nonzero(), x[x > 500],
            torch.searchsorted(x[:1000].sort()[0], x), F.one_hot(x[:8192])]


def indexed():
    x, at = rand(1 << 16, 64), whole(1 << 16, 1 << 16)
    put = torch.zeros_like(x).index_put((at,), x)
    return [x[at], x.gather(0, at[:, None].expand(-1, 64)), put, x.take(at),
            x.index_select(0, at), x.index_add(0, at.unique(), x[:len(at.unique())]),
            x.roll(3, 0), x.flip(0), x.repeat_interleave(3, 0), x.tril(), x.kron(x[:2, :2])]


def joined():
    all_of = [rand(1 << 20) for _ in range(24)]
    return [torch.cat(all_of), torch.stack(all_of), *torch.cat(all_of).split(5 << 20)]


def split_with_sizes_copy():
    x = rand(64, 1 << 18)
    return list(torch.ops.aten.split_with_sizes_copy(x, [1 << 16] * 4, 1))


def chunk_cat():
    return [torch._chunk_cat([rand(1 << 20) for _ in range(8)], 0, 4)]


def foreach():
    x, y = ([rand(1 << 20) for _ in range(64)] for _ in range(2))
    torch._foreach_mul_(x, 2)
    return [*torch._foreach_add(x, y), *torch._foreach_norm(x),
            *torch._foreach_addcdiv(x, y, [each + 9 for each in y], 0.5)]


def embedded():
    table, at = rand(1 << 16, 128, trains=True), whole(1 << 16, 1 << 15)
    bag = F.embedding_bag(at, table.detach(), at.new_tensor(range(0, 1 << 15, 8)))
    return trained(lambda weight: F.embedding(at, weight), table) + [bag]


def multiplied(dtype):
    a, b = rand(2048, 4096, dtype=dtype), rand(4096, 2048, dtype=dtype)
    v = rand(4096, dtype=dtype)
    return [a @ b, torch.addmm(a @ b, a, b), a @ v, b.T @ a.T,
            torch.einsum("ik,kj->ji", a, b)]


def batched(dtype):
    a, b = rand(64, 256, 512, dtype=dtype), rand(64, 512, 256, dtype=dtype)
    return [a.bmm(b), torch.baddbmm(a.bmm(b), a, b), a @ b[0],
            torch.einsum("bik,bkj->ij", a, b)]


def eighths():
    a = (rand(2048, 2048) * 9).to(torch.int8)
    low = rand(2048, 2048).to(torch.float8_e4m3fn)
    one = torch.ones((), device="cuda")
    return [torch._int_mm(a, a.T), torch._scaled_mm(low, low.T, one, one, out_dtype=HALF)]


def grouped():
    a, b = rand(4096, 1024, dtype=HALF), rand(8, 1024, 1024, dtype=HALF)
    ends = torch.arange(512, 4097, 512, device="cuda", dtype=torch.int32)
    return [torch._grouped_mm(a, b.transpose(1, 2), offs=ends)]


def convolved(dims, groups=1, dtype=torch.float32, transposed=False, last=False):
    side = {1: 16384, 2: 128, 3: 32}[dims]
    kind = f"{'conv_transpose' if transposed else 'conv'}{dims}d"
    x = rand(4, 64, *[side] * dims, dtype=dtype)
    if last:
        x = x.to(memory_format=torch.channels_last)
    wide = rand(64, 64 // groups, *[3] * dims, dtype=dtype)
    return trained(lambda a, b: getattr(F, kind)(a, b, padding=1, groups=groups),
                   x.requires_grad_(), wide.requires_grad_())


def normed():
    x = rand(16, 64, 64, 64, trains=True)
    return (module(nn.BatchNorm2d(64), x) + module(nn.GroupNorm(8, 64), x) +
            module(nn.InstanceNorm2d(64, affine=True), x) +
            module(nn.LayerNorm(64), x) + module(nn.RMSNorm(64), x) + [x.grad])


def pooled():
    x = rand(16, 64, 64, 64)
    grid = rand(16, 64, 64, 2).tanh()
    return [F.max_pool2d(x, 3), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 7),
            F.interpolate(x, scale_factor=2, mode="bilinear"), F.grid_sample(x, grid),
            F.pixel_shuffle(x, 2), F.unfold(x[:, :8], 3), F.pad(x, (1, 1, 1, 1), "reflect")]


def recurrent(kind):
    x = rand(64, 128, 512, trains=True)
    return module(getattr(nn, kind)(512, 1024, 2, batch_first=True), x) + [x.grad]


def packed():
    x = rand(64, 128, 512)
    lengths = torch.arange(128, 64, -1)
    row = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    made = nn.LSTM(512, 512).cuda()
    return [made(row)[0].data.detach()]


def attended(kind, dtype=HALF):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    q, k, v = (rand(4, 16, 1024, 64, dtype=dtype, trains=True) for _ in range(3))
    with sdpa_kernel(getattr(SDPBackend, kind)):
        return trained(lambda a, b, c: F.scaled_dot_product_attention(
            a, b, c, is_causal=True), q, k, v)


def nested():
    parts = [rand(256 + 8 * i, 16, 64, dtype=HALF) for i in range(24)]
    q, k, v = (torch.nested.nested_tensor(parts, layout=torch.jagged).transpose(1, 2)
               for _ in range(3))
    return [F.scaled_dot_product_attention(q, k, v).values()]


def transformed():
    made = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, batch_first=True), 2)
    made = made.cuda().eval()
    x, gone = rand(32, 256, 512), whole(2, 32, 256).bool()
    gone[:, 0] = False
    with torch.no_grad():
        return [made(x, src_key_padding_mask=gone)]


def lost():
    x, at = rand(8192, 4096, trains=True), whole(4096, 8192)
    said = rand(128, 64, 1024, trains=True)
    ctc = F.ctc_loss(said.log_softmax(2), whole(1023, 64, 20) + 1, [128] * 64, [20] * 64)
    return (trained(lambda a: F.cross_entropy(a, at), x) + [ctc.detach()] +
            [F.kl_div(x.detach(), x.detach().softmax(1)), F.mse_loss(x, x * 2).detach()])


def factored(count, side):
    a = spd(count, side)
    lu, pivots = torch.linalg.lu_factor(a)
    b = rand(count, side, side)
    return [lu, torch.linalg.lu_solve(lu, pivots, b), torch.linalg.inv(a),
            torch.linalg.solve(a, b), torch.linalg.det(a / side),
            torch.linalg.solve_triangular(a.triu(), b, upper=True)]


def rooted(count, side):
    a = spd(count, side)
    low = torch.linalg.cholesky(a)
    return [low, torch.cholesky_solve(a, low), torch.linalg.qr(a)[0],
            torch.linalg.eigvalsh(a), torch.linalg.svdvals(a),
            torch.linalg.lstsq(a, a[:, :, :4]).solution, torch.linalg.matrix_exp(a / side ** 2)]


def turned():
    x = rand(64, 256, 256)
    return [torch.fft.fft(x), torch.fft.rfft2(x), torch.fft.irfft(torch.fft.rfft(x)),
            torch.fft.fftn(x[:16]), torch.stft(x.flatten()[:1 << 20], 1024, window=torch.hann_window(
                1024, device="cuda"), return_complex=True)]


def sparse():
    x = rand(4096, 4096)
    x = x * (x > 2)
    rows, y = x.to_sparse_csr(), rand(4096, 1024)
    return [rows @ y, x.to_sparse() @ y, rows.values(), (rows @ rows).to_dense(),
            torch.sparse.sampled_addmm(rows, y, y.T).to_dense(), (rows + rows).to_dense()]


def drawn():
    x = torch.empty(4 << 20, device="cuda")
    weights = torch.rand(4096, 512, device="cuda")
    return [rand(1 << 20), whole(9, 1 << 20), torch.randperm(1 << 20, device="cuda"),
            weights.multinomial(4), x.bernoulli_(0.3), x.exponential_().clone(),
            torch.poisson(weights), F.dropout(rand(1 << 20))]


def optimized(kind, **options):
    made = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8))).cuda()
    optimizer = getattr(torch.optim, kind)(made.parameters(), lr=1e-3, **options)
    x = rand(512, 1024)
    for _ in range(3):
        made(x).square().mean().backward()
        nn.utils.clip_grad_norm_(made.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return [each.detach() for each in made.parameters()]


def scaled():
    made = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4))).cuda()
    optimizer = torch.optim.AdamW(made.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cuda")
    x = rand(512, 1024)
    for _ in range(3):
        with torch.autocast("cuda", torch.float16):
            out = made(x).square().mean()
        scaler.scale(out).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return [each.detach() for each in made.parameters()]


def quantized():
    x = rand(2048, 2048)
    low = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    return [low.int_repr(), low.dequantize(), torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)]


def measured():
    x = rand(4096, 256)
    return [torch.cdist(x, x), F.pairwise_distance(x, x.flip(0)), x.renorm(2, 0, 1),
            torch.cross(rand(1 << 20, 3), rand(1 << 20, 3), dim=1), x.cov(), x.corrcoef(), F.cosine_similarity(x, x.flip(1))]


def compiled(function, *inputs):
    return [torch.compile(function)(*inputs)]


def regions():
    import torchvision
    x = rand(4, 64, 128, 128)
    corner = torch.rand(4096, 2, device="cuda") * 90
    boxes = torch.cat([corner, corner + torch.rand(4096, 2, device="cuda") * 30], 1)
    return [torchvision.ops.roi_align(x, [boxes[i::4] for i in range(4)], 7),
            torchvision.ops.nms(boxes, torch.rand(4096, device="cuda"), 0.5)]


OPERATIONS = {
    "pointwise": pointwise, "reduced": reduced, "sorted": sorted_, "counted": counted,
    "indexed": indexed, "joined": joined, "split_with_sizes_copy": split_with_sizes_copy,
    "chunk_cat": chunk_cat, "foreach": foreach, "embedded": embedded,
    "multiplied": lambda: multiplied(torch.float32),
    "multiplied.bf16": lambda: multiplied(HALF),
    "multiplied.fp16": lambda: multiplied(torch.float16),
    "multiplied.fp64": lambda: multiplied(torch.float64),
    "multiplied.complex": lambda: multiplied(torch.complex64),
    "batched": lambda: batched(torch.float32), "batched.bf16": lambda: batched(HALF),
    "batched.fp64": lambda: batched(torch.float64), "eighths": eighths, "grouped": grouped,
    "convolved.1d": lambda: convolved(1), "convolved.2d": lambda: convolved(2),
    "convolved.3d": lambda: convolved(3), "convolved.groups": lambda: convolved(2, 64),
    "convolved.bf16": lambda: convolved(2, dtype=HALF, last=True),
    "convolved.transposed": lambda: convolved(2, transposed=True),
    "normed": normed, "pooled": pooled, "recurrent.lstm": lambda: recurrent("LSTM"),
    "recurrent.gru": lambda: recurrent("GRU"), "recurrent.tanh": lambda: recurrent("RNN"),
    "recurrent.packed": packed,
    "attended.flash": lambda: attended("FLASH_ATTENTION"),
    "attended.efficient": lambda: attended("EFFICIENT_ATTENTION"),
    "attended.cudnn": lambda: attended("CUDNN_ATTENTION"),
    "attended.math": lambda: attended("MATH", torch.float32),
    "attended.nested": nested, "transformed": transformed, "lost": lost,
    "factored.small": lambda: factored(8192, 16), "factored.medium": lambda: factored(256, 128),
    "factored.large": lambda: factored(2, 1024), "rooted.small": lambda: rooted(4096, 16),
    "rooted.medium": lambda: rooted(64, 96), "rooted.large": lambda: rooted(1, 1024),
    "turned": turned, "sparse": sparse, "drawn": drawn,
    "optimized.sgd": lambda: optimized("SGD", momentum=0.9),
    "optimized.adamw": lambda: optimized("AdamW"),
    "optimized.fused": lambda: optimized("AdamW", fused=True),
    "optimized.adafactor": lambda: optimized("Adafactor"), "scaled": scaled,
    "quantized": quantized, "measured": measured,
    "compiled.pointwise": lambda: compiled(
        lambda a, b: (a.relu() + b.sin()).softmax(1).sum(0), rand(2048, 2048), rand(2048, 2048)),
    "compiled.norm": lambda: compiled(
        lambda a, w: F.layer_norm(a @ w, (2048,)), rand(2048, 2048), rand(2048, 2048)),
    "regions": regions,
}
# These add up in any order, and need not come to the same twice.
VARIES = {"attended.flash", "attended.efficient", "attended.cudnn", "sparse"}


def digest(tensors):
    said = hashlib.sha256()
    for each in tensors:
        each = each.detach().contiguous().cpu()
        said.update(each.reshape(-1).view(torch.uint8).numpy().tobytes())
    return said.hexdigest()[:16]


def run(name):
    seen = []
    for _ in range(2):
        torch.manual_seed(0)
        try:
            seen.append(digest(OPERATIONS[name]()))
            torch.cuda.synchronize()
        except torch.AcceleratorError:
            raise
        except (RuntimeError, NotImplementedError, AttributeError, ImportError) as error:
            print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
            torch.cuda.synchronize() # ends it where the context is lost
            return "cannot"
    return seen[0] if seen[0] == seen[1] and name not in VARIES else "varies"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--in-this-process", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    if options.in_this_process:
        torch.use_deterministic_algorithms(True, warn_only=True)
        for name in options.names:
            print(name, flush=True, end=" ")
            print(run(name), flush=True)
        return
    left = [name for name in OPERATIONS
            if not options.names or any(part in name for part in options.names)]
    while left:
        done = subprocess.run([sys.executable, __file__, "--in-this-process", *left],
                              stdout=subprocess.PIPE, text=True)
        for line in done.stdout.splitlines():
            name, *said = line.split()
            print(name, said[0] if said else "ends", flush=True)
            left.remove(name)
        if done.returncode == 0 or not done.stdout:
            sys.exit(done.returncode)


if __name__ == "__main__":
    main()
