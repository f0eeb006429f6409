"""The correction in the Trainer of transformers, which is not needed for the package."""

from __future__ import annotations

import pytest
import torch
from cage_torch import quantize_

transformers = pytest.importorskip("transformers")

TOKENS = torch.randint(0, 64, (32, 16), generator=torch.Generator().manual_seed(1))


def llama():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        max_position_embeddings=32,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def train(directory, steps, callback, resume=False, model=None, **arguments):
    model = model or llama()
    report = quantize_(model, "absmax", bits=4)
    assert len(report.quantized) == 14 and report.left["lm_head"] == "the output head"
    args = transformers.TrainingArguments(
        str(directory), max_steps=steps, per_device_train_batch_size=4, learning_rate=1e-4, save_steps=4, report_to=[], seed=1,
        use_cpu=True, disable_tqdm=True, lr_scheduler_type="linear", **arguments,
    )  # fmt: skip
    rows = [{"input_ids": row, "labels": row} for row in TOKENS]
    trainer = transformers.Trainer(model, args, train_dataset=rows, callbacks=[callback])
    trainer.train(resume_from_checkpoint=resume)
    return model


def test_trainer(tmp_path):
    """Weights are nearer to their grid with the correction; a resumed run is the same to the bit."""
    from cage_torch.trainer import CAGECallback

    def errors(model):
        return sum((m.weight - m.weight_quantizer.quantized(m.weight)).square().sum() for m in model.modules() if hasattr(m, "weight_quantizer"))

    whole = train(tmp_path / "whole", 8, CAGECallback(strength=2.0, silence=0.0))
    without = train(tmp_path / "without", 8, CAGECallback(strength=0.0))
    assert errors(whole) < 0.1 * errors(without)  # exp(−2)² but for the optimizer's steps
    parts = train(tmp_path / "whole", 8, CAGECallback(strength=2.0, silence=0.0), resume=str(tmp_path / "whole" / "checkpoint-4"))
    for (name, a), b in zip(whole.named_parameters(), parts.parameters()):
        assert torch.equal(a, b), name


def test_trained_again():
    """A second train has the correction once, and from its own first step on."""
    from cage_torch.trainer import CAGECallback

    def weights(again):
        callback = CAGECallback(strength=2.0, silence=0.0)
        model = llama()
        quantize_(model, "absmax", bits=4)
        args = transformers.TrainingArguments(
            "unused", max_steps=4, per_device_train_batch_size=4, learning_rate=1e-4, save_strategy="no", report_to=[], seed=1,
            use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        rows = [{"input_ids": row, "labels": row} for row in TOKENS]
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        trainer = transformers.Trainer(model, args, train_dataset=rows, callbacks=[callback], optimizers=(optimizer, None))
        before = [p.detach().clone() for p in model.parameters()]
        for _ in range(again):
            with torch.no_grad():
                for p, b in zip(model.parameters(), before):
                    p.copy_(b)
            trainer.train()
        assert [g["cage_step"] for g in optimizer.param_groups] == [4]
        return model

    for a, b in zip(weights(1).parameters(), weights(2).parameters()):
        assert torch.equal(a, b)
