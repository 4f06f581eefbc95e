"""Calls that were issued as one: find the records of communication for a kernel without arguments.

Between ``ncclGroupStart`` and ``ncclGroupEnd`` each send, receive or collective leaves its own ``record_param_comms``
without launching anything. The end of the group launches one kernel for all of them, inside an annotation
``nccl:coalesced``. torch 2.11 gives that kernel no arguments, so its pieces are the records before it.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from rankscope.trace.columns import Category, Events
from rankscope.trace.kineto.events import Args

__all__ = ["merged", "pieces_of", "titled"]

I64 = NDArray[np.int64]

_COALESCED = re.compile(r"\b\w+:coalesced\b")  # anchored at a word start: trying each letter would take quadratic time
_TITLE = re.compile(r"\b\w+:(send|recv) (\d{1,9})(?:->|<-)(\d{1,9})")
_LAUNCH = re.compile(r"LaunchKernel|LaunchCooperativeKernel|GraphLaunch")


def pieces_of(events: Events, strings: list[str], kernels: I64, records: I64) -> dict[int, list[int]]:
    """Find the records that each of these kernels stands for.

    Args:
        events: all columns, ``launch`` included.
        strings: texts of the name codes.
        kernels: rows of communication kernels without arguments of their own, in order of ``start``.
        records: rows of ``record_param_comms`` for which no kernel was found.

    Returns:
        Kernel row -> rows of its records, in the order in which they were issued. Kernels whose launch is unknown, or
        before which nothing was recorded, are left out.
    """
    found: dict[int, list[int]] = {}
    kernels = kernels[events.launch[kernels] >= 0]
    if not len(kernels) or not len(records):
        return found
    launch = events.launch[kernels]
    thread = _threads(events)
    records = records[~_launching(events, strings, thread, records)]
    annotated = np.flatnonzero(
        (events.category == Category.USER_ANNOTATION) & _named(events, strings, _COALESCED)
    )  # fmt: skip
    for one in np.unique(thread[launch]).tolist():
        mine = thread[launch] == one
        calls, own = launch[mine], records[thread[records] == one]
        groups = annotated[thread[annotated] == one]
        issued = events.start[own]
        if len(groups):
            # Calls issued since the previous group began belong to this one.
            at = np.searchsorted(events.start[groups], events.start[calls], side="right") - 1
            inside = (at >= 0) & (events.end[groups][at.clip(0)] >= events.start[calls])
            # Including equal times: with whole microseconds, a record and the end of its group may have the same time.
            until = np.searchsorted(issued, events.start[groups], side="right")
            since = np.concatenate(([0], until[:-1]))
            low, high = since[at.clip(0)], until[at.clip(0)]
        else:
            calls = np.sort(calls)  # by start: each launch stands for the calls issued since the previous one
            high = np.searchsorted(issued, events.start[calls])
            low, inside = np.concatenate(([0], high[:-1])), np.ones(len(calls), np.bool_)
        by_call = {
            int(c): own[a:b].tolist()
            for c, a, b, ok in zip(calls.tolist(), low.tolist(), high.tolist(), inside.tolist(), strict=True)
            if ok and b > a
        }
        for kernel, call in zip(kernels[mine].tolist(), launch[mine].tolist(), strict=True):
            if call in by_call:
                found[kernel] = by_call[call]
    return found


def titled(events: Events, strings: list[str], kernels: I64) -> dict[int, Args]:
    """Read sends and receives that only the annotation around the launch shows: ``nccl:send 1->0``.

    Its numbers are positions within the group. Kernel row -> arguments.
    """
    found: dict[int, Args] = {}
    kernels = kernels[events.launch[kernels] >= 0]
    titles = np.flatnonzero((events.category == Category.USER_ANNOTATION) & _named(events, strings, _TITLE))
    if not len(kernels) or not len(titles):
        return found
    thread = _threads(events)
    for kernel, call in zip(kernels.tolist(), events.launch[kernels].tolist(), strict=True):
        mine = titles[: np.searchsorted(events.start[titles], events.start[call], side="right")]
        mine = mine[thread[mine] == thread[call]][-1:]
        if len(mine) and events.end[mine[0]] >= events.start[call]:
            title = _TITLE.match(strings[events.name[mine[0]]])
            if title is not None:
                found[kernel] = Args(collective=title.group(1), place=int(title.group(3)))
    return found


def merged(pieces: list[Args]) -> Args:
    """Return one call with what its pieces have in common, and their total size.

    For sends and receives, the sizes are what is sent and what is received.
    """
    kinds = [str(piece.collective).lower() for piece in pieces]
    first = pieces[0]
    call = Args(
        collective=kinds[0] if len(set(kinds)) == 1 else None,
        group_name=_common(pieces, "group_name"),
        group_description=_common(pieces, "group_description"),
        group_ranks=_common(pieces, "group_ranks"),
        dtype=_common(pieces, "dtype"),
        seq=-1 if (seq := _common(pieces, "seq")) is None else seq,
        comms_id=_common(pieces, "comms_id"),
    )
    if set(kinds) <= {"send", "recv"}:
        call.collective = kinds[0] if len(set(kinds)) == 1 else "sendrecv"
        call.in_elements = _total([p.in_elements for p, kind in zip(pieces, kinds, strict=True) if kind == "send"])
        call.out_elements = _total([p.out_elements for p, kind in zip(pieces, kinds, strict=True) if kind == "recv"])
        if len(pieces) == 1:
            call.in_elements, call.out_elements = first.in_elements, first.out_elements
    else:
        call.in_elements = _total([p.in_elements for p in pieces])
        call.out_elements = _total([p.out_elements for p in pieces])
    return call


def _common(pieces: list[Args], field: str) -> object:
    values = [getattr(piece, field) for piece in pieces]
    return values[0] if all(value == values[0] for value in values) else None


def _total(sizes: list[object]) -> int:
    known = [size for size in sizes if isinstance(size, int) and size >= 0]
    return sum(known) if len(known) == len(sizes) else -1


def _threads(events: Events) -> I64:
    """Return a number per thread, equal for the events of one thread."""
    _, number = np.unique(np.stack((events.pid, events.tid)), axis=1, return_inverse=True)
    return number.reshape(-1).astype(np.int64)


def _named(events: Events, strings: list[str], pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    codes = [code for code in np.unique(events.name).tolist() if pattern.search(strings[code])]
    return np.isin(events.name, codes)


def _launching(events: Events, strings: list[str], thread: I64, records: I64) -> NDArray[np.bool_]:
    """Select the records inside which a kernel was launched: that kernel is theirs, whether recorded or lost."""
    calls = np.isin(events.category, (Category.CUDA_RUNTIME, Category.CUDA_DRIVER))
    calls &= _named(events, strings, _LAUNCH)
    launches = np.flatnonzero(calls)
    result = np.zeros(len(records), np.bool_)
    for one in np.unique(thread[records]).tolist():
        begun = events.start[launches[thread[launches] == one]]
        mine = thread[records] == one
        low = np.searchsorted(begun, events.start[records[mine]])
        result[mine] = np.searchsorted(begun, events.end[records[mine]], side="right") > low
    return result
