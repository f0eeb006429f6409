"""Tests of the classes of modules that cage wrote, which are in the directory of the first argument."""

import copy
import math
import pickle
import sys

import torch
from torch import nn

sys.path.insert(0, sys.argv[1])
torch.set_num_threads(1)
import written_absmax
import written_adamw
import written_delayed
import written_mseden
import written_quest
import written_soft


def model(width=64):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, 128, bias=False), nn.ReLU(), nn.Linear(128, width, bias=False))


def test_layers():
    """quantize_ leaves parameters, and layers that are named."""
    m = nn.ModuleDict({"a": nn.Linear(64, 64), "lm_head": nn.Linear(64, 64)})
    before = m["a"].weight
    written_quest.quantize_(m)
    assert m["a"].weight is before and isinstance(m["a"], written_quest.QuantizedLinear)
    assert type(m["lm_head"]) is nn.Linear


def test_values():
    """A layer computes with Q(weight), whose gradient is the surrogate's; evaluation does too."""
    m, x = written_quest.quantize_(model()), torch.randn(5, 64)
    layer = m[0]
    q = layer.weight_quantizer.evaluate(layer.weight)
    assert 0 < (layer.weight - q).norm() / q.norm() < 0.2
    assert torch.equal(layer(x), x @ q.T)
    m.eval()
    assert torch.equal(layer(x), x @ q.T)
    assert torch.equal(layer.weight_quantizer.error(layer.weight), layer.weight - q)
    m.train()
    layer(x).sum().backward()
    assert layer.weight.grad.abs().sum() > 0


def test_saved_value():
    """The backward pass may need Q(x) itself."""
    m = written_soft.quantize_(model())
    w = m[0].weight
    m[0].weight_quantizer(w).sum().backward()
    assert torch.allclose(w.grad, 1 - w.tanh() ** 2, atol=1e-6)


def test_bfloat16():
    """A weight in bfloat16 is quantized in float32, and Q(x) is rounded to bfloat16."""
    m = written_quest.quantize_(model().to(torch.bfloat16), activations=True)
    w, quantizer = m[0].weight, m[0].weight_quantizer
    assert torch.equal(quantizer(w), quantizer.evaluate(w.float()).to(torch.bfloat16))
    y = m(torch.randn(3, 64, dtype=torch.bfloat16))
    y.sum().backward()
    assert y.dtype == torch.bfloat16 and w.grad.dtype == torch.bfloat16


def test_copies():
    """Models can be copied and stored, before and after a step."""
    for module in written_quest, written_mseden, written_delayed:
        m = module.quantize_(model(), activations=True)
        for _ in range(2):
            for other in copy.deepcopy(m), pickle.loads(pickle.dumps(m)):
                other.load_state_dict(m.state_dict())
                a, b = (n.eval()(torch.ones(2, 64)) for n in (m, other))
                assert torch.equal(a, b)
            m.train()(torch.ones(2, 64)).sum().backward()


def test_compiled():
    """torch.compile gives the values and gradients."""
    results = []
    for compiled in False, True:
        m = written_quest.quantize_(model(), activations=True)
        f = torch.compile(m, backend="aot_eager") if compiled else m
        y = f(torch.linspace(-1, 1, 4 * 64).reshape(4, 64))
        y.square().sum().backward()
        results.append((y, m[0].weight.grad))
    for a, b in zip(*results):
        assert torch.equal(a, b), (a - b).abs().max()


def test_noise():
    """Each pass draws; the error is that of the last pass; equal seeds draw the same."""
    draws = []
    for _ in range(2):
        m = written_mseden.quantize_(model(), activations=True, seed=7)
        q, w = m[0].weight_quantizer, m[0].weight
        a, b = q(w), q(w)
        assert not torch.equal(a, b) or "noise" not in q.last
        assert torch.equal(w - b, q.error(w))
        draws.append((a, b))
    assert all(torch.equal(x, y) for x, y in zip(*draws))


def test_state():
    """State changes in training alone."""
    m = written_delayed.quantize_(model())
    q = m[0].weight_quantizer
    names = [n for n, _ in q.named_buffers() if n.startswith("kept_")]
    assert names
    before = [getattr(q, n).clone() for n in names]
    with torch.no_grad():
        m[0].weight.mul_(3)
    m.eval()(torch.ones(1, 64))
    assert all(torch.equal(getattr(q, n), v) for n, v in zip(names, before))
    m.train()(torch.ones(1, 64))
    assert not all(torch.equal(getattr(q, n), v) for n, v in zip(names, before))


