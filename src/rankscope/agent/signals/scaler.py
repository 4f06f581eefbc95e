"""``GradScaler.update``: called once a step, however many optimizers it scales, and also if the step was skipped."""

from __future__ import annotations

from typing import Any

from rankscope.agent.process.import_hooks import after_import
from rankscope.agent.signals.base import Signal, Watch, after

__all__ = ["SIGNAL"]


def _install(watch: Watch) -> None:
    def patch() -> None:
        from torch.amp import grad_scaler

        after(grad_scaler.GradScaler, "update", updated)

    def updated(scaler: Any) -> None:
        if scaler.is_enabled():
            watch.signal("scaler")

    after_import("torch.amp.grad_scaler", patch)


SIGNAL = Signal("scaler", "GradScaler.update", "certain", patience=False, install=_install)
