#!/usr/bin/env python3
"""Writes llamacpp.safetensors: random blocks of types that the package gguf does not have or reads
in another way, as "TYPE.data", and "TYPE.values", what llama.cpp itself makes of them.

    pip install numpy safetensors==0.8.0 xllamacpp==2026.10.11549 && python3 host/model/gguf/testdata/llamacpp.py
"""
import ctypes
import glob
import importlib.util
import os

import numpy as np
from safetensors.numpy import save_file

package = importlib.util.find_spec("xllamacpp").submodule_search_locations[0]
llama = ctypes.CDLL(glob.glob(os.path.join(package, "*.so"))[0])
random = np.random.default_rng(1)
tensors = {}
for name, elements, size in (("q2_0", 64, 18), ("nvfp4", 64, 36), ("q1_0", 128, 18), ("q5_0", 32, 22), ("q5_1", 32, 24)):
    data = random.integers(0, 256, (64, size), dtype=np.uint8)
    if name != "nvfp4":
        data[:, 1] &= 0xBF  # halves without the highest bit of the exponent are finite
        if name == "q5_1":
            data[:, 3] &= 0xBF
    else:
        data[:, :4] = np.arange(256).reshape(64, 4)  # every scale
    values = np.empty(data.shape[0] * elements, dtype=np.float32)
    getattr(llama, "dequantize_row_" + name)(data.ctypes.data_as(ctypes.c_void_p),
        values.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(values.size))
    assert np.isfinite(values).all(), name
    tensors[name.upper() + ".data"], tensors[name.upper() + ".values"] = data, values
save_file(tensors, os.path.join(os.path.dirname(os.path.abspath(__file__)), "llamacpp.safetensors"))
