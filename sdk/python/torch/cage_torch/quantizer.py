"""The quantizer of one tensor of a model: the programs of a plugin as a module."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from cage_sdk.program import Program
from torch import Tensor, fx, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from .autodiff import PREFIX, split
from .lowering import lower, random_bits
from .plugins import Plugin, PluginError, QuantizerPrograms, Setting, State


@dataclass(frozen=True)
class Passes:
    """The two passes of a program, as graphs of PyTorch."""

    forward: fx.GraphModule
    """From the inputs to Q(x) and what the backward pass needs besides `saved`."""
    backward: fx.GraphModule
    """From `saved`, the rest, and the gradient of Q(x), to those of `differentiated`."""
    saved: tuple[int, ...]


@dataclass(frozen=True)
class Lowered:
    """The programs for one shape, as graphs of PyTorch."""

    passes: Passes
    compiled: Passes
    """Those for torch.compile on a processor, whose code takes 20 times as long to write bools as to write floats (PyTorch 2.15)."""
    evaluate: fx.GraphModule
    inputs: tuple[str, ...]
    evaluated: tuple[str, ...]
    """The inputs of evaluate."""
    differentiated: tuple[int, ...]
    next: fx.GraphModule | None
    next_inputs: tuple[str, ...]
    constrain: dict[str, fx.GraphModule]
    """By the name of a trained parameter."""
    differentiable: Lowered | None
    """The program for evaluation with its gradient, if it is another one."""


def _only(p: Program, *outputs: str) -> Program:
    """The program with these outputs alone."""
    return Program(p.name, p.inputs, p.nodes, [o for o in p.outputs if o[0] in outputs]).pruned(len(p.inputs))


_graphs: weakref.WeakValueDictionary[tuple[str, ...], Lowered] = weakref.WeakValueDictionary()


def lowered(q: QuantizerPrograms) -> Lowered:
    """The graphs of programs; equal programs share them."""
    constrain = {t.name: t.constrain for t in q.trained if t.constrain}
    key = tuple(p.hash() if p else "" for p in (q.program, q.evaluate, q.next, q.backward, *constrain.values()))
    if (known := _graphs.get(key)) is not None:
        return known
    wrt = ["x", *(f"trained.{t.name}" for t in q.trained)]
    names = tuple(name for name, _ in q.program.inputs)

    def passes(masks: bool) -> Passes:
        parts = split(q.program, "value", "surrogate", wrt, q.backward, masks)
        return Passes(lower(parts.forward), lower(parts.backward), tuple(names.index(n) for n in parts.inputs))

    evaluate = _only(q.evaluate, "value")
    low = _graphs[key] = Lowered(
        passes(True), passes(False), lower(evaluate), names, tuple(n for n, _ in evaluate.inputs),
        tuple(names.index(n) for n in wrt),
        lower(q.next) if q.next else None, tuple(n for n, _ in q.next.inputs) if q.next else (),
        {name: lower(p) for name, p in constrain.items()},
        None if q.evaluate is q.program else lowered(replace(q, program=q.evaluate, next=None, backward=None)),
    )  # fmt: skip
    return low


class _Quantize(torch.autograd.Function):
    """Q(x), with the gradient of the surrogate."""

    @staticmethod
    def forward(ctx: Any, programs: Lowered, *inputs: Tensor) -> Tensor:
        passes = programs.compiled if torch.compiler.is_compiling() and inputs[0].device.type == "cpu" else programs.passes
        value, *rest = passes.forward(*inputs)
        ctx.programs, ctx.passes, ctx.count = programs, passes, len(inputs)
        ctx.save_for_backward(*(inputs[i] for i in passes.saved), *rest)
        return value  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        gradients: list[Tensor | None] = [None] * ctx.count
        with torch.autocast(dy.device.type, enabled=False):
            for i, g in zip(ctx.programs.differentiated, ctx.passes.backward(*ctx.saved_tensors, dy)):
                gradients[i] = g
        return (None, *gradients)


def whole(x: Tensor) -> Tensor:
    """The tensor of which a process has a part, or x itself."""
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def part(x: Tensor, like: Tensor) -> Tensor:
    """The part of a whole tensor that is this process's of `like`, or x itself; processes have the same x."""
    if not hasattr(like, "full_tensor"):
        return x
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(x, like.device_mesh, like.placements)  # type: ignore[attr-defined]


