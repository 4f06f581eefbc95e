"""What is kept of one rank in one recorded window when its trace is gone: a few kilobytes instead of megabytes.

Two runs are compared by these, and a baseline is made of them. Tables are kept as columns, a list each, of the same
length within a table. Text stands once in ``strings``; a column of text holds places in it. Times are nanoseconds.

What one rank's trace alone tells can be filled where it was recorded. What takes the other ranks too is said at its
field, and empty until they have been compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from rankscope.limits import Attempt, Rank, Step, WindowNumber, WorldSize

__all__ = ["SUMMARY_VERSION", "CallColumns", "RankWindow", "StepColumns", "WorkColumns"]

SUMMARY_VERSION = "1.1"
"""A new column raises the minor number, another meaning the major one; readers refuse another major number."""


@dataclass(kw_only=True)
class StepColumns:
    """The recorded steps, in their order."""

    number: list[Step] = field(default_factory=list)
    """As the rank counts them."""
    length_ns: list[int] = field(default_factory=list)
    """On a device from the last work of the step before to the last of this one; else the host's step."""
    compute_ns: list[int] = field(default_factory=list)
    """Union of the time in which work that the step launched computes; likewise the next three."""
    communication_ns: list[int] = field(default_factory=list)
    exposed_ns: list[int] = field(default_factory=list)
    """Communication that no compute hides, waiting included."""
    copy_ns: list[int] = field(default_factory=list)
    """Copies hidden behind neither compute nor communication."""
    input_ns: list[int] = field(default_factory=list)
    """In which the host sits in the data loader and the device does nothing."""
    launches: list[int] = field(default_factory=list)
    """Kernels, copies and collectives that the step launched; without a device, operators outside of any other."""
    syncs: list[int] = field(default_factory=list)
    """Calls in which the host waits for its device."""
    allocations: list[int] = field(default_factory=list)
    """Calls that take memory of the device from the driver, or give it back."""
    compilations: list[int] = field(default_factory=list)
    """Ranges of a compiler, not counting those within another."""
    copies: list[int] = field(default_factory=list)
    """Copies and memsets on the device."""
    copied_bytes: list[int] = field(default_factory=list)


@dataclass(kw_only=True)
class WorkColumns:
    """Compute of the steps: a row for each kind of kernel and step in which it ran. On a CPU operators take the place
    of kernels, those that no other one runs.

    A kind is told by the operator that launched it, that operator's input shapes, and the kernel's name. Libraries
    choose another kernel for the same operator, so the first two alone say whether two programs do the same.
    """

    operator: list[int] = field(default_factory=list)
    """-1 where the trace does not say, likewise the next. Numbers that a compiler counts up are cut off names."""
    shapes: list[int] = field(default_factory=list)
    name: list[int] = field(default_factory=list)
    """The qualified function, without its template arguments."""
    step: list[int] = field(default_factory=list)
    """Place in the steps, not a step's number."""
    count: list[int] = field(default_factory=list)
    total_ns: list[int] = field(default_factory=list)
    alone: list[int] = field(default_factory=list)
    """How many of them ran beside no communication. Beside a collective, also one that only waits, kernels take up to
    1.6 times as long, so that only these can be compared between runs."""
    alone_ns: list[int] = field(default_factory=list)
    alone_median_ns: list[int] = field(default_factory=list)
    """Of a single one; 0 where none ran alone."""
    module: list[int] = field(default_factory=list)
    """The module whose call launched it, by its class and those around it, ``GPT/Block/Linear``; -1 outside of any, as
    in the backward. Empty where calls of modules were not recorded (``with_stack``). It tells kinds apart as well."""


@dataclass(kw_only=True)
class CallColumns:
    """The rank's communication calls that other ranks took part in, in order of their launches, and its own work
    between them."""

    kind: list[int] = field(default_factory=list)
    """``all_reduce``, ``all_gather`` ..., whatever the trace spells."""
    group: list[int] = field(default_factory=list)
    """Name or description of the process group; groups of equal names can differ between ranks."""
    size: list[int] = field(default_factory=list)
    """Ranks of that group."""
    dtype: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    """Larger of input and output of this rank, -1 unknown."""
    bus_bytes: list[int] = field(default_factory=list)
    """What NCCL tests count as moved over the bus, -1 where that is not defined; divided by ``transfer_ns`` it is the
    bus bandwidth in 10^9 bytes per second."""
    step: list[int] = field(default_factory=list)
    """Place in the steps of the one that launched it, -1 for none."""
    host_ns: list[int] = field(default_factory=list)
    """The rank's own work on the host since its call before, as the replay of the window counts it (without waiting);
    likewise the next. Empty where the window was not replayed."""
    device_ns: list[int] = field(default_factory=list)
    wait_ns: list[int] = field(default_factory=list)
    """From its own arrival to the last one. Takes the other ranks, as the next; 0 where recording began within."""
    transfer_ns: list[int] = field(default_factory=list)
    """From the last arrival to its end."""


@dataclass(kw_only=True)
class RankWindow:
    """One rank in one window."""

    rank: Rank
    attempt: Attempt
    window: WindowNumber
    world_size: WorldSize | None = None
    host: str | None = None
    device: str | None = None
    """Name of the accelerator; None for a rank that used none."""
    backend: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    strings: list[str] = field(default_factory=list)
    steps: StepColumns = field(default_factory=StepColumns)
    work: WorkColumns = field(default_factory=WorkColumns)
    calls: CallColumns = field(default_factory=CallColumns)
    incomplete: str | None = None
    """What is missing from the trace, in words: then counts are no counts of the program."""
    schema_version: str = SUMMARY_VERSION

    def __post_init__(self) -> None:
        """Refuse tables whose columns do not belong together: what is read from a file is not believed.

        Raises:
            ValueError: columns of different lengths, or places beyond the texts or the steps.
        """
        if self.schema_version.partition(".")[0] != SUMMARY_VERSION.partition(".")[0]:
            raise ValueError(f"schema {self.schema_version} is not known, {SUMMARY_VERSION} is")
        for name in ("steps", "work", "calls"):
            table = getattr(self, name)
            columns = {f.name: getattr(table, f.name) for f in fields(table)}
            length = len(next(iter(columns.values())))
            wrong = [n for n, c in columns.items() if len(c) != length and not (n in _MAY_BE_EMPTY and not c)]
            if wrong:
                raise ValueError(f"{name}.{wrong[0]} has {len(columns[wrong[0]])} rows, the table {length}")
            for text in _TEXT & columns.keys():
                _within(f"{name}.{text}", columns[text], len(self.strings))
        for name, table in (("work.step", self.work.step), ("calls.step", self.calls.step)):
            _within(name, table, len(self.steps.number))

    def text(self, place: int) -> str:
        """The text at a place, empty for -1."""
        return self.strings[place] if place >= 0 else ""


_MAY_BE_EMPTY = {"module", "host_ns", "device_ns", "wait_ns", "transfer_ns"}
_TEXT = {"operator", "module", "shapes", "name", "kind", "group", "dtype"}


def _within(name: str, places: list[int], size: int) -> None:
    if places and not (min(places) >= -1 and max(places) < size):
        raise ValueError(f"{name} points outside of the {size} that there are")
