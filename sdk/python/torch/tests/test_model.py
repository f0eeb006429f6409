"""Quantized layers with the shipped plugins, and the correction."""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest
import torch
from cage_sdk import executor
from cage_torch import CAGE, PluginError, QuantizedLinear, convert, full_precision, quantize_
from cage_torch import quantizer as quantizers
from cage_torch.autodiff import PREFIX, split
from torch import nn

QUANTIZERS = {
    "absmax": {"granularity": "group", "group": 32}, "quest": {}, "mxfp4": {}, "nvfp4": {}, "lsq": {}, "paretoq": {"bits": 2},
    "mseden": {}, "grid": {},
}  # fmt: skip


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 32))


def rows(width=64):
    """Normal rows, large and small ones, zeros, and one with infinities and NaN."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((9, width)) * np.array([1, 1e-3, 1e4, 1e-30, 0, 1, 1, 1, 1])[:, None]
    x[5, ::3] = 0
    x[6, :4] = np.inf, -np.inf, np.nan, 1
    x[7] = np.arange(width) / 4 - width / 8
    return x.astype(np.float32)


@pytest.mark.parametrize("name", QUANTIZERS)
def test_values_and_gradients(name):
    """Q(x) is that of NumPy in single precision but for sums in another order, and so are gradients."""
    m = nn.Linear(64, 9, bias=False)
    x = rows()
    finite = np.isfinite(x).all(1)
    with torch.no_grad():
        m.weight.copy_(torch.from_numpy(x))
    quantize_(nn.Sequential(m), name, **QUANTIZERS[name])
    q = m.weight_quantizer
    programs, low = q.programs((9, 64))
    inputs = {n: v.detach().numpy() for n, v in zip(low.inputs, q._inputs(m.weight, low.inputs))}
    inputs = {n: v.view(np.uint32) if v.dtype == np.int32 else v for n, v in inputs.items()}
    y = q(m.weight)
    dy = torch.from_numpy(np.random.default_rng(2).standard_normal(x.shape).astype(np.float32))
    y.backward(dy)
    if q.counts:  # a forward pass is a new step
        inputs = {n: v.detach().numpy() for n, v in zip(low.inputs, q._inputs(m.weight, low.inputs))}
        inputs = {n: v.view(np.uint32) if v.dtype == np.int32 else v for n, v in inputs.items()}
    parts = split(programs.program, "value", "surrogate", ["x", *(f"trained.{t.name}" for t in q.trained)], programs.backward)
    forward = executor.run(parts.forward, inputs, np.float32)
    known = {**inputs, **forward, PREFIX + "value": dy.numpy()}
    backward = executor.run(parts.backward, {n: known[n] for n, _ in parts.backward.inputs}, np.float32)
    for i in range(9):
        scale = np.abs(x[i][np.isfinite(x[i])]).max()
        np.testing.assert_allclose(y.detach().numpy()[i], forward["value"][i], rtol=1e-5, atol=1e-5 * scale, err_msg=f"row {i}")
    np.testing.assert_allclose(m.weight.grad.numpy()[finite], backward[PREFIX + "x"][finite], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", QUANTIZERS)
def test_training(name):
    """The loss falls; in evaluation the model is that of converted weights, to the bit."""
    m = network()
    x, y = torch.randn(16, 64), torch.randn(16, 32)
    quantize_(m, name, **QUANTIZERS[name])
    own = [p for n, p in m.named_parameters() if "quantizer" in n]
    optimizer = torch.optim.SGD([{"params": [m[0].weight, m[0].bias, m[2].weight, m[2].bias]}, {"params": own}] if own else m.parameters(), lr=0.1)
    CAGE(optimizer, m, 30, strength=1.0)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = (m(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - (0.001 if name == "grid" else 0.1)
    m.eval()
    before = m(x)
    convert(m)
    assert type(m[0]) is nn.Linear and torch.equal(m(x), before)
    assert not any("quantizer" in n for n in m.state_dict())


def test_report():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.body, self.lm_head = nn.Embedding(8, 64), network(), nn.Linear(64, 8)
            self.lora_A, self.experts = nn.ModuleDict({"default": nn.Linear(64, 4)}), Experts()
            self.special = type("Special", (nn.Linear,), {})(64, 64)

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(2, 64, 64))

    m = Model()
    report = quantize_(m, "absmax", skip=["2"])
    assert report.quantized == ["body.0"]
    assert report.left["lm_head"] == "the output head" and report.left["body.2"] == "skip"
    assert report.left["lora_A.default"] == "part of an adapter" and report.left["embed"] == "an embedding"
    assert "[2, 64, 64]" in report.left["experts"] and "Special" in report.left["special"]
    assert "1 layers are quantized" in str(report) and "the output head" in str(report)
    with pytest.raises(ValueError, match="already"):
        quantize_(m, "absmax")
    with pytest.raises(ValueError, match="no linear layer"):
        quantize_(nn.Sequential(nn.Embedding(3, 4)), "absmax")
    with pytest.raises(ValueError, match="nothing would be"):
        quantize_(network(), "absmax", weights=False)
    with pytest.raises(PluginError, match=r"layer 0, weight \[96, 63\].*skip="):
        quantize_(nn.Sequential(nn.Linear(63, 96)), "quest", rotation="64")
    meta = nn.Sequential(nn.Linear(64, 64, device="meta"))
    with pytest.raises(ValueError, match="load the model's weights first"):
        quantize_(meta, "lsq")
    assert type(meta[0]) is nn.Linear


def test_activations_and_full_precision():
    m, x = network(), torch.randn(2, 5, 64)
    plain = m(x)
    quantize_(m, "absmax", activations=True, bits=3)
    assert m[0].input_quantizer is not None and not torch.allclose(m(x), plain)
    with full_precision(m):
        assert torch.equal(m(x), plain)
    assert not torch.allclose(m(x), plain)
    convert(m)
    assert type(m[0]) is QuantizedLinear and m[0].weight_quantizer is None


def test_batches_of_many_lengths():
    """Programs for activations depend on the number of rows: some are kept, and not those of each length that there was."""
    known = len(quantizers._graphs)
    m = nn.Sequential(nn.Linear(8, 8))
    quantize_(m, "absmax", activations=True)
    for rows in range(1, 200):
        m(torch.randn(rows, 8))
    assert len(m[0].input_quantizer._programs) <= 66
    gc.collect()
    assert len(quantizers._graphs) <= 66 + known


def test_learned_steps_exist_before_the_first_batch():
    m = network()
    quantize_(m, "lsq", activations=True)
    names = [n for n, _ in m.named_parameters() if "quantizer" in n]
    assert len(names) == 4
    m(torch.randn(4, 64)).sum().backward()
    assert all(p.grad is not None for n, p in m.named_parameters())
    assert m[0].input_quantizer.trained_step.item() > 0
    with pytest.warns(UserWarning, match="does not have"):
        CAGE(torch.optim.SGD([m[0].weight], lr=0.1), m, 10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_strength(dtype):
    """A weight that nothing else moves keeps the share exp(−S) of its error, also in bfloat16."""
    m = nn.Sequential(nn.Linear(512, 64, bias=False, dtype=dtype))
    quantize_(m, "grid", step=0.25)
    w = m[0].weight
    q = m[0].weight_quantizer
    first = (w - q.quantized(w)).detach().double().norm()
    optimizer = torch.optim.SGD(m.parameters(), lr=0.01)
    CAGE(optimizer, m, 200, strength=0.24, silence=0.5)
    for _ in range(200):
        w.grad = torch.zeros_like(w)
        optimizer.step()
    exact = w.detach().double() + (optimizer.state[w]["cage_rest"].double() if dtype != torch.float32 else 0)
    share = (exact - q.quantized(w)).norm() / first
    assert share == pytest.approx(math.exp(-0.24), abs=2e-3)
    with pytest.warns(UserWarning, match="more than 200 steps"):
        optimizer.step()


def test_mistakes_of_the_correction():
    m = network()
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="call quantize_ first"):
        CAGE(optimizer, m, 10)
    quantize_(m, "absmax")
    for options, message in (
        ({"steps": 0}, "at least 1"), ({"steps": 10, "silence": 1.0}, "below 1"), ({"steps": 10, "strength": -1.0}, "not negative"),
        ({"steps": 10, "strength": 1.0, "lambda_": 1.0}, "not both"),
        ({"steps": 10, "scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)}, "ReduceLROnPlateau"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            CAGE(optimizer, m, **options)


def test_scheduler():
    """λ follows from the scheduler's rates, and the scheduler is left at its start."""
    m = network()
    quantize_(m, "absmax")
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    for scheduler in (
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 - t / 10),
        torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, 10),
    ):
        c = CAGE(optimizer, m, 10, strength=1.0, silence=0.0, scheduler=scheduler)
        assert sum(0.1 * (1 - t / 10) * r * c.lambdas[0] for t, r in enumerate(c.ramp)) == pytest.approx(1.0)
        assert scheduler.last_epoch == 0 and optimizer.param_groups[0]["lr"] == 0.1
        c.remove()
    scheduler.step()
    with pytest.raises(ValueError, match="not at its start"):
        CAGE(optimizer, m, 10, scheduler=scheduler)


