"""Exports tiny models of each family, with each setting that changes what they compute, and compares
the log-probabilities of `cage score` with those of the programs that read the exports.

usage: computed.py CAGE TOKENIZER DIR [FAMILY…]

CAGE       the command; CAGE_PLUGIN_PATH names its plugins
TOKENIZER  a directory with tokenizer.json, for ids below 328
DIR        a directory for the models, which is made

The weights are random. A model is written as transformers 5 writes it (v5), as transformers 4 wrote it (v4), and
without any optional key (bare). Prints the largest difference in a table: that of the model itself, read by
transformers and by cage, and those of the exports. "≤ n" compares n tokens, because the export tells that the
program has no window. The exit code is 1 when a difference is above 1e-4 (in Gemmas by llama.cpp, whose GELU is a
table, 5e-3), or an export fails with another reason than that the program does not compute the model.
"""
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

import quiet  # before transformers
import mlx.core as mx
import torch
import transformers
import xllamacpp
from mlx_lm.utils import load_model

cage, tokenizer, work = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
context = 96
random.seed(1)
letter = json.loads((tokenizer / "tokenizer.json").read_text())["model"]["vocab"]["A"]  # whole, as some tokens are not
ids = [random.randrange(5, 256) for _ in range(context)]

plain = {"rope_theta": 5e5, "rms_norm_eps": 1e-3}
scalings = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 32.0, "beta_slow": 1.0},
    "yarn, β": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 8.0, "beta_slow": 2.0},
}
window, size = {"window": {"sliding_window": 24}}, {"head size": {"head_dim": 32}}
tied, own = {"head": {"tie_word_embeddings": True}}, {"head": {"tie_word_embeddings": False}}
scalar = {"scores": {"query_pre_attn_scalar": 25}}
families = {  # class, sizes, settings of its own
    "llama": ("Llama", {}, tied | size),
    "mistral": ("Mistral", {"sliding_window": None}, tied | size | window),
    "ministral": ("Ministral", {"head_dim": 16, "layer_types": ["full_attention"] * 2}, tied | size | {
        "window": {"sliding_window": 24, "layer_types": None},
        "windows": {"sliding_window": 96, "layer_types": ["full_attention", "sliding_attention"]}}),
    "granite": ("Granite", {}, tied | {"factors": {"attention_multiplier": 0.3, "embedding_multiplier": 3.0,
                                                   "residual_multiplier": 0.5, "logits_scaling": 2.0}}),
    "smollm3": ("SmolLM3", {"num_hidden_layers": 4}, own),
    "olmo2": ("Olmo2", {}, tied),
    "olmo3": ("Olmo3", {"num_hidden_layers": 4}, tied | window | {"2 layers": {"num_hidden_layers": 2}}),
    "qwen2": ("Qwen2", {}, tied),
    "qwen3": ("Qwen3", {"head_dim": 16}, tied | size),
    "gemma": ("Gemma", {"head_dim": 16}, own | size),
    "gemma2": ("Gemma2", {"head_dim": 16, "query_pre_attn_scalar": 16}, own | size | window | scalar | {
        "caps": {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0},
        "no caps": {"attn_logit_softcapping": None, "final_logit_softcapping": None}}),
    "gemma3": ("Gemma3", {"head_dim": 16, "query_pre_attn_scalar": 16, "num_hidden_layers": 6},
               own | size | window | scalar | {"width": {"hidden_size": 96}, "4 layers": {"num_hidden_layers": 4}}),
}
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 328}


def create(family, settings, notation, to):
    """Writes a model."""
    name, own, _ = families[family]
    two = family in ("gemma3", "olmo3")  # types of positions
    keys = dict(sizes) | {"max_position_embeddings": 512} | own | plain | settings
    theta, scaling = keys.pop("rope_theta"), keys.pop("scaling", {"rope_type": "default"})
    parameters = {"rope_theta": theta} | scaling
    if two:
        local = {"rope_type": "default", "rope_theta": 1e4 if family == "gemma3" else theta}
        parameters = {"full_attention": parameters, "sliding_attention": local}
    if notation == "bare":
        keys, parameters = sizes | {"num_hidden_layers": keys["num_hidden_layers"]}, None
        if family == "ministral":  # transformers has no default
            keys["head_dim"] = 16
    config = getattr(transformers, name + ("TextConfig" if name == "Gemma3" else "Config"))(
        **keys, bos_token_id=None, eos_token_id=None, pad_token_id=None, **({"rope_parameters": parameters} if parameters else {}))
    torch.manual_seed(1)
    model = getattr(transformers, name + "ForCausalLM")(config).eval()
    for parameter in model.parameters():
        matrix = parameter.dim() > 1
        parameter.data.normal_(0, 0.12) if matrix else parameter.data.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(to)
    text = json.loads((to / "config.json").read_text())
    if notation == "v4":
        rope = text.pop("rope_parameters")
        if two:
            text["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
            rope = rope["full_attention"]
        text["rope_theta"] = rope.pop("rope_theta")
        text["rope_scaling"] = None if rope["rope_type"] == "default" else rope
        if family != "gemma3":
            text.pop("rope_local_base_freq", None)
        text["torch_dtype"] = text.pop("dtype")
    if notation == "bare":
        text = {k: text[k] for k in [*keys, "architectures", "model_type"]} | {"pad_token_id": None}
    (to / "config.json").write_text(json.dumps(text))
    (to / "generation_config.json").unlink(missing_ok=True)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / file, to)


