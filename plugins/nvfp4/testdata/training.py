# Writes training.json and layer.json: NVFP4 as NVIDIA's recipe trains with it, by the authors' own code (PyTorch, on the CPU, in binary32). Nothing of it
# is here; the arguments are two checkouts:
#
#     python3 plugins/nvfp4/testdata/training.py TRANSFORMERENGINE FOUROVERSIX
#
# Blocks of rows, squares of weights, rotations and Four Over Six are NVFP4QuantizerRef of NVIDIA/TransformerEngine d0067d0d,
# transformer_engine/pytorch/custom_recipes/reference_nvfp4.py. It rounds to nearest only, as their kernels do not. Stochastic
# rounding is quantize() of mit-han-lab/fouroversix dadfad69, src/fouroversix/quantize/pytorch/reference.py, whose random numbers
# are replaced by those that the noise of a case gives: Threefry-2x32 with 20 rounds.
import importlib
import json
import sys
import types
from pathlib import Path

import numpy as np
import torch


def packages(root, *names):
    """Packages whose own __init__ files, which import kernels for GPUs, are not run."""
    for name in names:
        package = types.ModuleType(name)
        package.__path__ = [str(root / name.replace(".", "/"))]
        sys.modules[name] = package


packages(Path(sys.argv[1]), "transformer_engine", "transformer_engine.pytorch", "transformer_engine.pytorch.custom_recipes")
base = types.ModuleType("transformer_engine.pytorch.quantized_tensor")  # classes of which the reference uses these lines alone


class Quantizer:
    def __init__(self, *, rowwise, columnwise):
        self.rowwise_usage, self.columnwise_usage = rowwise, columnwise


base.Quantizer, base.QuantizedTensorStorage = Quantizer, type("QuantizedTensorStorage", (), {})
sys.modules[base.__name__] = base
gemm = types.ModuleType("transformer_engine.pytorch.custom_recipes.gemm")  # of whose names the reference uses these
gemm.MMParams, gemm.GEMMType = object, types.SimpleNamespace(FPROP="forward", WGRAD="weight gradient")
sys.modules[gemm.__name__] = gemm
nvidia = importlib.import_module("transformer_engine.pytorch.custom_recipes.reference_nvfp4")
packages(Path(sys.argv[2]) / "src", "fouroversix", "fouroversix.quantize", "fouroversix.quantize.pytorch", "fouroversix.kernels")
mit = importlib.import_module("fouroversix.quantize.pytorch.reference")
names = importlib.import_module("fouroversix.utils")

LEVELS = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def short(t):
    """The shortest decimals of binary32."""
    return [short(row) for row in t] if t.dim() else float(str(t.numpy()))


def codes_of(packed):
    return torch.stack([packed & 15, packed >> 4], dim=-1).reshape(packed.shape[0], -1).long()


def case(name, settings, x, packed, scales, amax, most, role="weight", turn=None, noise=None):
    codes = codes_of(packed)
    if noise is not None:  # zeros of the stochastic reference have either sign; here they have that of x
        codes = torch.where(codes % 8 == 0, torch.where(torch.signbit(x), 8, 0), codes)
    scale = scales.float()[: x.shape[0]].unsqueeze(-1) * amax / torch.tensor(6.0 * most)
    out = {
        "id": name,
        "role": role,
        "settings": {"scale_form": "encode", **settings},
        "inputs": {"x": short(x)},
        "expected": {"codes": codes.tolist(), "scale": short(scale)},
    }
    if noise is not None:
        out["inputs"]["noise"] = noise
    if turn is not None:  # back from where the reference leaves its numbers
        signed = LEVELS[codes % 8] * torch.where(codes >= 8, -1.0, 1.0)
        z = (signed.reshape(x.shape[0], -1, 16) * scale).double().reshape(-1, 16)
        out["expected"]["value"] = short((z @ turn.T.double()).float().reshape(x.shape))
    return out


def reference(x, settings, role, name, columns=False, **options):
    """One orientation of x: its rows, or the rows of its transpose."""
    q = nvidia.NVFP4QuantizerRef(nvidia.reference_utils.Fp4Formats.E2M1, rowwise=True, columnwise=True, **options).quantize(x)
    most = options.get("nvfp4_e4m3_max", 448)
    turn = None
    if columns and options.get("with_rht"):
        turn = nvidia.NVFP4QuantizerRef._build_hadamard_matrix(16, x.device, x.dtype) / 4
    if columns:
        return case(name, settings, x.T, q.data_t, q.scale_t, q.global_amax_col, most, role, turn)
    return case(name, settings, x, q.data, q.scale, q.global_amax_row, most, role)


