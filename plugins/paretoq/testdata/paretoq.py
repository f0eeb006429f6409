# Writes paretoq.json: values, codes and gradients of the authors' code, in float64 on the CPU:
#
#	git clone https://github.com/facebookresearch/ParetoQ && git -C ParetoQ checkout 655e3386617845e1e3516198437ebad8dab8dc68
#	python paretoq.py ParetoQ
#
# The values are those of the autograd functions of models/utils_quant.py that QuantizeLinear there chooses. Initial values of α are
# formulas of train.py, which cannot run here, written out. No case of one bit has a zero.
import importlib.util
import json
import os
import sys

import torch

spec = importlib.util.spec_from_file_location("utils_quant", os.path.join(sys.argv[1], "models", "utils_quant.py"))
authors = importlib.util.module_from_spec(spec)
spec.loader.exec_module(authors)

r = torch.Generator().manual_seed(23)


def draw(*shape):
    return (torch.randn(shape, generator=r, dtype=torch.float64) * 4096).round() / 4096


def initial(x, bits):
    """train.py, which has 0 for ternary numbers, too."""
    if bits == 1:
        return x.abs().mean(dim=-1, keepdim=True)
    largest = x.abs().amax(dim=-1, keepdim=True)
    return largest if bits in (0, 2) else largest / (2 ** (bits - 1) - 1)


def edges(bits, alpha):
    """Levels, ties, the ends of the grid, and what lies beyond them, in a row whose α is a power of two."""
    places = [1, -1, 0.25, -0.25, 0.75, -0.75, 0.5, -0.5, 0.98, -0.98, 0.995, -0.995, 100, -100, 1e-30, -1e-30, 1.25, -1.5]
    if bits > 2:
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        places += [low, high, low + 0.5, high - 0.5, low - 0.25, high + 0.25]
    if bits != 1:
        places += [0, 0]
    return torch.tensor([p * alpha for p in places], dtype=torch.float64)


def case(name, bits, x, alpha):
    dy = draw(*x.shape)
    x, alpha = x.clone().requires_grad_(), alpha.clone().requires_grad_()
    stretched = bits in (0, 2)
    function = authors.StretchedElasticQuant if stretched else authors.LsqBinaryTernaryExtension
    value = function.apply(x, alpha, bits, False)
    value.backward(dy)
    with torch.no_grad():
        least = torch.tensor(0.00001).float().double()
        bounded = torch.where(alpha > least, alpha, least)
        scale = bounded / {0: 1.5, 2: 4}.get(bits, 1)
        codes = (value / scale).round()
    return {
        "id": name,
        "settings": {"bits": bits},
        "inputs": {"x": x.tolist(), "d.value": dy.tolist(), "trained.alpha": alpha.tolist()},
        "expected": {
            "codes": codes.tolist(),
            "value": value.tolist(),
            # where the gradient of ones passes
            "mask": torch.autograd.grad(function.apply(x, alpha, bits, False).sum(), x)[0].bool().tolist(),
            "scale": scale.tolist(),
            "d.x": x.grad.tolist(),
            "d.trained.alpha": alpha.grad.tolist(),
        },
    }


cases = []
for bits in range(5):
    x = draw(2, 17)
    cases.append(case(f"{bits} bits, initial", bits, x, initial(x, bits)))
    x = draw(2, 17)
    cases.append(case(f"{bits} bits, much is clipped", bits, x, 0.3 * initial(x, bits)))
    x = draw(2, 17)
    cases.append(case(f"{bits} bits, a large range", bits, x, 3 * initial(x, bits)))
    x = torch.stack([edges(bits, 0.5), edges(bits, 2.0**-9)])
    cases.append(case(f"{bits} bits, edges", bits, x, torch.tensor([[0.5], [2.0**-9]], dtype=torch.float64)))
    x = 1e-5 * draw(3, 12)
    if bits != 1:
        x[2] = 0
    cases.append(case(f"{bits} bits, below the least", bits, x, torch.tensor([[1e-7], [-1], [2e-5]], dtype=torch.float64)))
with open(os.path.join(os.path.dirname(__file__), "paretoq.json"), "w") as f:
    json.dump(
        {
            "format": 1,
            "kind": "quantizer",
            "name": "paretoq",
            "description": "facebookresearch/ParetoQ at 655e3386 by paretoq.py, PyTorch " + torch.__version__.split("+")[0] + " in float64.",
            "tolerance": {"abs": 1e-12, "rel": 1e-12},
            "cases": cases,
        },
        f,
    )
    f.write("\n")
