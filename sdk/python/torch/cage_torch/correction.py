"""The correction of CAGE for any optimizer of PyTorch (MLSys 2026, Algorithm 1)."""

from __future__ import annotations

import copy
import inspect
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from .model import QuantizedLinear
from .quantizer import Quantizer, part, whole

STRENGTH, SHORT = 0.24, 1000
"""The default strength, and the number of steps below which it is proportionally less."""


class CAGE:
    """Adds the correction to an optimizer: after each step, x ← x − α·λ_t·e for each quantized weight x.

    e = x − Q(x) is taken before the step, after the weight decay. λ_t is 0 in the first part of the run, `silence`, and then
    grows linearly to λ. The strength S is the sum of α·λ_t over the run: a weight that nothing else moves keeps the share
    exp(−S) of its error. A weight in bfloat16 or float16, which cannot hold small corrections, has a second tensor of its
    type for what was rounded off. The factors B and A of an adapter that is merged before the quantizer move by s·e·Aᵀ and
    s·Bᵀ·e in place of e. A step that the optimizer skips, because gradients are not finite, is none.

    Args:
        optimizer: Has the quantized weights of the model; that of accelerate is unwrapped. Its weight decay is decoupled
            where the group says ``decoupled_weight_decay``, and in AdamW and Muon of torch.optim.
        model: Was given to quantize_.
        steps: Of the run. Later steps are not corrected, with a warning.
        strength: S; by default 0.24, and proportionally less in fewer than 1000 steps.
        silence: The share of the run without correction.
        scheduler: Tells the learning rates of the run, from which λ follows. It has to be at its start, unless it is a
            LambdaLR; load its state afterwards. Without one the rates are constant.
        lambda_: λ itself, in place of a strength.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, model: nn.Module, steps: int, *, strength: float | None = None,
        silence: float = 0.9, scheduler: Any = None, lambda_: float | None = None,
    ) -> None:  # fmt: skip
        if steps < 1 or steps != int(steps) or not 0 <= silence < 1:
            raise ValueError(f"CAGE: steps = {steps}, silence = {silence}: want steps of at least 1, and a silence from 0 to below 1")
        if strength is not None and lambda_ is not None:
            raise ValueError("CAGE: want strength or lambda_, not both")
        if strength is None:
            strength = STRENGTH * min(1, steps / SHORT)
        if not 0 <= (strength if lambda_ is None else lambda_) < float("inf"):
            raise ValueError("CAGE: want a strength, or lambda_, that is finite and not negative")
        optimizer, scheduler, stride = _unwrapped(optimizer, scheduler)
        self.steps, self.model = int(steps), model
        self._check_owned(optimizer)
        self._check_trained(optimizer, model)
        self.ramp = [max(0.0, (t / self.steps - silence) / (1 - silence)) for t in range(1, self.steps + 1)]
        if lambda_ is None:
            rates = learning_rates(optimizer, scheduler, self.steps * stride)[::stride]
            sums = [sum(r[i] * w for r, w in zip(rates, self.ramp)) for i in range(len(rates[0]))]
            if strength > 0 and max(sums) == 0:
                raise ValueError("CAGE: the learning rate is 0 in all steps of the correction")
            self.lambdas = [strength / total if total > 0 else 0.0 for total in sums]
        else:
            self.lambdas = [lambda_] * len(optimizer.param_groups)
        self._errors: list[tuple[Tensor, Tensor, float]] = []  # parameter, its error, αλ
        self._warned = False  # of steps after the run
        self._decays = isinstance(optimizer, (torch.optim.AdamW, getattr(torch.optim, "Muon", ())))
        if getattr(optimizer, "_cage", None) is not None:
            raise ValueError("CAGE: the optimizer has a correction: call its remove first")
        optimizer._cage = self  # type: ignore[attr-defined]
        trained = {x for group in optimizer.param_groups for x in group["params"]}
        for m in model.modules():
            if isinstance(m, QuantizedLinear) and m.weight in trained:
                for q in (m.weight_quantizer, m.input_quantizer):
                    if q is not None:
                        q.owned = True
        self._optimizer = optimizer
        self._hooks = [optimizer.register_step_pre_hook(self._before), optimizer.register_step_post_hook(self._after)]

    def remove(self) -> None:
        """Takes the correction from its optimizer."""
        for hook in self._hooks:
            hook.remove()
        for group in self._optimizer.param_groups:
            group.pop("cage_step", None)
        self._optimizer._cage = None  # type: ignore[attr-defined]

    def _weights(self) -> dict[Tensor, Quantizer]:
        """The quantized weights of the model as it is now: wrappers of models replace parameters."""
        return {
            m.weight: m.weight_quantizer
            for m in self.model.modules() if isinstance(m, QuantizedLinear) and m.weight_quantizer is not None
        }  # fmt: skip

    def _merged(self) -> list[Any]:
        """The layers whose adapters are merged before the quantizer."""
        return [m for m in self.model.modules() if hasattr(m, "errors_of_factors")]

    def _check_owned(self, optimizer: torch.optim.Optimizer) -> None:
        known = {*self._weights(), *(x for m in self._merged() for x in m.factors())}
        if not any(x in known for group in optimizer.param_groups for x in group["params"]):
            raise ValueError(
                "CAGE: the optimizer has no quantized weight of the model: call quantize_ first (and convert last), give the "
                "optimizer the parameters of this model after it was wrapped, and with adapters use adapters=\"merged\""
            )

    @staticmethod
    def _check_trained(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        """Warns about trained parameters of quantizers that no optimizer has, or that decay."""
        groups = {x: group for group in optimizer.param_groups for x in group["params"]}
        for name, m in model.named_modules():
            for own, x in m.named_parameters(recurse=False) if isinstance(m, Quantizer) else ():
                if x not in groups:
                    warnings.warn(f"CAGE: the optimizer does not have {name}.{own}: make it after quantize_", stacklevel=3)
                    return
                if groups[x].get("weight_decay"):
                    warnings.warn(f"CAGE: {name}.{own} decays: give the parameters of quantizers weight_decay=0", stacklevel=3)
                    return

    @torch.no_grad()
    def _before(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._errors.clear()
        if (skipped := getattr(optimizer, "found_inf", None)) is not None and bool(skipped):  # a fused step of a GradScaler
            return
        if len(optimizer.param_groups) != len(self.lambdas):
            raise ValueError("CAGE: the optimizer has other groups of parameters than before: make CAGE after the last add_param_group")
        self._check_owned(optimizer)
        weights = self._weights()
        merged: dict[Tensor, Any] = {x: m for m in self._merged() for x in m.factors()}
        found: dict[Any, dict[Tensor, Tensor]] = {}
        for group, top in zip(optimizer.param_groups, self.lambdas):
            t = group["cage_step"] = group.get("cage_step", 0) + 1
            if t > self.steps:
                if not self._warned:
                    warnings.warn(f"CAGE: the run has more than {self.steps} steps: later ones are not corrected", stacklevel=2)
                    self._warned = True
                continue
            weight = float(group["lr"]) * top * self.ramp[t - 1]
            decay = group.get("weight_decay", 0) if group.get("decoupled_weight_decay", self._decays) else 0
            # The first step already takes the memory of corrected ones, though it corrects nothing.
            for x in group["params"] if weight > 0 or t == 1 and top > 0 else ():
                if x in merged:
                    m = merged[x]
                    if m not in found:
                        found[m] = m.errors_of_factors()
                    self._errors.append((x, found[m][x], weight))
                elif x in weights:
                    self._errors.append((x, self._error(x, weights[x], 1 - float(group["lr"]) * decay), weight))

    @staticmethod
    def _error(x: Tensor, quantizer: Quantizer, shrunk: float) -> Tensor:
        """x − Q(x) in float32, after the weight decay. Q is that of the whole weight where processes have parts of it."""
        v = whole(x).to(torch.float32) * shrunk
        return part(v - quantizer.quantized(v, training=True), x)

    @torch.no_grad()
    def _after(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        for x, e, weight in self._errors:
            if x.grad is None:  # the optimizer did not move it; a closure may have made the gradient within the step
                continue
            e = torch.where(e.isfinite().all(), e, 0.0)  # else it is not corrected in this step
            if x.dtype in (torch.float32, torch.float64):
                x.sub_(e.to(x.dtype), alpha=weight)
                continue
            state = optimizer.state[x]
            exact = x.to(torch.float32) - e * weight
            if "cage_rest" in state:
                exact += state["cage_rest"].to(torch.float32)
            x.copy_(exact)
            state["cage_rest"] = (exact - x.to(torch.float32)).to(x.dtype)
        self._errors.clear()


def learning_rates(optimizer: torch.optim.Optimizer, scheduler: Any, steps: int) -> list[list[float]]:
    """The learning rates of each step, by group of parameters."""

    def now() -> list[float]:
        return [float(group["lr"]) for group in optimizer.param_groups]

    if scheduler is None:
        if any("initial_lr" in group for group in optimizer.param_groups):
            raise ValueError("CAGE: the optimizer has a scheduler: want scheduler, or lambda_")
        return [now()] * steps
    needed = list(inspect.signature(scheduler.step).parameters.values())[:1]
    if needed and needed[0].default is inspect.Parameter.empty and needed[0].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
        # as ReduceLROnPlateau
        raise ValueError(f"CAGE: the rates of {type(scheduler).__name__} depend on a metric: want lambda_ in place of a strength")
    if isinstance(scheduler, torch.optim.lr_scheduler.LambdaLR):  # such as those of transformers
        factors = list(zip(scheduler.base_lrs, scheduler.lr_lambdas))
        return [[float(base * factor(t)) for base, factor in factors] for t in range(steps)]
    if getattr(scheduler, "_schedulers", [scheduler])[0].last_epoch > 0:  # that of a ChainedScheduler is its parts'
        raise ValueError("CAGE: the scheduler is not at its start: load its state afterwards, or set lambda_")
    state, rates = copy.deepcopy(scheduler.state_dict()), []
    settings = [copy.deepcopy({k: v for k, v in group.items() if k != "params"}) for group in optimizer.param_groups]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the optimizer did not step
        for _ in range(steps):
            rates.append(now())
            scheduler.step()
    scheduler.load_state_dict(state)
    for group, was in zip(optimizer.param_groups, settings):
        if torch.is_tensor(group["lr"]):
            was["lr"] = group["lr"].copy_(was["lr"])  # which a compiled step may hold
        group.update(was)
    return rates


def _unwrapped(optimizer: Any, scheduler: Any) -> tuple[Any, Any, int]:
    """An optimizer and a scheduler without the wrappers of accelerate, and how often the scheduler steps in a step."""
    stride = 1
    if hasattr(scheduler, "scheduler"):
        if getattr(scheduler, "step_with_optimizer", False) and not getattr(scheduler, "split_batches", True):
            from accelerate.state import AcceleratorState  # type: ignore[import-not-found,import-untyped,unused-ignore]

            stride = AcceleratorState().num_processes
        scheduler = scheduler.scheduler
    return getattr(optimizer, "optimizer", optimizer), scheduler, stride
