"""Writes outcontrol.json: the operands of a layer of TetraJet-v2 as the authors' code quantizes them, with PyTorch on the CPU in binary32.

    python outcontrol.py DIRECTORY

DIRECTORY is a checkout of https://github.com/thu-ml/TetraJet-v2-NVFP4Training at ca5953f643d85c793fb3a210bf21f17fc88ce83e.
olmo2-training/olmo/quantization_real/{linear,linear_mix,utils}.py and kernels/baseline_fakequant run as they are: these choose and order
the columns, and round to NVFP4. What they import is replaced: Triton by functions of PyTorch, whose programs run one after the other; and the CUDA
kernels, for NVFP4 by kernels/baseline_fakequant, with which the authors compare theirs, and for MXFP8, of which
they have no other form, by the lines of kernels/csrc/quant_fp8.cu: the scale is rounded up to a power of two, and numbers to E4M3.
"""

import importlib
import json
import sys
import types
from pathlib import Path

import torch

COMMIT = "ca5953f643d85c793fb3a210bf21f17fc88ce83e"


def module(name, **attributes):
    m = types.ModuleType(name)
    m.__dict__.update(attributes)
    sys.modules[name] = m
    parent, _, last = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, m)
    return m


class Pointer:
    def __init__(self, tensor, at=0):
        self.tensor, self.at, self.dtype = tensor.view(-1), at, types.SimpleNamespace(element_ty=tensor.dtype)

    def __add__(self, offsets):
        return Pointer(self.tensor, self.at + offsets)


class Kernel:
    def __init__(self, body):
        self.body = body

    def __getitem__(self, grid):
        def launch(*args):
            for triton.program in range(grid[0]):
                self.body(*(Pointer(a) if isinstance(a, torch.Tensor) else a for a in args))

        return launch


def store(pointer, values, mask):
    pointer.tensor[pointer.at] = values


def largest(x, axis=None, keep_dims=False):
    return x.max() if axis is None else x.max(dim=axis, keepdim=keep_dims).values


