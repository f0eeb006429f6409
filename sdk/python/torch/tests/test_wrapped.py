"""Models and optimizers that others have changed: hooks on layers, pruned weights, groups added later, empty batches."""

from __future__ import annotations

import pytest
import torch
from cage_torch import CAGE, QuantizedLinear, convert, optimizers, quantize_
from torch import nn
from torch.nn.utils import prune


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 32))


def train(m, o, steps=1):
    for i in range(steps):
        torch.manual_seed(i)
        o.zero_grad()
        m(torch.randn(4, 64)).square().mean().backward()
        o.step()


def test_hooks_of_accelerate():
    """A layer with a hook, as device_map gives it, is quantized, and plain again after convert."""
    hooks = pytest.importorskip("accelerate.hooks")
    m, plain, x = network(), network(), torch.randn(4, 64)
    for layer in (m[0], m[2]):
        hooks.add_hook_to_module(layer, hooks.ModelHook())
    for of in (m, plain):
        quantize_(of, "mxfp4")
    torch.testing.assert_close(m(x), plain(x), rtol=0, atol=0)
    for of in (m, plain):
        convert(of)
    torch.testing.assert_close(m(x), plain(x), rtol=0, atol=0)
    hooks.remove_hook_from_module(m[0])
    torch.testing.assert_close(m(x), plain(x), rtol=0, atol=0)


def test_what_cannot_be_quantized():
    """A pruned weight, and a layer whose forward was replaced, are left with the reason."""
    m = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64))
    prune.l1_unstructured(m[0], "weight", 0.5)
    m[1].forward = lambda x: x
    report = quantize_(m, "mxfp4")
    assert report.quantized == ["2"]
    assert "pruning" in report.left["0"] and "forward is replaced" in report.left["1"]


def test_second_correction():
    """After remove, a new correction begins at its first step; and a run that is too long is told so at whatever step."""
    m = network()
    quantize_(m, "mxfp4")
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    first = CAGE(o, m, steps=4)
    train(m, o, 4)
    first.remove()
    second = CAGE(o, m, steps=2, lambda_=1.0, silence=0.0)
    before = m[0].weight.detach().clone()
    train(m, o)
    assert not torch.equal(before, m[0].weight) and o.param_groups[0]["cage_step"] == 1
    o.param_groups[0]["cage_step"] = 3  # as after a resume of a longer run
    with pytest.warns(UserWarning, match="more than 2 steps"):
        train(m, o)
    second.remove()


def test_memory_of_the_correction():
    """The first step takes the memory that corrected ones need, and changes nothing else."""
    m = network().to(torch.bfloat16)
    quantize_(m, "mxfp4")
    o = torch.optim.SGD(m.parameters(), lr=0.0)
    CAGE(o, m, steps=100, lambda_=1.0)
    before = m[0].weight.detach().clone()
    m(torch.randn(4, 64, dtype=torch.bfloat16)).sum().backward()
    o.step()
    assert torch.equal(before, m[0].weight) and not o.state[m[0].weight]["cage_rest"].any()


def test_weights_loaded_before_convert():
    """Learned steps start from the weights that are there, also without a forward pass."""
    m, other = network(), network(1)
    quantize_(m, "lsq")
    m.load_state_dict(other.state_dict(), strict=False)
    quantize_(other, "lsq")
    for of in (m, other):
        convert(of)
    torch.testing.assert_close(m[0].weight, other[0].weight, rtol=0, atol=0)


def test_autocast():
    """Q(x) and updates of plugins are computed in float32, whatever autocast says."""
    m = network()
    quantize_(m, "quest")
    want = m[0].weight_quantizer.quantized(m[0].weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(m[0].weight_quantizer.quantized(m[0].weight), want, rtol=0, atol=0)


def test_double():
    """A correction of float64 weights keeps their digits."""
    m = network().double()
    quantize_(m, "mxfp4")
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    CAGE(o, m, steps=1, lambda_=1e-9, silence=0.0)
    m(torch.zeros(1, 64, dtype=torch.float64)).sum().backward()
    before = m[0].weight.detach().clone()
    m[0].weight.grad.zero_()
    o.step()
    change = (m[0].weight - before).abs().max()
    assert 0 < change < 1e-10


def test_empty_batch():
    """A layer whose inputs are quantized takes no rows, as nn.Linear does."""
    m = network()
    quantize_(m, "mxfp4", activations=True)
    assert m(torch.empty(0, 64)).shape == (0, 32)


def test_parameters_added_later():
    """A plugin's optimizer takes groups that are added."""
    m = network()
    o = optimizers.load("adamw", m[0].parameters(), lr=0.1)
    o.add_param_group({"params": list(m[2].parameters())})
    before = m[2].weight.detach().clone()
    train(m, o)
    assert not torch.equal(before, m[2].weight)


def test_another_optimizer_first():
    """The step of an optimizer without quantized weights does not end the step of those of another one."""
    m = network()
    quantize_(m, "mseden")
    biases = torch.optim.SGD([m[0].bias, m[2].bias], lr=0.1)
    matrices = torch.optim.SGD([m[0].weight, m[2].weight], lr=0.1)
    CAGE(matrices, m, steps=10)
    m(torch.randn(4, 64)).sum().backward()
    biases.step()
    assert isinstance(m[0], QuantizedLinear) and m[0].weight_quantizer.step == 0
    matrices.step()
    assert m[0].weight_quantizer.step == 1
