"""The executor, the text hash and the shape rules against Go's, on the programs of sdk/protocol."""

from __future__ import annotations

import numpy as np
import pytest
import recorded

from cage_sdk import Builder, wire
from cage_sdk.executor import OPERATIONS, run
from cage_sdk.infer import OPS, Type, infer

CASES = recorded.programs()


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["program"]["name"])
def test_results(case):
    p = recorded.program(case["program"])
    inputs = {name: recorded.array(t, case["inputs"][name]) for name, t in p.inputs}
    for name, got in run(p, inputs).items():
        t = p.output(name)
        want = recorded.array(t, case["outputs"][name])
        if t.dtype == "float":
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10, err_msg=name)
        else:
            np.testing.assert_array_equal(got, want, err_msg=name)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["program"]["name"])
def test_hash_and_message(case):
    p = recorded.program(case["program"])
    assert p.hash() == case["hash"]
    assert wire.to_program(p) == recorded.message("Program", case["program"])


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["program"]["name"])
def test_written_again(case):
    """The builder infers the same types and writes the same program."""
    p = recorded.program(case["program"])
    for n in p.nodes:
        assert infer(n.op, [p.type_of(a) for a in n.args], n.attr, n.type) == n.type
    b = Builder(p.name)
    values = [b.input(name, t) for name, t in p.inputs]
    for n in p.nodes:
        values.append(b.apply(n.op, *[values[a] for a in n.args], type=n.type, **n.attr))
    for name, v in p.outputs:
        b.output(name, values[v])
    assert b.build().hash() == case["hash"]


def test_every_operation():
    assert set(OPERATIONS) == set(OPS) == set(wire._OPS)
    assert {n.op for c in CASES for n in recorded.program(c["program"]).nodes} == set(OPS)


def test_single_precision():
    b = Builder("p")
    b.output("y", b.input("x", Type("float", (2,))) * 0.1)
    assert run(b.build(), {"x": [1, 3]}, np.float32)["y"].dtype == np.float32
