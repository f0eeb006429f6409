"""Unpacks and packs an export with zero points by compressed-tensors, because transformers 5.23 does not load such a directory.

usage: zeropoints.py DIR FLOATS

FLOATS  the export of the same run to hf as f32

Prints one line; the exit code is 1 when a matrix has other values than in FLOATS, or is packed as other bytes.
"""
import json
import os
import sys

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import load_file

tensors, want = (load_file(os.path.join(d, "model.safetensors")) for d in sys.argv[1:])
with open(os.path.join(sys.argv[1], "config.json")) as f:
    group = json.load(f)["quantization_config"]["config_groups"]["group_0"]
scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**group["weights"]), format=group["format"])
compressor = BaseCompressor.get_value_from_registry(group["format"])
modules, different = [k.removesuffix("_packed") for k in tensors if k.endswith("_packed")], []
for m in modules:
    parts = {p: tensors[m.removesuffix("weight") + p] for p in ("weight_packed", "weight_scale", "weight_shape", "weight_zero_point")}
    floats = compressor.decompress(parts, scheme)
    again = compressor.compress({**floats, "weight_scale": parts["weight_scale"]}, scheme)
    if not torch.equal(floats["weight"], want[m]) or not all(torch.equal(again[p], parts[p]) for p in ("weight_packed", "weight_zero_point")):
        different.append(m)
print(f"{sys.argv[1]}: {len(modules)} matrices with zero points, different: {different}")
sys.exit(bool(different) or not modules)
