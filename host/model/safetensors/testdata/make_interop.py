#!/usr/bin/env python3
"""Writes and checks files that the Python package `safetensors` and this one exchange.

    pip install safetensors numpy ml_dtypes
    python3 make_interop.py                 # writes python.safetensors beside this script
    python3 make_interop.py check FILE      # reads a file that the Go package wrote

python.safetensors holds one tensor of each element type, an empty one, a single
number and a metadata entry with text beyond ASCII. go.safetensors, which the
tests compare with what the Go package writes, has passed `check`.
"""

import os
import sys

import ml_dtypes
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

HERE = os.path.dirname(os.path.abspath(__file__))

TENSORS = {
    "f32": np.array([[0.5, -1.25, np.inf], [np.nan, -0.0, 3e-45]], np.float32),
    "f64": np.array([np.pi, -1e300], np.float64),
    "i32": np.array([-2**31, 2**31 - 1, 7], np.int32),
    "u32": np.array([0, 2**32 - 1], np.uint32),
    "i64": np.array([-2**63, 2**63 - 1], np.int64),
    "u8": np.arange(5, dtype=np.uint8).reshape(5, 1),
    "bf16": np.array([1.0, -2.5], ml_dtypes.bfloat16),
    "scalar": np.array(42, np.int64),
    "empty": np.zeros((0, 3), np.float32),
}
METADATA = {"step": "100", "note": "λ_t = 0.5 \"quoted\""}


def check(path):
    with safe_open(path, framework="np") as f:
        metadata = f.metadata()
        for key, value in METADATA.items():
            assert metadata[key] == value, (key, metadata)
        assert set(f.keys()) == set(TENSORS), f.keys()
        for name, want in TENSORS.items():
            got = f.get_tensor(name)
            assert got.dtype == want.dtype and got.shape == want.shape, name
            assert got.tobytes() == want.tobytes(), name
    print("ok:", path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["check"]:
        check(sys.argv[2])
    else:
        save_file(TENSORS, os.path.join(HERE, "python.safetensors"), METADATA)
        check(os.path.join(HERE, "python.safetensors"))
