"""Quantizers: the base class, its capabilities, and the programs that they write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, runtime_checkable

from .infer import KEY, Type
from .plugin import Description, State, StateTensor, Values, input_state, listed, output_state
from .program import Builder, Program, ProgramError, Value, call_site

Role = Literal["weight", "activation", "gradient", "key", "value", "query"]
Product = Literal["forward", "input_gradient", "weight_gradient"]

STEP_INPUTS = (("noise", KEY), ("shared_noise", KEY), ("step", Type("float")), ("steps", Type("float")))

OPERANDS = ("activations", "weights")


@dataclass(frozen=True)
class Columns:
    """Statistics of an operand of a product, of each column that it sums over: floats of one row, in the rank of x."""

    max: Value
    """The largest magnitude in each column."""
    mean: Value
    """The mean of the magnitudes in each column."""


@dataclass(frozen=True)
class Site(Values):
    """A place in the model where a tensor is quantized. The last axis of its shape is a row, over which products sum."""

    role: Role
    name: str
    shape: tuple[int, ...]
    product: Product = "forward"
    layer: int | None = None
    """The number of the transformer block that the tensor is in, from 0; None if it is in none."""
    layers: int = 0
    """How many blocks the model has; 0 if that is not known."""
    heads: int = 0
    """The equal parts of the last axis that belong to one head of attention each; 0: the axis is not made of heads."""
    row_heads: int = 0
    """The same of the rows."""
    context: int = 0
    """The tokens of one sequence where rows are tokens, sequence by sequence; 1 where each may be of another sequence."""
    training: bool = False
    """Which program quantize is to write: that which trains, or that with which the model is evaluated and exported."""
    trained: State = field(default_factory=dict)
    """The parameters of a Trainable in quantize and backward; elsewhere it is empty."""
    state: State = field(default_factory=dict)
    """The state of a Stateful in quantize and backward, as the last step left it; elsewhere it is empty."""
    fresh: State = field(default_factory=dict)

    @property
    def row_len(self) -> int:
        """The length of a row."""
        return self.shape[-1] if self.shape else 1

    @property
    def noise(self) -> Value:
        """A key for random bits, of this site alone, new in each step; for an activation in each micro-batch."""
        return self._fresh("noise")

    @property
    def shared_noise(self) -> Value:
        """A key, new in each step, that both operands of a product have."""
        return self._fresh("shared_noise")

    @property
    def step(self) -> Value:
        """The number of the training step, from 1, as a scalar float."""
        return self._fresh("step")

    @property
    def steps(self) -> Value:
        """The number of steps of the run, as a scalar float. What is annealed over a run has its final form in evaluation."""
        return self._fresh("steps")

    @property
    def activations(self) -> Columns:
        """Statistics of the activation of the product in the first batch, by the model in full precision."""
        return self._columns("activations")

    @property
    def weights(self) -> Columns:
        """Statistics of its weight; of the rows of all weights, if the activation has several."""
        return self._columns("weights")

    def _columns(self, operand: str) -> Columns:
        if operand + ".max" not in self.fresh:
            raise ProgramError(f"site.{operand} is there in init_trained and init_state only{call_site()}")
        return Columns(self.fresh[operand + ".max"], self.fresh[operand + ".mean"])

    def _fresh(self, name: str) -> Value:
        if name not in self.fresh:
            raise ProgramError(f"site.{name} is there in the program of training only: ask site.training{call_site()}")
        return self.fresh[name]


@dataclass(frozen=True)
class Grid:
    """Which numbers codes stand for and what shares a scale, for every tensor: Quantized.value, before a rotation back, is the
    number of the code times the scale of its group, plus the group's minimum on a grid of affine. integers, odd_integers, zero_points,
    e2m1 and affine make them."""

    format: Literal["integer", "e2m1", "affine"]
    min: int = 0
    max: int = 0
    step: int = 0
    group: int = 0
    """How many consecutive elements of a row share a scale; 0: a row, or the whole tensor, shares one."""
    span: int = 0
    """The largest difference of two integer codes, 0 among them, that a group has; 0 if it may be max - min."""


def integers(min: int, max: int, group: int = 0) -> Grid:
    """The grid of the integers from min to max."""
    return Grid("integer", min, max, 1, group)


def odd_integers(max: int, group: int = 0) -> Grid:
    """The grid of the odd integers from -max to max, which are twice the half-integers."""
    return Grid("integer", -max, max, 2, group)


def zero_points(max: int, group: int = 0) -> Grid:
    """The grid of the integers from 0 to max minus a zero point of each group, which is one of them: from -max to max."""
    return Grid("integer", -max, max, 1, group, max)


def affine(max: int, group: int = 0) -> Grid:
    """The grid of the integers from 0 to max, times the scale of a group, plus its minimum: scale has both for each group."""
    return Grid("affine", 0, max, 1, group)


def e2m1(group: int = 0) -> Grid:
    """The grid of the floats of four bits; codes are 0 to 15."""
    return Grid("e2m1", group=group)


@dataclass(frozen=True)
class Quantized:
    """A quantizer's answer. Only value, which is Q(x) in the units of x, is required."""

    value: Value
    surrogate: Value | None = None
    """What the backward pass differentiates in place of value; None is x, the plain straight-through estimator."""
    codes: Value | None = None
    """Integers, as int or float, in the shape of x."""
    scale: Value | None = None
    """The scale of each group, a float of any shape."""
    mask: Value | None = None
    """A bool in the shape of x, true where the gradient passes."""
    homogeneous: bool = False
    """Promises Q(c·x) = c·Q(x) for every c > 0, up to rounding. It cannot hold with trained parameters or state."""
    next: State = field(default_factory=dict)
    """The state after this step, with the names and shapes of site.state, for a Stateful. In evaluation it is not read."""
    grid: Grid | None = None
    """What codes and scale stand for, by which exports store a weight. It depends on the settings, never on the tensor."""


