"""Takes a model that was trained in Q4_0 through programs that quantize, and compares what they make of it with the trained weights.

usage: lattice.py CAGE RUN TOKENS [COUNT]

TOKENS  a token file of cage; its first COUNT tokens (default: 50000) are scored in windows of 128

The trained weights Q(W) are the export to hf in float32. The others begin with the GGUF file of cage's export, or with Q(W) in
bfloat16, as checkpoints are: llama.cpp's rule for Q4_0 (gguf.quants), mlx_lm.convert in 4 bits with groups of 32, and torchao's
QATConfig, prepared and converted, with int4 in groups of 32. Only the matrices that were trained in Q4_0 are replaced; PyTorch
computes the predictions of each model in float32. Prints a table: the share of weights that are equal, of weights within 0.1 % of
the largest of their group, of predictions with the same likeliest token, and the mean KL divergence from the trained model.
"""
import json
import os
import subprocess
import sys
import tempfile

import gguf
import mlx.core
import mlx_lm
import numpy
import quiet  # before transformers
import torch
from safetensors.torch import load_file
from torchao.quantization import IntxWeightOnlyConfig, quantize_
from torchao.quantization.granularity import PerGroup
from torchao.quantization.qat import QATConfig
from transformers import AutoModelForCausalLM

from tokenfile import windows

cage, run, tokens = sys.argv[1:4]
count = int(sys.argv[4]) if len(sys.argv) > 4 else 50000
work = tempfile.TemporaryDirectory()


def export(name, *flags):
    path = os.path.join(work.name, name)
    subprocess.run([cage, "export", run, "--out", path, *flags], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path


floats, short = export("floats", "--to", "hf"), export("bf16", "--to", "hf", "--dtype", "bf16", "--inexact")
with open(os.path.join(floats, "export.json")) as f:
    names = [t["name"] for t in json.load(f)["tensors"] if t["quantized"]]
pick = lambda tensors: {n: tensors[n].float() for n in names}
load = lambda path, dtype, **more: AutoModelForCausalLM.from_pretrained(path, dtype=dtype, **more)


def llama():
    t = gguf.GGMLQuantizationType.Q4_0
    requantized = lambda w: torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(w.float().numpy(), t), t))
    return {n: requantized(w) for n, w in pick(load_file(os.path.join(short, "model.safetensors"))).items()}


def apple():
    path = os.path.join(work.name, "mlx")
    matrix = lambda name, module: hasattr(module, "to_quantized") and "embed" not in name
    mlx_lm.convert(short, path, quantize=True, q_bits=4, q_group_size=32, quant_predicate=matrix)
    stored = mlx.core.load(os.path.join(path, "model.safetensors"))

    def value(name):
        part = lambda suffix: stored[name.removesuffix(".weight") + suffix]
        scales, biases = (part(s).astype(mlx.core.float32) for s in (".scales", ".biases"))
        return torch.from_numpy(numpy.array(mlx.core.dequantize(part(".weight"), scales, biases, group_size=32, bits=4)))

    return {n: value(n) for n in names}


def torchao():
    model, config = load(short, torch.bfloat16), IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32))
    layers = lambda module, name: isinstance(module, torch.nn.Linear) and name + ".weight" in names
    quantize_(model, QATConfig(config, step="prepare"), layers)
    quantize_(model, QATConfig(config, step="convert"))
    return {n: model.get_parameter(n).dequantize().float() for n in names}


trained = pick(load_file(os.path.join(floats, "model.safetensors")))
file = export("gguf", "--to", "gguf", "--type", "q4_0")
candidates = {
    "cage export --to gguf, Q4_0": pick(load(file, torch.float32, gguf_file="model.gguf").state_dict()),
    "bfloat16, llama.cpp's Q4_0": llama(), "bfloat16, mlx_lm.convert, 4 bits": apple(), "bfloat16, torchao's QAT convert, int4": torchao(),
}  # fmt: skip
model = load(floats, torch.float32).eval()
same, near, total = dict.fromkeys(candidates, 0), dict.fromkeys(candidates, 0), sum(w.numel() for w in trained.values())
for label, weights in candidates.items():
    for n, w in trained.items():
        same[label] += (weights[n] == w).sum().item()
        limit = w.unflatten(1, (-1, 32)).abs().amax(2).repeat_interleave(32, 1) / 1000
        near[label] += ((weights[n] - w).abs() <= limit).sum().item()

agree, divergence, scored = dict.fromkeys(candidates, 0), dict.fromkeys(candidates, 0.0), 0
with torch.no_grad():
    for batch in windows(tokens, 128, 4):
        if scored >= count:
            break
        ids = torch.tensor(batch[:, :-1])
        want = model(ids).logits.log_softmax(-1)
        for label, weights in candidates.items():
            got = want if same[label] == total else torch.func.functional_call(model, weights, (ids,)).logits.log_softmax(-1)
            agree[label] += (got.argmax(-1) == want.argmax(-1)).sum().item()
            divergence[label] += (want.exp() * (want - got)).sum().item()
        scored += ids.numel()
print(f"{total} weights in Q4_0, {scored} tokens\n")
print("| made by | weights equal | within 0.1 % | likeliest token | KL, nats per token |\n|---|---|---|---|---|")
for label in candidates:
    print(f"| {label} | {same[label] / total:.1%} | {near[label] / total:.1%} | {agree[label] / scored:.2%} | {divergence[label] / scored:.5f} |")
first = next(iter(candidates))
sys.exit(same[first] != total or agree[first] < 0.999 * scored)
