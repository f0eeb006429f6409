"""Programs: what plugins answer with. A Builder writes one; docs/reference/operations.md defines the operations exactly.

A Value stands for a tensor that will exist when the program runs. Its methods are those of Go's program.Value, in snake
case, and it has Python's operators: `(x / scale).round().clip(-7, 7) * scale`. A number stands for a constant.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from .infer import DTYPES, OPS, Attr, DType, Rule, Shape, Type, binary, infer, unary

HERE = os.path.dirname(os.path.abspath(__file__))


class ProgramError(ValueError):
    """A mistake in a program, with the author's line."""


@dataclass(frozen=True)
class Node:
    """One operation on earlier values. Attributes are those that docs/reference/operations.md names; empty ones are absent."""

    op: str
    args: tuple[int, ...]
    type: Type
    attr: Attr


@dataclass
class Program:
    """Values are numbered: the inputs come first, then one for each node."""

    name: str
    inputs: list[tuple[str, Type]] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    outputs: list[tuple[str, int]] = field(default_factory=list)

    def type_of(self, value: int) -> Type:
        """The type of a value by its number."""
        n = len(self.inputs)
        return self.inputs[value][1] if value < n else self.nodes[value - n].type

    def output(self, name: str) -> Type | None:
        """The type of an output, None if there is no such output."""
        return next((self.type_of(v) for n, v in self.outputs if n == name), None)

    def takes(self, name: str) -> bool:
        """Whether there is an input of this name."""
        return any(n == name for n, _ in self.inputs)

    def __str__(self) -> str:
        """The text form, with all elements of constants."""
        inputs = ", ".join(f"%{i} {name}: {t}" for i, (name, t) in enumerate(self.inputs))
        lines = [f"program {self.name}({inputs}) {{"]
        for i, n in enumerate(self.nodes, len(self.inputs)):
            args = "".join(f" %{a}" for a in n.args)
            lines.append(f"  %{i} = {n.op}{args}{_attr_text(n.attr)} : {n.type}")
        lines.append("  return" + "".join(f" {name}=%{v}" for name, v in self.outputs))
        return "\n".join([*lines, "}", ""])

    def hash(self) -> str:
        """The hex SHA-256 of the text form: equal programs have equal hashes, whatever language wrote them."""
        return hashlib.sha256(str(self).encode()).hexdigest()

    def pruned(self, keep: int) -> Program:
        """The program without nodes that no output needs, and without such inputs from number keep on."""
        n = len(self.inputs)
        needed = {v for _, v in self.outputs} | set(range(keep))
        for i in range(len(self.nodes) - 1, -1, -1):
            if n + i in needed:
                needed.update(self.nodes[i].args)
        number = {old: new for new, old in enumerate(sorted(needed))}
        return Program(
            self.name,
            [self.inputs[v] for v in number if v < n],
            [
                Node(m.op, tuple(number[a] for a in m.args), m.type, m.attr)
                for m in (self.nodes[v - n] for v in number if v >= n)
            ],
            [(name, number[v]) for name, v in self.outputs],
        )


_SHORT = {"lhs_contract": "lhs", "rhs_contract": "rhs"}
ATTRIBUTES = ("axes", "start", "limit", "stride", "lhs_contract", "rhs_contract", "lhs_batch", "rhs_batch")


def _attr_text(attr: Attr) -> str:
    text = "".join(f" {_SHORT.get(k, k)}=[{','.join(map(str, attr[k]))}]" for k in ATTRIBUTES if attr.get(k))
    if attr.get("block"):
        text += f" block={attr['block']}"
    elements = [_float_text(v) for v in attr.get("floats", ())] + [str(v) for v in attr.get("ints", ())]
    if len(elements) == 1:
        return f"{text} {elements[0]}"
    return text + (" {" + " ".join(elements) + "}" if elements else "")


def _float_text(v: float) -> str:
    """The shortest text that reads back as v, as Go's strconv.FormatFloat(v, 'g', -1, 64) writes it."""
    if not math.isfinite(v):
        return "NaN" if v != v else "+Inf" if v > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(v)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text, point = "".join(map(str, digits)), len(digits) + exponent - 1  # the exponent of the first digit
    if v == 0:
        point = 0
    if not -4 <= point < 6:
        text = text[0] + ("." + text[1:] if len(text) > 1 else "") + f"e{point:+03d}"
    elif point < 0:
        text = "0." + "0" * (-point - 1) + text
    else:
        text = text.ljust(point + 1, "0")
        text = text[: point + 1] + ("." + text[point + 1 :] if len(text) > point + 1 else "")
    return "-" * sign + text


