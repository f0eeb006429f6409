# Writes percentile.json: clipping at a quantile in NumPy, float64.
import json
import numpy as np


def case(name, bits, quantile, x, dy):
    top = 2 ** (bits - 1) - 1
    bound = np.quantile(np.abs(x), quantile, axis=1, keepdims=True)
    scale = np.maximum(bound / top, 2.0**-126)
    codes = np.clip(np.rint(x / scale), -top, top)
    inside = np.abs(x) <= bound
    return {
        "id": name,
        "settings": {"bits": bits, "quantile": quantile},
        "inputs": {"x": x.tolist(), "d.value": dy.tolist()},
        "expected": {
            "codes": codes.tolist(),
            "value": (codes * scale).tolist(),
            "scale": scale.tolist(),
            "mask": inside.tolist(),
            "d.x": np.where(inside, dy, 0).tolist(),
        },
    }


rng = np.random.default_rng(9)
cases = []
for bits, quantile, row in ((4, 0.99, 128), (3, 0.9, 33), (8, 0.999, 64), (4, 1.0, 17), (2, 0.5, 6)):
    x = np.round(rng.standard_t(4, size=(3, row)), 5).astype(np.float32).astype(np.float64)
    x[1] = 0
    cases.append(case(f"{bits} bits, quantile {quantile}, rows of {row}", bits, quantile, x, np.round(rng.normal(size=x.shape), 3)))
with open("percentile.json", "w") as f:
    json.dump(
        {
            "format": 1,
            "kind": "quantizer",
            "name": "percentile",
            "description": "Clipping at a quantile by percentile.py, NumPy " + np.__version__ + " in float64.",
            "tolerance": {"abs": 0.0, "rel": 1e-12},
            "cases": cases,
        },
        f,
    )
    f.write("\n")
