# Writes nf4.json: NF4 in NumPy, float64. The levels are computed as QLoRA's authors do (bitsandbytes, create_normal_map), as quantiles of the
# normal distribution by PyTorch and SciPy in float32; this repository copies the published numbers, which are the same.
import json
import numpy as np
import torch
from scipy.stats import norm

OFFSET = 0.9677083
right = norm.ppf(torch.linspace(OFFSET, 0.5, 9)[:-1].numpy())
left = -norm.ppf(torch.linspace(OFFSET, 0.5, 8)[:-1].numpy())
levels = np.sort(np.concatenate([left, [0], right]))
levels = (levels / levels.max()).astype(np.float32).astype(np.float64)
assert len(levels) == 16


def case(name, block, x, dy):
    codes, value, scales = np.zeros(x.shape), np.zeros(x.shape), []
    for i, row in enumerate(x):
        scales.append([])
        for j in range(0, len(row), block):
            part = row[j : j + block]
            s = max(np.abs(part).max(), 2.0**-126)
            k = np.abs(part[:, None] / s - levels[None, :]).argmin(1)
            codes[i, j : j + block], value[i, j : j + block] = k, levels[k] * s
            scales[-1].append([s])
    return {
        "id": name,
        "settings": {"block": block},
        "inputs": {"x": x.tolist(), "d.value": dy.tolist()},
        "expected": {"codes": codes.tolist(), "value": value.tolist(), "scale": scales, "d.x": dy.tolist()},
    }


rng = np.random.default_rng(3)
cases = []
for block, row in ((64, 128), (64, 100), (16, 33), (64, 24)):
    x = np.round(rng.standard_t(5, size=(3, row)), 5).astype(np.float32).astype(np.float64)
    x[1, : block] = 0
    cases.append(case(f"blocks of {block} in rows of {row}", block, x, np.round(rng.normal(size=x.shape), 3)))
cases.append(case("the levels", 16, levels[None, :], np.ones((1, 16))))
with open("nf4.json", "w") as f:
    json.dump(
        {
            "format": 1,
            "kind": "quantizer",
            "name": "nf4",
            "description": "NF4 by nf4.py, NumPy " + np.__version__ + " in float64.",
            "tolerance": {"abs": 0.0, "rel": 1e-12},
            "cases": cases,
        },
        f,
    )
    f.write("\n")
