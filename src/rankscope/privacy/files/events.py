"""Events as they are written to a copy. A field that is not declared here is never read, so it cannot be passed on."""

from __future__ import annotations

import functools
from decimal import Decimal
from typing import Any, Union

import msgspec

from rankscope.trace.kineto.event_lists import EventLists

__all__ = [
    "NO_RAW",
    "NUMBERS",
    "Allocation",
    "Arguments",
    "Begin",
    "Complete",
    "End",
    "Flow",
    "Moment",
    "Track",
    "TrackName",
    "as_events",
    "number_of",
    "one_event",
]

Number = Union[int, float, None]  # noqa: UP007  also at run time, for msgspec
NO_RAW = msgspec.Raw(b"")
_MOST_DIGITS = 20


class Arguments(msgspec.Struct, omit_defaults=True, gc=False):
    """Arguments of an event with a duration. Numbers are copied, words and shapes are replaced."""

    external_id: Number = msgspec.field(default=None, name="External id")
    external_id_2021: Number = msgspec.field(default=None, name="external id")
    device: Number = None
    context: Number = None
    stream: Number = None
    correlation: Number = None
    bytes: Number = None
    bandwidth: Number = msgspec.field(default=None, name="memory bandwidth (GB/s)")
    sequence: Number = msgspec.field(default=None, name="Sequence number")
    forward_thread: Number = msgspec.field(default=None, name="Fwd thread id")
    order: Number = msgspec.field(default=None, name="Ev Idx")
    function: Number = msgspec.field(default=None, name="Record function id")
    graph: Number = msgspec.field(default=None, name="graph id")
    graph_node: Number = msgspec.field(default=None, name="graph node id")
    wait_stream: Number = msgspec.field(default=None, name="wait_on_stream")
    wait_correlation: Number = msgspec.field(default=None, name="wait_on_cuda_event_record_corr_id")
    wait_event: Number = msgspec.field(default=None, name="wait_on_cuda_event_id")
    registers: Number = msgspec.field(default=None, name="registers per thread")
    shared: Number = msgspec.field(default=None, name="shared memory")
    group_size: Number = msgspec.field(default=None, name="Group size")
    in_elements: Number = msgspec.field(default=None, name="In msg nelems")
    out_elements: Number = msgspec.field(default=None, name="Out msg nelems")
    seq: Number = msgspec.field(default=None, name="Seq")
    source_rank: Number = msgspec.field(default=None, name="Src Rank")
    target_rank: Number = msgspec.field(default=None, name="Dst Rank")
    place: Number = msgspec.field(default=None, name="Rank")
    rank_start: Number = msgspec.field(default=None, name="Global rank start")
    rank_stride: Number = msgspec.field(default=None, name="Global rank stride")
    collective: Any = msgspec.field(default=None, name="Collective name")
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_description: Any = msgspec.field(default=None, name="Process Group Description")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    dtype: Any = None
    comms_id: Any = msgspec.field(default=None, name="Comms Id")
    dims: msgspec.Raw = msgspec.field(default=NO_RAW, name="Input Dims")
    grid: msgspec.Raw = NO_RAW
    block: msgspec.Raw = NO_RAW


class Complete(msgspec.Struct, tag_field="ph", tag="X", omit_defaults=True, gc=False):
    """An event with a duration."""

    cat: Any = None
    name: Any = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Arguments | None = None


class Begin(Complete, tag_field="ph", tag="B", omit_defaults=True, gc=False):
    """The begin of an event."""


class End(Complete, tag_field="ph", tag="E", omit_defaults=True, gc=False):
    """The end of an event."""


class Flow(msgspec.Struct, tag_field="ph", tag="s", omit_defaults=True, gc=False):
    """The begin of an arrow: from a call to the device, from forward to backward."""

    cat: Any = None
    name: Any = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    id: Number = None
    bp: Any = None


class FlowEnd(Flow, tag_field="ph", tag="f", omit_defaults=True, gc=False):
    """The end of an arrow."""


class FlowStep(Flow, tag_field="ph", tag="t", omit_defaults=True, gc=False):
    """A point between the two."""


class Allocation(msgspec.Struct, omit_defaults=True, gc=False):
    """Memory allocated or released. Its address is left out."""

    kind: Number = msgspec.field(default=None, name="Device Type")
    device: Number = msgspec.field(default=None, name="Device Id")
    bytes: Number = msgspec.field(default=None, name="Bytes")
    allocated: Number = msgspec.field(default=None, name="Total Allocated")
    reserved: Number = msgspec.field(default=None, name="Total Reserved")


class Moment(msgspec.Struct, tag_field="ph", tag="i", omit_defaults=True, gc=False):
    """An instant; only those of the allocator are kept."""

    name: Any = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    s: Any = None
    args: Allocation | None = None


class TrackName(msgspec.Struct, omit_defaults=True, gc=False):
    """Name of a process or a thread, and its position in the display."""

    name: Any = None
    labels: Any = None
    sort_index: Number = None


class Track(msgspec.Struct, tag_field="ph", tag="M", omit_defaults=True, gc=False):
    """Metadata of a process or a thread."""

    name: Any = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    args: TrackName | None = None


def _left_out(tag: str) -> Any:
    return msgspec.defstruct(f"Left{ord(tag)}", [], tag_field="ph", tag=tag, gc=False)


_KINDS: Any = (Complete, Begin, End, Flow, FlowEnd, FlowStep, Moment, Track, *map(_left_out, "ICbenNODvPp"))
_BY_PHASE: dict[Any, Any] = {"X": Complete, "B": Begin, "E": End, "s": Flow, "f": FlowEnd, "t": FlowStep}
_BY_PHASE |= {"i": Moment, "M": Track}
_ARGUMENTS: dict[Any, Any] = {
    Moment: Allocation,
    Track: TrackName,
    Complete: Arguments,
    Begin: Arguments,
    End: Arguments,
}
NUMBERS = frozenset({int, float, Decimal})


def one_event(event: Any) -> Any:
    """Convert an event of any form to one of these structs; numbers that were written as text become numbers."""
    kind = _BY_PHASE.get(event.get("ph")) if isinstance(event, dict) and isinstance(event.get("ph"), str) else None
    if kind is None:
        return None
    made = kind()
    for field in _fields(kind):
        value = event.get(field.encode_name)
        if field.name != "args" and value is not None:
            setattr(made, field.name, number_of(value) if field.name == "id" else value)
    wanted, given = _ARGUMENTS.get(kind), event.get("args")
    if wanted is not None and isinstance(given, dict):
        made.args = wanted()
        for field in _fields(wanted):
            value = given.get(field.encode_name)
            if value is None:
                continue
            if field.type is msgspec.Raw:
                value = msgspec.Raw(msgspec.json.encode(value))
            elif field.type is not Any:
                value = number_of(value)
            setattr(made.args, field.name, value)
    return made


as_events = EventLists(_KINDS, one_event).decode
_fields = functools.cache(msgspec.structs.fields)


def number_of(value: Any) -> Any:
    """Return a number, even if it was written as text; None if there is no finite number."""
    if value.__class__ in NUMBERS:
        return value
    if isinstance(value, str) and len(value) < 32:
        try:
            number = Decimal(value.strip())
        except ArithmeticError:
            return None
        if number.is_finite() and number.adjusted() <= _MOST_DIGITS:
            return int(number) if number == number.to_integral_value() else number
    return None
