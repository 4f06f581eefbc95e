"""Install the step signals, each isolated: an error of rankscope disables only that signal."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch

from rankscope.agent.process.guard import guarded, keep_message
from rankscope.agent.signals.base import Signal, Watch, after
from rankscope.agent.signals.table import OURS
from rankscope.agent.steps.counter import StepCounter
from rankscope.agent.steps.cuda_graphs import CapturedSignals

__all__ = ["install_detectors"]


def install_detectors(
    counter: StepCounter,
    fetched: Callable[[int], None],
    graph_begins: Callable[[], None],
    between: Callable[[], None] = lambda: None,
    phase: Callable[[str], None] = lambda _name: None,
    signals: tuple[Signal, ...] = OURS,
    graph_ends: Callable[[], None] = lambda: None,
) -> Callable[[str], None]:
    """Install the signals. Each patch calls the original first or last and changes neither its result nor its errors.

    Args:
        counter: receives the signals.
        fetched: receives the nanoseconds spent in each ``DataLoader.__next__``.
        graph_begins: called before a CUDA graph is captured.
        between: called where the script is probably between steps: before an optimizer steps, before an item is
            fetched, and before the outermost forward.
        phase: receives the phases of a step, see :class:`~rankscope.agent.signals.base.Watch`.
        signals: the signals to install.
        graph_ends: called after each capture of a CUDA graph, whether it succeeded or not.

    Returns:
        The function by which the script itself gives a signal. It raises nothing.
    """
    captured = CapturedSignals()

    @guarded
    def signal(kind: str) -> None:
        captured.emit(functools.partial(counter.signal, kind))

    @guarded
    def stepped(optimizer: object) -> None:
        reference = weakref.ref(optimizer)  # so that a graph does not keep an optimizer alive

        def count() -> None:
            if (optimizer := reference()) is not None:
                counter.optimizer_stepped(optimizer)

        captured.emit(count)

    @guarded
    def root_forward() -> None:
        captured.emit(counter.root_forward)

    @guarded
    def capture_begins(graph: object) -> None:
        captured.begin(graph)
        graph_begins()

    watch = Watch(
        signal=signal,
        stepped=stepped,
        root_forward=root_forward,
        expect=guarded(counter.expect),
        phase=guarded(phase),
        fetched=guarded(fetched),
        # Not during the capture of a CUDA graph, in which waiting for the device is not allowed.
        between=guarded(functools.partial(captured.unless_capturing, between)),
        when_believed=guarded(counter.when_believed),
    )
    for found in signals:
        _install(found, watch)
    graph_calls = capture_begins, guarded(graph_ends), guarded(captured.replayed)
    _watch_graphs(torch.cuda.CUDAGraph, *graph_calls)
    accelerator: Any = getattr(torch, "accelerator", None)
    if (torch.version.cuda or torch.version.hip) and hasattr(accelerator, "Graph"):  # another name for the same
        _watch_graphs(accelerator.Graph, *graph_calls)
    return signal


def _install(signal: Signal, watch: Watch) -> None:
    try:
        signal.install(watch)
    except Exception as error:  # a version of torch that lacks it: the other signals count
        keep_message(f"steps cannot be counted by {signal.phrase} here: {error!r}")


def _watch_graphs(
    graph: Any, begins: Callable[[Any], None], ends: Callable[[], None], replayed: Callable[[Any], None]
) -> None:
    begin, end = graph.capture_begin, graph.capture_end

    @functools.wraps(begin)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> None:
        begins(self)
        try:
            begin(self, *args, **kwargs)
        except BaseException:
            ends()
            raise

    @functools.wraps(end)
    def capture_end(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            end(self, *args, **kwargs)
        finally:
            ends()

    graph.capture_begin, graph.capture_end = capture_begin, capture_end
    after(graph, "replay", replayed)
