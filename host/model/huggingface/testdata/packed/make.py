"""Writes directories with packed matrices, and what compressed-tensors 0.20 and MLX 0.32 decode them to.

python make.py  # in this directory, with compressed-tensors, mlx, safetensors and torch
"""

import json
import os

import mlx.core as mx
import numpy as np
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import save_file

torch.manual_seed(1)


def write(name, config, tensors, values):
    os.makedirs(name, exist_ok=True)
    with open(f"{name}/config.json", "w") as f:
        json.dump(config, f)
    save_file({k: v.contiguous() for k, v in tensors.items()}, f"{name}/model.safetensors")
    save_file({k: v.float().contiguous() for k, v in values.items()}, f"{name}/dequantized.safetensors")


def grid(args, rows, columns):
    """Scales in float32, so that nothing is rounded, and zero points."""
    shape = {"group": (rows, columns // (args.group_size or 1)), "channel": (rows, 1), "tensor": (1,)}.get(str(args.strategy))
    if str(args.strategy) == "block":
        height, width = args.block_structure
        shape = (-(-rows // height), -(-columns // width))
    scale = torch.rand(shape) * 0.1 + 0.01
    low, high = -(2 ** (args.num_bits - 1)), 2 ** (args.num_bits - 1) - 1
    zero = torch.randint(low, high, shape, dtype=torch.int8) if not args.symmetric else torch.zeros(shape, dtype=torch.int8)
    return scale, zero


groups, tensors, values = {}, {}, {}
for module, form, shape, kind in [
    ("int4", "pack-quantized", (5, 64), dict(num_bits=4, strategy="group", group_size=16)),
    ("int4.asymmetric", "pack-quantized", (12, 64), dict(num_bits=4, strategy="group", group_size=16, symmetric=False)),
    ("int3", "pack-quantized", (5, 40), dict(num_bits=3, strategy="channel")),
    ("int5.asymmetric", "pack-quantized", (13, 40), dict(num_bits=5, strategy="channel", symmetric=False)),
    ("int8.rows", "int-quantized", (5, 40), dict(num_bits=8, strategy="channel")),
    ("int8.asymmetric", "int-quantized", (5, 40), dict(num_bits=8, strategy="channel", symmetric=False)),
    ("int8.tensor", "naive-quantized", (5, 40), dict(num_bits=8, strategy="tensor")),
    ("fp8.rows", "float-quantized", (5, 40), dict(num_bits=8, type="float", strategy="channel")),
    ("fp8.blocks", "float-quantized", (20, 40), dict(num_bits=8, type="float", strategy="block", block_structure=[16, 16])),
]:
    args = QuantizationArgs(**kind)
    scheme = QuantizationScheme(targets=[module], weights=args, format=form)
    scale, zero = grid(args, *shape)
    state = {"weight": torch.randn(shape) * 0.3, "weight_scale": scale, "weight_zero_point": zero}
    compressor = BaseCompressor.get_value_from_registry(form)
    packed = compressor.compress(state, scheme)
    packed = {k: v for k, v in packed.items() if v is not None}
    tensors.update({f"{module}.{k}": v for k, v in packed.items()})
    values[f"{module}.weight"] = compressor.decompress(packed, scheme)["weight"]
    groups[module] = {"format": form, "targets": [module], "weights": json.loads(args.model_dump_json()), "input_activations": None}

# The order of activations: the group of each column is in g_idx.
args = QuantizationArgs(num_bits=4, strategy="group", group_size=16)
scheme = QuantizationScheme(targets=["ordered"], weights=args, format="pack-quantized")
scale, zero = grid(args, 6, 64)
order = torch.arange(64)[torch.randperm(64)] // 16
compressor = BaseCompressor.get_value_from_registry("pack-quantized")
sorted_state = {"weight": torch.randn(6, 64) * 0.3, "weight_scale": scale, "weight_zero_point": zero}
back = torch.argsort(torch.argsort(order, stable=True))
plain = compressor.decompress(compressor.compress(sorted_state, scheme), scheme)["weight"]
codes = torch.round(plain / scale.repeat_interleave(16, 1)).to(torch.int8)[:, back]
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32  # noqa: E402

tensors.update({
    "ordered.weight_packed": pack_to_int32(codes, 4), "ordered.weight_scale": scale,
    "ordered.weight_shape": torch.tensor([6, 64]), "ordered.weight_g_idx": order.to(torch.int32),
})
values["ordered.weight"] = plain[:, back]
groups["ordered"] = {"format": "pack-quantized", "targets": ["re:order.*"], "weights": json.loads(args.model_dump_json()) | {"actorder": "group"}}

# Zero points and scales as of a minmax observer.
args = QuantizationArgs(num_bits=4, strategy="group", group_size=16, symmetric=False, scale_dtype=torch.bfloat16)
scheme = QuantizationScheme(targets=["minmax"], weights=args, format="pack-quantized")
weight = torch.randn(13, 64) * torch.rand(13, 1) + 0.2
scale, zero = calculate_qparams(*torch.aminmax(weight.unflatten(1, (4, 16)), dim=2), args)
packed = compressor.compress({"weight": weight, "weight_scale": scale.bfloat16(), "weight_zero_point": zero}, scheme)
tensors.update({f"minmax.{k}": v for k, v in packed.items()})
packed["weight_scale"] = packed["weight_scale"].float()
values["minmax.weight"] = compressor.decompress(packed, scheme)["weight"]
groups["minmax"] = {"format": "pack-quantized", "targets": ["minmax"], "weights": json.loads(args.model_dump_json()), "input_activations": None}

write("compressed", {"quantization_config": {
    "config_groups": groups, "format": "mixed-precision", "quant_method": "compressed-tensors", "quantization_status": "compressed",
}}, tensors, values)  # fmt: skip

# FP8 of transformers and DeepSeek: a scale for each block, in weight_scale_inv.
x = (torch.randn(20, 40) * 50).to(torch.float8_e4m3fn)
scale = torch.rand(2, 3) * 0.1
whole = scale.repeat_interleave(16, 0)[:20].repeat_interleave(16, 1)[:, :40]
write("fp8", {"quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 16], "activation_scheme": "dynamic"}},
      {"a.weight": x, "a.weight_scale_inv": scale}, {"a.weight": x.float() * whole})

modules, tensors, values = {}, {}, {}
for module, group, bits, mode in [
    ("int3", 32, 3, "affine"), ("int5", 32, 5, "affine"), ("int6", 64, 6, "affine"), ("int8", 64, 8, "affine"),
    ("mxfp4", 32, 4, "mxfp4"), ("mxfp8", 32, 8, "mxfp8"), ("nvfp4", 16, 4, "nvfp4"),
]:
    parts = mx.quantize(mx.array(np.random.default_rng(bits).normal(size=(6, 128)).astype(np.float32)), group, bits, mode)
    for name, part in zip(("weight", "scales", "biases"), parts):
        tensors[f"{module}.{name}"] = torch.from_numpy(np.array(part))
    decoded = mx.dequantize(*parts, group_size=group, bits=bits, mode=mode, dtype=mx.float32) if mode != "affine" else mx.dequantize(*parts, group_size=group, bits=bits)
    values[f"{module}.weight"] = torch.from_numpy(np.array(decoded.astype(mx.float32)))
    modules[module] = {"group_size": group, "bits": bits, "mode": mode}
default = {"group_size": 64, "bits": 4}
write("mlx", {"quantization": default | modules, "quantization_config": default | modules}, tensors, values)
