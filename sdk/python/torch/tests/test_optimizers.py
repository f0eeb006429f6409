"""Optimizers of plugins beside those of PyTorch."""

from __future__ import annotations

import copy

import pytest
import torch
from cage_torch import PluginError, optimizers


def train(make, steps=12, resume=None):
    """The parameters after some steps of a small regression; resume makes another optimizer half-way."""
    torch.manual_seed(3)
    data = [torch.randn(12, 16) for _ in range(4)]
    w = torch.nn.Parameter(torch.randn(24, 16) * 0.1)
    o = make([w])
    for i in range(steps):
        if resume and i == steps // 2:
            state = copy.deepcopy(o.state_dict())
            o = resume([w])
            o.load_state_dict(state)
        o.zero_grad()
        (data[i % 4] @ w.T).tanh().sub(0.3).square().sum().backward()
        o.step()
    return w.detach()


def test_adamw():
    want = train(lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1, betas=(0.9, 0.95)))
    got = train(lambda p: optimizers.load("adamw", p, lr=1e-2, weight_decay=0.1, beta1=0.9, beta2=0.95))
    assert (got - want).abs().max() < 1e-6


def test_sgd():
    want = train(lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9))
    got = train(lambda p: optimizers.load("sgd", p, lr=1e-2, momentum=0.9))
    assert (got - want).abs().max() < 1e-6


@pytest.mark.parametrize("name", ["adamw", "sgd", "muon", "soap", "shampoo"])
def test_resume(name):
    def make(p):
        return optimizers.load(name, p, lr=1e-2, steps=12)

    first = train(make)
    assert torch.equal(train(make, resume=make), first)
    assert not torch.equal(train(make, steps=11), first)


def test_refusals():
    with pytest.raises(PluginError, match="not meant for parameter 0 of shape"):
        optimizers.load("muon", [torch.nn.Parameter(torch.zeros(4))])
    with pytest.raises(PluginError, match="did you mean 'beta[12]'"):
        optimizers.load("adamw", [torch.nn.Parameter(torch.zeros(4))], beta=0.9)
    with pytest.raises(PluginError, match="is no optimizer"):
        optimizers.load("absmax", [torch.nn.Parameter(torch.zeros(4))])
