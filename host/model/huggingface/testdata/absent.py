"""Writes absent.json: what transformers makes of config.json without each key, or with null.

Needs transformers 5.23 and torch: python absent.py > absent.json
"""
import copy, json, logging, sys, warnings

import torch, transformers
from transformers import AutoConfig, AutoModelForCausalLM

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

# No value is a default, so that a missing one changes something.
COMMON = {"hidden_size": 128, "num_hidden_layers": 8, "num_attention_heads": 32,
    "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 96, "vocab_size": 400,
    "rms_norm_eps": 0.001, "max_position_embeddings": 64, "attention_dropout": 0.0,
    "attention_bias": False, "mlp_bias": False, "initializer_range": 0.05,
    "bos_token_id": 3, "eos_token_id": 4, "pad_token_id": 5, "use_cache": True}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 3.0,
    "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
    "beta_fast": 8.0, "beta_slow": 2.0}
LINEAR = {"rope_type": "linear", "factor": 4.0}
THETA, LOCAL = 777.0, 10000.0

def layers(period, n=8):
    return ["full_attention" if (i + 1) % period == 0 else "sliding_attention" for i in range(n)]

GEMMA = {"query_pre_attn_scalar": 9, "sliding_window": 24, "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": False, "use_bidirectional_attention": False}
SILU = {"hidden_act": "silu", "tie_word_embeddings": True}
QWEN = {**SILU, "use_sliding_window": False, "sliding_window": 24, "max_window_layers": 8}
FAMILIES = {
    "LlamaForCausalLM": ("llama", SILU, LLAMA3),
    "MistralForCausalLM": ("mistral", {**SILU, "sliding_window": 24}, YARN),
    "MinistralForCausalLM": ("ministral", {**SILU, "sliding_window": 24,
        "layer_types": ["sliding_attention"] * 8}, LLAMA3),
    "GraniteForCausalLM": ("granite", {**SILU, "embedding_multiplier": 3.0,
        "logits_scaling": 2.0, "residual_multiplier": 0.5, "attention_multiplier": 0.25}, LINEAR),
    "SmolLM3ForCausalLM": ("smollm3", {**QWEN, "tie_word_embeddings": False,
        "no_rope_layers": [1, 1, 1, 0] * 2, "no_rope_layer_interval": 4,
        "layer_types": ["full_attention"] * 8}, YARN),
    "Olmo2ForCausalLM": ("olmo2", SILU, LLAMA3),
    "Olmo3ForCausalLM": ("olmo3", {**SILU, "sliding_window": 24, "layer_types": layers(4)}, YARN),
    "Qwen2ForCausalLM": ("qwen2", {**QWEN, "layer_types": ["full_attention"] * 8}, YARN),
    "Qwen3ForCausalLM": ("qwen3", {**QWEN, "layer_types": ["full_attention"] * 8}, LINEAR),
    "GemmaForCausalLM": ("gemma", {"hidden_act": "gelu", "hidden_activation": None,
        "tie_word_embeddings": False, "use_bidirectional_attention": False}, LINEAR),
    "Gemma2ForCausalLM": ("gemma2", {**GEMMA, "attn_logit_softcapping": 7.0,
        "final_logit_softcapping": 5.0, "layer_types": layers(2)}, LINEAR),
    "Gemma3ForCausalLM": ("gemma3_text", {**GEMMA, "attn_logit_softcapping": None,
        "final_logit_softcapping": None, "layer_types": layers(6)}, LINEAR),
}

def base(architecture, notation):
    kind, own, scaling = FAMILIES[architecture]
    c = {"architectures": [architecture], "model_type": kind, **COMMON, **own}
    if notation == 4:
        c["rope_theta"], c["rope_scaling"] = THETA, dict(scaling)
        if kind == "gemma3_text":
            c["rope_local_base_freq"] = LOCAL
        if kind == "olmo3":  # version 5 takes the default in layers with a window
            c["rope_theta"] = 500000.0
    elif kind in ("olmo3", "gemma3_text"):
        local = LOCAL if kind == "gemma3_text" else THETA
        c["rope_parameters"] = {"full_attention": {**scaling, "rope_theta": THETA},
            "sliding_attention": {"rope_type": "default", "rope_theta": local}}
    else:
        c["rope_parameters"] = {**scaling, "rope_theta": THETA}
    return c

def paths(c, prefix=()):
    for key, value in c.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from paths(value, (*prefix, key))

