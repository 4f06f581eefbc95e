"""Asynchronous collectives that a window has recorded and that have not completed.

A communication backend that works on the CPU (gloo, MPI) ends the event of each call on a thread of its own when the
call completes. The event is stored in the profiler's memory, which is freed when the profiler ends; a call that
completes later would write into freed memory (observed: gloo's thread aborts in the allocator). So recording stops
first, which adds no further events, and the profiler ends when the recorded calls have completed.

NCCL, and every other backend that works by device streams, ends its events within the call that issues them.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["OutstandingCalls"]

_CALLS = (
    *("allreduce", "allreduce_coalesced", "reduce", "broadcast", "gather", "scatter", "barrier"),
    *("allgather", "_allgather_base", "allgather_coalesced", "allgather_into_tensor_coalesced"),
    *("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "alltoall", "alltoall_base"),
    *("send", "recv", "recv_anysource", "_end_coalescing"),
)
"""Methods of ProcessGroup that start a communication and return it as ``Work``."""
_BY_STREAMS = frozenset(("nccl", "xccl", "hccl", "fake"))
_TASKS = Path("/proc/self/task")
_ENDING_THREADS = frozenset(("pt_gloo_runloop",))
"""Names of the threads of gloo that complete calls (ProcessGroupGloo::runLoop; the kernel keeps 15 bytes)."""
_SETTLED_STEPS = 3
"""Number of steps after which a functional collective that is still registered counts as completed. The first use of
its result waits for it, normally within its step. One that is still registered after this many steps is never waited
for, and its process group has completed later calls since."""


class OutstandingCalls:
    """Calls begun by the recording thread. Calls begun by C++ (DDP) have completed when their backward returns, except
    for a few instructions. One whole step is left for these, and after it no thread that completes calls may be
    running, since the operating system may suspend a thread for longer than a step."""

    def __init__(self, made: Callable[[str, tuple[Any, ...]], None] | None = None) -> None:
        """``made`` is called before each call of the watched thread with its method and its arguments, of which the
        first is the process group."""
        self._calls: list[Any] = []
        self._originals: dict[str, tuple[Any, Any]] = {}
        """Per watched method: the original, and its replacement."""
        self._made = made

    def watch(self) -> None:
        """Track every call that this thread begins from now on."""
        if self._originals or not dist.is_available():
            return
        group: Any = dist.ProcessGroup
        thread = threading.get_ident()
        for name in _CALLS:
            original = vars(group).get(name)
            if original is None:
                continue
            noting = self._noting(name, getattr(group, name), thread)
            self._originals[name] = original, noting
            setattr(group, name, noting)

    def _noting(self, name: str, original: Any, thread: int) -> Any:
        # Calls on a device are not even queried, because a query during the capture of a CUDA graph is an error.
        by_streams = not _backends().isdisjoint(_BY_STREAMS)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._made is not None and self._originals and args and threading.get_ident() == thread:
                with contextlib.suppress(Exception):  # an error in our note must not affect the script's call
                    self._made(name, args)
            work = original(*args, **kwargs)
            if self._originals and threading.get_ident() == thread and hasattr(work, "is_completed"):
                devices = _devices((*args[1:], *kwargs.values()))
                if devices == {"cpu"} or not (devices or by_streams):
                    self._calls.append(work)
            return work

        return call

    def unwatch(self) -> None:
        """Stop tracking calls, because recording has stopped."""
        for name, (original, noting) in self._originals.items():
            if vars(dist.ProcessGroup).get(name) is noting:  # else the script has wrapped ours, and its wrapper stays
                setattr(dist.ProcessGroup, name, original)
        self._originals.clear()

    def possible(self) -> bool:
        """Return whether calls may complete on threads of a backend: a process group is not known to work by device
        streams."""
        return bool(self._calls) or not _backends() <= _BY_STREAMS

    def step(self) -> None:
        """At the end of a step: release the calls that have completed, and the tensors that they hold."""
        self._prune()

    def ended(self, steps: int) -> bool:
        """Return whether all calls have completed.

        Args:
            steps: number of steps since recording stopped.
        """
        self._prune()
        if self._calls or steps < 1 or _ending(_TASKS):
            return False
        return steps >= _SETTLED_STEPS or _functional() == 0

    def _prune(self) -> None:
        self._calls = [work for work in self._calls if not _completed(work)]


def _completed(work: Any) -> bool:
    try:
        return bool(work.is_completed())
    except Exception:  # a call that has failed has completed
        return True


def _backends() -> set[str]:
    """Return the names of the backends of all process groups; ``unknown`` if they cannot be read."""
    if not (dist.is_available() and dist.is_initialized()):
        return set()
    try:
        groups = dist.distributed_c10d._world.pg_map.values()  # noqa: SLF001 - no public name for all groups
        return {part.rpartition(":")[2] for kind, _ in groups for part in str(kind).lower().split(",")}
    except (AttributeError, TypeError, ValueError):
        return {"unknown"}


def _devices(values: Iterable[Any]) -> set[str]:
    """Return the device types of the tensors among ``values`` and in nested lists."""
    found = set()
    for value in values:
        if isinstance(value, torch.Tensor):
            found.add(value.device.type)
        elif isinstance(value, (list, tuple)):
            found |= _devices(value)
    return found


def _ending(tasks: Path) -> bool:
    """Return whether a thread that completes calls is running or runnable, by ``/proc/<pid>/task``; else each waits for
    a call."""
    with contextlib.suppress(OSError):
        for task in tasks.iterdir():
            with contextlib.suppress(OSError, IndexError):  # the thread has ended meanwhile
                name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
                if name in _ENDING_THREADS and rest.split()[0] == "R":
                    return True
    return False


def _functional() -> int:
    """Return the number of functional collectives that the script has not waited for."""
    with contextlib.suppress(Exception):
        from torch._C import _distributed_c10d as c10d

        return int(c10d._get_work_registry_size())  # noqa: SLF001 - no public name
    return 0
