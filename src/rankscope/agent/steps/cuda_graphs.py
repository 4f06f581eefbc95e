"""Step signals that are captured into a CUDA graph count at each replay of the graph.

A captured step does not train. A window must not open or close during a capture either, because waiting for the device
is then an error that ends the capture, and with it the script (CUDA Programming Guide, prohibited and unhandled
operations).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["CapturedSignals"]


class CapturedSignals:
    """The signals captured in each graph, for as long as the graph exists."""

    def __init__(self) -> None:
        self._of: weakref.WeakKeyDictionary[Any, list[Callable[[], None]]] = weakref.WeakKeyDictionary()
        self._last: Callable[[], Any] | None = None

    def begin(self, graph: Any) -> None:
        """Note that a capture into ``graph`` (``torch.cuda.CUDAGraph``) begins."""
        self._of.pop(graph, None)
        self._last = weakref.ref(graph)

    def emit(self, signal: Callable[[], None]) -> None:
        """Emit a signal: now, or at every replay of the graph that is being captured."""
        if not self._capturing():
            signal()
        elif self._last is not None and (graph := self._last()) is not None:
            self._of.setdefault(graph, []).append(signal)

    def unless_capturing(self, call: Callable[[], None]) -> None:
        """Call ``call``, unless a graph is being captured."""
        if not self._capturing():
            call()

    def _capturing(self) -> bool:
        # Without graphs the check is skipped, since it is a call to the device that would appear in the script's
        # traces.
        if self._last is None:
            return False
        return bool(torch.cuda.is_current_stream_capturing())

    def replayed(self, graph: Any) -> None:
        """Emit the signals of ``graph``, which was launched."""
        for signal in self._of.get(graph, ()):
            self.emit(signal)
