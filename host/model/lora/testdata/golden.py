"""Writes peft.json: the ranks and scales that PEFT 0.21.2 gives the modules of a small Llama, and
the defaults of its LoraConfig, for peft_test.go. Run it in this directory."""

import json

import peft
from transformers import LlamaConfig, LlamaForCausalLM

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SETTINGS = [
    {},
    {"use_rslora": True},
    {"rank_pattern": {"q_proj": 2, "v_proj": 9}},
    {"alpha_pattern": {"mlp.up_proj": 1, "k_proj": 2.5}},
    {
        "use_rslora": True,
        "rank_pattern": {"layers.0.self_attn.q_proj": 3, "q_proj": 6, "proj": 1, r"layers\.1\.mlp\..*": 5},
        "alpha_pattern": {"model.layers.1.mlp.down_proj": 7, ".*[qk]_proj": 20},
    },
]


def modules(settings):
    model = LlamaForCausalLM(LlamaConfig(hidden_size=8, intermediate_size=4, num_hidden_layers=2,
                                         num_attention_heads=2, num_key_value_heads=1, vocab_size=3))
    config = peft.LoraConfig(r=4, lora_alpha=6, target_modules=TARGETS, task_type="CAUSAL_LM", **settings)
    named = peft.get_peft_model(model, config).named_modules()
    return {name.removeprefix("base_model.model."): [m.r["default"], m.scaling["default"]]
            for name, m in named if isinstance(m, peft.tuners.lora.Linear)}


defaults = peft.LoraConfig(target_modules=TARGETS).to_dict()
defaults["target_modules"] = TARGETS
with open("peft.json", "w") as out:
    json.dump({"defaults": defaults,
               "settings": [{"config": s, "modules": modules(s)} for s in SETTINGS]}, out)
    out.write("\n")
