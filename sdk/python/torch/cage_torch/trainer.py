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
        """Adds the correction. After a resume the optimizer knows the step, and the schedule its rates at all steps."""
        self.correction = CAGE(given["optimizer"], given["model"], state.max_steps, scheduler=given["lr_scheduler"], **self.options)
