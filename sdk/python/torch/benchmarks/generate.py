"""generate of transformers with a model that was quantized and converted, beside the model that never was.

    CAGE_PLUGIN_PATH=bin/plugins python sdk/python/torch/benchmarks/generate.py

Each round generates once with each model, one after the other. Times are those of the processor in one thread.
"""

from __future__ import annotations

import argparse
import statistics
import time

import cage_torch
import torch
import transformers


def model(width: int, layers: int) -> transformers.LlamaForCausalLM:
    torch.manual_seed(0)
    c = transformers.LlamaConfig(
        vocab_size=1000, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers, num_attention_heads=width // 64,
        num_key_value_heads=width // 64, max_position_embeddings=512, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(c).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--quantizer", default="quest")
    a = parser.parse_args()
    torch.set_num_threads(1)
    models = {"plain": model(a.width, a.layers), "converted": model(a.width, a.layers)}
    cage_torch.quantize_(models["converted"], a.quantizer)
    cage_torch.convert(models["converted"])
    prompt = torch.arange(16).reshape(1, -1)
    times: dict[str, list[float]] = {name: [] for name in models}
    for i in range(a.rounds + 1):
        for name, m in models.items():
            start = time.process_time()
            m.generate(prompt, max_new_tokens=a.tokens, do_sample=False)
            if i:  # the first round is slower
                times[name].append(time.process_time() - start)
    ratio = statistics.median(c / p for c, p in zip(times["converted"], times["plain"]))
    shortest = {name: min(own) for name, own in times.items()}
    print(f"Llama of {a.layers} layers of {a.width}, {a.tokens} tokens, {a.quantizer}, PyTorch {torch.__version__}")
    print(f"plain {shortest['plain']:.3f} s, converted {shortest['converted']:.3f} s: ratio of the shortest "
          f"{shortest['converted'] / shortest['plain']:.3f}, median of ratios {ratio:.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
