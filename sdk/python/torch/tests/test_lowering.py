"""Graphs of PyTorch against the reference executor, on the programs of sdk/protocol."""

from __future__ import annotations

import numpy as np
import pytest
import recorded
import torch
from cage_sdk import Builder
from cage_sdk.executor import run
from cage_sdk.infer import OPS, Type
from cage_torch.lowering import WRITE, lower

CASES = recorded.programs()
NUMPY = {"float": np.float32, "int": np.int32, "uint": np.uint32, "bool": np.bool_}


def tensor(t: Type, values) -> torch.Tensor:
    a = np.array(values).astype(NUMPY[t.dtype])
    return torch.from_numpy(a.view(np.int32) if t.dtype == "uint" else a).reshape(t.shape)


def array(t: Type, x: torch.Tensor):
    a = x.numpy()
    return a.view(np.uint32) if t.dtype == "uint" else a


def computed(p, inputs):
    outputs = lower(p)(*(tensor(t, inputs[name]) for name, t in p.inputs))
    return {name: array(p.type_of(v), x) for (name, v), x in zip(p.outputs, outputs)}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["program"]["name"])
def test_results(case):
    """Floats are those of NumPy in single precision, up to the order of sums; all else is equal."""
    p = recorded.program(case["program"])
    inputs = {name: recorded.array(t, case["inputs"][name]) for name, t in p.inputs}
    want = run(p, inputs, np.float32)
    for name, got in computed(p, inputs).items():
        assert got.shape == want[name].shape
        if p.output(name).dtype == "float":
            finite = np.abs(want[name][np.isfinite(want[name])])
            scale = finite.max() if finite.size else 1.0
            np.testing.assert_allclose(got, want[name], rtol=2e-5, atol=2e-6 * scale, err_msg=name)
        else:
            np.testing.assert_array_equal(got, want[name], err_msg=name)


def test_every_operation():
    assert set(WRITE) == set(OPS)


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.7e-39, -1e-45, 1.17e-38, 3.4e38, -3.4e38, np.inf, -np.inf,
                    np.nan, 7.0, 1 / 3, 2.0**24, 2.0**31, -(2.0**31)], np.float32)
INTEGERS = np.array([0, 1, 2, 3, 31, 7, 2**31 - 1, -1, -(2**31), 12345678], np.int32)


@pytest.mark.parametrize("dtype", ["int", "uint"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "and", "or", "xor", "max", "min", "eq", "ne", "lt", "le", "gt", "ge", "shl", "shr"])
def test_integers(op, dtype):
    """All pairs of special numbers, as tensors and as numbers."""
    a = INTEGERS.view(NUMPY[dtype])
    x, y = (v.reshape(-1) for v in np.meshgrid(a, a))
    y = y % 32 if op in ("shl", "shr") else y
    b = Builder("p")
    t = Type(dtype, (x.size,))
    v = b.input("x", t)
    b.output("both", b.apply(op, v, b.input("y", t)))
    for i, n in enumerate(a[:8] % 32 if op in ("shl", "shr") else a):
        b.output(f"right{i}", b.apply(op, v, b._scalar(dtype, int(n))))
        b.output(f"left{i}", b.apply(op, b._scalar(dtype, int(n)), v if op not in ("shl", "shr") else b._scalar(dtype, 3)))
    p = b.build()
    want = run(p, {"x": x, "y": y}, np.float32)
    for name, got in computed(p, {"x": x, "y": y}).items():
        np.testing.assert_array_equal(got, want[name], err_msg=name)


@pytest.mark.parametrize("op", ["shl", "shr", "max", "min", "lt", "add", "and"])
@pytest.mark.parametrize("dtype", ["int", "uint"])
def test_scalars_beside_tensors(op, dtype):
    """A tensor without axes does not choose the type of a result."""
    b = Builder("p")
    scalar, x = b.input("scalar", Type(dtype)), b.input("x", Type(dtype, (3,)))
    b.output("left", b.apply(op, scalar, x))
    b.output("right", b.apply(op, x, scalar))
    p = b.build()
    for v in (-1, -(2**31), 5):
        inputs = {"scalar": np.int32(v).view(NUMPY[dtype]), "x": np.array([1, 4, 31], np.int32).view(NUMPY[dtype])}
        want = run(p, inputs, np.float32)
        for name, got in computed(p, inputs).items():
            np.testing.assert_array_equal(got, want[name], err_msg=name)


