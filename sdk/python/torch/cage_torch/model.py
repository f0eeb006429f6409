"""Models: which layers are quantized, and back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .plugins import PluginError, Setting, start
from .quantizer import Quantizer


class QuantizedLinear(nn.Linear):
    """A linear layer that multiplies Q(input) by Q(weight). Its parameters are those of the layer that it was."""

    weight_quantizer: Quantizer | None
    input_quantizer: Quantizer | None

    def forward(self, x: Tensor) -> Tensor:
        if self.input_quantizer is not None:
            x = self.input_quantizer(x)
        weight = self.weight if self.weight_quantizer is None else self.weight_quantizer(self.weight)
        return nn.functional.linear(x, weight, self.bias)


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
    model: nn.Module, quantizer: str = "quest", *, weights: bool = True, activations: bool = False,
    skip: Sequence[str] = (), steps: int | None = None, seed: int = 0, **settings: Setting,
) -> Report:  # fmt: skip
    """Makes the linear layers of a model quantized ones, in place, and says what was left and why.

    Args:
        model: Its linear layers become QuantizedLinear; parameters stay the same objects. Load its weights first.
        quantizer: A plugin of cage, by its name on the plugin path or by its path, e.g. ``"mxfp4"`` or ``"./my-plugin"``.
        weights: Whether weights [out, in] are quantized.
        activations: Whether the inputs [..., in] of the layers are quantized.
        skip: Names, or last parts of names, of layers that stay as they are. The output head always does.
        steps: Of the run, for quantizers that change along it.
        seed: Of the noise of stochastic quantizers.
        settings: Parameters of the plugin, such as ``bits=4``.

    Raises:
        ValueError: Nothing was quantized, or the model is quantized already.
        PluginError: There is no such plugin, or it refuses a setting or the shape of a layer.
    """
    if not weights and not activations:
        raise ValueError("quantize_: weights and activations are both False, so that nothing would be quantized")
    if any(isinstance(m, Quantizer) for m in model.modules()):
        raise ValueError("quantize_: the model is quantized already")
    plugin = start(quantizer, "quantizer")
    plugin.settings(settings)
    report, layers = Report(), {}
    head = _head(model)
    for name, m in model.named_modules():
        reason = _reason(name, m, head, skip)
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
    return report


def attach(m: Any, weight: Quantizer | None, input: Quantizer | None) -> None:
    """Makes a linear layer a quantized one."""
    torch.backends.mha.set_fastpath_enabled(False)  # it would read the weights themselves
    m.__class__ = QuantizedLinear
    m.weight_quantizer, m.input_quantizer = weight, input
    for q in (weight, input):
        if q is not None:
            q.train(m.training)


def _head(model: nn.Module) -> nn.Module | None:
    get = getattr(model, "get_output_embeddings", None)
    return get() if callable(get) else None


def _reason(name: str, m: nn.Module, head: nn.Module | None, skip: Sequence[str]) -> str | None:
    """Why a module is not quantized: None if it is, "" if there is nothing to say."""
    parts = name.split(".")
    if type(m) is nn.Linear:
        if m is head or parts[-1] == "lm_head":
            return "the output head"
        if any(p.startswith(("lora_", "modules_to_save")) for p in parts):
            return "part of an adapter"
        if isinstance(m.weight, nn.UninitializedParameter):
            return "its shape is not known before the first batch"
        return "skip" if any(name == s or name.endswith("." + s) for s in skip) else None
    if isinstance(m, nn.Linear):
        return f"a {type(m).__name__}, whose own forward pass may read the weight"
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
    """Within it, the model computes without its quantizers: as a baseline, or as a teacher."""
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

    Layers whose inputs are quantized, too, stay QuantizedLinear, without a quantizer for weights.
    """
    for m in model.modules():
        if isinstance(m, QuantizedLinear) and m.weight_quantizer is not None:
            m.weight.copy_(m.weight_quantizer.quantized(m.weight))
            m.weight_quantizer = None
            if m.input_quantizer is None:
                del m.weight_quantizer, m.input_quantizer
                m.__class__ = nn.Linear  # type: ignore[assignment]
    return model
