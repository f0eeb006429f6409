"""Prints texts in lines {"text": …}: those of the tokenizers' goldens, lines of files, and random ones.

usage: texts.py REPOSITORY
"""
import glob
import json
import random
import sys

repo = sys.argv[1]
texts = ["a</s> b", "</s>x  y"]
for name in glob.glob(repo + "/host/data/tokenizer/testdata/*.golden.json"):
    texts += [case["text"] for case in json.load(open(name, encoding="utf-8"))["cases"]]
for name in ("docs/guide/export.md", "host/deploy/export/gguf.go", "scripts/interop.sh"):
    texts += open(f"{repo}/{name}", encoding="utf-8").read().split("\n")
draw = random.Random(1)
for _ in range(2000):
    texts.append("".join(draw.choice("aeinst  ▁\n<>/s#é漢🦫.,(){}") for _ in range(draw.randrange(1, 60))))
for text in sorted(set(texts)):  # a data set has no empty texts and no zero bytes, and <s> begins a text
    if text.strip() and "\0" not in text and "<s>" not in text:
        print(json.dumps({"text": text}))
