"""The builder: operators, shapes, and mistakes at the author's line."""

from __future__ import annotations

import numpy as np
import pytest

from cage_sdk import Builder, ProgramError, Type
from cage_sdk.executor import run
from cage_sdk.program import _float_text


def start(*shape: int):
    b = Builder("p")
    return b, b.input("x", Type("float", shape))


def value(b, v, **inputs):
    b.output("v", v)
    return run(b.build(), inputs)["v"]


X = np.array([[3.0, -1.5, 0.25, 2.0], [0.0, 1.0, -7.0, 4.0]])


@pytest.mark.parametrize(
    "formula",
    [
        lambda x: 2 * x - 1,
        lambda x: 1 - x / 2 + (-x) * abs(x),
        lambda x: 2 / (abs(x) + 1),
        lambda x: 2**x + abs(x) ** 0.5,
        lambda x: np.float32(0.5) * x,
    ],
)
def test_operators(formula):
    b, x = start(2, 4)
    np.testing.assert_allclose(value(b, formula(x), x=X), formula(X), rtol=1e-12)


def test_conditions():
    b, x = start(2, 4)
    inside = (x > -1) & (x <= 3) & ~(x == 0)
    np.testing.assert_array_equal(value(b, inside.select(x, 9), x=X), np.where((X > -1) & (X <= 3) & (X != 0), X, 9))


def test_rows():
    b, x = start(2, 4)
    q = x.quantile_row(0.4)
    assert q.shape == (2, 1) and x.max_all().shape == () and x.reduce_sum(0).shape == (4,) and x.column(2).shape == (2, 1)
    np.testing.assert_allclose(value(b, q, x=X), np.quantile(X, 0.4, axis=1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("p", ["arg_min_row", "arg_max_row"])
def test_first_of_equals(p):
    b, x = start(1, 5)
    want = {"arg_min_row": 1, "arg_max_row": 0}[p]
    assert value(b, getattr(x, p)(), x=[[4.0, 1.0, 1.0, 4.0, 2.0]])[0, 0] == want


def test_integers():
    b = Builder("p")
    key = b.input("key", Type("uint", (2,)))
    bits = b.random_bits(key, 3) >> 16
    assert bits.dtype == "uint" and (bits & 1 == 0).dtype == "bool"
    b.output("v", bits)
    assert run(b.build(), {"key": [1, 2]})["v"].max() < 65536


def test_table():
    b, x = start(2, 4)
    levels = b.table([-1, 0.0, 2])
    np.testing.assert_array_equal(value(b, x.nearest(levels).lookup(levels), x=X), [[2, -1, 0, 2], [0, 0, -1, 2]])


def test_unused_is_left_out():
    b, x = start(2)
    x.exp()
    b.output("y", x + 1)
    assert [n.op for n in b.build().nodes] == ["constant", "add"]


def test_literal_is_one_node():
    b, x = start(2)
    b.output("y", x * 2 + 2)
    assert [n.op for n in b.build().nodes] == ["constant", "mul", "add"]


MISTAKES = [
    (lambda b, x: x + b.zeros(3), "add: shapes [2, 4] and [3] do not go together"),
    (lambda b, x: x.reshape(9), "reshape: cannot reshape float[2,4] to [9]: got 8 elements, want 9"),
    (lambda b, x: x & x, "and: takes bool or int or uint, got float[2,4]"),
    (lambda b, x: x.select(1, 2), "select: condition takes bool, got float[2,4]"),
    (lambda b, x: x + "a", "'a' does not go with float[2,4]"),
    (lambda b, x: x.convert("int") + 0.5, "0.5 does not go with int[2,4]"),
    (lambda b, x: x.clip(1, -1), "clip to [1, -1]"),
    (lambda b, x: x.quantile_row(2), "quantile 2"),
    (lambda b, x: x.matmul(x), "dot: contract axes 1 of float[2,4] and 0 of float[2,4] do not match"),
    (lambda b, x: x + Builder("q").const(1), "add: operand 1 belongs to another program"),
    (lambda b, x: b.input("y", Type("float")) if x.exp() else None, "a Value has no truth"),
    (lambda b, x: b.apply("exp", None), "exp: operand 0 is None"),
    (lambda b, x: b.apply("sinh", x), "sinh: there is no such operation"),
    (lambda b, x: b.output("a b", x), "the name contains ' '"),
    (lambda b, x: b.build(), "there are no outputs"),
    (lambda b, x: b.table(["a"]), "a table of <U1"),
    (lambda b, x: x.top_k(x), "top_k: takes k of type int"),
]


@pytest.mark.parametrize("mistake, text", MISTAKES, ids=[m[1][:20] for m in MISTAKES])
def test_mistakes(mistake, text):
    b, x = start(2, 4)
    with pytest.raises(ProgramError) as e:
        mistake(b, x)
    assert text in str(e.value)
    assert f"(test_program.py:{mistake.__code__.co_firstlineno})" in str(e.value)


@pytest.mark.parametrize(
    "v, text",
    [(1e6, "1e+06"), (999999, "999999"), (1e-5, "1e-05"), (0.0001, "0.0001"), (-0.0, "-0"), (2.0**-126, "1.1754943508222875e-38")],
)
def test_float_text(v, text):
    assert _float_text(float(v)) == text
