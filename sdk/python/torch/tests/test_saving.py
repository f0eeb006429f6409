"""From PyTorch to a served file: saved, loaded, and read back from GGUF, compressed-tensors and MLX as convert has it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from cage_torch import CAGE, PluginError, QuantizedLinear, convert, load_, quantize_, save
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

transformers = pytest.importorskip("transformers")

CAGE_COMMAND = shutil.which("cage") or str(Path(__file__).resolve().parents[4] / "bin" / "cage")
TOKENS = torch.randint(0, 256, (8, 16), generator=torch.Generator().manual_seed(1))
HEADS = {"attn_q": 4, "attn_k": 2}
NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}  # fmt: skip


def llama(seed=0):
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=260, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=32, bos_token_id=256, eos_token_id=257,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def train(m, steps=4, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(m.parameters(), lr=0.3)
    m.train()
    for _ in range(steps):
        optimizer.zero_grad()
        m(input_ids=TOKENS, labels=TOKENS).loss.backward()
        optimizer.step()
    return optimizer


def trained(name, **settings):
    m = llama()
    quantize_(m, name, **settings)
    optimizer = torch.optim.SGD(m.parameters(), lr=0.3)
    CAGE(optimizer, m, 4)
    train(m, 4, optimizer)
    return m.eval()


def tokenizer(directory):
    """One token for each byte, as GPT-2 writes them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    t = Tokenizer(models.BPE({c: i for i, c in enumerate(letters)}, []))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.add_special_tokens(["<s>", "</s>", "<a>", "<b>"])
    transformers.PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>").save_pretrained(directory)


def cage(*args):
    return subprocess.run([CAGE_COMMAND, *map(str, args)], capture_output=True, text=True, check=False, timeout=600)


def succeeds(*args):
    done = cage(*args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported(m, path):
    """A run of what save writes."""
    save(m, path / "saved")
    tokenizer(path / "saved")
    succeeds("import", path / "saved", "--out", path / "run")
    return path / "run"


def read_gguf(directory):
    gguf = pytest.importorskip("gguf")
    tensors = {t.name: t for t in gguf.GGUFReader(directory / "model.gguf").tensors}
    for name, t in tensors.items():
        parts = name.split(".")
        if parts[0] == "blk" and parts[2] in NAMES and parts[3] == "weight":
            x = gguf.quants.dequantize(t.data, t.tensor_type).reshape(t.shape.tolist()[::-1])
            if scale := tensors.get(name.replace("weight", "scale")):  # NVFP4
                x = x * scale.data
            if parts[2] in HEADS:  # pairs side by side: back to the two halves of a head
                x = x.reshape(HEADS[parts[2]], -1, 2, x.shape[1]).swapaxes(1, 2).reshape(x.shape)
            yield f"model.layers.{parts[1]}.{NAMES[parts[2]]}", torch.from_numpy(x.copy())


def read_hub(directory):
    pytest.importorskip("compressed_tensors")
    layout = json.loads((directory / "config.json").read_text())["quantization_config"]["format"]
    options = {"quantization_config": transformers.CompressedTensorsConfig(dequantize=True)} if "fp4" in layout else {}
    m = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, **options)
    with torch.no_grad():
        m(input_ids=TOKENS)  # unpacks integers
    return ((name, layer.weight.float()) for name, layer in m.named_modules() if isinstance(layer, nn.Linear) and name != "lm_head")


def read_mlx(directory):
    mx = pytest.importorskip("mlx.core")
    layout = json.loads((directory / "config.json").read_text())["quantization"]
    tensors = mx.load(str(directory / "model.safetensors"))
    for name in tensors:
        if name.endswith(".scales"):
            layer = name.removesuffix(".scales")
            own = layout.get(layer) or layout
            given = {k: own[k] for k in ("group_size", "bits", "mode") if k in own}
            x = mx.dequantize(tensors[f"{layer}.weight"], tensors[name], tensors.get(f"{layer}.biases"), **given)
            yield layer, torch.tensor(x.astype(mx.float32).tolist())


READ = {"gguf": read_gguf, "compressed-tensors": read_hub, "mlx": read_mlx}
F16 = {"scale_dtype": "f16"}
CASES = {
    "absmax": ("absmax", {"granularity": "group", "group": 32, **F16}, ""),
    "absmax, rows": ("absmax", {"bits": 8, **F16}, ""),
    "absmax, tensors": ("absmax", {"granularity": "tensor", **F16}, ""),
    "mxfp4": ("mxfp4", {}, ""),
    "nvfp4": ("nvfp4", {"scale_form": "power_of_two"}, "mlx"),
    "lsq": ("lsq", F16, ""),
    "lsq, rows": ("lsq", {"granularity": "row", **F16}, ""),
    "paretoq": ("paretoq", {"bits": 2, **F16}, ""),
    "paretoq, 4 bits": ("paretoq", {"bits": 4, **F16}, ""),
    "float32": ("lsq", {}, "gguf mlx"),
    "rotated": ("quest", {}, "gguf compressed-tensors mlx"),
}


