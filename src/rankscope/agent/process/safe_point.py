"""Points in the program at which a profiler may be started and stopped.

Starting and stopping a profiler changes thread-local state of the calling thread. While a thread works for a backward
call, the autograd engine replaces this state by that of the caller of the backward, and restores it afterwards. A
profiler that is started inside a backward is therefore lost when the backward returns, and stopping there stops another
one than was started. So windows open and close outside of backward only. A step boundary inside a backward, as with
optimizers that are stepped by gradient hooks, is counted there and acted on at the next point outside.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

__all__ = ["CompiledFrames", "after_backward", "in_backward"]

_COMPILED = ("__compiled_fn_", "__resume_at_")
"""Prefixes of the global names that TorchDynamo gives to compiled code, and that the calling code refers to."""


def in_backward() -> bool:
    """Return whether the calling thread works for a backward call. It does not cover other threads."""
    return bool(torch._C._current_graph_task_id() != -1)  # noqa: SLF001 - no public name


def after_backward(call: Callable[[], None]) -> None:
    """Call ``call`` whenever ``torch.autograd.backward`` (used by ``Tensor.backward`` too) has returned, from now
    on."""
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        if not torch.compiler.is_compiling():
            call()

    torch.autograd.backward = backward


class CompiledFrames:
    """Regions of ``torch.compile`` that were open when a window closed.

    TorchDynamo reports each region to the profiler from C. Its event is stored in the memory of that window's profiler,
    which is freed when that profiler ends. A region that ends while no profiler is active writes nothing; one that ends
    under a later profiler would write into freed memory. So no window opens before all these regions have ended.
    """

    def __init__(self) -> None:
        self._open: list[weakref.ref[_Mark]] = []

    def note(self) -> None:
        """Track the compiled regions that are open now, when a window closes."""
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to a frame
        while frame is not None:
            # A frame with another trace function is being traced, and TorchDynamo does not compile such code.
            if frame.f_trace is None and any(name.startswith(_COMPILED) for name in frame.f_code.co_names):
                mark = _Mark()
                frame.f_trace = mark
                self._open.append(weakref.ref(mark))
            frame = frame.f_back

    def ended(self) -> bool:
        """Return whether all tracked regions have ended."""
        if self._open:
            self._open = [mark for mark in self._open if mark() is not None]
        return not self._open


class _Mark:
    """Lives as long as the call of the function that it was stored in: only the frame of that call refers to it.

    Frames do not support weak references, and a strong reference would keep the tensors of the local variables alive.
    Python calls ``f_trace`` only in threads that are traced; this one answers that it wants no events.
    """

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """See sys.settrace."""
