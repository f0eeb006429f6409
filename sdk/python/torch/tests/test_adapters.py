"""Adapters of PEFT: beside the quantized weight, and added to it before the quantizer."""

from __future__ import annotations

import copy

import pytest
import torch
from cage_torch import CAGE, convert, full_precision, quantize_
from torch import nn

peft = pytest.importorskip("peft")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 96), nn.Linear(96, 64)

    def forward(self, x):
        return self.down(self.up(x).tanh())


def adapted(**options):
    torch.manual_seed(0)
    m = peft.get_peft_model(Model(), peft.LoraConfig(r=4, lora_alpha=8, target_modules=["up", "down"], **options))
    for n, p in m.named_parameters():
        if "lora_B" in n:
            nn.init.normal_(p, std=0.05)
    return m


def quantized(m, **options):
    return m, quantize_(m, "absmax", bits=4, granularity="group", group=32, **options)


X = torch.randn(8, 64, generator=torch.Generator().manual_seed(1))


def test_apart():
    """Factors are left, and the layer computes Q(W)·x + s·B·A·x."""
    m, report = quantized(adapted())
    assert report.quantized == ["base_model.model.up.base_layer", "base_model.model.down.base_layer"]
    assert all("lora_" in name and why == "part of an adapter" for name, why in report.left.items())
    up = m.base_model.model.up
    w = up.base_layer.weight_quantizer.quantized(up.base_layer.weight) + up.get_delta_weight("default")
    torch.testing.assert_close(up(X), nn.functional.linear(X, w, up.base_layer.bias))
    with pytest.raises(ValueError, match='adapters="merged"'):
        CAGE(torch.optim.AdamW([p for p in m.parameters() if p.requires_grad]), m, 10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_merged(dtype):
    """The layer computes Q(W + s·B·A)·x, gradients go through the quantizer, and so do convert and PEFT's merge."""
    m = adapted().to(dtype)
    x = X.to(dtype)
    quantized(m, adapters="merged")
    up, plain = m.base_model.model.up, adapted().to(dtype)
    w = up.base_layer.weight.float() + up.scaling["default"] * (up.lora_B["default"].weight.float() @ up.lora_A["default"].weight.float())
    q = up.base_layer.weight_quantizer.quantized(w).to(dtype)
    assert torch.equal(up(x), nn.functional.linear(x, q, up.base_layer.bias))
    up(x).float().sum().backward()
    dw = x.float().sum(0).expand(96, 64)  # the gradient of W, which lies within the grid
    for got, want in ((up.lora_A["default"].weight.grad, 2 * up.lora_B["default"].weight.float().T @ dw),
                      (up.lora_B["default"].weight.grad, 2 * dw @ up.lora_A["default"].weight.float().T)):  # fmt: skip
        torch.testing.assert_close(got.float(), want, rtol=2e-2, atol=1e-4 if dtype == torch.float32 else 5e-2)
    before = m(x)
    with m.disable_adapter():
        assert not torch.equal(m(x), before)
    with full_precision(m):
        torch.testing.assert_close(m(x), plain(x), rtol=2e-2, atol=1e-5 if dtype == torch.float32 else 2e-2)
    if dtype == torch.float32:
        by_peft = copy.deepcopy(m).merge_and_unload()
        assert torch.equal(by_peft(x), before)
    convert(m)
    model = m.get_base_model()
    assert type(model.up) is nn.Linear and torch.equal(model(x), before)
    assert not any("lora" in n for n in model.state_dict())


def test_correction_of_factors():
    """Factors step along the gradient of ½‖W − Q(W)‖², found by differences of PyTorch."""
    m, _ = quantized(adapted(), adapters="merged")
    up = m.base_model.model.up
    a, b = up.factors()
    fixed = up.base_layer.weight_quantizer.quantized(up.merged_weight().detach())
    da, db = torch.autograd.grad((up.merged_weight() - fixed).square().sum() / 2, (a, b))
    before = [a.detach().clone(), b.detach().clone()]
    o = torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=0.1)
    CAGE(o, m, 1, lambda_=2.0, silence=0.0)
    for p in (a, b):
        p.grad = torch.zeros_like(p)
    o.step()
    for p, was, d in zip((a, b), before, (da, db)):
        torch.testing.assert_close(p.detach(), was - 0.2 * d)


@pytest.mark.parametrize("options, message", [
    ({"lora_dropout": 0.1}, "lora_dropout=0"), ({"use_dora": True}, "such as DoRA"), ({"lora_bias": True}, "lora_bias=False"),
])  # fmt: skip
def test_refused(options, message):
    with pytest.raises(ValueError, match=message):
        quantized(adapted(**options), adapters="merged")
    with pytest.raises(ValueError, match="get_peft_model first"):
        quantized(Model(), adapters="merged")
    with pytest.raises(ValueError, match="want 'apart' or 'merged'"):
        quantized(Model(), adapters="beside")


def test_adapters_after_quantize():
    """LoRA on a quantized model is beside Q(W); a layer that is skipped keeps its adapter as PEFT computes it."""
    m = Model()
    quantized(m)
    m = peft.get_peft_model(m, peft.LoraConfig(r=4, target_modules=["up", "down"]))
    up = m.base_model.model.up
    torch.testing.assert_close(up(X), nn.functional.linear(X, up.base_layer.weight_quantizer.quantized(up.base_layer.weight), up.base_layer.bias))
    m, report = quantized(adapted(), adapters="merged", skip=["down"])
    assert report.left["base_model.model.down.base_layer"] == "skip"
    assert not hasattr(m.base_model.model.down, "merged_weight") and hasattr(m.base_model.model.up, "merged_weight")
