"""Reads an exported GGUF file with the package gguf, compares it with the floats of the same run, and lets llama.cpp use it.

usage: llama.py FILE.gguf FLOATS

FLOATS  the export of the same run to hf as f32: the weights Q(x) themselves

A file of floats must give transformers' logits in llama.cpp. With quantized weights llama.cpp rounds activations to
eight bits, so that only the weights are compared. Prints one line; the exit code is 1 when something differs.
"""
import os
import sys

import gguf
import llama_cpp
import numpy
import quiet  # before transformers
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

path, floats = sys.argv[1:]
reader = gguf.GGUFReader(path)
value = lambda key: reader.fields[key].contents() if key in reader.fields else None
arch = value("general.architecture")
heads = {"attn_q": value(f"{arch}.attention.head_count"), "attn_k": value(f"{arch}.attention.head_count_kv")}
names = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
         "ffn_norm": "post_attention_layernorm", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
outer = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}

want = load_file(os.path.join(floats, "model.safetensors"))
different, seen, types = [], set(), {}
for t in reader.tensors:
    parts = t.name.split(".")
    if parts[0] == "rope_freqs":
        continue
    name = outer.get(parts[0]) or f"model.layers.{parts[1]}.{names[parts[2]]}"
    got = numpy.asarray(gguf.quants.dequantize(t.data, t.tensor_type), dtype=numpy.float32).reshape(t.shape.tolist()[::-1])
    if arch in ("llama", "smollm3", "granite") and len(parts) > 2 and parts[2] in heads:  # pairs side by side: back to the two halves of a head
        got = got.reshape(heads[parts[2]], -1, 2, got.shape[1]).swapaxes(1, 2).reshape(got.shape)
    name += "." + parts[-1]
    seen.add(name)
    types[t.tensor_type.name] = types.get(t.tensor_type.name, 0) + 1
    if not numpy.array_equal(got, want[name]):
        different.append(t.name)
missing = sorted(set(want) - seen)
line = f"{path}: {arch}, {types}, " + ("equal bit for bit" if not different and not missing else f"different: {different}, missing: {missing}")
failed = bool(different or missing)

model = llama_cpp.Llama(model_path=path, n_ctx=value(f"{arch}.context_length"), logits_all=True, verbose=False, type_k=0, type_v=0)
text = b"func main() {\n\tfmt.Println(1)\n}"
ids = model.tokenize(text, add_bos=True)
back = model.detokenize(ids[1:])
if value("tokenizer.ggml.add_space_prefix"):
    back = back.removeprefix(b" ")
if back != text:
    failed, line = True, line + f", {text} comes back as {back}"
model.eval(ids)
got = numpy.array(model.scores[: len(ids)], dtype=numpy.float64)
with torch.no_grad():
    reference = AutoModelForCausalLM.from_pretrained(floats, dtype=torch.float32).eval()(torch.tensor([ids])).logits[0].double().numpy()
difference = numpy.abs(got - reference).max()
line += f", logits differ by {difference:.2g} of {numpy.abs(reference).max():.2g}"
failed |= set(types) == {"F32"} and difference > 1e-4
made = model.create_completion(text.decode(), max_tokens=16, temperature=0)
line += f", writes {made['usage']['completion_tokens']} tokens"
failed |= made["usage"]["completion_tokens"] < 1
print(line)
sys.exit(1 if failed else 0)