@pytest.mark.parametrize("op", ["neg", "abs", "sign", "floor", "round", "logb", "is_finite", "sqrt"])
def test_special_numbers(op):
    b = Builder("p")
    b.output("y", b.apply(op, b.input("x", Type("float", SPECIAL.shape))))
    p = b.build()
    np.testing.assert_array_equal(computed(p, {"x": SPECIAL})["y"], run(p, {"x": SPECIAL}, np.float32)["y"])


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "max", "min", "eq", "ne", "lt", "le", "gt", "ge"])
def test_pairs_of_special_numbers(op):
    x, y = (v.reshape(-1) for v in np.meshgrid(SPECIAL, SPECIAL))
    b = Builder("p")
    t = Type("float", x.shape)
    v = b.input("x", t)
    b.output("both", b.apply(op, v, b.input("y", t)))
    for i, n in enumerate(SPECIAL):
        b.output(f"right{i}", b.apply(op, v, b.const(float(n))))
        b.output(f"left{i}", b.apply(op, b.const(float(n)), v))
    p = b.build()
    want = run(p, {"x": x, "y": y}, np.float32)
    for name, got in computed(p, {"x": x, "y": y}).items():
        np.testing.assert_array_equal(got, want[name], err_msg=name)


@pytest.mark.parametrize("source", ["float", "int", "uint", "bool"])
@pytest.mark.parametrize("target", ["float", "int", "uint", "bool"])
def test_convert(source, target):
    x = {"float": np.array([0, -0.0, 1.9, -1.9, 255, 2.0**30], np.float32), "int": INTEGERS, "uint": INTEGERS.view(np.uint32),
         "bool": np.array([True, False])}[source]
    if source == "float" and target == "uint":
        x = np.abs(x)
    for op in ("convert", "bitcast"):
        if op == "bitcast" and "bool" in (source, target):
            continue
        b = Builder("p")
        v = b.input("x", Type(source, x.shape))
        b.output("y", v.convert(target) if op == "convert" else v.bitcast(target))
        p = b.build()
        np.testing.assert_array_equal(computed(p, {"x": x})["y"], run(p, {"x": x}, np.float32)["y"])


def test_inputs_are_left():
    """Operations write into what they alone read: neither an input, nor a result, nor what another one reads later."""
    b = Builder("p")
    x = b.input("x", Type("float", (4, 4)))
    y = (x + 1) * 2
    z = y.reshape(2, 8) * 3
    b.output("y", y)
    b.output("z", z.abs())
    b.output("row", y.max_row() * 2 + y)
    b.output("twice", (x * 3) * (x * 3))
    b.output("itself", x.reshape(16) * 2)
    p = b.build()
    v = np.arange(16.0).reshape(4, 4)
    given = torch.from_numpy(v.astype(np.float32))
    f = lower(p)
    first = f(given)
    assert torch.equal(given, torch.from_numpy(v.astype(np.float32))) and "mul_(" in f.code
    want = run(p, {"x": v}, np.float32)
    for (name, _), got, again in zip(p.outputs, first, f(given)):
        np.testing.assert_array_equal(got.numpy(), want[name], err_msg=name)
        assert torch.equal(got, again)


def test_hadamard():
    """Two products are Sylvester's matrix."""
    for block in (1, 2, 4, 8, 32, 64, 128, 512, 1024):
        b = Builder("p")
        b.output("y", b.input("x", Type("float", (3, 2 * block))).hadamard(block))
        p = b.build()
        x = np.random.default_rng(block).standard_normal((3, 2 * block))
        np.testing.assert_allclose(computed(p, {"x": x})["y"], run(p, {"x": x})["y"], atol=2e-6)
