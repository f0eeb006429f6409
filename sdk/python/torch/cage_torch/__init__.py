"""Quantization-aware training in PyTorch with the plugins of cage.

    report = cage_torch.quantize_(model, "absmax", bits=4, granularity="group", group=32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    cage_torch.CAGE(optimizer, model, steps=1000)
    ...
    cage_torch.convert(model)

A quantizer or an optimizer is a program of its own, which answers with graphs of tensor operations for each shape
(docs/reference/plugin-protocol.md). This package asks it, differentiates its programs, and computes them with PyTorch.
"""

from . import optimizers
from .correction import CAGE
from .model import QuantizedLinear, Report, convert, full_precision, quantize_
from .plugins import PluginError
from .quantizer import Quantizer
from .saving import load_, save

__all__ = [
    "CAGE", "PluginError", "QuantizedLinear", "Quantizer", "Report", "convert", "full_precision", "load_", "optimizers", "quantize_",
    "save",
]  # fmt: skip
