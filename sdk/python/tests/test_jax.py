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
    "rotation": lambda x: x * jnp.cos(jnp.roll(x, 2, axis=1)) - jnp.roll(x, 2, axis=1) * jnp.sin(x),
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
    "reshape in another order": lambda x: jax.lax.reshape(x, (2, 4), dimensions=(1, 0)),
    "reduce_precision": lambda x: jax.lax.reduce_precision(jnp.where(x > 3, jnp.inf, 1.2345 * x), 8, 7),
    "few exponents": lambda x: jax.lax.reduce_precision(x * x * x * 3.3 - 1e-3 * x, 4, 3),
    "switch on a constant": lambda x: jax.lax.switch(1, [jnp.sort, lambda v: v * 2], x),
    "while": lambda x: jax.lax.fori_loop(0, jnp.int32(3), lambda i, y: y * 2 + i, x),
    "searchsorted": lambda x: x * jnp.searchsorted(jnp.array([-1.0, 0.0, 2.0]), x),
    "diagonal": lambda x: jnp.diag(x[:, :2])[:, None] + jnp.trace(x) + jnp.select([x > 1, x < -1], [x, -x], 0.5),
    "associative scan": lambda x: jax.lax.associative_scan(jnp.add, x, axis=1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    f = FUNCTIONS[name]
    got, _ = values(lambda x, site: f(x))
    np.testing.assert_allclose(got["value"], f(X), rtol=2e-6, atol=1e-6)


MOVES = {
    "slice": lambda x: x[:, :2],
    "slice with a step": lambda x: x[:, ::2] * x[:, 1::2],
    "element": lambda x: x[1, 2] * x[0],
    "negative and inner padding": lambda x: jax.lax.pad(x, 1.5, ((-1, 3, 2), (1, -2, 1))),
    "padding by edges": lambda x: jnp.pad(x, ((0, 0), (1, 2)), mode="edge") + jnp.pad(x, ((0, 0), (2, 1)), mode="reflect"),
    "roll": lambda x: jnp.roll(x, 1, axis=1),
    "flip": lambda x: x[:, ::-1] * jnp.rot90(x, 2),
    "flip of many": lambda x: jnp.tile(x, (1, 5))[:, ::-1] * jnp.arange(20.0),
    "unstack": lambda x: sum(i * v for i, v in enumerate(jnp.unstack(x, axis=1))),
    "take columns": lambda x: x[:, jnp.array([2, 0, 1, 1])],
    "take elements": lambda x: x[jnp.array([1, 0, 1]), jnp.array([2, 0, 3])],
    "take a grid": lambda x: x[jnp.ix_(jnp.array([1, 0]), jnp.array([3, 1, 1]))],
    "take along": lambda x: jnp.take_along_axis(x, jnp.argmax(x, axis=1, keepdims=True), axis=1),
    "take of each row": lambda x: jax.vmap(lambda r: r[jnp.argmax(r)] * r[1:3])(x),
    "take outside": lambda x: jnp.take(x, jnp.array([1, 7, -9]), axis=1, mode="fill", fill_value=3.0),
    "window": lambda x: jax.lax.dynamic_slice(x, (1, 3), (1, 2)),
    "window that depends": lambda x: jax.lax.dynamic_slice(x, (0, jnp.argmax(x[0] < 1)), (2, 2)),
    "column that depends": lambda x: x[:, jnp.argmax(x[1])] * 2.0,
    "set": lambda x: x.at[:, 0].set(0.5) + x.at[:, ::2].set(x[:, 1::2] * 3) + x.at[1, 2].set(x[0, 0]),
    "set twice": lambda x: x.at[:, jnp.array([1, 1])].set(x[:, :2]),
    "add": lambda x: x.at[:, 0].add(x[:, 1]) + x.at[:, jnp.array([2, 0, 1, 1])].add(x * x),
    "update": lambda x: x.at[:, 1].multiply(x[:, 2]).at[0].subtract(x[1]).at[:, 1:3].max(0.3).at[:, 3].min(0.1),
    "update a window": lambda x: jax.lax.dynamic_update_slice(x, x[:, :2] * 2, (0, 2)),
    "update a window that depends": lambda x: jax.lax.dynamic_update_slice(x, x[:, :2] * 2, (0, jnp.argmax(x[0] < 1))),
    "set what depends": lambda x: x.at[:, jnp.argmax(x[1])].set(0.25) * x.at[jnp.argmax(x[:, 0])].multiply(2.0),
    "add where it depends": lambda x: x.at[(x[:, 0] > 0).astype(jnp.int32)].add(x * x),
    "update of each row": lambda x: jax.vmap(lambda r: r.at[1].set(r[0]).at[jnp.argmax(r)].add(1.0))(x),
    "indices of a loop": lambda x: jax.lax.fori_loop(0, 4, lambda i, y: y.at[:, i].multiply(2.0 + x[:, i]), x),
    "segments": lambda x: jax.ops.segment_sum(x.T, jnp.array([0, 0, 1, 1]), 2) * jax.ops.segment_max(x.T, jnp.array([0, 1, 1, 0]), 2),
    "cumulative": lambda x: jnp.cumsum(x, axis=1) + jax.lax.cumsum(x, 0, reverse=True) * jax.lax.cumlogsumexp(x, 1),
    "cumulative products": lambda x: jnp.cumprod(x, axis=1) + jax.lax.cummax(x, 1) - jax.lax.cummin(x, 1, reverse=True),
    "product": lambda x: jnp.prod(x, axis=1) * jnp.prod(x[:, :3] + 2),
    "interpolation": lambda x: jnp.interp(x, jnp.array([-1.0, 0.0, 2.0]), jnp.array([-3.0, 0.0, 5.0])),
    "differences": lambda x: jnp.diff(x, axis=1),
}
MOVED = np.array([[3.0, -1.5, 0.25, 2.0], [0.5, 1.0, -7.0, 4.0]], np.float32)


@pytest.mark.parametrize("name", MOVES)
def test_moves(name, monkeypatch):
    """What JAX writes for slices, indices and their gradients, which the author did not write, has its values and gradients."""
    f = MOVES[name]

    def quantizer(x, site=None):  # so that the gradients are JAX's
        y = f(x)
        y = y + jax.lax.stop_gradient(jnp.round(y) - y)
        return x + (y * jnp.arange(1.0, 1 + y.size).reshape(y.shape)).sum()

    b = Builder("moves")
    b.output("y", _Writer(b).call(f, b.input("x", Type("float", MOVED.shape))))
    for precision in (np.float32, np.float64):
        np.testing.assert_allclose(run(b.build(), {"x": MOVED}, precision)["y"], f(jnp.asarray(MOVED)), rtol=1e-5, atol=1e-5)
    dy = np.arange(1.0, 9).reshape(2, 4)
    q = build_quantizer(from_jax(quantizer, HERE), SITE)
    assert q.backward is None and dict(q.program.outputs)["surrogate"] != 0
    want = jax.vjp(quantizer, jnp.asarray(MOVED))[1](jnp.asarray(dy, jnp.float32))[0]
    np.testing.assert_allclose(gradient(q.program, MOVED, dy, monkeypatch), want, rtol=1e-4, atol=1e-3)


def test_numbers_that_are_not_finite_stay_where_they_are():
    x = np.array([[np.nan, 1, np.inf, 2], [3, -np.inf, 4, 5]], np.float32)
    for f in (
        lambda x: x.at[:, 1].set(7.0)[:, ::-1][:, jnp.array([3, 1, 0, 2])],
        lambda x: jnp.tile(x, (1, 5))[:, ::-1],
        lambda x: x.at[:, jnp.argmax(x[1])].set(0.25),
        lambda x: jax.lax.dynamic_slice(x, (0, jnp.argmax(x[1])), (2, 2)),
        lambda x: jax.lax.reduce_precision(x, 4, 3),
    ):
        b = Builder("f")
        b.output("y", _Writer(b).call(f, b.input("x", Type("float", x.shape))))
        np.testing.assert_array_equal(run(b.build(), {"x": x}, np.float32)["y"], f(jnp.asarray(x)))


def test_only_what_is_asked_for_is_written():
    """A branch that a setting chooses is alone in the program."""

    def f(x, site):
        levels = [lambda x, n=2**bits - 1: jnp.round(x * n) / n for bits in range(2, 9)]
        return jax.lax.switch(jnp.int32(4) - 2, levels, x)

    _, q = values(f)
    assert [n.op for n in q.program.nodes if n.op == "round"] == ["round"]


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
    "fold of integers": (lambda x: jax.lax.reduce(x, np.int32(-1), jax.lax.bitwise_and, (0,)), INTS),
    "product of integers": (lambda x: jnp.prod(x, axis=1), INTS),
    "cumulative sum of integers": (lambda x: jnp.cumsum(x, axis=1), INTS),
    "flip of integers": (lambda x: jnp.tile(x, (1, 5))[:, ::-1], INTS),
    "flip of unsigned integers": (uint(lambda x, y: jnp.tile(x, (1, 5))[:, ::-1]), INTS, SHIFTS),
    "flip of bools": (lambda x: jnp.tile(x > 0, (1, 5))[:, ::-1], INTS),
    "set of integers": (lambda x, i: x.at[:, jnp.argmax(i[0])].set(x[:, 0]).at[0, 1].multiply(3), INTS, SHIFTS),
    "multiply twice": (lambda x: x.at[:, jnp.array([1, 1, 2])].multiply(x[:, 1:]), X),
    "outside": (lambda x: jnp.take(x, jnp.array([1, 7]), axis=1, mode="fill") + x.at[:, 9].set(1, mode="drop")[:, :2], INTS),
    "total order": (lambda x: jnp.searchsorted(jnp.array([-1.0, 0.0, 2.0]), x, side="right"), FLOATS),
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
    "sort has no operation in docs/reference/operations.md; cage_sdk": lambda x: jnp.median(x[:, 1:], axis=1)[:, None] * x,
    "while": lambda x: jax.lax.while_loop(lambda v: v.sum() < 9, lambda v: v + 1, x),
    "a loop of more rounds than 64": lambda x: jax.lax.fori_loop(0, jnp.int32(100), lambda i, y: y * 0.5, x),
    "bfloat16 is no type": lambda x: x.astype(jnp.bfloat16).astype(jnp.float32),
    "reduce_precision rounds": lambda x: x.astype(jnp.float16).astype(jnp.float32),
    "a loop of 100 rounds": lambda x: jax.lax.fori_loop(0, 100, lambda i, y: y * 0.5, x),
    "rem has no operation in docs/reference/operations.md; x - jnp.floor(x / y) * y": lambda x: x % 0.7,
    "random keys are no type of programs; cage_sdk.jax.op": lambda x: x + jax.random.uniform(jax.random.key(0), x.shape),
    "dot: takes float, got int[2,4]": lambda x: (x.view(jnp.int32) @ x.view(jnp.int32).T).sum() * x,
    "scatter at places that depend on the input and may coincide": lambda x: x.at[(x[:, 0] > 0).astype(jnp.int32)].set(1.0),
    "erf_inv": lambda x: jax.scipy.special.erfinv(x / 10),
    "nextafter": lambda x: jnp.nextafter(x, 1.0),
    "reduce_window_max": lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2), (1, 1), "SAME"),
}


