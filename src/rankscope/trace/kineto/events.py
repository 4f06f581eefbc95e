"""One event as msgspec decodes it: only the fields that an analysis reads are built."""

from __future__ import annotations

from typing import Any

import msgspec

from rankscope.trace.columns import Category
from rankscope.trace.kineto.event_lists import EventLists

__all__ = [
    "CATEGORY_CODES",
    "DROPPED_CATEGORIES",
    "MEMORY",
    "NO_ARGS",
    "NO_JSON",
    "NO_MEMORY",
    "NO_RAW",
    "Args",
    "Begin",
    "Complete",
    "End",
    "Instant",
    "Label",
    "LabelArgs",
    "MemoryArgs",
    "as_events",
    "category_code",
]

CATEGORY_CODES: dict[Any, int] = {
    "cpu_op": Category.CPU_OP,
    "user_annotation": Category.USER_ANNOTATION,
    "cuda_runtime": Category.CUDA_RUNTIME,
    "cuda_driver": Category.CUDA_DRIVER,
    "kernel": Category.KERNEL,
    "gpu_memcpy": Category.GPU_MEMCPY,
    "gpu_memset": Category.GPU_MEMSET,
    "gpu_user_annotation": Category.GPU_USER_ANNOTATION,
    "cuda_sync": Category.CUDA_SYNC,
    "overhead": Category.OVERHEAD,
    "python_function": Category.PYTHON_FUNCTION,
    # 2021
    "Operator": Category.CPU_OP,
    "Runtime": Category.CUDA_RUNTIME,
    "Kernel": Category.KERNEL,
    "Memcpy": Category.GPU_MEMCPY,
    "Memset": Category.GPU_MEMSET,
    # other devices of Kineto
    "glow_runtime": Category.CUDA_RUNTIME,
    "mtia_ccp_events": Category.KERNEL,
    "hpu_op": Category.KERNEL,
    "collective_comm": Category.KERNEL,
}
_SUFFIX_CODES = (
    ("_runtime", Category.CUDA_RUNTIME),
    ("_driver", Category.CUDA_DRIVER),
    ("_sync", Category.CUDA_SYNC),
    ("_memcpy", Category.GPU_MEMCPY),
    ("_memset", Category.GPU_MEMSET),
    ("_kernel", Category.KERNEL),
)
"""Suffixes that Kineto's plugins append to the name of an accelerator for event classes: ``xpu_runtime``,
``privateuse1_driver`` ..."""
DROPPED_CATEGORIES = frozenset(
    {"Trace", "cpu_instant_event", "ac2g", "fwdbwd", "async", "external_correlation"}
    | {"gpu_pm_counter", "mtia_counters", "mtia_insight"}
)
"""Classes that no analysis reads. ``Trace`` is Kineto's own span of the whole recording."""
MEMORY = "[memory]"
"""Name of the instants that record an allocation or a release."""
NO_RAW = msgspec.Raw(b"")
NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Args(msgspec.Struct, gc=False):
    """Fields of an event's ``args`` that analyses read. Untyped on purpose: a wrong type is repaired column by
    column."""

    stream: Any = None
    correlation: Any = -1
    external_id: Any = msgspec.field(default=-1, name="External id")
    external_id_2021: Any = msgspec.field(default=-1, name="external id")
    dims: msgspec.Raw = msgspec.field(default=NO_RAW, name="Input Dims")
    grid: msgspec.Raw = NO_RAW
    block: msgspec.Raw = NO_RAW
    bytes: Any = -1
    bandwidth: Any = msgspec.field(default=0.0, name="memory bandwidth (GB/s)")
    collective: Any = msgspec.field(default=None, name="Collective name")
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_description: Any = msgspec.field(default=None, name="Process Group Description")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    group_size: Any = msgspec.field(default=None, name="Group size")
    in_elements: Any = msgspec.field(default=-1, name="In msg nelems")
    out_elements: Any = msgspec.field(default=-1, name="Out msg nelems")
    dtype: Any = None
    seq: Any = msgspec.field(default=-1, name="Seq")
    comms_id: Any = msgspec.field(default=None, name="Comms Id")
    source_rank: Any = msgspec.field(default=-1, name="Src Rank")
    target_rank: Any = msgspec.field(default=-1, name="Dst Rank")
    place: Any = msgspec.field(default=-1, name="Rank")
    """For a send or receive, the peer's position within the group."""
    rank_start: Any = msgspec.field(default=-1, name="Global rank start")
    rank_stride: Any = msgspec.field(default=-1, name="Global rank stride")


