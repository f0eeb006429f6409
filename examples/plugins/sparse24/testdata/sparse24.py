# Writes sparse24.json: 2:4 sparsity in NumPy, float64.
import json
import numpy as np


def keep(row):
    kept = np.zeros(len(row), bool)
    for j in range(0, len(row), 4):
        part = np.abs(row[j : j + 4])
        kept[j + np.argsort(-part, kind="stable")[:2]] = True
    return kept


def case(name, bits, gradient, x, dy):
    kept = np.array([keep(r) for r in x])
    if bits == 0:
        value = np.where(kept, x, 0)
        codes = (value != 0) * 1.0
        scale = value
    else:
        top = 2 ** (bits - 1) - 1
        scale = np.maximum(np.abs(x).max(1, keepdims=True) / top, 2.0**-126)
        codes = np.where(kept, np.rint(x / scale), 0)
        value = codes * scale
    expected = {"codes": codes.tolist(), "value": value.tolist(), "scale": scale.tolist(), "d.x": dy.tolist()}
    if gradient == "kept":
        expected |= {"mask": kept.tolist(), "d.x": np.where(kept, dy, 0).tolist()}
    return {
        "id": name,
        "settings": {"bits": bits, "gradient": gradient},
        "inputs": {"x": x.tolist(), "d.value": dy.tolist()},
        "expected": expected,
    }


rng = np.random.default_rng(5)
cases = []
for bits, gradient, row in ((0, "all", 32), (0, "kept", 31), (4, "all", 32), (4, "kept", 32), (2, "kept", 7), (8, "all", 2)):
    x = np.round(rng.normal(size=(3, row)), 5).astype(np.float32).astype(np.float64)
    x[1] = 0
    cases.append(case(f"{bits} bits, gradient {gradient}, rows of {row}", bits, gradient, x, np.round(rng.normal(size=x.shape), 3)))
cases.append(case("equal magnitudes", 0, "kept", np.array([[1.0, -1, 1, 1, 0, 0, 2, 0]]), np.ones((1, 8))))
with open("sparse24.json", "w") as f:
    json.dump(
        {
            "format": 1,
            "kind": "quantizer",
            "name": "sparse24",
            "description": "2:4 sparsity by sparse24.py, NumPy " + np.__version__ + " in float64.",
            "tolerance": {"abs": 0.0, "rel": 1e-12},
            "cases": cases,
        },
        f,
    )
    f.write("\n")
