"""The primitives of JAX that move elements to computed places, and folds, as operations of programs.

Places that depend on no input, such as those of x.at[:, 1:3] or x[:, ::-1], become slices where these are few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from jax.lax import GatherScatterMode

from .infer import Type
from .program import Builder, Value

MOST_SLICES = 8
"""Constant places that are more slices than these are looked up in a table."""


class Writer(Protocol):
    """What this module needs of the writer of a program."""

    b: Builder

    def known(self, v: Value) -> Any: ...


Joined = Callable[[Value, Value], Value]

UPDATES: dict[str, Joined | None] = {
    "scatter": None,
    "scatter-add": Value.add,
    "scatter-sub": Value.sub,
    "scatter-mul": Value.mul,
    "scatter-min": Value.min,
    "scatter-max": Value.max,
}


def slices(place: Any) -> list[tuple[int, int, int]]:
    """Runs (first, count, step) of equally spaced ascending places; no more than one beyond MOST_SLICES."""
    runs: list[tuple[int, int, int]] = []
    i = 0
    while i < len(place) and len(runs) <= MOST_SLICES:
        step = int(place[i + 1] - place[i]) if i + 1 < len(place) else 0
        count = 1
        while step > 0 and i + count < len(place) and place[i + count] - place[i + count - 1] == step:
            count += 1
        runs.append((int(place[i]), count, max(step, 1)))
        i += count
    return runs


def take(w: Writer, x: Value, axis: int, place: Any) -> Value:
    """x with the elements of one axis that are at the places: an array of one axis, or a value of any shape."""
    if isinstance(place, np.ndarray):
        runs = slices(place)
        if len(runs) <= MOST_SLICES:
            parts = []
            for first, count, step in runs:
                start, limit, stride = [0] * x.type.rank, list(x.shape), [1] * x.type.rank
                start[axis], limit[axis], stride[axis] = first, first + (count - 1) * step + 1, step
                whole = count == x.shape[axis]
                parts.append(x if whole else x.slice(start, limit, stride))
            return parts[0].concatenate(axis, *parts[1:]) if len(parts) > 1 else parts[0]
        place = w.b.table(place.astype(np.int32))
    if x.dtype == "bool":
        return take(w, x.convert("float"), axis, place).ne(0)
    if x.dtype != "float":  # tables are of floats, which hold 16 bits exactly
        bits = x.bitcast("uint")
        high, low = (take(w, h.convert("float"), axis, place).convert("uint") for h in (bits.shr(w.b.const_uint(16)), bits & 0xFFFF))
        return (high.shl(w.b.const_uint(16)) | low).bitcast(x.dtype)
    others = [i for i in range(x.type.rank) if i != axis]
    rest = [x.shape[i] for i in others]
    table = x.transpose(axis, *others) if axis else x
    table = table.reshape(x.shape[axis], *([math.prod(rest)] if math.prod(rest) > 1 else []))
    out: Value = place.lookup(table).reshape(*place.shape, *rest)
    k = place.type.rank
    return out.transpose(*range(k, k + axis), *range(k), *range(k + axis, k + len(rest))) if axis else out


class Windows:
    """Windows of an operand that begin at indices, with a value of indices [*batch, one for each axis of `mapped`].

    axes are those along which windows can be anywhere, joined into one axis of the operand, at `at`.
    """

    def __init__(self, w: Writer, x: Value, index: Value, mapped: Sequence[int], paired: Mapping[int, int], sizes: Sequence[int], mode: Any) -> None:
        self.fills = mode == GatherScatterMode.FILL_OR_DROP or mode is None
        moving = [a for a in mapped if self.fills or sizes[a] < x.shape[a]] or list(mapped[:1])
        moving += [a for a in range(x.type.rank) if a not in mapped and sizes[a] < x.shape[a]]
        self.axes = sorted({*moving, *paired})
        if not self.axes:
            raise NotImplementedError("an index without axes")
        self.w, self.shape, self.rank = w, x.shape, x.type.rank
        self.rest = [a for a in range(self.rank) if a not in self.axes]
        self.at = self.axes[0] if len(self.axes) == 1 else 0
        self.batch, self.sizes = index.shape[:-1], [sizes[a] for a in self.axes]
        self.size = math.prod(self.shape[a] for a in self.axes)
        self.count = math.prod(self.batch) * math.prod(self.sizes)
        self.place, self.exists = self._places(index, mapped, paired)

    def _places(self, index: Value, mapped: Sequence[int], paired: Mapping[int, int]) -> tuple[Value, Value | None]:
        """Where each element [*batch, *windows] is in the joined axis, and whether all of its window exists."""
        b, many = self.w.b, (*self.batch, *[1] * len(self.axes))
        place, exists, stride = b.const_int(0), None, 1
        index = index.bitcast("int") if index.dtype == "uint" else index
        for i, a in reversed(list(enumerate(self.axes))):
            if a in paired:
                place += b.iota(Type("int", many), paired[a]) * stride
            elif a in mapped:
                j, last = list(mapped).index(a), self.shape[a] - self.sizes[i]
                start = index.at(index.type.rank - 1, j, j + 1).reshape(*many)
                place += start.max(0).min(last) * stride
                if self.fills:
                    inside = start.ge(0) & start.le(last)
                    exists = inside if exists is None else exists & inside
            if self.sizes[i] > 1:
                along = [1] * len(many)
                along[len(self.batch) + i] = self.sizes[i]
                place += b.iota(Type("int", tuple(along)), len(self.batch) + i) * stride
            stride *= self.shape[a]
        if exists is not None and (known := self.w.known(exists)) is not None and known.all():
            exists = None
        return place.broadcast((*self.batch, *self.sizes), () if place.type.rank == 0 else None), exists

    def joined(self, x: Value) -> Value:
        """The operand with its axes joined."""
        if len(self.axes) == 1:
            return x
        return x.transpose(*self.axes, *self.rest).reshape(self.size, *[self.shape[a] for a in self.rest])

    def parted(self, x: Value) -> Value:
        """The inverse of joined."""
        order = [*self.axes, *self.rest]
        return x if len(self.axes) == 1 else x.reshape(*[self.shape[a] for a in order]).transpose(*np.argsort(order).tolist())


def gather(w: Writer, q: Mapping[str, Any], x: Value, index: Value, t: Type) -> Value:
    """The windows of x, of type t."""
    d, sizes = q["dimension_numbers"], q["slice_sizes"]
    paired = dict(zip(d.operand_batching_dims, d.start_indices_batching_dims))
    win = Windows(w, x, index, d.start_index_map, paired, sizes, q["mode"])
    places = w.known(win.place)
    out = take(w, win.joined(x), win.at, win.place if places is None else places.ravel())
    before, after = win.rest[: win.at], win.rest[win.at :]
    dropped = {*d.collapsed_slice_dims, *d.operand_batching_dims}
    kept = [(a, n) for a, n in zip(win.axes, win.sizes) if a not in dropped]
    out = out.reshape(*[x.shape[a] for a in before], *win.batch, *[n for _, n in kept], *[x.shape[a] for a in after])
    # The axes of the result by name: those of x, and −1, −2, … for those of the batch.
    names = [*before, *[-1 - i for i in range(len(win.batch))], *[a for a, _ in kept], *after]
    offset, batch = iter(a for a in range(win.rank) if a not in dropped), iter(range(-1, -1 - len(win.batch), -1))
    wanted = [next(offset) if i in d.offset_dims else next(batch) for i in range(t.rank)]
    if wanted != names:
        out = out.transpose(*[names.index(a) for a in wanted])
    if win.exists is None:
        return out
    filling = q["fill_value"]
    if filling is None:
        filling = {"float": math.nan, "int": -(2**31), "uint": 2**32 - 1, "bool": True}[x.dtype]
    exists = win.exists.reshape(*[1 if i in d.offset_dims else n for i, n in enumerate(t.shape)])
    return exists.select(out, w.b._scalar(x.dtype, filling))


def scatter(w: Writer, name: str, q: Mapping[str, Any], x: Value, index: Value, u: Value) -> Value:
    """x with windows replaced by those of u, or joined with them by an operation."""
    d, join = q["dimension_numbers"], UPDATES[name]
    paired = dict(zip(d.operand_batching_dims, d.scatter_indices_batching_dims))
    of_u = iter(d.update_window_dims)
    where = {a: next(of_u) for a in range(x.type.rank) if a not in (*d.inserted_window_dims, *paired)}
    sizes = [u.shape[where[a]] if a in where else 1 for a in range(x.type.rank)]
    win = Windows(w, x, index, d.scatter_dims_to_operand_dims, paired, sizes, q["mode"])
    at, size, before, after = win.at, win.size, win.rest[: win.at], win.rest[win.at :]
    batch = [i for i in range(u.type.rank) if i not in d.update_window_dims]
    order = [*[where[a] for a in before], *batch, *[where[a] for a in win.axes if a in where], *[where[a] for a in after]]
    u = u.transpose(*order) if order != sorted(order) else u
    u = u.reshape(*[x.shape[a] for a in before], win.count, *[x.shape[a] for a in after])
    x = win.joined(x)

    def put(new: Value, rows: Any) -> Value:
        """x, of which some rows are those of new: rows says which, of x followed by new."""
        return take(w, x.concatenate(at, new), at, rows)

    exists = None if win.exists is None else win.exists.broadcast((*win.batch, *win.sizes)).reshape(win.count)
    place, present = w.known(win.place), True if exists is None else w.known(exists)
    adds = name in ("scatter-add", "scatter-sub") and x.dtype == "float"
    if place is not None and present is not None:
        rows, pending = place.ravel(), np.flatnonzero(np.broadcast_to(present, win.count))
        rounds = 0 if len(pending) == 0 else max(np.bincount(rows[pending]))
        while len(pending) and (rounds == 1 or not adds) and rounds <= 64:
            chosen = dict(zip(rows[pending].tolist(), pending.tolist()))  # of equal places the last
            if join is not None:
                chosen = dict(zip(rows[pending[::-1]].tolist(), pending[::-1].tolist()))  # the first
            to, of = np.array(list(chosen)), np.array(list(chosen.values()))
            new = take(w, u, at, of)
            moved = np.arange(size)
            moved[to] = size + np.arange(len(to))
            x = put(new if join is None else join(take(w, x, at, to), new), moved)
            pending = np.array([], int) if join is None else np.setdiff1d(pending, of)
        if len(pending) == 0:
            return win.parted(x)
    # A row more takes what has no place.
    target = win.place.reshape(win.count)
    target = target if exists is None else exists.select(target, w.b.const_int(size))
    if adds:
        first = [at, *[i for i in range(x.type.rank) if i != at]]
        added = u if name == "scatter-add" else -u
        added = added.transpose(*first) if at else added
        rest = added.shape[1:]
        total = target.scatter_add(added.reshape(win.count, *([math.prod(rest)] if math.prod(rest) > 1 else [])), size + 1)
        total = total.at(0, 0, size).reshape(size, *rest)
        return win.parted(x + (total.transpose(*np.argsort(first).tolist()) if at else total))
    if not q["unique_indices"] and math.prod(win.batch) > 1:
        raise NotImplementedError(f"{name} at places that depend on the input and may coincide: say unique_indices=True if they differ")
    number = w.b.iota(Type("float", (win.count,)), 0) + 1
    found = target.scatter_add(number, size + 1).at(0, 0, size).convert("int")
    new = u if join is None else join(take(w, x, at, win.place.reshape(win.count)), u)
    return win.parted(put(new, found.gt(0).select(found + (size - 1), w.b.iota(Type("int", (size,)), 0))))


def pad(x: Value, filling: Value, config: Sequence[tuple[int, int, int]]) -> Value:
    """x with padding before, after and between the elements of each axis; what is negative is cut off."""
    for axis, (low, high, between) in enumerate(config):
        before, n, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
        if between and n > 1:
            fill = filling.broadcast([*before, n, between, *after], ())
            x = x.reshape(*before, n, 1, *after).concatenate(axis + 1, fill).reshape(*before, n * (between + 1), *after)
            n = n * (between + 1) - between
            x = x.at(axis, 0, n)
        parts = [filling.broadcast([*before, k, *after], ()) if k > 0 else None for k in (low, high)]
        pieces = [p for p in (parts[0], x, parts[1]) if p is not None]
        x = pieces[0].concatenate(axis, *pieces[1:]) if len(pieces) > 1 else x
        if low < 0 or high < 0:
            x = x.at(axis, max(-low, 0), x.shape[axis] + min(high, 0))
    return x


def cumulated(x: Value, axis: int, reverse: bool, f: Joined) -> Value:
    """The results of f from the first element to each, or from each to the last, in a logarithm of steps."""
    n, shift = x.shape[axis], 1
    while shift < n:
        joined = f(x.at(axis, 0, n - shift), x.at(axis, shift, n))
        x = joined.concatenate(axis, x.at(axis, n - shift, n)) if reverse else x.at(axis, 0, shift).concatenate(axis, joined)
        shift *= 2
    return x


def folded(x: Value, axes: Sequence[int], f: Joined) -> Value:
    """The result of f of all elements along axes, which are removed."""
    for axis in sorted(axes, reverse=True):
        while (n := x.shape[axis]) > 1:
            half = f(x.at(axis, 0, n // 2), x.at(axis, n // 2, n // 2 * 2))
            x = half.concatenate(axis, x.at(axis, n - 1, n)) if n % 2 else half
        x = x.reshape(*x.shape[:axis], *x.shape[axis + 1 :])
    return x


def log_add(x: Value, y: Value) -> Value:
    """log(eˣ + eʸ)."""
    apart = x.eq(y).select(0.0, (x - y).abs())  # ∞ − ∞ is NaN
    return x.max(y) + (-apart).exp().log1p()
