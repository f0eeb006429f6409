"""Compares what `cage score` says of each token with what transformers says.

usage: scores.py DIR SCORES

DIR     an export to hf
SCORES  a file of `cage score --out`

Prints one line; the exit code is 1 when log-probabilities differ by more than rounding does.
"""
import json
import sys

import quiet  # before transformers
import torch
from transformers import AutoModelForCausalLM

directory, file = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
largest, count = 0.0, 0
for line in open(file):
    ids, got = (torch.tensor(json.loads(line)[key]) for key in ("ids", "log_probs"))
    with torch.no_grad():
        logits = model(ids[None, :-1]).logits[0]
    want = logits.log_softmax(-1).gather(1, ids[1:, None])[:, 0]
    largest, count = max(largest, (got - want).abs().max().item()), count + len(got)
print(f"{directory}: log-probabilities of {count} tokens differ by at most {largest:.2g}")
# Float32 numbers between 8 and 16, as some logits and log-probabilities are, lie 1e-6 apart.
sys.exit(not 0 < count or not largest < 2e-5)