def call_site() -> str:
    """The innermost line outside this package, as ' (file:line)'."""
    frame = sys._getframe(1)
    while frame and os.path.dirname(os.path.abspath(frame.f_code.co_filename)) == HERE:
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f" ({os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno})"


class Builder:
    """Writes a program. The first mistake raises ProgramError, with the line of the caller."""

    def __init__(self, name: str) -> None:
        self._program = Program(name)
        self._scalars: dict[tuple[DType, str], Value] = {}  # a literal used twice is one node
        try:
            _check_name(name)
        except ValueError as e:
            self.fail(str(e))

    def fail(self, text: str) -> ProgramError:
        """Raises ProgramError with the author's line."""
        raise ProgramError(f'program "{self._program.name[:60]}": {text}{call_site()}') from None

    def input(self, name: str, type: Type) -> Value:
        """Declares the next argument."""
        try:
            _check_name(name)
            type.check()
            if self._program.nodes:
                raise ValueError("declared after the first operation")
            if self._program.takes(name):
                raise ValueError("declared twice")
        except ValueError as e:
            self.fail(f'input "{name[:60]}": {e}')
        self._program.inputs.append((name, type))
        return Value(self, len(self._program.inputs) - 1, type)

    def output(self, name: str, value: Value) -> None:
        """Names a value as a result, in the order of calls."""
        try:
            _check_name(name)
            self._own(value)
            if any(n == name for n, _ in self._program.outputs):
                raise ValueError("the name is used twice")
        except ValueError as e:
            self.fail(f'output "{name[:60]}": {e}')
        self._program.outputs.append((name, value.id))

    def apply(self, op: str, *args: Value, type: Type = Type("float"), **attr: Any) -> Value:
        """Adds one operation by its name in docs/reference/operations.md. type is wanted where it does not follow from the operands."""
        given = {k: v for k, v in attr.items() if not (isinstance(v, Sequence) and len(v) == 0)}
        try:
            for i, a in enumerate(args):
                self._own(a, f"operand {i} ")
            result = infer(op, [a.type for a in args], given, type)
        except ValueError as e:
            self.fail(f"{op}: {e}")
        self._program.nodes.append(Node(op, tuple(a.id for a in args), result, given))
        return Value(self, len(self._program.inputs) + len(self._program.nodes) - 1, result)

    def _own(self, value: Any, what: str = "") -> None:
        if not isinstance(value, Value):
            raise ValueError(f"{what}is {value!r}: give a Value of this program")
        if value.builder is not self:
            raise ValueError(f"{what}belongs to another program")

    def build(self, keep: int | None = None) -> Program:
        """Finishes the program, without nodes that no output needs, and without such inputs from number keep on."""
        if not self._program.outputs:
            self.fail("there are no outputs")
        return self._program.pruned(len(self._program.inputs) if keep is None else keep)

    def const(self, v: float) -> Value:
        """A scalar float."""
        return self._scalar("float", float(v))

    def const_int(self, v: int) -> Value:
        """A scalar int."""
        return self._scalar("int", int(v))

    def const_uint(self, v: int) -> Value:
        """A scalar uint."""
        return self._scalar("uint", int(v))

    def _scalar(self, dtype: DType, v: float | int) -> Value:
        key = (dtype, repr(v))
        if key not in self._scalars:
            self._scalars[key] = self.apply("constant", type=Type(dtype), **{_elements(dtype): [v]})
        return self._scalars[key]

    def full(self, v: float, *shape: int) -> Value:
        """A float value of the given shape that is filled with v."""
        return self.apply("constant", type=Type("float", shape), floats=[float(v)])

    def zeros(self, *shape: int) -> Value:
        """A float value of the given shape that is filled with 0."""
        return self.full(0, *shape)

    def table(self, data: npt.ArrayLike) -> Value:
        """A constant: an array, or nested lists, of floats, ints (signed or unsigned) or bools."""
        a = np.asarray(data)
        dtype: DType | None = {"f": "float", "i": "int", "u": "uint", "b": "bool"}.get(a.dtype.kind)  # type: ignore[assignment]
        if dtype is None:
            self.fail(f"a table of {a.dtype}: use floats, integers or bools")
        assert dtype is not None
        elements = a.ravel().tolist()
        if dtype != "float":
            elements = [int(v) for v in elements]
        return self.apply("constant", type=Type(dtype, a.shape), **{_elements(dtype): elements})

    def iota(self, type: Type, axis: int) -> Value:
        """The index along the axis, as a value of this type."""
        return self.apply("iota", type=type, axes=[axis])

    def random_bits(self, key: Value, *shape: int) -> Value:
        """A uint value of random bits, made from a key of type uint[2]."""
        return self.apply("random_bits", key, type=Type("uint", shape))


