"""Functions in JAX and transformations of optax as programs."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

import jax.numpy as jnp
import optax.contrib

from cage_sdk import Builder, Description, ProgramError, Site, Tensor, Type, build_optimizer, build_quantizer, executor
from cage_sdk.executor import run
from cage_sdk.jax import _Writer, from_jax, from_optax, op

X = np.array([[3.0, -1.5, 0.25, 2.0], [0.0, 1.0, -7.0, 4.0]], np.float32)
SITE = Site(role="weight", name="w", shape=X.shape)
HERE = Description("f")


def values(f, x=X, **more):
    q = build_quantizer(from_jax(f, HERE, **more), SITE)
    return run(q.program, {"x": x}, np.float32), q


def gradient(p, x, dy, monkeypatch, name="x", **inputs):
    """The gradient of the surrogate by finite differences, in which stop_gradient stays where it is."""
    kept = []
    monkeypatch.setitem(executor.OPERATIONS, "stop_gradient", lambda n, precision, v: kept.append(v) or v)
    given = {"x": np.asarray(x, float), **inputs}
    run(p, given)
    at = np.asarray(given[name], float)
    out = np.zeros(at.size)
    for i in range(at.size):
        for sign in (1, -1):
            again = iter(kept)
            monkeypatch.setitem(executor.OPERATIONS, "stop_gradient", lambda n, precision, v: next(again))
            moved = at.copy().reshape(-1)
            moved[i] += sign * 1e-3
            y = run(p, {**given, name: moved.reshape(at.shape)})["surrogate"]
            out[i] += sign * (y * dy).sum() / 2e-3
    return out.reshape(at.shape)


FUNCTIONS = {
    "softmax": lambda x: jax.nn.softmax(x, axis=-1),
    "rotation": lambda x: x * jnp.cos(x[:, ::-1]) - x[:, ::-1] * jnp.sin(x),
    "matmul": lambda x: (x @ x.T) @ x,
    "einsum": lambda x: jnp.einsum("ij,kj,kl->il", x, x, x),
    "norm": lambda x: x / jnp.linalg.norm(x, axis=1, keepdims=True),
    "var": lambda x: (x - x.mean()) / jnp.std(x, axis=0),
    "where": lambda x: jnp.where((x > 1) | jnp.isnan(x), x, -x),
    "argmax": lambda x: x * jnp.argmax(jnp.abs(x), axis=1)[:, None],
    "logic": lambda x: x * jnp.any(x > 3, axis=1)[:, None] + jnp.all(x > -2, axis=0),
    "pad": lambda x: jnp.pad(x, ((0, 0), (1, 2)), constant_values=2.5)[:, 2:6],
    "stack": lambda x: jnp.stack([x, x + 1, 2 * x], axis=1)[:, 1] + jnp.stack([x, -x], axis=-1).sum(-1) * jnp.stack([x]).sum(0),
    "tile": lambda x: jnp.tile(x, (2, 3))[1:3, 5:9] + jnp.tile(x[0], 2)[3:7],
    "split": lambda x: jnp.concatenate(jnp.split(x, 2, axis=1)[::-1], axis=1),
    "blocks": lambda x: (x.reshape(2, 2, 2) / jnp.abs(x.reshape(2, 2, 2)).max(-1, keepdims=True)).reshape(2, 4),
    "table": lambda x: jnp.array([0.0, 1.5, 4.0])[(x > 0).astype(jnp.int32) + (x > 2)],
    "powers": lambda x: x**3 + (jnp.abs(x) + 1) ** -2 + jnp.exp2(x) + jax.nn.sigmoid(x) + jax.lax.rsqrt(jnp.abs(x) + 1),
    "bits": lambda x: ((x.view(jnp.uint32) + 0x8000) & jnp.uint32(0xFFFF0000)).view(jnp.float32),
    "loop": lambda x: jax.lax.fori_loop(0, 5, lambda i, y: y * 0.5 + i, x),
    "scan": lambda x: jax.lax.scan(lambda c, r: (c + r, c * r), jnp.ones(4), x)[1],
    "reverse": lambda x: jax.lax.scan(lambda c, r: (c + r, c * r), jnp.ones(4), x, reverse=True)[1],
    "cond": lambda x: jax.lax.cond(x.sum() > 100, lambda v: v * 2, lambda v: v - 1, x),
    "switch": lambda x: jax.lax.switch(x.max().astype(jnp.int32) - 3, [jnp.abs, jnp.sign, jnp.negative], x),
    "transpose": lambda x: jnp.swapaxes(x[None], 0, 1).reshape(2, 4) * jnp.arange(4.0),
    "round": lambda x: jnp.round(x) + jnp.ceil(x) + jnp.floor(x) + jnp.trunc(x),
    "nearest": lambda x: op("nearest", x, jnp.array([-1.0, 0.5, 2.0])).astype(jnp.float32),
    "hadamard": lambda x: op("hadamard", x, block=4),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    f = FUNCTIONS[name]
    got, _ = values(lambda x, site: f(x))
    np.testing.assert_allclose(got["value"], f(X), rtol=2e-6, atol=1e-6)


INTS = np.array([[5, -5, 2**31 - 1, -(2**31)], [33554435, -33554435, 0, 7]], np.int32)
SHIFTS = np.array([[0, 1, 31, 4], [32, 33, -1, 2]], np.int32)
FLOATS = np.array([0.49999997, -0.49999997, 0.5, -2.5, 8388609, 16777215, -np.inf, np.nan], np.float32)
TABLE = np.array([1.0, 2.0, 3.0], np.float32)


def uint(f):
    """f of the bits of two operands."""
    return lambda x, y: f(x.view(jnp.uint32), y.view(jnp.uint32))


EXACT = {
    "power of zero": (lambda x: x**0, FLOATS),
    "polynomial": (lambda x: sum(c * x**i for i, c in enumerate([1.0, 2.0, 3.0])), X),
    "integer to the power of zero": (lambda x: x**0, INTS),
    "round": (jax.lax.round, FLOATS),
    "argmax": (lambda x: jnp.argmax(x, axis=0), np.stack([FLOATS, X.ravel()])),
    "argmin": (lambda x: jnp.argmin(x), FLOATS),
    "argmax of another type": (lambda x: jax.lax.argmax(x, 0, jnp.uint32), FLOATS),
    "take": (lambda i: jnp.take(TABLE, i), SHIFTS),
    "take rows": (lambda i: jnp.take(jnp.stack([TABLE, -TABLE]), i, axis=0), SHIFTS),
    "take one": (lambda i: jnp.take(TABLE, i[0, 2]), SHIFTS),
    "take with a filling": (lambda i: jnp.take(TABLE, i, mode="fill", fill_value=7.5), SHIFTS),
    "take with clipping": (lambda i: jnp.take(TABLE, i, mode="clip"), SHIFTS),
    "shift left": (jax.lax.shift_left, INTS, SHIFTS),
    "shift right": (jax.lax.shift_right_logical, INTS, SHIFTS),
    "shift right with sign": (jax.lax.shift_right_arithmetic, INTS, SHIFTS),
    "unsigned shift left": (uint(jax.lax.shift_left), INTS, SHIFTS),
    "unsigned shift right": (uint(jax.lax.shift_right_logical), INTS, SHIFTS),
    "unsigned shift right with sign": (uint(jax.lax.shift_right_arithmetic), INTS, SHIFTS),
    "constant shifts": (lambda x: (x << 33) + (x >> 40) + (x >> 3) + jax.lax.shift_right_logical(x, 23), INTS),
    "quotient": (jax.lax.div, INTS, SHIFTS),
    "remainder": (jax.lax.rem, INTS, SHIFTS),
    "unsigned quotient": (uint(jax.lax.div), INTS, SHIFTS),
    "unsigned remainder": (uint(jax.lax.rem), INTS, SHIFTS),
    "modulo": (lambda x: x % 7 + 10 * (x // 1000), INTS),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact(name):
    f, *given = EXACT[name]
    b = Builder("exact")
    inputs = [b.input(f"x{i}", Type("float" if v.dtype == np.float32 else "int", v.shape)) for i, v in enumerate(given)]
    b.output("y", _Writer(b).call(f, *inputs))
    want = np.asarray(f(*map(jnp.asarray, given)))
    for precision in (np.float32, np.float64):
        got = run(b.build(), {f"x{i}": v for i, v in enumerate(given)}, precision)["y"]
        np.testing.assert_array_equal(got, want)


def test_division():
    """Dividends and divisors of all sizes."""
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-(2**31), 2**31, 1 << 20) >> rng.integers(0, 32, 1 << 20) for _ in range(2))
    x, y = x.astype(np.int32), np.where(y == 0, 1, y).astype(np.int32)
    b = Builder("division")
    inputs = [b.input(name, Type("int", x.shape)) for name in "xy"]
    whole, rest = _Writer(b).call(lambda x, y: (jax.lax.div(x, y), jax.lax.rem(x, y)), *inputs)
    b.output("whole", whole)
    b.output("rest", rest)
    got = run(b.build(), {"x": x, "y": y}, np.float32)
    np.testing.assert_array_equal(got["whole"], jax.lax.div(x, y))
    np.testing.assert_array_equal(got["rest"], jax.lax.rem(x, y))


def test_straight_through():
    def f(x, site):
        q = jnp.round(x / 3) * 3
        return x + jax.lax.stop_gradient(q - x)

    got, q = values(f)
    assert values(lambda x, site: jax.jit(lambda x: f(x, site))(x))[1].program == q.program
    np.testing.assert_array_equal(values(lambda x, site: x + jax.lax.stop_gradient(x.mean() - x))[0]["value"], np.full_like(X, X.mean()))
    np.testing.assert_array_equal(got["value"], np.rint(X / np.float32(3)) * 3)
    assert dict(q.program.outputs)["surrogate"] == 0  # x itself


def test_no_word_of_gradients():
    _, q = values(lambda x, site: jnp.round(x))
    assert dict(q.program.outputs)["surrogate"] == 0


@jax.custom_vjp
def clipped(x, s):
    return jnp.round(jnp.clip(x / s, -3, 3)) * s


def clipped_forward(x, s):
    return clipped(x, s), (x, s)


def clipped_backward(kept, dy):
    x, s = kept
    return jnp.where(jnp.abs(x / s) < 3, dy, 0), (dy * jnp.sign(x)).sum()


clipped.defvjp(clipped_forward, clipped_backward)


def test_custom_vjp(monkeypatch):
    make = from_jax(lambda x, site: clipped(x, site.trained["s"]), HERE, init_trained=lambda x, site: {"s": jnp.mean(jnp.abs(x))})
    q = build_quantizer(make, SITE)
    dy = np.arange(1.0, 9).reshape(2, 4)
    s = run(q.init, {"x": X})["trained.s"]
    assert s == pytest.approx(np.abs(X).mean())
    inputs = {"trained.s": np.array(1.0)}
    want = clipped_backward((X, 1.0), dy)
    np.testing.assert_allclose(gradient(q.program, X, dy, monkeypatch, **inputs), want[0], atol=1e-6)
    np.testing.assert_allclose(gradient(q.program, X, dy, monkeypatch, "trained.s", **inputs), want[1], rtol=1e-5)


def test_state():
    def f(x, site):
        scale = site.state["largest"] / 7
        q = jnp.round(x / scale) * scale
        following = {"largest": jnp.max(jnp.abs(x)), "mean": site.state["mean"] * 0.5 + jnp.mean(x) * 0.5}
        return {"value": x + jax.lax.stop_gradient(q - x), "next": following}

    def start(x, site):
        return {"largest": 2 * jnp.max(jnp.abs(x)), "mean": jnp.float32(0)}

    q = build_quantizer(from_jax(f, HERE, init_state=start, maxima=["largest"]), SITE)
    state = run(q.init_state, {"x": X}, np.float32)
    assert state == {"kept.largest": 14, "kept.mean": 0} and [s.maximum for s in q.state] == [True, False]
    np.testing.assert_array_equal(run(q.program, {"x": X, **state})["value"], np.round(X / 2) * 2)
    assert run(q.next, {"x": X, **state}) == {"kept.largest": 7, "kept.mean": X.mean() / 2}
    assert q.evaluate is None or not q.evaluate.takes("step")


def test_gradient_that_is_not_linear():
    @jax.custom_vjp
    def f(x, s):
        return jnp.round(x / s) * s

    f.defvjp(lambda x, s: (f(x, s), (x, s)), lambda kept, dy: (dy * jnp.abs(dy) + kept[0], (dy * kept[1]).sum()))
    quantizer = from_jax(lambda x, site: 3 * f(x, site.trained["s"]), HERE, init_trained=lambda x, site: {"s": jnp.abs(x).max()})
    q = build_quantizer(quantizer, SITE)
    assert dict(q.program.outputs)["surrogate"] == 0
    assert [n for n, _ in q.backward.inputs] == ["x", "trained.s", "d.value"]
    dy = np.linspace(-1, 1, X.size, dtype=np.float32).reshape(X.shape)
    out = run(q.backward, {"x": X, "trained.s": 7, "d.value": dy}, np.float32)
    np.testing.assert_allclose(out["d.x"], 9 * dy * np.abs(dy) + X, rtol=1e-6)
    np.testing.assert_allclose(out["d.trained.s"], 21 * dy.sum(), atol=1e-5)


def test_gradient_that_is_linear():
    assert values(lambda x, site: clipped(x, 0.5))[1].backward is None
    assert values(lambda x, site: {"value": clipped(x, 0.5), "surrogate": x * 2})[1].backward is None


def test_noise():
    def f(x, site):
        if not site.training:
            return jnp.round(x)
        u = op("random_bits", site.noise, type=Type("uint", x.shape)) >> 8
        return jnp.floor(x + u.astype(jnp.float32) * 2.0**-24)

    q = build_quantizer(from_jax(f, HERE), SITE)
    assert q.evaluate and [n for n, _ in q.program.inputs] == ["x", "noise"]


LACKING = {
    "sort": lambda x: jnp.sort(x),
    "cumsum": lambda x: jnp.cumsum(x, axis=1),
    "while": lambda x: jax.lax.while_loop(lambda v: v.sum() < 9, lambda v: v + 1, x),
    "bfloat16": lambda x: x.astype(jnp.bfloat16).astype(jnp.float32),
    "a loop of 100 rounds": lambda x: jax.lax.fori_loop(0, 100, lambda i, y: y * 0.5, x),
    "reduce_and of int[2,4] to int[4]": lambda x: jax.lax.reduce(x.view(jnp.int32), np.int32(-1), jax.lax.bitwise_and, (0,)),
    "only rows of a table": lambda x: x[jnp.array([0, 1]), jnp.array([1, 2])][:, None] * x,
}


@pytest.mark.parametrize("text", LACKING)
def test_lacking(text):
    f = LACKING[text]
    with pytest.raises(ProgramError) as e:
        values(lambda x, site: f(x))
    assert text in str(e.value) and f"(test_jax.py:{f.__code__.co_firstlineno})" in str(e.value)


TENSOR = Tensor(name="w", role="matrix", shape=X.shape)
SCALED = {
    "sgd": lambda: optax.sgd(1.0, momentum=0.9, nesterov=True),
    "adam": lambda: optax.adam(1.0),
    "adamw": lambda: optax.adamw(1.0, weight_decay=0),
    "nadamw": lambda: optax.nadamw(1.0, weight_decay=0),
    "lion": lambda: optax.lion(1.0, weight_decay=0),
    "adafactor": lambda: optax.adafactor(1.0, min_dim_size_to_factor=2, multiply_by_parameter_scale=False),
    "adagrad": lambda: optax.adagrad(1.0),
    "adadelta": lambda: optax.adadelta(1.0),
    "adamax": lambda: optax.adamax(1.0),
    "adan": lambda: optax.adan(1.0),
    "adabelief": lambda: optax.adabelief(1.0),
    "amsgrad": lambda: optax.amsgrad(1.0),
    "fromage": lambda: optax.fromage(1.0),
    "lamb": lambda: optax.lamb(1.0),
    "lars": lambda: optax.lars(1.0),
    "novograd": lambda: optax.novograd(1.0),
    "optimistic": lambda: optax.optimistic_gradient_descent(1.0),
    "polyak": lambda: optax.polyak_sgd(1.0),
    "radam": lambda: optax.radam(1.0),
    "rmsprop": lambda: optax.rmsprop(1.0, centered=True),
    "rprop": lambda: optax.rprop(1.0),
    "sign_sgd": lambda: optax.sign_sgd(1.0),
    "sm3": lambda: optax.sm3(1.0),
    "yogi": lambda: optax.yogi(1.0),
    "chain": lambda: optax.chain(optax.clip_by_block_rms(1.0), optax.trace(0.9), optax.scale(-1)),
    "every": lambda: optax.apply_every(3),
    "schedule": lambda: optax.sgd(optax.cosine_decay_schedule(1.0, 10)),
    "ademamix": lambda: optax.contrib.ademamix(1.0, weight_decay=0),
    "adopt": lambda: optax.contrib.adopt(1.0),
    "muon": lambda: optax.contrib.muon(1.0),
    "prodigy": lambda: optax.contrib.prodigy(1.0),
    "dadapt": lambda: optax.contrib.dadapt_adamw(1.0),
    "dowg": lambda: optax.contrib.dowg(1.0),
    "cocob": lambda: optax.contrib.cocob(),
    "mechanic": lambda: optax.contrib.mechanize(optax.sgd(1.0)),
    "sophia": lambda: optax.contrib.sophia(1.0),
    "schedule_free": lambda: optax.contrib.schedule_free_sgd(1.0),
    "acprop": lambda: optax.contrib.acprop(1.0),
    "finite": lambda: optax.apply_if_finite(optax.sgd(1.0), 3),
    "lookahead": lambda: optax.lookahead(optax.sgd(1.0), 5, 0.5),
    "noisy_sgd": lambda: optax.noisy_sgd(1.0),
    "lbfgs": lambda: optax.scale_by_lbfgs(),
}
CANNOT = {
    "sophia": "random keys are not possible",
    "noisy_sgd": "random keys are not possible",
    "lookahead": "fast",
    "lbfgs": "has no operation",
}


@pytest.mark.parametrize("name", SCALED)
def test_optax(name):
    """Five updates, as optax computes them and as the programs do."""
    if name in CANNOT:
        with pytest.raises(Exception, match=CANNOT[name]):
            build_optimizer(from_optax(SCALED[name](), HERE), TENSOR)
        return
    tx = optax.with_extra_args_support(SCALED[name]())
    o = build_optimizer(from_optax(tx, HERE), TENSOR)
    x = jnp.asarray(X)
    state, kept = tx.init(x), run(o.init, {"x": x}, np.float32) if o.init else {}
    rng = np.random.default_rng(1)
    for t in range(1, 6):
        g = jnp.asarray(rng.standard_normal(X.shape), jnp.float32)
        u, state = jax.jit(tx.update)(g, state, x, value=jnp.float32(2.5))
        given = {"x": x, "gradient": g, "step": t, "loss": 2.5, **kept}
        got = run(o.update, {n: given[n] for n, _ in o.update.inputs}, np.float32)
        np.testing.assert_allclose(got.pop("direction"), -u, rtol=2e-4, atol=1e-6)
        kept, x = got, x + 0.1 * u


@pytest.mark.parametrize(
    "name, kept",
    [("adam", ["0.mu", "0.nu"]), ("lion", ["0.mu"]), ("muon", None), ("schedule_free", ["weight_sum", "z"]), ("sgd", ["0.trace"])],
)
def test_what_is_kept(name, kept):
    """Counters and constants are no state of the host's."""
    o = build_optimizer(from_optax(SCALED[name](), HERE), TENSOR)
    names = [s.name for s in o.state]
    assert not any("count" in n or "coeffs" in n for n in names)
    assert kept is None or [n for n in names if n in kept] == kept


def test_evaluate():
    tx = optax.contrib.schedule_free_sgd(1.0)
    o = build_optimizer(from_optax(tx, HERE, optax.contrib.schedule_free_eval_params), TENSOR)
    state = run(o.init, {"x": X}, np.float32)
    np.testing.assert_allclose(run(o.evaluate, {"x": X, **state}, np.float32)["weights"], X, rtol=1e-6)

    def counts(state, x):
        return x * state[0].count

    with pytest.raises(ProgramError, match="not known there"):
        build_optimizer(from_optax(optax.adam(1.0), HERE, counts), TENSOR)
