"""The reference executor: runs a program with NumPy, slowly and readably.

Floats are binary64, as in the reference executor of Go, or whatever type is asked for. What docs/reference/operations.md leaves undefined
is as there: shifts count modulo 32, conversions to integers saturate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .infer import Type
from .program import ELEMENTWISE, Node, Program

Array = npt.NDArray[Any]
_NUMPY: dict[str, Any] = {"int": np.int32, "uint": np.uint32, "bool": np.bool_}


def run(program: Program, inputs: Mapping[str, npt.ArrayLike], precision: Any = np.float64) -> dict[str, Array]:
    """The outputs of a program, by name, for inputs by name. precision is the type of floats."""
    values: list[Array] = []
    for name, t in program.inputs:
        if name not in inputs:
            raise ValueError(f"program {program.name}: there is no input {name}")
        x = np.asarray(inputs[name]).astype(_numpy(t, precision))
        if x.shape != t.shape:
            raise ValueError(f"program {program.name}: input {name} has shape {list(x.shape)}, want {t}")
        values.append(x)
    with np.errstate(all="ignore"):
        for n in program.nodes:
            result = OPERATIONS[n.op](n, precision, *[values[a] for a in n.args])
            values.append(np.asarray(result, dtype=_numpy(n.type, precision)).reshape(n.type.shape))
    return {name: values[v] for name, v in program.outputs}


def _numpy(t: Type, precision: Any) -> Any:
    return precision if t.dtype == "float" else _NUMPY[t.dtype]


def _constant(n: Node, precision: Any) -> Any:
    elements = np.array(n.attr.get("floats") or n.attr.get("ints"), dtype=_numpy(n.type, precision))
    return np.full(n.type.shape, elements[0]) if elements.size == 1 else elements


def _iota(n: Node, precision: Any) -> Any:
    return np.indices(n.type.shape, dtype=np.int64)[n.attr["axes"][0]]


def threefry(key: Array, counter: Array) -> Any:
    """The first word of Threefry-2x32 with 20 rounds under the counters (i, 0)."""
    k = [key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA)]
    x, y = counter + k[0], np.zeros_like(counter) + k[1]
    for group in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x = x + y
            y = (y << np.uint32(r) | y >> np.uint32(32 - r)) ^ x
        x = x + k[(group + 1) % 3]
        y = y + k[(group + 2) % 3] + np.uint32(group + 1)
    return x


def _random_bits(n: Node, precision: Any, key: Array) -> Any:
    return threefry(key, np.arange(n.type.size, dtype=np.uint32))


def _convert(n: Node, precision: Any, x: Array) -> Any:
    if x.dtype.kind == "f" and n.type.dtype in ("int", "uint"):
        limits = np.iinfo(_NUMPY[n.type.dtype])
        return np.clip(np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0), limits.min, limits.max).astype(np.int64)
    return x.astype(_numpy(n.type, precision))


def _bitcast(n: Node, precision: Any, x: Array) -> Any:
    bits = np.ascontiguousarray(x.astype(np.float32) if x.dtype.kind == "f" else x)
    return bits.view(np.float32 if n.type.dtype == "float" else _NUMPY[n.type.dtype])


def _broadcast(n: Node, precision: Any, x: Array) -> Any:
    shape = [1] * n.type.rank
    for i, a in enumerate(n.attr.get("axes", ())):
        shape[a] = x.shape[i]
    return np.broadcast_to(x.reshape(shape), n.type.shape)


def _slice(n: Node, precision: Any, x: Array) -> Any:
    return x[tuple(slice(*s) for s in zip(n.attr.get("start", ()), n.attr.get("limit", ()), n.attr.get("stride", ())))]


def _dot(n: Node, precision: Any, x: Array, y: Array) -> Any:
    """Brings both operands into the order batch, own, contracted axes, and sums over the last."""
    batch, (left, xs) = len(n.attr.get("lhs_batch", ())), _arranged(x, n, "lhs")
    right, ys = _arranged(y, n, "rhs")
    x, y = x.transpose(xs), y.transpose(ys)
    shape = x.shape[:batch]
    a = x.reshape(*shape, *[_size(x.shape[batch : batch + left])], -1)
    b = y.reshape(*shape, *[_size(y.shape[batch : batch + right])], -1)
    return np.matmul(a, np.swapaxes(b, -1, -2))


def _arranged(x: Array, n: Node, side: str) -> tuple[int, list[int]]:
    batch, contract = list(n.attr.get(f"{side}_batch", ())), list(n.attr.get(f"{side}_contract", ()))
    own = [a for a in range(x.ndim) if a not in batch + contract]
    return len(own), batch + own + contract


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _hadamard(n: Node, precision: Any, x: Array) -> Any:
    block = n.attr["block"]
    a = x.reshape(-1, block)
    half = 1
    while half < block:
        pairs = a.reshape(-1, block // (2 * half), 2, half)
        a = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2).reshape(-1, block)
        half *= 2
    return a * precision(1 / np.sqrt(block))


def _matrices(f: Callable[[Array], Array], lower: bool) -> Callable[..., Any]:
    """f of each matrix of the last two axes; NaN where an element that it reads is not finite."""

    def operation(n: Node, precision: Any, x: Array) -> Any:
        flat = x.reshape(-1, *x.shape[-2:]).astype(np.float64)
        out = []
        for a in flat:
            read = np.tril(a) if lower else a
            result = f(np.where(np.isfinite(a), a, 0))
            out.append(result if np.isfinite(read).all() else np.full_like(result, np.nan))
        return np.stack(out)

    return operation


def _sort_columns(n: Node, precision: Any, x: Array, keys: Array) -> Any:
    order = np.argsort(-keys, axis=-1, kind="stable")  # NaN comes last
    return np.take_along_axis(x, order[..., None, :], axis=-1)


def _rows(x: Array, table: Array) -> Array:
    """One row for each element, or run of elements, that belongs to a row of the table."""
    return x.reshape(-1, 1 if table.ndim == 1 else table.shape[1])


def _nearest(n: Node, precision: Any, x: Array, table: Array) -> Any:
    rows, entries = _rows(x, table), _rows(table, table)
    distances = np.stack([((rows - e) ** 2).sum(-1) for e in entries], axis=-1)
    return np.argmin(np.where(np.isnan(distances), np.inf, distances), axis=-1)


def _lookup(n: Node, precision: Any, index: Array, table: Array) -> Any:
    return table[np.clip(index, 0, len(table) - 1)]


def _scatter_add(n: Node, precision: Any, index: Array, values: Array) -> Any:
    out = np.zeros(n.type.shape, precision)
    np.add.at(out, np.clip(index, 0, len(out) - 1), values)
    return out


def _top_k(n: Node, precision: Any, x: Array, k: Array) -> Any:
    order = np.argsort(np.where(np.isnan(x), -np.inf, -x), axis=-1, kind="stable")
    nan_first = np.argsort(~np.isnan(np.take_along_axis(x, order, -1)), axis=-1, kind="stable")
    order = np.take_along_axis(order, nan_first, -1)
    return np.argsort(order, axis=-1) < k


def _order_statistic(n: Node, precision: Any, x: Array, k: Array) -> Any:
    place = np.sort(x, axis=-1)[..., np.clip(k, 0, x.shape[-1] - 1)]
    return np.where(np.isnan(x).any(-1), np.nan, place)


def _plain(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda n, precision, *args: f(*args)


def _fold(f: Any) -> Callable[..., Any]:
    return lambda n, precision, x: f.reduce(x, axis=tuple(n.attr["axes"]), dtype=x.dtype)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "constant": _constant,
    "iota": _iota,
    "random_bits": _random_bits,
    "clamp": _plain(lambda x, lo, hi: np.minimum(np.maximum(x, lo), hi)),
    "select": _plain(np.where),
    "convert": _convert,
    "bitcast": _bitcast,
    "reshape": lambda n, precision, x: x.reshape(n.type.shape),
    "transpose": lambda n, precision, x: x.transpose(n.attr.get("axes", ())),
    "broadcast": _broadcast,
    "slice": _slice,
    "concatenate": lambda n, precision, *args: np.concatenate(args, axis=n.attr["axes"][0]),
    "reduce_sum": _fold(np.add),
    "reduce_max": _fold(np.maximum),
    "reduce_min": _fold(np.minimum),
    "dot": _dot,
    "hadamard": _hadamard,
    "qr": _matrices(lambda a: np.linalg.qr(a)[0], lower=False),
    "eigh_values": _matrices(lambda a: np.linalg.eigvalsh(a), lower=True),
    "eigh_vectors": _matrices(lambda a: np.linalg.eigh(a)[1], lower=True),
    "sort_columns": _sort_columns,
    "nearest": _nearest,
    "lookup": _lookup,
    "scatter_add": _scatter_add,
    "top_k": _top_k,
    "order_statistic": _order_statistic,
    **{op: _plain(f) for op, f in ELEMENTWISE.items()},
}
"""What each operation does with its operands."""
