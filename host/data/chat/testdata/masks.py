"""Writes masks.golden.json: random conversations with the ids and the masks that transformers
gives with the templates of masks/, whose generation blocks mark what is learned.

Made with transformers 5.24.0 and tokenizers 0.23.3: python masks.py [CASES [OUTPUT]]
"""

import glob
import json
import os
import random
import sys

import jinja2
from transformers import PreTrainedTokenizerFast

here = os.path.dirname(os.path.abspath(__file__))
tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(here, "llama32.tokenizer.json"))
rng = random.Random(58)

SAID = [
    "", "five", "five", "two plus three", "assistant", "<|im_start|>assistant\n", "<|im_end|>\n", "\n", " five \n",
    "\n\nfive", "user: five", "[INST] five [/INST]", "</s>", "ünï ✓ 五", "e\u0301", "<think>\nadd\n</think>\n\nfive",
    "<think>\n\n</think>\n\n", "</think>", "<|eot_id|>", "five " * 10, "def f():\n    return '🙂'",
]


def conversation():
    say = lambda role: {"role": role, "content": rng.choice(SAID)}
    talk = [say("system")] if rng.random() < 0.3 else []
    role = "user" if rng.random() < 0.75 else "assistant"
    for _ in range(rng.randint(1, 6)):
        talk.append(say(role))
        if rng.random() > 0.1:
            role = "user" if role == "assistant" else "assistant"
    return talk


def masked(template, talk):
    out = tokenizer.apply_chat_template(
        talk, chat_template=template, bos_token="<s>", eos_token="</s>",
        return_dict=True, return_assistant_tokens_mask=True,
    )
    return out["input_ids"], out["assistant_masks"]


wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 90
paths = sorted(glob.glob(os.path.join(here, "masks", "*.jinja")))
cases = []
while len(cases) < wanted:
    path = paths[len(cases) % len(paths)]
    source = open(path, encoding="utf-8").read().replace("strftime_now('%d %b %Y')", "'26 Jul 2024'")
    talk = conversation()
    try:
        ids, mask = masked(source, talk)
    except jinja2.exceptions.TemplateError:
        continue
    cases.append({
        "template": os.path.basename(path).removesuffix(".jinja"),
        "messages": talk,
        "input_ids": ids,
        "mask": "".join(map(str, mask)),
    })

output = sys.argv[2] if len(sys.argv) > 2 else os.path.join(here, "masks.golden.json")
with open(output, "w", encoding="utf-8") as file:
    file.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases) + "\n]\n")
