"""Compares two exports of one model in llama.cpp, as the wheel xllamacpp has it: types that are newer than
llama-cpp-python are run by it alone.

usage: xllama.py QUANTIZED.gguf FLOATS.gguf

llama.cpp rounds activations to eight bits where weights are quantized: the likeliest token must be the same in nine of ten
prompts, and the log-probabilities of likely tokens within 0.2. Prints one line; the exit code is 1 when something differs.
"""
import json
import random
import sys

import xllamacpp


def likely(path, prompts):
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup = path, 64, 1, False
    server = xllamacpp.Server(params)
    for ids in prompts:
        answer = server.handle_completions({"prompt": ids, "n_predict": 1, "temperature": 0, "n_probs": 20, "cache_prompt": False})
        answer = json.loads(answer) if isinstance(answer, (str, bytes)) else answer
        tokens = answer.get("completion_probabilities") or answer["choices"][0]["logprobs"]["content"]
        yield {t["id"]: t["logprob"] for t in tokens[0]["top_logprobs"]}


random.seed(1)
prompts = [[random.randrange(32, 127) for _ in range(n)] for n in (2, 5, 17, 40, 60) for _ in range(6)]
same, largest = 0, 0.0
for got, want in zip(likely(sys.argv[1], prompts), list(likely(sys.argv[2], prompts))):
    if None in got.values():
        sys.exit(f"{sys.argv[1]}: llama.cpp computes NaN")
    same += max(got, key=got.get) == max(want, key=want.get)
    largest = max([largest] + [abs(got[t] - want[t]) for t in got if t in want])
print(f"{sys.argv[1]}: {same} of {len(prompts)} likeliest tokens, log-probabilities within {largest:.2g}")
sys.exit(same < 0.9 * len(prompts) or largest > 0.2)
