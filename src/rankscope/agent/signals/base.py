"""Definition of a step signal; every other file of this folder but the table defines one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch

__all__ = ["Signal", "Trust", "Watch", "after", "before"]

Trust = Literal["certain", "likely", "uncertain"]
"""How certain it is that one signal is one step: by definition, in scripts of the usual form, or in many scripts."""


class Watch(NamedTuple):
    """Callbacks that a signal reports to. None of them raises."""

    signal: Callable[[str], None]
    """Reports one event of the signal of that name."""
    stepped: Callable[[object], None]
    """Reports that an optimizer has returned from its outermost ``step``."""
    root_forward: Callable[[], None]
    """Reports that a model wrapped for data parallelism begins a forward with gradients, for a batch or a part of
    one."""
    expect: Callable[[str], None]
    """Reports that the signal of that name will come, so that less trusted signals can wait for it."""
    phase: Callable[[str], None]
    """Reports the phase of the step. ``forward``: a root model is about to begin its forward with gradients;
    ``backward`` and ``backward_ended``: begin and end of the outermost backward; ``evaluation``: a root model runs
    without gradients; ``forward_calls``: the forward that begins contains collectives of the wrapper (DDP, FSDP)."""
    fetched: Callable[[int], None]
    """Reports the duration of a ``DataLoader.__next__`` in nanoseconds."""
    between: Callable[[], None]
    """Reports that the script is probably between two steps."""
    when_believed: Callable[[str, Callable[[], None]], None]
    """Registers a function to be called once steps are counted by a signal that is trusted more than the one of that
    name."""


class Signal(NamedTuple):
    """One way to detect steps."""

    name: str
    """As in ``-S steps.source=NAME``, and the name of its file."""
    phrase: str
    """Completes the sentence "Steps are counted by ..."."""
    trust: Trust
    patience: bool
    """Whether it counts only if none of the more trusted signals was seen during some of its events, because it also
    occurs in jobs that have a better signal."""
    install: Callable[[Watch], None]
    """Install it. A patch calls the original first or last, and changes neither its result nor its errors."""


def after(owner: Any, name: str, call: Callable[[Any], None]) -> None:
    """Call ``call`` with the object after each normal return of a method; while torch.compile traces, only the method
    runs."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if not torch.compiler.is_compiling():
            call(self)
        return result

    setattr(owner, name, method)


def before(owner: Any, name: str, call: Callable[[Any], None]) -> None:
    """Call ``call`` with the object before each run of a method; while torch.compile traces, only the method runs."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            call(self)
        return original(self, *args, **kwargs)

    setattr(owner, name, method)
