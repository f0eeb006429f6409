"""Gradients of programs: reverse mode, with the rules in the column Gradient of docs/reference/operations.md.

`split` cuts a program and its gradient into a forward and a backward program, as torch.autograd.Function needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from cage_sdk.infer import Type
from cage_sdk.program import Builder, Node, Program, Value

PREFIX = "d."
"""Before the name of an output: its cotangent. Before that of an input: its gradient."""

Cotangent = Optional[Value]
Rule = Callable[[Node, Sequence[Value], Value, Value], Sequence[Cotangent]]


def _other(rank: int, *lists: Sequence[int]) -> list[int]:
    """The axes below rank that no list has."""
    return [a for a in range(rank) if not any(a in axes for axes in lists)]


def _sum(v: Value, axes: Sequence[int]) -> Value:
    return v.reduce_sum(*axes) if axes else v


def _unrepeat(v: Value, want: Type) -> Value:
    """Reverses the implicit broadcast of an elementwise operand."""
    if v.shape == want.shape:
        return v
    axes = [i for i, d in enumerate(v.shape) if not want.shape or want.shape[i] != d]
    return _sum(v, axes).reshape(*want.shape)


def _unreduce(v: Value, x: Value, axes: Sequence[int]) -> Value:
    """Repeats v along the axes of x that a reduction has removed."""
    return v.broadcast(x.shape, _other(x.type.rank, axes))


def _unary(f: Callable[[Value, Value, Value], Value]) -> Rule:
    return lambda n, x, y, dy: [f(x[0], y, dy)]


def _div(n: Node, x: Sequence[Value], z: Value, dz: Value) -> Sequence[Cotangent]:
    """−dz·x/y² without y², which overflows long before the quotient does."""
    a, y = x
    if y.type == z.type:
        return [dz / y, -((dz / y) * z)]
    return [dz / y, -(_unrepeat(dz * a, y.type) / y / y)]


def _pow(n: Node, x: Sequence[Value], z: Value, dz: Value) -> Sequence[Cotangent]:
    a, y = x
    return [dz * (y * a.pow(y - 1)), dz * (z * a.log())]


def _larger(wins: Callable[[Value, Value], Value]) -> Rule:
    """dy to the operand that wins; half to each of equal ones."""

    def part(dz: Value, x: Value, y: Value) -> Value:
        return wins(x, y).select(dz, x.eq(y).select(dz.scale(0.5), 0))

    return lambda n, x, z, dz: [part(dz, x[0], x[1]), part(dz, x[1], x[0])]


def _extreme(axes: Callable[[Node, Value], Sequence[int]]) -> Rule:
    """dy to the elements that equal the result, divided by their number."""

    def rule(n: Node, x: Sequence[Value], y: Value, dy: Value) -> Sequence[Cotangent]:
        over = axes(n, x[0])
        found = x[0].eq(_unreduce(y, x[0], over))
        count = found.convert("float").reduce_sum(*over)
        return [found.select(_unreduce(dy / count, x[0], over), 0)]

    return rule


def _broadcast(n: Node, x: Sequence[Value], y: Value, dy: Value) -> Sequence[Cotangent]:
    to = n.attr.get("axes", ())
    repeated = [a for i, a in enumerate(to) if x[0].shape[i] != n.type.shape[a]]
    return [_sum(dy, sorted(_other(n.type.rank, to) + repeated)).reshape(*x[0].shape)]


def _pad(v: Value, axis: int, before: int, after: int) -> Value:
    def zeros(n: int) -> list[Value]:
        shape = list(v.shape)
        shape[axis] = n
        return [v.builder.zeros(*shape)] if n else []

    parts = [*zeros(before), v, *zeros(after)]
    return parts[0].concatenate(axis, *parts[1:]) if len(parts) > 1 else v


def _slice(n: Node, x: Sequence[Value], y: Value, dy: Value) -> Sequence[Cotangent]:
    """Scatters dy into zeros: index i of an axis goes to start + i·stride."""
    for axis, size in enumerate(x[0].shape):
        start, stride = n.attr["start"][axis], n.attr["stride"][axis]
        if stride > 1 and dy.shape[axis] > 1:
            shape = list(dy.shape)
            parts = shape[:axis + 1] + [1] + shape[axis + 1:]
            shape[axis] *= stride
            dy = _pad(dy.reshape(*parts), axis + 1, 0, stride - 1).reshape(*shape)
        covered = dy.shape[axis]
        if start + covered > size:  # zeros behind the last element
            covered = size - start
            dy = dy.at(axis, 0, covered)
        dy = _pad(dy, axis, start, size - start - covered)
    return [dy]


def _concatenate(n: Node, x: Sequence[Value], y: Value, dy: Value) -> Sequence[Cotangent]:
    axis, first, parts = n.attr["axes"][0], 0, []
    for v in x:
        parts.append(dy.at(axis, first, first + v.shape[axis]))
        first += v.shape[axis]
    return parts


def _dot(n: Node, x: Sequence[Value], y: Value, dy: Value) -> Sequence[Cotangent]:
    """The two transposed products. dy has the batch axes, then the free ones of the left operand, then of the right."""
    batches = n.attr.get("lhs_batch", []), n.attr.get("rhs_batch", [])
    contracted = n.attr.get("lhs_contract", []), n.attr.get("rhs_contract", [])
    free = [_other(v.type.rank, b, c) for v, b, c in zip(x, batches, contracted)]
    batch = list(range(len(batches[0])))
    out: list[Cotangent] = []
    for own, other in ((0, 1), (1, 0)):
        # dy's axes that belong to the other operand, which are summed over with its free axes.
        first = len(batch) + (len(free[0]) if own == 0 else 0)
        theirs = list(range(first, first + len(free[other])))
        product = dy.dot(x[other], (theirs, free[other]), (batch, batches[other]))
        # The product has batch, own free and contracted axes, the last in the order of the other operand.
        order = sorted(range(len(contracted[other])), key=lambda i: contracted[other][i])
        layout = [*batches[own], *free[own], *(contracted[own][i] for i in order)]
        back = [layout.index(a) for a in range(len(layout))]
        out.append(product if back == sorted(back) else product.transpose(*back))
    return out


def _convert(n: Node, x: Sequence[Value], y: Value, dy: Value) -> Sequence[Cotangent]:
    return [dy if x[0].dtype == "float" else None]


def _transpose(n: Node, x: Sequence[Value], y: Value, dy: Value) -> Sequence[Cotangent]:
    perm = n.attr.get("axes", ())
    return [dy.transpose(*(list(perm).index(a) for a in range(len(perm))))]


RULES: dict[str, Rule] = {
    "neg": _unary(lambda x, y, dy: -dy),
    "abs": _unary(lambda x, y, dy: dy * x.sign()),
    "sqrt": _unary(lambda x, y, dy: dy * 0.5 / y),
    "exp": _unary(lambda x, y, dy: dy * y),
    "expm1": _unary(lambda x, y, dy: dy * x.exp()),
    "log": _unary(lambda x, y, dy: dy / x),
    "log1p": _unary(lambda x, y, dy: dy / (x + 1)),
    "sin": _unary(lambda x, y, dy: dy * x.cos()),
    "cos": _unary(lambda x, y, dy: -(dy * x.sin())),
    "tanh": _unary(lambda x, y, dy: dy * (1 - y * y)),
    "add": lambda n, x, z, dz: [dz, dz],
    "sub": lambda n, x, z, dz: [dz, -_unrepeat(dz, x[1].type)],
    "mul": lambda n, x, z, dz: [dz * x[1], dz * x[0]],
    "div": _div,
    "pow": _pow,
    "max": _larger(lambda x, y: x.gt(y)),
    "min": _larger(lambda x, y: x.lt(y)),
    "ldexp": lambda n, x, z, dz: [dz.ldexp(x[1]), None],
    "clamp": lambda n, x, y, dy: [x[0].eq(y).select(dy, 0), None, None],  # also where x is NaN, nothing
    "select": lambda n, x, y, dy: [None, x[0].select(dy, 0), x[0].select(0, dy)],
    "convert": _convert,
    "reshape": _unary(lambda x, y, dy: dy.reshape(*x.shape)),
    "transpose": _transpose,
    "broadcast": _broadcast,
    "slice": _slice,
    "concatenate": _concatenate,
    "reduce_sum": lambda n, x, y, dy: [_unreduce(dy, x[0], n.attr["axes"])],
    "reduce_max": _extreme(lambda n, x: n.attr["axes"]),
    "reduce_min": _extreme(lambda n, x: n.attr["axes"]),
    "dot": _dot,
    "hadamard": lambda n, x, y, dy: [dy.hadamard(n.attr["block"])],
    "lookup": lambda n, x, y, dy: [None, x[0].scatter_add(dy, x[1].shape[0])],
    "scatter_add": lambda n, x, y, dy: [None, x[0].lookup(dy)],
    "order_statistic": _extreme(lambda n, x: [x.type.rank - 1]),
}
"""The rules; operations without one have a gradient of zero."""

REFUSED = {"qr", "eigh_values", "eigh_vectors", "sort_columns"}


class Tape:
    """A program that is written again, and the cotangents of its values."""

    def __init__(self, program: Program, builder: Builder, inputs: Sequence[Value]) -> None:
        self.program, self.values = program, list(inputs)
        for n in program.nodes:
            args = [self.values[a] for a in n.args]
            if n.op == "stop_gradient":
                self.values.append(args[0])
            else:
                self.values.append(builder.apply(n.op, *args, type=n.type, **n.attr))

    def output(self, name: str) -> Value:
        """The value of an output."""
        return self.values[dict(self.program.outputs)[name]]

    def reverse(self, output: str, seed: Value, wrt: Sequence[str]) -> dict[str, Value]:
        """The gradients with respect to the named inputs, given the cotangent of an output."""
        p, n_inputs = self.program, len(self.program.inputs)
        active = [name in wrt for name, _ in p.inputs]
        for n in p.nodes:
            passes = n.op in RULES or n.op in REFUSED
            active.append(passes and n.type.dtype == "float" and any(active[a] for a in n.args))
        adjoints: dict[int, Value] = {}

        def add(value: int, d: Value) -> None:
            if active[value]:
                adjoints[value] = adjoints[value] + d if value in adjoints else d

        add(dict(p.outputs)[output], seed)
        for i in range(len(p.nodes) - 1, -1, -1):
            n, dy = p.nodes[i], adjoints.pop(n_inputs + i, None)
            if dy is None:
                continue
            if n.op in REFUSED:
                raise ValueError(f"program {p.name}: {n.op} has no gradient: put stop_gradient around it")
            args = [self.values[a] for a in n.args]
            for a, d in zip(n.args, RULES[n.op](n, args, self.values[n_inputs + i], dy)):
                if d is not None and active[a]:
                    add(a, _unrepeat(d, p.type_of(a)))
        zeros = {name: t for name, t in p.inputs if name in wrt}
        return {
            name: adjoints[i] if i in adjoints else seed.builder.zeros(*zeros[name].shape)
            for i, (name, _) in enumerate(p.inputs) if name in wrt
        }


@dataclass
class Split:
    """A forward program, and a backward program that takes what the forward one kept.

    forward takes the inputs of the original program and returns `value`, then the residuals r.0, r.1, …. backward takes
    the original inputs in `inputs`, the residuals and `d.value`, in this order, and returns the gradients, by the names
    in `wrt`.
    """

    forward: Program
    backward: Program
    inputs: list[str]
    wrt: list[str]


def split(p: Program, output: str, of: str, wrt: Sequence[str], backward: Program | None = None, masks: bool = True) -> Split:
    """Cuts a program that returns `output` and the gradient of `of`, or a given backward program, in two.

    What the backward pass reads of the forward pass is kept, but for constants, and for reshapes and repeats of what is
    kept or of an input, which cost nothing to make again. Without masks, what is compared with a constant is kept, too, in
    place of the result.
    """
    b = Builder(p.name)
    inputs = [b.input(name, t) for name, t in p.inputs]
    seed_name = PREFIX + output
    seed = b.input(seed_name, p.type_of(dict(p.outputs)[output]))
    tape = Tape(p, b, inputs)
    b.output(output, tape.output(output))
    if backward is None:
        gradients = tape.reverse(of, seed, wrt)
    else:
        known = {**dict(zip((n for n, _ in p.inputs), inputs)), seed_name: seed}
        given = Tape(backward, b, [known[name] for name, _ in backward.inputs])
        gradients = {name: given.output(PREFIX + name) for name in wrt}
    for name in wrt:
        b.output(PREFIX + name, gradients[name])
    joint = b.build()
    return _cut(joint if masks else _compare_late(joint, len(p.inputs)), len(p.inputs), output, list(wrt))


def _late(joint: Program, cotangent: int) -> list[bool]:
    """Whether each value depends on the cotangent."""
    late = [i == cotangent for i in range(len(joint.inputs))]
    for n in joint.nodes:
        late.append(any(late[a] for a in n.args))
    return late


def _compare_late(joint: Program, cotangent: int) -> Program:
    """The program in which what depends on the cotangent makes its comparisons with constants itself.

    Zero is added that is computed from the cotangent: otherwise torch.compile would compare in the forward pass and keep the
    result, which is smaller.
    """
    first, late, dy = len(joint.inputs), _late(joint, cotangent), joint.inputs[cotangent][1]
    nodes: list[Node] = []
    number, again = list(range(first)), dict[int, int]()

    def add(op: str, args: Sequence[int], t: Type, attr: Mapping[str, Any] | None = None) -> int:
        nodes.append(Node(op, tuple(args), t, dict(attr or {})))
        return first + len(nodes) - 1

    ones = [1] * dy.rank
    zero = add("slice", [cotangent], Type("float", tuple(ones)), {"start": [0] * dy.rank, "limit": ones, "stride": ones})
    zero = add("bitcast", [add("reshape", [zero], Type("float"))], Type("uint"))
    zero = add("bitcast", [add("and", [zero, add("constant", [], Type("uint"), {"ints": [0]})], Type("uint"))], Type("float"))

    def node(value: int) -> Node | None:
        return joint.nodes[value - first] if value >= first else None

    def repeated(value: int) -> bool:
        n = node(value)
        if n is None or late[value]:
            return False
        if n.op in ("and", "or", "not"):
            return all(repeated(a) for a in n.args)
        return n.op == "is_finite" or n.op in ("eq", "ne", "lt", "le", "gt", "ge") and any(constant(a) for a in n.args)

    def constant(value: int) -> bool:
        n = node(value)
        return n is not None and n.op == "constant" and n.type == Type("float")

    def repeat(value: int) -> int:
        n = node(value)
        if value not in again and n is not None and repeated(value):
            args = [repeat(a) for a in n.args]
            if n.op not in ("and", "or", "not"):
                args = [a if constant(old) else add("add", [a, zero], joint.type_of(old)) for old, a in zip(n.args, args)]
            again[value] = add(n.op, args, n.type, n.attr)
        return again.get(value, number[value])

    for i, n in enumerate(joint.nodes, first):
        args = [repeat(a) if late[i] and repeated(a) else number[a] for a in n.args]
        number.append(add(n.op, args, n.type, n.attr))
    return Program(joint.name, joint.inputs, nodes, [(name, number[v]) for name, v in joint.outputs])


_FREE = {"constant", "iota", "reshape", "broadcast", "slice", "transpose"}


def _cut(joint: Program, n_inputs: int, output: str, wrt: list[str]) -> Split:
    first = len(joint.inputs)
    late = _late(joint, n_inputs)
    outputs = dict(joint.outputs)
    wanted = [outputs[PREFIX + name] for name in wrt]
    kept: set[int] = set()
    again: set[int] = set()  # nodes that the backward pass computes
    pending = list(wanted)
    while pending:
        value = pending.pop()
        if value == n_inputs or value in again or value in kept:
            continue
        if value > n_inputs and (late[value] or joint.nodes[value - first].op in _FREE):
            again.add(value)
            pending.extend(joint.nodes[value - first].args)
        else:
            kept.add(value)
    own = sorted(v for v in kept if v < n_inputs)
    residuals = sorted(v for v in kept if v >= first)
    forward = Program(
        joint.name, joint.inputs[:n_inputs],
        [Node(n.op, tuple(_shift(a, n_inputs) for a in n.args), n.type, n.attr)
         if not late[first + i] else Node("constant", (), Type("float"), {"floats": [0.0]})
         for i, n in enumerate(joint.nodes)],
        [(output, _shift(outputs[output], n_inputs)),
         *((f"r.{i}", _shift(v, n_inputs)) for i, v in enumerate(residuals))],
    ).pruned(n_inputs)  # fmt: skip
    names = [*(joint.inputs[v] for v in own), *((f"r.{i}", joint.type_of(v)) for i, v in enumerate(residuals)),
             joint.inputs[n_inputs]]  # fmt: skip
    number = {v: i for i, v in enumerate([*own, *residuals, n_inputs])}
    nodes: list[Node] = []
    for v in sorted(again):
        n = joint.nodes[v - first]
        number[v] = len(names) + len(nodes)
        nodes.append(Node(n.op, tuple(number[a] for a in n.args), n.type, n.attr))
    backward = Program(joint.name + ".backward", names, nodes, [(PREFIX + w, number[v]) for w, v in zip(wrt, wanted)])
    return Split(forward, backward, [joint.inputs[v][0] for v in own], wrt)


def _shift(value: int, n_inputs: int) -> int:
    """The number of a value of the joint program in the forward program, which has no cotangent."""
    return value if value < n_inputs else value - 1
