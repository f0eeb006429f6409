"""Models: which layers are quantized, and back."""

from __future__ import annotations

import contextlib
import types
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .plugins import PluginError, Setting, start
from .quantizer import Quantizer, part, whole


HOOKED = "_old_forward"
"""Where accelerate keeps the forward of a module that it has put on another device."""


class QuantizedLinear(nn.Linear):
    """A linear layer that multiplies Q(input) by Q(weight). Its parameters are those of the layer that it was."""

    weight_quantizer: Quantizer | None
    input_quantizer: Quantizer | None

    def forward(self, x: Tensor) -> Tensor:
        return self.multiply(x, self.weight)

    def multiply(self, x: Tensor, weight: Tensor) -> Tensor:
        """Q(x)·Q(weight)ᵀ + bias."""
        if self.input_quantizer is not None:
            x = self.input_quantizer(x)
        if self.weight_quantizer is not None:
            weight = self.weight_quantizer(weight)
        return nn.functional.linear(x, weight.to(self.weight.dtype), self.bias)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._own()  # a copy has quantizers of its own

    def _own(self) -> None:
        for q in (self.weight_quantizer, self.input_quantizer):
            if q is not None:
                q.layer = weakref.ref(self)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        if prefix + "weight" in state_dict and self.weight_quantizer is not None:
            if not any(name.startswith(prefix + "weight_quantizer.") for name in state_dict):
                self.weight_quantizer.restart()  # a weight of another model: what was made for the one before is not for it


@dataclass
class Report:
    """What quantize_ did with each layer and parameter."""

    quantized: list[str] = field(default_factory=list)
    """Names of the layers whose weights, or inputs, are quantized now."""
    left: dict[str, str] = field(default_factory=dict)
    """What was left as it is: the reason, by the name of a layer or a parameter."""

    def __str__(self) -> str:
        lines = [f"{len(self.quantized)} layers are quantized."]
        reasons: dict[str, list[str]] = {}
        for name, reason in self.left.items():
            reasons.setdefault(reason, []).append(name)
        for reason, names in reasons.items():
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            lines.append(f"left: {shown}: {reason}")
        return "\n".join(lines)


