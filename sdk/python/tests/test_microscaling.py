"""Roundings against the lists of numbers that the formats have."""

from __future__ import annotations

import numpy as np
import pytest

from cage_sdk import Builder, Type
from cage_sdk.executor import run
from cage_sdk.microscaling import Blocks, decode_e2m1, encode_e2m1, round_e2m1, round_e4m3, round_scale, stochastic_e2m1

MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E2M1 = np.concatenate((-MAGNITUDES[:0:-1], MAGNITUDES))
E4M3 = np.array([m * 2.0**-9 for m in range(8)] + [m * 2.0 ** (e - 3) for e in range(-6, 9) for m in range(8, 16)])[:-1]
F16 = np.arange(1, 0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)


def computed(f, x, **others):
    b = Builder("p")
    values = [b.input(name, Type("float", np.shape(v))) for name, v in {"x": x, **others}.items()]
    b.output("y", f(*values))
    return run(b.build(), {"x": x, **others})["y"]


def nearest(numbers, x):
    return np.array([numbers[np.argmin(np.abs(numbers - v))] for v in x])


def test_e2m1():
    x = np.random.default_rng(1).uniform(-8, 8, 2000)
    got = computed(round_e2m1, x)
    np.testing.assert_array_equal(got, nearest(E2M1, x))
    np.testing.assert_array_equal(computed(lambda v: decode_e2m1(encode_e2m1(round_e2m1(v), v)), x), got)


@pytest.mark.parametrize("ties, want", [("even", [0, 1, 1, 2, 2, 4, 4]), ("away", [0.5, 1, 1.5, 2, 3, 4, 6]), ("down", [0, 0.5, 1, 1.5, 2, 3, 4])])
def test_ties(ties, want):
    halfway = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5])
    for sign in (1, -1):
        np.testing.assert_array_equal(computed(lambda v: round_e2m1(v, ties), sign * halfway), sign * np.array(want))


def test_stochastic():
    u = np.linspace(0, 1, 1000, endpoint=False)
    for x in (0.3, -1.2, 2.75, 5.5):
        got = computed(stochastic_e2m1, np.full(1000, x), u=u)
        assert abs(got.mean() - x) < 3e-3
        assert set(got) <= set(E2M1)


def test_e4m3():
    x = np.random.default_rng(2).uniform(0, 1, 2000) * 2.0 ** np.random.default_rng(3).integers(-11, 9, 2000)
    np.testing.assert_array_equal(computed(round_e4m3, x), nearest(E4M3, x))


def test_scales():
    x = np.float32(np.random.default_rng(4).uniform(0.1, 1, 500) * 2.0 ** np.random.default_rng(5).integers(-23, 16, 500)).astype(float)
    np.testing.assert_array_equal(computed(lambda v: round_scale(v, "f16"), x), nearest(F16, x))
    bits = np.float32(x).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    np.testing.assert_array_equal(computed(lambda v: round_scale(v, "bf16"), x), bits.astype(np.uint32).view(np.float32))
    np.testing.assert_array_equal(computed(lambda v: round_scale(v, "f32"), x), x)


def test_blocks():
    x = np.arange(10.0).reshape(2, 5)
    blocks = Blocks((2, 5), 4)
    np.testing.assert_array_equal(computed(lambda v: blocks.split(v).max_row().reshape(2, 2), x), [[3, 4], [8, 9]])
    np.testing.assert_array_equal(computed(lambda v: blocks.join(blocks.split(v)), x), x)
    np.testing.assert_array_equal(computed(lambda v: blocks.spread(blocks.split(v).max_row()), x), [[3, 3, 3, 3, 4], [8, 8, 8, 8, 9]])
