"""The outermost ``Optimizer.step`` of ``torch.optim``. Which of several optimizers counts is decided by the counter."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

from rankscope.agent.signals.base import Signal, Watch, after

__all__ = ["SIGNAL"]


def _install(watch: Watch) -> None:
    """Wrap the hook that ``Optimizer`` puts around every ``step``. The wrapper is outside of it, so that the profiler's
    range of the optimizer is closed when a window starts or stops (inside a post hook the range would be cut)."""
    original = torch.optim.Optimizer.profile_hook_step
    inside = threading.local()  # a step of an optimizer in another thread does not belong to this thread's step

    def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
        return watched(original(function))

    def watched(hooked: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(hooked)
        def step(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return hooked(*args, **kwargs)
            depth = getattr(inside, "depth", 0)
            if depth == 0:
                watch.between()
            inside.depth = depth + 1
            try:
                result = hooked(*args, **kwargs)
            finally:
                inside.depth = depth
            if depth == 0 and args:
                watch.stepped(args[0])
            return result

        return step

    # A class is wrapped when its first optimizer is created. Classes that have optimizers already (rankscope.attach)
    # are wrapped here:
    for kind in _subclasses(torch.optim.Optimizer):
        if getattr(kind.__dict__.get("step"), "hooked", None):
            kind.step = watched(kind.__dict__["step"])
            watch.expect("optimizer")
    torch.optim.Optimizer.profile_hook_step = staticmethod(profile_hook_step)  # type: ignore[assignment]
    after(torch.optim.Optimizer, "__init__", lambda _optimizer: watch.expect("optimizer"))


def _subclasses(kind: Any) -> list[Any]:
    return [kind, *(deeper for below in kind.__subclasses__() for deeper in _subclasses(below))]


SIGNAL = Signal("optimizer", "Optimizer.step", "certain", patience=False, install=_install)
