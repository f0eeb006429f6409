"""Optimizers of plugins as optimizers of PyTorch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from cage_sdk.program import Program
from torch import Tensor, fx

from .lowering import lower, random_bits
from .plugins import OptimizerPrograms, PluginError, Setting, start
from .quantizer import part, whole

_STORAGE = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8, "uint8": torch.uint8}


@dataclass(frozen=True)
class _Lowered:
    """The programs of one parameter, as graphs by name, each with the names of its inputs and outputs."""

    programs: dict[str, tuple[fx.GraphModule, tuple[str, ...], tuple[str, ...]]]
    storage: dict[str, torch.dtype]
    """The types of the state."""
    due: tuple[int, int, int]

    def run(self, name: str, values: dict[str, Tensor], state: dict[str, Any]) -> dict[str, Tensor]:
        """The results of a program, by name; the state is converted to float32."""
        graph, inputs, outputs = self.programs[name]
        if "loss" in inputs and "loss" not in values:
            raise ValueError("the optimizer uses the loss: call step with a closure that returns it")
        args = (values[n] if n in values else state[n].to(torch.float32) for n in inputs)
        return dict(zip(outputs, graph(*args)))

    def keep(self, results: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Stores the state among the results in its types; integers are rounded and clamped."""
        for name, value in results.items():
            if name.startswith("state."):
                dtype = self.storage[name]
                if not dtype.is_floating_point:
                    limits = torch.iinfo(dtype)
                    value = value.round().clamp(limits.min, limits.max)
                state[name] = value.to(dtype)


_graphs: dict[tuple[Any, ...], _Lowered] = {}


def _lowered(o: OptimizerPrograms) -> _Lowered:
    names = ("init", "update", "observe", "first_refresh", "refresh", "rate")
    programs: dict[str, Program] = {n: p for n in names if (p := getattr(o, n)) is not None}
    key = (*((n, p.hash()) for n, p in programs.items()), *((t.name, t.storage) for t in o.state), o.due)
    if key not in _graphs:
        _graphs[key] = _Lowered(
            {n: (lower(p), tuple(i for i, _ in p.inputs), tuple(i for i, _ in p.outputs)) for n, p in programs.items()},
            {f"state.{t.name}": _STORAGE[t.storage] for t in o.state}, o.due,
        )  # fmt: skip
    return _graphs[key]


class Optimizer(torch.optim.Optimizer):
    """An optimizer whose directions u are those of a plugin: x ← (1 − α·decay)·x − α·u.

    `load` makes it. State is computed in float32 and kept in the types that the plugin names. Of a parameter that FSDP2 has
    divided, each process gathers the whole and its gradient, computes the same update, and keeps its part; state is that of
    the whole, on each process, and is saved as such.
    """

    def __init__(
        self, plugin: str, params: Iterable[Any], lr: float, weight_decay: float, steps: int, seed: int, settings: dict[str, Setting]
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "decoupled_weight_decay": True})
        self.plugin, self.steps, self.seed = start(plugin, "optimizer"), steps, seed
        self._settings = settings
        self._programs: dict[int, _Lowered] = {}  # by the position of the parameter, which wrappers may replace
        for index, x in enumerate(x for group in self.param_groups for x in group["params"]):
            self._ask(x, index)

    def _ask(self, x: Tensor, index: int) -> _Lowered:
        if index not in self._programs:
            shape = tuple(x.shape)
            role = "matrix" if len(shape) > 1 else "vector"
            o = self.plugin.optimizer(role, f"{index}", shape, self._settings)
            if o is None:
                raise PluginError(
                    f"{self.plugin.name} is not meant for parameter {index} of shape {list(shape)}: "
                    "give such parameters to another optimizer"
                )
            self._programs[index] = _lowered(o)
        return self._programs[index]

    def load_state_dict(self, state_dict: Any) -> None:
        """Loads the state in its own types; torch.optim would convert it to those of the parameters."""
        super().load_state_dict(state_dict)
        own = [x for group in self.param_groups for x in group["params"]]
        saved = [i for group in state_dict["param_groups"] for i in group["params"]]
        for x, i in zip(own, saved):
            for name, value in state_dict["state"].get(i, {}).items():
                self.state[x][name] = value.to(x.device) if torch.is_tensor(value) else value

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        index = 0
        for group in self.param_groups:
            for x in group["params"]:
                if x.grad is not None:
                    with torch.autocast(x.device.type, enabled=False):
                        self._update(x, index, group, loss)
                index += 1
        return loss

    def _update(self, x: Tensor, index: int, group: dict[str, Any], loss: Any) -> None:
        p, s = self._ask(x, index), self.state[x]

        def scalar(v: float) -> Tensor:
            return torch.full((), float(v), device=x.device)

        assert x.grad is not None
        if x.grad.is_sparse:
            raise PluginError(f"{self.plugin.name} takes no sparse gradients: want sparse=False for the embedding")
        value, gradient = whole(x).to(torch.float32), whole(x.grad).to(torch.float32)
        if "step" not in s:
            s["step"] = 0
            if "init" in p.programs:
                p.keep(p.run("init", {"x": value}, s), s)
        s["step"] += 1
        t = s["step"]
        key = torch.tensor([t, self.seed * 1000003 + index], device=x.device).to(torch.int32)
        values = {
            "x": value, "gradient": gradient, "step": scalar(t), "rate": scalar(group["lr"]),
            "steps": scalar(self.steps), "noise": random_bits(key, (2,)),
        }  # fmt: skip
        if loss is not None:
            values["loss"] = torch.as_tensor(loss, dtype=torch.float32, device=x.device)
        rate = values["rate"]
        if "rate" in p.programs:
            rate = p.run("rate", values, s)["own_rate"]
        values["x"] = value = value * (1 - rate * group["weight_decay"])
        if "observe" in p.programs:
            p.keep(p.run("observe", values, s), s)
        first, following, every = p.due
        if t == first:
            p.keep(p.run("first_refresh", values, s), s)
        elif every and first < t >= following and (t - following) % every == 0:
            p.keep(p.run("refresh", values, s), s)
        results = p.run("update", values, s)
        p.keep(results, s)
        x.copy_(part(value - rate * results["direction"], x))


def load(
    plugin: str, params: Iterable[Any], *, lr: float = 1e-3, weight_decay: float = 0.0, steps: int = 1, seed: int = 0, **settings: Setting
) -> Optimizer:
    """An optimizer of a plugin, such as "soap", "shampoo" or "muon".

    Args:
        plugin: Its name on the plugin path, or its path.
        params: Parameters, or groups of them with `lr` and `weight_decay`.
        lr: The learning rate α.
        weight_decay: Decoupled: x is multiplied by 1 − α·weight_decay before the step.
        steps: Of the run, for optimizers that use it.
        seed: Of noise.
        settings: Parameters of the plugin, such as `beta1=0.9`.

    Raises:
        PluginError: There is no such plugin, or it refuses a setting or the shape of a parameter.
    """
    return Optimizer(plugin, params, lr, weight_decay, steps, seed, settings)
