"""The agent's notes of a window's calls, in the head of the trace: group, sequence number and sizes of each.

torch's flight recorder gives each call the time of its issue on the clock of the trace (``agent.backends.call_notes``).
A kernel is launched some microseconds after its note; a call of a backend on the host begins on a thread of its group
after its note. Records of the trace itself take precedence; notes supply what these lack.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankscope.trace.columns import Category, Events
from rankscope.trace.kineto.events import Args

__all__ = ["KEY", "Note", "notes_of", "of_host_calls", "of_kernels"]

I64 = NDArray[np.int64]

KEY = "rankscope_calls"
_MOST = 1 << 16
"""Largest number of notes read of one trace; the agent keeps fewer."""
_HOST_CLOCK_NS = 50_000
"""Error of Kineto's host times relative to CLOCK_REALTIME: 3 to 43 us were measured."""
_TITLE = re.compile(r"(?P<kind>send|recv) (?P<from>\d{1,9})(?P<way>->|<-)(?P<to>\d{1,9})$")
_COALESCED = "coalesced"
_ISSUE = re.compile(r"_?c10d(_functional)?::")


class Note(NamedTuple):
    """One call as it was noted."""

    created: int
    """Nanoseconds since 1970."""
    group: str
    kind: str
    """Without the name of the backend: ``all_reduce``, ``send 1->0``, ``coalesced``."""
    by_python: bool
    """Noted by the agent in Python and not by torch's recorder: the end of a batch is then unknown."""
    seq: int
    p2p_seq: int
    in_elements: int
    out_elements: int
    dtype: str


def notes_of(raw: dict[str, Any]) -> list[Note]:
    """Return the notes in a trace's metadata, in order of time; none if they are not in the agent's format."""
    stored = raw.get(KEY)
    calls = stored.get("calls") if isinstance(stored, dict) else None
    if not isinstance(calls, list) or len(calls) > _MOST:
        return []
    found = []
    for call in calls:
        if not isinstance(call, list) or len(call) != 8 or not all(isinstance(call[i], str) for i in (1, 2, 7)):
            return []
        numbers = [call[i] for i in (0, 3, 4, 5, 6)]
        if not all(type(n) is int and -(1 << 62) < n < 1 << 62 for n in numbers):
            return []
        created, seq, p2p_seq, inputs, outputs = numbers
        source, _, kind = call[2].rpartition(":")
        found.append(Note(created, call[1], kind, source == "python", seq, p2p_seq, inputs, outputs, call[7]))
    return sorted(found)


def _args(note: Note) -> Args:
    title = _TITLE.match(note.kind)
    return Args(
        collective=title["kind"] if title else note.kind,
        group_name=note.group,
        place=int(title["to"]) if title else -1,
        seq=-1 if title else note.seq,
        in_elements=note.in_elements,
        out_elements=note.out_elements,
        dtype=note.dtype or None,
    )


def _issued(notes: list[Note]) -> list[tuple[Note, list[Note]]]:
    """Return calls that were issued alone or as one, with the pieces of the latter.

    Pieces have the sequence numbers of the coalesced call that ends them; any other call increments one of the two
    numbers.
    """
    found: list[tuple[Note, list[Note]]] = []
    for note in notes:
        pieces: list[Note] = []
        if note.kind == _COALESCED:
            while found and not found[-1][1] and _same(found[-1][0], note):
                pieces.insert(0, found.pop()[0])
        found.append((note, pieces))
    return found


def _same(one: Note, other: Note) -> bool:
    numbers = one.seq, one.p2p_seq
    return (one.group, *numbers) == (other.group, other.seq, other.p2p_seq) and one.kind != _COALESCED


def of_kernels(events: Events, kernels: I64, bare: I64, notes: list[Note]) -> dict[int, list[Args]]:
    """Return the notes of kernels without arguments of their own.

    A note belongs to a kernel if each is the other's nearest in time of issue, corrected by the usual difference.

    Args:
        events: all columns, ``launch`` included.
        kernels: rows of all communication kernels.
        bare: those of which nothing else is known.
        notes: of the calls, in order of time.

    Returns:
        Kernel row -> its pieces in the order in which they were issued; one, if it was issued alone.
    """
    issued = _issued([note for note in notes if not note.by_python])
    launched = kernels[events.launch[kernels] >= 0]
    if not issued or not len(launched) or not len(bare):
        return {}
    created = np.array([note.created for note, _ in issued], np.int64)
    at = events.start[events.launch[launched]]
    last = np.searchsorted(created, at + _HOST_CLOCK_NS, side="right") - 1
    between = at[last >= 0] - created[last[last >= 0]]
    if not len(between):
        return {}
    usual = int(np.median(between))
    note = _nearest(created + usual, at)
    kernel = _nearest(at, created + usual)
    mutual = kernel[note] == np.arange(len(at))
    note_of = dict(zip(launched[mutual].tolist(), note[mutual].tolist(), strict=True))
    wanted = set(bare.tolist())
    return {row: [_args(p) for p in issued[n][1] or issued[n][:1]] for row, n in note_of.items() if row in wanted}


