#!/usr/bin/env python3
"""Writes blocks.gguf and blocks.safetensors: tensors of random bytes, and what the package gguf makes of them.

    pip install gguf==0.19.0 safetensors==0.8.0 && python3 host/model/gguf/testdata/blocks.py
"""
import os

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T, GGUFWriter
from gguf.quants import dequantize
from safetensors.numpy import save_file

here = os.path.dirname(os.path.abspath(__file__))
random = np.random.default_rng(1)
writer = GGUFWriter(os.path.join(here, "blocks.gguf"), "llama")
want = {}
for t in (T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.TQ1_0, T.TQ2_0, T.MXFP4):
    elements, size = GGML_QUANT_SIZES[t]
    blocks = random.integers(0, 256, (4, 256 // elements, size), dtype=np.uint8)
    if t == T.MXFP4:
        blocks[0, 0, 0], blocks[0, 1, 0], blocks[1, 0, 0] = 0, 1, 250  # smallest scales, a large one
    else:  # halves of floats without the highest bit of the exponent are finite
        for high in {T.F32: [3], T.Q4_1: [1, 3], T.TQ1_0: [53], T.TQ2_0: [65]}.get(t, [1]):
            blocks[:, :, high] &= 0xBF
    data = blocks.reshape(4, -1)
    if t == T.F32:
        data = data.view(np.float32)
    elif t == T.F16:
        data = data.view(np.float16)
    want[t.name] = dequantize(data, t).astype(np.float32)
    assert np.isfinite(want[t.name]).all(), t
    writer.add_tensor(t.name, data, raw_dtype=t)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
save_file(want, os.path.join(here, "blocks.safetensors"))
