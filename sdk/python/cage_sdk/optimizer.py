"""Optimizers: the base class, its capabilities, and the programs that they write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Literal, Protocol, runtime_checkable

from .infer import KEY, Type
from .plugin import Description, State, StateTensor, Storage, Values, input_state, listed, output_state
from .program import Builder, Program, ProgramError, Value

TensorRole = Literal["matrix", "vector", "embedding", "head"]


@dataclass(frozen=True)
class Part:
    """One of the matrices that a weight holds one below the other."""

    name: str
    first: int
    rows: int


@dataclass(frozen=True)
class Tensor(Values):
    """A trained parameter of the model. parts lists the matrices of a weight that holds several; else it is empty."""

    name: str
    role: TensorRole
    shape: tuple[int, ...]
    parts: Sequence[Part] = ()


@dataclass(frozen=True)
class UpdateInput:
    """What an update may read. A program that does not use what comes after state does not have it."""

    x: Value
    """The parameter before the step, after weight decay, unless the run decays last."""
    gradient: Value
    """Of the shape of the tensor, already clipped."""
    step: Value
    """The number of this update, from 1, a scalar float."""
    state: State
    rate: Value
    """The rate α of the schedule for this tensor, a scalar float. It may be 0."""
    steps: Value
    """The number of steps of the whole run."""
    loss: Value
    """The loss of this step."""
    noise: Value
    """A key for random bits, uint[2]: another one for each tensor and in each step."""
    sums: State = field(default_factory=dict)
    """The sums of what a Collector collects, by name; empty in collect."""
    probed: Value | None = None
    """In the update of a Prober or Sampler: the second gradient where one is due, else gradient."""
    probing: Value | None = None
    """In the update of a Prober or Sampler: 1 where a second gradient is due, else 0, a scalar float."""


@dataclass(frozen=True)
class Due:
    """Updates t = 1, 2, …: first, then those of next, next + every, … that come after first. 0 is never."""

    first: int = 0
    next: int = 0
    every: int = 0

    def check(self, where: str) -> Due:
        """Returns the schedule, that of the method where. Raises ProgramError for one that there cannot be."""
        wrong = ""
        if min(self.first, self.next, self.every) < 0 or max(self.first, self.next, self.every) > 2**31 - 1:
            wrong = f"want numbers from 0 to {2**31 - 1}"
        elif not self.first and (self.next or self.every):
            wrong = "first = 0 means never, so next and every must be 0"
        elif not self.every and self.next:
            wrong = "every = 0 means only once, so next must be 0"
        if wrong:
            raise ProgramError(f"{where} returns {self}: {wrong}")
        return self


class Optimizer(ABC):
    """Writes the update of a tensor as two pure functions: state in, state out."""

    description: Description

    @abstractmethod
    def init(self, b: Builder, x: Value, t: Tensor) -> State:
        """Writes the initial state of a tensor that starts at x."""

    @abstractmethod
    def update(self, b: Builder, given: UpdateInput, t: Tensor) -> tuple[Value, State]:
        """Writes the direction u and the next state. The host steps x ← x − α·u."""


@runtime_checkable
class Selective(Protocol):
    """An optimizer for some tensors only. The host gives the others to another one."""

    def accepts(self, t: Tensor) -> bool:
        """Whether the optimizer is meant for tensors of this role and shape."""


@runtime_checkable
class Pacer(Protocol):
    """An optimizer with a rate of its own, which the host uses wherever it would use the schedule's."""

    def rate(self, b: Builder, given: UpdateInput, t: Tensor) -> Value:
        """Writes the rate, a scalar float that should be in proportion to given.rate."""


@runtime_checkable
class Collector(Protocol):
    """An optimizer that needs sums over all of its tensors."""

    def collect(self, b: Builder, given: UpdateInput, t: Tensor) -> State:
        """Writes scalar floats of one tensor, by name. Their sums are given.sums in the other methods."""


@runtime_checkable
class Averaged(Protocol):
    """An optimizer whose result is another point than x, such as an average of the path."""

    def evaluate(self, b: Builder, x: Value, state: State, t: Tensor) -> Value:
        """Writes the weights to evaluate with and to export. Before the first update they must be x."""


@runtime_checkable
class Refresher(Protocol):
    """An optimizer with parts that are renewed every few updates. Only refresh may factorize and sort."""

    def observe(self, b: Builder, given: UpdateInput, t: Tensor) -> State:
        """Writes the statistics that a refresh reads: only the state that changes, which may be none."""

    def refresh(self, b: Builder, step: Value, state: State, first: bool, t: Tensor) -> State:
        """Writes the renewed state, at least one tensor. A parameter gradient, if there is one, gets the gradient of the update."""

    def refresh_at(self, t: Tensor) -> Due:
        """At which updates a refresh is due."""


@runtime_checkable
class Prober(Protocol):
    """An optimizer that takes a second gradient, at another point and with the same batch, as SAM does."""

    def probe(self, b: Builder, given: UpdateInput, t: Tensor) -> Value:
        """Writes the offset p: the second gradient is taken at x + p, with all tensors moved at once."""

    def probe_at(self, t: Tensor) -> Due:
        """At which updates a probe is due."""


@runtime_checkable
class Sampler(Protocol):
    """An optimizer that takes a second gradient at x, with labels that the host draws from the model, as Sophia-G does.

    given.probed is that gradient times √n, where n is the number of labels, and not clipped: the mean of its square is
    the diagonal of the Gauss-Newton matrix. For such a tensor, an offset of a Prober must never be due.
    """

    def sample_at(self, t: Tensor) -> Due:
        """At which updates such a gradient is due."""


