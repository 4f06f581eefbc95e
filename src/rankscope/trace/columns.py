"""The pivot of the product: one rank's trace as typed columns. Everything before writes it, everything after reads it.

Times are int64 nanoseconds of CLOCK_REALTIME of the rank's host (``baseTimeNanoseconds`` is already added). A file
without a base keeps its own zero. All event columns have the same length N and the order of ``start``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "EVENT_DTYPES",
    "REDACTED",
    "Category",
    "Collectives",
    "DeviceMemory",
    "Events",
    "Group",
    "Piece",
    "PythonCalls",
    "RankTrace",
    "Steps",
    "TraceMeta",
]

REDACTED = "rankscope_redacted"
"""Key of a trace that is a redacted copy: what was kept, and what had been repaired in the original."""
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
F64 = NDArray[np.float64]


class Category(IntEnum):
    """Kineto's event classes, old names included (``Operator``, ``Runtime``, ``Kernel`` of 2021). Stored in files:
    never renumber."""

    OTHER = 0
    CPU_OP = 1
    USER_ANNOTATION = 2
    CUDA_RUNTIME = 3
    CUDA_DRIVER = 4
    KERNEL = 5
    GPU_MEMCPY = 6
    GPU_MEMSET = 7
    GPU_USER_ANNOTATION = 8
    CUDA_SYNC = 9
    OVERHEAD = 10
    PYTHON_FUNCTION = 11


@dataclass(slots=True)
class Events:
    """Complete events with a duration, sorted by ``start`` (ties: longer first, then file order)."""

    start: I64
    duration: I64
    name: I32
    """Index into ``RankTrace.strings``."""
    category: NDArray[np.int8]
    """A :class:`Category`."""
    pid: I64
    """Process (CPU events) or device (GPU events). Text ids are negative and stable within the trace."""
    tid: I64
    """Thread (CPU events) or stream (GPU events)."""
    stream: I32
    """-1 for host events."""
    correlation: I64
    """-1 where absent. Not unique: a graph launch owns many kernels."""
    external_id: I64
    """-1 where absent."""
    launch: I32
    """GPU events: index of the runtime or driver event that launched it, -1 unknown. Calls of a backend on the host
    (gloo) beside a device: the operator that issued it. Other host events: -1."""
    step: I32
    """Index into ``Steps`` of the step that *launched* the event (GPU) or contains its start (host); -1 for none."""
    shape: I32
    """Index into ``strings``: input dims of an operator, grid and block of a kernel; -1 where absent."""
    bytes: I64
    """Copies and memsets; -1 elsewhere."""
    bandwidth_gb_s: F64
    """Copies and memsets as Kineto says; 0 elsewhere."""
    position: I64
    """Index in the file's ``traceEvents``, HTA's ``index``."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def end(self) -> I64:
        """``start + duration``."""
        return self.start + self.duration

    @property
    def launching(self) -> NDArray[np.bool_]:
        """Host events that launched device work."""
        mask = np.zeros(len(self), np.bool_)
        mask[self.launch[self.launch >= 0]] = True
        return mask


EVENT_DTYPES: dict[str, Any] = {
    "position": np.int64,
    "start": np.int64,
    "duration": np.int64,
    "name": np.int32,
    "category": np.int8,
    "pid": np.int64,
    "tid": np.int64,
    "stream": np.int32,
    "correlation": np.int64,
    "external_id": np.int64,
    "shape": np.int32,
    "bytes": np.int64,
    "bandwidth_gb_s": np.float64,
}
"""Columns of :class:`Events` that a reader takes from the file; it computes ``launch`` and ``step`` from them."""


@dataclass(slots=True)
class PythonCalls:
    """Calls of Python functions and modules, where stacks were recorded (``with_stack``), in order of ``start`` (ties:
    the longer first). Columns of length P. They are no events: nothing but what names a line of code reads them."""

    start: I64
    duration: I64
    name: I32
    """Index into ``RankTrace.strings``: ``train.py(12): main``, ``nn.Module: Block_3``, ``<built-in ...>``."""
    tid: I64

    def __len__(self) -> int:
        return len(self.start)

    @property
    def end(self) -> I64:
        """``start + duration``."""
        return self.start + self.duration

    @classmethod
    def none(cls) -> PythonCalls:
        """Of a trace without stacks."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))


@dataclass(slots=True)
class Steps:
    """Outermost ``ProfilerStep#N`` of the main host thread, in order of time; empty when there are none."""

    number: I64
    start: I64
    duration: I64

    def __len__(self) -> int:
        return len(self.number)

    @property
    def end(self) -> I64:
        """``start + duration``."""
        return self.start + self.duration


