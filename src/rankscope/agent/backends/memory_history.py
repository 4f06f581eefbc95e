"""CUDA memory history of a window, and of an out-of-memory error, for https://pytorch.org/memory_viz.

Only Python stacks are recorded: with C++ frames, the dump of one window took 461 s instead of 4 s.
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
"""Number of allocator events kept, the newest ones; a training step makes some thousands."""
MAX_BYTES = 256 << 20
"""Largest size of a snapshot file, in bytes; while it would be exceeded, the older half of the events is dropped."""
_PROTOCOL = 4
"""The newest pickle protocol that the viewer reads."""
_cuda: Any = torch.cuda
_core: Any = torch._C  # noqa: SLF001 - what a CPU build lacks, its stubs lack too


class MemoryHistory:
    """PyTorch's memory history. A process has one only, and a history that the user records takes precedence.

    No method raises. :attr:`reason` states why there is no history.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self.reason: str | None = None
        self._max_entries = max_entries
        self._ours = False
        self._switching = False

    def install(self) -> None:
        """Wrap the function that switches the history, to notice when the script calls it. Our own calls pass through
        it too."""
        switch = _cuda.memory._record_memory_history  # noqa: SLF001 - no public name, here and below

        @functools.wraps(switch)
        def _record_memory_history(*args: Any, **kwargs: Any) -> Any:
            self._noticed()
            return switch(*args, **kwargs)

        _cuda.memory._record_memory_history = _record_memory_history  # noqa: SLF001

    def start(self) -> bool:
        """Start recording. Return False if CUDA is not in use, or if the script records already."""
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
        """Write the recorded history to a file that also holds ``about``. Return False, without a file, if none was
        written."""
        if not self._ours:
            return False
        try:
            _write(path, self._max_entries, about)
        except Exception as error:
            self.reason = f"the memory snapshot was not written: {error}"
            return False
        return True

    def stop(self) -> None:
        """Stop recording. Does nothing to a history that the script records."""
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
    """Write a snapshot to ``path`` at the first out-of-memory error of the allocator, once CUDA is in use.

    PyTorch cannot remove the observer again. Without a history the snapshot still shows what is allocated, but not
    where it was allocated.
    """
    reported = False

    @guarded
    def observe(device: int, requested: int, _allocated: int, free: int) -> None:
        nonlocal reported
        if reported:
            return
        reported = True
        _write(path, MAX_ENTRIES, {**about, "device": device, "requested_bytes": requested, "free_bytes": free})

    def attach() -> None:
        # An allocator without observers (cudaMallocAsync) raises here, which would otherwise end the job.
        with contextlib.suppress(Exception):
            _core._cuda_attach_out_of_memory_observer(observe)  # noqa: SLF001

    _cuda._lazy_call(attach)  # noqa: SLF001 - attaching at once would initialise CUDA


def _write(path: Path, max_entries: int, about: dict[str, str | int | None]) -> None:
    """Write the snapshot, with our metadata under the key ``rankscope``, which the viewer ignores."""
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
    """A file that accepts at most ``limit`` bytes."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream = stream
        self._left = limit

    def write(self, block: bytes) -> int:
        self._left -= len(block)
        if self._left < 0:
            raise _TooLargeError(f"a memory snapshot may have {MAX_BYTES >> 20} MiB")
        return self._stream.write(block)
