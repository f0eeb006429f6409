"""Gradients of programs against differences, and both halves of a split against the whole."""

from __future__ import annotations

import numpy as np
import pytest
import recorded
from cage_sdk import Builder
from cage_sdk.executor import run
from cage_sdk.infer import OPS, Type
from cage_torch.autodiff import PREFIX, REFUSED, RULES, split

CASES = recorded.programs()


def gradients(p, output, inputs, dy):
    """The gradients of <dy, output>, by both halves of a split; the output is that of the program."""
    wrt = [name for name, t in p.inputs if t.dtype == "float"]
    found = []
    for masks in (True, False):
        parts = split(p, output, output, wrt, masks=masks)
        forward = run(parts.forward, inputs)
        np.testing.assert_array_equal(forward[output], run(p, inputs)[output])
        known = {**inputs, **forward, PREFIX + output: dy}
        result = run(parts.backward, {name: known[name] for name, _ in parts.backward.inputs})
        found.append({name: result[PREFIX + name] for name in wrt})
    for name in wrt:
        np.testing.assert_array_equal(*(f[name] for f in found))
    return found[0]


def check(p, output, inputs, seed=0):
    """Central differences in random directions; a step of 1e-5 makes both errors about 1e-10."""
    rng = np.random.default_rng(seed)
    dy = rng.standard_normal(p.output(output).shape)
    found = gradients(p, output, inputs, dy)
    for name, d in found.items():
        for _ in range(3):
            v = rng.standard_normal(d.shape)
            up, down = ((run(p, {**inputs, name: inputs[name] + h * v})[output] * dy).sum() for h in (1e-5, -1e-5))
            want, got = (up - down) / 2e-5, (d * v).sum()
            assert abs(got - want) <= 1e-6 * max(1, abs(up), abs(want), (d * d).sum()), name


SHAPES = [((3, 4), (3, 4)), ((3, 4), (1, 4)), ((3, 1), (3, 4)), ((3, 1), (1, 4)), ((), (3, 4)), ((3, 4), ()), ((), ()),
          ((2, 1, 3), (1, 2, 3)), ((1,), ())]  # fmt: skip
BINARY = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "div": lambda x, y: x / y,
    "pow": lambda x, y: x.pow(y), "max": lambda x, y: x.max(y), "min": lambda x, y: x.min(y),
    "ldexp": lambda x, y: x.ldexp((y * 8).floor()), "select": lambda x, y: x.lt(y).select(x * x, -y),
    "unary": lambda x, y: x.abs() + x.sqrt() * x.exp() + y.expm1() * y.log() - x.log1p() * y.tanh(),
    "constants": lambda x, y: x.clip(0.5, 1.5) * y.floor() + x.round() * y.sign() + y.stop_gradient() * x.stop_gradient(),
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_elementwise(name):
    for i, (left, right) in enumerate(SHAPES):
        b = Builder("p")
        x, y = b.input("x", Type("float", left)), b.input("y", Type("float", right))
        b.output("z", BINARY[name](x, y))
        rng = np.random.default_rng(i)
        inputs = {"x": 0.2 + 2 * rng.random(left), "y": 0.2 + 2 * rng.random(right)}  # away from singularities
        if name == "constants":  # stop_gradient is no constant for differences
            gradients(b.build(), "z", inputs, np.ones(b.build().output("z").shape))
        else:
            check(b.build(), "z", inputs, i)


