"""Plugins from functions in JAX: from_jax makes a quantizer of one, from_optax an optimizer of a transformation of optax.

The function is traced once for each site or tensor, and its jaxpr becomes a program. Loops of known length are unrolled and
all branches of a conditional are computed, unless it is known which is taken; what has no operation in
docs/reference/operations.md is named with its line. Operations that JAX lacks are written with `op`.
"""

from __future__ import annotations

import math
import os
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad

from . import executor, indexing
from .infer import DTYPES, Type, infer
from .optimizer import Optimizer, Tensor, UpdateInput
from .plugin import Description, State
from .program import ELEMENTWISE, Builder, Node, ProgramError, Value, call_site
from .quantizer import Gradients, Quantized, Quantizer, Site

LONGEST_LOOP = 64
"""The largest number of rounds of a loop that is unrolled."""

_op_p = Primitive("cage_op")
_BITS = '; cage_sdk.jax.op("random_bits", site.noise, type=Type("uint", x.shape)) gives random bits'
_NUMPY: dict[str, Any] = {"float": np.dtype("float32"), "int": np.dtype("int32"), "uint": np.dtype("uint32"), "bool": np.dtype("bool")}


def op(name: str, *args: Any, type: Type = Type("float"), **attr: Any) -> Any:
    """An operation of docs/reference/operations.md on arrays, such as op("nearest", x, table) or op("hadamard", x, block=32)."""
    given = tuple((k, tuple(v) if isinstance(v, Sequence) else v) for k, v in sorted(attr.items()))
    return _op_p.bind(*args, name=name, type=type, attr=given)


def _op_type(*avals: Any, name: str, type: Type, attr: Any) -> Any:
    t = infer(name, [_type(a) for a in avals], dict(attr), type)
    return jax.core.ShapedArray(t.shape, _NUMPY[t.dtype])


def _op_run(*args: Any, name: str, type: Type, attr: Any) -> Any:
    t = infer(name, [_type(jax.typeof(a)) for a in args], dict(attr), type)
    result = executor.OPERATIONS[name](Node(name, (), t, dict(attr)), np.float32, *map(np.asarray, args))
    return jnp.asarray(result).reshape(t.shape)


# Operations with floats as results that have no gradient. JAX has operations of its own for most of the others.
_FLAT = {"constant", "iota", "sign", "floor", "round", "logb", "bitcast", "stop_gradient"}


def _op_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    out = _op_p.bind(*primals, **params)
    if params["name"] == "hadamard":
        t = tangents[0]
        return out, t if isinstance(t, ad.Zero) else _op_p.bind(t, **params)
    if params["name"] == "clamp":  # as in programs: none to the bounds
        t = tangents[0]
        return out, t if isinstance(t, ad.Zero) else jnp.where(out == primals[0], t, 0)
    if out.dtype == jnp.float32 and params["name"] not in _FLAT:
        raise NotImplementedError(f"op({params['name']!r}) has no gradient in JAX: put stop_gradient around its operands")
    return out, ad.Zero(jax.typeof(out).to_tangent_aval())


_op_p.def_abstract_eval(_op_type)
_op_p.def_impl(_op_run)
ad.primitive_jvps[_op_p] = _op_jvp
ad.primitive_transposes[_op_p] = lambda ct, x, **params: [_op_p.bind(ct, **params)]


def _type(aval: Any) -> Type:
    """The type of a program that an array of JAX has. Only 32 bits are computed with."""
    for dtype in DTYPES:
        if aval.dtype == _NUMPY[dtype]:
            return Type(dtype, tuple(int(d) for d in aval.shape))
    if jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        raise ValueError(f"random keys are no type of programs{_BITS}")
    hint = "; jax.lax.reduce_precision rounds to fewer bits" if jnp.issubdtype(aval.dtype, jnp.floating) else ""
    raise ValueError(f"{aval.dtype} is no type of programs: use float32, int32, uint32 or bool{hint}")


# The operation of a primitive that has the same operands; JAX's round has an attribute.
_SAME = {op: op for op in ELEMENTWISE if op != "round"} | {"add_any": "add"}
_IDENTITY = {"copy", "copy_p", "device_put", "optimization_barrier", "pvary"}
_HINTS = {
    "sort": '; cage_sdk.jax.op("order_statistic", x, k) and op("top_k", x, k) order the elements of a row',
    "top_k": '; cage_sdk.jax.op("top_k", x, k) marks the k largest elements of a row',
    "rem": "; x - jnp.floor(x / y) * y is x modulo y, up to rounding",
    **dict.fromkeys(("random_seed", "random_wrap", "random_unwrap", "random_bits", "threefry2x32"), _BITS),
}
_MONOIDS = {"add", "mul", "max", "min", "and", "or", "xor"}
_CUMULATED: dict[str, indexing.Joined] = {
    "cumsum": Value.add,
    "cumprod": Value.mul,
    "cummax": Value.max,
    "cummin": Value.min,
    "cumlogsumexp": indexing.log_add,
}