def layer():
    """The three products of a layer, by their quantizers and their product of operands with scales; dy is rounded to nearest."""
    fp4 = nvidia.reference_utils.Fp4Formats.E2M1
    rows = nvidia.NVFP4QuantizerRef(fp4, with_rht=True)
    squares = nvidia.NVFP4QuantizerRef(fp4, quant_tile_shape=(16, 16))
    x, w, dy = (decimal(torch.randn(32, 32)) for _ in range(3))
    qx, qw, qdy = rows.quantize(x), squares.quantize(w), rows.quantize(dy)

    def product(a, b, sa, sb, of_a, of_b, kind=gemm.GEMMType.FPROP):
        return rows.qgemm(a, b, None, torch.float32, sa, sb, gemm_type=kind, qresult_x=of_a, qresult_w=of_b)

    return {
        "id": "layer",
        "params": {},
        "inputs": {"x": short(x), "w": short(w), "dy": short(dy)},
        "expected": {
            "y": short(product(qx.data, qw.data, qx.scale, qw.scale, qx, qw)),
            "dx": short(product(qdy.data, qw.data_t, qdy.scale, qw.scale_t, qdy, qw)),
            "dw": short(product(qdy.data_t, qx.data_t, qdy.scale_t, qx.scale_t, qdy, qx, gemm.GEMMType.WGRAD)),
        },
    }


def threefry(key, n):
    """First words for the counters (0, 0), (1, 0), …"""
    mask = np.uint64(0xFFFFFFFF)
    ks = [np.uint64(key[0]), np.uint64(key[1])]
    ks.append(np.uint64(0x1BD11BDA) ^ ks[0] ^ ks[1])
    x = (np.arange(n, dtype=np.uint64) + ks[0]) & mask
    y = np.full(n, ks[1], dtype=np.uint64) & mask
    for r in range(20):
        d = np.uint64((13, 15, 26, 6, 17, 29, 16, 24)[r % 8])
        x = (x + y) & mask
        y = (((y << d) & mask) | (y >> (np.uint64(32) - d))) ^ x
        if r % 4 == 3:
            i = r // 4 + 1
            x = (x + ks[i % 3]) & mask
            y = (y + ks[(i + 1) % 3] + np.uint64(i)) & mask
    return x


def stochastic(x, key, name):
    u = torch.tensor(((threefry(key, x.numel()) >> np.uint64(16)).astype(np.float64) + 0.5) / 65536).reshape(-1, 16)
    # Theirs rounds magnitudes, so that for negative numbers the complement draws the same level.
    u = torch.where(x.reshape(-1, 16) < 0, 1 - u, u).float()
    torch.rand_like = lambda _: u
    packed, scales, amax = mit.quantize(
        x, scale_rule=names.ScaleRule.static_6, round_style=names.RoundStyle.stochastic, use_blackwell_scale_layout=False
    )
    return case(name, {"rounding": "stochastic"}, x, packed, scales.reshape(x.shape[0], -1), amax, 448, "gradient", noise=key)


def decimal(t):
    return (t * 1e5).round() / 1e5


torch.manual_seed(2509)
x, w, dy = decimal(torch.randn(32, 24)), decimal(torch.randn(20, 40) * torch.exp2(-(torch.arange(40.0) // 8))), decimal(torch.randn(32, 16) * 1e-3)
x[3, 5], dy[7, 2] = 9.87654, -0.04321
rotated = {"rotation": "16", "signs": "transformer_engine"}
cases = [
    reference(torch.nn.functional.pad(x, (0, 8)), {}, "activation", "x"),
    reference(x, rotated, "activation", "xᵀ, rotated", columns=True, with_rht=True),
    reference(dy, rotated, "gradient", "dyᵀ, rotated, to nearest", columns=True, with_rht=True),
    reference(dy, {}, "gradient", "dy, to nearest"),
    stochastic(dy, [2509, 25149], "dy, stochastic"),
    stochastic(decimal(torch.rand(8, 32) - 0.5), [1, 2], "uniform, stochastic"),
]
for square in (False, True):
    settings = {"weight_blocks": "16x16"} if square else {}
    tiles = {"quant_tile_shape": (16, 16) if square else (1, 16)}
    what = "squares" if square else "rows"
    whole = torch.nn.functional.pad(w, (0, 8))
    cases.append(reference(whole, settings, "weight", f"W, {what}", **tiles))
    if square:
        cases.append(reference(whole, settings, "weight", f"Wᵀ, {what}", columns=True, **tiles))
    options = {"nvfp4_use_4over6": True, "nvfp4_e4m3_max": 256, "nvfp4_4over6_err_mode": "MSE", **tiles}
    cases.append(reference(w[:, :32].contiguous(), {**settings, "scale_rule": "mse"}, "weight", f"W, {what}, MSE, 256", **options))


def write(name, kind, cases, tolerance):
    head = {
        "format": 1,
        **kind,
        "name": name,
        "description": "NVFP4 training by the authors' references (NVIDIA/TransformerEngine d0067d0d, mit-han-lab/fouroversix dadfad69), PyTorch "
        + torch.__version__
        + " in binary32; see training.py.",
        "tolerance": tolerance,
    }
    with open(Path(__file__).with_name(name + ".json" if not kind else "training.json"), "w") as f:
        f.write("{\n" + "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items()))
        f.write(' "cases": [\n' + ",\n".join("  " + json.dumps(c, ensure_ascii=False) for c in cases) + "\n ]\n}\n")


write("nvfp4", {"kind": "quantizer"}, cases, {"abs": 1e-7, "rel": 5e-7})
write("layer", {}, [layer()], {"abs": 1e-5, "rel": 1e-6})
print(len(cases), "cases,", sum(len(sum(c["expected"]["codes"], [])) for c in cases), "codes")
