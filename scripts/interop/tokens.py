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

path, texts, dataset = sys.argv[1:]
parts = []
for name in ("train.tokens", "val.tokens"):
    tokens = os.path.join(dataset, name)
    header = json.loads(open(tokens, "rb").read()[16:4096].rstrip(b"\0"))
    parts.append(numpy.fromfile(tokens, dtype="<u2" if header["token_bytes"] == 2 else "<u4", offset=4096))
ids = numpy.concatenate(parts)
model = llama_cpp.Llama(model_path=path, vocab_only=True, verbose=False)
bos, eos = model.token_bos(), model.token_eos()
starts = [*numpy.flatnonzero(ids == bos), len(ids)]
want = {tuple(ids[a:b].tolist()) for a, b in zip(starts, starts[1:])}
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
