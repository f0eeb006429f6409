# Writes stableqat.json: values, codes and gradients of the authors' code, in float64 on the CPU:
#
#	git clone https://github.com/microsoft/StableQAT && git -C StableQAT checkout 4760535606809bd51b046b93532034db0f2b2dd1
#	python stableqat.py StableQAT
#
# The values are those of LsqBinaryTernaryExtensionEfficient in models/utils_quant.py, without torch.compile, which all recipes
# use; the other function there, which has to agree, rounds the least step of 1e-5 to float32. Initial steps are a formula of
# train.py, which cannot run here, written out.
import importlib.util
import json
import os
import sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"
import torch

spec = importlib.util.spec_from_file_location("utils_quant", os.path.join(sys.argv[1], "models", "utils_quant.py"))
authors = importlib.util.module_from_spec(spec)
spec.loader.exec_module(authors)

r = torch.Generator().manual_seed(19)


def draw(*shape):
    return (torch.randn(shape, generator=r, dtype=torch.float64) * 4096).round() / 4096


def edges(bits, step):
    """Zero, levels, ties, both bounds, and numbers beyond them, in units of a step that is a power of two."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    places = [0, 1, -1, 0.5, -0.5, low, high, low + 0.5, high - 0.5, low - 0.25, high + 0.25, low - 0.5, high + 0.5, 100, -100, 1e-30, 0.25, -0.75]
    return torch.tensor([p * step for p in places], dtype=torch.float64)


def run(function, bits, x, dy, step, layerwise, amplitudes):
    x, step = x.clone().requires_grad_(), step.clone().requires_grad_()
    sine = {"enable": amplitudes is not None, "amplitude": None if amplitudes is None else torch.tensor(amplitudes, dtype=torch.float64)}
    value = function.apply(x, step, bits, layerwise, sine)
    value.backward(dy)
    return value.detach(), x.grad, step.grad


def case(name, bits, x, step, sine=True, layerwise=False, agree=1e-12):
    dy = draw(*x.shape)
    amplitudes = [0.21] if sine else None
    functions = authors.LsqBinaryTernaryExtensionEfficient, authors.LsqBinaryTernaryExtensionRegular
    results = [run(f, bits, x, dy, step, layerwise, amplitudes) for f in functions]
    for one, other in zip(*results):
        torch.testing.assert_close(one, other, rtol=agree, atol=agree)
    value, dx, dstep = results[0]
    bounded = step.clamp(min=1e-5)
    places = x / bounded
    inside = (places >= -(2 ** (bits - 1))) & (places <= 2 ** (bits - 1) - 1)
    return {
        "id": name,
        "settings": {
            "bits": bits,
            "form": "stableqat",
            "granularity": "tensor" if layerwise else "row",
            "surrogate": "sine" if sine else "straight",
        },
        "inputs": {"x": x.tolist(), "d.value": dy.tolist(), "trained.step": step.tolist() if not layerwise else step.item()},
        "expected": {
            "codes": (value / bounded).round().tolist(),
            "value": value.tolist(),
            "mask": inside.tolist(),
            "d.x": dx.tolist(),
            "d.trained.step": dstep.tolist() if not layerwise else dstep.item(),
        },
    }


def initial(x, bits):
    return x.abs().amax(dim=-1, keepdim=True) / (2 ** (bits - 1) - 1)


cases = []
for bits in (2, 3, 4):
    x = draw(2, 17)
    step = initial(x, bits)
    cases.append(case(f"{bits} bits, initial steps", bits, x, step))
    x = draw(2, 17) * 0.05
    cases.append(case(f"{bits} bits, steps that clip", bits, x, 0.25 * initial(x, bits)))
    x = torch.stack([edges(bits, 0.25), edges(bits, 2.0**-9), torch.zeros(18, dtype=torch.float64)])
    cases.append(case(f"{bits} bits, edges and zeros", bits, x, torch.tensor([[0.25], [2.0**-9], [1.0]], dtype=torch.float64)))
    x = draw(2, 12)
    cases.append(case(f"{bits} bits, straight", bits, x, 0.5 * initial(x, bits), sine=False))
    draw(2, 12), draw(2, 12)  # for a case that is gone
x = draw(3, 8)
cases.append(case("one step for the tensor", 3, x, torch.tensor([0.375], dtype=torch.float64), layerwise=True))
draw(3, 8)  # for a case that is gone
cases.append(case("steps below the least", 2, 1e-5 * draw(2, 12), torch.tensor([[1e-7], [-1.0]], dtype=torch.float64), agree=1e-6))
with open(os.path.join(os.path.dirname(__file__), "stableqat.json"), "w") as f:
    json.dump(
        {
            "format": 1,
            "kind": "quantizer",
            "name": "stableqat",
            "description": "microsoft/StableQAT at 47605356 by stableqat.py, PyTorch " + torch.__version__.split("+")[0] + " in float64.",
            "tolerance": {"abs": 1e-12, "rel": 1e-12},
            "cases": cases,
        },
        f,
    )
    f.write("\n")
