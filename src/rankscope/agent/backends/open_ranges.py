"""Blocks of ``record_function`` that begin inside a window and end after it.

The event of a block is stored in the profiler's memory, which is freed when the profiler ends. A block that ends later,
under another profiler (of a later window or of the script), would write into freed memory; a segmentation fault was
observed. Blocks that are open when a window closes are therefore ended with it, and begun again without a profiler.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import Any

import torch
from torch.autograd.profiler import record_function

from rankscope import in_job

__all__ = ["OpenRanges"]

_autograd: Any = torch.autograd
"""Its functions that are used here are not operators, so a dispatch mode of the script does not see them (see
:class:`.base.StepMarks`)."""


class _Region:
    """A range of the script (:class:`rankscope.region`), which functions begin and end that are no operators."""

    __slots__ = ("_blocks", "name", "record")

    def __init__(self, name: str, blocks: list[Any]) -> None:
        self.name, self._blocks = name, blocks
        self.record = _autograd._record_function_with_args_enter(name)  # noqa: SLF001 - no public name

    def close(self) -> None:
        _autograd._record_function_with_args_exit(self.record)  # noqa: SLF001 - as above
        _forget(self, self._blocks)


def _forget(block: Any, blocks: list[Any]) -> None:
    # By identity: the class of a block is the user's to extend.
    for index in range(len(blocks) - 1, -1, -1):
        if blocks[index] is block:
            del blocks[index]
            break


class OpenRanges:
    """The open blocks of the recording thread, outermost first, and what begins regions of the script."""

    def __init__(self) -> None:
        self._open: list[Any] = []
        self._thread = 0
        self._originals: tuple[Any, Any] | None = None
        self._ours: tuple[Any, Any] = None, None

    def watch(self) -> None:
        """Track every block that the calling thread enters from now on."""
        if self._originals is not None:
            return
        kind: Any = record_function
        enter, leave = self._originals = kind.__enter__, kind.__exit__
        thread, blocks = threading.get_ident(), self._open
        self._thread = thread

        @functools.wraps(enter)
        def __enter__(this: Any) -> Any:  # noqa: N807 - the method's own name
            result = enter(this)
            if self._originals is not None and threading.get_ident() == thread:
                blocks.append(this)
            return result

        @functools.wraps(leave)
        def __exit__(this: Any, *exception: Any) -> Any:  # noqa: N807 - as above
            try:
                return leave(this, *exception)
            finally:
                _forget(this, blocks)

        self._ours = kind.__enter__, kind.__exit__ = __enter__, __exit__
        in_job.recorder = self

    def begin(self, name: str) -> _Region:
        """Begin a region of the script, in any thread; see :class:`rankscope.in_job.Recorder`."""
        region = _Region(name, self._open)
        if threading.get_ident() == self._thread:
            self._open.append(region)
        return region

    def end(self, *, ended: bool = True) -> None:
        """Stop tracking and, because the profiler is about to end, end the open blocks, innermost first.

        Args:
            ended: False to leave the blocks open.
        """
        if in_job.recorder is self:
            in_job.recorder = None
        if self._originals is not None:
            kind: Any = record_function
            # If the script has wrapped our methods, its wrappers stay.
            for name, ours, original in zip(("__enter__", "__exit__"), self._ours, self._originals, strict=True):
                if vars(kind).get(name) is ours:
                    setattr(kind, name, original)
            self._originals = None
        for block in reversed(self._open) if ended else ():
            with contextlib.suppress(Exception):
                _autograd._record_function_with_args_exit(block.record)  # noqa: SLF001 - no public name

    def renew(self) -> None:
        """Begin the blocks again after the profiler has ended, so that their ends are not recorded."""
        for block in self._open:
            with contextlib.suppress(Exception):
                block.record = _autograd._record_function_with_args_enter(block.name)  # noqa: SLF001 - as above
        self._open.clear()
