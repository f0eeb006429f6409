"""What plugins answer: the programs of their capabilities, refusals and mistakes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cage_sdk import (
    Bool, Choice, Description, Due, Float, Int, Optimizer, ProgramError, Quantized, Quantizer, Site, String, Tensor,
    Type, build_optimizer, build_quantizer, wire,
)  # fmt: skip
from cage_sdk.executor import run

SITE = Site(role="weight", name="w", shape=(2, 4), values={"bits": 4})
TENSOR = Tensor(name="w", role="matrix", shape=(2, 4), values={"beta": 0.9})


class Plain(Quantizer):
    description = Description("plain")

    def quantize(self, b, x, site):
        return Quantized(x.round())


class Stochastic(Plain):
    def quantize(self, b, x, site):
        if not site.training:
            return Quantized(x.round())
        return Quantized((x + b.random_bits(site.noise, *site.shape).convert("float") * 2.0**-32).floor())


class Learned(Plain):
    def init_trained(self, b, x, site):
        return {"step": x.abs().max_all() * (1 / 7)}

    def quantize(self, b, x, site):
        codes = (x / site.trained["step"]).round()
        return Quantized(codes * site.trained["step"], codes=codes, scale=site.trained["step"])

    def unpack(self, b, codes, scale, site):
        return codes * scale


def test_plain():
    q = build_quantizer(Plain(), SITE)
    assert str(q.program) == (
        "program plain/w(%0 x: float[2,4]) {\n  %1 = round %0 : float[2,4]\n  return value=%1 surrogate=%0\n}\n"
    )
    assert q.evaluate is None and q.init is None and q.unpack is None


def test_noise():
    q = build_quantizer(Stochastic(), SITE)
    assert [n for n, _ in q.program.inputs] == ["x", "noise"] and [n for n, _ in q.evaluate.inputs] == ["x"]
    got = run(q.program, {"x": np.full((2, 4), 0.5), "noise": [1, 2]})["value"]
    assert set(got.ravel()) <= {0.0, 1.0}


def test_noise_in_evaluation():
    class Wrong(Plain):
        def quantize(self, b, x, site):
            return Quantized(x + b.random_bits(site.noise, 2, 4).convert("float"))

    with pytest.raises(ProgramError, match=r"for evaluation: site.noise is there .* \(test_plugins.py:\d+\)"):
        build_quantizer(Wrong(), SITE)


def test_trained_and_packed():
    q = build_quantizer(Learned(), SITE)
    x = np.arange(8.0).reshape(2, 4)
    step = run(q.init, {"x": x})["trained.step"]
    out = run(q.program, {"x": x, "trained.step": step})
    assert step == 1 and q.trained[0].name == "step"
    np.testing.assert_array_equal(run(q.unpack, {"codes": out["codes"], "scale": out["scale"]})["value"], out["value"])


@pytest.mark.parametrize(
    "answer, text",
    [
        (lambda x: Quantized(x.reduce_max(1)), "value is float[2]: it must be float[2,4]"),
        (lambda x: Quantized(x, mask=x), "mask is float[2,4]: it must be bool[2,4]"),
        (lambda x: Quantized(x, codes=x > 0), "codes are bool: they must be numbers"),
        (lambda x: Quantized(x, scale=x > 0), "scale is bool[2,4]: it must be float"),
        (lambda x: Quantized(None), "give a Value of this program"),
    ],
)
def test_wrong_answers(answer, text):
    class Wrong(Plain):
        def quantize(self, b, x, site):
            return answer(x)

    with pytest.raises(ProgramError) as e:
        build_quantizer(Wrong(), SITE)
    assert text in str(e.value)


class Everything(Optimizer):
    """Has every capability."""

    description = Description("everything", parameters=[Float("beta", 0.9, 0, 1, "decay")])

    def accepts(self, t):
        return len(t.shape) == 2

    def init(self, b, x, t):
        return {"m": b.zeros(*t.shape), "c": b.zeros(t.shape[0], t.shape[0])}

    def collect(self, b, given, t):
        return {"norm2": given.gradient.square().sum_all()}

    def update(self, b, given, t):
        m = given.state["m"] * t.float("beta") + given.gradient / given.sums["norm2"].sqrt()
        return m, {"m": m, "c": given.state["c"]}

    def observe(self, b, given, t):
        g = given.gradient
        return {"c": g @ g.transpose(1, 0)}

    def refresh(self, b, step, state, first, t):
        return {"c": state["c"].qr()}

    def refresh_at(self, t):
        return Due(1, 10, 10)

    def rate(self, b, given, t):
        return given.rate * 2

    def evaluate(self, b, x, state, t):
        return x + state["m"]


def test_optimizer():
    o = build_optimizer(Everything(), TENSOR)
    assert [s.name for s in o.state] == ["c", "m"]
    assert [n for n, _ in o.update.inputs] == ["x", "gradient", "step", "state.c", "state.m", "global.norm2"]
    assert [n for n, _ in o.rate.inputs] == ["x", "gradient", "step", "state.c", "state.m", "rate"]
    assert [n for n, _ in o.collect.inputs] == ["x", "gradient", "step", "state.c", "state.m"]
    assert o.first_refresh.name == "everything/first_refresh/w" and o.refresh and o.observe and o.evaluate
    assert build_optimizer(Everything(), Tensor(name="v", role="vector", shape=(3,))) is None


def test_refresh_with_gradient():
    class Given(Everything):
        def refresh(self, b, step, state, first, t, gradient):
            return {"m": gradient}

    assert [n for n, _ in build_optimizer(Given(), TENSOR).refresh.inputs] == ["step", "state.c", "state.m", "gradient"]
    assert [n for n, _ in build_optimizer(Everything(), TENSOR).refresh.inputs] == ["step", "state.c", "state.m"]


def test_annealed():
    class Annealed(Plain):
        def quantize(self, b, x, site):
            if not site.training:
                return Quantized(x.round())
            return Quantized(x + (x.round() - x) * (site.step / site.steps))

    q = build_quantizer(Annealed(), SITE)
    assert [n for n, _ in q.program.inputs] == ["x", "step", "steps"] and [n for n, _ in q.evaluate.inputs] == ["x"]


def test_probe_and_storage():
    class Sharp(Everything):
        def observe(self, b, given, t):
            return {}

        def refresh_at(self, t):
            return Due()

        def probe(self, b, given, t):
            return given.gradient * 0.05

        def probe_at(self, t):
            return Due(1, 2, 1)

        def storage(self, t):
            return {"m": "bfloat16"}

        def update(self, b, given, t):
            _, state = super().update(b, given, t)
            return given.probed * given.probing, state

    o = build_optimizer(Sharp(), TENSOR)
    assert [n for n, _ in o.update.inputs][-3:] == ["global.norm2", "probed", "probing"] and o.probe.outputs[0][0] == "offset"
    m = wire.to_optimizer_program(o)
    assert m.probe_due.every == 1 and [s.storage for s in m.state] == [0, 3] and not m.HasField("due")


def test_rounded():
    class Round(Everything):
        to = "bfloat16"

        def round_to(self, t):
            return self.to

        def update(self, b, given, t):
            u, state = super().update(b, given, t)
            state["m"] = state["m"].stochastic_bfloat16(b.random_bits(given.noise, *t.shape))
            return u, state

    o = build_optimizer(Round(), TENSOR)
    assert o.rounded == "bfloat16" and wire.to_optimizer_program(o).rounded == 3
    assert build_optimizer(Everything(), TENSOR).rounded == "float32"
    Round.to = "int8"
    with pytest.raises(ProgramError, match="round_to"):
        build_optimizer(Round(), TENSOR)


def test_sampled():
    class Sampled(Everything):
        def sample_at(self, t):
            return Due(1, 1, 10)

        def update(self, b, given, t):
            _, state = super().update(b, given, t)
            return given.probed.square(), state

    o = build_optimizer(Sampled(), TENSOR)
    assert [n for n, _ in o.update.inputs][-1] == "probed" and o.probe is None
    m = wire.to_optimizer_program(o)
    assert m.sampled and m.probe_due.every == 10

    class Both(Sampled):
        def probe(self, b, given, t):
            return given.gradient

        def probe_at(self, t):
            return Due(1, 1, 1)

    with pytest.raises(ProgramError, match="one second gradient"):
        build_optimizer(Both(), TENSOR)


@pytest.mark.parametrize("method", ["probe_at", "sample_at", "refresh_at"])
@pytest.mark.parametrize(
    "due, text",
    [
        (Due(0, 1, 1), "first = 0 means never, so next and every must be 0"),
        (Due(1, 2), "every = 0 means only once, so next must be 0"),
        (Due(1, 1, -1), "want numbers from 0 to 2147483647"),
    ],
)
def test_due(method, due, text):
    class Optimizer(Everything):
        def sample_at(self, t):
            return Due()

        def probe(self, b, given, t):
            return given.gradient

        def probe_at(self, t):
            return Due()

    setattr(Optimizer, method, lambda self, t: due)
    with pytest.raises(ProgramError) as e:
        build_optimizer(Optimizer(), TENSOR)
    assert str(e.value) == f"{method} returns {due}: {text}"


def test_shared_and_constrained():
    class Rotated(Learned):
        def shared(self, p, site):
            return "all"

        def constrain(self, b, p, v, site):
            return v.max(1e-8)

    (s,) = wire.to_quantizer_program(build_quantizer(Rotated(), SITE)).trained
    assert s.shared == "all" and s.constrain.name == "plain/constrain/all/step"


class Averaging(Plain):
    """Rounds to multiples of a moving average."""

    def init_state(self, b, x, site):
        return {"average": x.abs().mean_all(), "peak": x.abs().max_all()}

    def maximum(self, s, site):
        return s == "peak"

    def quantize(self, b, x, site):
        average = site.state["average"]
        following = {"average": average * 0.75 + x.abs().mean_all() * 0.25, "peak": x.abs().max_all()}
        return Quantized((x / average).round() * average, next=following)


def test_state():
    q = build_quantizer(Averaging(), SITE)
    assert [n for n, _ in q.program.inputs] == [n for n, _ in q.next.inputs] == ["x", "kept.average", "kept.peak"]
    assert [n for n, _ in q.program.outputs] == ["value", "surrogate"] and q.evaluate is None
    assert q.init_state.name == "plain/init_state/w" and q.next.name == "plain/next/w"
    x = np.arange(8.0).reshape(2, 4)
    state = run(q.init_state, {"x": x})
    assert state == {"kept.average": 3.5, "kept.peak": 7}
    np.testing.assert_array_equal(run(q.program, {"x": x, **state})["value"], np.round(x / 3.5) * 3.5)
    assert run(q.next, {"x": 3 * x, **state}) == {"kept.average": 5.25, "kept.peak": 21}
    m = wire.to_quantizer_program(q)
    assert [(s.name, s.maximum) for s in m.state] == [("average", False), ("peak", True)] and m.HasField("next")


@pytest.mark.parametrize(
    "answer, text",
    [
        (lambda x: Quantized(x), r"next is none: it must be what init_state returns, average \[\], peak \[\]"),
        (lambda x: Quantized(x, next={"average": x, "peak": x}), r"next is average \[2, 4\], peak \[2, 4\]"),
        (lambda x: Quantized(x, next={"average": x.max_all(), "peak": None}), r'output "kept.peak": is None'),
    ],
)
def test_wrong_state(answer, text):
    class Wrong(Averaging):
        def quantize(self, b, x, site):
            return answer(x)

    with pytest.raises(ProgramError, match=text):
        build_quantizer(Wrong(), SITE)


class Smoothed(Plain):
    """Factors for columns, from statistics of both operands of a product."""

    def init_state(self, b, x, site):
        return {"factors": site.activations.max / site.weights.mean}

    def quantize(self, b, x, site):
        return Quantized((x * site.state["factors"]).round() / site.state["factors"], next=site.state)


def test_columns():
    q = build_quantizer(Smoothed(), SITE)
    row = Type("float", (1, 4))
    assert list(q.init_state.inputs) == [("x", Type("float", SITE.shape)), ("activations.max", row), ("weights.mean", row)]
    x = np.ones((2, 4))
    state = run(q.init_state, {"x": x, "activations.max": [[1.0, 2, 3, 4]], "weights.mean": [[2.0, 2, 2, 2]]})
    np.testing.assert_array_equal(state["kept.factors"], [[0.5, 1, 1.5, 2]])
    np.testing.assert_array_equal(run(q.next, {"x": x, **state})["kept.factors"], state["kept.factors"])

    class Late(Smoothed):
        def quantize(self, b, x, site):
            return Quantized(x * site.activations.max, next=site.state)

    with pytest.raises(ProgramError, match="site.activations is there in init_trained and init_state only"):
        build_quantizer(Late(), SITE)


def test_promise_with_state():
    class Promises(Averaging):
        def quantize(self, b, x, site):
            return replace(super().quantize(b, x, site), homogeneous=True)

    with pytest.raises(ProgramError, match="cannot hold with the state average"):
        build_quantizer(Promises(), SITE)


def test_forgotten_state():
    class Forgets(Everything):
        def update(self, b, given, t):
            return given.gradient, {"m": given.gradient}

    with pytest.raises(ProgramError, match="must return what init does"):
        build_optimizer(Forgets(), TENSOR)


def test_settings():
    with pytest.raises(TypeError, match="'depth', which it does not declare"):
        SITE.int("depth")
    with pytest.raises(TypeError, match="'bits' as float, but it is 4"):
        SITE.float("bits")


@pytest.mark.parametrize(
    "d, text",
    [
        (Description("Upper"), "name 'Upper'"),
        (Description("a", parameters=[Int("n", 9, 0, 8, "")]), "default: got 9, want 0 to 8"),
        (Description("a", parameters=[Float("n", 1, 2, 1, "")]), "no number lies between 2 and 1"),
        (Description("a", parameters=[Choice("c", "x", ["y", "z"], "")]), "got 'x', want y, z"),
        (Description("a", parameters=[Bool("n", True, ""), String("n", "", "")]), "the name is taken"),
    ],
)
def test_descriptions(d, text):
    with pytest.raises(ValueError) as e:
        d.check()
    assert text in str(e.value)


def test_description_text():
    d = Description("a", "1", "What it is.", [Float("x", 1, -math.inf, 3, "a number")])
    assert str(d) == "version 1\nWhat it is.\n  x = 1.0 (at most 3)  a number"
