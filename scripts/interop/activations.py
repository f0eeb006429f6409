"""Loads an export to compressed-tensors that quantizes activations, and compares its loss with cage's.

usage: activations.py DIR FLOATS --tokens FILE --loss NATS

DIR     an export with --activations
FLOATS  the export of the same run to hf as f32, in which activations stay as they are
--tokens, --loss  the validation set and what `cage eval` says of it

Weights are unpacked by compressed-tensors, all numbers are float32 then, and the inputs of layers are quantized as they
come. Sums in another order than cage's turn a few codes into their neighbours, so that the losses are not equal to the last
digit; they must be ten times as near to each other as the loss without quantized activations is. Prints one line; the exit
code is 1 when they are not.
"""
import argparse
import sys

import quiet  # before transformers
import torch
from transformers import AutoModelForCausalLM

from validation import losses

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("dir")
parser.add_argument("floats")
parser.add_argument("--tokens", required=True)
parser.add_argument("--loss", type=float, required=True)
args = parser.parse_args()


def load(path, dtype):
    return AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()


with torch.no_grad():
    model = load(args.dir, torch.float32)
    try:
        model(input_ids=torch.tensor([[0]]))  # unpacks the weights, four-bit floats as bfloat16
    except RuntimeError as fault:
        if "dtype" not in str(fault):
            raise
    loss = losses(torch.nn.Module.float(model), args.tokens)
    rounded = losses(load(args.dir, torch.bfloat16), args.tokens)
    floats = losses(load(args.floats, torch.float32), args.tokens)
    begin = torch.tensor([[model.config.bos_token_id]])
    made = model.generate(begin, max_new_tokens=16, do_sample=False, pad_token_id=0)
print(f"{args.dir}: loss {loss:.6f} beside {args.loss:.6f}, in bfloat16 {rounded:.6f}, without quantized activations {floats:.6f}, "
      f"writes {made.shape[1] - 1} tokens")
sys.exit(1 if abs(loss - args.loss) > abs(floats - args.loss) / 10 else 0)
