"""Blocks of ``record_function`` that begin inside a window and end after it.

The event of a block lies in the profiler's memory, which is freed when the profiler ends; a block that then ends under
another profiler, a later window or the script's own, writes into what is freed (seen: a segmentation fault). So blocks
that are open when a window closes are ended with it and begun again without a profiler.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import Any

import torch
from torch.autograd.profiler import record_function

__all__ = ["OpenRanges"]

_ops: Any = torch.ops.profiler


class OpenRanges:
    """The open blocks of the thread that records, outermost first."""

    def __init__(self) -> None:
        self._open: list[record_function] = []
        self._originals: tuple[Any, Any] | None = None

    def watch(self) -> None:
        """Note every block that the calling thread enters from now on."""
        if self._originals is not None:
            return
        kind: Any = record_function
        enter, leave = self._originals = kind.__enter__, kind.__exit__
        thread, blocks = threading.get_ident(), self._open

        @functools.wraps(enter)
        def __enter__(this: Any) -> Any:  # noqa: N807 - the method's own name
            result = enter(this)
            if threading.get_ident() == thread:
                blocks.append(this)
            return result

        @functools.wraps(leave)
        def __exit__(this: Any, *exception: Any) -> Any:  # noqa: N807 - as above
            try:
                return leave(this, *exception)
            finally:
                # By identity: the class is the user's to extend.
                for index in range(len(blocks) - 1, -1, -1):
                    if blocks[index] is this:
                        del blocks[index]
                        break

        kind.__enter__, kind.__exit__ = __enter__, __exit__

    def end(self, *, ended: bool = True) -> None:
        """Note no more and, as the profiler is about to end, end what is open, innermost first.

        Args:
            ended: False to end nothing.
        """
        if self._originals is not None:
            kind: Any = record_function
            kind.__enter__, kind.__exit__ = self._originals
            self._originals = None
        for block in reversed(self._open) if ended else ():
            with contextlib.suppress(Exception), torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001 - as upstream
                _ops._record_function_exit._RecordFunction(block.record)  # noqa: SLF001

    def renew(self) -> None:
        """The profiler has ended: what the blocks will end is not recorded."""
        for block in self._open:
            with contextlib.suppress(Exception):
                block.record = _ops._record_function_enter_new(block.name, block.args)  # noqa: SLF001
        self._open.clear()
