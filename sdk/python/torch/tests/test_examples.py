"""The examples, each with a model of two layers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cage_torch import QuantizedLinear, load_

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

EXAMPLES = Path(__file__).parents[1] / "examples"
TEXT = "".join(f"The square of {i} is {i * i}, and its double is {2 * i}.\n" for i in range(400))
CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A directory with a Llama and a tokenizer of bytes."""
    directory = tmp_path_factory.mktemp("model")
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer, t.decoder = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator([TEXT], tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=["<end>"], initial_alphabet=alphabet))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<end>", pad_token="<end>")
    fast.chat_template = CHAT
    fast.save_pretrained(directory)
    torch.manual_seed(0)
    c = transformers.LlamaConfig(vocab_size=300, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
                                 num_key_value_heads=2, max_position_embeddings=512, eos_token_id=0, pad_token_id=0)  # fmt: skip
    transformers.LlamaForCausalLM(c).save_pretrained(directory)
    return directory


def run(model, directory, name, *before):
    """Runs an example for ten steps and returns its output, and the model that it has written."""
    chats = [{"messages": [{"role": "user", "content": f"{i}²?"}, {"role": "assistant", "content": str(i * i)}]} for i in range(64)]
    pairs = [{"prompt": f"{i}² is ", "chosen": str(i * i), "rejected": str(i)} for i in range(64)]
    for file, rows in (("sft", chats), ("dpo", pairs)):
        (directory / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "text").write_text(TEXT)
    data = directory / (f"{name}.jsonl" if name in ("sft", "dpo") else "text")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HF_HUB_OFFLINE": "1", "HF_HOME": str(directory / "home"),
                   "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}  # fmt: skip
    arguments = [sys.executable, *before, EXAMPLES / f"{name}.py", model, data, directory / "out", "10"]
    done = subprocess.run(arguments, cwd=directory, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    trained = transformers.AutoModelForCausalLM.from_pretrained(directory / "out", dtype=torch.float32)
    assert len(load_(trained, directory / "out")) == 14
    return done.stdout, trained


def check(model, output, trained):
    """All layers but the head were quantized, said so, and trained."""
    assert "14 layers are quantized" in output and "lm_head: the output head" in output
    first = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    for name, layer in trained.named_modules():
        if isinstance(layer, QuantizedLinear):
            assert not torch.equal(layer.weight, first.get_submodule(name).weight), name


def test_trainer(model, tmp_path):
    check(model, *run(model, tmp_path, "trainer"))


def test_fsdp(model, tmp_path):
    check(model, *run(model, tmp_path, "fsdp", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"))


@pytest.mark.parametrize("name", ["sft", "dpo"])
def test_trl(model, tmp_path, name):
    pytest.importorskip("trl")
    check(model, *run(model, tmp_path, name))
