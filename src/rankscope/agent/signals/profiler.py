"""``step()`` of the script's own torch.profiler."""

from __future__ import annotations

from rankscope.agent.process.import_hooks import after_import
from rankscope.agent.signals.base import Signal, Watch, after

__all__ = ["SIGNAL"]


def _install(watch: Watch) -> None:
    def patch() -> None:
        from torch.profiler import profiler

        after(profiler.profile, "step", lambda _profile: watch.signal("profiler"))

    after_import("torch.profiler.profiler", patch)


SIGNAL = Signal("profiler", "step() of the script's own torch.profiler", "likely", patience=False, install=_install)
