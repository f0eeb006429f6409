"""Two processes beside one: FSDP2, which divides weights, and DDP, with each shipped quantizer and optimizer, and the correction."""

from __future__ import annotations

import os
import socket

import pytest
import torch
import torch.distributed as dist
from cage_torch import CAGE, PluginError, optimizers, quantize_
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

QUANTIZERS = {
    "lsq": {}, "absmax": {"granularity": "group", "group": 32}, "quest": {}, "mxfp4": {}, "nvfp4": {}, "paretoq": {"bits": 2},
    "mseden": {}, "grid": {},
}  # fmt: skip
OPTIMIZERS = {"adamw": {"eps": 1e-3}, "sgd": {"momentum": 0.9}, "muon": {}, "soap": {"eps": 1e-3}, "shampoo": {"eps": 1e-3}}
DATA = torch.randn(8, 64, generator=torch.Generator().manual_seed(1))
STEPS = 6


def train(name, wrap, part):
    """The parameters after some steps on a part of the data."""
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64))
    quantize_(m, name, **QUANTIZERS[name])
    m = wrap(m)
    optimizer = torch.optim.SGD(m.parameters(), lr=0.05)
    CAGE(optimizer, m, STEPS, strength=1.0, silence=0.2)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (m(DATA[part]) - DATA[part]).square().mean().backward()
        optimizer.step()
    return {n.removeprefix("module."): (p.full_tensor() if hasattr(p, "full_tensor") else p).detach() for n, p in m.named_parameters()}


def optimized(name, wrap, part):
    """The same with an optimizer of a plugin, whose state is copied to another one half-way."""
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64))
    quantize_(m, "grid", step=2.0**-10)
    m = wrap(m)

    def make():
        matrices, rest = ([p for p in m.parameters() if (p.ndim == 2) == of] for of in (True, False))
        o = optimizers.load(name, matrices, lr=1e-3, weight_decay=0.1, **OPTIMIZERS[name])
        CAGE(o, m, STEPS, strength=1.0, silence=0.2)
        return o, torch.optim.SGD(rest, lr=0.05)

    both = make()
    for i in range(STEPS):
        if i == STEPS // 2:
            state = both[0].state_dict()
            both = make()
            both[0].load_state_dict(state)
        m.zero_grad()
        (m(DATA[part]) - DATA[part]).square().mean().backward()
        for o in both:
            o.step()
    return {n.removeprefix("module."): (p.full_tensor() if hasattr(p, "full_tensor") else p).detach() for n, p in m.named_parameters()}


def sharded(m):
    for layer in (m[0], m[2]):
        fully_shard(layer)
    fully_shard(m)
    return m


def process(rank, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    part = slice(4 * rank, 4 * rank + 4)
    found = {}
    for name in QUANTIZERS:
        for kind, wrap in (("FSDP2", sharded), ("DDP", DistributedDataParallel)):
            found[name, kind] = train(name, wrap, part)
    for name in OPTIMIZERS:
        for kind, wrap in (("FSDP2", sharded), ("DDP", DistributedDataParallel)):
            found[name, kind] = optimized(name, wrap, part)
    try:
        quantize_(sharded(nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))), "absmax")
    except ValueError as e:
        found["refused"] = str(e)
    if rank == 0:
        torch.save(found, results)
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    results = tmp_path_factory.mktemp("two") / "results"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(process, (port, results), nprocs=2)
    return torch.load(results)


@pytest.mark.parametrize("kind", ["FSDP2", "DDP"])
@pytest.mark.parametrize("name", QUANTIZERS)
def test_two_processes(two, name, kind):
    """The mean of gradients is taken in another order, so that last bits differ; a weight at a boundary may go the other way."""
    one = train(name, lambda m: m, slice(0, 8))
    assert set(two[name, kind]) == set(one)
    for n, p in one.items():
        off = (two[name, kind][n] - p).abs()
        assert off.max() < 1e-5, f"{n}: {off.max()}"


@pytest.mark.parametrize("kind", ["FSDP2", "DDP"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(two, name, kind):
    """Each process computes the update of the whole from the same mean gradient."""
    one = optimized(name, lambda m: m, slice(0, 8))
    for n, p in one.items():
        off = (two[name, kind][n] - p).abs()
        assert off.max() < 1e-5, f"{n}: {off.max()}"


def test_refusal(two):
    assert "call quantize_ before the model is divided" in two["refused"]