@runtime_checkable
class Compact(Protocol):
    """An optimizer that keeps parts of its state in fewer bits than float32."""

    def storage(self, t: Tensor) -> dict[str, Storage]:
        """How state tensors are kept, by name; others are kept as float32."""


@runtime_checkable
class Rounded(Protocol):
    """An optimizer after whose updates the tensor itself has numbers of fewer bits, as in training in pure bfloat16."""

    def round_to(self, t: Tensor) -> Storage:
        """What the host rounds x to after each update, at random: bfloat16, or float32, which leaves it as it is."""


@dataclass
class OptimizerProgram:
    """The programs of one tensor, as docs/reference/plugin-protocol.md describes them."""

    update: Program
    init: Program | None = None
    state: Sequence[StateTensor] = ()
    observe: Program | None = None
    first_refresh: Program | None = None
    refresh: Program | None = None
    due: Due = Due()
    evaluate: Program | None = None
    collect: Program | None = None
    rate: Program | None = None
    probe: Program | None = None
    probe_due: Due = Due()
    sampled: bool = False
    rounded: Storage = "float32"


def build_optimizer(o: Optimizer, t: Tensor) -> OptimizerProgram | None:
    """Calls o for one tensor and returns its programs, None if o is not meant for the tensor."""
    if isinstance(o, Selective) and not o.accepts(t):
        return None
    name, x_type, scalar = o.description.name, Type("float", t.shape), Type("float")
    state: list[StateTensor] = []
    sums: list[StateTensor] = []

    def start(which: str) -> tuple[Builder, UpdateInput, int]:
        """A program that takes what an update takes, and how many of its inputs it always has."""
        b = Builder(f"{name}/{which}/{t.name}")
        x, gradient, step = b.input("x", x_type), b.input("gradient", x_type), b.input("step", scalar)
        current = input_state(b, "state.", state)
        rate, steps, loss = (b.input(i, scalar) for i in ("rate", "steps", "loss"))
        noise = b.input("noise", KEY)
        given = UpdateInput(x, gradient, step, current, rate, steps, loss, noise, input_state(b, "global.", sums))
        return b, given, 3 + len(state)

    b = Builder(f"{name}/init/{t.name}")
    state += output_state(b, "state.", o.init(b, b.input("x", x_type), t))
    init = b.build() if state else None
    kept = dict(o.storage(t)) if isinstance(o, Compact) else {}
    state = [replace(s, storage=kept.pop(s.name, "float32")) for s in state]
    if kept:
        raise ProgramError(f"storage names the state tensor {next(iter(kept))}, which init does not return")
    collect = None
    if isinstance(o, Collector):
        b, given, fixed = start("collect")
        sums += output_state(b, "global.", o.collect(b, given, t))
        collect = b.build(fixed) if sums else None
    probe, probe_due = None, o.probe_at(t).check("probe_at") if isinstance(o, Prober) else Due()
    if isinstance(o, Prober) and probe_due.first:
        b, given, fixed = start("probe")
        b.output("offset", o.probe(b, given, t))
        probe = b.build(fixed)
    sample_due = o.sample_at(t).check("sample_at") if isinstance(o, Sampler) else Due()
    if sample_due.first and probe_due.first:
        raise ProgramError("there is one second gradient, but probe_at and sample_at are both ever due: let one return Due()")
    sampled = sample_due.first > 0
    b, given, fixed = start("update")
    if probe or sampled:
        given = replace(given, probed=b.input("probed", x_type), probing=b.input("probing", scalar))
    u, following = o.update(b, given, t)
    b.output("direction", u)
    if u.type != x_type:
        raise ProgramError(f"the direction is {u.type}: it must have the type of x, {x_type}")
    if output_state(b, "state.", following) != [StateTensor(s.name, s.shape) for s in state]:
        raise ProgramError(f"update returns the state {listed(following)}: it must return what init does, {listed(given.state)}")
    out = OptimizerProgram(b.build(fixed), init, state, collect=collect, probe=probe)
    out.probe_due, out.sampled = sample_due if sampled else probe_due, sampled
    if isinstance(o, Rounded):
        out.rounded = o.round_to(t)
        if out.rounded not in ("float32", "bfloat16"):
            raise ProgramError(f"round_to returns {out.rounded!r}: it can be float32 or bfloat16")
    if isinstance(o, Refresher):
        _refresher(o, out, name, t, *start("observe"))
    if isinstance(o, Pacer):
        b, given, fixed = start("rate")
        b.output("own_rate", o.rate(b, given, t))
        out.rate = b.build(fixed)
    if isinstance(o, Averaged):
        b = Builder(f"{name}/evaluate/{t.name}")
        x = b.input("x", x_type)
        b.output("weights", o.evaluate(b, x, input_state(b, "state.", state), t))
        out.evaluate = b.build()
    return out


def _refresher(o: Refresher, out: OptimizerProgram, name: str, t: Tensor, b: Builder, given: UpdateInput, fixed: int) -> None:
    if output_state(b, "state.", o.observe(b, given, t)):
        out.observe = b.build(fixed)
    out.due = o.refresh_at(t).check("refresh_at")
    for which, wanted in (("first_refresh", out.due.first), ("refresh", out.due.every)):
        if wanted:
            b = Builder(f"{name}/{which}/{t.name}")
            step, current = b.input("step", Type("float")), input_state(b, "state.", out.state)
            gradient = b.input("gradient", Type("float", t.shape))
            more = {"gradient": gradient} if "gradient" in signature(o.refresh).parameters else {}
            output_state(b, "state.", o.refresh(b, step, current, which == "first_refresh", t, **more))
            setattr(out, which, b.build(1 + len(out.state)))