def _elements(dtype: DType) -> str:
    return "floats" if dtype == "float" else "ints"


def _check_name(name: str) -> None:
    if not name:
        raise ValueError("the name is empty")
    if len(name.encode()) > 200:
        raise ValueError("the name is longer than 200 bytes")
    for c in name:
        if c == " " or not c.isprintable() or c in '%,:=()[]{}"':
            raise ValueError(f"the name contains {c!r}: use letters, digits and . _ - /")


Operand = Union["Value", float, int]


ELEMENTWISE: dict[str, Callable[..., Any]] = {}
"""The elementwise operations as functions of arrays: executor.py and jax.py derive their tables from it."""


def _define(op: str, arity: int, rule: Rule, compute: Callable[..., Any]) -> None:
    OPS[op], ELEMENTWISE[op] = (arity, rule, ()), compute


def _unary(
    op: str, doc: str, compute: Callable[..., Any] | None = None, *types: DType, result: DType | None = None
) -> Callable[[Value], Value]:
    """The method of an operation. An elementwise one is defined here: its function of arrays, its operand's types and its result's."""

    def method(self: Value) -> Value:
        return self.builder.apply(op, self)

    method.__name__, method.__doc__ = op, doc
    if compute is not None:
        _define(op, 1, unary(*types, result=result), compute)
    return method


def _binary(
    op: str, doc: str, compute: Callable[..., Any] | None = None, *types: DType, result: DType | None = None
) -> Callable[[Value, Operand], Value]:
    def method(self: Value, other: Operand) -> Value:
        return self.builder.apply(op, self, self._operand(other))

    method.__name__, method.__doc__ = op, doc
    if compute is not None:
        _define(op, 2, binary(*types, result=result), compute)
    return method


def _swapped(op: str, doc: str) -> Callable[[Value, Operand], Value]:
    def method(self: Value, other: Operand) -> Value:
        return self.builder.apply(op, self._operand(other), self)

    method.__name__, method.__doc__ = op, doc
    return method


def _logb(x: npt.NDArray[Any]) -> Any:
    exponent = np.frexp(x)[1] - 1.0
    return np.where(x == 0, -np.inf, np.where(np.isinf(x), np.inf, np.where(np.isnan(x), np.nan, exponent)))