@pytest.mark.parametrize("case", CASES)
def test_served(case, tmp_path):
    """The weights of an export are those of convert, to the bit, or the format is refused."""
    name, settings, refused = CASES[case]
    m = trained(name, **settings)
    run = imported(m, tmp_path)
    layers = [n for n, layer in m.named_modules() if isinstance(layer, QuantizedLinear)]
    convert(m)
    want = {n: m.get_submodule(n).weight for n in layers}
    for to, read in READ.items():
        done = cage("export", run, "--to", to, "--out", tmp_path / to)
        if to in refused:
            assert done.returncode != 0
            assert any(s in done.stderr for s in ("cannot be stored exactly", "be stored as floats", "stores Q(x) as floats")), done.stderr
            continue
        assert done.returncode == 0, done.stderr
        got = {n: x for n, x in read(tmp_path / to) if n in want}
        assert got.keys() == want.keys()
        for n in layers:
            assert torch.equal(got[n], want[n]), f"{to}: {n} differs by up to {(got[n] - want[n]).abs().max()}"


@pytest.mark.parametrize("name", ["absmax", "lsq", "paretoq", "mseden"])
def test_resumed(name, tmp_path):
    """Plain transformers loads the weights before quantization; with load_ training goes on with the same bits."""
    m = llama()
    quantize_(m, name, activations=name == "lsq")
    train(m)
    save(m, tmp_path)
    plain, info = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    assert torch.equal(plain.model.layers[1].mlp.up_proj.weight, m.model.layers[1].mlp.up_proj.weight)
    assert "quantiz" not in (tmp_path / "config.json").read_text()
    assert len(load_(plain, tmp_path)) == 14
    with pytest.raises(ValueError, match="quantized already"):
        load_(plain, tmp_path)
    train(m)
    train(plain)
    for (n, a), b in zip(m.named_parameters(), plain.parameters()):
        assert torch.equal(a, b), n


def test_activations(tmp_path):
    """Quantizers of inputs without state go on in the run; of others the import tells."""
    m = trained("mxfp4", activations=True)
    run = imported(m, tmp_path / "same")
    assert "[quantizer.activations]\nplugin = \"mxfp4\"" in (run / "run.toml").read_text()
    save(trained("lsq", activations=True), tmp_path / "own")
    assert "which this run does not" in succeeds("import", tmp_path / "own")


def test_mistakes(tmp_path):
    with pytest.raises(ValueError, match="no quantizers"):
        save(llama(), tmp_path)
    with pytest.raises(ValueError, match="save_pretrained"):
        save(nn.Linear(4, 4), tmp_path)
    m = trained("lsq", skip=["k_proj"])
    save(m, tmp_path)
    assert "self_attn.k_proj is not" in cage("import", tmp_path).stderr
    path = tmp_path / "quantizers.cage"
    tensors = load_file(path)
    with safe_open(path, "pt") as f:
        content = json.loads(f.metadata()["cage_torch"])

    def wrong(message, error, tensors=tensors, **changes):
        save_file(tensors, path, {"cage_torch": json.dumps({**content, **changes})})
        with pytest.raises(error, match=message):
            load_(llama(), tmp_path)

    layer = "model.layers.1.mlp.up_proj"
    record = content["layers"][layer]["weight"]
    wrong("version is 2, want 1", ValueError, version=2)
    wrong("no linear layer up", ValueError, layers={"up": {"weight": record}})
    wrong(f"layer {layer}, weight: .*no plugin 'lsp'", PluginError, layers={layer: {"weight": {**record, "plugin": "lsp"}}})
    wrong("without a path", ValueError, layers={layer: {"weight": {**record, "plugin": "./lsq"}}})
    assert "without a path" in cage("import", tmp_path).stderr
    wrong(f"{layer}, weight: lsq: bits = 99", PluginError, layers={layer: {"weight": {**record, "settings": {"bits": 99}}}})
    wrong("is not the one used in training", PluginError, layers={layer: {"weight": {**record, "program": "1"}}})
    wrong("has the tensors {}", ValueError, tensors={"x": torch.zeros(1)})
    wrong(r"\(3,\)}, want .*\(\)}", ValueError, tensors={**tensors, f"{layer}.weight.trained.step": torch.ones(3)})