class Quantizer(ABC):
    """Writes the fake quantization Q of a tensor."""

    description: Description

    @abstractmethod
    def quantize(self, b: Builder, x: Value, site: Site) -> Quantized:
        """Writes Q(x) for one site: once for training and once for evaluation. Equal sites must get equal programs."""


@runtime_checkable
class Trainable(Protocol):
    """A quantizer with trained parameters, such as a step size, which the gradient of the surrogate trains."""

    def init_trained(self, b: Builder, x: Value, site: Site) -> State:
        """Writes their first values from the weight, or the first batch of activations."""


@runtime_checkable
class Sharer(Protocol):
    """A Trainable of which several sites train the same parameter."""

    def shared(self, p: str, site: Site) -> str:
        """The name under which sites share the parameter p of this one; empty if it is the site's own."""


@runtime_checkable
class Constrained(Protocol):
    """A Trainable whose parameters must stay in a set, such as that of orthogonal matrices."""

    def constrain(self, b: Builder, p: str, v: Value, site: Site) -> Value:
        """Writes the point of the set that takes the place of v after each update; v itself for no constraint."""


@runtime_checkable
class Stateful(Protocol):
    """A quantizer that keeps state from step to step, without gradients, such as a moving average of what it has seen.

    For an activation the state after a step is the mean of Quantized.next over micro-batches and replicas.
    """

    def init_state(self, b: Builder, x: Value, site: Site) -> State:
        """Writes the state at the start from the weight, or the first batch of activations."""


@runtime_checkable
class Maximal(Protocol):
    """A Stateful of whose state some tensors are maxima, such as the largest magnitudes of the last steps."""

    def maximum(self, s: str, site: Site) -> bool:
        """Whether the maximum of next takes the place of the mean for the state tensor s."""


