"""CUDA memory history of a window, and of the moment of an out-of-memory error, for https://pytorch.org/memory_viz.

Stacks are Python's only: with C++ frames the dump of one window took 461 s where this takes 4 s.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
from pathlib import Path
from typing import IO, Any

import torch

from rankscope.agent.process.guard import guarded

__all__ = ["MAX_ENTRIES", "MemoryHistory", "watch_out_of_memory"]

MAX_ENTRIES = 100_000
"""Allocator events kept, the newest; a training step makes some thousands."""
MAX_BYTES = 256 << 20
"""Size of a snapshot's file; beyond it the older half of the events is dropped, again and again."""
_PROTOCOL = 4
"""The newest that the viewer reads."""
_cuda: Any = torch.cuda
_core: Any = torch._C  # noqa: SLF001 - what a CPU build lacks, its stubs lack too


class MemoryHistory:
    """PyTorch's record of what the allocator did. There is one in a process, and the user's own comes first.

    Nothing here raises. :attr:`reason` says in words why there is no history.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self.reason: str | None = None
        self._max_entries = max_entries
        self._ours = False
        self._switching = False

    def install(self) -> None:
        """Learn of every switch of the history; ours passes here, too."""
        switch = _cuda.memory._record_memory_history  # noqa: SLF001 - no public name, here and below

        @functools.wraps(switch)
        def _record_memory_history(*args: Any, **kwargs: Any) -> Any:
            self._noticed()
            return switch(*args, **kwargs)

        _cuda.memory._record_memory_history = _record_memory_history  # noqa: SLF001

    def start(self) -> bool:
        """Record from now on. False where CUDA is not in use, or where the user records."""
        if not _cuda.is_initialized():
            self.reason = "CUDA is not in use, so there is no CUDA memory to record"
            return False
        try:
            if _core._cuda_isHistoryEnabled():  # noqa: SLF001
                self.reason = "the script records CUDA memory itself"
                return False
            self._switch("all", context="alloc", stacks="python", max_entries=self._max_entries)
        except Exception as error:
            self.reason = f"CUDA memory cannot be recorded: {error}"
            return False
        self._ours, self.reason = True, None
        return True

    def dump(self, path: Path, **about: str | int | None) -> bool:
        """Write what was recorded; ``about`` goes with it. False, and no file, where there is nothing of ours."""
        if not self._ours:
            return False
        try:
            _write(path, self._max_entries, about)
        except Exception as error:
            self.reason = f"the memory snapshot was not written: {error}"
            return False
        return True

    def stop(self) -> None:
        """Record no more. Does nothing to a history that is not ours."""
        if not self._ours:
            return
        self._ours = False
        try:
            self._switch(None)
        except Exception as error:
            self.reason = f"the recording of CUDA memory did not stop: {error}"

    def _switch(self, enabled: str | None, **options: Any) -> None:
        self._switching = True
        try:
            _cuda.memory._record_memory_history(enabled, **options)  # noqa: SLF001
        finally:
            self._switching = False

    def _noticed(self) -> None:
        if self._ours and not self._switching:
            self._ours = False
            self.reason = "the script switched the history of CUDA memory itself; it is the script's own now"


def watch_out_of_memory(path: Path, **about: str | int | None) -> None:
    """Leave one snapshot at ``path`` when the allocator first gives up, from the moment CUDA is in use.

    PyTorch has no way to take the observer off again. Without a history the snapshot still holds what is allocated,
    but not by whom.
    """
    told = False

    @guarded
    def observe(device: int, requested: int, _allocated: int, free: int) -> None:
        nonlocal told
        if told:
            return
        told = True
        _write(path, MAX_ENTRIES, {**about, "device": device, "requested_bytes": requested, "free_bytes": free})

    def attach() -> None:
        # an allocator that takes no observers (cudaMallocAsync) raises, and here that would end the job
        with contextlib.suppress(Exception):
            _core._cuda_attach_out_of_memory_observer(observe)  # noqa: SLF001

    _cuda._lazy_call(attach)  # noqa: SLF001 - attaching at once would initialise CUDA


def _write(path: Path, max_entries: int, about: dict[str, str | int | None]) -> None:
    """The snapshot, with what we know of it under ``rankscope``, which the viewer passes over."""
    snapshot = _cuda.memory._snapshot()  # noqa: SLF001
    traces = snapshot["device_traces"]
    whole = all(len(trace) < max_entries for trace in traces)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        while True:
            snapshot["rankscope"] = {**about, "complete": whole}
            with temporary.open("wb") as stream:
                try:
                    pickle.dump(snapshot, _Bounded(stream, MAX_BYTES), _PROTOCOL)
                    break
                except _TooLargeError:
                    if not any(traces):
                        raise
            whole = False
            snapshot["device_traces"] = traces = [trace[(len(trace) + 1) // 2 :] for trace in traces]
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class _TooLargeError(OSError):
    """The file would exceed its limit."""


class _Bounded:
    """A file that takes so many bytes and no more."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream = stream
        self._left = limit

    def write(self, block: bytes) -> int:
        self._left -= len(block)
        if self._left < 0:
            raise _TooLargeError(f"a memory snapshot may have {MAX_BYTES >> 20} MiB")
        return self._stream.write(block)
