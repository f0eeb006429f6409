# Writes official.json here and in plugins/lsq/testdata: values and gradients of the quantizers of QuEST's published code (Panferov et
# al. 2025), in float64 on the CPU:
#
#	git clone https://github.com/IST-DASLab/QuEST && git -C QuEST checkout c295afda
#	python official.py QuEST
#
# The package fast_hadamard_transform, which needs a GPU, is replaced by a product with Sylvester's matrix, in float64 instead of
# bfloat16, in which the published matrix is orthonormal only up to 10⁻⁴. LSQ's code adds 10⁻⁹·step to its output, which is
# subtracted here, with its gradient.
import importlib.util
import json
import os
import sys
import types

import numpy as np
import torch

stub = types.ModuleType("fast_hadamard_transform")
stub.hadamard_transform = lambda x, scale: None
sys.modules["fast_hadamard_transform"] = stub
eye = torch.eye
torch.eye = lambda *a, **k: eye(*a)
path = os.path.join(sys.argv[1], "src", "models", "quantization", "base_linear.py")
spec = importlib.util.spec_from_file_location("base_linear", path)
authors = importlib.util.module_from_spec(spec)
spec.loader.exec_module(authors)
torch.set_default_dtype(torch.float64)
r = np.random.RandomState(7)


def draw(*shape):
    return torch.tensor(np.round(r.randn(*shape) * 4096) / 4096)


def short(x):
    """Numbers with fourteen digits."""
    return torch.tensor([float(f"{v:.13e}") for v in x.detach().flatten().tolist()]).reshape(x.shape).tolist()


def case(name, quantizer, settings, x, role="weight", trained=()):
    dy, x = draw(*x.shape), x.clone().requires_grad_()
    y = quantizer(x)
    names = [n for n, _ in trained]
    values = [p for _, p in trained]
    step = values[0] if values else None
    if step is not None:
        scaled = step / np.sqrt(x.numel() * quantizer.q_max)
        y = y - 1e-9 * (step - scaled).detach() - 1e-9 * scaled
    y.backward(dy)
    gradients = {"d.x": short(x.grad), **{f"d.trained.{n}": short(p.grad) for n, p in zip(names, values)}}
    inputs = {"x": x.tolist(), "d.value": dy.tolist(), **{f"trained.{n}": p.tolist() for n, p in zip(names, values)}}
    return {"id": name, "role": role, "settings": settings, "inputs": inputs, "expected": {"value": short(y), **gradients}}


def write(path, name, cases):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), path), "w") as f:
        json.dump({"format": 1, "kind": "quantizer", "name": name,
                   "description": "IST-DASLab/QuEST at c295afda by plugins/quest/testdata/official.py, PyTorch " + torch.__version__.split("+")[0] + " in float64.",
                   "tolerance": {"abs": 1e-12, "rel": 1e-11}, "cases": cases}, f)
        f.write("\n")


hadamard = torch.ones(1, 1)
for _ in range(7):
    hadamard = torch.cat([torch.cat([hadamard, hadamard], 1), torch.cat([hadamard, -hadamard], 1)])
hadamard = hadamard * 2**-3.5
cases = []
for bits in (1, 2, 4, 8):
    for name, mask, rotation in (("Trust", "trust", "none"), ("HadamardTrust", "trust", "128"), ("Clip", "clip", "none"),
                                 ("HadamardClip", "clip", "128")):
        x = draw(2, 128 if rotation == "128" else 24)
        x[1] *= 2.0**-7
        q = getattr(authors, name + "Quantizer")(bits)
        q.matrix = hadamard
        cases.append(case(f"{name}Quantizer, {bits} bits", q, {"bits": bits, "form": "official", "mask": mask, "rotation": rotation}, x))
write("official.json", "official", cases)

cases = []
for bits in (2, 3, 4, 8):
    for positive in (False, True):
        for name, variant, role in (("LSQQuantizer", "lsq", "activation"), ("LSQPlusActivationQuantizer", "lsq+", "activation"),
                                    ("LSQQuantizer", "lsq", "weight"), ("LSQPlusWeightQuantizer", "lsq+", "weight")):
            if positive and role == "weight":
                continue
            x = draw(3, 16)
            q = getattr(authors, name)(bits, all_positive=positive)
            with torch.no_grad():
                q(x)
            trained = [("step", q.alpha_weight)] + ([("offset", q.beta_weight)] if hasattr(q, "beta_weight") else [])
            settings = {"bits": bits, "form": "official", "variant": variant, "levels": "unsigned" if positive else "signed"}
            cases.append(case(f"{name}, {bits} bits, {settings['levels']}, {role}", q, settings, x, role, trained))
write("../../lsq/testdata/official.json", "official", cases)
