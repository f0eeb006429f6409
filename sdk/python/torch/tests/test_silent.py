"""What would go wrong without a word: each test is a habit of people who train with PyTorch."""

from __future__ import annotations

import copy
import io
import warnings

import pytest
import torch
from cage_torch import CAGE, PluginError, QuantizedLinear, Quantizer, convert, quantize_
from torch import nn
from torch.utils.checkpoint import checkpoint

ABSMAX = {"bits": 3, "granularity": "group", "group": 32}


def network(name="absmax", **options):
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64))
    if name:
        quantize_(m, name, **({**ABSMAX, **options} if name == "absmax" else options))
    return m


def data(n=8, seed=1):
    return torch.randn(n, 64, generator=torch.Generator().manual_seed(seed))


def step(m, optimizer, x):
    optimizer.zero_grad()
    m(x).square().mean().backward()
    optimizer.step()


def sgd(m, **options):
    return torch.optim.SGD(m.parameters(), lr=0.05, **options)


STATEFUL = {"mseden": {}, "mseden activations": {"activations": True}, "lsq": {"activations": True},
            "nvfp4": {"activations": True, "tensor_scale": "tracked"}}  # fmt: skip


def stateful(name):
    return network(name.split()[0], **STATEFUL[name])


@pytest.mark.parametrize("name", STATEFUL)
def test_resume(name):
    """Noise, steps and state go on from a state_dict, in a model that is made anew."""
    m = stateful(name)
    o = sgd(m, momentum=0.9)
    for i in range(2):
        step(m, o, data(seed=i))
    saved = copy.deepcopy((m.state_dict(), o.state_dict()))
    again = stateful(name)
    again.load_state_dict(saved[0])
    other = sgd(again, momentum=0.9)
    other.load_state_dict(saved[1])
    for i in range(2, 4):
        step(m, o, data(seed=i))
        step(again, other, data(seed=i))
    assert all(torch.equal(a, b) for a, b in zip(m.state_dict().values(), again.state_dict().values()))


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", STATEFUL)
def test_checkpointed(name, reentrant):
    """Two batches are computed before the backward pass of either: what is computed again is what was computed."""
    results = []
    for repeat in (False, True):
        m = stateful(name)
        o = sgd(m)
        m(data())  # the first values of what is learned
        for i in range(3):
            x, y = data(seed=2 * i).requires_grad_(), data(seed=2 * i + 1).requires_grad_()
            losses = [checkpoint(m, v, use_reentrant=reentrant) if repeat else m(v) for v in (x, y)]
            o.zero_grad()
            sum(v.square().mean() for v in losses).backward()
            o.step()
        results.append(m.state_dict())
    for (n, a), b in zip(results[0].items(), results[1].values()):
        assert torch.equal(a, b), n


def test_noise():
    """It is the same until the optimizer steps, and for activations another for other values; evaluation has none."""
    m, x = stateful("mseden activations"), data()
    o = sgd(m)
    q = m[0].input_quantizer
    assert q.draws and torch.equal(m(x), m(x))
    rows = torch.cat((x, x))
    assert not torch.equal(*(q(x + e) - x for e in (0, 1e-6)))
    first = m(rows).detach()
    o.zero_grad()
    m(x).sum().backward()
    for p in m.parameters():
        p.grad.zero_()
    o.step()
    assert not torch.equal(m(rows), first)
    m.eval()
    assert torch.equal(m(x), m(x))


@pytest.mark.parametrize("name", ["absmax", "quest", "mseden", "lsq", "mxfp4"])
def test_evaluation_mode(name):
    """A model that was not set to training, as from_pretrained gives it, has gradients, and its values without them."""
    m, x = network(name), data()
    m(x).square().sum().backward()
    trained = [p.grad.clone() for p in m.parameters()]
    m.eval()
    m.zero_grad()
    y = m(x)
    y.square().sum().backward()
    for (n, p), want in zip(m.named_parameters(), trained):
        assert p.grad is not None and p.grad.norm() > 0, n
        if name != "mseden":
            assert torch.equal(p.grad, want), n
    with torch.no_grad():
        assert torch.equal(m(x), y)