def test_strength():
    """A weight that nothing else moves keeps the share of its error that follows from the strength."""
    steps = 400
    for optimizer, strength in (torch.optim.SGD, 0.5), (torch.optim.AdamW, 2.0), (written_adamw.Optimizer, 1.0):
        m = written_absmax.quantize_(model())  # its scales stay: the largest element of a row has no error
        opt = optimizer(m.parameters(), lr=0.1, weight_decay=0.0)
        schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda t: 1 - t / (2 * steps))
        written_absmax.CAGE(opt, m, steps, strength=strength, silence=0.5, scheduler=schedule)
        q, w = m[0].weight_quantizer, m[0].weight
        target, before = q.evaluate(w), q.error(w)
        for _ in range(steps):
            for p in m.parameters():
                p.grad = torch.zeros_like(p)
            opt.step()
            schedule.step()
        share = (w.detach() - target).norm() / before.norm()
        assert abs(share / math.exp(-strength) - 1) < 0.02, (optimizer, share, math.exp(-strength))
        assert opt.param_groups[0]["cage_step"] == steps
        assert opt.state_dict()["param_groups"][0]["cage_step"] == steps


def test_refusals():
    try:
        written_quest.quantize_(nn.Sequential(nn.Linear(100, 8)))
    except ValueError as error:
        assert "layer 0: quest has no program for the weight of shape 8x100" in str(error), error
        assert "--shape 8x100, or skip='0'" in str(error), error
    else:
        raise AssertionError("no error")
    m = written_quest.quantize_(model(), activations=True)
    try:
        m(torch.ones(7, 64))
    except ValueError as error:
        assert "quest has no program for the activation of shape 7x64" in str(error), error
        assert "write this file again with --shape 7x64" in str(error), error
    else:
        raise AssertionError("no error")
    try:
        written_adamw.Optimizer(nn.Linear(100, 300).parameters())
    except ValueError as error:
        assert "a parameter of shape 300x100" in str(error), error
        assert "a parameter of shape 300:" in str(error), error
    else:
        raise AssertionError("no error")
    m = model()
    opt = torch.optim.SGD(m.parameters(), lr=0.1)
    for arguments in ({"steps": 10}, {"steps": 0}, {"steps": 10, "silence": 1.0}, {"steps": 10, "strength": -1},
                      {"steps": 10, "strength": math.nan}, {"steps": 10, "strength": math.inf},
                      {"steps": 10, "strength": 1, "lambda_": 2}, {"steps": 10, "lambda_": math.inf}):
        try:
            written_quest.CAGE(opt, m, **arguments)
        except ValueError as error:
            assert "CAGE: " in str(error)
        else:
            raise AssertionError(f"no error for {arguments}")
        written_quest.quantize_(m)
    still = torch.optim.SGD(m.parameters(), lr=0.0)
    scheduled = torch.optim.SGD(m.parameters(), lr=0.1)
    torch.optim.lr_scheduler.LinearLR(scheduled)
    for opt, problem in (still, "the learning rate is 0"), (scheduled, "want scheduler"):
        try:
            written_quest.CAGE(opt, m, 10)
        except ValueError as error:
            assert problem in str(error), error
        else:
            raise AssertionError(problem)


def test_rates():
    """What a scheduler changes is as before, also a rate that is a tensor, and betas."""
    for rate in 0.1, torch.tensor(0.1):
        m = written_quest.quantize_(model(), skip="2")
        assert type(m[2]) is nn.Linear
        opt = torch.optim.Adam(m.parameters(), lr=rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(opt, 0.2, total_steps=40)
        before = float(opt.param_groups[0]["lr"]), opt.param_groups[0]["betas"]
        written_quest.CAGE(opt, m, 30, scheduler=schedule)
        assert (float(opt.param_groups[0]["lr"]), opt.param_groups[0]["betas"]) == before
        assert schedule.last_epoch == 0


def test_steps_in_bfloat16():
    m = written_quest.quantize_(model()).bfloat16()
    m[0].weight_quantizer.step += 300
    m(torch.ones(1, 64, dtype=torch.bfloat16))
    assert m[0].weight_quantizer.step == 301


def test_loaded_state():
    """State is loaded in its own types, also beside parameters in bfloat16."""
    m = model().bfloat16()
    opt = written_adamw.Optimizer(m.parameters())
    for _ in range(2):
        m(torch.ones(1, 64, dtype=torch.bfloat16)).sum().backward()
        opt.step()
    other = written_adamw.Optimizer(m.parameters())
    other.load_state_dict(pickle.loads(pickle.dumps(opt.state_dict())))
    for p in m.parameters():
        kept, loaded = opt.state[p], other.state[p]
        assert kept.keys() == loaded.keys() and loaded["step"] == 2
        assert any(torch.is_tensor(v) for v in kept.values())
        for name, value in kept.items():
            if torch.is_tensor(value):
                assert loaded[name].dtype == value.dtype and torch.equal(loaded[name], value), name


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print(name)