triton = module("triton", jit=Kernel, cdiv=lambda a, b: -(-a // b))
module(
    "triton.language", constexpr=int, float32=torch.float32, float8e4nv=torch.float8_e4m3fn, program_id=lambda axis: triton.program,
    load=lambda pointer, mask, other: pointer.tensor[pointer.at], store=store, max=largest, clamp=lambda x, min, max: x.clamp(min, max),
    **{name: getattr(torch, name) for name in ("arange", "abs", "where", "floor", "log2", "exp2", "ravel")},
)  # fmt: skip
module("triton.language.extra")
module("triton.language.extra.cuda")
module("triton.language.extra.cuda.libdevice", signbit=lambda x: torch.signbit(x).int(), rint=torch.round)


def nvfp4(x):
    return baseline.nvfp4_double_quantize_fused(x)


def mxfp8(x):
    blocks = x.view(x.shape[0], -1, 32)
    scale = (blocks.abs().amax(-1, keepdim=True).double() / 448).float()  # group_max / 448.0
    fraction, exponent = torch.frexp(scale)
    exponent = torch.where(fraction == 0.5, exponent - 1, exponent).clamp(-127, 127)
    exponent = torch.where(scale == 0, -127, exponent)
    codes = torch.ldexp(blocks, -exponent).to(torch.float8_e4m3fn)
    return torch.ldexp(codes.float(), exponent).view(x.shape)


def gemm(kind):
    def product(a, b, *_):
        seen[kind] = (a, b)
        return a @ b.T

    return product


def both(quantize, more):
    """A kernel that also returns what only the backward pass reads."""
    return lambda x, *_: (quantize(x), *[x.T] * more)


seen = {}
torch.compiler.disable = lambda f: f  # it would look for the Triton that is replaced
module(
    "tetrajetv2",
    quant_fp4_dequant_trans_rh_requant_fused=both(nvfp4, 5),
    quant_fp4_dequant_trans_fused=both(nvfp4, 3),
    quant_fp8_dequant_trans_requant_fused=both(mxfp8, 3),
    quant_fp8=both(mxfp8, 1),
    dequant_fp8=lambda q, _: q,
    fp4_gemm=gemm("narrow"),
    fp8_gemm_accum=lambda a, b, _, __, y: y + gemm("wide")(a, b),
)
root = Path(sys.argv[1])
module("olmo").__path__ = []
module("olmo.config", NVFP4_QuantizerConfig=object)
module("olmo.quantization_real").__path__ = [str(root / "olmo2-training/olmo/quantization_real")]
sys.path.insert(0, str(root / "kernels"))
baseline = importlib.import_module("baseline_fakequant.nvfp4_quant_fused")
mix = importlib.import_module("olmo.quantization_real.linear_mix")


def layer(columns, ratio):
    """The authors' layer, with the settings of configs/150m_100bt/TJv2-mix_fp8.yaml."""
    outliers = types.SimpleNamespace(X_chan_select=True, X_chan_select_bwd=True, outlier_fp8_matmul=True, X_top_channels_ratio=ratio)
    settings = types.SimpleNamespace(
        inner_blocksize=16, outer_blocksize=128, enable_qweight_buffer_when_real_quantize=False, enabled_quantizers=[1, 2, 3, 4, 5, 6],
        backward_double_quant=True, backward_stochastic=True, hadamard_bwd=True, hadamard_for_dX_if_bwd=True, hadamard_for_dW_if_bwd=True,
        outlier_conf=outliers,
    )  # fmt: skip
    return mix.NVFP4_mix_MXFP8_Linear_RealQuant_WeightQuantOnline(columns, 128, bias=False, q_cfg=settings)


def short(t):
    """The shortest decimals of binary32."""
    return [short(row) for row in t] if t.dim() else float(str(t.numpy()))


cases = []
torch.manual_seed(3)
for name, columns, wide in (("a third", 384, 128), ("a half", 512, 256)):
    m = layer(columns, wide / columns)
    assert m.in_features_fp8 == wide
    factors = torch.exp(torch.randn(columns))  # of columns, some of which are outliers
    factors[::37] *= 30
    x = torch.randn(2, columns) * factors
    w = torch.randn(128, columns) * 0.05
    x[0, 5] = w[1, 7] = 0
    x[1, torch.argsort(factors)[:128]] *= 1e-4  # blocks of very different sizes
    m.weight.data.copy_(w)
    # The norms of columns are sums over two micro-batches of a token each: so they are sums of magnitudes, and in the order of means.
    first = torch.randn(2, columns) * factors
    m.start_channel_outlier_accumulate()
    for token in first:
        m(token[None])
    m.sync_channel_accumulate_and_update_idx()
    y = m(x)
    order = torch.cat([m.fp8_channel_idx, m.fp4_channel_idx]).long()
    place = torch.empty(columns, dtype=torch.long)
    place[order] = torch.arange(columns)
    for which, role, operand, rows in ((0, "activation", x, 2), (1, "weight", w, 2)):
        value = torch.cat([seen["wide"][which], seen["narrow"][which]], dim=1)[:rows, place]
        cases.append({
            "id": f"{role}, {name}",
            "role": role,
            "settings": {"wide": wide / columns},
            "inputs": {"x": short(operand[:rows]), "activations.mean": [short(first.abs().mean(0))]},
            "expected": {"value": short(value), "kept.place": place.tolist()},
        })
    if name == "a third":  # without columns that are wide
        cases.append({
            "id": "activation, none", "role": "activation", "settings": {"wide": 0},
            "inputs": {"x": short(x)}, "expected": {"value": short(nvfp4(x))},
        })

with open(Path(__file__).with_suffix(".json"), "w") as f:
    json.dump({
        "format": 1, "kind": "quantizer", "name": "outcontrol",
        "description": "Operands of a layer from thu-ml/TetraJet-v2-NVFP4Training at " + COMMIT + " by outcontrol.py, PyTorch " + torch.__version__ + ".",
        "tolerance": {"abs": 1e-12, "rel": 1e-6}, "cases": cases,
    }, f)
    f.write("\n")
