"""One rank's trace as typed columns: the interface between all readers, which write it, and all later stages.

Times are int64 nanoseconds of CLOCK_REALTIME of the rank's host (``baseTimeNanoseconds`` is already added). A file
without a base keeps its own origin. All event columns have the same length N and the order of ``start``.
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
    "TRUNCATED",
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
"""Key in a trace that is a redacted copy: what was kept, and what had been repaired in the original."""
TRUNCATED = "truncated file"
"""Kind of :attr:`RankTrace.repairs` of a file that ends within its events."""
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
F64 = NDArray[np.float64]


class Category(IntEnum):
    """Kineto's event classes, including old names (``Operator``, ``Runtime``, ``Kernel`` of 2021). Stored in files:
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
    """-1 if absent. Not unique: a graph launch has many kernels."""
    external_id: I64
    """-1 if absent."""
    launch: I32
    """GPU events: index of the runtime or driver event that launched it, -1 if unknown. Calls of a backend on the host
    (gloo) in a trace with a device: the operator that issued it. Other host events: -1."""
    step: I32
    """Index into ``Steps`` of the step that *launched* the event (GPU) or contains its start (host); -1 for none."""
    shape: I32
    """Index into ``strings``: input dims of an operator, grid and block of a kernel; -1 if absent."""
    bytes: I64
    """Size of copies and memsets; -1 for other events."""
    bandwidth_gb_s: F64
    """Bandwidth of copies and memsets, as recorded by Kineto; 0 for other events."""
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
        """Mask of the host events that launched device work."""
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
    """Calls of Python functions and modules, if stacks were recorded (``with_stack``), in order of ``start`` (ties: the
    longer first). Columns of length P. They are not events: only code that names Python lines reads them."""

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
        """Return the calls of a trace without stacks: none."""
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


UNDESCRIBED = "undefined"
"""Description that torch writes where the caller of ``new_group`` gave none."""


@dataclass(frozen=True, slots=True)
class Group:
    """A process group. It is identified by ``ranks``; names differ between ranks."""

    name: str
    description: str
    ranks: tuple[int, ...]
    """Empty if the trace does not contain them."""

    @property
    def described(self) -> bool:
        """Whether the job described it; a mesh does (``mesh_tp``)."""
        return self.description not in ("", UNDESCRIBED)

    @property
    def title(self) -> str:
        """Its description, else its name, which is a number in most jobs."""
        return self.description if self.described else self.name


@dataclass(frozen=True, slots=True)
class Piece:
    """One send or receive of a call. Calls that were issued as one (``batch_isend_irecv``) have several."""

    sends: bool
    """False: it receives."""
    peer: int
    """Rank of the job that it sends to or receives from, -1 if unknown."""
    elements: int = -1
    """-1 if unknown."""


@dataclass(slots=True)
class Collectives:
    """Communication calls of this rank, one row each, in order of ``start``: kernels on a GPU; the operators of the
    backend (``gloo:all_reduce`` ...) on a CPU-only trace. Columns of length C."""

    event: I32
    """Index into ``Events``: the kernel, or the operator."""
    kind: list[str]
    """``allreduce``, ``allgather``, ``reduce_scatter``, ``broadcast``, ``send``, ``recv`` ...: lower case, without
    prefix, as in Kineto's ``Collective name``, with the underscores of ``_allgather_base`` and the like."""
    group: I32
    """Index into ``RankTrace.groups``, -1 if unknown."""
    seq: I64
    """-1 if the trace has none (before torch 2.12)."""
    comms_id: list[str]
    """Empty if the trace has none (before torch 2.13)."""
    in_elements: I64
    out_elements: I64
    dtype: list[str]
    peer: I32
    """The other rank of a point-to-point call (a rank of the job), -1 for other calls, if unknown, or if there are
    several."""
    pieces: list[tuple[Piece, ...]] = field(default_factory=list)
    """Sends and receives of the call, in the order in which they were issued: one for a plain send or receive, all of a
    coalesced group. Empty for collectives, and if unknown. The n-th piece of rank a that sends to b and the n-th of b
    that receives from a are one message, whatever calls they belong to. The kind of a coalesced call is ``send`` or
    ``recv`` if all its pieces are, else ``sendrecv``."""

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
    """Memory of one device in PyTorch's allocator while this rank was recorded with ``profile_memory``.

    Bytes, by the allocator's own counters: allocations including rounding, until the last tensor is released.
    """

    device: int
    peak_allocated: int
    peak_reserved: int
    end_allocated: int
    end_reserved: int
    step_peaks: list[int]
    """Largest allocated size in each step, including what was allocated at its begin; empty without steps."""


@dataclass(slots=True)
class TraceMeta:
    """The file's metadata. None or empty if absent."""

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
    """How the trace numbers the peers of sends and receives: see :mod:`rankscope.trace.peers`. Empty if ranks of the
    job and positions within the group are equal, or nothing was sent."""
    raw: dict[str, Any] = field(default_factory=dict)
    """The file's top-level keys other than events, unchanged, without the process groups, which are in ``groups``."""


@dataclass(slots=True)
class RankTrace:
    """One file, decoded, repaired and typed."""

    source: str
    rank: int | None
    """From distributedInfo, else from the file name; None if neither has it. Never guessed."""
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
    """Repaired or dropped events: kind -> count (see ``trace.repair`` for the kinds)."""
    notes: list[str] = field(default_factory=list)
    """Further remarks for the reader of the report, in words."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Event class that no analysis reads -> number of events left out while decoding. Not a repair."""
    attempt: int = 0
    window: int = 0
    part: str = ""
    """Identifies this process among the others of a merged file; empty if the file holds one process."""

    @property
    def has_device(self) -> bool:
        """True when at least one kernel, copy or memset ran on a device."""
        return bool((self.events.stream >= 0).any())