def _holds(dtype: str, number: float) -> bool:
    """Whether a number is one of an integer type, or of bool."""
    low, high = {"int": (-(2**31), 2**31 - 1), "uint": (0, 2**32 - 1), "bool": (0, 1)}[dtype]
    return low <= number <= high and number == int(number)


class _Writer:
    """Writes jaxprs into a program."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.narrow: dict[int, Value] = {}  # of a value that only repeats another: that one
        self.literals: dict[int, float | int | bool] = {}  # of a constant scalar: its number
        self.negated: dict[int, Value] = {}  # of −1 times a value: that one
        self.outer: Any = None  # the author's line that calls what is written now, where that is a function of its own

    def call(self, f: Callable[..., Any], *args: Any) -> Any:
        """f of the arguments, a tree of values."""
        closed, shape = jax.make_jaxpr(f, return_shape=True)(*_shapes(args))
        results = self.inline(closed.jaxpr, closed.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shape), results)

    def inline(self, jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        """The results for arguments. A value without elements, which programs do not have, is None."""
        env: dict[Any, Any] = dict(zip(jaxpr.invars, args))
        for v, c in zip(jaxpr.constvars, consts):
            env[v] = self.constant(c, _type(v.aval)) if v.aval.size else None

        def read(v: Any) -> Any:
            return self.constant(v.val, _type(v.aval)) if hasattr(v, "val") else env[v]

        for e in jaxpr.eqns:
            try:
                nothing = not any(v.aval.size for v in e.outvars)
                results = [None] * len(e.outvars) if nothing else self.equation(e, [read(v) for v in e.invars])
            except (ValueError, NotImplementedError) as error:
                if isinstance(error, _Located):
                    raise
                raise _Located(f"{str(error).removesuffix(call_site())}{_place(_frames(e), self.outer)}") from None
            env.update(zip(e.outvars, results))
        return [read(v) for v in jaxpr.outvars]

    def known(self, v: Value) -> Any:
        """The elements of a value that depends on no input; None of others, and of large ones."""
        part = replace(self.b._program, outputs=[("v", v.id)]).pruned(0)
        if part.inputs or sum(n.type.size for n in part.nodes) > 1 << 22:
            return None
        return executor.run(part, {}, np.float32)["v"]

    def constant(self, v: Any, t: Type) -> Value:
        a = np.asarray(v, dtype=_NUMPY[t.dtype])
        same = a.size == 1 or a.tobytes() == a.flat[0].tobytes() * a.size  # 0 and −0 differ
        return self.filled(a.flat[0].item(), t) if same else self.b.table(a)

    def filled(self, number: float | int | bool, t: Type) -> Value:
        if t.shape:
            attr: dict[str, Any] = {"floats": [float(number)]} if t.dtype == "float" else {"ints": [int(number)]}
            return self.b.apply("constant", type=t, **attr)
        c = self.b._scalar(t.dtype, float(number) if t.dtype == "float" else int(number))
        self.literals[c.id] = number
        return c

    def elementwise(self, name: str, args: list[Value], t: Type) -> Value:
        """An operation on operands of one shape, less the repetitions that the program does by itself."""
        for i, a in enumerate(args):
            if a.id in self.narrow:
                tried = [*args[:i], self.narrow[a.id], *args[i + 1 :]]
                if infer(name, [v.type for v in tried], {}, t) == t:
                    args = tried
        out = self.b.apply(name, *args)
        for factor, other in (args, args[::-1]) if name == "mul" else ():
            if self.literals.get(factor.id) == -1 and other.type == t:
                self.negated[out.id] = other
        return out

    def node(self, v: int) -> Node | None:
        """The node that computes a value, by its number; None for an input."""
        first = len(self.b._program.inputs)
        return self.b._program.nodes[v - first] if v >= first else None

    def within(self, v: Value, low: int, high: int) -> bool:
        """Whether v is a constant of integers from low to high."""
        n = self.node(v.id)
        return n is not None and n.op == "constant" and all(low <= i <= high for i in n.attr["ints"])

    def equation(self, e: Any, a: list[Any]) -> list[Any]:
        name, q = e.primitive.name, e.params
        if name == "scan":
            return self.scan(q, a)
        if name == "while":
            return self.loop(q, a)
        if name == "cond":
            return self.cond(q, a)
        for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
            if key in q and not name.startswith("reduce"):
                inner, outer = q[key], self.outer
                self.outer = (_frames(e) or [None])[-1] if outer is None else outer
                results = self.inline(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), a)
                self.outer = outer
                return results
        if name == "split":
            ends = np.cumsum(q["sizes"]).tolist()
            return [a[0].at(q["axis"], end - size, end) if size else None for end, size in zip(ends, q["sizes"])]
        if name == "unstack":
            axis = q["axis"]
            shape = [n for i, n in enumerate(a[0].shape) if i != axis]
            return [a[0].at(axis, i, i + 1).reshape(*shape) for i in range(a[0].shape[axis])]
        t = _type(e.outvars[0].aval)
        if name == "cage_op":
            return [self.b.apply(q["name"], *a, type=q["type"], **dict(q["attr"]))]
        a = [v for v in a if v is not None] if name == "concatenate" else a
        result = self.one(name, q, a, t) if all(v is not None for v in a) else self.of_nothing(name, a, t)
        if result.type != t:
            raise NotImplementedError(f"{name} of {a[0].type} to {t} has no operation in docs/reference/operations.md")
        return [result]

    def of_nothing(self, name: str, a: list[Any], t: Type) -> Value:
        """An equation with operands that have no elements."""
        left: Value | None = a[0]
        if name == "pad":
            left = a[1].broadcast(t.shape, ())
        elif name in ("reduce_sum", "dot_general"):
            left = self.filled(0, t)
        if left is not None:
            return left
        raise NotImplementedError(f"{name} of an array without elements has no operation in docs/reference/operations.md")

    def one(self, name: str, q: Mapping[str, Any], a: list[Value], t: Type) -> Value:
        """An equation with one result, of type t."""
        b = self.b
        if name == "pow" and a[1].dtype != "float":
            a[1] = a[1].convert("float")
        if name == "neg" and a[0].id in self.negated:
            return self.negated[a[0].id]
        if name in ("div", "rem") and t.dtype in ("int", "uint"):
            return self.divide(name, a[0], a[1])
        if name.startswith("shift_"):
            return self.shift(name, a[0], a[1])
        if name.endswith("_to") and name[:-3] in _SAME:  # a comparison in the order of all floats, with NaN and −0
            bits = [v.bitcast("int") for v in a]
            a, name = [v ^ (v.shr(b.const_int(31)) & 0x7FFFFFFF) for v in bits], name[:-3]
        if name in _SAME:
            return self.elementwise(_SAME[name], a, t)
        match name:
            case "round":
                if int(q["rounding_method"]) == 1:
                    return a[0].round()
                size = a[0].abs()
                whole = size.floor()
                return a[0].sign() * (whole + (size - whole).ge(0.5).convert("float"))
            case "ceil":
                return -(-a[0]).floor()
            case "square":
                return a[0].square()
            case "integer_pow" if q["y"] == 0:
                return self.filled(1, t)
            case "integer_pow":
                power = a[0]
                for _ in range(abs(q["y"]) - 1):
                    power = power * a[0]
                return power if q["y"] > 0 else 1 / power
            case "rsqrt":
                return 1 / a[0].sqrt()
            case "exp2":
                return (a[0] * float(np.log(2))).exp()
            case "logistic":
                return 1 / ((-a[0]).exp() + 1)
            case "clamp":
                return a[1].max(a[0]).min(a[2])
            case "select_n":
                if a[0].dtype == "bool":
                    return self.elementwise("select", [a[0], a[2], a[1]], t)
                return self.choose(a[0], a[1:])
            case "convert_element_type":
                number = self.literals.get(a[0].id)
                if number is not None and (t.dtype == "float" or _holds(t.dtype, number)):
                    return self.filled(number if t.dtype == "float" else int(number), t)
                return a[0] if a[0].dtype == t.dtype else a[0].convert(t.dtype)
            case "bitcast_convert_type":
                return a[0].bitcast(t.dtype)
            case "reshape" | "squeeze" | "expand_dims":
                order = q.get("dimensions") if name == "reshape" else None
                return (a[0] if order is None else a[0].transpose(*order)).reshape(*t.shape)
            case "transpose":
                return a[0].transpose(*q["permutation"])
            case "broadcast_in_dim":
                return self.broadcast(a[0], t, q["broadcast_dimensions"])
            case "concatenate":
                return a[0].concatenate(q["dimension"], *a[1:])
            case "stack":
                at = q["axis"]
                rows = [v.reshape(*t.shape[:at], 1, *t.shape[at + 1 :]) for v in a]
                return rows[0].concatenate(at, *rows[1:])
            case "tile":
                x = a[0]
                for axis, times in enumerate(q["reps"]):
                    x = x.concatenate(axis, *[x] * (times - 1)) if times > 1 else x
                return x
            case "slice":
                return a[0].slice(q["start_indices"], q["limit_indices"], q["strides"])
            case "pad":
                return indexing.pad(a[0], a[1], q["padding_config"])
            case "rev":
                x = a[0]
                for axis in q["dimensions"]:
                    x = indexing.take(self, x, axis, np.arange(x.shape[axis])[::-1])
                return x
            case "dynamic_slice":
                return self.window(a[0], a[1:], t, None)
            case "dynamic_update_slice":
                return self.window(a[0], a[2:], a[1].type, a[1])
            case "gather":
                return indexing.gather(self, q, a[0], a[1], t)
            case _ if name in indexing.UPDATES:
                return indexing.scatter(self, name, q, *a)
            case _ if name in _CUMULATED:
                return indexing.cumulated(a[0], q["axis"], q["reverse"], _CUMULATED[name])
            case "empty" | "empty2":  # what the other branches of a conditional leave, which is not read
                return self.filled(0, t)
            case "iota":
                return b.iota(t, q["dimension"])
            case "reduce_sum" | "reduce_max" | "reduce_min" if t.dtype != "bool":
                return b.apply(name, a[0], axes=list(q["axes"])) if q["axes"] else a[0]
            case "reduce_and" | "reduce_or" | "reduce_max" | "reduce_min" if t.dtype == "bool":
                fold = "reduce_min" if name in ("reduce_and", "reduce_min") else "reduce_max"
                return b.apply(fold, a[0].convert("int"), axes=list(q["axes"])).convert("bool")
            case "reduce_prod" | "reduce_and" | "reduce_or" | "reduce_xor":
                join = name.removeprefix("reduce_").replace("prod", "mul")
                return indexing.folded(a[0], q["axes"], lambda x, y: b.apply(join, x, y))
            case "reduce" if len(a) == 2 and [i.primitive.name for i in q["jaxpr"].eqns] in [[m] for m in _MONOIDS]:
                join = q["jaxpr"].eqns[0].primitive.name
                return b.apply(join, indexing.folded(a[0], q["dimensions"], lambda x, y: b.apply(join, x, y)), a[1])
            case "dot_general":
                contract, batch = q["dimension_numbers"]
                return a[0].dot(a[1], contract, batch)
            case "argmin" | "argmax":
                a[0], axis = a[0].convert("int") if a[0].dtype == "bool" else a[0], q["axes"][0]
                kept = [1 if i == axis else d for i, d in enumerate(a[0].shape)]
                extreme = (a[0].reduce_min(axis) if name == "argmin" else a[0].reduce_max(axis)).reshape(*kept)
                found = a[0].eq(extreme)
                if a[0].dtype == "float":
                    found = found.or_(a[0].ne(a[0]))  # the first NaN
                places = b.iota(Type(t.dtype, a[0].shape), axis)
                return found.select(places, b._scalar(t.dtype, a[0].shape[axis])).reduce_min(axis)
            case "platform_index":
                own = [i for i, p in enumerate(q["platforms"]) if p is None or "cpu" in p]
                return self.filled(own[0], t)
            case "reduce_precision":
                return self.rounded(a[0], q["exponent_bits"], q["mantissa_bits"])
            case _ if name in _IDENTITY:
                return a[0]
        raise NotImplementedError(f"{name} has no operation in docs/reference/operations.md{_HINTS.get(name, '')}")

    def shift(self, name: str, x: Value, by: Value) -> Value:
        """A shift, which is by no more than 31 bits in programs and by any number of bits in JAX."""
        op, kind = "shl" if name == "shift_left" else "shr", x.dtype
        if name == "shift_right_logical":
            kind = "uint"
        if name == "shift_right_arithmetic":
            kind = "int"

        def shifted(bits: Value) -> Value:
            if kind != x.dtype:
                return self.b.apply(op, x.bitcast(kind), bits.bitcast(kind)).bitcast(x.dtype)
            return self.elementwise(op, [x, bits], x.type)

        if self.within(by, 0, 31):
            return shifted(by)
        count = by.bitcast("uint")  # JAX counts a negative number of bits as many
        bits = count.min(31).bitcast(by.dtype)
        if name == "shift_right_arithmetic":
            return shifted(bits)
        return count.lt(32).select(shifted(bits), self.b._scalar(x.dtype, 0))

    def divide(self, name: str, x: Value, y: Value) -> Value:
        """The quotient or remainder of integers, rounded toward zero, in floats of which only 22 bits need to be right."""
        signed, zero = x.dtype == "int", self.b.const_uint(0)

        def size(v: Value) -> Value:
            u = v.bitcast("uint")
            return v.lt(0).select(zero - u, u) if signed else u

        rest, divisor = size(x), size(y)
        quotient = zero
        for _ in range(2):  # the first leaves less than 2¹² divisors, the second less than 2
            part = (rest.convert("float") / divisor.convert("float") * (1 - 2.0**-21)).convert("uint")
            quotient, rest = quotient + part, rest - part * divisor
        last = rest.ge(divisor).convert("uint")
        out = quotient + last if name == "div" else rest - last * divisor
        if signed:
            minus = x.lt(0).xor(y.lt(0)) if name == "div" else x.lt(0)
            out = minus.select(zero - out, out).bitcast("int")
        if self.within(y, 1, 2**31 - 1):
            return out
        return y.eq(0).select((y.not_() if name == "div" else x), out)

    def broadcast(self, x: Value, t: Type, axes: Sequence[int]) -> Value:
        if x.id in self.literals:
            return self.filled(self.literals[x.id], t)
        if x.type.size == t.size:
            return x.reshape(*t.shape)
        out = x.broadcast(t.shape, axes)
        if not x.shape or x.type.rank == t.rank:
            self.narrow[out.id] = x
        return out

    def window(self, x: Value, starts: Sequence[Value], t: Type, u: Value | None) -> Value:
        """The window of x in the shape of t, or x with u there."""
        index = [s.convert("int").reshape(1) if s.dtype == "bool" else s.bitcast("int").reshape(1) for s in starts]
        axes = tuple(range(t.rank))
        at = index[0].concatenate(0, *index[1:]) if len(index) > 1 else index[0]
        q: dict[str, Any] = {"mode": jax.lax.GatherScatterMode.CLIP, "slice_sizes": t.shape, "unique_indices": True}
        if u is None:
            q["dimension_numbers"] = jax.lax.GatherDimensionNumbers(axes, (), axes)
            return indexing.gather(self, q, x, at, t)
        q["dimension_numbers"] = jax.lax.ScatterDimensionNumbers(axes, (), axes)
        return indexing.scatter(self, "scatter", q, x, at, u)

    def rounded(self, x: Value, exponent: int, mantissa: int) -> Value:
        """x rounded to the nearest number with so many bits, ties to even; what is too large is ∞, what is too small 0."""
        y = x
        if mantissa < 23:
            bits, cut = x.bitcast("uint"), 23 - mantissa
            odd = bits.shr(self.b.const_uint(cut)) & 1
            bits = (bits + odd + (2 ** (cut - 1) - 1)) & (2**32 - 2**cut)
            y = bits.bitcast("float")
        if exponent < 8:
            top = 2 ** (exponent - 1) - 1
            y = y.abs().lt(2.0 ** (1 - top)).select(0.0, y.abs().ge(2.0 ** (top + 1)).select(y.sign() * math.inf, y))
        return x.is_finite().select(x + (y - x).stop_gradient(), x)  # the gradient passes, as in JAX

    def straight(self, v: Value) -> Value:
        """v; where it is x + stop_gradient(q − x), it is q."""
        last = self.node(v.id)
        for x, stopped in (last.args, last.args[::-1]) if last and last.op == "add" else ():
            stop = self.node(stopped)
            difference = self.node(stop.args[0]) if stop and stop.op == "stop_gradient" else None
            if difference and difference.op == "sub" and difference.args[1] == x:
                q = difference.args[0]
                out = Value(self.b, q, self.b._program.type_of(q))
                return out if out.type == v.type else out.broadcast(v.shape)
        return v

    def choose(self, which: Value, cases: Sequence[Value]) -> Value:
        out = cases[0]
        for i, case in enumerate(cases[1:], 1):
            out = which.ge(i).select(case, out)
        return out

    def cond(self, q: Mapping[str, Any], a: list[Any]) -> list[Any]:
        """The results of one branch. Where the input says which, all are computed, which have no effects."""
        which, known = a[0].convert("int") if a[0].dtype == "bool" else a[0], self.known(a[0])
        if known is not None:
            branch = q["branches"][min(max(int(known), 0), len(q["branches"]) - 1)]
            return self.inline(branch.jaxpr, branch.consts, a[1:])
        branches = [self.inline(branch.jaxpr, branch.consts, a[1:]) for branch in q["branches"]]
        return [self.choose(which, results) for results in zip(*branches)]

    def loop(self, q: Mapping[str, Any], a: list[Any]) -> list[Any]:
        """Writes the body once for each round, as many as there are whatever the input is."""
        test, body, split = q["cond_jaxpr"], q["body_jaxpr"], q["cond_nconsts"] + q["body_nconsts"]
        tested, used, carry = a[: q["cond_nconsts"]], a[q["cond_nconsts"] : split], a[split:]
        for _ in range(LONGEST_LOOP + 1):
            on = self.known(self.inline(test.jaxpr, test.consts, [*tested, *carry])[0])
            if on is None:
                raise NotImplementedError("while has no operation in docs/reference/operations.md where the input decides when it ends")
            if not on:
                return carry
            carry = self.inline(body.jaxpr, body.consts, [*used, *carry])
        raise NotImplementedError(f"a loop of more rounds than {LONGEST_LOOP}, which are unrolled at most")

    def scan(self, q: Mapping[str, Any], a: list[Any]) -> list[Any]:
        """Writes the body once for each round."""
        if q["length"] > LONGEST_LOOP:
            raise NotImplementedError(f"a loop of {q['length']} rounds: at most {LONGEST_LOOP} are unrolled")
        inner, consts, carry = q["jaxpr"], a[: q["num_consts"]], a[q["num_consts"] :][: q["num_carry"]]
        rows = a[q["num_consts"] + q["num_carry"] :]
        collected: list[list[Value]] = []
        for i in range(q["length"]):
            i = q["length"] - 1 - i if q["reverse"] else i
            xs = [r.at(0, i, i + 1).reshape(*r.shape[1:]) for r in rows]
            results = self.inline(inner.jaxpr, inner.consts, [*consts, *carry, *xs])
            carry, ys = results[: q["num_carry"]], results[q["num_carry"] :]
            collected.append([y.reshape(1, *y.shape) for y in ys])
        if q["reverse"]:
            collected.reverse()
        return carry + [column[0].concatenate(0, *column[1:]) for column in zip(*collected)]


class _Located(ProgramError):
    """A mistake whose line is known."""


def _frames(e: Any) -> list[Any]:
    """The lines of an equation that are neither JAX's nor this package's, the innermost last."""
    skipped = (os.path.dirname(jax.__file__), os.path.dirname(os.path.abspath(__file__)))
    tb = e.source_info.traceback
    frames = traceback.extract_tb(tb.as_python_traceback()) if tb else []
    return [(f.filename, f.lineno) for f in frames if not f.filename.startswith(skipped)]


def _place(frames: list[Any], outer: Any) -> str:
    """The innermost line. JAX keeps functions that it has traced, with the lines of their first call: then it is outer."""
    if outer is not None and outer not in frames:
        frames = [outer]
    return f" ({os.path.basename(frames[-1][0])}:{frames[-1][1]})" if frames else ""


def from_jax(
    f: Callable[[Any, Site], Any],
    description: Description,
    unpack: Callable[[Any, Any, Site], Any] | None = None,
    init_trained: Callable[[Any, Site], Mapping[str, Any]] | None = None,
    init_state: Callable[[Any, Site], Mapping[str, Any]] | None = None,
    maxima: Sequence[str] = (),
) -> Quantizer:
    """A quantizer of f(x, site), which returns Q(x), or a mapping with `value` and some of surrogate, codes, scale, mask and next.

    site.trained, site.state, site.noise, site.shared_noise, site.step and site.steps are arrays here. A mapping may have `homogeneous` and `grid`, too. Where
    there is no surrogate, the gradient is JAX's if the function says something of it, by stop_gradient, custom_vjp or
    custom_jvp, which need not be linear in the one that comes in; otherwise it passes straight through. x + stop_gradient(q − x) has the value q, bit for bit. maxima names the
    state tensors that are maxima over micro-batches, and not means.
    """

    class FromJax(Quantizer):
        def quantize(self, b: Builder, x: Value, site: Site) -> Quantized:
            promises: dict[str, Any] = {}

            def outputs(x: Any, trained: Any, given: Any) -> Any:
                r = f(x, replace(site, trained=trained, **given))
                out = dict(r) if isinstance(r, Mapping) else {"value": r}
                promises["homogeneous"], promises["grid"] = bool(out.pop("homogeneous", False)), out.pop("grid", None)
                return out

            def value(x: Any, trained: Any, given: Any) -> Any:
                return outputs(x, trained, given)["value"]

            def surrogate(x: Any, trained: Any, given: Any) -> Any:
                """The function whose gradient is that of value: its derivative at a fixed point, times the argument."""
                x0, trained0 = jax.lax.stop_gradient((x, trained))
                y, vjp = jax.vjp(lambda x, trained: value(x, trained, given), x0, trained0)
                return jax.linear_transpose(vjp, y)((x, trained))[0]

            w = _Writer(b)
            args = (x, site.trained, {"state": site.state, "fresh": site.fresh})
            given = w.call(outputs, *args)
            given["value"] = w.straight(given["value"])
            if "surrogate" not in given and _says_gradient(value, args) and _is_linear(value, args):
                given["surrogate"] = w.call(surrogate, *args)
            unknown = set(given) - {"value", "surrogate", "codes", "scale", "mask", "next"}
            if unknown:
                raise ProgramError(f"the function returns {sorted(unknown)}: there are value, surrogate, codes, scale, mask and next")
            return Quantized(**given, **promises)

        def backward(self, b: Builder, x: Value, dy: Value, site: Site) -> Gradients:
            def outputs(x: Any, trained: Any, given: Any) -> dict[str, Any]:
                r = f(x, replace(site, trained=trained, **given))
                return {name: v for name, v in r.items() if name != "grid"} if isinstance(r, Mapping) else {"value": r}

            def value(x: Any, trained: Any, given: Any) -> Any:
                return outputs(x, trained, given)["value"]

            def gradients(x: Any, trained: Any, given: Any, dy: Any) -> Any:
                return jax.vjp(lambda x, trained: value(x, trained, given), x, trained)[1](dy)

            args = (x, site.trained, {"state": site.state, "fresh": site.fresh})
            if "surrogate" in jax.eval_shape(outputs, *_shapes(args)) or not _says_gradient(value, args) or _is_linear(value, args):
                return Gradients()
            return Gradients(*_Writer(b).call(gradients, *args, dy))

    members: dict[str, Any] = {"description": description, "maximum": lambda self, s, site: s in maxima}
    if unpack is not None:
        members["unpack"] = lambda self, b, codes, scale, site: _Writer(b).call(lambda c, s: unpack(c, s, site), codes, scale)
    for name, start in (("init_trained", init_trained), ("init_state", init_state)):
        if start is not None:
            members[name] = lambda self, b, x, site, start=start: _Writer(b).call(lambda x: dict(start(x, site)), x)
    made: Quantizer = type("FromJax", (FromJax,), members)()
    return made


def _shapes(values: Any) -> Any:
    return jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape, _NUMPY[v.dtype]), values)


def _says_gradient(f: Callable[..., Any], args: Any) -> bool:
    """Whether the author says something of the gradient of f."""

    def says(jaxpr: Any) -> bool:
        for e in jaxpr.eqns:
            if e.primitive.name in ("stop_gradient", "custom_vjp_call", "custom_jvp_call"):
                return True
            for p in e.params.values():  # a conditional has several
                inner = [getattr(j, "jaxpr", j) for j in (p if isinstance(p, (list, tuple)) else [p])]
                if any(says(j) for j in inner if hasattr(j, "eqns")):
                    return True
        return False

    return says(jax.make_jaxpr(f)(*_shapes(args)).jaxpr)


def _is_linear(f: Callable[..., Any], args: Any) -> bool:
    """Whether the gradients of f by x and the trained parameters are linear in the one that comes in."""
    x, trained, given = _shapes(args)

    def pulled(x: Any, trained: Any, given: Any) -> Any:
        y, vjp = jax.vjp(lambda x, trained: f(x, trained, given), x, trained)
        return jax.linear_transpose(vjp, y)((x, trained))

    try:
        jax.eval_shape(pulled, x, trained, given)
    except (NotImplementedError, AssertionError, TypeError):
        return False
    return True


def from_optax(
    transformation: Any,
    description: Description,
    evaluate: Callable[[Any, Any], Any] | None = None,
) -> Optimizer:
    """An optimizer of a transformation of optax, or of a function from the Tensor, with its settings, to one.

    Give it the rate 1 and no weight decay: both are the host's. It sees one tensor at a time, so that a norm of all tensors
    would be the norm of one. It gets the loss as `value`. Integers that count updates become the number of the update; other
    state is kept as floats. evaluate(state, x) gives the weights to evaluate with, for transformations that average.
    """
    import optax

    class FromOptax(Optimizer):
        def chosen(self, t: Tensor) -> Any:
            tx = transformation if hasattr(transformation, "update") else transformation(t)
            return optax.with_extra_args_support(tx)

        def kept(self, t: Tensor) -> tuple[Any, list[Any], list[str], dict[int, Any]]:
            """The tree of the state, its leaves' types and names, and what need not be kept: see _known."""
            tx = self.chosen(t)
            x = jax.ShapeDtypeStruct(t.shape, jnp.float32)
            paths, tree = jax.tree_util.tree_flatten_with_path(jax.eval_shape(tx.init, x))
            leaves = [leaf for _, leaf in paths]
            names = [".".join(re.findall(r"\w+", jax.tree_util.keystr(path))) or "s" for path, _ in paths]
            for name, leaf in zip(names, leaves):
                if leaf.dtype not in (jnp.float32, jnp.int32, jnp.bool_):
                    raise ProgramError(f"the state {name} is {leaf.dtype}, which cannot be kept as a float: random keys are not possible")
            return tree, leaves, names, _known(tx, x, leaves, tree)

        def init(self, b: Builder, x: Value, t: Tensor) -> State:
            _, _, names, known = self.kept(t)
            values = _Writer(b).call(lambda x: [v.astype(jnp.float32) for v in jax.tree.leaves(self.chosen(t).init(x))], x)
            return {n: v for i, (n, v) in enumerate(zip(names, values)) if i not in known}

        def update(self, b: Builder, given: UpdateInput, t: Tensor) -> tuple[Value, State]:
            tree, leaves, names, known = self.kept(t)

            def step(x: Any, g: Any, number: Any, loss: Any, state: Any) -> Any:
                old = _restored(tree, leaves, names, known, state, number - 1)
                u, new = self.chosen(t).update(g, old, x, value=loss)
                new = [v.astype(jnp.float32) for v in jax.tree.leaves(new)]
                return -u, {n: v for i, (n, v) in enumerate(zip(names, new)) if i not in known}

            u, following = _Writer(b).call(step, given.x, given.gradient, given.step, given.loss, given.state)
            return u, following

    def weights(self: Any, b: Builder, x: Value, state: State, t: Tensor) -> Value:
        assert evaluate is not None

        def write(b: Builder, x: Value, state: State, done: Any) -> Value:
            tree, leaves, names, known = self.kept(t)
            def point(x: Any, state: Any, done: Any) -> Any:
                return evaluate(_restored(tree, leaves, names, known, state, done), x)

            value: Value = _Writer(b).call(point, x, state, done)
            return value

        trial = Builder("trial")
        done = trial.input("done", Type("float"))
        trial.output("w", write(trial, trial.input("x", x.type), {n: trial.input(n, v.type) for n, v in state.items()}, done))
        if trial.build(0).takes("done"):
            raise ProgramError("evaluate reads the number of updates, which is not known there")
        return write(b, x, state, b.const(0))

    members: dict[str, Any] = {"description": description}
    if evaluate is not None:
        members["evaluate"] = weights
    made: Optimizer = type("FromOptax", (FromOptax,), members)()
    return made


