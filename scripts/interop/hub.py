"""Loads an exported directory with transformers and compares it with the floats of the same run.

usage: hub.py DIR FLOATS [--tokens FILE --loss NATS]

DIR     an export to hf or compressed-tensors
FLOATS  the export of the same run to hf as f32: the weights Q(x) themselves
--tokens, --loss  the validation set and what `cage eval` says of it: transformers' loss has to be the same

Prints one line; the exit code is 1 when something differs.
"""
import argparse
import json
import os
import sys

import quiet  # before transformers
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, CompressedTensorsConfig

from validation import losses

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("dir")
parser.add_argument("floats")
parser.add_argument("--tokens")
parser.add_argument("--loss", type=float)
args = parser.parse_args()


def load(path):
    config = json.load(open(os.path.join(path, "config.json")))
    options = {}
    layout = config.get("quantization_config", {}).get("format", "")
    if "fp4" in layout:  # else compressed-tensors computes in bfloat16, whatever the rest is
        options["quantization_config"] = CompressedTensorsConfig(dequantize=True)
    model, info = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, output_loading_info=True, **options)
    wrong = {key: sorted(map(str, info[key])) for key in ("missing_keys", "unexpected_keys", "mismatched_keys") if info.get(key)}
    if "quantization_config" in options:  # which leaves the inputs unquantized: see inputs.py
        wrong = {key: names for key, names in wrong.items() if not all(n.endswith("input_global_scale") for n in names)}
    return model.eval(), wrong, layout


model, wrong, layout = load(args.dir)
want = load_file(os.path.join(args.floats, "model.safetensors"))
with torch.no_grad():
    model(input_ids=torch.tensor([[0]]))  # unpacks integers
have = dict(model.named_parameters())
different, largest = [], 0.0
for name, value in want.items():
    got = have[name].detach().float()
    # NVFP4 is bfloat16 after loading; of MXFP4 that holds every number.
    expected = value.to(torch.bfloat16).float() if "nvfp4" in layout and name.endswith("_proj.weight") else value
    if not torch.equal(got, expected):
        different.append(name)
        largest = max(largest, (got - expected).abs().max().item())
line = f"{args.dir}: {layout or 'floats'}, {len(want)} tensors, " + ("equal bit for bit" if not different else f"{len(different)} differ by up to {largest:.3g}")
failed = bool(wrong or different)
if wrong:
    line += f", {wrong}"
tokenizer = AutoTokenizer.from_pretrained(args.dir)
text = "func main() {\n\tfmt.Println(\"naïve\")\n}"
if tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) != text:
    failed, line = True, line + ", the tokenizer does not give the text back"
with torch.no_grad():
    if args.tokens:
        loss = losses(model, args.tokens)
        line += f", loss {loss:.6f} beside {args.loss:.6f}"
        failed |= abs(loss - args.loss) > 1e-4
    begin = torch.tensor([[model.config.bos_token_id]])
    made = model.generate(begin, max_new_tokens=16, do_sample=False, pad_token_id=0)
    line += f", writes {made.shape[1] - 1} tokens"
print(line)
sys.exit(1 if failed else 0)
