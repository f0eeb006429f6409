"""Adapters of PEFT that are added to a weight before its quantizer. It needs peft, which the package does not."""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora.layer import Linear as LoRALinear  # type: ignore[import-not-found,import-untyped,unused-ignore]
from torch import Tensor, nn

from .quantizer import whole


class MergedLoRA(LoRALinear):  # type: ignore[misc,unused-ignore]
    """A layer with adapters, y = x·Q(W₀ + Σ s·B·A)ᵀ: what is trained is what a merged model computes.

    The base layer is a QuantizedLinear. Rows for different adapters in one batch, which PEFT calls mixed, have no such form.
    """

    base_layer: Any
    lora_A: Any
    lora_B: Any

    def forward(self, x: Tensor, *args: Any, **given: Any) -> Tensor:
        if given.get("adapter_names") is not None:
            raise ValueError("merged adapters: a batch has one weight, and cannot mix adapters")
        if self.disable_adapters or self.merged:
            return super().forward(x, *args, **given)  # type: ignore[no-any-return,unused-ignore]
        return self.base_layer.multiply(x, self.merged_weight())  # type: ignore[no-any-return]

    def _active(self) -> list[str]:
        return [] if self.merged else [name for name in self.active_adapters if name in self.lora_A]

    def merged_weight(self) -> Tensor:
        """W₀ + Σ s·B·A, in float32."""
        w: Tensor = self.base_layer.weight.to(torch.float32)
        for name in self._active():
            a, b = (f[name].weight.to(torch.float32) for f in (self.lora_A, self.lora_B))
            w = w + self.scaling[name] * (b @ a)
        return w

    def factors(self) -> list[nn.Parameter]:
        """The trained factors."""
        return [f[name].weight for name in self._active() for f in (self.lora_A, self.lora_B)]

    @torch.no_grad()
    def errors_of_factors(self) -> dict[Tensor, Tensor]:
        """The gradient of ½‖e‖² by the factors, for e = W − Q(W) and Q(W) constant: s·Bᵀ·e for A, s·e·Aᵀ for B."""
        if any(whole(x) is not x for x in self.factors()):
            raise ValueError("CAGE: factors of merged adapters that FSDP has divided have no correction: use DDP, or strength=0")
        with torch.autocast(self.base_layer.weight.device.type, enabled=False):
            w = self.merged_weight()
            e = w - self.base_layer.weight_quantizer.quantized(w, training=True)
            found = {}
            for name in self._active():
                a, b, s = self.lora_A[name].weight, self.lora_B[name].weight, self.scaling[name]
                found[a], found[b] = s * (b.to(e.dtype).T @ e), s * (e @ a.to(e.dtype).T)
        return found


def layers(model: nn.Module) -> list[tuple[str, Any]]:
    """The layers with adapters, by name.

    Raises:
        ValueError: Adapters are of a kind that cannot be added to the weight.
    """
    found = []
    for name, m in model.named_modules():
        if type(m) is not LoRALinear or type(m.get_base_layer()) is not nn.Linear:
            continue
        faults = {
            "dropout, which would have to be that of the weight: want lora_dropout=0":
                any(isinstance(d, nn.Dropout) and d.p > 0 for d in m.lora_dropout.values()),
            "a variant of LoRA, such as DoRA: want plain LoRA": bool(m.lora_variant),
            "a bias: want lora_bias=False": any(m.lora_bias.values()),
            "been merged already: call unmerge_adapter first, or quantize the model without them": bool(m.merged),
        }  # fmt: skip
        for fault, so in faults.items():
            if so:
                raise ValueError(f"quantize_: adapters=\"merged\": {name} has {fault}")
        found.append((name, m))
    if not found:
        raise ValueError('quantize_: adapters="merged": the model has no layer with adapters of PEFT: call get_peft_model first')
    return found
