"""The correction in the Trainer of transformers, and in those of TRL, which are made from it."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]

from .correction import CAGE


class CAGECallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Adds the correction to the optimizer of a Trainer, whose number of steps and schedule it knows.

    `Trainer(model, args, ..., callbacks=[CAGECallback()])`, after quantize_. The arguments are those of CAGE.
    """

    def __init__(self, *, strength: float | None = None, silence: float = 0.9, lambda_: float | None = None) -> None:
        self.options: dict[str, Any] = {"strength": strength, "silence": silence, "lambda_": lambda_}
        self.correction: CAGE | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Adds the correction at the step at which the Trainer is: after a resume it goes on, and a second `train` begins anew."""
        if self.correction is not None:
            self.correction.remove()
        optimizer, scheduler = given["optimizer"], given["lr_scheduler"]
        self.correction = CAGE(optimizer, given["model"], state.max_steps, scheduler=scheduler, **self.options)
        for group in optimizer.param_groups:
            group["cage_step"] = state.global_step