def _restored(tree: Any, leaves: Sequence[Any], names: Sequence[str], known: Mapping[int, Any], state: Any, done: Any) -> Any:
    """The state of optax after so many updates."""
    flat = []
    for i, (n, leaf) in enumerate(zip(names, leaves)):
        v = state[n] if i not in known else done + known[i].item() if _counts(leaf) and i in known else jnp.asarray(known[i])
        flat.append(v.astype(leaf.dtype))
    return jax.tree.unflatten(tree, flat)


def _counts(leaf: Any) -> bool:
    return bool(leaf.dtype == jnp.int32 and leaf.shape == ())


def _known(tx: Any, x: Any, leaves: Sequence[Any], tree: Any) -> dict[int, Any]:
    """The leaves that need not be kept, by number, with where they start: integers that grow by 1 in each update, and constants."""
    b = Builder("known")
    x_in = b.input("x", Type("float", x.shape))
    g_in, loss = b.input("g", x_in.type), b.input("loss", Type("float"))
    flat = [b.input(f"s{i}", _type(leaf)) for i, leaf in enumerate(leaves)]

    def both(x: Any, g: Any, loss: Any, flat: Any) -> Any:
        new = tx.update(g, jax.tree.unflatten(tree, flat), x, value=loss)[1]
        return jax.tree.leaves(tx.init(x)), jax.tree.leaves(new)

    def part(v: Value) -> Any:
        b._program.outputs = [("v", v.id)]
        return b.build(0)

    found = {}
    starts, following = _Writer(b).call(both, x_in, g_in, loss, flat)
    for i, leaf in enumerate(leaves):
        start, after = part(starts[i]), part(following[i])
        if start.inputs or not {name for name, _ in after.inputs} <= {f"s{i}"}:
            continue
        at = executor.run(start, {}, np.float32)["v"]
        if _counts(leaf):
            right = all(executor.run(after, {f"s{i}": at + n})["v"] == at + n + 1 for n in (0, 1, 1000))
        else:
            right = bool(following[i] is flat[i] or not after.inputs and (executor.run(after, {}, np.float32)["v"] == at).all())
        if right:
            found[i] = at
    return found
