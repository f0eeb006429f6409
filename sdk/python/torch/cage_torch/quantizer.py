"""The quantizer of one tensor of a model: the programs of a plugin as a module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from cage_sdk.program import Program
from torch import Tensor, fx, nn

from .autodiff import PREFIX, split
from .lowering import lower, random_bits
from .plugins import Plugin, PluginError, QuantizerPrograms, Setting, State


@dataclass(frozen=True)
class Lowered:
    """The programs for one shape, as graphs of PyTorch."""

    forward: fx.GraphModule
    """From `inputs` to Q(x) and what the backward pass needs besides `saved`."""
    backward: fx.GraphModule
    """From `saved`, the rest, and the gradient of Q(x), to those of `differentiated`."""
    evaluate: fx.GraphModule
    inputs: tuple[str, ...]
    evaluated: tuple[str, ...]
    """The inputs of evaluate."""
    saved: tuple[int, ...]
    differentiated: tuple[int, ...]
    next: fx.GraphModule | None
    next_inputs: tuple[str, ...]


def _only(p: Program, *outputs: str) -> Program:
    """The program with these outputs alone."""
    return Program(p.name, p.inputs, p.nodes, [o for o in p.outputs if o[0] in outputs]).pruned(len(p.inputs))


_graphs: dict[tuple[str, ...], Lowered] = {}


def lowered(q: QuantizerPrograms) -> Lowered:
    """The graphs of programs; equal programs share them."""
    key = tuple(p.hash() if p else "" for p in (q.program, q.evaluate, q.next, q.backward))
    if key not in _graphs:
        wrt = ["x", *(f"trained.{t.name}" for t in q.trained)]
        parts = split(q.program, "value", "surrogate", wrt, q.backward)
        names = tuple(name for name, _ in q.program.inputs)
        evaluate = _only(q.evaluate, "value")
        _graphs[key] = Lowered(
            lower(parts.forward), lower(parts.backward), lower(evaluate), names, tuple(n for n, _ in evaluate.inputs),
            tuple(names.index(n) for n in parts.inputs), tuple(names.index(n) for n in wrt),
            lower(q.next) if q.next else None, tuple(n for n, _ in q.next.inputs) if q.next else (),
        )  # fmt: skip
    return _graphs[key]


class _Quantize(torch.autograd.Function):
    """Q(x), with the gradient of the surrogate."""

    @staticmethod
    def forward(ctx: Any, programs: Lowered, *inputs: Tensor) -> Tensor:
        value, *rest = programs.forward(*inputs)
        ctx.programs, ctx.count = programs, len(inputs)
        ctx.save_for_backward(*(inputs[i] for i in programs.saved), *rest)
        return value  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        gradients: list[Tensor | None] = [None] * ctx.count
        for i, g in zip(ctx.programs.differentiated, ctx.programs.backward(*ctx.saved_tensors, dy)):
            gradients[i] = g
        return (None, *gradients)


def whole(x: Tensor) -> Tensor:
    """The tensor of which a process has a part, or x itself."""
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def _recomputing() -> bool:
    """Whether a forward pass is repeated within a backward pass, as by torch.utils.checkpoint."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


