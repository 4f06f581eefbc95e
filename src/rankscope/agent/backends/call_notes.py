"""Process group, sequence number and sizes of each communication call of a window, stored in the trace's metadata.

A trace lacks them for some calls: gloo's calls carry nothing (torch 2.13), nor do the kernels of batched sends and
receives. torch's flight recorder has them: it keeps the last calls of every group, including those issued in C++, with
the time of issue on CLOCK_REALTIME, the clock of the trace. For calls that it does not record (gloo before torch 2.13,
gloo's sends and receives), those that Python issues in the recording thread are noted as they are made.

Reading the recorder takes 20 us an entry (torch 2.13 on a CPU: 0.04 s for the 2,000 that it keeps by default) and holds
the GIL. It is done once, when a window closes regularly. It waits for nothing, and no device in an error state is
queried.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["KEY", "MOST_NOTES", "CallNotes", "recorded_calls", "recorded_groups", "tail"]

KEY = "rankscope_calls"
"""Key of the notes in the metadata of the trace."""

MOST_NOTES = 4_000
"""Number of calls kept per window, the last ones. At 70 bytes each, this is no more than the events of a few steps."""

MOST_RECORDED = 10_000
"""Largest number of flight recorder entries that are read, which takes 0.2 s. It is five times torch's default; a
larger recorder is not read."""

_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_READERS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
_PICKLED = ("_dump_fr_trace", "_dump_nccl_trace")


class CallNotes:
    """Notes of one window: begun with it, returned at its end."""

    def __init__(self) -> None:
        self._since_ns = 0
        self._made: list[list[Any]] = []

    def begin(self) -> None:
        """Note the time at which the window starts to record."""
        self._since_ns = time.time_ns()

    def made(self, method: str, arguments: tuple[Any, ...]) -> None:
        """Note a method of ProcessGroup that is about to be called in the recording thread; its first argument is the
        group."""
        if len(self._made) < MOST_NOTES:
            with contextlib.suppress(Exception):  # errors of the call are the script's own
                self._made.append(_made(method, arguments))

    def as_metadata(self) -> str | None:
        """Return the calls since :meth:`begin` as JSON; None if there are none."""
        calls = tail(recorded_calls() or [], self._since_ns)
        made, self._made = self._made, []
        if not calls:
            calls = made
        elif not any(_is_message(call) for call in calls):
            calls = sorted(calls + [call for call in made if _is_message(call)], key=lambda call: int(call[0]))
        if not calls:
            return None
        return json.dumps({"columns": _COLUMNS, "calls": calls}, separators=(",", ":"))


_COLUMNS = ["created_ns", "group", "name", "seq", "p2p_seq", "in_elements", "out_elements", "dtype"]


def _made(method: str, arguments: tuple[Any, ...]) -> list[Any]:
    """Return a call issued by Python, in the form that :func:`tail` gives those of a recorder."""
    group, name, elements = arguments[0], method.strip("_"), -1
    if method in ("send", "recv"):
        way = "->" if method == "send" else "<-"
        name = f"{method} {group.rank()}{way}{int(arguments[2])}"
        elements = sum(int(tensor.numel()) for tensor in arguments[1])
    return [time.time_ns(), str(group.group_name), f"python:{name}", -1, -1, elements, elements, ""]


def _is_message(call: list[Any]) -> bool:
    return ":send " in call[2] or ":recv " in call[2]


def tail(entries: Iterable[Mapping[str, Any]], since_ns: int) -> list[list[Any]]:
    """Return the calls issued since ``since_ns``, in order, at most :data:`MOST_NOTES` of them.

    Args:
        entries: of a flight recorder. Entries of an unexpected form are left out.
        since_ns: CLOCK_REALTIME in nanoseconds.

    Returns:
        For each call the values that :data:`_COLUMNS` names: time of issue (ns), the group's name on this rank, the
        call's name (``nccl:send 1->0``; the numbers are positions within the group), its number among the group's
        collectives and among its sends and receives, elements in and out, and the type.
    """
    found: list[list[Any]] = []
    for entry in entries:
        with contextlib.suppress(KeyError, TypeError, ValueError, IndexError):
            created = int(entry["time_created_ns"])
            if created < since_ns:
                continue
            group = entry["process_group"]
            types = entry.get("input_dtypes") or entry.get("output_dtypes") or [""]
            found.append(
                [
                    created,
                    str(group[0] if isinstance(group, (list, tuple)) else group),
                    str(entry["profiling_name"])[:80],
                    int(entry.get("collective_seq_id", -1)),
                    int(entry.get("p2p_seq_id", -1)),
                    _elements(entry.get("input_sizes")),
                    _elements(entry.get("output_sizes")),
                    str(types[0]),
                ]
            )
    found.sort(key=lambda call: call[0])
    return found[-MOST_NOTES:]


def _elements(shapes: Any) -> int:
    """Return the number of elements of tensors of these shapes; -1 if there are none."""
    if not shapes:
        return -1
    total = 0
    for shape in shapes:
        size = 1
        for length in shape:
            size *= int(length)
        total += size
    return total


def recorded_groups() -> dict[str, list[int]]:
    """Return the process groups of this process by name, each with its ranks."""
    try:
        import torch.distributed as dist
        from torch.distributed import distributed_c10d as groups

        if not (dist.is_available() and dist.is_initialized()):
            return {}
        found = {}
        for group, name in list(groups._world.pg_names.items())[:1000]:  # noqa: SLF001 - no public way to all groups
            found[str(name)] = sorted(int(rank) for rank in groups._world.pg_group_ranks[group])  # noqa: SLF001
    except Exception:  # an unexpected version of torch, or changed while being read
        return {}
    return found


def recorded_calls(*, fast: bool = False) -> list[Mapping[str, Any]] | None:
    """Return the entries of all flight recorders of this process; None if none can be read.

    Args:
        fast: prefer the pickled form, which takes half the time.
    """
    try:
        import torch.distributed as dist
        from torch._C import _distributed_c10d as c10d
    except ImportError:
        return None
    if not (dist.is_available() and dist.is_initialized()) or _size() > MOST_RECORDED:
        return None
    found: list[Mapping[str, Any]] = []
    readers: list[tuple[Any, Callable[[Any], Any]]]
    readers = [(getattr(c10d, name), json.loads) for name in _READERS if hasattr(c10d, name)]
    if fast or not readers:  # pickled a moment ago by torch in this process
        pickled: list[tuple[Any, Callable[[Any], Any]]]
        pickled = [(getattr(c10d, name), pickle.loads) for name in _PICKLED if hasattr(c10d, name)]
        readers = pickled or readers
    if not readers:
        return None
    for read, decode in readers:
        with contextlib.suppress(Exception):  # no error of a recorder leaves this function
            found += _entries(read, decode)
    return found


def _entries(read: Callable[..., Any], decode: Callable[[Any], Any]) -> list[Mapping[str, Any]]:
    if decode is json.loads:
        text = read(includeCollectives=True, onlyActive=False)
    else:
        text = read(includeCollectives=True, includeStackTraces=False, onlyActive=False)
    entries = decode(text).get("entries", [])
    return [entry for entry in entries if isinstance(entry, dict)]


def _size() -> int:
    """Return how many entries the recorder may hold, by the environment variables that configure it."""
    sizes = [os.environ[name] for name in _SIZES if name in os.environ]
    return max((int(size) for size in sizes if size.isdigit()), default=0)