_counting: weakref.WeakSet[Quantizer] = weakref.WeakSet()
"""The quantizers for which it matters when a step ends."""


def _stepped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """After a step of an optimizer: the quantizers of its weights, and of frozen ones, end theirs.

    If the optimizer has none of the weights, all do of whose weights no optimizer is known, or that are frozen, because some
    wrappers of optimizers have copies. If it steps within the backward pass, they do so after that.
    """
    owned = {x for group in optimizer.param_groups for x in group["params"]}

    def end() -> None:
        weights = {q: layer.weight for q in _counting if q.layer is not None and (layer := q.layer()) is not None}
        owns = any(w in owned for w in weights.values())
        for q in list(_counting):
            w = weights.get(q)
            q.owned = q.owned or w in owned
            frozen = w is not None and not w.requires_grad
            if frozen or ((w is None or w in owned) if owns else not q.owned):
                q.end_step()

    if torch._C._current_graph_task_id() != -1:
        torch.autograd.Variable._execution_engine.queue_callback(end)
    else:
        end()


register_optimizer_step_post_hook(_stepped)


class Quantizer(nn.Module):
    """Quantizes a weight [out, in] or an activation [..., in] and lets gradients pass as the plugin says.

    Trained parameters (`trained_NAME`) are parameters of the module, state (`kept_NAME`) its buffers. Those of a weight start
    from the weight, those of an activation from the first batch. Q(x) is computed in float32, and rounded to the type of x.

    A step ends with that of the optimizer of torch.optim that has the layer's weight, or of any if the weight is frozen, if the
    quantizer had a part in the gradient. Noise follows from the seed, the quantizer and the number of the step, which is a
    buffer where it matters, and for activations also from their values. So it goes on after a resume, a forward pass that is repeated for a checkpoint has the same, and Q(weight) is the
    same in all micro-batches. State, which the programs of `next` make, changes at the end of a step: to the mean, or the
    maximum, over its forward passes on this process. In evaluation mode Q(x) has no noise.
    """

    owned = False
    """Whether an optimizer is known that has the layer's weight."""
    step: Tensor
    """The number of steps that are done, [1], where programs use it."""
    started: Tensor
    """Whether trained parameters and state have their first values, [1], where there are any."""
    passes: Tensor
    """The number of forward passes in this step, where there is state."""

    def __init__(
        self, plugin: Plugin, role: str, name: str, shape: tuple[int, ...], settings: Mapping[str, Setting],
        seed: int = 0, index: int = 0, steps: int | None = None, device: torch.device | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.steps = steps
        self.layer: weakref.ref[nn.Module] | None = None
        """The layer whose weight or input it quantizes."""
        self.plugin, self.role, self.name, self.settings = plugin, role, name, dict(settings)
        self.seed, self.index, self.enabled, self.shape = seed, index, True, shape
        self._programs: dict[tuple[tuple[int, ...], int], tuple[QuantizerPrograms, Lowered]] = {}
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
            self.register_buffer(_attribute("next", t), torch.zeros(t.shape, device=device), persistent=False)
        self.register_buffer("started", torch.zeros(1, dtype=torch.bool, device=device)) if self.trained or self.state else None
        self.register_buffer("passes", torch.zeros((), device=device), persistent=False) if self.state else None
        self._ready = not (self.trained or self.state)
        self._used = False
        self._memory = memory
        if self.counts or self.state:
            _counting.add(self)

    def programs(self, shape: tuple[int, ...], context: int = 0) -> tuple[QuantizerPrograms, Lowered]:
        """The plugin's programs for a matrix of this shape: those of its own shape, and of the last 64 others, are kept."""
        key = shape, context
        if key not in self._programs:
            if len(self._programs) > 64:  # batches of many lengths
                del self._programs[next(k for k in self._programs if k != (self.shape, 0))]
            q = self.plugin.quantizer(self.role, self.name, shape, self.settings, context)
            self._programs[key] = q, lowered(q)
        return self._programs[key]

    @torch.no_grad()
    def start(self, x: Tensor) -> None:
        """Sets trained parameters and state from the first tensor, [rows, in] in float32."""
        q, _ = self.programs(tuple(x.shape))
        for tensors, program, kind in ((q.trained, q.init, "trained"), (q.state, q.init_state, "kept")):
            if program:
                for t, value in zip(tensors, lower(program)(x)):
                    own = getattr(self, _attribute(kind, t))
                    own.copy_(part(value.reshape(t.shape or (1,) if kind == "trained" else t.shape), own))
        self.started.fill_(True)
        self._ready = True

    def restart(self) -> None:
        """Trained parameters and state start again from the next tensor."""
        if self.trained or self.state:
            self.started.fill_(False)
            self._ready = False

    @torch.no_grad()
    def end_step(self) -> None:
        """Ends a step, if there was a gradient since the last one: noise is another afterwards, and state the next."""
        if not self._used:
            return
        self._used = False
        if self.counts:
            self.step.add_(1)
        for t in self.state:
            own: Tensor = getattr(self, _attribute("kept", t))
            following: Tensor = getattr(self, _attribute("next", t))
            own.copy_(following if t.maximum else following / self.passes)
        if self.state:
            self.passes.zero_()

    @torch.no_grad()
    def _collect(self, low: Lowered, x: Tensor) -> None:
        """Adds the next state after this forward pass to those of the step."""
        assert low.next is not None
        for t, v in zip(self.state, low.next(*self._inputs(x, low.next_inputs))):
            sums: Tensor = getattr(self, _attribute("next", t))
            more = torch.maximum(sums, v) if t.maximum else sums + v
            sums.copy_(torch.where(self.passes == 0, v, more))
        self.passes.add_(1)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_programs": {}, "layer": None}  # a copy asks the plugin again

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if self.counts or self.state:
            _counting.add(self)

    def _apply(self, fn: Any, recurse: bool = True) -> Quantizer:
        """Moves the module to a device; its numbers stay in float32, which half() would round."""

        def move(t: Tensor) -> Tensor:
            moved: Tensor = fn(t)
            return moved if moved.dtype == t.dtype else t.to(moved.device)

        return super()._apply(move, recurse)  # type: ignore[no-any-return,no-untyped-call,unused-ignore]

    def _replicate_for_data_parallel(self) -> Quantizer:
        if self._memory:
            raise PluginError(f"{self.name}: DataParallel loses what {self.plugin.name} remembers: use DistributedDataParallel")
        return super()._replicate_for_data_parallel()  # type: ignore[no-any-return,no-untyped-call,unused-ignore]

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        if prefix + "started" in state_dict:
            self._ready = bool(state_dict[prefix + "started"])

    def _inputs(self, x: Tensor, names: tuple[str, ...]) -> list[Tensor]:
        """The inputs of a program by name."""
        values: dict[str, Tensor] = {"x": x}
        constrain = self.programs(self.shape)[1].constrain
        for t in self.trained:
            own = getattr(self, _attribute("trained", t))
            v = whole(own).reshape(t.shape).to(torch.float32)
            if t.name in constrain:
                with torch.no_grad():
                    inside = constrain[t.name](v)[0]
                    if v.data_ptr() == own.data_ptr():  # else FSDP has divided it, and the optimizer's value stays
                        own.copy_(inside.reshape(own.shape))
                v = v + (inside - v).detach()
            values[f"trained.{t.name}"] = v
        for t in self.state:
            values[f"kept.{t.name}"] = getattr(self, _attribute("kept", t))
        if self.counts:
            step = self.step + 1
            values["step"] = step[0].to(torch.float32)
            values["steps"] = torch.full_like(values["step"], float(self.steps or 0))
            for name in self.draws:
                if name in names:
                    values[name] = self._key(name, step, x)
        return [values[name] for name in names]

    def _key(self, name: str, step: Tensor, x: Tensor) -> Tensor:
        """A key of random bits, [2]."""
        own = name == "noise"
        who = torch.full_like(step, self.seed * 1000003 + (self.index if own else -1 - self.index // 2))  # of a product: of both operands
        if own and self.role == "activation":  # each micro-batch has its own, and a repeated forward pass the same
            who = who + x.detach().view(torch.int32).sum(dtype=torch.int64)
        return random_bits(torch.cat((step, who)).to(torch.int32), (2,))

    def forward(self, x: Tensor) -> Tensor:
        if not self.enabled or x.numel() == 0:
            return x
        flat = x.reshape(-1, x.shape[-1]).to(torch.float32)
        _, low = self.programs(tuple(flat.shape), x.shape[-2] if self.role == "activation" and x.ndim > 1 else 0)
        with torch.autocast(x.device.type, enabled=False):
            if not self._ready:
                self.start(flat.detach())
            if not self.training and torch.is_grad_enabled() and any(v.requires_grad for v in (x, *self.parameters())):
                low = low.differentiable or low  # a model that was not set to training, as from_pretrained gives it, trains, too
                value = _Quantize.apply(low, *self._inputs(flat, low.inputs))
                return value.reshape(x.shape).to(x.dtype)  # type: ignore[no-any-return]
            if not self.training:
                with torch.no_grad():
                    value = low.evaluate(*self._inputs(flat, low.evaluated))[0]
                return value.reshape(x.shape).to(x.dtype)  # type: ignore[no-any-return]
            value = _Quantize.apply(low, *self._inputs(flat, low.inputs))
            if torch.is_grad_enabled():
                self._used = True
                if low.next:
                    self._collect(low, flat)
        return value.reshape(x.shape).to(x.dtype)  # type: ignore[no-any-return]

    @torch.no_grad()
    def quantized(self, x: Tensor, training: bool = False) -> Tensor:
        """Q(x) in float32: as in evaluation, or as in this step of training, with its noise."""
        x = x.to(torch.float32)
        if self.role == "weight" and tuple(x.shape) != self.shape:
            raise ValueError(f"{self.name}: the weight is {list(x.shape)}, not {list(self.shape)}: of FSDP, only fully_shard is supported")
        if self.role == "weight" and not self._ready:
            self.start(x)
        _, low = self.programs(tuple(x.shape))
        with torch.autocast(x.device.type, enabled=False):
            if training:
                return low.passes.forward(*self._inputs(x, low.inputs))[0]  # type: ignore[no-any-return]
            return low.evaluate(*self._inputs(x, low.evaluated))[0]  # type: ignore[no-any-return]

    def record(self) -> dict[str, Any]:
        """How this quantizer was made, for a file: what JSON holds."""
        values = {name: next(iter(v.values())) for name, v in self.plugin.settings(self.settings).items()}
        return {"plugin": self.plugin.path.name, "settings": values, "seed": self.seed, "index": self.index, "steps": self.steps,
                "program": self.programs(self.shape)[0].evaluate.hash()}  # fmt: skip

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
        settings = "".join(f", {k}={v!r}" for k, v in self.settings.items())
        code = self.programs(self.shape)[1].passes.forward.code.strip()
        return f"{self.plugin.name}, {self.role} {list(self.shape)}{settings}\n{code}"


def _attribute(kind: str, t: State) -> str:
    return f"{kind}_{t.name}".replace(".", "_").replace("-", "_")
