"""torch.compile of quantized layers: one graph, with the values and gradients of eager PyTorch."""

from __future__ import annotations

import pytest
import torch
from cage_torch import quantize_
from torch import nn

QUANTIZERS = {
    "absmax": {"granularity": "group", "group": 32}, "quest": {}, "mxfp4": {}, "nvfp4": {}, "lsq": {}, "paretoq": {"bits": 2},
    "mseden": {}, "grid": {"step": 0.01},
}  # fmt: skip


def results(name, activations, compiled, tokens=(4, 4), backend="aot_eager"):
    """Outputs and gradients of some batches."""
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64))
    quantize_(m, name, activations=activations, **QUANTIZERS[name])
    x = torch.randn(max(tokens), 64)
    with torch.no_grad():
        m(x[: tokens[0]])  # trained parameters start with the first batch
    run = torch.compile(m, backend=backend, fullgraph=True) if compiled else m
    out = []
    for n in tokens:
        m.zero_grad()
        own = x[:n].clone().requires_grad_()
        y = run(own)
        y.square().sum().backward()
        out += [y.detach(), own.grad, *(p.grad for p in m.parameters())]
    m.eval()
    return [*out, run(x[:4]).detach()]


@pytest.mark.parametrize("activations", [False, True])
@pytest.mark.parametrize("name", QUANTIZERS)
def test_one_graph(name, activations):
    torch._dynamo.reset()
    for a, b in zip(results(name, activations, False), results(name, activations, True), strict=True):
        assert torch.equal(a, b), (a - b).abs().max()