def test_micro_batches():
    """Four micro-batches are one step, as is their mean; so is a step of two optimizers."""
    m = network("mseden")
    whole = copy.deepcopy(m)
    matrices = [m[0].weight, m[2].weight]
    both = [torch.optim.SGD(matrices, lr=0.05), torch.optim.SGD([m[0].bias, m[2].bias], lr=0.05)]
    one = sgd(whole)
    for i in range(3):
        x = data(16, seed=i)
        for part in x.chunk(4):
            (m(part).square().mean() / 4).backward()
        for o in both:
            o.step()
            o.zero_grad()
        step(whole, one, x)
    assert m[0].weight_quantizer.step == whole[0].weight_quantizer.step == 3
    for a, b in zip(m.parameters(), whole.parameters()):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


def test_without_gradient():
    """A pass in training mode without a gradient, as for a reference in DPO, is no step, and the steps of others are none."""
    m, x = network("mseden"), data()
    o = sgd(m)
    other = network()
    step(m, o, x)
    with torch.no_grad():
        m(x)
    step(other, sgd(other), x)
    assert m[0].weight_quantizer.step == 1


def test_optimizer_in_the_backward_pass():
    """Optimizers that step within it, one for each parameter, end the step once, after it."""
    m, x = network("mseden"), data()
    for p in m.parameters():
        p.register_post_accumulate_grad_hook(lambda p, o=torch.optim.SGD([p], lr=0.01): o.step())
    for i in range(2):
        checkpoint(m, x, use_reentrant=False).sum().backward()
        assert all(q.step == i + 1 for q in m.modules() if isinstance(q, Quantizer))