def _nearest(values: I64, wanted: I64) -> I64:
    """Return the index of the nearest value for each wanted time; values in any order."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    right = np.searchsorted(ordered, wanted).clip(1, max(len(ordered) - 1, 1))
    right = np.minimum(right, len(ordered) - 1)
    left = (right - 1).clip(0)
    closer = np.abs(ordered[left] - wanted) <= np.abs(ordered[right] - wanted)
    return np.asarray(order[np.where(closer, left, right)])


def of_host_calls(
    events: Events, strings: list[str], rows: I64, kinds: list[str], notes: list[Note]
) -> list[Args | None]:
    """Return the notes of the calls of a backend that works on threads of its own, a few per group.

    A thread of the backend works for one group. It is the one whose notes are nearest before most of the thread's
    calls; the calls of a group begin in the order in which they were issued. Sends and receives run on the thread that
    issues them, for any group, at the time of issue.

    Args:
        events: all columns.
        strings: texts of the name codes.
        rows: of the calls, in order of start.
        kinds: of the calls, lower case and without underscores.
        notes: of the calls, in order of time.
    """
    found: list[Args | None] = [None] * len(rows)
    notes = [note for note in notes if note.kind != _COALESCED]
    if not len(rows) or not notes:
        return found
    begun = events.start[rows].tolist()
    threads = list(zip(events.pid[rows].tolist(), events.tid[rows].tolist(), strict=True))
    issued = _issued_at(events, strings, notes)
    plain = [note.kind.partition(" ")[0].lower().replace("_", "") for note in notes]
    at_once = _issuing(events, strings)
    votes: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    taken: set[int] = set()
    for number, (thread, start, kind) in enumerate(zip(threads, begun, kinds, strict=True)):
        place = int(np.searchsorted(issued, start, side="right")) - 1
        while place >= 0 and plain[place] != kind:
            place -= 1
        if place < 0:
            continue
        if thread not in at_once:
            votes[thread][notes[place].group] += 1
        elif place not in taken:
            found[number] = _args(notes[place])
            taken.add(place)
    group_of = {thread: said.most_common(1)[0][0] for thread, said in votes.items()}
    for group in set(group_of.values()):
        mine = [i for i, thread in enumerate(threads) if group_of.get(thread) == group]
        theirs = [n for n, note in enumerate(notes) if note.group == group]
        pairs = _in_order([(begun[i], kinds[i]) for i in mine], [(int(issued[n]), plain[n]) for n in theirs])
        for i, n in pairs:
            found[mine[i]] = _args(notes[theirs[n]])
    return found


def _issues(events: Events, strings: list[str]) -> NDArray[np.bool_]:
    """Select the operators that issue a call."""
    named = [c for c in np.unique(events.name).tolist() if _ISSUE.match(strings[c]) and "wait" not in strings[c]]
    return np.asarray((events.category == Category.CPU_OP) & np.isin(events.name, named))


def _issuing(events: Events, strings: list[str]) -> set[tuple[int, int]]:
    """Return (process, thread) of those that issue calls."""
    rows = np.flatnonzero(_issues(events, strings))
    return set(zip(events.pid[rows].tolist(), events.tid[rows].tolist(), strict=True))


def _issued_at(events: Events, strings: list[str], notes: list[Note]) -> I64:
    """Return when each note's call was issued, on the clock of the trace: corrected by the usual delay of notes after
    the operator that issues a call. Kineto's host times and CLOCK_REALTIME differ by some 10 us, and calls may begin as
    soon."""
    created = np.array([note.created for note in notes], np.int64)
    issues = events.start[_issues(events, strings)]
    if not len(issues):
        return created
    return created - int(np.median(created - issues[_nearest(issues, created)]))


def _in_order(calls: list[tuple[int, str]], notes: list[tuple[int, str]]) -> list[tuple[int, int]]:
    """Return pairs of indices of calls and notes of one group: all in order, or each call with the last note before
    it."""
    fits = [call[1] == note[1] and call[0] >= note[0] for call, note in zip(calls, notes, strict=False)]
    if len(calls) == len(notes) and all(fits):
        return [(i, i) for i in range(len(calls))]
    pairs, place = [], 0
    for i, (start, kind) in enumerate(calls):
        last = -1
        for n in range(place, len(notes)):
            if notes[n][0] > start:
                break
            last = n if notes[n][1] == kind else last
        if last >= 0:
            pairs.append((i, last))
            place = last + 1
    return pairs
