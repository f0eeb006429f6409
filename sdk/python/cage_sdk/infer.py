"""The types of results: what docs/reference/operations.md says of each operation's operands and attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

DType = Literal["float", "int", "uint", "bool"]

DTYPES: tuple[DType, ...] = ("float", "int", "uint", "bool")
MAX_SIZE = 2**31 - 1
MAX_RANK = 8

Shape = tuple[int, ...]
Attr = Mapping[str, Any]


@dataclass(frozen=True)
class Type:
    """The element type and the shape of a value; a scalar has an empty shape."""

    dtype: DType
    shape: Shape = ()

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements, 1 for a scalar."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]" if self.shape else self.dtype

    def check(self) -> None:
        """Raises ValueError for a type that no value can have."""
        if self.dtype not in DTYPES:
            raise ValueError(f"element type {self.dtype} does not exist: use float, int, uint or bool")
        if self.rank > MAX_RANK:
            raise ValueError(f"got {self.rank} axes, want at most {MAX_RANK}")
        for i, d in enumerate(self.shape):
            if d < 1:
                raise ValueError(f"axis {i} has {d} elements, want at least 1")
        if self.size > MAX_SIZE:
            raise ValueError(f"{self} has more than {MAX_SIZE} elements")


KEY = Type("uint", (2,))
"""The type of a key for random bits."""

Rule = Callable[[Sequence[Type], Attr, Type], Type]


def _need(t: Type, *allowed: DType, what: str = "") -> None:
    if t.dtype not in allowed:
        raise ValueError(f"{what}takes {' or '.join(allowed)}, got {t}")


def _check_axes(axes: Sequence[int], rank: int) -> None:
    for i, a in enumerate(axes):
        if not 0 <= a < rank:
            raise ValueError(f"axis {a} does not exist: the rank is {rank}")
        if i and a <= axes[i - 1]:
            raise ValueError(f"axes {list(axes)} are not strictly increasing")


def _without(shape: Shape, axes: Sequence[int]) -> Shape:
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def elementwise_shape(a: Shape, b: Shape) -> Shape:
    """The one rule of implicit broadcasting: a scalar goes with anything; otherwise ranks are equal and axes equal or 1."""
    if not a or not b:
        return a or b
    if len(a) != len(b) or any(x != y and 1 not in (x, y) for x, y in zip(a, b)):
        raise ValueError(
            f"shapes {list(a)} and {list(b)} do not go together: ranks must be equal and axes equal or 1 "
            "(reshape or broadcast one operand)"
        )
    return tuple(max(x, y) for x, y in zip(a, b))


def _constant(_: Sequence[Type], attr: Attr, want: Type) -> Type:
    want.check()
    mine, other = ("floats", "ints") if want.dtype == "float" else ("ints", "floats")
    if attr.get(other):
        raise ValueError(f"elements do not have the type {want.dtype}")
    elements = attr.get(mine, ())
    if len(elements) not in (1, want.size):
        raise ValueError(f"got {len(elements)} elements for {want}, want 1 or {want.size}")
    low, high = {"int": (-(2**31), 2**31 - 1), "uint": (0, 2**32 - 1), "bool": (0, 1), "float": (0, 0)}[want.dtype]
    for i, v in enumerate(attr.get("ints", ())):
        if not low <= v <= high:
            raise ValueError(f"element {i} is {v}, out of range for {want.dtype}")
    return want


def _iota(_: Sequence[Type], attr: Attr, want: Type) -> Type:
    want.check()
    _need(want, "float", "int", "uint")
    if len(attr.get("axes", ())) != 1:
        raise ValueError("needs exactly one axis")
    _check_axes(attr["axes"], want.rank)
    return want


def _random_bits(args: Sequence[Type], _: Attr, want: Type) -> Type:
    want.check()
    if args[0] != KEY:
        raise ValueError(f"takes a key of type {KEY}, got {args[0]}")
    _need(want, "uint")
    return want


def unary(*types: DType, result: DType | None = None) -> Rule:
    def rule(args: Sequence[Type], attr: Attr, want: Type) -> Type:
        _need(args[0], *types)
        return Type(result or args[0].dtype, args[0].shape)

    return rule


def binary(*types: DType, result: DType | None = None) -> Rule:
    def rule(args: Sequence[Type], attr: Attr, want: Type) -> Type:
        x, y = args
        if x.dtype != y.dtype:
            raise ValueError(f"operands have different element types: {x} and {y}")
        _need(x, *types)
        return Type(result or x.dtype, elementwise_shape(x.shape, y.shape))

    return rule


def _clamp(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    for t, what in zip(args, ("", "lower bound ", "upper bound ")):
        _need(t, "float", what=what)
        if what and t.shape:
            raise ValueError(f"{what}is {t}, want a scalar")
    return args[0]


def _select(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    cond, x, y = args
    _need(cond, "bool", what="condition ")
    if x.dtype != y.dtype:
        raise ValueError(f"operands have different element types: {x} and {y}")
    return Type(x.dtype, elementwise_shape(elementwise_shape(x.shape, y.shape), cond.shape))


def _retyped(*types: DType) -> Rule:
    """Of the same shape, with the element type that is wanted."""

    def rule(args: Sequence[Type], attr: Attr, want: Type) -> Type:
        _need(args[0], *types)
        _need(want, *types, what="result ")
        return Type(want.dtype, args[0].shape)

    return rule


def _reshape(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    x, t = args[0], Type(args[0].dtype, want.shape)
    t.check()
    if t.size != x.size:
        raise ValueError(f"cannot reshape {x} to {list(t.shape)}: got {x.size} elements, want {t.size}")
    return t


def _transpose(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    x, perm = args[0], attr.get("axes", ())
    if sorted(perm) != list(range(x.rank)):
        raise ValueError(f"{list(perm)} is not a permutation of {x.rank} axes")
    return Type(x.dtype, tuple(x.shape[a] for a in perm))


def _broadcast(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    x, axes, t = args[0], attr.get("axes", ()), Type(args[0].dtype, want.shape)
    t.check()
    if len(axes) != x.rank:
        raise ValueError(f"got {len(axes)} axes for an operand with {x.rank}")
    _check_axes(axes, t.rank)
    for i, a in enumerate(axes):
        if x.shape[i] not in (1, t.shape[a]):
            raise ValueError(
                f"operand axis {i} has {x.shape[i]} elements, result axis {a} has {t.shape[a]}: must be equal or 1"
            )
    return t


def _slice(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    x, parts = args[0], [attr.get(k, ()) for k in ("start", "limit", "stride")]
    if any(len(p) != x.rank for p in parts):
        raise ValueError(f"start, limit and stride need one number for each of {x.rank} axes")
    shape = []
    for i, (d, start, limit, stride) in enumerate(zip(x.shape, *parts)):
        if not 0 <= start < limit <= d or stride < 1:
            raise ValueError(f"axis {i}: start {start}, limit {limit}, stride {stride} do not select from {d} elements")
        shape.append((limit - start - 1) // stride + 1)
    return Type(x.dtype, tuple(shape))


def _concatenate(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    x, axes = args[0], attr.get("axes", ())
    if len(axes) != 1 or not 0 <= axes[0] < x.rank:
        raise ValueError(f"got axes {list(axes)}, want one axis of {x}")
    axis = axes[0]
    for y in args[1:]:
        if y.dtype != x.dtype or y.rank != x.rank:
            raise ValueError(f"cannot join {x} and {y}")
        if _without(x.shape, axes) != _without(y.shape, axes):
            raise ValueError(f"cannot join {x} and {y} along axis {axis}")
    return Type(x.dtype, x.shape[:axis] + (sum(t.shape[axis] for t in args),) + x.shape[axis + 1 :])


def _reduce(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    x, axes = args[0], attr.get("axes", ())
    _need(x, "float", "int", "uint")
    if not axes:
        raise ValueError("names no axis to fold")
    _check_axes(axes, x.rank)
    return Type(x.dtype, _without(x.shape, axes))


def _dot(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    x, y = args
    _need(x, "float")
    _need(y, "float")
    named: tuple[list[int], list[int]] = ([], [])
    for name in ("contract", "batch"):
        left, right = attr.get(f"lhs_{name}", ()), attr.get(f"rhs_{name}", ())
        if len(left) != len(right):
            raise ValueError(f"got {len(left)} {name} axes on the left, {len(right)} on the right")
        for l, r in zip(left, right):
            if not (0 <= l < x.rank and 0 <= r < y.rank and x.shape[l] == y.shape[r]):
                raise ValueError(f"{name} axes {l} of {x} and {r} of {y} do not match")
        named[0].extend(left)
        named[1].extend(right)
    if any(len(set(axes)) < len(axes) for axes in named):
        raise ValueError("an axis is named twice")
    batch = tuple(x.shape[a] for a in attr.get("lhs_batch", ()))
    return Type("float", batch + _without(x.shape, named[0]) + _without(y.shape, named[1]))


def _hadamard(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    x, block = args[0], attr.get("block", 0)
    _need(x, "float")
    if not x.shape:
        raise ValueError("takes at least one axis")
    if block < 1 or block & (block - 1) or x.shape[-1] % block:
        raise ValueError(f"block {block} is not a power of two dividing the last axis ({x.shape[-1]})")
    return x


def _matrix(x: Type) -> tuple[int, int]:
    _need(x, "float")
    if x.rank < 2:
        raise ValueError(f"takes matrices, got {x}")
    return x.shape[-2], x.shape[-1]


def _qr(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    rows, cols = _matrix(args[0])
    if rows < cols:
        raise ValueError(f"takes matrices with at least as many rows as columns, got {args[0]}")
    return args[0]


def _eigh_vectors(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    rows, cols = _matrix(args[0])
    if rows != cols:
        raise ValueError(f"takes square matrices, got {args[0]}")
    return args[0]


def _eigh_values(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    return Type("float", _eigh_vectors(args, attr, want).shape[:-1])


def _sort_columns(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    x = args[0]
    _matrix(x)
    keys = Type("float", x.shape[:-2] + x.shape[-1:])
    if args[1] != keys:
        raise ValueError(f"takes keys of type {keys} for the columns of {x}, got {args[1]}")
    return x


def _check_table(t: Type) -> None:
    _need(t, "float", what="table ")
    if t.rank not in (1, 2):
        raise ValueError(f"takes a table of one or two axes, got {t}")


def _rows(x: Type, table: Type) -> Shape:
    """The shape of what has one entry for each row of x that belongs to a row of the table."""
    _need(x, "float")
    _check_table(table)
    if table.rank == 1:
        return x.shape
    if not x.shape or x.shape[-1] != table.shape[1]:
        raise ValueError(f"the last axis of {x} does not have the length of the rows of the table, {table}")
    return x.shape[:-1]


def _nearest(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    return Type("int", _rows(args[0], args[1]))


def _lookup(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    _need(args[0], "int", what="index ")
    _check_table(args[1])
    return Type("float", args[0].shape + args[1].shape[1:])


def _scatter_add(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    t = Type("float", want.shape)
    _need(args[0], "int", what="index ")
    t.check()
    if _rows(args[1], t) != args[0].shape:
        raise ValueError(f"{args[0]} does not have an index for each row of {args[1]}")
    return t


def _top_k(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    x, k = args
    _need(x, "float")
    if not x.shape:
        raise ValueError("takes at least one axis")
    if k != Type("int"):
        raise ValueError(f"takes k of type int, got {k}")
    return Type("bool", x.shape)


def _order_statistic(args: Sequence[Type], attr: Attr, want: Type) -> Type:
    return Type("float", _top_k(args, attr, want).shape[:-1])


# For each operation: the number of operands, -1 for one or more; its rule; and the attributes that it uses.
# program.py adds the elementwise operations.
OPS: dict[str, tuple[int, Rule, tuple[str, ...]]] = {
    "constant": (0, _constant, ("floats", "ints")),
    "iota": (0, _iota, ("axes",)),
    "random_bits": (1, _random_bits, ()),
    "clamp": (3, _clamp, ()),
    "select": (3, _select, ()),
    "convert": (1, _retyped(*DTYPES), ()),
    "bitcast": (1, _retyped("float", "int", "uint"), ()),
    "reshape": (1, _reshape, ()),
    "transpose": (1, _transpose, ("axes",)),
    "broadcast": (1, _broadcast, ("axes",)),
    "slice": (1, _slice, ("start", "limit", "stride")),
    "concatenate": (-1, _concatenate, ("axes",)),
    **{op: (1, _reduce, ("axes",)) for op in ("reduce_sum", "reduce_max", "reduce_min")},
    "dot": (2, _dot, ("lhs_contract", "rhs_contract", "lhs_batch", "rhs_batch")),
    "hadamard": (1, _hadamard, ("block",)),
    "qr": (1, _qr, ()),
    "eigh_values": (1, _eigh_values, ()),
    "eigh_vectors": (1, _eigh_vectors, ()),
    "sort_columns": (2, _sort_columns, ()),
    "nearest": (2, _nearest, ()),
    "lookup": (2, _lookup, ()),
    "scatter_add": (2, _scatter_add, ()),
    "top_k": (2, _top_k, ()),
    "order_statistic": (2, _order_statistic, ()),
}


def infer(op: str, args: Sequence[Type], attr: Attr, want: Type) -> Type:
    """The type of a result. want says what it should be, where it does not follow from the operands. Raises ValueError."""
    if op not in OPS:
        raise ValueError("there is no such operation")
    arity, rule, uses = OPS[op]
    if arity >= 0 and len(args) != arity:
        raise ValueError(f"takes {arity} operands, got {len(args)}")
    if arity < 0 and not args:
        raise ValueError("takes at least one operand, got none")
    for name in attr:
        if name not in uses:
            raise ValueError(f"takes no attribute {name}")
    result = rule(args, attr, want)
    result.check()
    return result
