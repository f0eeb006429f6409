"""Makes checkpoints of random numbers, and what transformers computes with them in float64: golden.json.

    python make.py qwen2 nemo      (torch, transformers 5)
"""

import json
import pathlib
import sys

import torch
import transformers

SIZES = dict(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2)
MODELS = {
    "qwen2": (transformers.Qwen2Config(**SIZES, tie_word_embeddings=True),
              "biases of queries, keys and values; config.json as transformers 5 writes it"),
    "smollm3": (transformers.SmolLM3Config(**dict(SIZES, num_hidden_layers=4), pad_token_id=None, tie_word_embeddings=True),
                "no positions in the fourth layer"),
    "gemma3": (transformers.Gemma3TextConfig(**dict(SIZES, num_hidden_layers=7), head_dim=24, query_pre_attn_scalar=24,
                                             pad_token_id=0, sliding_window=9),
               "norms before and after, gains of 1 + w, GELU, a scaled embedding, layers with a window and positions of their own"),
    "gemma": (transformers.GemmaConfig(**dict(SIZES, num_key_value_heads=1), head_dim=24, pad_token_id=0),
              "gains of 1 + w, GELU, a scaled embedding; one head of keys and values, as in Gemma 2B"),
    "gemma2": (transformers.Gemma2Config(**dict(SIZES, num_hidden_layers=3), head_dim=24, query_pre_attn_scalar=20,
                                         pad_token_id=0, sliding_window=7, attn_logit_softcapping=2.0, final_logit_softcapping=4.0),
               "as Gemma 3, without norms of queries and keys, with caps of scores and logits and a factor of scores"),
    "granite": (transformers.GraniteConfig(**SIZES, pad_token_id=0, tie_word_embeddings=True, embedding_multiplier=6.0,
                                           attention_multiplier=0.09, residual_multiplier=0.3, logits_scaling=0.7),
                "a Llama with factors"),
    "olmo3": (transformers.Olmo3Config(**dict(SIZES, num_hidden_layers=5), pad_token_id=None, sliding_window=7,
                                       rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)),
              "OLMo 2 with windows, and YaRN in the layers without"),
    "linear": (transformers.Qwen3Config(**SIZES, head_dim=16, rope_scaling=dict(rope_type="linear", factor=4.0)), "linear scaling"),
    "window": (transformers.MistralConfig(**SIZES, sliding_window=6), "a window of 6 tokens, as in Mistral 7B 0.1"),
    "ministral": (transformers.MinistralConfig(**dict(SIZES, num_hidden_layers=3), head_dim=16, sliding_window=128,
                                               layer_types=["full_attention", "sliding_attention", "sliding_attention"]),
                  "windows in some layers, in sequences too short for them"),
    "nemo": (transformers.MistralConfig(**SIZES, head_dim=24, sliding_window=None, rope_theta=1e6),
             "head_dim 24 with 4 heads of a width of 64, as in Mistral Nemo"),
}

for name in sys.argv[1:]:
    config, note = MODELS[name]
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            gain = "norm" in key and not name.startswith("gemma")  # whose gains are 1 + w
            p.normal_(1.0 if gain else 0.0, 0.5 if p.ndim == 1 else 0.15)
    out = pathlib.Path(__file__).parent / name
    model.save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
    model = model.double()
    ids = torch.randint(3, SIZES["vocab_size"], (1, 24))
    with torch.no_grad():
        logits = model(ids).logits[0]
        losses = torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:], reduction="none")
        prompt = ids[0, :7]
        greedy = prompt.clone()
        for _ in range(12):
            greedy = torch.cat([greedy, model(greedy[None]).logits[0, -1].argmax()[None]])
    positions = [0, 1, 2, 3, 4, 5, 22, 23]

    def numbers(x):
        return [float(f"{v:.9g}") for v in x.tolist()]

    golden = dict(format=1, name=name, note=note, tolerance=dict(abs=5e-5, rel=5e-5), input_ids=ids.tolist(),
                  logit_positions=positions, logits=[[numbers(logits[p]) for p in positions]],
                  token_losses=[numbers(losses)], loss=float(losses.mean()),
                  argmax=[logits.argmax(-1).tolist()], greedy_prompt=prompt.tolist(),
                  greedy=greedy[len(prompt):].tolist())
    (out / "golden.json").write_text(json.dumps(golden) + "\n")