def test_printed():
    m = network()
    quantize_(m, "absmax")
    text = repr(m[0].weight_quantizer)
    assert "absmax, weight [96, 64]" in text and "Tensor_round_(" in text


def test_converted_is_plain():
    """After convert, a model is one that never was quantized, with other weights: the same modules with the same attributes, hooks and
    tensors, so that generation takes the same time (benchmarks/generate.py), and the same tokens."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    c = transformers.LlamaConfig(vocab_size=300, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
                                 num_key_value_heads=2, max_position_embeddings=64, eos_token_id=None, pad_token_id=0)  # fmt: skip
    model, plain = transformers.LlamaForCausalLM(c), transformers.LlamaForCausalLM(c)
    quantize_(model, "nvfp4")
    convert(model)
    both = list(zip(model.named_modules(), plain.named_modules(), strict=True))
    for (name, a), (other, b) in both:
        assert name == other and type(a) is type(b) and vars(a).keys() == vars(b).keys(), name
        assert all(len(v) == len(getattr(b, k)) for k, v in vars(a).items() if isinstance(v, dict)), name  # hooks and tensors
    assert sum(type(a) is nn.Linear for (_, a), _ in both) == 15
    plain.load_state_dict(model.state_dict(), strict=True)
    prompt = torch.arange(12).reshape(1, -1)
    tokens = [m.generate(prompt, max_new_tokens=8, do_sample=False) for m in (model, plain)]
    assert torch.equal(*tokens) and tokens[0].shape == (1, 20)
