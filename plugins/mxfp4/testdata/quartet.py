# Writes quartet.json: what the code of Quartet (Castro et al. 2025, arXiv 2505.14669) computes. It RUNS the authors' modules
# src/models/quantization/{__init__,backward}.py and quantizers/{mxfp4,mxfp4_triton}.py (IST-DASLab/Quartet, commit 00ccd38e) on the
# CPU: the Triton kernel in Triton's own interpreter, torch.compile left out, "cuda" replaced by "cpu", the package
# fast_hadamard_transform replaced by a product with SciPy's Hadamard matrix, and tl.rand by the numbers that a plugin draws.
#
#     git -C CHECKOUT checkout 00ccd38e
#     cd plugins/mxfp4/testdata && python3 quartet.py CHECKOUT
#
# with PyTorch 2.15, Triton 3.9 and SciPy 1.17. The authors' kernels compute in binary32.
import importlib
import json
import os
import sys
import types

os.environ["TRITON_INTERPRET"] = "1"
import numpy as np
import scipy.linalg
import torch
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

M = np.uint64(0xFFFFFFFF)


def threefry(key, n):
    """First words for the counters (0, 0), (1, 0), … of Threefry-2x32 with 20 rounds: random_bits."""
    ks = [np.uint64(key[0]), np.uint64(key[1])]
    ks.append(np.uint64(0x1BD11BDA) ^ ks[0] ^ ks[1])
    x = (np.arange(n, dtype=np.uint64) + ks[0]) & M
    y = np.full(n, ks[1], dtype=np.uint64) & M
    for r in range(20):
        d = np.uint64((13, 15, 26, 6, 17, 29, 16, 24)[r % 8])
        x = (x + y) & M
        y = (((y << d) & M) | (y >> (np.uint64(32) - d))) ^ x
        if r % 4 == 3:
            i = r // 4 + 1
            x = (x + ks[i % 3]) & M
            y = (y + ks[(i + 1) % 3] + np.uint64(i)) & M
    return x


def import_quartet(checkout):
    """The authors' package models.quantization, without models/__init__.py, which needs a tokenizer."""
    hadamard = types.ModuleType("fast_hadamard_transform")
    hadamard.hadamard_transform = lambda x, scale: x @ torch.tensor(scipy.linalg.hadamard(x.shape[-1]), dtype=x.dtype) * scale
    sys.modules["fast_hadamard_transform"] = hadamard
    package = types.ModuleType("models")
    package.__path__ = [os.path.join(checkout, "src", "models")]
    sys.modules["models"] = package
    torch.compile = lambda f=None, **_: f if f is not None else lambda g: g
    for name in ("eye", "tensor"):
        make = getattr(torch, name)
        setattr(torch, name, lambda *a, make=make, **k: make(*a, **{**k, **({"device": "cpu"} if "device" in k else {})}))
    quantization = importlib.import_module("models.quantization")
    kernels = importlib.import_module("models.quantization.quantizers.mxfp4_triton")
    kernels.mxfp4_forward_kernel.configs = kernels.mxfp4_forward_kernel.configs[:1]  # or else it is timed on a GPU
    return quantization, importlib.import_module("models.quantization.quantizers.mxfp4"), kernels


quantization, quantizers, kernels = import_quartet(sys.argv[1])
drawn = None  # what tl.rand returns for the offsets 0, 1, …


def rand(_, offsets):
    at = offsets.handle.data
    values = np.concatenate([drawn, np.ones(max(0, at.max() + 1 - len(drawn)))])[at].astype(np.float32)
    return tl.core.tensor(TensorHandle(values, tl.float32), tl.block_type(tl.float32, list(values.shape)))


tl.rand = rand
noise = []  # keys of the coming calls that draw
kernel = kernels.mxfp4_forward_kernel_wrapper


def with_noise(x, matrix, **settings):
    """Calls the kernel with the draws of the next key. It compares magnitudes, so of u, the plugin's number, it takes 1 − u where the
    rotated entry is positive without the authors' random signs, and u elsewhere."""
    global drawn
    if settings["stochastic_round"]:
        u = ((threefry(noise.pop(0), x.numel()) >> np.uint64(16)).astype(np.float64) + 0.5) / 65536
        z = x.detach().double().numpy().reshape(-1, 32) @ (scipy.linalg.hadamard(32) / np.sqrt(32))
        drawn = np.where(z.ravel() > 0, 1 - u, u)
        check(z, drawn)
    return kernel(x, matrix, **settings)


