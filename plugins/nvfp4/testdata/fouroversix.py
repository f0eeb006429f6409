# Writes fouroversix.json: NVFP4 with the scale rules of Four Over Six, by the authors' own code (PyTorch, on the CPU, in binary32):
# quantize() of src/fouroversix/quantize/pytorch/reference.py of mit-han-lab/fouroversix, commit dadfad69. Nothing of it is here; the
# argument is a checkout:
#
#     python3 plugins/nvfp4/testdata/fouroversix.py CHECKOUT
import importlib
import json
import sys
import types
from pathlib import Path

import torch

# The packages' own __init__ files import kernels for GPUs, which the reference does not need.
root = Path(sys.argv[1]) / "src" / "fouroversix"
for name in ("", "quantize", "quantize/pytorch", "kernels"):
    package = types.ModuleType(".".join(["fouroversix", *name.split("/")]) if name else "fouroversix")
    package.__path__ = [str(root / name)]
    sys.modules[package.__name__] = package
reference = importlib.import_module("fouroversix.quantize.pytorch.reference")
rules = importlib.import_module("fouroversix.utils").ScaleRule

LEVELS = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def short(t):
    """The shortest decimals of binary32."""
    return [short(row) for row in t] if t.dim() else float(str(t.numpy()))


def case(rule, form, name, x):
    packed, scales, amax = reference.quantize(x, scale_rule=rule, use_blackwell_scale_layout=False)
    codes = torch.stack([packed & 15, packed >> 4], dim=-1).reshape(x.shape).long()
    level, most = 6, (448 if rule.is_static else 256)
    signed = LEVELS[codes % 8] * torch.where(codes >= 8, -1.0, 1.0)
    scale = scales.float().reshape(x.shape[0], -1, 1)
    value = (signed.reshape(x.shape[0], -1, 16) * scale * amax / torch.tensor(float(level * most))).reshape(x.shape)
    return {
        "id": f"{name}, {rule.value}, {form}",
        "settings": {"scale_rule": rule.value, "scale_form": form},
        "inputs": {"x": short(x)},
        "expected": {
            "codes": codes.tolist(),
            "value": short(value),
            "scale": short(scale * amax / (level * most)),
        },
    }


torch.manual_seed(2512)
inputs = {"normal": torch.randn(4, 64)}
inputs["blocks of many sizes"] = torch.randn(2, 96) * torch.exp2(-torch.arange(12.0) % 9).repeat_interleave(16).reshape(2, 96)
inputs["outliers"] = torch.randn(2, 64) * torch.where(torch.rand(2, 64) < 0.05, 20.0, 1.0)
inputs["uniform"] = torch.rand(2, 64) * 2 - 1
inputs["a block of zeros"] = torch.cat([torch.zeros(1, 16), torch.randn(1, 16)], dim=1)

cases = []
for name, x in inputs.items():
    for rule in (rules.static_6, rules.mse):
        form = "decode" if name == "outliers" else "encode"  # theirs is the second, but for the order of two products
        cases.append(case(rule, form, name, (x * 1e5).round() / 1e5))
print(len(cases), "cases,", sum(x.numel() for x in inputs.values()), "numbers for each rule")
with open(Path(__file__).with_suffix(".json"), "w") as f:
    f.write("{\n")
    head = {
        "format": 1,
        "kind": "quantizer",
        "name": "nvfp4",
        "description": "Four Over Six by the authors' reference (mit-han-lab/fouroversix dadfad69), PyTorch " + torch.__version__ + " in binary32; see fouroversix.py.",
        "tolerance": {"abs": 1e-7, "rel": 5e-7},
    }
    for key, value in head.items():
        f.write(f" {json.dumps(key)}: {json.dumps(value)},\n")
    f.write(' "cases": [\n' + ",\n".join("  " + json.dumps(c) for c in cases) + "\n ]\n}\n")