@pytest.mark.parametrize("text", LACKING)
def test_lacking(text):
    f = LACKING[text]
    with pytest.raises(ProgramError) as e:
        values(lambda x, site: f(x))
    assert text in str(e.value) and str(e.value).endswith(f"(test_jax.py:{f.__code__.co_firstlineno})")
    assert str(e.value).count("test_jax.py") == 1


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


def test_gradient_of_an_operation():
    """A clamp of programs has its gradient within the bounds; an operation without one is refused, and not taken for flat."""

    def clipped_by_op(x, site):
        c = op("clamp", x, jnp.float32(-2.0), jnp.float32(2.0))
        return c + jax.lax.stop_gradient(jnp.round(c) - c)

    out, _ = values(clipped_by_op)
    np.testing.assert_array_equal(out["surrogate"], np.where((X >= -2) & (X <= 2), X, 0))
    with pytest.raises(NotImplementedError, match="abs"):
        values(lambda x, site: jax.lax.stop_gradient(x) + op("abs", x))


def test_gradient_within_a_condition():
    """stop_gradient counts in the branches of a condition, too."""

    def body(v):
        c = jnp.clip(v, -2.0, 2.0)
        return c + jax.lax.stop_gradient(jnp.round(c) - c)

    out, _ = values(lambda x, site: jax.lax.cond(jnp.abs(x).max() > 100, lambda v: v * 1.0, body, x))
    assert out["surrogate"][0, 0] == out["surrogate"][1, 2] == 0


def test_converted_numbers():
    """A number that is converted is the converted one afterwards; zeros of both signs stay what they are."""
    for to, number, want in ((jnp.int32, 2.7, 2), (bool, 0.5, 1)):
        out, _ = values(lambda x, site, to=to, number=number: x * jax.jit(lambda a: a.astype(to))(number))
        np.testing.assert_array_equal(out["value"], X * want)
    zeros = jnp.array([0.0, -0.0, 0.0, -0.0])
    out, _ = values(lambda x, site: jax.lax.bitcast_convert_type(zeros, jnp.int32).astype(jnp.float32) + 0 * x)
    np.testing.assert_array_equal(out["value"][0], [0, -(2.0**31), 0, -(2.0**31)])


def test_power():
    """As in IEEE 754, also where NumPy takes a square root."""
    x = np.array([-np.inf, -0.0, 0.25], np.float32)
    b = Builder("power")
    b.output("y", b.input("x", Type("float", (3,))).pow(b.const(0.5)))
    np.testing.assert_array_equal(run(b.build(), {"x": x}, np.float32)["y"], [np.inf, 0, 0.5])