class Complete(msgspec.Struct, tag_field="ph", tag="X", gc=False):
    """A complete event, decoded fast: ``ph`` is the tag of a union."""

    name: Any = ""
    cat: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Args | None = None


class Begin(Complete, tag_field="ph", tag="B", gc=False):
    """The first half of an event."""


class End(Complete, tag_field="ph", tag="E", gc=False):
    """The second half of an event."""


class MemoryArgs(msgspec.Struct, gc=False):
    """Fields that are read of an instant's ``args``."""

    kind: Any = msgspec.field(default=-1, name="Device Type")
    device: Any = msgspec.field(default=-1, name="Device Id")
    bytes: Any = msgspec.field(default=0, name="Bytes")
    allocated: Any = msgspec.field(default=-1, name="Total Allocated")
    reserved: Any = msgspec.field(default=-1, name="Total Reserved")


class Instant(msgspec.Struct, tag_field="ph", tag="i", gc=False):
    """An instant: memory allocated or released. A file has only a few others."""

    name: Any = ""
    ts: Any = None
    args: MemoryArgs | None = None


class LabelArgs(msgspec.Struct, gc=False):
    """Fields that are read of a metadata event's ``args``."""

    name: Any = None
    labels: Any = None


class Label(msgspec.Struct, tag_field="ph", tag="M", gc=False):
    """Metadata of a track. Process names separate the ranks of a merged file. A file has a few hundred."""

    name: Any = ""
    pid: Any = None
    args: LabelArgs | None = None


def _marker(name: str, tag: str) -> Any:
    return msgspec.defstruct(name, [], tag_field="ph", tag=tag, gc=False)


_MARKERS = {
    "s": "Flow",
    "f": "FlowEnd",
    "t": "FlowStep",
    "I": "OldInstant",
    "C": "Counter",
}
_KINDS: Any = (Complete, Begin, End, Instant, Label, *(_marker(name, tag) for tag, name in _MARKERS.items()))
_OWN_ARGS: dict[Any, Any] = {Instant: MemoryArgs, Label: LabelArgs}
_RAW_FIELDS = ("Input Dims", "grid", "block")
NO_ARGS = Args()
NO_MEMORY = MemoryArgs()


def category_code(name: str) -> int:
    """The :class:`~rankscope.trace.columns.Category` of Kineto's name for an event class."""
    code = CATEGORY_CODES.get(name)
    if code is None:
        code = next((c for suffix, c in _SUFFIX_CODES if name.endswith(suffix)), Category.OTHER)
    return int(code)


def _from_any(event: Any) -> Any:
    """Return the struct of an event of any form, None if it cannot be converted."""
    if not isinstance(event, dict) or not isinstance(event.get("ph"), str):
        return None
    kinds: dict[Any, Any] = {"X": Complete, "B": Begin, "E": End, "i": Instant, "M": Label}
    kind = kinds.get(event["ph"])
    if kind is None:
        return None
    given = event.get("args")
    args: Any = None
    if isinstance(given, dict) and kind in _OWN_ARGS:
        args = msgspec.convert(given, _OWN_ARGS[kind])
    elif isinstance(given, dict):
        args = msgspec.convert({k: v for k, v in given.items() if k not in _RAW_FIELDS}, Args)
        args.dims, args.grid, args.block = (
            msgspec.Raw(msgspec.json.encode(given[k])) if k in given else NO_RAW for k in _RAW_FIELDS
        )
    return kind(**{k: event.get(k) for k in kind.__struct_fields__ if k != "args"}, args=args)


as_events = EventLists(_KINDS, _from_any).decode
