"""Device memory of a window, from the snapshot of PyTorch's allocator.

The format is that of ``torch.cuda.memory._snapshot`` (its docstring, and torch/csrc/cuda/memory_snapshot.cpp): the
segments and blocks at the end, and the events of the allocator until then. As in PyTorch's own viewer, earlier states
are computed backwards from the end. *Allocated* counts the requested bytes, from the allocation until the memory can be
reused. PyTorch's counters, which the trace contains, also include rounding (to 512 bytes), and exclude memory that
another stream still uses.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankscope.errors import TraceError
from rankscope.records.rows import MemoryFrame, MemoryRow
from rankscope.trace.interval_peaks import peaks

__all__ = ["BEFORE", "NO_FRAME", "Bounds", "load_snapshot", "memory_row"]

I64 = NDArray[np.int64]
Bounds = Mapping[tuple[int, int | None, int | None], tuple[I64, I64]]
"""Attempt, window and rank -> begin and end of each step, ns of CLOCK_REALTIME."""

MOST_FRAMES = 10
BEFORE = "(before the recording)"
"""Takes the place of the line for allocations older than the history."""
NO_FRAME = "(no Python frame)"
"""Takes the place of the line for allocations without a Python frame, as in the backward, which runs in a thread of
autograd."""
_LIBRARY = ("/torch/", "/rankscope/agent/")
"""A frame in one of these folders is attributed to the line of the script that called it."""
_HOLDERS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("optimizer states", "/torch/optim/", re.compile("")),
    ("logits and loss", "/torch/", re.compile(r"cross_entropy|log_softmax|nll_loss|_loss$")),
)
"""What is held -> folder and function of a frame within PyTorch."""
_TAKEN = ("segment_alloc", "segment_map")
_GIVEN = ("segment_free", "segment_unmap")


def load_snapshot(stream: IO[bytes]) -> dict[str, Any]:
    """Read a snapshot without executing it: a pickle can call functions, and this reader accepts containers only.

    Memory and time are not limited here, but in :mod:`rankscope.analysis.memory.process`.

    Raises:
        TraceError: not a snapshot, or one that names a class or function.
    """
    try:
        snapshot = _Containers(stream).load()
        snapshot["segments"], snapshot["device_traces"]
    except (TraceError, MemoryError):
        raise
    except Exception as error:  # a corrupt pickle can cause any error
        raise TraceError(f"not a memory snapshot of PyTorch: {error!r}") from error
    return dict(snapshot)


class _Containers(pickle.Unpickler):
    """Unpickles dicts, lists, tuples, numbers and text, and nothing that is looked up by name."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(stream)

    def find_class(self, module: str, name: str) -> Any:
        raise TraceError(f"refused: it would run {module}.{name}, and a memory snapshot needs no code")


def memory_row(snapshot: dict[str, Any], file: str, steps: Bounds) -> MemoryRow:
    """Return the numbers of one snapshot, for the device with the highest peak.

    Args:
        snapshot: as returned by :func:`load_snapshot`, with the agent's own entry.
        file: its name.
        steps: begin and end of each step of each rank, where known.

    Raises:
        TraceError: the snapshot was not written by the agent, so that its rank is unknown, or has unexpected content.
    """
    about = snapshot.get("rankscope")
    if not isinstance(about, dict) or not isinstance(about.get("rank"), int):
        raise TraceError("it does not say which rank it is of")
    try:
        devices = [_Device(snapshot, index) for index in range(len(snapshot["device_traces"]))]
        device = max(devices, key=lambda d: d.peak)
        taken, given = device.times(_TAKEN), device.times(_GIVEN)
        attempt, window, rank = about.get("attempt") or 0, about.get("window"), about["rank"]
        bounds = steps.get((attempt, window, rank))
        return MemoryRow(
            attempt=attempt,
            window=window,
            rank=rank,
            file=file,
            peak_allocated_bytes=device.peak,
            peak_reserved_bytes=int(device.reserved.max()),
            end_allocated_bytes=int(device.allocated[-1]),
            end_reserved_bytes=int(device.reserved[-1]),
            segment_allocs=len(taken),
            segment_frees=len(given),
            allocs_per_step=_per_step(taken, bounds),
            frees_per_step=_per_step(given, bounds),
            peak_per_step=peaks(device.times(), device.allocated, *bounds) if bounds else [],
            complete=bool(about.get("complete", False)),
            requested_bytes=about.get("requested_bytes"),
            top=_top(device),
        )
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise TraceError(f"not the format of a memory snapshot: {error!r}") from error