def changed(c, path, how):
    c = copy.deepcopy(c)
    at = c
    for key in path[:-1]:
        at = at[key]
    if how == "absent":
        del at[path[-1]]
    else:
        at[path[-1]] = None
    return c

IDS = torch.arange(0, 120, 3)[None] % 400

def read(c):
    """Builds the model and returns it with what it computes, or None if transformers cannot."""
    try:
        torch.manual_seed(0)
        config = AutoConfig.for_model(**copy.deepcopy(c))
        m = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        with torch.no_grad():
            m(IDS, use_cache=False)
    except Exception as e:
        return None, repr(e)[:200]
    m.config.architectures = c.get("architectures")
    t, cfg = m.model, m.config
    rot = t.rotary_emb
    def frequencies(kind):
        inv = getattr(rot, kind + "_inv_freq", None)
        factor = getattr(rot, kind + "_attention_scaling", None)
        if inv is None:
            inv, factor = rot.inv_freq, rot.attention_scaling
        return [float(f"{x:.6g}") for x in inv.tolist()], float(f"{factor:.8g}")
    per = []
    types = getattr(cfg, "layer_types", None) or ["full_attention"] * len(t.layers)
    masked = cfg.model_type in ("gemma2", "ministral", "gemma3_text", "olmo3", "qwen2", "qwen3", "smollm3")
    for i, layer in enumerate(t.layers):
        a = layer.self_attn
        window = 0
        if cfg.model_type == "mistral":
            window = cfg.sliding_window or 0
        elif masked and types[i] == "sliding_attention":
            window = cfg.sliding_window
        inv, factor = frequencies(types[i])
        if cfg.model_type == "smollm3" and not a.use_rope:
            inv, factor = [0.0] * len(inv), 1.0
        per.append([window, inv, factor])
    kinds = []
    for p in per:
        if p not in kinds:
            kinds.append(p)
    a, first = t.layers[0].self_attn, t.layers[0]
    norm = getattr(t.norm, "variance_epsilon", None) or t.norm.eps
    act = getattr(first.mlp.act_fn, "__class__").__name__
    return m, {
        "Layers": len(t.layers), "Width": t.norm.weight.shape[0], "Heads": cfg.num_attention_heads,
        "KVHeads": a.k_proj.weight.shape[0] // a.head_dim, "HeadSize": a.head_dim,
        "Hidden": first.mlp.up_proj.weight.shape[0], "Vocab": t.embed_tokens.weight.shape[0],
        "NormEps": norm, "Tied": m.lm_head.weight is t.embed_tokens.weight,
        "GELU": act == "GELUTanh",  # the approximation
        "Positions": cfg.max_position_embeddings, "ScoreScale": float(f"{a.scaling:.8g}"),
        "ScoreCap": getattr(a, "attn_logit_softcapping", None) or 0,
        "LogitCap": getattr(cfg, "final_logit_softcapping", None) or 0,
        "EmbeddingMultiplier": getattr(cfg, "embedding_multiplier", 1.0),
        "ResidualMultiplier": getattr(cfg, "residual_multiplier", 1.0),
        "LogitsScaling": getattr(cfg, "logits_scaling", 1.0),
        # window, frequencies and their factor of each kind of layers; the layers
        "Positional": kinds, "LayerKinds": [kinds.index(p) for p in per],
    }

REQUIRED = ["hidden_size", "num_hidden_layers", "intermediate_size"]  # would be too large

def main():
    out = []
    for architecture in FAMILIES:
        for notation in 4, 5:
            c = base(architecture, notation)
            _, whole = read(c)
            assert isinstance(whole, dict), (architecture, notation, whole)
            entry = {"config": c, "architecture": whole, "changes": []}
            for path in paths(c):
                if path[0] in ("architectures", "model_type"):
                    continue
                for how in "absent", "null":
                    change = {"key": ".".join(path), "how": how}
                    if path[0] in REQUIRED and how == "absent":
                        continue
                    m, got = read(changed(c, path, how))
                    if m is None:
                        change["refused"] = True
                        print(architecture, notation, path, how, got, file=sys.stderr)
                    else:
                        change["differs"] = {k: v for k, v in got.items() if v != whole[k]}
                    entry["changes"].append(change)
            out.append(entry)
    json.dump({"transformers": transformers.__version__, "models": out}, sys.stdout)

if __name__ == "__main__":
    main()
