"""Loads an export to compressed-tensors whose activations are quantized, with transformers in bfloat16, and compares the loss
with that of `cage eval`.

usage: inputs.py DIR TOKENS LOSS

Prints one line; the exit code is 1 when the inputs of a layer are not quantized or the losses differ by more than 0.003.
"""
import sys

import quiet  # before transformers
import torch
from transformers import AutoModelForCausalLM

from validation import losses

path, tokens, want = sys.argv[1], sys.argv[2], float(sys.argv[3])
model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval()
with torch.no_grad():
    loss = losses(model, tokens)
layers = [m for name, m in model.named_modules() if name.endswith("_proj")]
quantized = sum(m.quantization_scheme.input_activations is not None for m in layers)
print(f"{path}: the inputs of {quantized} of {len(layers)} layers are quantized, loss {loss:.4f} beside {want:.4f}")
sys.exit(quantized < len(layers) or abs(loss - want) > 3e-3)
