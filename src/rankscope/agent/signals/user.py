"""``rankscope.step()``, called by the script."""

from __future__ import annotations

from rankscope.agent.signals.base import Signal

__all__ = ["SIGNAL"]

SIGNAL = Signal("user", "rankscope.step()", "certain", patience=False, install=lambda _watch: None)
