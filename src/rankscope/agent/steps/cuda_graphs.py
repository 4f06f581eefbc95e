"""What a step signals while it is captured into a CUDA graph is counted whenever the graph is replayed.

A captured step trains nothing. Nor may a window open or close in a capture: waiting for the device is an error there
that ends the capture, and the script with it (CUDA Programming Guide, prohibited and unhandled operations).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["CapturedSignals"]


class CapturedSignals:
    """The signals captured in each graph, for as long as it lives."""

    def __init__(self) -> None:
        self._of: weakref.WeakKeyDictionary[Any, list[Callable[[], None]]] = weakref.WeakKeyDictionary()
        self._last: Callable[[], Any] | None = None

    def begin(self, graph: Any) -> None:
        """A capture into ``graph`` (``torch.cuda.CUDAGraph``) begins."""
        self._of.pop(graph, None)
        self._last = weakref.ref(graph)

    def emit(self, signal: Callable[[], None]) -> None:
        """Give a signal: now, or at every replay of the graph that is being captured."""
        if not self._capturing():
            signal()
        elif self._last is not None and (graph := self._last()) is not None:
            self._of.setdefault(graph, []).append(signal)

    def unless_capturing(self, call: Callable[[], None]) -> None:
        """Call, unless a graph is being captured."""
        if not self._capturing():
            call()

    def _capturing(self) -> bool:
        # Scripts without graphs are spared the question, which is a call to the device and stands in their traces.
        if self._last is None:
            return False
        return bool(torch.cuda.is_current_stream_capturing())

    def replayed(self, graph: Any) -> None:
        """``graph`` was launched."""
        for signal in self._of.get(graph, ()):
            self.emit(signal)
