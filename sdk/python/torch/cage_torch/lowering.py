"""Programs as torch.fx graphs: a node of PyTorch, or a few, for each operation.

Floats are float32, ints int32. Unsigned integers are int32 with the same bits, because PyTorch computes little with uint32:
sums, products and bits are the same, and what depends on the sign is computed as if it were unsigned.
docs/reference/operations.md defines the operations.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any

import torch
from cage_sdk.infer import Type
from cage_sdk.program import Node, Program
from torch import Tensor, fx

DTYPES = {"float": torch.float32, "int": torch.int32, "uint": torch.int32, "bool": torch.bool}

_SIGN = -(2**31)


def shift_right(x: Tensor, n: Tensor | int) -> Tensor:
    """x shifted right by n bits, filled with zeros, as of an unsigned integer."""
    if isinstance(n, int):
        n &= 31
        return torch.bitwise_right_shift(x, n).bitwise_and(2 ** (32 - n) - 1) if n else x
    by = torch.bitwise_and(n, 31).to(torch.int64)  # of int32, it would make a scalar x int32 again
    return torch.bitwise_right_shift(unsigned(x), by).to(torch.int32)


def unsigned(x: Tensor) -> Tensor:
    """The numbers, as int64, that the bits of x are without a sign."""
    return torch.bitwise_and(x.to(torch.int64), 0xFFFFFFFF)


def iota(shape: tuple[int, ...], axis: int, dtype: torch.dtype, like: Tensor) -> Tensor:
    """The index of each element along the axis."""
    index = torch.arange(shape[axis], dtype=dtype, device=like.device)
    return index.reshape([-1 if i == axis else 1 for i in range(len(shape))]).expand(shape)


def random_bits(key: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011): the first word for the counters (i, 0)."""
    k = (key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA)
    x = torch.arange(math.prod(shape), dtype=torch.int32, device=key.device) + k[0]
    y = k[1].expand(x.shape)
    for group in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x = x + y
            y = (torch.bitwise_left_shift(y, r) | shift_right(y, 32 - r)) ^ x
        x = x + k[(group + 1) % 3]
        y = y + k[(group + 2) % 3] + (group + 1)
        if torch.compiler.is_compiling():  # which would compute a vector again for each of its uses, if it were not read in this way
            x, y = x.as_strided(x.shape, (1,)), y.as_strided(y.shape, (1,))
    return x.reshape(shape)


def _nan(x: Tensor) -> Tensor:
    return x != x  # torch.compile has no vectors for isnan


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1; NaN stays NaN."""
    return torch.where(_nan(x), x, x.sign()) if x.is_floating_point() else x.sign()


def logb(x: Tensor) -> Tensor:
    """The unbiased exponent, also of subnormal numbers; -inf for 0, +inf for infinities."""
    small = x.abs() < 2.0**-126
    bits = torch.where(small, x * 2.0**24, x).view(torch.int32)
    exponent = torch.bitwise_right_shift(bits, 23).bitwise_and(255) - 127 - torch.where(small, 24, 0)
    result = torch.where(x == 0, -math.inf, exponent.to(torch.float32))
    return torch.where(x.isfinite(), result, x.abs())


def ldexp(x: Tensor, n: Tensor) -> Tensor:
    """x times 2 to the power n, an integer in -300 to 300, by three factors that are exact."""
    whole = torch.where(_nan(n), 0.0, n).to(torch.int32)
    result = x
    for part in (whole // 3, (whole + 1) // 3, (whole + 2) // 3):
        result = result * torch.bitwise_left_shift(part + 127, 23).view(torch.float32)
    return torch.where(_nan(n), math.nan, result)


def sylvester(n: int, scale: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The matrix of Sylvester's construction, [n, n]: row i, column j has scale·(-1)^popcount(i & j)."""
    bits = torch.arange(n, dtype=torch.int32, device=device)
    both = bits[:, None] & bits[None, :]
    shift = 16
    while shift:
        both = both ^ torch.bitwise_right_shift(both, shift)
        shift //= 2
    return (1 - 2 * (both & 1)).to(dtype) * scale


_kept_sylvester = functools.lru_cache(sylvester)