@dataclass(frozen=True)
class Gradients:
    """What the backward pass of a Differentiator gives."""

    x: Value | None = None
    """The gradient by x, in its shape."""
    trained: State = field(default_factory=dict)
    """The gradient of each trained parameter, by its name."""


@runtime_checkable
class Differentiator(Protocol):
    """A quantizer with a backward pass of its own, for gradients that are not linear in the one that comes in."""

    def backward(self, b: Builder, x: Value, dy: Value, site: Site) -> Gradients:
        """Writes the gradients from dy, that by Q(x). quantize then gives no surrogate. No gradients are those of the surrogate."""


@runtime_checkable
class Packer(Protocol):
    """A quantizer whose results can be stored as codes and scales."""

    def unpack(self, b: Builder, codes: Value, scale: Value, site: Site) -> Value:
        """Writes Q(x), bit for bit, from codes and scales."""


@dataclass
class QuantizerProgram:
    """The programs of one site, as docs/reference/plugin-protocol.md describes them."""

    program: Program
    homogeneous: bool
    evaluate: Program | None = None
    init: Program | None = None
    trained: Sequence[StateTensor] = ()
    unpack: Program | None = None
    state: Sequence[StateTensor] = ()
    init_state: Program | None = None
    next: Program | None = None
    backward: Program | None = None
    grid: Grid | None = None


def build_quantizer(q: Quantizer, site: Site) -> QuantizerProgram:
    """Calls q for one site and returns its programs. Mistakes are ProgramErrors; what q raises passes through."""
    name = q.description.name

    def initial(which: str, prefix: str, write: Callable[[Builder, Value, Site], State]) -> tuple[Program | None, list[StateTensor]]:
        b = Builder(f"{name}/{which}/{site.name}")
        x, row = b.input("x", Type("float", site.shape)), Type("float", (1,) * (len(site.shape) - 1) + site.shape[-1:])
        columns = {n: b.input(n, row) for n in (f"{operand}.{what}" for operand in OPERANDS for what in ("max", "mean"))}
        tensors = output_state(b, prefix, write(b, x, replace(site, fresh=columns)))
        return b.build(1) if tensors else None, tensors

    init, trained = initial("init", "trained.", q.init_trained) if isinstance(q, Trainable) else (None, [])
    trained = [_completed(q, name, s, site) for s in trained]
    init_state, state = initial("init_state", "kept.", q.init_state) if isinstance(q, Stateful) else (None, [])
    if isinstance(q, Maximal):
        state = [replace(s, maximum=q.maximum(s.name, site)) for s in state]
    program, trains, following = _build(q, site, trained, state, True)
    try:
        evaluate, evaluates, _ = _build(q, site, trained, state, False)
    except ProgramError as e:
        raise ProgramError(f"for evaluation: {e}") from e
    homogeneous = trains.homogeneous and evaluates.homogeneous
    answer = QuantizerProgram(program, homogeneous, evaluate, init, trained, None, state, init_state, following, grid=evaluates.grid)
    if str(evaluate) == str(program):
        answer.evaluate = None
    if isinstance(q, Differentiator):
        answer.backward = _build_backward(q, name, site, answer)
    if isinstance(q, Packer):
        answer.unpack = _build_unpack(q, name, site, program)
    if answer.homogeneous and (trained or state):
        what = f"the trained parameter {trained[0].name}" if trained else f"the state {state[0].name}"
        raise ProgramError(f"Q(c·x) = c·Q(x) cannot hold with {what}: leave homogeneous false")
    return answer


