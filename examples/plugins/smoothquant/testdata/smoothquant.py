# Writes smoothquant.json: SmoothQuant by PyTorch, float64, as the authors' code does it (smooth_ln_fcs of smoothquant/smooth.py, and the
# functions of smoothquant/fake_quant.py). Each case is one operand of a product with two weights that share their activation.
# python smoothquant.py
import json
import torch

torch.manual_seed(7)


def smooth(act_scales, fcs, alpha):
    weight_scales = torch.cat([w.abs().max(dim=0, keepdim=True)[0] for w in fcs], dim=0)
    weight_scales = weight_scales.max(dim=0)[0].clamp(min=1e-5)
    return (act_scales.pow(alpha) / weight_scales.pow(1 - alpha)).clamp(min=1e-5)


def quantize(t, n_bits, granularity):
    scales = t.abs().max(dim=-1, keepdim=True)[0] if granularity == "row" else t.abs().max()
    q_max = 2 ** (n_bits - 1) - 1
    scales = scales.clamp(min=1e-5).div(q_max)
    return t.clone().div_(scales).round_().mul_(scales)


def listed(t):
    return t.tolist()


cases = []
for bits, alpha, granularity in ((8, 0.5, "row"), (8, 0.5, "tensor"), (8, 0.85, "row"), (4, 0.0, "row"), (6, 1.0, "row")):
    x = torch.randn(5, 24, dtype=torch.float64)
    x[:, 3] *= 60
    x[:, 17] *= 25
    x[:, 9] = 0  # a column that nothing uses
    fcs = [torch.randn(4, 24, dtype=torch.float64) * 0.1, torch.randn(6, 24, dtype=torch.float64) * 0.2]
    fcs[0][:, 11] = fcs[1][:, 11] = 0
    x, fcs = x.float().double(), [w.float().double() for w in fcs]
    act = x.abs().max(dim=0)[0]
    s = smooth(act, fcs, alpha)
    statistics = {
        "activations.max": [listed(act)],
        "weights.max": [listed(torch.cat(fcs).abs().max(dim=0)[0])],
    }
    settings = {"bits": bits, "alpha": alpha, "granularity": granularity}
    name = f"{bits} bits, alpha {alpha}, {granularity}"
    for which, operand, value in (
        ("activation", x, quantize(x / s, bits, granularity) * s),
        ("weight", fcs[0], quantize(fcs[0] * s, bits, granularity) / s),
    ):
        cases.append(
            {
                "id": f"{which}, {name}",
                "role": which,
                "settings": settings,
                "inputs": {"x": listed(operand), **statistics},
                "expected": {"value": listed(value), "kept.smooth": [listed(s)]},
            }
        )
with open("smoothquant.json", "w") as f:
    json.dump(
        {
            "format": 1,
            "kind": "quantizer",
            "name": "smoothquant",
            "description": "SmoothQuant by smoothquant.py, PyTorch " + torch.__version__ + " in float64.",
            "tolerance": {"abs": 1e-12, "rel": 1e-10},
            "cases": cases,
        },
        f,
        indent=1,
    )
    f.write("\n")