def quantize_(
    model: nn.Module, quantizer: str = "quest", *, weights: bool = True, activations: bool = False, skip: Sequence[str] = (),
    adapters: Literal["apart", "merged"] = "apart", steps: int | None = None, seed: int = 0, **settings: Setting,
) -> Report:  # fmt: skip
    """Makes the linear layers of a model quantized ones, in place, and says what was left and why.

    It turns off the fast path of nn.MultiheadAttention in this process, which would read the weights themselves.

    Args:
        model: Its linear layers become QuantizedLinear; parameters stay the same objects. Load its weights first.
        quantizer: A plugin of cage, by its name on the plugin path or by its path, e.g. ``"mxfp4"`` or ``"./my-plugin"``.
        weights: Whether weights [out, in] are quantized.
        activations: Whether the inputs [..., in] of the layers are quantized.
        skip: A list of names, or last parts of names, of layers that stay as they are. The output head always does.
        adapters: How adapters of PEFT, which are in the model already, are trained: "apart" beside the quantized weight,
            Q(W) + s·B·A, or "merged" with it before the quantizer, Q(W + s·B·A), which is what a merged model computes.
        steps: Of the run, for quantizers that change along it.
        seed: Of the noise of stochastic quantizers.
        settings: Parameters of the plugin, such as ``bits=4``.

    Raises:
        ValueError: Nothing was quantized, or the model is quantized already, or has adapters that cannot be merged.
        PluginError: There is no such plugin, or it refuses a setting or the shape of a layer.
    """
    if not weights and not activations:
        raise ValueError("quantize_: weights and activations are both False, so that nothing would be quantized")
    if any(isinstance(m, Quantizer) for m in model.modules()):
        raise ValueError("quantize_: the model is quantized already")
    if isinstance(skip, str):
        raise ValueError(f"quantize_: skip = {skip!r}: want a list of names, such as [{skip!r}]")
    names = [name.removesuffix(".base_layer") for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    if unknown := [s for s in skip if not any(_named(name, s) for name in names)]:
        raise ValueError(f"quantize_: skip: the model has no linear layer {unknown[0]!r}")
    if not 0 <= seed < 2**31:
        raise ValueError(f"quantize_: seed = {seed}: want 0 to 2³¹ − 1")
    if adapters not in ("apart", "merged"):
        raise ValueError(f"quantize_: adapters = {adapters!r}: want 'apart' or 'merged'")
    merged: list[tuple[str, Any]] = []
    if adapters == "merged":
        from .adapters import MergedLoRA, layers as with_adapters

        merged = with_adapters(model)
    plugin = start(quantizer, "quantizer")
    plugin.settings(settings)
    report, layers = Report(), {}
    head = _head(model)
    users: dict[Any, list[str]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        users.setdefault(p, []).append(name.rpartition(".")[0])
    for name, m in model.named_modules():
        reason = _reason(name, m, head, skip)
        if reason is None and (others := [n for n in users[m.weight] if model.get_submodule(n) is not m]):
            reason = f"its weight is also that of {others[0]}"
        if reason is None:
            layers[name] = m
        elif reason:
            report.left[name] = reason
    if not layers:
        raise ValueError(f"quantize_: the model has no linear layer to quantize\n{report}")
    made: dict[str, tuple[Quantizer | None, Quantizer | None]] = {}
    for index, (name, m) in enumerate(layers.items()):
        weight, device = m.weight, m.weight.device
        try:
            w = a = None
            if weights:
                w = Quantizer(plugin, "weight", name, tuple(weight.shape), settings, seed, 2 * index, steps, device)
                if not w._ready:
                    w.start(weight.detach().to(torch.float32))
            if activations:  # rows of any number: those of the first batch are asked for again
                a = Quantizer(plugin, "activation", name, (32, weight.shape[1]), settings, seed, 2 * index + 1, steps, device)
        except PluginError as e:
            raise PluginError(f"layer {name}, weight {list(weight.shape)}: {e}; skip=[{name!r}] leaves it out") from None
        made[name] = w, a
    for name, (w, a) in made.items():
        attach(layers[name], w, a)
        report.quantized.append(name)
    for name, m in merged:
        if name + ".base_layer" in layers:
            m.__class__ = MergedLoRA
    return report


def attach(m: Any, weight: Quantizer | None, input: Quantizer | None) -> None:
    """Makes a linear layer a quantized one."""
    torch.backends.mha.set_fastpath_enabled(False)  # it would read the weights themselves
    _become(m, QuantizedLinear)
    m.weight_quantizer, m.input_quantizer = weight, input
    m._own()
    for q in (weight, input):
        if q is not None:
            q.train(m.training)


def _become(m: Any, kind: type[nn.Linear]) -> None:
    m.__class__ = kind
    if HOOKED in vars(m):
        setattr(m, HOOKED, types.MethodType(kind.forward, m))


def _head(model: nn.Module) -> nn.Module | None:
    get = getattr(model, "get_output_embeddings", None)
    head = get() if callable(get) else None
    return getattr(head, "base_layer", head)


def _named(name: str, part: str) -> bool:
    return name == part or name.endswith("." + part)


def _reason(name: str, m: nn.Module, head: nn.Module | None, skip: Sequence[str]) -> str | None:
    """Why a module is not quantized: None if it is, "" if there is nothing to say."""
    name = name.removesuffix(".base_layer")  # of an adapter
    parts = name.split(".")
    if isinstance(m, nn.Linear):
        if isinstance(m.weight, nn.UninitializedParameter):
            return "its shape is not known before the first batch"
        if type(m.weight) not in (nn.Parameter, Tensor):  # Tensor: a weight that is computed, of a subclass of nn.Linear
            return f"its weight is a {type(m.weight).__name__}: call quantize_ before the model is divided or compressed"
        if type(m) is not nn.Linear:
            return f"a {type(m).__name__}, whose own forward pass may read the weight"
        if type(m.weight) is Tensor:
            return "its weight is computed before each pass: remove pruning or weight_norm first"
        if "forward" in vars(m) and HOOKED not in vars(m):
            return "its forward is replaced on the object, and would not quantize"
        if m is head or "lm_head" in parts:
            return "the output head"
        if any(p.startswith(("lora_", "modules_to_save")) for p in parts):
            return "part of an adapter"
        if m.weight.dtype not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
            return f"its weight is of type {m.weight.dtype}"
        return "skip" if any(_named(name, s) for s in skip) else None
    if type(m).__name__ == "Conv1D":
        return "a Conv1D of transformers, whose weight is [in, out]: make it an nn.Linear first"
    if isinstance(m, nn.Embedding):
        return "an embedding"
    if isinstance(m, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return "a convolution"
    for _, p in m.named_parameters(recurse=False):
        if p.ndim >= 2:
            return f"{type(m).__name__} has a parameter {list(p.shape)}, and is no linear layer"
    return ""


@contextlib.contextmanager
def full_precision(model: nn.Module) -> Iterator[None]:
    """Within it, the model computes without its quantizers: as a baseline, or as a teacher.

    A backward pass that repeats the forward pass, as checkpointed ones do, has to be within it, too.
    """
    quantizers = [m for m in model.modules() if isinstance(m, Quantizer)]
    was = [q.enabled for q in quantizers]
    for q in quantizers:
        q.enabled = False
    try:
        yield
    finally:
        for q, enabled in zip(quantizers, was):
            q.enabled = enabled


@torch.no_grad()
def convert(model: nn.Module) -> nn.Module:
    """Sets each quantized weight to Q(weight), as in evaluation, and makes its layer an nn.Linear again, in place.

    Layers whose inputs are quantized, too, stay QuantizedLinear, without a quantizer for weights. Merged adapters become part
    of their weights and leave the model.
    """
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            layer: Any = child
            if hasattr(layer, "merged_weight"):
                _bake(layer.base_layer, layer.merged_weight())
                setattr(parent, name, layer.base_layer)
    for m in model.modules():
        if isinstance(m, QuantizedLinear) and m.weight_quantizer is not None:
            _bake(m, m.weight)
    return model


def _bake(m: Any, weight: Tensor) -> None:
    m.weight.copy_(part(m.weight_quantizer.quantized(whole(weight)), m.weight))
    m.weight_quantizer = None
    if m.input_quantizer is None:
        del m.weight_quantizer, m.input_quantizer
        _become(m, nn.Linear)
