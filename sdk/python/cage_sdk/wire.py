"""The messages of the plugin protocol, and the conversion of programs and settings to and from them.

The types come from protocol.binpb, the compiled .proto files of sdk/internal/wire, which `make generate` writes. So no code
is generated for Python, and any version of the protobuf library reads it.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from .infer import DTYPES, Type
from .optimizer import Due, OptimizerProgram, Part, Tensor
from .plugin import Description, Values
from .program import Node, Program
from .quantizer import QuantizerProgram, Site

PACKAGE = "cage.plugin.v1"

_pool = descriptor_pool.DescriptorPool()
for _file in descriptor_pb2.FileDescriptorSet.FromString(resources.files(__package__).joinpath("protocol.binpb").read_bytes()).file:
    _pool.Add(_file)


def message(name: str) -> Any:
    """The class of a message by its name in the .proto files."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


def _words(enum: str) -> dict[int, str]:
    """The words of an enumeration, as Go's sdk has them: SITE_ROLE_WEIGHT is weight."""
    values = _pool.FindEnumTypeByName(f"{PACKAGE}.{enum}").values_by_number
    prefix = values[0].name.removesuffix("UNSPECIFIED").removesuffix("FORWARD").removesuffix("FLOAT32")
    return {n: v.name.removeprefix(prefix).lower() for n, v in values.items() if not v.name.endswith("UNSPECIFIED")}


_OPS = {word: n for n, word in _words("Op").items()}
_SITE_ROLES, _PRODUCTS, _TENSOR_ROLES = _words("SiteRole"), _words("SiteProduct"), _words("TensorRole")
_STORAGE = {word: n for n, word in _words("Storage").items()}
_FORMATS = {word: n for n, word in _words("NumberFormat").items()}
_PARAMETERS = {word: n for n, word in _words("ParameterType").items()}


class Unreadable(Exception):
    """A request that this version cannot read."""


def from_site(m: Any) -> Site:
    """Reads a site."""
    role, product = _known(m, _SITE_ROLES, m.role, "role"), _known(m, _PRODUCTS, m.product, "product")
    layer = m.layer if m.HasField("layer") else None
    return Site(role=role, name=m.name, shape=tuple(m.shape), product=product, layer=layer, layers=m.layers,
                heads=m.heads, row_heads=m.row_heads, context=m.context, values=_from_values(m))


def from_tensor(m: Any) -> Tensor:
    """Reads a tensor."""
    parts, first = [], 0
    for p in m.parts:
        parts.append(Part(p.name, first, p.rows))
        first += p.rows
    role = _known(m, _TENSOR_ROLES, m.role, "role")
    return Tensor(name=m.name, role=role, shape=tuple(m.shape), parts=parts, values=_from_values(m))


def _known(m: Any, words: dict[int, str], number: int, what: str) -> Any:
    if number not in words:
        raise Unreadable(f"{m.name}: {what} {number} is unknown to this version of cage-sdk: install a current one")
    return words[number]


def _from_values(m: Any) -> dict[str, Any]:
    return {name: getattr(v, v.WhichOneof("kind")) for name, v in m.values.items()}


def to_values(values: Values) -> dict[str, Any]:
    """Writes settings: the fields of each Value message."""
    return {name: _to_value(v) for name, v in values.values.items()}


def _to_value(v: Any) -> dict[str, Any]:
    return {{int: "integer", float: "float", bool: "boolean", str: "string"}[type(v)]: v}


def to_description(d: Description) -> Any:
    """Writes a description."""
    m = message("Description")(name=d.name, version=d.version, doc=d.doc)
    for p in d.parameters:
        m.parameters.add(
            name=p.name, type=_PARAMETERS[p.type], default={p.type: p.default}, min=p.min, max=p.max, choices=p.choices, doc=p.doc
        )
    for c in d.claims:
        value = None if c.value is None else _to_value(c.value)
        m.claims.add(name=c.name, value=value, when={name: message("Value")(**_to_value(v)) for name, v in c.when.items()})
    return m


def _to_type(t: Type) -> Any:
    return message("Type")(dtype=DTYPES.index(t.dtype) + 1, shape=t.shape)


def to_program(p: Program | None) -> Any:
    """Writes a program; None stays None, which leaves a field out."""
    if p is None:
        return None
    m = message("Program")(name=p.name)
    for name, t in p.inputs:
        m.inputs.add(name=name, type=_to_type(t))
    for n in p.nodes:
        m.nodes.add(op=_OPS[n.op], args=n.args, type=_to_type(n.type), attr=dict(n.attr) or None)
    for name, value in p.outputs:
        m.outputs.add(name=name, value=value)
    return m


def from_program(m: Any) -> Program:
    """Reads a valid program."""
    ops = {n: word for word, n in _OPS.items()}

    def read(t: Any) -> Type:
        return Type(DTYPES[t.dtype - 1], tuple(t.shape))

    def attributes(n: Any) -> dict[str, Any]:
        return {f.name: v if f.name == "block" else list(v) for f, v in n.attr.ListFields()}

    return Program(
        m.name,
        [(i.name, read(i.type)) for i in m.inputs],
        [Node(ops[n.op], tuple(n.args), read(n.type), attributes(n)) for n in m.nodes],
        [(o.name, o.value) for o in m.outputs],
    )


def _to_list(state: Any) -> Any:
    return [
        {"name": s.name, "shape": s.shape, "shared": s.shared, "constrain": to_program(s.constrain), "storage": _STORAGE[s.storage], "maximum": s.maximum}
        for s in state
    ]


def _to_due(d: Due) -> Any:
    return {"first": d.first, "next": d.next, "every": d.every} if d.first else None


def to_quantizer_program(q: QuantizerProgram) -> Any:
    """Writes a quantizer's answer."""
    programs = {name: to_program(getattr(q, name)) for name in ("program", "evaluate", "init", "unpack", "init_state", "next", "backward")}
    g = q.grid
    grid = {"format": _FORMATS[g.format], "min": g.min, "max": g.max, "step": g.step, "group": g.group, "span": g.span} if g else None
    return message("QuantizerProgram")(**programs, homogeneous=q.homogeneous, trained=_to_list(q.trained), state=_to_list(q.state), grid=grid)


def to_optimizer_program(o: OptimizerProgram) -> Any:
    """Writes an optimizer's answer."""
    names = ("init", "update", "observe", "first_refresh", "refresh", "evaluate", "collect", "rate", "probe")
    programs = {name: to_program(getattr(o, name)) for name in names}
    due, probe_due = _to_due(o.due), _to_due(o.probe_due)
    return message("OptimizerProgram")(**programs, state=_to_list(o.state), due=due, probe_due=probe_due, sampled=o.sampled, rounded=_STORAGE[o.rounded])
