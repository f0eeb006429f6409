"""Asks an exported chat model with transformers, which knows nothing but the exported files, and compares its answers with cage's.

usage: chat.py DIR ANSWERS.jsonl [--gguf FILE]

DIR      an export to hf of a model that was trained on conversations
ANSWERS  what `cage chat` answered, in lines {"message": …, "answer": …}
--gguf   the export of the same run to GGUF, which llama.cpp is asked too

Every answer has to end by itself, at the token that ends a turn. Prints one line; the exit code is 1 when an answer differs
or goes on.
"""
import argparse
import json
import sys

import quiet  # before transformers
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("dir")
parser.add_argument("answers")
parser.add_argument("--gguf")
args = parser.parse_args()

LIMIT = 24
tokenizer = AutoTokenizer.from_pretrained(args.dir)
model = AutoModelForCausalLM.from_pretrained(args.dir, dtype=torch.float32).eval()


def transformers_says(message):
    messages = [{"role": "user", "content": message}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    made = model.generate(**prompt, max_new_tokens=LIMIT, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    return tokenizer.decode(made, skip_special_tokens=True), len(made) < LIMIT


asked = {"transformers": transformers_says}
if args.gguf:
    import llama_cpp

    llama = llama_cpp.Llama(model_path=args.gguf, n_ctx=0, verbose=False)

    def llama_says(message):
        made = llama.create_chat_completion([{"role": "user", "content": message}], max_tokens=LIMIT, temperature=0)["choices"][0]
        return made["message"]["content"], made["finish_reason"] == "stop"

    asked["llama.cpp"] = llama_says

answers = [json.loads(line) for line in open(args.answers, encoding="utf-8")]
line, failed = f"{args.dir}: {len(answers)} answers", len(answers) == 0
for name, says in asked.items():
    wrong = []
    for row in answers:
        text, ended = says(row["message"])
        if not ended or text != row["answer"]:
            wrong.append(f"{row['message']!r}: {text!r}" + ("" if ended else ", which does not end") + f"; cage says {row['answer']!r}")
    line += f", {name}: " + (f"{len(wrong)} are wrong, the first is {wrong[0]}" if wrong else "cage's, and all end by themselves")
    failed |= bool(wrong)
if args.gguf:
    llama.close()
print(line)
sys.exit(1 if failed else 0)