class Quantizer(nn.Module):
    """Quantizes a weight [out, in] or an activation [..., in] and lets gradients pass as the plugin says.

    Trained parameters (`trained_NAME`) are parameters of the module, state (`kept_NAME`) its buffers. Those of a weight start
    from the weight, those of an activation from the first batch. Q(x) is computed in float32, and rounded to the type of x.

    A step is a forward pass in training mode. Noise depends on the seed, the quantizer, and the number of the step, which is
    a buffer where it matters: it goes on after a resume, and a forward pass that is repeated in the backward pass has the
    same. In evaluation mode Q(x) has no noise and no gradient.
    """

    step: Tensor
    """The number of steps that are done, [1], where programs use it."""
    started: Tensor
    """Whether trained parameters and state have their first values, [1], where there are any."""

    def __init__(
        self, plugin: Plugin, role: str, name: str, shape: tuple[int, ...], settings: Mapping[str, Setting],
        seed: int = 0, index: int = 0, steps: int | None = None, device: torch.device | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.steps = steps
        self.plugin, self.role, self.name, self.settings = plugin, role, name, dict(settings)
        self.seed, self.index, self.enabled = seed, index, True
        self._programs: dict[tuple[int, ...], tuple[QuantizerPrograms, Lowered]] = {}
        q, low = self.programs(shape)
        self.trained, self.state = q.trained, q.state
        uses = {*low.inputs, *low.next_inputs}
        self.draws = [n for n in ("noise", "shared_noise") if n in uses]
        self.counts = bool(self.draws) or bool({"step", "steps"} & uses)
        if "steps" in uses and steps is None:
            raise PluginError(f"{plugin.name} uses the number of steps of the run: give quantize_ steps")
        memory = bool(self.trained or self.state or self.counts)
        if memory and device is not None and device.type == "meta":
            raise ValueError(f"{name}: {plugin.name} has parameters or state of its own: load the model's weights first")
        if self.counts:
            self.register_buffer("step", torch.zeros(1, dtype=torch.int64, device=device))
        for t in self.trained:  # at least one axis, because FSDP divides no scalars
            self.register_parameter(_attribute("trained", t), nn.Parameter(torch.zeros(t.shape or (1,), device=device)))
        for t in self.state:
            self.register_buffer(_attribute("kept", t), torch.zeros(t.shape, device=device))
        self.register_buffer("started", torch.zeros(1, dtype=torch.bool, device=device)) if self.trained or self.state else None
        self._constrain = {t.name: lower(t.constrain) for t in self.trained if t.constrain}
        self._ready = not (self.trained or self.state)

    def programs(self, shape: tuple[int, ...], context: int = 0) -> tuple[QuantizerPrograms, Lowered]:
        """The plugin's programs for a matrix of this shape, which it is asked for once."""
        if shape not in self._programs:
            q = self.plugin.quantizer(self.role, self.name, shape, self.settings, context)
            self._programs[shape] = q, lowered(q)
        return self._programs[shape]

    @torch.no_grad()
    def start(self, x: Tensor) -> None:
        """Sets trained parameters and state from the first tensor, [rows, in] in float32."""
        q, _ = self.programs(tuple(x.shape))
        for tensors, program, kind in ((q.trained, q.init, "trained"), (q.state, q.init_state, "kept")):
            if program:
                for t, value in zip(tensors, lower(program)(x)):
                    getattr(self, _attribute(kind, t)).copy_(value.reshape(t.shape or (1,) if kind == "trained" else t.shape))
        self.started.fill_(True)
        self._ready = True

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        if prefix + "started" in state_dict:
            self._ready = bool(state_dict[prefix + "started"])

    def _inputs(self, x: Tensor, names: tuple[str, ...]) -> list[Tensor]:
        """The inputs of a program by name."""
        values: dict[str, Tensor] = {"x": x}
        for t in self.trained:
            own = getattr(self, _attribute("trained", t))
            v = whole(own).reshape(t.shape)
            if t.name in self._constrain:
                with torch.no_grad():
                    inside = self._constrain[t.name](v)[0]
                    if v.data_ptr() == own.data_ptr():  # else FSDP has divided it, and the optimizer's value stays
                        own.copy_(inside.reshape(own.shape))
                v = v + (inside - v).detach()
            values[f"trained.{t.name}"] = v
        for t in self.state:
            values[f"kept.{t.name}"] = getattr(self, _attribute("kept", t))
        if self.counts:
            values["step"] = self.step[0].to(torch.float32)
            values["steps"] = torch.full_like(values["step"], float(self.steps or 0))
            for name in self.draws:
                who = self.index if name == "noise" else -1 - self.index // 2  # both operands of a product
                key = torch.cat((self.step, torch.full_like(self.step, self.seed * 1000003 + who))).to(torch.int32)
                values[name] = random_bits(key, (2,))
        return [values[name] for name in names]

    def forward(self, x: Tensor) -> Tensor:
        if not self.enabled:
            return x
        flat = x.reshape(-1, x.shape[-1]).to(torch.float32)
        _, low = self.programs(tuple(flat.shape), x.shape[-2] if self.role == "activation" and x.ndim > 1 else 0)
        if not self._ready:
            self.start(flat.detach())
        if not self.training:
            with torch.no_grad():
                value = low.evaluate(*self._inputs(flat, low.evaluated))[0]
            return value.reshape(x.shape).to(x.dtype)  # type: ignore[no-any-return]
        repeated = _recomputing()
        if self.counts and not repeated:
            self.step.add_(1)
        value = _Quantize.apply(low, *self._inputs(flat, low.inputs))
        if low.next and not repeated:
            with torch.no_grad():
                for t, v in zip(self.state, low.next(*self._inputs(flat, low.next_inputs))):
                    getattr(self, _attribute("kept", t)).copy_(v)
        return value.reshape(x.shape).to(x.dtype)  # type: ignore[no-any-return]

    @torch.no_grad()
    def quantized(self, x: Tensor, training: bool = False) -> Tensor:
        """Q(x) in float32: as in evaluation, or as in the last step of training, with its noise."""
        x = x.to(torch.float32)
        _, low = self.programs(tuple(x.shape))
        if training:
            return low.forward(*self._inputs(x, low.inputs))[0]  # type: ignore[no-any-return]
        return low.evaluate(*self._inputs(x, low.evaluated))[0]  # type: ignore[no-any-return]

    def record(self) -> dict[str, Any]:
        """How this quantizer was made, for a file: what JSON holds."""
        shape = next(iter(self._programs))
        values = {name: next(iter(v.values())) for name, v in self.plugin.settings(self.settings).items()}
        return {"plugin": self.plugin.name, "settings": values, "seed": self.seed, "index": self.index, "steps": self.steps,
                "program": self._programs[shape][0].evaluate.hash()}  # fmt: skip

    @torch.no_grad()
    def memory(self) -> dict[str, Tensor]:
        """Trained parameters, within their limits, and state, by the names of programs' inputs; nothing before the first batch."""
        if not self._ready:
            return {}
        names = [*(f"trained.{t.name}" for t in self.trained), *(f"kept.{t.name}" for t in self.state)]
        values = dict(zip(names, (v.detach().clone().contiguous() for v in self._inputs(torch.empty(0), tuple(names)))))
        return {**values, "step": self.step.clone()} if self.counts else values

    @torch.no_grad()
    def remember(self, values: Mapping[str, Tensor]) -> None:
        """Takes what `memory` gave.

        Raises:
            ValueError: Tensors are missing, too many, or of other shapes.
        """
        own: dict[str, Tensor] = {"step": self.step} if self.counts else {}
        if values.keys() - own.keys() or self.role == "weight":  # else it was saved before the first batch
            for kind, tensors in (("trained", self.trained), ("kept", self.state)):
                own.update((f"{kind}.{t.name}", getattr(self, _attribute(kind, t)).reshape(t.shape)) for t in tensors)
            if self.trained or self.state:
                self.started.fill_(True)
            self._ready = True
        found, want = ({n: tuple(t.shape) for n, t in of.items()} for of in (values, own))
        if found != want:
            raise ValueError(f"it has the tensors {found}, want {want}")
        for name, t in own.items():
            t.copy_(values[name])

    def extra_repr(self) -> str:
        shape = next(iter(self._programs))
        settings = "".join(f", {k}={v!r}" for k, v in self.settings.items())
        code = self._programs[shape][1].forward.code.strip()
        return f"{self.plugin.name}, {self.role} {list(shape)}{settings}\n{code}"


def _attribute(kind: str, t: State) -> str:
    return f"{kind}_{t.name}".replace(".", "_").replace("-", "_")