def check(z, s):
    """Fails where rounding errors could decide which of two levels an entry gets."""
    top = np.abs(z).max(axis=1, keepdims=True)
    r = np.abs(z) / (2.0 ** (np.floor(np.log2(top)) - 2) / 0.75)
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    at = np.clip(np.searchsorted(levels, r, side="right") - 1, 0, 6)
    p = (r - levels[at]) / (levels[at + 1] - levels[at])
    assert np.all((np.abs(p.ravel() - s) > 1e-5) | (np.abs(p.ravel()) < 1e-5)), "change the seed"
    assert np.all(np.abs(np.log2(top) - np.round(np.log2(top))) > 1e-5), "change the seed"


quantizers.mxfp4_forward_kernel_wrapper = with_noise
rng = np.random.default_rng(2506)


def keys(n):
    return [[int(k) for k in rng.integers(0, 2**32, 2)] for _ in range(n)]


def normal(*shape):
    x = rng.normal(size=shape)
    x[0] *= 1e-3
    x[-1, 3] *= 30
    return np.float32(np.round(x, 5))


def tensor(x):
    return torch.tensor(x).requires_grad_()


def plain(x):
    """Numbers with as many digits as binary32 needs."""
    x = x.detach().numpy() if torch.is_tensor(x) else x
    return json.loads(json.dumps(np.vectorize(lambda v: float(str(np.float32(v))))(x).tolist()))


def forward(name, x, matrix, rotation):
    """QuestMXFP4Quantizer: the projection of the forward pass, in the rotated domain, and its gradient."""
    x, dy = tensor(x), normal(*x.shape)
    q = quantizers.QuestMXFP4Quantizer()
    q.hadamard_matrix = matrix
    zhat = q(x)
    zhat.backward(torch.tensor(dy))
    mask = kernel(x, matrix, return_clip_mask=True, quest=True, gaussian_scale=2.92247856 / 6.0)[1]
    return {
        "id": name, "params": {"rotation": rotation}, "inputs": {"x": plain(x), "dz": plain(dy)},
        "expected": {"zhat": plain(zhat), "mask": plain(mask), "dx": plain(x.grad)},
    }


def layer():
    """QuantizedLinear with the scheme of all products. Its random signs stand behind the Hadamard matrix, where they change nothing."""
    batch, context, inputs, outputs = 2, 32, 32, 64
    x, w, dy = tensor(normal(batch * context, inputs)), normal(outputs, inputs), normal(batch * context, outputs)
    linear = quantization.QuantizedLinear(
        inputs, outputs, bias=False, weight_quantizer=quantizers.QuestMXFP4Quantizer(), activation_quantizer=quantizers.QuestMXFP4Quantizer(),
        gradient_quantizer=quantizers.AlbertTsengQuantizer(stochastic=True, rerotate="signs"),
        backward_scheme=quantization.BACKWARD_SCHEMES["Q(E)Q(Wt)t_Q(Et)Q(Xt)t"](),
    )
    linear.weight.data = torch.tensor(w)
    given = keys(4)
    noise[:] = list(given)
    y = linear(x.view(batch, context, inputs))
    y.backward(torch.tensor(dy).view(batch, context, outputs))
    assert not noise
    return {
        "id": "layer", "params": {"layer": True}, "inputs": {"x": plain(x), "w": plain(linear.weight), "dy": plain(dy), "noise": given},
        "expected": {"y": plain(y.view(batch * context, outputs)), "dx": plain(x.grad), "dw": plain(linear.weight.grad)},
    }


torch.manual_seed(1)
eighths = np.float32(np.round(rng.normal(size=(4, 64)) * 8) / 8)  # many of them are half way between two levels
cases = [
    forward("forward", normal(4, 96), quantizers.QuestMXFP4Quantizer().hadamard_matrix, "32"),
    forward("ties", eighths, torch.eye(32), "none"),
    layer(),
]
with open("quartet.json", "w") as f:
    json.dump(
        {
            "format": 1,
            "name": "quartet",
            "description": "IST-DASLab/Quartet at 00ccd38e, run by quartet.py with PyTorch " + torch.__version__ + " in float32.",
            "tolerance": {"abs": 1e-5, "rel": 1e-6},
            "cases": cases,
        },
        f,
        indent=None,
        separators=(",", ":"),
    )
    f.write("\n")