@dataclass(frozen=True, slots=True)
class Group:
    """A process group. Its identity is ``ranks``; names differ between ranks."""

    name: str
    description: str
    ranks: tuple[int, ...]
    """Empty when the trace does not say."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One send or receive of a call. Calls that were issued as one (``batch_isend_irecv``) have several."""

    sends: bool
    """False: it receives."""
    peer: int
    """Rank of the job that it goes to or comes from, -1 unknown."""
    elements: int = -1
    """-1 unknown."""


@dataclass(slots=True)
class Collectives:
    """Communication calls of this rank, one row each, in order of ``start``: kernels on a GPU; the operators of the
    backend (``gloo:all_reduce`` ...) on a CPU-only trace. Columns of length C."""

    event: I32
    """Index into ``Events``: the kernel, or the operator."""
    kind: list[str]
    """``allreduce``, ``allgather``, ``reduce_scatter``, ``broadcast``, ``send``, ``recv`` ...: lower case, no prefix,
    as Kineto's ``Collective name`` says, underscores of ``_allgather_base`` and the like kept."""
    group: I32
    """Index into ``RankTrace.groups``, -1 unknown."""
    seq: I64
    """-1 where the trace has none (before torch 2.12)."""
    comms_id: list[str]
    """Empty where the trace has none (before torch 2.13)."""
    in_elements: I64
    out_elements: I64
    dtype: list[str]
    peer: I32
    """Other rank of a point-to-point call (a rank of the job), -1 otherwise, unknown, or where there are several."""
    pieces: list[tuple[Piece, ...]] = field(default_factory=list)
    """Sends and receives that the call stands for, in the order they were issued: one of a plain send or receive, all
    of a coalesced group. Empty for collectives, and where nothing is known. The n-th piece of rank a that sends to b
    and the n-th of b that receives from a are one message, whatever calls they stand in. Kind of a coalesced call:
    ``send`` or ``recv`` where all its pieces are, else ``sendrecv``."""

    def __post_init__(self) -> None:
        if not self.pieces and {"send", "recv"}.isdisjoint(self.kind):
            self.pieces = [()] * len(self.kind)
        elif not self.pieces:
            self.pieces = [
                (Piece(kind == "send", peer, max(sizes)),) if kind in {"send", "recv"} and peer >= 0 else ()
                for kind, peer, *sizes in zip(
                    self.kind, self.peer.tolist(), self.in_elements.tolist(), self.out_elements.tolist(), strict=True
                )
            ]

    def __len__(self) -> int:
        return len(self.event)


@dataclass(slots=True)
class DeviceMemory:
    """What PyTorch's allocator held of one device while this rank was recorded with ``profile_memory``.

    Bytes, by the allocator's own counters: allocations as it rounds them up, until the last tensor is released.
    """

    device: int
    peak_allocated: int
    peak_reserved: int
    end_allocated: int
    end_reserved: int
    step_peaks: list[int]
    """Most allocated in each step, what it began with included; empty without steps."""


@dataclass(slots=True)
class TraceMeta:
    """What the file says about itself. None or empty where it does not."""

    rank: int | None = None
    """From distributedInfo."""
    world_size: int | None = None
    backend: str | None = None
    device: str | None = None
    """Name of the device the rank used, e.g. ``NVIDIA H100 80GB HBM3``."""
    host: str | None = None
    base_ns: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    """``cuda_driver``, ``cuda_runtime``, ``nccl``, ``torch`` ... as far as known."""
    flags: dict[str, bool] = field(default_factory=dict)
    """``record_shapes``, ``with_stack``, ``profile_memory`` ... as recorded."""
    peers: str = ""
    """How the trace numbers the peers of sends and receives: see :mod:`rankscope.trace.peers`. Empty where ranks of the
    job and places within the group are the same, or nothing was sent."""
    raw: dict[str, Any] = field(default_factory=dict)
    """The file's top-level keys other than events, as they are, but for the process groups, which are ``groups``."""


@dataclass(slots=True)
class RankTrace:
    """One file, decoded, repaired and typed."""

    source: str
    rank: int | None
    """distributedInfo first, then the file name; None when neither says. Never guessed."""
    meta: TraceMeta
    strings: list[str]
    events: Events
    steps: Steps
    groups: list[Group]
    collectives: Collectives
    memory: list[DeviceMemory] = field(default_factory=list)
    """In order of device; empty where memory was not recorded."""
    python: PythonCalls = field(default_factory=PythonCalls.none)
    repairs: dict[str, int] = field(default_factory=dict)
    """What was repaired or dropped: kind -> count (see ``trace.repair`` for the kinds)."""
    notes: list[str] = field(default_factory=list)
    """Anything else a reader of the report should know, in words."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Event class that no analysis reads -> number left out while decoding. Not a repair."""
    attempt: int = 0
    window: int = 0
    part: str = ""
    """What tells this process from the others of a merged file; empty where the file holds one process."""

    @property
    def has_device(self) -> bool:
        """True when at least one kernel, copy or memset ran on a device."""
        return bool((self.events.stream >= 0).any())
