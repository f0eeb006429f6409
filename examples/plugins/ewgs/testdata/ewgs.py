# Writes ewgs.json: element-wise gradient scaling in PyTorch, float64, as the authors write it (github.com/cvlab-yonsei/EWGS): only
# rounding has a gradient of its own; PyTorch differentiates the interval [l, u] around it.
import json

import torch


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, levels, delta):
        out = torch.round(x * (levels - 1)) / (levels - 1)
        ctx.delta = delta
        ctx.save_for_backward(x - out)
        return out

    @staticmethod
    def backward(ctx, g):
        (diff,) = ctx.saved_tensors
        return g * (1 + ctx.delta * torch.sign(g) * diff), None, None


def case(name, bits, delta, shape, low, width):
    x = torch.randn(shape, generator=r, dtype=torch.float32).double().requires_grad_()
    dy = torch.randn(shape, generator=r, dtype=torch.float32).double()
    dy[0, :3] = 0
    lw = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (low, width)]
    l, u = lw[0], lw[0] + lw[1]
    t = ((x - l) / (u - l)).clamp(min=0, max=1)
    q = Round.apply(t, 2**bits, delta)
    (l + (u - l) * q).backward(dy)
    inside = (x >= l) & (x <= u)
    return {
        "id": name,
        "settings": {"bits": bits, "delta": delta},
        "inputs": {"x": x.tolist(), "d.value": dy.tolist(), "trained.low": low, "trained.width": width},
        "expected": {
            "codes": (q * (2**bits - 1)).round().tolist(),
            "value": (l + (u - l) * q).tolist(),
            "mask": inside.tolist(),
            "d.x": x.grad.tolist(),
            "d.trained.low": lw[0].grad.item(),
            "d.trained.width": lw[1].grad.item(),
        },
    }


r = torch.Generator().manual_seed(11)
cases = [
    case("4 bits", 4, 1e-3, (3, 33), -1.5, 3.0),
    case("2 bits, a large delta", 2, 0.7, (4, 16), -0.9, 2.5),
    case("1 bit", 1, 0.2, (2, 31), -1.0, 2.0),
    case("8 bits, an interval to one side", 8, 0.5, (2, 64), -0.125, 1.75),
]
with open("ewgs.json", "w") as f:
    json.dump(
        {
            "format": 1,
            "kind": "quantizer",
            "name": "ewgs",
            "description": "Element-wise gradient scaling by ewgs.py, PyTorch " + torch.__version__.split("+")[0] + " in float64.",
            "tolerance": {"abs": 1e-12, "rel": 1e-12},
            "cases": cases,
        },
        f,
    )
    f.write("\n")