def _power(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> Any:
    """IEEE 754 pow. For ½ NumPy takes the square root, which is another number at −∞ and −0."""
    return np.power(np.where((y == 0.5) & (np.isinf(x) | (x == 0)), np.abs(x), x), y)


def _ldexp(x: npt.NDArray[Any], e: npt.NDArray[Any]) -> Any:
    whole = np.nan_to_num(np.clip(e, -4096, 4096)).astype(np.int32)
    return np.where(np.isnan(e), e, np.ldexp(*np.broadcast_arrays(x, whole)))


def _fold(op: str, doc: str) -> Callable[..., Value]:
    def method(self: Value, *axes: int) -> Value:
        return self.builder.apply(op, self, axes=list(axes))

    method.__name__, method.__doc__ = op, doc + " The axes, in increasing order, disappear from the shape."
    return method


def _fold_row(op: str, doc: str) -> Callable[[Value], Value]:
    def method(self: Value) -> Value:
        last = max(self.type.rank - 1, 0)
        return self.builder.apply(op, self, axes=[last]).reshape(*self.shape[:-1], 1)

    method.__doc__ = doc + " over the last axis, which is kept with one element."
    return method


def _fold_all(op: str, doc: str) -> Callable[[Value], Value]:
    def method(self: Value) -> Value:
        return self.builder.apply(op, self, axes=list(range(self.type.rank))) if self.shape else self

    method.__doc__ = doc + " of all elements, a scalar."
    return method


class Value:
    """A value of the program under construction."""

    __array_ufunc__ = None  # numbers of NumPy leave operators to this class
    __hash__ = object.__hash__

    def __init__(self, builder: Builder, id: int, type: Type) -> None:
        self.builder, self.id, self.type = builder, id, type

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def __repr__(self) -> str:
        return f"%{self.id}: {self.type}"

    def __bool__(self) -> bool:
        raise self.builder.fail("a Value has no truth when the program is written: use select, & and |")

    def _operand(self, other: Operand) -> Value:
        """other, or the constant of this value's element type that it stands for."""
        if isinstance(other, Value):
            return other
        if isinstance(other, (bool, np.bool_)):
            if self.dtype == "bool":
                return self.builder._scalar("bool", int(other))
        elif isinstance(other, (int, float, np.integer, np.floating)):
            if self.dtype == "float":
                return self.builder.const(float(other))
            if int(other) == other:
                return self.builder._scalar(self.dtype, int(other))
        raise self.builder.fail(f"{other!r} does not go with {self.type}")

    neg = __neg__ = _unary("neg", "−v.", np.negative, "float", "int")
    abs = __abs__ = _unary("abs", "|v|.", np.abs, "float", "int")
    sign = _unary("sign", "−1, 0 or 1.", np.sign, "float", "int")
    sqrt = _unary("sqrt", "The square root.", np.sqrt, "float")
    exp = _unary("exp", "eᵛ.", np.exp, "float")
    expm1 = _unary("expm1", "eᵛ − 1.", np.expm1, "float")
    log = _unary("log", "The natural logarithm.", np.log, "float")
    log1p = _unary("log1p", "log(1 + v).", np.log1p, "float")
    tanh = _unary("tanh", "The hyperbolic tangent.", np.tanh, "float")
    sin = _unary("sin", "The sine of v radians.", np.sin, "float")
    cos = _unary("cos", "The cosine of v radians.", np.cos, "float")
    floor = _unary("floor", "Rounds toward −∞.", np.floor, "float")
    round = _unary("round", "Rounds to the nearest integer, ties to even.", np.rint, "float")
    logb = _unary("logb", "The binary exponent floor(log2|v|), exactly.", _logb, "float")
    is_finite = _unary("is_finite", "A bool: neither NaN nor infinite.", np.isfinite, "float", result="bool")
    not_ = __invert__ = _unary("not", "Logical or bitwise negation.", np.invert, "bool", "int", "uint")
    stop_gradient = _unary("stop_gradient", "v, but the reverse pass treats it as a constant.", lambda x: x, *DTYPES)

    add = __add__ = _binary("add", "v + o.", np.add, "float", "int", "uint")
    sub = __sub__ = _binary("sub", "v − o.", np.subtract, "float", "int", "uint")
    mul = __mul__ = _binary("mul", "v·o, element by element.", np.multiply, "float", "int", "uint")
    div = __truediv__ = _binary("div", "v/o.", np.divide, "float")
    pow = __pow__ = _binary("pow", "v to the power o.", _power, "float")
    __radd__ = _swapped("add", "o + v.")
    __rsub__ = _swapped("sub", "o − v.")
    __rmul__ = _swapped("mul", "o·v.")
    __rtruediv__ = _swapped("div", "o/v.")
    __rpow__ = _swapped("pow", "o to the power v.")
    max = _binary("max", "The larger of v and o; NaN if either is NaN.", np.maximum, "float", "int", "uint")
    min = _binary("min", "The smaller of v and o; NaN if either is NaN.", np.minimum, "float", "int", "uint")
    ldexp = _binary("ldexp", "v·2ᵒ for integers o, as floats.", _ldexp, "float")
    and_ = __and__ = __rand__ = _binary("and", "Logical or bitwise and.", np.bitwise_and, "bool", "int", "uint")
    or_ = __or__ = __ror__ = _binary("or", "Logical or bitwise or.", np.bitwise_or, "bool", "int", "uint")
    xor = __xor__ = __rxor__ = _binary("xor", "Logical or bitwise exclusive or.", np.bitwise_xor, "bool", "int", "uint")
    shl = __lshift__ = _binary("shl", "Shifts left by o bits.", lambda x, y: x << (y & 31), "int", "uint")
    shr = __rshift__ = _binary("shr", "Shifts right by o bits.", lambda x, y: x >> (y & 31), "int", "uint")
    eq = __eq__ = _binary("eq", "The bool v = o.", np.equal, *DTYPES, result="bool")  # type: ignore[assignment]
    ne = __ne__ = _binary("ne", "The bool v ≠ o.", np.not_equal, *DTYPES, result="bool")  # type: ignore[assignment]
    lt = __lt__ = _binary("lt", "The bool v < o.", np.less, "float", "int", "uint", result="bool")
    le = __le__ = _binary("le", "The bool v ≤ o.", np.less_equal, "float", "int", "uint", result="bool")
    gt = __gt__ = _binary("gt", "The bool v > o.", np.greater, "float", "int", "uint", result="bool")
    ge = __ge__ = _binary("ge", "The bool v ≥ o.", np.greater_equal, "float", "int", "uint", result="bool")

    def scale(self, c: float) -> Value:
        """c·v for a number c."""
        return self.mul(self.builder.const(c))

    def shift(self, c: float) -> Value:
        """v + c for a number c."""
        return self.add(self.builder.const(c))

    def square(self) -> Value:
        """v·v."""
        return self.mul(self)

    def clamp(self, lo: Operand, hi: Operand) -> Value:
        """v limited to [lo, hi], scalars with lo ≤ hi. What becomes of NaN is not defined: max and min are the strict form."""
        return self.builder.apply("clamp", self, self._operand(lo), self._operand(hi))

    def clip(self, lo: float, hi: float) -> Value:
        """clamp to numbers."""
        if not lo <= hi:
            self.builder.fail(f"clip to [{lo}, {hi}]: the lower bound must not be above the upper, and neither may be NaN")
        return self.clamp(lo, hi)

    def select(self, x: Operand, y: Operand) -> Value:
        """x where v, a bool, is true, and y elsewhere."""
        like = x if isinstance(x, Value) else y if isinstance(y, Value) else self.builder.const(0)
        return self.builder.apply("select", self, like._operand(x), like._operand(y))

    def convert(self, dtype: DType) -> Value:
        """The same number in another element type."""
        return self.builder.apply("convert", self, type=Type(dtype))

    def bitcast(self, dtype: DType) -> Value:
        """The same 32 bits as another element type."""
        return self.builder.apply("bitcast", self, type=Type(dtype))

    def reshape(self, *shape: int) -> Value:
        """The same elements, in row-major order, in another shape."""
        return self.builder.apply("reshape", self, type=Type(self.dtype, shape))

    def transpose(self, *perm: int) -> Value:
        """Axis i of the result is axis perm[i] of v."""
        return self.builder.apply("transpose", self, axes=list(perm))

    def broadcast(self, shape: Sequence[int], axes: Sequence[int] | None = None) -> Value:
        """v repeated to a shape. axes has, for each axis of v, its axis in the result; a value of equal rank needs none."""
        if axes is None:
            axes = range(self.type.rank) if self.type.rank == len(shape) else ()
        return self.builder.apply("broadcast", self, type=Type(self.dtype, tuple(shape)), axes=list(axes))

    def slice(self, start: Sequence[int], limit: Sequence[int], stride: Sequence[int] | None = None) -> Value:
        """Elements start, start+stride, … below limit on each axis."""
        stride = [1] * self.type.rank if stride is None else stride
        return self.builder.apply("slice", self, start=list(start), limit=list(limit), stride=list(stride))

    def at(self, axis: int, first: int, to: int) -> Value:
        """Elements first, first+1, …, to−1 of one axis, and all of the others."""
        if not 0 <= axis < self.type.rank:
            self.builder.fail(f"at: axis {axis} does not exist: the rank is {self.type.rank}")
        start, limit = [0] * self.type.rank, list(self.shape)
        start[axis], limit[axis] = first, to
        return self.slice(start, limit)

    def column(self, i: int) -> Value:
        """Element i of each row; the last axis is kept with one element."""
        return self.at(self.type.rank - 1, i, i + 1)

    def concatenate(self, axis: int, *others: Value) -> Value:
        """v and the others, one after the other along an axis."""
        return self.builder.apply("concatenate", self, *others, axes=[axis])

    # Sums, means, maxima and minima come in three forms, by their names: reduce_sum(*axes), sum_row and sum_all.
    reduce_sum = _fold("reduce_sum", "The sum.")
    reduce_max = _fold("reduce_max", "The maximum.")
    reduce_min = _fold("reduce_min", "The minimum.")
    sum_row = _fold_row("reduce_sum", "The sum")
    max_row = _fold_row("reduce_max", "The maximum")
    min_row = _fold_row("reduce_min", "The minimum")
    sum_all = _fold_all("reduce_sum", "The sum")
    max_all = _fold_all("reduce_max", "The maximum")
    min_all = _fold_all("reduce_min", "The minimum")

    def mean_row(self) -> Value:
        """The mean over the last axis, which is kept with one element."""
        return self.sum_row().scale(1 / self._last())

    def mean_all(self) -> Value:
        """The mean of all elements, a scalar."""
        return self.sum_all().scale(1 / self.type.size)

    def _last(self) -> int:
        return self.shape[-1] if self.shape else 1

    def arg_min_row(self) -> Value:
        """The index, an int, of the least element of each row: the first of equals, or of NaN. The last axis is kept."""
        return self._first_row(self.min_row())

    def arg_max_row(self) -> Value:
        """The index, an int, of the largest element of each row: the first of equals, or of NaN. The last axis is kept."""
        return self._first_row(self.max_row())

    def _first_row(self, extreme: Value) -> Value:
        found = self.eq(extreme)
        if self.dtype == "float":
            found = found.or_(self.ne(self))
        places = self.builder.iota(Type("int", self.shape), self.type.rank - 1)
        return found.select(places, self.builder.const_int(self._last())).min_row()

    def stochastic_bfloat16(self, bits: Value) -> Value:
        """v, rounded to one of the two numbers of bfloat16 between which it lies, at random and so that the mean is v.

        bits are random bits of v's shape.
        """
        word = self.bitcast("uint").add(bits.shr(self.builder.const_uint(16)))
        rounded = word.and_(self.builder.const_uint(0xFFFF0000)).bitcast("float")
        return self.is_finite().select(rounded, self)

    def quantile_row(self, p: float) -> Value:
        """The p-quantile of each row, interpolated linearly as NumPy's; the last axis is kept with one element."""
        if not 0 <= p <= 1:
            self.builder.fail(f"quantile {p}: it must lie between 0 and 1")
        place = p * float(self._last() - 1)
        low = math.floor(place)
        q = self.order_statistic(self.builder.const_int(low))
        if place > low:
            q = q.scale(1 - (place - low)).add(self.order_statistic(low + 1).scale(place - low))
        return q.reshape(*self.shape[:-1], 1)

    def dot(
        self,
        o: Value,
        contract: tuple[Sequence[int], Sequence[int]],
        batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
    ) -> Value:
        """The general product: sums over pairs of axes, and keeps others in step."""
        return self.builder.apply(
            "dot", self, o, lhs_contract=list(contract[0]), rhs_contract=list(contract[1]),
            lhs_batch=list(batch[0]), rhs_batch=list(batch[1]),
        )  # fmt: skip

    def matmul(self, o: Value) -> Value:
        """The product of two matrices."""
        return self.dot(o, ([1], [0]))

    __matmul__ = matmul

    def hadamard(self, block: int) -> Value:
        """Each block of the last axis times the normalized Walsh–Hadamard matrix, which is its own inverse."""
        return self.builder.apply("hadamard", self, block=block)

    qr = _unary("qr", "The factor Q of the thin QR decomposition of the last two axes.")
    eigh_values = _unary("eigh_values", "The eigenvalues of symmetric matrices, ascending.")
    eigh_vectors = _unary("eigh_vectors", "The eigenvectors of symmetric matrices, as columns.")
    sort_columns = _binary("sort_columns", "The columns of matrices in the descending order of the keys o.")
    nearest = _binary("nearest", "The index, an int, of the nearest row of a table, for each element or run of elements.")
    lookup = _binary("lookup", "The row of a table for each index in v.")

    def scatter_add(self, values: Value, n: int) -> Value:
        """A table of n rows of zeros, to whose rows v, indices, the values are added."""
        shape = (n, values.shape[-1]) if values.type.rank > self.type.rank else (n,)
        return self.builder.apply("scatter_add", self, values, type=Type("float", shape))

    def top_k(self, k: Operand) -> Value:
        """A bool: whether an element is one of the k largest of its row."""
        return self.builder.apply("top_k", self, self._count(k))

    def order_statistic(self, k: Operand) -> Value:
        """The element at place k, counted from 0, in the ascending order of its row; the last axis disappears."""
        return self.builder.apply("order_statistic", self, self._count(k))

    def _count(self, k: Operand) -> Value:
        return k if isinstance(k, Value) else self.builder.const_int(int(k))