STRUCTURE = {
    "reshape": ((3, 4), (2, 6), lambda x, y: x.reshape(12) * y.reshape(12)),
    "transpose": ((2, 3, 4), (4, 2, 3), lambda x, y: x.transpose(2, 0, 1) * y),
    "broadcast": ((3,), (1, 2), lambda x, y: x.broadcast((4, 3, 2), (1,)) * y.broadcast((4, 3, 2), (0, 2))),
    "slice": ((10, 7), (3, 2), lambda x, y: x.slice([1, 0], [9, 6], [3, 4]) * y),
    "slice to the end": ((7,), (4,), lambda x, y: x.slice([0], [7], [2]) * y),
    "concatenate": ((2, 3), (2, 1), lambda x, y: x.concatenate(1, y, x * x, y)),
    "sums": ((2, 3, 4), (3,), lambda x, y: (x * x).reduce_sum(0, 2) * y),
    "extremes": ((2, 3, 4), (3,), lambda x, y: x.reduce_max(0, 2) * y + x.reduce_min(0, 2)),
    "rows": ((3, 4), (3, 4), lambda x, y: (x - x.mean_row()) * y.max_row()),
    "hadamard": ((3, 8), (3, 8), lambda x, y: x.hadamard(4) * y.hadamard(8)),
    "matmul": ((3, 4), (4, 5), lambda x, y: x.matmul(y).tanh()),
    "rows by rows": ((3, 4), (5, 4), lambda x, y: x.dot(y, ([1], [1])).tanh()),
    "outer": ((3,), (4,), lambda x, y: x.dot(y, ([], [])).tanh()),
    "batched": ((4, 2, 3), (5, 4, 2), lambda x, y: x.dot(y, ([0], [1]), ([1], [2])).tanh()),
    "two of each": ((2, 3, 4, 5, 2), (2, 5, 3, 2, 3), lambda x, y: x.dot(y, ([4, 1], [0, 2]), ([3, 0], [1, 3])).tanh()),
    "itself": ((3, 3), (), lambda x, y: x.matmul(x) * y),
    "tables": ((4,), (6,), lambda x, y: (x * 8).convert("int").lookup(y) + (x * 8).convert("int").scatter_add(x, 4)),
    "order": ((3, 5), (3,), lambda x, y: x.order_statistic(2) * y),
    "unused": ((3,), (3,), lambda x, y: x * x),
}


@pytest.mark.parametrize("name", STRUCTURE)
def test_structure(name):
    left, right, f = STRUCTURE[name]
    b = Builder("p")
    b.output("z", f(b.input("x", Type("float", left)), b.input("y", Type("float", right))))
    rng = np.random.default_rng(1)
    check(b.build(), "z", {"x": 0.2 + 2 * rng.random(left), "y": 0.2 + 2 * rng.random(right)})


def test_rules():
    assert set(RULES) | REFUSED <= set(OPS)


def test_masks():
    """Without masks, what is compared with constants is kept, and not the results, whatever the values are."""
    b = Builder("p")
    x, y = b.input("x", Type("float", (8,))), b.input("y", Type("float", (8,)))
    inside = x.ge(b.const(-1.0)) & ~(b.const(0.5).lt(x)) & (x + y).is_finite()
    b.output("z", inside.select(x, 0) * y.lt(x).select(y, x))
    p = b.build()
    inputs = {"x": np.array([-1, 0.5, 0.6, -0.0, np.nan, np.inf, -np.inf, 0.25]), "y": np.array([0, 1, 2, np.inf, 1, 1, 1, -0.0])}
    gradients(p, "z", inputs, np.array([1, 2, 3, 4, 5, 6, np.nan, np.inf]))
    kept = [sum(t.dtype == "bool" for _, t in split(p, "z", "z", ["x", "y"], masks=masks).backward.inputs) for masks in (True, False)]
    assert kept == [2, 1], "the comparison of x and y is kept"


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["program"]["name"])
def test_recorded(case):
    """Every recorded program is split, and its output is the same to the bit."""
    p = recorded.program(case["program"])
    inputs = {name: recorded.array(t, case["inputs"][name]) for name, t in p.inputs}
    floats = [name for name, _ in p.outputs if p.output(name).dtype == "float"]
    if any(n.op in REFUSED for n in p.nodes) or not any(t.dtype == "float" for _, t in p.inputs):
        return
    for output in floats:
        gradients(p, output, inputs, np.ones(p.output(output).shape))
