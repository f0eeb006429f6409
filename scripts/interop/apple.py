"""Loads an export to mlx with Apple's mlx-lm and compares it with the floats of the same run.

usage: apple.py DIR FLOATS --tokens FILE --loss NATS

DIR     an export to mlx
FLOATS  the export of the same run to hf as f32: the weights Q(x) themselves
--tokens, --loss  the validation set and what `cage eval` says of it: MLX's loss has to be the same

Prints one line; the exit code is 1 when something differs.
"""
import argparse
import os
import sys

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm import load
from mlx_lm.generate import generate_step

from tokenfile import windows

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("dir")
parser.add_argument("floats")
parser.add_argument("--tokens", required=True)
parser.add_argument("--loss", type=float, required=True)
args = parser.parse_args()

model, tokenizer, config = load(args.dir, return_config=True)
modules = dict(model.named_modules())
parameters = dict(tree_flatten(model.parameters()))
different, packed = [], {}
want = mx.load(os.path.join(args.floats, "model.safetensors"))
for name, value in want.items():
    m = modules[name.rpartition(".")[0]]
    if not isinstance(m, (nn.QuantizedLinear, nn.QuantizedEmbedding)) or not name.endswith(".weight"):
        if not mx.array_equal(parameters[name], value):
            different.append(name)
        continue
    layout = {"group_size": m.group_size, "bits": m.bits, "mode": m.mode}
    stored = (m.weight, m.scales, m.get("biases"))
    products = mx.quantized_matmul(mx.eye(value.shape[1]), *stored, **layout).T
    unpacked = mx.dequantize(*stored, **layout).astype(mx.float32)
    if not mx.array_equal(products, value) or not mx.array_equal(unpacked, value):
        different.append(name)
    kind = f"{m.mode} of {m.bits} bits in groups of {m.group_size}"
    packed[kind] = packed.get(kind, 0) + 1
line = f"{args.dir}: " + ", ".join(f"{n} {kind}" for kind, n in packed.items()) + f", {len(want)} tensors, "
line += "equal bit for bit" if not different else f"different: {different}"
total = count = 0
for batch in windows(args.tokens, config["max_position_embeddings"], 64):
    batch = mx.array(batch)
    logits = model(batch[:, :-1])
    total += nn.losses.cross_entropy(logits.astype(mx.float32), batch[:, 1:], reduction="sum").item()
    count += batch[:, 1:].size
loss = total / count
text = "func main() {\n\tfmt.Println(\"naïve\")\n}"
back = tokenizer.decode(tokenizer.encode(text, add_special_tokens=False))
made = [token for token, _ in generate_step(mx.array([0]), model, max_tokens=16)]
print(f"{line}, loss {loss:.6f} beside {args.loss:.6f} ({logits.dtype}), writes {len(made)} tokens")
sys.exit(bool(different) or not packed or abs(loss - args.loss) > 1e-4 or back != text)
