# Writes flash.json, for moments of 8 bits:
#
#	pip install torch numpy flashoptim==0.1.4
#	TRITON_INTERPRET=1 python flash.py
#
# The case "moments" has codes, scales and values of the authors' functions, which Triton's interpreter executes on the CPU. The
# others are updates in NumPy, in float64: their code cannot be run whole without a GPU, and rounds scales to float16. No second moment but
# zeros has a code of 0, and no code is half way between two.
import json
import pathlib

import numpy as np
import torch
from flashoptim import optimizers as authors

GROUP = 32
for kernel in (authors._triton_quantize_kernel, authors._triton_dequantize_kernel):
    kernel.configs = kernel.configs[:1]  # nothing is timed
authors._get_sm_count = lambda *_: 1

r = np.random.default_rng(32)


def spread(*shape):
    """Numbers whose magnitudes lie within two decades, as float16 has them."""
    return (r.standard_normal(shape) * np.exp(r.standard_normal(shape))).astype(np.float16).astype(np.float64)


def moments():
    """The largest of a group is a number of float16, so that the scale is, too. The second moment is a square."""
    m, root = spread(2, 64), np.abs(spread(2, 64)) + 0.05
    root = root.astype(np.float16).astype(np.float64)
    m[1, :32], root[1, :32] = 0, 0
    out = {}
    for name, x, signed in (("m", m, True), ("v", root**2, False)):
        text = dict(signed=signed, sqrt=not signed, softsign=signed)
        codes, scales = authors.quantize(torch.tensor(x, dtype=torch.float32), **text)
        back = authors.dequantize(codes, scales, **text)
        out |= {name: codes.double().tolist(), name + "_scale": scales.double().reshape(2, 2).tolist(), name + "_back": back.double().tolist()}
    for name in ("m_scale", "v_scale"):
        out[name][1][0] = 1e-30  # of zeros: the authors' 1e-12 is 0 in float16
    return {"id": "moments", "inputs": {"m": m.tolist(), "v": (root**2).tolist()}, "expected": out}


def quantized(x, largest, bend):
    """Codes and scales of a row's groups, and what they stand for."""
    x = x.reshape(-1, GROUP)
    scale = np.maximum(np.abs(x).max(axis=1, keepdims=True), 1e-30)
    z = x / scale
    exact = largest * (2 * z / (1 + np.abs(z)) if bend else z)
    assert np.abs(exact - np.floor(exact) - 0.5).min() > 1e-6, "a code half way between two"
    code = np.round(exact)
    assert bend or ((code > 0) | (x == 0)).all(), "a second moment without a code"
    y = code / largest
    return (y / (2 - np.abs(y)) if bend else y) * scale


def updates(name, shape, params, steps=8):
    b1, b2, eps = params.get("beta1", 0.9), params.get("beta2", 0.95), params.get("eps", 1e-8)
    x0 = r.standard_normal(shape).round(6)
    grads = spread(steps, *shape)
    grads = (np.exp(r.standard_normal((steps, 1, 1))) * (grads + 0.05 * np.sign(grads))).round(6)
    rates = [0.05 * (1 - i / (2 * steps)) for i in range(steps)]
    x, m, v, path = x0.copy(), np.zeros(shape), np.zeros(shape), []
    for t, (g, rate) in enumerate(zip(grads, rates), 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        x = x - rate * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        path.append(x.tolist())
        m, v = quantized(m, 127, True).reshape(shape), quantized(np.sqrt(v), 255, False).reshape(shape) ** 2
    return {"id": name, "params": params | {"moments": "int8"}, "expected": {"x": path},
            "inputs": {"x0": x0.tolist(), "grads": grads.tolist(), "rates": rates}}


cases = [moments(), updates("groups", (2, 64), {}), updates("slow", (3, 32), {"beta1": 0.95, "beta2": 0.999, "eps": 1e-3})]
text = {"format": 1, "name": "flash", "tolerance": {"abs": 1e-7, "rel": 1e-6}, "cases": cases,
        "description": f"Moments of 8 bits: flashoptim 0.1.4 with PyTorch {torch.__version__}, and NumPy {np.__version__}, by flash.py."}
pathlib.Path(__file__).with_name("flash.json").write_text(json.dumps(text) + "\n")