def _build(
    q: Quantizer, site: Site, trained: Sequence[StateTensor], state: Sequence[StateTensor], training: bool
) -> tuple[Program, Quantized, Program | None]:
    """The program of training or of evaluation, what the author returned, and that of the next state, without what they do not use of the inputs that
    change in each step."""
    name = q.description.name
    b = Builder(f"{name}/{site.name}")
    x = b.input("x", Type("float", site.shape))
    parameters, kept = input_state(b, "trained.", trained), input_state(b, "kept.", state)
    fresh = {name: b.input(name, t) for name, t in STEP_INPUTS} if training else {}
    result = q.quantize(b, x, replace(site, training=training, trained=parameters, state=kept, fresh=fresh))
    b.output("value", _checked("value", result.value, x.type))
    b.output("surrogate", _checked("surrogate", x if result.surrogate is None else result.surrogate, x.type))
    for output in ("codes", "scale", "mask"):
        v = getattr(result, output)
        if v is not None:
            want = {"codes": replace(x.type, dtype=v.dtype), "scale": replace(v.type, dtype="float"), "mask": Type("bool", x.shape)}
            b.output(output, _checked(output, v, want[output]))
    if result.codes is not None and result.codes.dtype == "bool":
        raise ProgramError("codes are bool: they must be numbers")
    fixed = 1 + len(trained) + len(state)
    program, following = b.build(fixed), None
    if training:
        own = len(program.outputs)
        if output_state(b, "kept.", result.next) != [StateTensor(s.name, s.shape) for s in state]:
            raise ProgramError(f"next is {listed(result.next)}: it must be what init_state returns, {listed(kept)}")
        if state:
            whole = b.build()
            following = replace(whole, name=f"{name}/next/{site.name}", outputs=whole.outputs[own:]).pruned(fixed)
    return program, result, following


def _build_backward(q: Differentiator, name: str, site: Site, answer: QuantizerProgram) -> Program | None:
    """The backward pass, without what it does not use of the inputs that change in each step; None if it is that of the surrogate."""
    b, t = Builder(f"{name}/backward/{site.name}"), Type("float", site.shape)
    x = b.input("x", t)
    parameters, kept = input_state(b, "trained.", answer.trained), input_state(b, "kept.", answer.state)
    dy = b.input("d.value", t)
    fresh = {name: b.input(name, t) for name, t in STEP_INPUTS}
    g = q.backward(b, x, dy, replace(site, training=True, trained=parameters, state=kept, fresh=fresh))
    if g.x is None and not g.trained:
        return None
    if answer.program.outputs[1][1] != 0:
        raise ProgramError("there are a surrogate and a backward pass: leave one of them out")
    want = {s.name: s.shape for s in answer.trained}
    if {n: v.shape for n, v in g.trained.items()} != want:
        raise ProgramError(f"backward returns gradients of {listed(g.trained)}: the trained parameters are {listed(parameters)}")
    b.output("d.x", _checked("d.x", g.x, t))  # type: ignore[arg-type]
    output_state(b, "d.trained.", g.trained)
    return b.build(2 + len(parameters) + len(kept))


def _completed(q: Quantizer, name: str, s: StateTensor, site: Site) -> StateTensor:
    """A trained parameter with what other capabilities say of it."""
    if isinstance(q, Sharer):
        s = replace(s, shared=q.shared(s.name, site))
    if isinstance(q, Constrained):
        b = Builder(f"{name}/constrain/{s.shared or site.name}/{s.name}")
        v = b.input("trained." + s.name, Type("float", s.shape))
        out = q.constrain(b, s.name, v, site)
        if out is not v:
            b.output("trained." + s.name, out)
            s = replace(s, constrain=b.build())
    return s


def _checked(name: str, v: Value, want: Type) -> Value:
    if not isinstance(v, Value):
        raise ProgramError(f"{name} is {v!r}: give a Value of this program")
    if v.type != want:
        raise ProgramError(f"{name} is {v.type}: it must be {want}")
    return v


def _build_unpack(q: Packer, name: str, site: Site, program: Program) -> Program:
    codes, scale = program.output("codes"), program.output("scale")
    if codes is None or scale is None:
        raise ProgramError("a quantizer that can unpack must return codes and scale")
    b = Builder(f"{name}/unpack/{site.name}")
    b.output("value", q.unpack(b, b.input("codes", codes), b.input("scale", scale), site))
    return b.build()