class _Device:
    """One device: its blocks at the end, its events, and the bytes allocated and reserved after each event.

    Element 0 of both is the state before the first event.
    """

    def __init__(self, snapshot: dict[str, Any], index: int) -> None:
        segments = [s for s in snapshot["segments"] if s["device"] == index]
        self.events: list[dict[str, Any]] = snapshot["device_traces"][index]
        self.blocks = [b for s in segments for b in _blocks(s) if b["state"].startswith("active")]
        sizes = np.array([e["size"] for e in self.events], np.int64)
        self._actions = np.array([e["action"] for e in self.events], np.str_)
        change = np.where(self._is("alloc"), sizes, 0) - np.where(self._is("free_completed"), sizes, 0)
        held = np.where(self._is(*_TAKEN), sizes, 0) - np.where(self._is(*_GIVEN), sizes, 0)
        self.allocated = _backwards(change, sum(_size(b) for b in self.blocks))
        self.reserved = _backwards(held, sum(s["total_size"] for s in segments))

    @property
    def peak(self) -> int:
        return int(self.allocated.max())

    def times(self, actions: tuple[str, ...] = ()) -> I64:
        """Return the times of these events, or of all, ns."""
        chosen = np.flatnonzero(self._is(*actions)) if actions else np.arange(len(self.events))
        return np.array([self.events[i]["time_us"] for i in chosen.tolist()], np.int64) * 1000

    def _is(self, *actions: str) -> NDArray[np.bool_]:
        return np.isin(self._actions, actions)


def _backwards(change: I64, end: int) -> I64:
    total = np.concatenate([[0], np.cumsum(change)])
    return np.asarray(total + (end - total[-1]), np.int64)


def _blocks(segment: dict[str, Any]) -> Iterable[dict[str, Any]]:
    address = segment["address"]
    for block in segment["blocks"]:
        yield {**block, "addr": address}  # before torch 2.1 a block had no address
        address += block["size"]


def _size(block: dict[str, Any]) -> int:
    return int(block.get("requested_size", block["size"]))


def _per_step(times: I64, bounds: tuple[I64, I64] | None) -> list[int]:
    if bounds is None:
        return []
    start, end = bounds
    return [int(((times >= a) & (times < b)).sum()) for a, b in zip(start, end, strict=True)]


def _top(device: _Device) -> list[MemoryFrame]:
    """Return the lines whose allocations were alive at the (first) peak."""
    peak = int(np.argmax(device.allocated))
    alive: dict[int, dict[str, Any]] = {}
    older: list[tuple[_Holder, int]] = []
    ever: set[int] = set()
    at_peak: list[tuple[_Holder, int]] | None = None
    for index, event in enumerate(device.events):
        if index == peak:
            at_peak = [(_holder(e.get("frames")), e["size"]) for e in alive.values()]
        if event["action"] == "alloc":
            alive[event["addr"]] = event
            ever.add(event["addr"])
        elif event["action"] == "free_completed" and alive.pop(event["addr"], None) is None:
            ever.add(event["addr"])
            if index >= peak:
                older.append(((BEFORE, ""), event["size"]))
    if at_peak is None:
        at_peak = [(_holder(e.get("frames")), e["size"]) for e in alive.values()]
    lasting = [b for b in device.blocks if b["addr"] not in ever]
    older += [(_holder(b.get("frames"), BEFORE), _size(b)) for b in lasting]
    sums: dict[_Holder, list[int]] = {}
    for holder, size in at_peak + older:
        entry = sums.setdefault(holder, [0, 0])
        entry[0] += size
        entry[1] += 1
    rows = [MemoryFrame(frame=f, bytes=size, count=count, what=what) for (f, what), (size, count) in sums.items()]
    return sorted(rows, key=lambda r: -r.bytes)[:MOST_FRAMES]


_Holder: TypeAlias = tuple[str, str]
"""A line, and what it holds."""


def _holder(frames: Sequence[dict[str, Any]] | None, unknown: str = NO_FRAME) -> _Holder:
    """Return the innermost line outside the library, and what it holds; frames are given innermost first."""
    if not frames:
        return unknown, ""
    held = (
        what
        for what, folder, function in _HOLDERS
        if any(folder in f["filename"] and function.search(f["name"]) for f in frames)
    )
    return _line(frames), next(held, "")


def _line(frames: Sequence[dict[str, Any]]) -> str:
    frame = next((f for f in frames if not any(part in f["filename"] for part in _LIBRARY)), frames[0])
    return f"{'/'.join(frame['filename'].split('/')[-2:])}:{frame['line']} {frame['name']}"
