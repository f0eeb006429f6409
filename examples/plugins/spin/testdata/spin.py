# Writes spin.json: the quantizer and its constraint in NumPy, float64, written from the formulas in the package comment,
# without this repository's code. The nearest orthogonal matrix is that of the singular value decomposition.
import json
import numpy as np

rng = np.random.default_rng(11)


def nearest(v):
    u, _, w = np.linalg.svd(v)
    return u @ w


def case(name, bits, block, x, moved):
    r = nearest(moved)
    z = (x.reshape(-1, block) @ r).reshape(x.shape)
    top = 2 ** (bits - 1) - 1
    scale = np.abs(z).max(axis=1, keepdims=True) / top
    codes = np.rint(z / scale)
    dy = rng.normal(size=x.shape)
    # The error of the rounding c is a constant: Q = (xR + c)Rᵀ.
    rounded, zb, db = (codes * scale).reshape(-1, block), x.reshape(-1, block), dy.reshape(-1, block)
    dr = db.T @ rounded + zb.T @ (db @ r)
    return {
        "id": name,
        "params": {"bits": bits, "block": block},
        "inputs": {"x": x.tolist(), "moved": moved.tolist(), "rotation": r.tolist(), "dy": dy.tolist()},
        "expected": {
            "codes": codes.tolist(),
            "value": (rounded @ r.T).reshape(x.shape).tolist(),
            "constrained": r.tolist(),
            "dx": dy.tolist(),
            "dr": dr.tolist(),
        },
    }


cases = []
for bits, block, width in ((4, 8, 24), (3, 16, 16), (8, 2, 6)):
    start = np.linalg.qr(rng.normal(size=(block, block)))[0]
    x = rng.normal(size=(3, width))
    cases.append(case(f"{bits} bits", bits, block, x, start + 0.05 * rng.normal(size=start.shape)))
    cases.append(case(f"{bits} bits, a long way", bits, block, x, 3 * start + 0.5 * rng.normal(size=start.shape)))
with open("spin.json", "w") as f:
    json.dump(
        {
            "format": 1,
            "name": "spin",
            "description": "A learned rotation by spin.py, NumPy " + np.__version__ + " in float64.",
            "tolerance": {"abs": 0.0, "rel": 1e-12},
            "cases": cases,
        },
        f,
        indent=1,
    )
    f.write("\n")
