"""Quantized models in files: weights that every program reads, and the state of quantizers beside them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from .model import QuantizedLinear, attach
from .plugins import PluginError, start
from .quantizer import Quantizer, whole

STATE_FILE = "quantizers.cage"
"""The state of quantizers: safetensors, by another name because vLLM reads every *.safetensors of a directory."""
VERSION = 1


def _plain(name: str) -> str:
    """A name without the wrappers of layers. state_dict has those of torch.compile, and not those of checkpoints."""
    return name.replace("_checkpoint_wrapped_module.", "").replace("_orig_mod.", "")


def _quantizers(model: nn.Module) -> Iterator[tuple[str, str, Quantizer]]:
    """The layer, "weight" or "input", and the quantizer of each quantized tensor."""
    for layer, m in model.named_modules():
        if isinstance(m, QuantizedLinear):
            layer = _plain(layer)
            for of, q in (("weight", m.weight_quantizer), ("input", m.input_quantizer)):
                if q is not None:
                    yield layer, of, q


def save(model: Any, directory: str | os.PathLike[str], **options: Any) -> None:
    """Writes a quantized model of transformers: its own weights, before quantization, and quantizers.cage beside them.

    `from_pretrained` loads the directory as the plain model, `load_` attaches the quantizers again, and ``cage import``
    makes a run of it whose weights are those of `convert`, for ``cage export``. Parameters that FSDP has divided are made
    whole: all processes call it, and one writes. Without FSDP, only the first process needs to call it, and the others do not
    wait for it.

    Args:
        model: Was given to quantize_, and not to convert; adapters are merged.
        directory: Is made if there is none.
        options: Of the model's save_pretrained.

    Raises:
        ValueError: The model has no save_pretrained, no quantizers, or adapters.
    """
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    if not callable(getattr(model, "save_pretrained", None)):
        raise ValueError(f"save: a {type(model).__name__} has no save_pretrained: use torch.save(model.state_dict(), path)")
    if hasattr(model, "peft_config"):
        raise ValueError("save: the model has adapters: want model.merge_and_unload() before")
    layers: dict[str, dict[str, Any]] = {}
    tensors: dict[str, Tensor] = {}
    own: set[str] = set()
    for layer, of, q in _quantizers(model):
        linear: Any = q.layer() if q.layer is not None else None
        if of == "weight" and not q._ready and linear is not None:
            q.start(whole(linear.weight).to(torch.float32))
        layers.setdefault(layer, {})[of] = q.record()
        tensors.update((f"{layer}.{of}.{name}", value) for name, value in q.memory().items())
        own.update(f"{layer}.{of}_quantizer.{name}" for name in q.state_dict())
    if not layers:
        raise ValueError("save: the model has no quantizers: call quantize_ before, and convert not at all")
    writes = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
    weights, divided = {}, False
    for name, value in model.state_dict().items():
        name = _plain(name)
        if name not in own:
            full = whole(value)
            divided = divided or full is not value
            if writes:
                weights[name] = full if full is value else full.cpu()
    if writes:
        model.save_pretrained(directory, state_dict=weights, **options)
        path = Path(directory) / STATE_FILE
        unfinished = path.with_suffix(".unfinished")
        save_file(tensors, unfinished, {"cage_torch": json.dumps({"version": VERSION, "layers": layers})})
        unfinished.replace(path)
    if divided:
        torch.distributed.barrier()


def load_(model: nn.Module, directory: str | os.PathLike[str]) -> list[str]:
    """Attaches the quantizers that `save` has written to a model with the weights beside them, in place, to train on.

    Returns:
        The names of the quantized layers.

    Raises:
        ValueError: The file is not one of save's, or is of another model.
        PluginError: A plugin is missing, refuses its settings, or is not the one used in training.
    """
    path = Path(directory) / STATE_FILE
    if any(isinstance(m, Quantizer) for m in model.modules()):
        raise ValueError("load_: the model is quantized already")
    if not path.exists():
        raise ValueError(f"{directory} has no {STATE_FILE}, which cage_torch.save writes: want a directory that it has written")
    with safe_open(path, framework="pt") as f:  # type: ignore[no-untyped-call,unused-ignore]
        content = json.loads((f.metadata() or {}).get("cage_torch", "{}"))
        if content.get("version") != VERSION:
            raise ValueError(f"{path}: its version is {content.get('version')}, want {VERSION}: install the cage-torch that wrote it")
        tensors = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118
    modules = dict(model.named_modules())
    made: list[tuple[nn.Linear, dict[str, Quantizer]]] = []
    for layer, records in content["layers"].items():
        m = modules.get(layer)
        if type(m) is not nn.Linear:
            raise ValueError(f"{path}: the model has no linear layer {layer}: want the model that was saved")
        quantizers = {}
        for of, r in records.items():
            shape = tuple(m.weight.shape) if of == "weight" else (32, m.in_features)
            role = "weight" if of == "weight" else "activation"
            try:
                if Path(r["plugin"]).name != r["plugin"]:
                    raise ValueError(f"plugin {r['plugin']!r}: a file names plugins without a path, to be found on the plugin path")
                q = Quantizer(start(r["plugin"], "quantizer"), role, layer, shape, r["settings"], r["seed"], r["index"], r["steps"],
                              m.weight.device)  # fmt: skip
                if q.record()["program"] != r["program"]:
                    raise PluginError(f"the program of {r['plugin']} is not the one used in training: want the plugin that training used")
                prefix = f"{layer}.{of}."
                q.remember({n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)})
            except (PluginError, ValueError) as e:
                raise type(e)(f"{path}: layer {layer}, {of}: {e}") from None
            quantizers[of] = q
        made.append((m, quantizers))
    for m, quantizers in made:
        attach(m, quantizers.get("weight"), quantizers.get("input"))
    return list(content["layers"])
