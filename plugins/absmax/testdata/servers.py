# Writes servers.json: what the programs that serve a type make of blocks of numbers, in float32.
#
#	pip install xllamacpp==2026.10.11549 gguf==0.19.0 mlx[cpu]==0.32.4 compressed-tensors==0.20.0 torch==2.15.0
#	python servers.py
#
# GGUF's types are quantized and read by llama.cpp's own functions, which xllamacpp contains, and compared with those of the
# package gguf where it has the type. MLX's scales and biases are those of mx.quantize for numbers in half precision, and the numbers
# are scale·code + bias in float32. Those of compressed-tensors are calculate_qparams and fake_quantize, with the minimum and
# maximum of each group, as of its MinMax observer.
import ctypes
import glob
import json
import os

import gguf
import mlx.core as mx
import numpy as np
import torch
import xllamacpp
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import fake_quantize
from compressed_tensors.quantization.utils import calculate_qparams

lib = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(xllamacpp.__file__), "*.so"))[0])
random = np.random.default_rng(7)


def blocks(size, levels, short):
    """Blocks of numbers of each kind. levels is the number of steps from the least to the largest; short rounds to the type of scales."""
    normal = lambda: random.normal(size=size)
    steps = random.integers(-levels, levels + 1, size) / 2  # levels and ties
    steps[:2] = levels / 2, -levels / 2
    one = np.zeros(size)
    one[size // 3] = -0.3
    list = [normal(), normal(), 0 * normal(), steps, -0.75 * steps[::-1], 3 * normal() ** 5]
    list += [normal() * 10.0 ** random.uniform(-4, 4, size), np.full(size, 0.3), np.full(size, -1.7)]
    list += [1 + normal() / 100, -1 + normal() / 100, np.abs(normal()), -np.abs(normal()), one, -one]
    list += [2e4 * np.tanh(normal()), normal() * 1e-3, normal() * 3e-6, normal() * 1e-7, normal() * 1e-9, normal() * 1e-30]
    if size > 64:
        list = list[1:8] + list[-6:]
    return short(np.array(list, np.float32)).reshape(-1, size)


def llama(name, bits, size, settings):
    elements, length = (64, 18) if name == "q2_0" else gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name.upper()]]
    x = blocks(size, 2**bits - 1, lambda v: v)
    data, value = np.zeros(x.size // elements * length, np.uint8), np.zeros_like(x)
    pointer = lambda a: a.ctypes.data_as(ctypes.c_void_p)
    getattr(lib, f"quantize_row_{name}_ref")(pointer(x), pointer(data), ctypes.c_int64(x.size))
    getattr(lib, f"dequantize_row_{name}")(pointer(data), pointer(value), ctypes.c_int64(x.size))
    if name not in ("q1_0", "q2_0"):
        t = gguf.GGMLQuantizationType[name.upper()]
        assert (gguf.quants.dequantize(gguf.quants.quantize(x, t), t) == value).all(), name  # codes differ where the scale is 0
    return case(name.upper(), {**settings, "bits": bits, "granularity": "group", "group": size, "scale_dtype": "f16"}, x, value)


def tensors(symmetric, bits, dtype, settings):
    size = 32
    x = blocks(size, 2**bits - 1, lambda v: v)
    w, args = torch.from_numpy(x), QuantizationArgs(num_bits=bits, symmetric=symmetric, strategy="channel", scale_dtype=dtype)
    scale, zero = calculate_qparams(w.amin(1, True), w.amax(1, True), args)
    value = fake_quantize(w, scale, None if symmetric else zero, args).numpy()
    name = {None: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}[dtype]
    settings = {**settings, "bits": bits, "granularity": "group", "group": size, "scale_dtype": name}
    return case(f"compressed-tensors, int{bits}, {'' if symmetric else 'a'}symmetric, {name}", settings, x, value)


def apple(bits, size, dtype, settings):
    short = lambda v: np.array(mx.array(v).astype(dtype).astype(mx.float32))
    x = blocks(size, 2**bits - 1, short)
    codes, scales, biases = mx.quantize(mx.array(x).astype(dtype), group_size=size, bits=bits)
    value = np.array(mx.dequantize(codes, scales.astype(mx.float32), biases.astype(mx.float32), group_size=size, bits=bits))
    name = {mx.float16: "f16", mx.bfloat16: "bf16"}[dtype]
    return case(f"MLX, {bits} bits, {name}", {**settings, "bits": bits, "granularity": "group", "group": size, "scale_dtype": name}, x, value)


def case(name, settings, x, value):
    assert np.isfinite(value).all(), name
    rows = lambda a: [[float(f"{v:.9g}") for v in row] for row in a.astype(np.float32).tolist()]
    return {"id": name, "params": settings, "inputs": {"x": rows(x)}, "expected": {"value": rows(value)}}


away, least, mlx, zero = {"rounding": "llama.cpp"}, {"grid": "minimum"}, {"grid": "mlx"}, {"grid": "asymmetric"}
cases = [
    llama("q8_0", 8, 32, away), llama("q4_0", 4, 32, {"grid": "signed"}), llama("q5_0", 5, 32, {"grid": "signed"}),
    llama("tq2_0", 2, 256, away), llama("q2_0", 2, 64, away), llama("q1_0", 1, 128, {"grid": "sign"}),
    llama("q4_1", 4, 32, least), llama("q5_1", 5, 32, least),
    apple(4, 32, mx.float16, mlx), apple(4, 64, mx.bfloat16, mlx), apple(2, 32, mx.float16, mlx), apple(8, 32, mx.float16, mlx),
    tensors(True, 4, None, {"grid": "full"}), tensors(True, 4, torch.bfloat16, {"grid": "full"}), tensors(True, 8, None, {"grid": "full"}),
    tensors(False, 4, None, zero), tensors(False, 4, torch.bfloat16, zero), tensors(False, 4, torch.float16, zero),
    tensors(False, 8, torch.bfloat16, zero), tensors(False, 3, None, zero),
]
text = ",\n".join(json.dumps(c) for c in cases)
head = {"format": 1, "name": "servers", "description": "Written by servers.py", "tolerance": {"abs": 0, "rel": 0}}
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "servers.json"), "w") as f:
    f.write(json.dumps(head)[:-1] + ', "cases": [\n' + text + "\n]}\n")
