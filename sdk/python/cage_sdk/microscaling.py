"""What formats with blocks share, as Go's package microscaling: the programs are the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from .plugin import Refusal
from .program import Builder, Value
from .quantizer import Site

LARGEST_E2M1 = 6.0
LARGEST_E4M3 = 448.0
_EXPONENT = 0x7F800000  # the exponent bits of a binary32 number

Ties = Literal["even", "away", "down"]
"""The level of a number halfway between two: that with the even code, or of the larger or smaller magnitude."""

ScaleType = Literal["f32", "bf16", "f16"]


class Blocks:
    """The rows of a tensor, its last axis, as blocks of `size` entries; the last one is padded with zeros."""

    def __init__(self, shape: Sequence[int], size: int) -> None:
        self.shape, self.size = tuple(shape), size
        self.count = -(-self.shape[-1] // size)

    def split(self, v: Value) -> Value:
        """[…, row] as […, blocks, size]."""
        missing = self.count * self.size - self.shape[-1]
        if missing:
            zeros = v.builder.zeros(*self.shape[:-1], missing)
            v = v.concatenate(len(self.shape) - 1, zeros if v.dtype == "float" else zeros.convert(v.dtype))
        return v.reshape(*self.shape[:-1], self.count, self.size)

    def join(self, v: Value) -> Value:
        """The inverse of split."""
        padded = (*self.shape[:-1], self.count * self.size)
        v = v.reshape(*padded)
        return v if padded == self.shape else v.slice([0] * len(self.shape), self.shape)

    def spread(self, v: Value) -> Value:
        """One element for each block, over the entries of the blocks, in the shape of the tensor."""
        return self.join(v.broadcast((*self.shape[:-1], self.count, self.size)))


def _spacing(r: Value) -> tuple[Value, Value]:
    """r within the range of E2M1, and the distance of the two levels around it, from the exponent bits."""
    bounded = r.clip(-LARGEST_E2M1, LARGEST_E2M1)
    power = (bounded.bitcast("uint") & r.builder.const_uint(_EXPONENT)).bitcast("float")
    return bounded, power.clip(1, 4).scale(0.5)


def round_e2m1(r: Value, ties: Ties = "even") -> Value:
    """r rounded to the nearest of ±{0, ½, 1, 1½, 2, 3, 4, 6}; larger magnitudes become 6. NaN is not defined."""
    r, distance = _spacing(r)
    q = r.div(distance).clip(-4, 4)
    even = q.round()
    if ties != "even":
        tie = q.sub(even).abs().eq(r.builder.const(0.5))
        even = tie.select(q.add(q.sign().scale(0.5 if ties == "away" else -0.5)), even)
    return even.mul(distance)


def stochastic_e2m1(r: Value, u: Value) -> Value:
    """r rounded to one of the adjacent levels, the upper one with u, uniform in [0, 1), so that the mean is r up to 6."""
    r, distance = _spacing(r)
    return r.div(distance).add(u).floor().clip(-4, 4).mul(distance)


def encode_e2m1(rounded: Value, x: Value) -> Value:
    """The codes 0 to 15 of results of round_e2m1, with the sign of x, the number before rounding."""
    b, m = x.builder, rounded.abs()
    index = m.clip(0, 2).scale(2).add(m.shift(-2).clip(0, 2)).add(m.shift(-4).clip(0, 2).scale(0.5))
    sign = x.bitcast("uint").shr(b.const_uint(31)).convert("int")
    return index.convert("int").add(sign.mul(b.const_int(8)))


def decode_e2m1(codes: Value) -> Value:
    """The numbers of codes, which are ints or floats."""
    code = codes.convert("float")
    negative = code.ge(codes.builder.const(8))
    index = negative.select(code.shift(-8), code)
    m = index.clip(0, 4).scale(0.5).add(index.shift(-4).clip(0, 2)).add(index.shift(-6).clip(0, 1).scale(2))
    return negative.select(m.neg(), m)


def round_e4m3(v: Value) -> Value:
    """v rounded to the nearest number of E4M3, ties to even, for scales; larger magnitudes become 448."""
    unit = v.logb().shift(-3).clip(-9, 5)
    return v.ldexp(unit.neg()).round().ldexp(unit).clip(-LARGEST_E4M3, LARGEST_E4M3)


def round_scale(v: Value, type: ScaleType) -> Value:
    """Scales, which are not negative, rounded to a type that file formats hold, at least its smallest number."""
    if type == "f32":
        return v
    b, bits = v.builder, v.bitcast("uint")
    if type == "bf16":
        odd = bits.shr(b.const_uint(16)) & b.const_uint(1)
        bits = bits.add(odd).add(b.const_uint(2**15 - 1)) & b.const_uint(0xFFFF0000)
        return bits.bitcast("float").clip(2.0**-126, float.fromhex("0x1.fep127"))
    power = (bits & b.const_uint(_EXPONENT)).bitcast("float").clip(2.0**-14, 2.0**15)
    distance = power.scale(2.0**-10)
    return v.div(distance).round().mul(distance).clip(2.0**-24, 65504)


def single(v: Value) -> Value:
    """v rounded to binary32, whatever the precision of the computation."""
    return v.bitcast("uint").bitcast("float")


def uniform(b: Builder, key: Value, *shape: int) -> Value:
    """Numbers of 16 bits, uniform in (0, 1), of the site's noise."""
    return b.random_bits(key, *shape).shr(b.const_uint(16)).convert("float").shift(0.5).scale(2.0**-16)


def rotation(site: Site, setting: str) -> int:
    """The block of a Hadamard rotation from a setting such as "none" or "32", for `rotate`.

    Raises:
        Refusal: It is no power of two, or does not divide the row.
    """
    if setting == "none":
        return 1
    block = int(setting) if setting.isdecimal() else 0
    if block < 1 or block & (block - 1):
        raise Refusal(f'rotation = "{setting}": want none or a power of two such as "32"')
    if site.row_len % block:
        largest = math.gcd(site.row_len, 2**30)
        raise Refusal(
            f'rotation = "{setting}": blocks of {block} do not divide the row length {site.row_len}; '
            f"the largest that do have {largest}"
        )
    return block


def rotate(v: Value, block: int) -> Value:
    """The orthonormal Hadamard transform of each block of a row, which is its own inverse."""
    return v if block == 1 else v.hadamard(block)
