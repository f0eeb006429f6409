"""Compares the ids that llama.cpp finds in texts with those that cage found.

usage: tokens.py FILE.gguf TEXTS.jsonl DATASET

TEXTS   the texts, in lines {"text": …}
DATASET what `cage data prepare` made of them: its texts are in another order

Prints one line; the exit code is 1 when the ids of a text differ.
"""
import json
import os
import sys

import llama_cpp
import numpy

from tokenfile import ids

path, texts, dataset = sys.argv[1:]
known = numpy.concatenate([ids(os.path.join(dataset, name)) for name in ("train.tokens", "val.tokens")])
model = llama_cpp.Llama(model_path=path, vocab_only=True, verbose=False)
bos, eos = model.token_bos(), model.token_eos()
starts = [*numpy.flatnonzero(known == bos), len(known)]
want = {tuple(known[a:b].tolist()) for a, b in zip(starts, starts[1:])}
different, count, total = [], 0, 0
for line in open(texts, encoding="utf-8"):
    text = json.loads(line)["text"]
    got = (*model.tokenize(text.encode(), add_bos=True, special=True), eos)
    count, total = count + 1, total + len(got)
    if got not in want:
        different.append(text)
line = f"{path}: {count} texts, {total} ids, "
line += "equal to cage's" if not different else f"{len(different)} have other ids, the first is {different[0]!r}"
print(line)
sys.exit(1 if different or count < 100 else 0)