@pytest.mark.parametrize("name", ["absmax", "quest", "mseden", "lsq", "nvfp4"])
def test_copies(name):
    """deepcopy, as for a reference model or averages of weights, and torch.save of a whole model; both train on alike."""
    m, x = network(name), data()
    step(m, sgd(m), x)
    file = io.BytesIO()
    torch.save(m, file)
    file.seek(0)
    for other in (copy.deepcopy(m), torch.load(file, weights_only=False)):
        mine = copy.deepcopy(m)
        for model in (mine, other):
            o = sgd(model)
            CAGE(o, model, 3, strength=1.0, silence=0.0)
            for _ in range(3):
                step(model, o, x)
        assert all(torch.equal(a, b) for a, b in zip(mine.state_dict().values(), other.state_dict().values()))
        assert repr(other) == repr(mine)
    average = torch.optim.swa_utils.AveragedModel(m)
    average.update_parameters(m)
    assert torch.equal(average.module.eval()(x), m.eval()(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["absmax", "quest", "lsq", "mseden"])
def test_types(name, dtype):
    """model.to(dtype) after quantize_: Q(x) is that of the rounded weights, and learned steps keep their precision."""
    m = network(name)
    own = {n: p.clone() for n, p in m.named_parameters() if "quantizer" in n}
    m.to(dtype)
    for n, p in own.items():
        assert torch.equal(m.get_parameter(n), p)
    q = m[0].weight_quantizer
    m(data().to(dtype)).float().sum().backward()
    assert m[0].weight.grad.dtype == dtype and all(p.grad.dtype == torch.float32 for n, p in m.named_parameters() if "quantizer" in n)
    assert torch.equal(q.eval()(m[0].weight), q.quantized(m[0].weight).to(dtype))
    m.float()
    assert torch.equal(q(m[0].weight), q.quantized(m[0].weight))


@pytest.mark.parametrize("name", ["absmax", "quest", "lsq", "mxfp4"])
def test_autocast(name):
    """Q(x) and its gradient are those without it: a rotation in bfloat16 would move weights to other codes."""
    m = network(name, **({"rotation": "32"} if name == "mxfp4" else {}))
    q, w = m[0].weight_quantizer, m[0].weight
    results = []
    for enabled in (False, True):
        w.grad = None
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            y = q(w)
            y.square().sum().backward()
        results.append((y.detach(), w.grad))
    assert all(torch.equal(a, b) for a, b in zip(*results))
    with torch.autocast("cpu", torch.bfloat16):
        assert m(data()).dtype == torch.bfloat16


def test_tied():
    """A weight that an embedding has, too, is left, and said so; one layer that is used twice is quantized once."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.body, self.out = nn.Embedding(16, 64), nn.Linear(64, 64), nn.Linear(64, 16, bias=False)
            self.again = self.body
            self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)
            self.out.weight, self.b.weight = self.embed.weight, self.a.weight

        def forward(self, tokens):
            return self.out(self.again(self.body(self.embed(tokens)).tanh()))

    m = Model()
    report = quantize_(m, "absmax", **ABSMAX)
    assert report.quantized == ["body"]
    assert report.left["out"] == "its weight is also that of embed" and report.left["b"] == "its weight is also that of a"
    w = m.body.weight
    with torch.no_grad():
        plain = nn.functional.linear(m.embed.weight, m.body.weight_quantizer.quantized(w), m.body.bias).tanh()
        plain = nn.functional.linear(plain, m.body.weight_quantizer.quantized(w), m.body.bias) @ m.out.weight.T
    assert torch.equal(m(torch.arange(16)), plain)


def test_left():
    """What cannot be quantized is named: weights in other forms, experts in three dimensions."""
    m = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64))
    m[1].weight = nn.Parameter(m[1].weight.to(torch.float8_e4m3fn), requires_grad=False)
    torch.nn.utils.parametrizations.weight_norm(m[2])
    left = quantize_(m, "absmax").left
    assert "float8" in left["1"] and "Parametrized" in left["2"]
    transformers = pytest.importorskip("transformers")
    c = transformers.MixtralConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                                   num_key_value_heads=2, num_local_experts=4)  # fmt: skip
    report = quantize_(transformers.MixtralForCausalLM(c), "absmax")
    experts = [n for n in report.left if n.endswith("experts")]
    assert experts and "[4, 128, 32]" in report.left[experts[0]] and len(report.quantized) == 4
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2))
    with pytest.raises(ValueError, match="Conv1D of transformers"):
        quantize_(gpt2, "absmax")


def test_empty():
    """On meta, then to_empty and load_state_dict: right, or refused where a quantizer would start from nothing."""
    want = network()
    with torch.device("meta"):
        m = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64))
    for name in ("lsq", "mseden"):
        with pytest.raises(ValueError, match="load the model's weights first"):
            quantize_(m, name)
    quantize_(m, "absmax", **ABSMAX)
    m.to_empty(device="cpu")
    m.load_state_dict(want.state_dict())
    assert torch.equal(m(data()), want(data()))


def test_state_dicts():
    """Strict loading refuses what is missing or too much; weights alone start learned steps anew; other parts do not."""
    plain, m = network(None), network("lsq")
    with pytest.raises(RuntimeError, match="Unexpected key.*trained_step"):
        plain.load_state_dict(m.state_dict())
    with pytest.raises(RuntimeError, match="Missing key.*trained_step"):
        m.load_state_dict(plain.state_dict())
    m = network("lsq")
    before = m[0].weight_quantizer.trained_step.clone()
    m.load_state_dict({"0.bias": torch.zeros(96)}, strict=False)
    m(data())
    assert torch.equal(m[0].weight_quantizer.trained_step, before)
    with torch.no_grad():
        plain[0].weight.mul_(100)
    m.load_state_dict(plain.state_dict(), strict=False)
    m(data())
    fresh = copy.deepcopy(plain)
    quantize_(fresh, "lsq")
    assert torch.equal(m[0].weight_quantizer.trained_step, fresh[0].weight_quantizer.trained_step)


def test_data_parallel():
    """It copies modules for each pass, so that what they remember is lost."""
    with pytest.raises(PluginError, match="DistributedDataParallel"):
        network("lsq")[0].weight_quantizer._replicate_for_data_parallel()
    assert isinstance(network()[0]._replicate_for_data_parallel(), QuantizedLinear)


OPTIMIZERS = {
    "foreach": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=True), "fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "plain": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=False), "tensor": lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-3)),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_forms_of_optimizers(name):
    """The correction is the same after each form of a step."""

    def train(make):
        m = network()
        o = make(m.parameters())
        CAGE(o, m, 6, strength=1.0, silence=0.0)
        for i in range(6):
            step(m, o, data(seed=i))
        return m[0].weight

    assert (train(OPTIMIZERS[name]) - train(OPTIMIZERS["plain"])).abs().max() < 1e-6


def test_closures():
    """The first gradient is made within the step; LBFGS evaluates several times in one."""
    ways = []
    for closure in (False, True):
        m, x = network(), data()
        o = sgd(m)
        CAGE(o, m, 3, lambda_=5.0, silence=0.0)

        def again(m=m, o=o, x=x):
            o.zero_grad()
            loss = m(x).square().mean()
            loss.backward()
            return loss

        for _ in range(3):
            if not closure:
                again()
            o.step(again if closure else None)
        ways.append(m[0].weight)
    assert torch.equal(*ways)
    m = network("mseden")
    o = torch.optim.LBFGS(m.parameters(), max_iter=4)
    CAGE(o, m, 2, lambda_=1.0, silence=0.0)

    def loss():
        o.zero_grad()
        value = m(data()).square().mean()
        value.backward()
        return value

    o.step(loss)
    assert m[0].weight_quantizer.step == 1


def test_scaler():
    """GradScaler skips a step whose gradients are not finite: neither are weights corrected, nor is it counted."""
    for fused in (False, True):
        m = network()
        o = torch.optim.AdamW(m.parameters(), lr=1e-2, weight_decay=0, fused=fused)
        CAGE(o, m, 4, lambda_=10.0, silence=0.0)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        before = m[0].weight.clone()
        for bad in (True, False):
            o.zero_grad()
            scaler.scale(m(data()).square().mean()).backward()
            if bad:
                m[0].weight.grad[0, 0] = torch.inf
            scaler.step(o)
            scaler.update()
            assert torch.equal(m[0].weight, before) == bad
        assert o.param_groups[0]["cage_step"] == 1


def test_groups():
    """Each group has the strength at its own rate; a group that is added later would have none."""
    m = network()
    o = torch.optim.SGD([{"params": m[0].parameters(), "lr": 0.1}, {"params": m[2].parameters(), "lr": 0.001}])
    c = CAGE(o, m, 10, strength=1.0, silence=0.0)
    for group, top in zip(o.param_groups, c.lambdas):
        assert sum(group["lr"] * top * r for r in c.ramp) == pytest.approx(1.0)
    o.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})
    with pytest.raises(ValueError, match="last add_param_group"):
        o.step()


def test_replaced_parameters():
    """A wrapper that replaces parameters, in the optimizer, too, keeps the correction; otherwise the step says so."""
    m = network()
    o = sgd(m)
    CAGE(o, m, 4, lambda_=10.0, silence=0.0)
    for layer in (m[0], m[2]):
        layer.weight = nn.Parameter(layer.weight.detach().clone())
    with pytest.raises(ValueError, match="no quantized weight"):
        o.step()
    o.param_groups[0]["params"] = list(m.parameters())
    m(data()).sum().backward()
    for p in m.parameters():
        p.grad.zero_()
    before = m[0].weight.clone()
    o.step()
    assert not torch.equal(m[0].weight, before)
    convert(m)
    with pytest.raises(ValueError, match="convert last"):
        o.step()


def test_resumed_correction():
    """The optimizer's state_dict has the step of the correction and what bfloat16 has rounded off."""
    weights = []
    for stop in (False, True):
        m = network().to(torch.bfloat16)
        o = torch.optim.AdamW(m.parameters(), lr=1e-3)
        CAGE(o, m, 8, strength=1.0, silence=0.0)
        for i in range(8):
            if stop and i == 4:
                saved = copy.deepcopy((m.state_dict(), o.state_dict()))
                m = network().to(torch.bfloat16)
                o = torch.optim.AdamW(m.parameters(), lr=1e-3)
                CAGE(o, m, 8, strength=1.0, silence=0.0)
                m.load_state_dict(saved[0])
                o.load_state_dict(saved[1])
            step(m, o, data(seed=i).to(torch.bfloat16))
        weights.append(m[0].weight)
    assert torch.equal(*weights)


def test_decay_of_learned_steps():
    m = network("lsq")
    with pytest.warns(UserWarning, match="weight_decay=0"):
        CAGE(torch.optim.AdamW(m.parameters(), lr=1e-3, weight_decay=0.1), m, 10)
    own = [p for n, p in m.named_parameters() if "quantizer" in n]
    rest = [p for n, p in m.named_parameters() if "quantizer" not in n]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CAGE(torch.optim.AdamW([{"params": rest, "weight_decay": 0.1}, {"params": own, "weight_decay": 0.0}], lr=1e-3), m, 10)


def test_schedulers_that_need_a_metric():
    m = network()
    o = sgd(m)
    with pytest.raises(ValueError, match="depend on a metric: want lambda_"):
        CAGE(o, m, 10, scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau(o))
    CAGE(o, m, 10, lambda_=1.0, scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau(o))
    transformers = pytest.importorskip("transformers")
    if hasattr(transformers.optimization, "GreedyLR"):
        with pytest.raises(ValueError, match="GreedyLR depend on a metric"):
            CAGE(o, m, 10, scheduler=transformers.optimization.GreedyLR(o))


def test_schedulers_in_parts():
    """One scheduler after the other, and rates that come with momentum: λ is that of the rates that are used."""
    schedulers = torch.optim.lr_scheduler
    for make in (
        lambda o: schedulers.SequentialLR(o, [schedulers.LinearLR(o, 0.1, 1.0, 3), schedulers.CosineAnnealingLR(o, 7)], [3]),
        lambda o: schedulers.ChainedScheduler([schedulers.ConstantLR(o, 0.5, 4), schedulers.ExponentialLR(o, 0.9)]),
        lambda o: schedulers.OneCycleLR(o, 0.1, 11),
        lambda o: schedulers.CyclicLR(o, 0.01, 0.1, 3),
    ):
        m = network()
        o = sgd(m, momentum=0.9)
        scheduler = make(o)
        c = CAGE(o, m, 10, strength=1.0, silence=0.0, scheduler=scheduler)
        total = 0.0
        for i in range(10):
            total += o.param_groups[0]["lr"] * c.ramp[i] * c.lambdas[0]
            step(m, o, data())
            scheduler.step()
        assert total == pytest.approx(1.0)


def test_accelerate():
    """Its wrappers of the optimizer and the scheduler are looked through."""
    accelerate = pytest.importorskip("accelerate")
    m = network()
    o = torch.optim.AdamW(m.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(o, lambda t: 1 - t / 10)
    a = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    m, o, scheduler = a.prepare(m, o, scheduler)
    c = CAGE(o, m, 10, strength=1.0, silence=0.0, scheduler=scheduler)
    assert c._decays and sum(1e-2 * (1 - t / 10) * r * c.lambdas[0] for t, r in enumerate(c.ramp)) == pytest.approx(1.0)
    for i in range(4):
        with a.accumulate(m):
            a.backward(m(data(seed=i)).square().mean())
            o.step()
            o.zero_grad()
    assert o.param_groups[0]["cage_step"] == 2


def test_two_optimizers():
    """The step of one optimizer does not end that of quantizers of the other's weights."""
    m = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    quantize_(m, "mseden")
    first, second = (torch.optim.SGD(layer.parameters(), lr=0.1) for layer in m)
    m(torch.randn(4, 32)).sum().backward()
    used = m[1].weight_quantizer(m[1].weight)
    first.step()
    assert [int(layer.weight_quantizer.step) for layer in m] == [1, 0]
    assert torch.equal(m[1].weight_quantizer(m[1].weight), used)
    second.step()
    assert [int(layer.weight_quantizer.step) for layer in m] == [1, 1]
    other = copy.deepcopy(m)
    other(torch.randn(4, 32)).sum().backward()
    torch.optim.SGD(other[0].parameters(), lr=0.1).step()
    assert [int(layer.weight_quantizer.step) for layer in other] == [2, 1]


def test_one_correction():
    m = nn.Sequential(nn.Linear(32, 32))
    quantize_(m, "absmax")
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    correction = CAGE(optimizer, m, steps=10)
    with pytest.raises(ValueError, match="has a correction"):
        CAGE(optimizer, m, steps=10)
    correction.remove()
    CAGE(optimizer, m, steps=10)


@pytest.mark.parametrize("skip", ["0", ["1"], ["self_attn"]])
def test_skip(skip):
    with pytest.raises(ValueError, match="skip"):
        quantize_(nn.Sequential(nn.Linear(32, 32)), "absmax", skip=skip)
