"""Summary of one rank in one recorded window, kept when its trace is gone: a few kilobytes instead of megabytes.

Runs are compared by these summaries, and a baseline consists of them. Tables are stored as columns, one list each, of
equal length within a table. Each text is stored once in ``strings``; a column of texts holds indices into it. Times are
nanoseconds.

Fields that depend on one rank's trace alone can be filled where it was recorded. Fields that need the other ranks say
so, and are empty until the ranks have been compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from rankscope.limits import Attempt, Rank, Step, WindowNumber, WorldSize

__all__ = ["SUMMARY_VERSION", "CallColumns", "RankWindow", "StepColumns", "WorkColumns"]

SUMMARY_VERSION = "1.1"
"""A new column raises the minor number, a changed meaning the major one; readers reject another major number."""


@dataclass(kw_only=True)
class StepColumns:
    """The recorded steps, in order."""

    number: list[Step] = field(default_factory=list)
    """Step number, as the rank counts."""
    length_ns: list[int] = field(default_factory=list)
    """With a device, from the end of the previous step's last work to the end of this one's; else the host's step."""
    compute_ns: list[int] = field(default_factory=list)
    """Time in which work that the step launched computes (union of intervals); likewise the next three."""
    communication_ns: list[int] = field(default_factory=list)
    exposed_ns: list[int] = field(default_factory=list)
    """Communication that is not overlapped by compute, including waiting."""
    copy_ns: list[int] = field(default_factory=list)
    """Copies that are overlapped neither by compute nor by communication."""
    input_ns: list[int] = field(default_factory=list)
    """Time in which the host is in the data loader and the device is idle."""
    launches: list[int] = field(default_factory=list)
    """Number of kernels, copies and collectives that the step launched; without a device, of outermost operators."""
    syncs: list[int] = field(default_factory=list)
    """Number of calls in which the host waits for its device."""
    allocations: list[int] = field(default_factory=list)
    """Number of calls that allocate device memory from the driver, or free it."""
    compilations: list[int] = field(default_factory=list)
    """Number of outermost ranges of a compiler."""
    copies: list[int] = field(default_factory=list)
    """Number of copies and memsets on the device."""
    copied_bytes: list[int] = field(default_factory=list)


@dataclass(kw_only=True)
class WorkColumns:
    """Compute of the steps: a row for each kind of kernel and step in which it ran.

    On a CPU, operators that no other operator calls take the place of kernels. A kind is identified by the operator
    that launched it, that operator's input shapes, and the kernel's name. Libraries choose different kernels for the
    same operator, so only the first two show whether two programs do the same.
    """

    operator: list[int] = field(default_factory=list)
    """-1 if the trace does not record it; likewise the next. Numbers that a compiler appends to names as a counter are
    removed."""
    shapes: list[int] = field(default_factory=list)
    name: list[int] = field(default_factory=list)
    """The qualified function name, without template arguments."""
    step: list[int] = field(default_factory=list)
    """Index into the steps, not a step number."""
    count: list[int] = field(default_factory=list)
    total_ns: list[int] = field(default_factory=list)
    alone: list[int] = field(default_factory=list)
    """Number of them that did not overlap communication. Kernels that overlap a collective, even one that only waits,
    take up to 1.6 times as long, so only these can be compared between runs."""
    alone_ns: list[int] = field(default_factory=list)
    alone_median_ns: list[int] = field(default_factory=list)
    """Median duration of one of these; 0 if there are none."""
    module: list[int] = field(default_factory=list)
    """The module whose call launched it, by its class and those of the enclosing modules, ``GPT/Block/Linear``; -1
    outside of all modules, as in the backward. Empty if module calls were not recorded (``with_stack``). It
    distinguishes kinds as well."""


@dataclass(kw_only=True)
class CallColumns:
    """The rank's communication calls that other ranks took part in, in order of their launches, and its own work
    between them."""

    kind: list[int] = field(default_factory=list)
    """``all_reduce``, ``all_gather`` ..., independent of the spelling in the trace."""
    group: list[int] = field(default_factory=list)
    """Name or description of the process group; groups of the same name can differ between ranks."""
    size: list[int] = field(default_factory=list)
    """Number of ranks of that group."""
    dtype: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    """The larger of input and output of this rank; -1 if unknown."""
    bus_bytes: list[int] = field(default_factory=list)
    """Bytes over the bus by the definition of the NCCL tests, -1 where that is not defined. Divided by ``transfer_ns``
    it is the bus bandwidth in 10^9 bytes per second."""
    step: list[int] = field(default_factory=list)
    """Index of the step that launched it, -1 for none."""
    host_ns: list[int] = field(default_factory=list)
    """The rank's own host work since its previous call, without waiting, as in the replay of the window; likewise the
    next. Empty if the window was not replayed."""
    device_ns: list[int] = field(default_factory=list)
    wait_ns: list[int] = field(default_factory=list)
    """From its own arrival to the last one. Needs the other ranks, as does the next; 0 if recording began within the
    call."""
    transfer_ns: list[int] = field(default_factory=list)
    """From the last arrival to the end of the call."""


@dataclass(kw_only=True)
class RankWindow:
    """One rank in one window."""

    rank: Rank
    attempt: Attempt
    window: WindowNumber
    world_size: WorldSize | None = None
    host: str | None = None
    device: str | None = None
    """Name of the accelerator; None for a rank without one."""
    backend: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    strings: list[str] = field(default_factory=list)
    steps: StepColumns = field(default_factory=StepColumns)
    work: WorkColumns = field(default_factory=WorkColumns)
    calls: CallColumns = field(default_factory=CallColumns)
    incomplete: str | None = None
    """What is missing from the trace, in words. If set, counts are not those of the program."""
    schema_version: str = SUMMARY_VERSION

    def __post_init__(self) -> None:
        """Reject tables whose columns are inconsistent, since the values may come from a file.

        Raises:
            ValueError: columns of different lengths, or indices beyond the texts or the steps.
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
        """Return the text at an index; empty for -1."""
        return self.strings[place] if place >= 0 else ""


_MAY_BE_EMPTY = {"module", "host_ns", "device_ns", "wait_ns", "transfer_ns"}
_TEXT = {"operator", "module", "shapes", "name", "kind", "group", "dtype"}


def _within(name: str, places: list[int], size: int) -> None:
    if places and not (min(places) >= -1 and max(places) < size):
        raise ValueError(f"{name} points outside of the {size} that there are")
