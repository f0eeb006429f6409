# Writes kivi.json: asymmetric quantization of keys and values in NumPy, float64, as KIVI's published simulation does it
# (jy-yuan/KIVI, quant/new_pack.py, fake_quant: min, max, scale, round, back), written anew from equation 1 of the paper.
# A case is one sequence, with heads of 32 channels. Run it in its directory: python kivi.py
import json
import numpy as np


def group_of(x, bits):
    """Quantizes the numbers of a group together: codes and values."""
    low, high = x.min(), x.max()
    scale = (high - low) / (2**bits - 1)
    codes = np.rint((x - low) / scale) if scale > 0 else np.zeros_like(x)
    return codes, codes * scale + low


def case(name, role, x, dy, bits=2, group=32, keys_per="channel"):
    codes, value = np.zeros_like(x), np.zeros_like(x)
    tokens, channels = x.shape
    if role == "key" and keys_per == "channel":
        for c in range(channels):
            for t in range(0, tokens, group):
                at = (slice(t, t + group), c)
                codes[at], value[at] = group_of(x[at], bits)
    else:
        for t in range(tokens):
            for head in range(0, channels, 32):
                for c in range(head, head + 32, group):
                    at = (t, slice(c, min(c + group, head + 32)))
                    codes[at], value[at] = group_of(x[at], bits)
    return {
        "id": name,
        "role": role,
        "settings": {"bits": bits, "group": group, "keys_per": keys_per},
        "inputs": {"x": x.tolist(), "d.value": dy.tolist()},
        "expected": {"codes": codes.tolist(), "value": value.tolist(), "mask": np.ones(x.shape, bool).tolist(), "d.x": dy.tolist()},
    }


rng = np.random.default_rng(11)
cases = []
for role, tokens, channels, settings in (
    ("key", 64, 64, {}),
    ("key", 40, 32, dict(bits=4, group=16)),
    ("key", 5, 64, dict(bits=3)),
    ("key", 6, 64, dict(keys_per="token", group=16)),
    ("value", 6, 96, {}),
    ("value", 7, 64, dict(bits=4, group=16)),
    ("value", 3, 64, dict(bits=8, group=20)),
):
    x = np.round(rng.standard_normal((tokens, channels)) * np.where(np.arange(channels) % 13 == 0, 9, 1) + 0.3, 5)
    x = x.astype(np.float32).astype(np.float64)
    x[0] = 0.25
    dy = np.round(rng.standard_normal(x.shape), 3)
    cases.append(case(f"{role}s of {tokens} tokens and {channels} channels, {settings}", role, x, dy, **settings))
with open("kivi.json", "w") as f:
    json.dump(
        {
            "format": 1,
            "kind": "quantizer",
            "name": "kivi",
            "description": "Keys and values by kivi.py, NumPy " + np.__version__ + " in float64.",
            "tolerance": {"abs": 1e-12, "rel": 1e-12},
            "cases": cases,
        },
        f,
    )
    f.write("\n")
