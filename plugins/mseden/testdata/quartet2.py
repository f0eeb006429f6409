# Writes mseden.json and layer.json, and quartet2.json of plugins/nvfp4: what the code of Quartet II (Panferov et al. 2026, arXiv 2601.22813) computes.
# It RUNS the authors' modules src/models/quantization/schemes/quartet_2.py and quantizers/nvfp4_triton.py (IST-DASLab/Quartet-II,
# commit 8776a90b) on the CPU: Triton kernels in Triton's own interpreter, torch.compile left out, "cuda" replaced by "cpu", and
# tl.rand and the random signs replaced by what a plugin draws. The interpreter of Triton 3.9 loses carries where it converts to
# E4M3, so PyTorch converts in its place.
#
#     git -C CHECKOUT checkout 8776a90b
#     cd plugins/mseden/testdata && python3 quartet2.py CHECKOUT
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
import triton.runtime.interpreter as interpreter

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


def uniform(key, n):
    return ((threefry(key, n) >> np.uint64(16)).astype(np.float64) + 0.5) / 65536


def signs(key, n):
    return torch.tensor((threefry(key, n) >> np.uint64(31)).astype(np.float32) * 2 - 1)


convert = interpreter._convert_float


def convert_e4m3(x, source, target, mode):
    if source == tl.float32 and target == tl.float8e4nv:
        return torch.tensor(x).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    if source == tl.float8e4nv and target == tl.float32:
        return torch.tensor(x.view(np.uint8)).view(torch.float8_e4m3fn).float().numpy().view(np.uint32)
    return convert(x, source, target, mode)


interpreter._convert_float = convert_e4m3
drawn = None  # what tl.rand returns for the offsets 0, 1, …


def rand(_, offsets):
    at = offsets.handle.data
    values = np.concatenate([drawn, np.ones(max(0, at.max() + 1 - len(drawn)))])[at].astype(np.float32)
    return tl.core.tensor(interpreter.TensorHandle(values, tl.float32), tl.block_type(tl.float32, list(values.shape)))


tl.rand = rand
torch.compile = lambda f=None, **_: f if f is not None else lambda g: g
make = torch.tensor
torch.tensor = lambda *a, **k: make(*a, **{**k, **({"device": "cpu"} if "device" in k else {})})
for name in ("models", "models.quantization", "models.quantization.schemes", "models.quantization.quantizers"):  # without their __init__.py
    package = types.ModuleType(name)
    package.__path__ = [os.path.join(sys.argv[1], "src", *name.split("."))]
    sys.modules[name] = package
scheme = importlib.import_module("models.quantization.schemes.quartet_2")
forward = importlib.import_module("models.quantization.quantizers.nvfp4_triton")
for kernel in (scheme.eden_1x16s_fp4_kernel, forward.rtn_1x16s_fp4_kernel):
    kernel.configs = kernel.configs[:1]  # or else they are timed on a GPU

eden = scheme.eden_1x16s_fp4_kernel_wrapper
OVERRIDE = scheme.Quartet_II_fn.backward_scale_override
noise = []  # keys of the coming calls


def with_noise(*args):
    """Calls the kernel with the draws of the next key: it takes the upper neighbour below p, the plugin from 1 − p on."""
    global drawn
    drawn = 1 - uniform(noise.pop(0), args[0].numel() // 16)
    return eden(*args)


scheme.eden_1x16s_fp4_kernel_wrapper = with_noise
rng = np.random.default_rng(2601)


def keys(n):
    return [[int(k) for k in rng.integers(0, 2**32, 2)] for _ in range(n)]


def normal(*shape):
    x = rng.normal(size=shape)
    x[0] *= 1e-3
    x[-1, 3] *= 30
    return make(np.float32(np.round(x, 5)))


def plain(x):
    """Numbers with as many digits as binary32 needs."""
    return json.loads(json.dumps(np.vectorize(lambda v: float(str(np.float32(v))))(x.detach().numpy()).tolist()))


def case(name, settings, inputs, value):
    return {"id": name, "settings": settings, "inputs": inputs, "expected": {"value": plain(value)}}


def rotated(order, *shape):
    """MS-EDEN of a matrix, rotated back. The authors repeat the signs of a rotation along a row, a plugin draws those of a
    whole row, so each rotation has a call of its own here; all of them are told the largest entry."""
    global drawn
    x, (key, shared) = normal(*shape), keys(2)
    h = scheme.get_hadamard_matrix(order, torch.float32, "cuda")
    d, u = signs(shared, shape[1]), 1 - uniform(key, x.numel() // 16).reshape(shape[0], -1)
    turns = [(x[:, i : i + order], h @ torch.diag(d[i : i + order])) for i in range(0, shape[1], order)]
    most = max((part @ turn.T).abs().max() for part, turn in turns)
    out = []
    for i, (part, turn) in enumerate(turns):
        drawn = u[:, i * order // 16 : (i + 1) * order // 16].ravel()
        out.append(eden(part, turn, OVERRIDE, 16, most)[0].double() @ turn.double())
    return case(f"rotation {order}", {"rotation": str(order)}, {"x": plain(x), "noise": key, "shared_noise": shared}, torch.cat(out, dim=1))


def layer():
    """Quartet_II_fn with four over six and rotations of 32, the default of its module: a row is one rotation, so the signs are the same."""
    x, w, dy, (shared,), given = normal(32, 32).requires_grad_(), normal(32, 32).requires_grad_(), normal(32, 32), keys(1), keys(4)
    h = scheme.get_hadamard_matrix(32, torch.float32, "cuda")
    scheme.Quartet_II_fn.hadamard_matrix = h
    scheme.rerotate_hadamard = lambda h: h @ torch.diag(signs(shared, 32))
    noise[:] = list(given)
    y = scheme.Quartet_II_fn.apply(x.view(1, 32, 32), w, scheme.AmaxStorage(), False, False, False, True)
    y.backward(dy.view(1, 32, 32))
    quantize = lambda x: forward.rtn_1x16s_fp4_kernel_wrapper(x.detach(), 1.0, 16, True)
    inputs = {"xq": plain(quantize(x)), "wq": plain(quantize(w)), "dy": plain(dy), "noise": given, "shared": shared}
    expected = {"dx": plain(x.grad), "dw": plain(w.grad)}
    products = {"id": "layer", "params": {}, "inputs": inputs, "expected": expected}
    operand = {"id": "four over six", "params": {}, "inputs": {"x": plain(x)}, "expected": {"value": plain(quantize(x))}}
    return products, operand


def write(path, cases, **head):
    description = "IST-DASLab/Quartet-II at 8776a90b, run by quartet2.py with PyTorch " + torch.__version__ + " in float32."
    with open(path, "w") as f:
        f.write(json.dumps({"format": 1, **head, "description": description, "tolerance": {"abs": 1e-5, "rel": 1e-6}})[:-1] + ',\n"cases": [\n')
        f.write(",\n".join(json.dumps(c) for c in cases) + "\n]}\n")


products, operand = layer()
write("mseden.json", [rotated(128, 4, 256), rotated(32, 6, 64)], kind="quantizer", name="mseden")
write("layer.json", [products], name="layer")
write("../../nvfp4/testdata/quartet2.json", [operand], name="operand")
