"""What a plugin says of itself, its settings, and its refusals."""

from __future__ import annotations

import builtins
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .infer import Type
from .program import Builder, Program, Value

Storage = Literal["float32", "int8", "uint8", "bfloat16"]
"""How a state tensor is kept between programs, which take and return floats in any case."""

State = dict[str, Value]
"""An optimizer's memory for one tensor, or a quantizer's trained parameters or state: float values by name."""


class Refusal(Exception):
    """Raise it for a site or tensor that the algorithm does not accept with these settings.

    The person who wrote the settings reads it, so say what would be right: "rows of 7 cannot be packed: use a multiple of
    8". Any other exception counts as a mistake in the plugin.
    """


@dataclass(frozen=True)
class Parameter:
    """One setting. Int, Float, Bool, Choice and String make them."""

    name: str
    type: Literal["integer", "float", "boolean", "string"]
    default: int | float | bool | str
    min: float = 0
    max: float = 0
    choices: Sequence[str] = ()
    doc: str = ""

    def check(self) -> None:
        """Raises ValueError when the declaration is not consistent."""
        number = self.type in ("integer", "float")
        kinds: dict[str, Any] = {"integer": int, "float": (int, float), "boolean": bool, "string": str}
        if number and not self.min <= self.max:
            raise ValueError(f"parameter {self.name}: no number lies between {self.min} and {self.max}")
        ok = isinstance(self.default, kinds[self.type]) and (self.type == "boolean") == isinstance(self.default, bool)
        if number and ok:
            ok = self.min <= self.default <= self.max  # type: ignore[operator]
        if not ok or self.choices and self.default not in self.choices:
            raise ValueError(f"parameter {self.name}: default: got {self.default!r}, want {self.range()}")

    def range(self) -> str:
        """The accepted values, for example "2 to 8"."""
        if self.type == "boolean":
            return "true or false"
        if self.type == "string":
            return ", ".join(self.choices) or "any string"
        low, high = math.isinf(self.min), math.isinf(self.max)
        if low or high:
            return "any number" if low and high else f"at most {self.max:g}" if low else f"at least {self.min:g}"
        return f"{self.min:g} to {self.max:g}"


def Int(name: str, default: int, min: float, max: float, doc: str) -> Parameter:
    """An integer between min and max."""
    return Parameter(name, "integer", default, min, max, doc=doc)


def Float(name: str, default: float, min: float, max: float, doc: str) -> Parameter:
    """A number between min and max; math.inf is an open side."""
    return Parameter(name, "float", float(default), min, max, doc=doc)


def Bool(name: str, default: bool, doc: str) -> Parameter:
    """A switch."""
    return Parameter(name, "boolean", default, doc=doc)


def Choice(name: str, default: str, choices: Sequence[str], doc: str) -> Parameter:
    """A string that is one of choices."""
    return Parameter(name, "string", default, choices=tuple(choices), doc=doc)


def String(name: str, default: str, doc: str) -> Parameter:
    """A free string."""
    return Parameter(name, "string", default, doc=doc)


@dataclass(frozen=True)
class Claim:
    """What an algorithm promises beyond the interface, or what the conformance kit must allow it: docs/reference/sdk.md has a table."""

    name: str
    value: str | float | None = None
    """For scale_scope and key_scope: block, row, column or tensor; for descent: a float."""
    when: Mapping[str, int | float | bool | str] = field(default_factory=dict)
    """The settings under which it holds: each of these parameters has this value. Empty: all."""

    def __str__(self) -> str:
        text = self.name if self.value is None else f"{self.name} {self.value}"
        when = " and ".join(f"{name} = {v!r}" for name, v in sorted(self.when.items()))
        return f"{text} where {when}" if when else text


@dataclass(frozen=True)
class Description:
    """A name (lower-case letters, digits, - and _), a version, the algorithm with its source, the settings, and what is claimed."""

    name: str
    version: str = ""
    doc: str = ""
    parameters: Sequence[Parameter] = ()
    claims: Sequence[Claim] = ()

    def check(self) -> None:
        """Raises ValueError when something is missing or wrong. The host checks names that are its own."""
        seen: set[str] = set()
        for name in (self.name, *(p.name for p in self.parameters)):
            if not name[:1].islower() or len(name) > 64 or not all(c in _LETTERS for c in name):
                raise ValueError(f"name {name!r}: use lower-case letters, digits, - and _, starting with a letter")
        for p in self.parameters:
            if p.name in seen:
                raise ValueError(f"parameter {p.name}: the name is taken")
            seen.add(p.name)
            p.check()

    def __str__(self) -> str:
        lines = [f"version {self.version}"] * bool(self.version) + [self.doc] * bool(self.doc)
        lines += [f"claims {c}" for c in self.claims]
        lines += [f"  {p.name} = {p.default!r} ({p.range()})  {p.doc}" for p in self.parameters]
        return "\n".join(lines)


_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


@dataclass(frozen=True)
class Values:
    """The settings for one site or tensor, checked by the host: one for each declared parameter."""

    values: Mapping[str, Any] = field(default_factory=dict, kw_only=True)

    def int(self, name: str) -> builtins.int:
        """An integer setting."""
        return int(self._get(name, int))

    def float(self, name: str) -> builtins.float:
        """A float setting."""
        return float(self._get(name, float))

    def bool(self, name: str) -> builtins.bool:
        """A boolean setting."""
        return bool(self._get(name, bool))

    def text(self, name: str) -> str:
        """A string setting."""
        return str(self._get(name, str))

    def _get(self, name: str, kind: type) -> Any:
        if name not in self.values:
            raise TypeError(f"the plugin reads the parameter {name!r}, which it does not declare")
        if type(self.values[name]) is not kind:
            raise TypeError(f"the plugin reads the parameter {name!r} as {kind.__name__}, but it is {self.values[name]!r}")
        return self.values[name]


@dataclass(frozen=True)
class StateTensor:
    """A float tensor that is kept from step to step."""

    name: str
    shape: tuple[int, ...]
    shared: str = ""
    """Of a trained parameter: the name under which several sites share it."""
    constrain: Program | None = None
    """Of a trained parameter: a program from its value to that in its set, after each update."""
    storage: Storage = "float32"
    maximum: bool = False
    """Of a quantizer's state: over the micro-batches of a step the next one is a maximum, and not a mean."""


def input_state(b: Builder, prefix: str, tensors: Sequence[StateTensor]) -> State:
    """Declares an input for each tensor."""
    return {s.name: b.input(prefix + s.name, Type("float", s.shape)) for s in tensors}


def output_state(b: Builder, prefix: str, state: State) -> list[StateTensor]:
    """Makes each value an output and lists them in the order of the bytes of their names."""
    names = sorted(state, key=str.encode)
    for name in names:
        b.output(prefix + name, state[name])
    return [StateTensor(name, state[name].shape) for name in names]


def listed(state: State) -> str:
    """The names and shapes, for messages."""
    return ", ".join(f"{name} {list(v.shape)}" for name, v in sorted(state.items())) or "none"
