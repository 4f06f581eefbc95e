"""Where the state of a profiler may be changed.

A profiler is begun and ended by changing what the calling thread keeps for itself (thread-local state). The autograd
engine lends a thread the state of the backward call that it works for and takes it back when that work is done. A
profiler begun inside a backward is therefore lost when the backward returns, and one that is ended there is not the one
that was begun. So windows open and close outside of backward only. A step boundary that lies inside one, as where
optimizers are stepped by the hooks of gradients, is counted there and acted upon at the next point outside.
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
"""Global names that TorchDynamo gives to what it has compiled, and that the code calling it refers to."""


def in_backward() -> bool:
    """Whether the calling thread works for a backward call. Says nothing about other threads."""
    return bool(torch._C._current_graph_task_id() != -1)  # noqa: SLF001 - no public name


def after_backward(call: Callable[[], None]) -> None:
    """Call back, from now on, whenever ``torch.autograd.backward`` (and with it ``Tensor.backward``) has returned."""
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        if not torch.compiler.is_compiling():
            call()

    torch.autograd.backward = backward


class CompiledFrames:
    """Regions of ``torch.compile`` that were open when a window closed.

    TorchDynamo reports each region to the profiler from C. Its event is kept where the profiler of that window had it,
    and the memory is freed when that profiler ends. A region that ends while no profiler is on touches nothing; one
    that ends under a later profiler would write into freed memory. So no window opens before all have ended.
    """

    def __init__(self) -> None:
        self._open: list[weakref.ref[_Mark]] = []

    def note(self) -> None:
        """A window closes here."""
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to a frame
        while frame is not None:
            # Another trace function is set only where code is traced, which TorchDynamo does not compile.
            if frame.f_trace is None and any(name.startswith(_COMPILED) for name in frame.f_code.co_names):
                mark = _Mark()
                frame.f_trace = mark
                self._open.append(weakref.ref(mark))
            frame = frame.f_back

    def ended(self) -> bool:
        """Whether all that were noted have ended."""
        if self._open:
            self._open = [mark for mark in self._open if mark() is not None]
        return not self._open


class _Mark:
    """Lives as long as the call of a function in which it was left: its frame is the only one to hold it.

    A frame cannot be referred to weakly, and to hold it would hold the tensors of its local variables. Python calls
    ``f_trace`` only where the thread is traced; this one would answer that it wants no events.
    """

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """See sys.settrace."""
