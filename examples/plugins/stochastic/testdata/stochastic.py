# Writes stochastic.json: stochastic rounding in NumPy, float64, written from the paper and from the definition of random_bits
# (Threefry-2x32 with 20 rounds), without this repository's code.
import json
import numpy as np

M = np.uint64(0xFFFFFFFF)


def threefry(key, n):
    """First words for the counters (0, 0), (1, 0), …"""
    ks = [np.uint64(key[0]), np.uint64(key[1])]
    ks.append(np.uint64(0x1BD11BDA) ^ ks[0] ^ ks[1])
    x = (np.arange(n, dtype=np.uint64) + ks[0]) & M
    y = np.full(n, ks[1], dtype=np.uint64) & M
    for r in range(20):
        d = np.uint64((13, 15, 26, 6, 17, 29, 16, 24)[r % 8])
        x = (x + y) & M
        y = (((y << d) & M) | (y >> (np.uint64(32) - d))) ^ x
        if r % 4 == 3:
            i = r // 4 + 1
            x = (x + ks[i % 3]) & M
            y = (y + ks[(i + 1) % 3] + np.uint64(i)) & M
    return x


def case(name, bits, key, x):
    x = np.asarray(x, dtype=np.float64)
    top = 2 ** (bits - 1) - 1
    scale = np.abs(x).max(axis=1, keepdims=True) / top
    ratio = np.divide(x, scale, out=np.zeros_like(x), where=scale > 0)
    u = ((threefry(key, x.size) >> np.uint64(16)).astype(np.float64) + 0.5) / 65536
    codes = np.clip(np.floor(ratio + u.reshape(x.shape)), -top, top)
    near = np.rint(ratio)
    return {
        "id": name,
        "params": {"bits": bits},
        "inputs": {"x": x.tolist(), "noise": key},
        "expected": {
            "codes": codes.tolist(),
            "value": (codes * scale).tolist(),
            "evaluated_codes": near.tolist(),
            "evaluated": (near * scale).tolist(),
        },
    }


rng = np.random.default_rng(7)
cases = []
for bits in (2, 3, 4, 8):
    x = np.round(rng.normal(size=(3, 11)), 6)
    x[1] = 0
    cases.append(case(f"{bits} bits", bits, [int(k) for k in rng.integers(0, 2**32, 2)], x))
cases.append(case("on the grid", 4, [1, 2], [[7, -7, 3, 0, -1, 2, 5]]))
with open("stochastic.json", "w") as f:
    json.dump(
        {
            "format": 1,
            "name": "stochastic",
            "description": "Stochastic rounding by stochastic.py, NumPy " + np.__version__ + " in float64.",
            "tolerance": {"abs": 0.0, "rel": 1e-12},
            "cases": cases,
        },
        f,
        indent=1,
    )
    f.write("\n")
