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
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

__all__ = ["CompiledFrames", "after_backward", "in_backward"]

_COMPILED = ("__compiled_fn_", "__resume_at_")
"""Global names that TorchDynamo gives to what it has compiled, and that the code calling it refers to."""


def in_backward() -> bool:
    """Whether the calling thread works for a backward call. Tells nothing about other threads."""
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
        self._open: set[int] = set()

    def note(self) -> None:
        """A window closes here."""
        self._open |= _compiled()

    def ended(self) -> bool:
        """None of those noted is still running. The frame of one that has ended may be used again: then the answer is
        False for some time longer than need be."""
        if self._open:
            self._open &= _compiled()
        return not self._open


def _compiled() -> set[int]:
    """Identities of the frames of this thread that run code made by TorchDynamo."""
    found = set()
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to a frame
    while frame is not None:
        if any(name.startswith(_COMPILED) for name in frame.f_code.co_names):
            found.add(id(frame))
        frame = frame.f_back
    return found
