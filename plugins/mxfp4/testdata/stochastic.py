# Writes stochastic.json: MXFP4 with stochastic rounding and random signs in NumPy, float64, written from the OCP Microscaling
# specification 1.0, Tseng et al. 2025 (arXiv 2502.20586: ¾ of the range, and both operands with one rotation of random signs) and
# the definition of random_bits (Threefry-2x32 with 20 rounds), without this repository's code.
#
#     cd plugins/mxfp4/testdata && python3 stochastic.py
import json
import numpy as np

M = np.uint64(0xFFFFFFFF)
POSITIVE = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
LEVELS = np.array([-v for v in reversed(POSITIVE[1:])] + POSITIVE)


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


def hadamard(x, order):
    h = np.ones((1, 1))
    while len(h) < order:
        h = np.block([[h, h], [h, -h]])
    return (x.reshape(-1, order) @ (h / np.sqrt(order))).reshape(x.shape)


def exponent(largest):
    return np.floor(np.log2(largest)) - 2


def stochastic(r, u):
    """The level above r where u reaches the distance to it, else the one below."""
    r = np.clip(r, -6, 6)
    low = LEVELS[np.searchsorted(LEVELS, r, side="right") - 1]
    high = LEVELS[np.minimum(np.searchsorted(LEVELS, r, side="left"), len(LEVELS) - 1)]
    p = np.divide(r - low, high - low, out=np.zeros_like(r), where=high > low)
    assert np.all((np.abs(p - (1 - u)) > 1e-5) | (high == low)), "in float32 another level may be taken: change the seed"
    return np.where(u >= 1 - p, high, low)


def case(name, rule, rotation, key, shared, x):
    x = np.asarray(x, dtype=np.float64)
    rows, d = x.shape
    signs = np.ones(d)
    z = x
    if rotation:
        signs = (threefry(shared, d) >> np.uint64(31)).astype(np.float64) * 2 - 1
        z = hadamard(x * signs, rotation)
    v = z.reshape(rows, d // 32, 32)
    scale = 2.0 ** exponent(np.abs(v).max(axis=-1, keepdims=True))
    if rule == "absmax34":
        scale = scale / 0.75
    u = ((threefry(key, x.size) >> np.uint64(16)).astype(np.float64) + 0.5) / 65536
    p = stochastic(v / scale, u.reshape(v.shape))
    value = (p * scale).reshape(rows, d)
    if rotation:
        value = hadamard(value, rotation) * signs
    codes = np.array([POSITIVE.index(abs(e)) for e in p.ravel()]) + 8 * np.signbit(v.ravel())
    return {
        "id": name,
        "params": {"rule": rule, "rotation": str(rotation) if rotation else "none"},
        "inputs": {"x": x.tolist(), "noise": key, "shared": shared},
        "expected": {"codes": codes.reshape(rows, d).tolist(), "scale": scale.ravel().tolist(), "value": value.tolist()},
    }


rng = np.random.default_rng(11)


def keys():
    return [int(k) for k in rng.integers(0, 2**32, 2)]


cases = []
for rule in ("absmax34", "ocp"):
    for rotation in (0, 32, 64):
        x = np.round(rng.normal(size=(3, 64)), 6)
        x[1] *= 1e-5
        x[2, 5] *= 40
        cases.append(case(f"{rule}, rotation {rotation}", rule, rotation, keys(), keys(), x))
cases.append(case("levels", "ocp", 0, keys(), keys(), [LEVELS.tolist() + [0.0] + LEVELS.tolist() + [6.0]]))
with open("stochastic.json", "w") as f:
    json.dump(
        {
            "format": 1,
            "name": "stochastic",
            "description": "MXFP4 with stochastic rounding and random signs by stochastic.py, NumPy " + np.__version__ + " in float64.",
            "tolerance": {"abs": 1e-14, "rel": 1e-12},
            "cases": cases,
        },
        f,
        indent=1,
    )
    f.write("\n")