def run(*arguments):
    done = subprocess.run([cage, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().removeprefix("error: "))
    return done.stdout


def score(directory, *flags):
    (work / "ids.jsonl").write_text(json.dumps(ids))
    return torch.tensor(json.loads(run("score", directory, "--ids", work / "ids.jsonl", *flags))["log_probs"])


def by_transformers(directory):
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(torch.tensor([ids[:-1]])).logits[0]
    return logits.log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def by_mlx(directory):
    model, _ = load_model(pathlib.Path(directory))
    logits = model(mx.array([ids[:-1]]))[0]
    return torch.tensor((logits - mx.logsumexp(logits, axis=-1, keepdims=True)).tolist()).gather(
        1, torch.tensor(ids[1:])[:, None])[:, 0]


def by_llama(directory):
    """NaN for tokens that are not asked for."""
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup = str(directory / "model.gguf"), 128, 1, False
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(params)
    out = torch.full((len(ids) - 1,), float("nan"))
    for n in (1, 2, 7, 20, 24, 25, 40, 60, 95):
        answer = server.handle_completions({"prompt": ids[:n], "n_predict": 1, "temperature": 0, "n_probs": 328, "cache_prompt": False,
                                            "logit_bias": [[letter, 1e4]]})
        answer = json.loads(answer) if isinstance(answer, (str, bytes)) else answer
        tokens = answer.get("completion_probabilities") or answer["choices"][0]["logprobs"]["content"]
        out[n - 1] = {t["id"]: t["logprob"] for t in tokens[0]["top_logprobs"]}[ids[n]]
    return out


def compare(got, want, directory=None):
    notes = json.loads((directory / "export.json").read_text()).get("notes", []) if directory else []
    told = re.search(r"limited to (\d+) tokens", " ".join(notes))
    n = int(told.group(1)) if told else len(want)
    difference = (got[:n] - want[:n])
    difference = difference[~difference.isnan()].abs().max().item()
    rounded = any("rounded to bfloat16" in note or "GELU" in note for note in notes)
    return difference, (f"≤ {n}: " if told else "") + f"{difference:.1e}" + (" (told)" if rounded else ""), rounded


failed = False


def case(family, label, settings, notation):
    global failed
    shutil.rmtree(work / "case", ignore_errors=True)
    model, made = work / "case/model", work / "case/run"
    model.mkdir(parents=True)
    create(family, settings, notation, model)
    cells = []

    def cell(limit, compute):
        global failed
        try:
            difference, text, told = compute()
            failed = failed or not (told or difference <= limit)
            cells.append(text if told or difference <= limit else f"**{text}**")
        except Exception as e:
            refused = re.search(r"does not compute models of kind \w+ with (.*?): use --to", str(e))
            failed = failed or not refused
            cells.append("refused: " + refused.group(1) if refused else f"**{' '.join(str(e).split())[:300]}**")

    cell(1e-4, lambda: compare(by_transformers(model), score(model, "--context", context)))
    try:
        run("quantize", model, "--quantizer", "absmax", "--set", "granularity=group", "--set", "group=32", "--set", "bits=8", "--set",
            "scale_dtype=f16", "--method", "rtn", "--windows", 0, "--context", context, "--out", made)
        want = score(made)
    except Exception as e:
        want = None
        failed = True
    for target, flags, program in (("hf", [], by_transformers), ("mlx", [], by_mlx), ("gguf", ["--type", "f32"], by_llama)):
        if want is None:
            cells.append("")
            continue
        limit = 5e-3 if target == "gguf" and family.startswith("gemma") else 1e-4

        def exported():
            run("export", made, "--to", target, "--out", work / "case" / target, *flags)
            return compare(program(work / "case" / target), want, work / "case" / target)

        cell(limit, exported)
    print(f"| {family} | {label}, {notation} | " + " | ".join(cells) + " |", flush=True)


print("| family | setting | itself | hf | mlx | gguf |\n|---|---|---|---|---|---|")
for family in sys.argv[4:] or families:
    for notation in ("v4", "v5"):
        case(family, "plain", {}, notation)
        for name, scaling in scalings.items():
            case(family, name, {"scaling": scaling}, notation)
    for name, settings in families[family][2].items():
        case(family, name, settings, "v5")
    case(family, "defaults", {}, "bare")
sys.exit(failed)
