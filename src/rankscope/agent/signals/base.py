"""What a step signal is: one file of this folder gives one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch

__all__ = ["Signal", "Trust", "Watch", "after", "before"]

Trust = Literal["certain", "likely", "uncertain"]
"""That one signal is one step: by definition, in the usual way to write a script, or in many of them."""


class Watch(NamedTuple):
    """What a signal reports to. Nothing here raises."""

    signal: Callable[[str], None]
    """One event of the signal of that name."""
    stepped: Callable[[object], None]
    """An optimizer has returned from its outermost ``step``."""
    root_forward: Callable[[], None]
    """A model that is wrapped for data parallelism begins a forward with gradients: a new batch, or a part of one."""
    expect: Callable[[str], None]
    """The signal of that name will come: what is trusted less can wait for it."""
    phase: Callable[[str], None]
    """``forward``: a root model is about to begin its forward with gradients; ``backward``, ``backward_ended``: of the
    outermost backward; ``evaluation``: a root model runs without gradients; ``forward_calls``: the forward that begins
    communicates by its nature."""
    fetched: Callable[[int], None]
    """Nanoseconds that a ``DataLoader.__next__`` has taken."""
    between: Callable[[], None]
    """The script is likely to be between two steps."""
    when_believed: Callable[[str, Callable[[], None]], None]
    """Call back once steps are counted by a signal that is trusted more than the one of that name."""


class Signal(NamedTuple):
    """One way to see steps."""

    name: str
    """As in ``-S steps.source=NAME``, and the name of its file."""
    phrase: str
    """Completes the sentence "Steps are counted by ..."."""
    trust: Trust
    patience: bool
    """Whether it counts only when nothing better was seen for some of its events: it comes in jobs, too, that have a
    better one."""
    install: Callable[[Watch], None]
    """Put it in place. A patch calls the original first or last, and changes neither result nor error."""


def after(owner: Any, name: str, call: Callable[[Any], None]) -> None:
    """Call back, with the object, after a method has returned normally; under torch.compile's tracing the method alone
    remains."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if not torch.compiler.is_compiling():
            call(self)
        return result

    setattr(owner, name, method)


def before(owner: Any, name: str, call: Callable[[Any], None]) -> None:
    """Call, with the object, before a method runs; under torch.compile's tracing the method alone remains."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            call(self)
        return original(self, *args, **kwargs)

    setattr(owner, name, method)
