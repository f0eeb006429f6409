# Writes awq.json: AWQ by PyTorch, float64: pseudo_quantize_tensor of llm-awq's quantizer.py with zero points, and the search of
# auto_scale.py, with mean|x| for the inputs, whose columns stand for inputs that are not correlated. The groups contain 0.
# python awq.py
import json
import torch

torch.manual_seed(11)


def pseudo_quantize_tensor(w, n_bit, q_group_size):
    shape = w.shape
    w = w.reshape(-1, q_group_size)
    max_val, min_val = w.amax(dim=1, keepdim=True), w.amin(dim=1, keepdim=True)
    max_int, min_int = 2**n_bit - 1, 0
    scales = (max_val - min_val).clamp(min=1e-5) / max_int
    zeros = (-torch.round(min_val / scales)).clamp_(min_int, max_int)
    w = (torch.clamp(torch.round(w / scales) + zeros, min_int, max_int) - zeros) * scales
    return w.reshape(shape)


def search(w, a, n_bit, group, n_grid):
    best_error, best_scales, best_ratio = float("inf"), None, None
    x = torch.diag(a)  # inputs one column at a time
    org_out = x @ w.T
    for i in range(n_grid):
        ratio = i / n_grid
        scales = a.pow(ratio).clamp(min=1e-4)
        scales = scales / (scales.max() * scales.min()).sqrt()
        out = x @ (pseudo_quantize_tensor(w * scales, n_bit, group) / scales).T
        loss = (org_out - out).pow(2).mean().item()
        if loss < best_error:
            best_error, best_scales, best_ratio = loss, scales, ratio
    return best_scales, best_ratio


cases = []
for bits, group, points in ((4, 16, 20), (4, 128, 20), (3, 8, 10), (2, 16, 4), (4, 16, 1)):
    w = (torch.randn(6, 32, dtype=torch.float64) * 0.1).float().double()
    a = torch.rand(32, dtype=torch.float64) + 0.2
    a[5] *= 30
    a[21] *= 12
    a[8] = 0  # a column that nothing uses
    a = a.float().double()
    size = min(group, 32)
    groups = w.reshape(-1, size)
    assert (groups.amax(1) > 0).all() and (groups.amin(1) < 0).all()
    s, ratio = search(w, a, bits, size, points)
    cases.append(
        {
            "id": f"{bits} bits, groups of {group}, {points} points: {ratio}",
            "settings": {"bits": bits, "group": group, "points": points},
            "inputs": {"x": w.tolist(), "activations.mean": [a.tolist()]},
            "expected": {"value": (pseudo_quantize_tensor(w * s, bits, size) / s).tolist(), "kept.factors": [s.tolist()]},
        }
    )
with open("awq.json", "w") as f:
    json.dump(
        {
            "format": 1,
            "kind": "quantizer",
            "name": "awq",
            "description": "AWQ by awq.py, PyTorch " + torch.__version__ + " in float64.",
            "tolerance": {"abs": 1e-12, "rel": 1e-10},
            "cases": cases,
        },
        f,
        indent=1,
    )
    f.write("\n")