def hadamard(x: Tensor, block: int) -> Tensor:
    """The orthonormal Walsh-Hadamard transform of each run of block elements of the last axis.

    The transform of a run of a·b elements is that of its rows, as a matrix [a, b], and of its columns. Each is a product, but
    that of few rows is sums and differences, which are faster. One product of the run is fast, too, but its longer sums are
    rounded in another way than the host's, which adds in pairs, so that weights near the boundary of two levels go the other
    way after some steps.
    """
    # What torch.compile traces is no tensor to keep.
    matrix: Callable[..., Tensor] = _kept_sylvester if type(x) in (Tensor, torch.nn.Parameter) and not torch.compiler.is_compiling() else sylvester
    b = min(block, 16) if block <= 64 else 2 ** (block.bit_length() // 2)
    scale = block**-0.5
    exact = scale if math.frexp(scale)[0] == 0.5 else 1.0  # else the sums would be rounded in another way than the host's
    y = x.reshape(-1, b) @ matrix(b, exact, x.dtype, x.device)
    if block > 64:
        y = matrix(block // b, 1.0, x.dtype, x.device) @ y.reshape(-1, block // b, b)
    elif b < block:
        signs = matrix(2, 1.0, x.dtype, x.device)[:, 1:]
        while b < block:
            y = y.reshape(-1, 2, b)
            y = torch.addcmul(y[:, :1], y[:, 1:], signs)
            b *= 2
    return (y if exact == scale else y.mul_(scale)).reshape(x.shape)


def _matrices(f: Callable[[Tensor], Tensor], x: Tensor, read: Tensor) -> Tensor:
    """f of each matrix; NaN for matrices that are not finite where f reads them."""
    finite = read.isfinite().all(-1).all(-1)[..., None, None]
    identity = torch.eye(x.shape[-2], x.shape[-1], dtype=x.dtype, device=x.device)
    y = f(torch.where(finite, x, identity))
    return torch.where(finite if y.ndim == x.ndim else finite[..., 0], y, math.nan)


def qr(x: Tensor) -> Tensor:
    """The factor with orthonormal columns."""
    return _matrices(lambda a: torch.linalg.qr(a).Q, x, x)


def eigh_values(x: Tensor) -> Tensor:
    """The eigenvalues of symmetric matrices, in ascending order."""
    return _matrices(torch.linalg.eigvalsh, x, x.tril())


def eigh_vectors(x: Tensor) -> Tensor:
    """The eigenvectors of symmetric matrices, as columns."""
    return _matrices(lambda a: torch.linalg.eigh(a).eigenvectors, x, x.tril())


def sort_columns(x: Tensor, keys: Tensor) -> Tensor:
    """The columns in descending order of their keys; NaN comes last."""
    order = torch.sort(-keys, dim=-1, stable=True).indices
    return x.gather(-1, order[..., None, :].expand(x.shape))


def nearest(x: Tensor, table: Tensor) -> Tensor:
    """The index of the nearest row of the table; the lowest of several."""
    if table.ndim == 1:
        x, table = x[..., None], table[:, None]
    distance = (x[..., None, :] - table).square().sum(-1)
    return torch.where(distance.isnan(), math.inf, distance).argmin(-1).to(torch.int32)


def lookup(index: Tensor, table: Tensor) -> Tensor:
    """The rows of the table with the given indices."""
    return table[index.clamp(0, table.shape[0] - 1)]


def scatter_add(index: Tensor, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A table of zeros, to whose rows x is added."""
    row = index.clamp(0, shape[0] - 1).reshape(-1).to(torch.int64)
    zeros = torch.zeros(shape, dtype=x.dtype, device=x.device)
    return zeros.index_add(0, row, x.reshape(-1, *shape[1:]))


def top_k(x: Tensor, k: Tensor) -> Tensor:
    """Whether an element is among the k largest of its row; the first of equal ones are."""
    order = torch.sort(x, dim=-1, descending=True, stable=True).indices
    return order.argsort(-1) < k


def order_statistic(x: Tensor, k: Tensor) -> Tensor:
    """The element with index k of each row in ascending order; NaN if the row has a NaN."""
    k = k.clamp(0, x.shape[-1] - 1).to(torch.int64).reshape([1] * x.ndim)
    result = x.sort(-1).values.gather(-1, k.expand(*x.shape[:-1], 1))[..., 0]
    return torch.where(x.isnan().any(-1), math.nan, result)


class _Writer:
    """A graph that is being written from a program."""

    def __init__(self, program: Program) -> None:
        self.program, self.graph = program, fx.Graph()
        self.numbers: dict[int, float | int | bool] = {}  # scalar constants, which are written where they are used
        self.nodes: list[fx.Node | None] = []
        for name, _ in program.inputs:
            self.nodes.append(self.graph.placeholder(re.sub(r"\W", "_", name)))
        for i, n in enumerate(program.nodes, len(program.inputs)):
            if n.op == "constant" and not n.type.shape:
                self.numbers[i] = _elements(n)[0]
                self.nodes.append(None)
            else:
                node = WRITE[n.op](self, n)
                if node not in self.nodes:
                    node.name = self.graph._graph_namespace.create_name(n.op, node)
                    node.meta["type"] = n.type
                self.nodes.append(node)
        self.graph.output(tuple(self.tensor(v) for _, v in program.outputs))
        self.graph.eliminate_dead_code()
        for node in self.graph.nodes:
            if node.target in _IN_PLACE and _owned(node.args[0], node):
                node.target = _IN_PLACE[node.target]

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> fx.Node:
        return self.graph.call_function(function, args, options)

    def like(self) -> fx.Node:
        """A tensor on the device of the computation."""
        assert self.nodes[0] is not None
        return self.nodes[0]

    def tensor(self, value: int) -> fx.Node:
        """A value that has to be a tensor."""
        node = self.nodes[value]
        if node is None:
            like = self.call(getattr, self.like(), "device")
            dtype = DTYPES[self.program.type_of(value).dtype]
            return self.call(torch.full, (), self.numbers[value], dtype=dtype, device=like)
        return node

    def arg(self, value: int) -> Any:
        """A value that may be a number."""
        return self.numbers.get(value, self.nodes[value])

    def type(self, n: Node, i: int) -> Type:
        return self.program.type_of(n.args[i])


Write = Callable[[_Writer, Node], fx.Node]

_IN_PLACE: dict[Any, Callable[..., Any]] = {
    getattr(torch, name): getattr(Tensor, name + "_") for name in (
        "add", "sub", "mul", "div", "neg", "abs", "sqrt", "exp", "log", "tanh", "floor", "round", "clamp", "bitwise_and", "bitwise_or",
        "bitwise_xor",
    )
}  # fmt: skip
"""Functions that can write into their first operand, which takes half the time: no new memory is touched."""

_NEW = {*_IN_PLACE, *_IN_PLACE.values(), torch.where, torch.maximum, torch.minimum, torch.amax, torch.amin, torch.sum, hadamard, ldexp}
"""Functions whose results have memory of their own."""


def _owned(x: Any, user: fx.Node) -> bool:
    """Whether nothing but user reads the memory of x, which has the type of user's result."""
    if not isinstance(x, fx.Node) or x.meta.get("type") is None or x.meta["type"] != user.meta.get("type"):
        return False
    while list(x.users) == [user] and user.all_input_nodes.count(x) == 1:
        if x.target in _NEW:
            return True
        if x.target is not torch.reshape or not isinstance(x.args[0], fx.Node):
            break
        x, user = x.args[0], x
    return False


def _elements(n: Node) -> list[Any]:
    if n.type.dtype == "float":
        return [float(v) for v in n.attr["floats"]]
    if n.type.dtype == "bool":
        return [bool(v) for v in n.attr["ints"]]
    return [int(v) + _SIGN * 2 if v >= 2**31 else int(v) for v in n.attr["ints"]]


def _constant(w: _Writer, n: Node) -> fx.Node:
    elements, dtype = _elements(n), DTYPES[n.type.dtype]
    device = w.call(getattr, w.like(), "device")
    if len(elements) == 1:
        return w.call(torch.full, n.type.shape, elements[0], dtype=dtype, device=device)
    table = w.call(torch.tensor, elements, dtype=dtype, device=device)
    return w.call(torch.reshape, table, n.type.shape)


def _of(function: Callable[..., Any]) -> Write:
    """A call of a function of tensors."""
    return lambda w, n: w.call(function, *(w.tensor(a) for a in n.args))


def _binary(function: Callable[..., Any]) -> Write:
    """A call of a function of two tensors, one of which may be a number."""

    def write(w: _Writer, n: Node) -> fx.Node:
        x, y = (w.arg(a) for a in n.args)
        if not isinstance(x, fx.Node) and (not isinstance(y, fx.Node) or function not in _SWAPPED):
            x = w.tensor(n.args[0])
        if not isinstance(x, fx.Node):
            x, y, f = y, x, _SWAPPED[function]
            return w.call(f, x, y)
        return w.call(function, x, y)

    return write


_SWAPPED: dict[Any, Any] = {
    torch.add: torch.add, torch.mul: torch.mul, torch.sub: torch.rsub, torch.eq: torch.eq, torch.ne: torch.ne,
    torch.lt: torch.gt, torch.gt: torch.lt, torch.le: torch.ge, torch.ge: torch.le,
    torch.bitwise_and: torch.bitwise_and, torch.bitwise_or: torch.bitwise_or, torch.bitwise_xor: torch.bitwise_xor,
}  # fmt: skip
"""The same functions with their operands swapped."""


def _compared(function: Callable[..., Any]) -> Write:
    """A comparison; of unsigned integers with the highest bit flipped."""
    plain = _binary(function)

    def write(w: _Writer, n: Node) -> fx.Node:
        if w.type(n, 0).dtype != "uint":
            return plain(w, n)
        return w.call(function, *(w.call(torch.bitwise_xor, w.tensor(a), _SIGN) for a in n.args))

    return write


def _ordered(function: Callable[..., Any]) -> Write:
    """A maximum or minimum; of unsigned integers as of int64."""

    def write(w: _Writer, n: Node) -> fx.Node:
        axes = n.attr.get("axes")
        args: list[Any] = [w.tensor(a) for a in n.args]
        if w.type(n, 0).dtype != "uint":
            return w.call(function, *args, *([tuple(axes)] if axes else []))
        wide = [w.call(unsigned, a) for a in args]
        return w.call(Tensor.to, w.call(function, *wide, *([tuple(axes)] if axes else [])), torch.int32)

    return write


def _shift(w: _Writer, n: Node) -> fx.Node:
    x, by = w.tensor(n.args[0]), w.arg(n.args[1])
    if n.op == "shr" and n.type.dtype == "uint":
        return w.call(shift_right, x, by)
    by = by & 31 if isinstance(by, int) else w.call(torch.bitwise_and, by, 31)
    return w.call(torch.bitwise_left_shift if n.op == "shl" else torch.bitwise_right_shift, x, by)


def _clamp(w: _Writer, n: Node) -> fx.Node:
    lo, hi = (w.arg(a) for a in n.args[1:])
    if isinstance(lo, fx.Node) or isinstance(hi, fx.Node):
        lo, hi = w.tensor(n.args[1]), w.tensor(n.args[2])
    return w.call(torch.clamp, w.tensor(n.args[0]), lo, hi)


def _select(w: _Writer, n: Node) -> fx.Node:
    x, y = (w.arg(a) for a in n.args[1:])
    if not isinstance(x, fx.Node) and not isinstance(y, fx.Node):
        x = w.tensor(n.args[1])
    return w.call(torch.where, w.tensor(n.args[0]), x, y)


def _convert(w: _Writer, n: Node) -> fx.Node:
    x, source, target = w.tensor(n.args[0]), w.type(n, 0).dtype, n.type.dtype
    if target == "bool":
        return w.call(torch.ne, x, 0)
    if source == "uint" and target == "float":
        x = w.call(unsigned, x)
    if source == "float" and target in ("int", "uint"):
        low, high = (0, 2**32 - 1) if target == "uint" else (_SIGN, 2**31 - 1)
        x = w.call(torch.clamp, w.call(Tensor.to, w.call(torch.nan_to_num, x, 0.0), torch.int64), low, high)
    return w.call(Tensor.to, x, DTYPES[target])


def _bitcast(w: _Writer, n: Node) -> fx.Node:
    x, source, target = w.tensor(n.args[0]), w.type(n, 0).dtype, n.type.dtype
    if DTYPES[source] == DTYPES[target]:
        return x
    return w.call(Tensor.view, x, DTYPES[target])


def _broadcast(w: _Writer, n: Node) -> fx.Node:
    shape = [1] * n.type.rank
    for i, axis in enumerate(n.attr.get("axes", ())):
        shape[axis] = w.type(n, 0).shape[i]
    x = w.tensor(n.args[0])
    if tuple(shape) != w.type(n, 0).shape:
        x = w.call(torch.reshape, x, tuple(shape))
    return w.call(Tensor.expand, x, n.type.shape)


def _slice(w: _Writer, n: Node) -> fx.Node:
    x = w.tensor(n.args[0])
    index = tuple(slice(*s) for s in zip(n.attr["start"], n.attr["limit"], n.attr["stride"]))
    return w.call(Tensor.__getitem__, x, index)


def _sum(w: _Writer, n: Node) -> fx.Node:
    return w.call(torch.sum, w.tensor(n.args[0]), tuple(n.attr["axes"]), dtype=DTYPES[n.type.dtype])


def _dot(w: _Writer, n: Node) -> fx.Node:
    """A product as an Einstein summation."""
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    left, right = ([""] * w.type(n, i).rank for i in (0, 1))
    result = []
    for kind in ("batch", "contract"):
        for l, r in zip(n.attr.get(f"lhs_{kind}", ()), n.attr.get(f"rhs_{kind}", ())):
            left[l] = right[r] = next(letters)
            if kind == "batch":
                result.append(left[l])
    for side in (left, right):
        for i, letter in enumerate(side):
            if not letter:
                side[i] = next(letters)
                result.append(side[i])
    equation = f"{''.join(left)},{''.join(right)}->{''.join(result)}"
    return w.call(torch.einsum, equation, w.tensor(n.args[0]), w.tensor(n.args[1]))


WRITE: dict[str, Write] = {
    "constant": _constant,
    "iota": lambda w, n: w.call(iota, n.type.shape, n.attr["axes"][0], DTYPES[n.type.dtype], w.like()),
    "random_bits": lambda w, n: w.call(random_bits, w.tensor(n.args[0]), n.type.shape),
    **{op: _of(getattr(torch, name)) for op, name in {
        "neg": "neg", "abs": "abs", "sqrt": "sqrt", "exp": "exp", "expm1": "expm1", "log": "log", "log1p": "log1p",
        "sin": "sin", "cos": "cos", "tanh": "tanh", "floor": "floor", "round": "round", "is_finite": "isfinite", "not": "bitwise_not", "pow": "pow",
        # Division by a number might become a product with its reciprocal, which rounds twice.
        "div": "div",
    }.items()},
    **{op: _of(f) for op, f in dict[str, Callable[..., Tensor]]({
        "sign": sign, "logb": logb, "ldexp": ldexp, "qr": qr, "eigh_values": eigh_values, "eigh_vectors": eigh_vectors,
        "sort_columns": sort_columns, "nearest": nearest, "lookup": lookup, "top_k": top_k,
        "order_statistic": order_statistic,
    }).items()},
    **{op: _binary(getattr(torch, name)) for op, name in {
        "add": "add", "sub": "sub", "mul": "mul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
        "eq": "eq", "ne": "ne",
    }.items()},
    **{op: _compared(getattr(torch, op)) for op in ("lt", "le", "gt", "ge")},
    "max": _ordered(torch.maximum), "min": _ordered(torch.minimum),
    "reduce_max": _ordered(torch.amax), "reduce_min": _ordered(torch.amin), "reduce_sum": _sum,
    "shl": _shift, "shr": _shift,
    "clamp": _clamp, "select": _select, "convert": _convert, "bitcast": _bitcast,
    "reshape": lambda w, n: w.call(torch.reshape, w.tensor(n.args[0]), n.type.shape),
    "transpose": lambda w, n: w.call(torch.permute, w.tensor(n.args[0]), tuple(n.attr.get("axes", ()))),
    "broadcast": _broadcast, "slice": _slice,
    "concatenate": lambda w, n: w.call(torch.cat, [w.tensor(a) for a in n.args], n.attr["axes"][0]),
    "dot": _dot,
    "hadamard": lambda w, n: w.call(hadamard, w.tensor(n.args[0]), n.attr["block"]),
    "scatter_add": lambda w, n: w.call(scatter_add, w.tensor(n.args[0]), w.tensor(n.args[1]), n.type.shape),
    "stop_gradient": lambda w, n: w.tensor(n.args[0]),
}  # fmt: skip
"""How each operation is written."""


def lower(program: Program) -> fx.GraphModule:
    """A module that takes the inputs of a program, in their order, and returns a tuple of its outputs.

    Nodes have the names of operations. The module has no parameters and no buffers; it computes on the device of its
    first input.
    """
    module = fx.GraphModule(torch.nn.Module(), _Writer(program).graph, class_name=re.sub(r"\W", "_", program.name))
    module.graph.lint()
    return module
