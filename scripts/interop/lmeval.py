"""Has lm-eval compute log-likelihoods with an exported model, and compares them with cage's.

usage: lmeval.py DIR SAMPLES.jsonl…

DIR      an export to hf
SAMPLES  what `cage eval --tasks` wrote about the same model: contexts, continuations and their log-likelihoods

lm-eval's model is opened as its command line opens it; where a context is empty, it needs the token that begins a
document. Prints one line; the exit code is 1 when something differs.
"""
import json
import sys

import quiet  # before transformers
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

directory, *samples = sys.argv[1:]
pairs, want = [("", "package strconv")], [None]
for path in samples:
    for line in open(path, encoding="utf-8"):
        row = json.loads(line)
        pairs += [(a["context"], a["continuation"]) for a in row["arguments"]]
        want += row["logprobs"]
model = HFLM(pretrained=directory, device="cpu", dtype="float32", batch_size=1)
requests = [Instance(request_type="loglikelihood", doc={}, arguments=pair, idx=i) for i, pair in enumerate(pairs)]
got = [value for value, greedy in model.loglikelihood(requests, disable_tqdm=True)]
difference = max(abs(g - w) for g, w in zip(got, want) if w is not None)
text = "package strconv\n"
whole = model.loglikelihood_rolling([Instance(request_type="loglikelihood_rolling", doc={}, arguments=(text,), idx=0)], disable_tqdm=True)
failed = difference > 1e-3 or len(pairs) < 20 or not whole[0] < 0 or not got[0] < 0
print(f"{directory}: lm-eval begins texts with {model.tokenizer.bos_token!r}, {len(pairs) - 1} log-likelihoods differ by up to {difference:.2g}")
sys.exit(1 if failed else 0)
