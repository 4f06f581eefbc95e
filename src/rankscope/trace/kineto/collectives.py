"""The table of communication calls: which events they are, and their arguments.

Kineto records arguments on the kernel if it has them; else on the ``record_param_comms`` operator with the same
External id, or that encloses the launch; for calls that were issued as one, on those before the launch
(:mod:`~rankscope.trace.kineto.coalesced`); on a CPU-only trace on the one nested in (or paired with) the backend's
operator; else they are in the agent's notes (:mod:`~rankscope.trace.kineto.call_notes`). Without any of these the group
is unknown and not guessed, unless the rank is in one group only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankscope.trace import peers
from rankscope.trace.columns import Category, Collectives, Events, Group, Piece
from rankscope.trace.kineto import meta, numbers
from rankscope.trace.kineto.call_notes import Note, of_host_calls, of_kernels
from rankscope.trace.kineto.coalesced import merged, pieces_of, titled
from rankscope.trace.kineto.events import NO_ARGS, Args
from rankscope.trace.kineto.host_calls import issues_of
from rankscope.trace.libraries import LIBRARIES
from rankscope.trace.names import function, is_communication, is_known_compute

__all__ = ["build_collectives", "kind_of_name"]

_RECORD = "record_param_comms"
_NO_CALLS = {"wait", "start_coalescing", "startcoalescing", "end_coalescing", "endcoalescing", "init"}
_MESSAGES = {"send": True, "isend": True, "recv": False, "irecv": False, "recvanysource": False}
"""``Collective name`` of point-to-point calls -> whether it sends."""
_MOST_RANKS = 1 << 20
_HOST_COPY = re.compile(r"HtoD|DtoH|HtoH|HostTo|ToHost", re.IGNORECASE)
_BACKEND = re.compile(rf"({'|'.join(row.prefix for row in LIBRARIES if row.prefix)}):(.+)")
_ON_HOST = {row.prefix for row in LIBRARIES if row.on_host}
_NEVER_ON_DEVICE = {row.prefix for row in LIBRARIES if row.on_host and not row.kernels}
_OWN_KINDS = tuple((re.compile(row.kernels, re.IGNORECASE), row.kinds) for row in LIBRARIES if row.kernels)
_KERNEL_KINDS = (
    ("reducescatter", "reduce_scatter"),
    ("reduce_scatter", "reduce_scatter"),
    ("allreduce", "allreduce"),
    ("all_reduce", "allreduce"),
    ("allgather", "allgather"),
    ("all_gather", "allgather"),
    ("alltoall", "all_to_all"),
    ("all_to_all", "all_to_all"),
    ("all2all", "all_to_all"),
    ("broadcast", "broadcast"),
    ("sendrecv", "sendrecv"),
    ("reduce", "reduce"),
)


def build_collectives(
    events: Events,
    strings: list[str],
    args: dict[int, Args],
    known: dict[str, Group],
    own: int | None = None,
    notes: Sequence[Note] = (),
) -> tuple[Collectives, list[Group], str]:
    """Return the collectives of a rank, its groups, and how peers are numbered (:mod:`rankscope.trace.peers`).

    Args:
        events: all columns, ``launch`` included.
        strings: texts of the name codes.
        args: event index -> arguments, for every event that names its collective.
        known: ``pg_config`` by group name.
        own: the rank, if known.
        notes: the agent's notes of the calls, in order of time.
    """
    on_device = _device_calls(events, strings, args)
    on_host = _host_calls(events, strings, beside_device=bool((events.stream >= 0).any()))
    found, pieces, free = _by_kernel(events, strings, on_device, args, list(notes))
    found += _by_operator(events, strings, on_host, args, free, list(notes))
    if (events.stream >= 0).any():
        events.launch[on_host] = issues_of(events, strings, on_host, free)
    rows = np.concatenate((on_device, on_host))
    order = np.argsort(rows, kind="stable")
    rows, found = rows[order], [found[i] for i in order.tolist()]
    pieces = {place: pieces[i] for place, i in enumerate(order.tolist()) if i in pieces}
    kinds = _kinds_of_names(events, rows, found)
    # A rank that is in one group only can communicate in no other.
    only = next(iter(known.values())) if len(known) == 1 else None
    groups: dict[tuple[str, tuple[int, ...]], int] = {}
    listed: list[Group] = []
    columns: list[tuple[str, int, int, str, int, int, str]] = []
    messages: list[list[_Message]] = []
    for place, (row, said) in enumerate(zip(rows.tolist(), found, strict=True)):
        name = int(events.name[row])
        call = said or NO_ARGS
        group = _group(call, known) or only
        index = -1
        if group is not None:
            index = groups.setdefault((group.name, group.ranks), len(listed))
            if index == len(listed):
                listed.append(group)
        seq, inputs, outputs = numbers.integers([call.seq, call.in_elements, call.out_elements]).tolist()
        stated = _text(call.collective).lower()
        kind = "" if stated.endswith("coalesced") else stated  # a launch of several calls, which are not named
        kind = kind or kinds.get(name) or kind_of_name(strings[name])
        columns.append((kind, index, seq, _text(call.comms_id), inputs, outputs, _text(call.dtype)))
        messages.append([m for p in pieces.get(place, [call]) if (m := _message(p, known, only)) is not None])
    how = peers.numbering(((m.ranks, m.number, m.place) for several in messages for m in several), own)
    piece_of = {m: _piece(m, how) for m in {m for several in messages for m in several}}
    parts = [tuple(piece_of[m] for m in several) for several in messages]
    kind_, group_, seq_, comms_, in_, out_, dtype_ = zip(*columns, strict=True) if columns else ((),) * 7
    listed += [g for g in known.values() if (g.name, g.ranks) not in groups]
    calls = Collectives(
        rows.astype(np.int32),
        list(kind_),
        np.array(group_, np.int32),
        np.array(seq_, np.int64),
        list(comms_),
        np.array(in_, np.int64),
        np.array(out_, np.int64),
        list(dtype_),
        np.array([peers.peer_of(p) for p in parts], np.int32),
        parts,
    )
    return calls, listed, how


class _Message(NamedTuple):
    """One send or receive as recorded in the trace."""

    sends: bool
    ranks: tuple[int, ...]
    number: int
    place: int
    elements: int


def _message(call: Args, known: dict[str, Group], only: Group | None) -> _Message | None:
    kind = _text(call.collective).lower()
    if kind not in _MESSAGES:
        return None
    sends = _MESSAGES[kind]
    number, other, place, start, stride, elements, size = numbers.integers(
        [
            *((call.target_rank, call.source_rank) if sends else (call.source_rank, call.target_rank)),
            *(call.place, call.rank_start, call.rank_stride),
            call.in_elements if sends else call.out_elements,
            call.group_size,
        ]
    ).tolist()
    group = _group(call, known) or only
    ranks = group.ranks if group is not None else ()
    if not ranks and start >= 0 and stride > 0 and 1 < size < _MOST_RANKS:
        ranks = tuple(range(start, start + size * stride, stride))
    return _Message(sends, ranks, _peer(number if number >= 0 else other), _peer(place), elements)


def _peer(number: int) -> int:
    return number if 0 <= number < 1 << 31 else -1


def _piece(message: _Message, how: str) -> Piece:
    return Piece(message.sends, peers.resolved(message.ranks, message.number, message.place, how), message.elements)


def _device_calls(events: Events, strings: list[str], args: dict[int, Args]) -> NDArray[np.int64]:
    """Return the rows of the communication calls that ran on a device.

    With an unknown name the record decides: a kernel with arguments of its own, and kernels and copies that a
    ``record_param_comms`` launched itself (copy engines communicate by copies between devices).
    """
    kernels = events.category == Category.KERNEL
    named = [c for c in np.unique(events.name[kernels]).tolist() if is_communication(strings[c])]
    chosen = kernels & np.isin(events.name, named)
    work = kernels | ((events.category == Category.GPU_MEMCPY) & ~_to_host(events, strings))
    said = np.array([i for i in args if _text(args[i].collective).lower() not in _NO_CALLS], np.int64)
    chosen[said[kernels[said]]] = True
    ids = events.external_id[_records(events, strings, args)]
    ids = ids[ids >= 0]
    chosen |= work & np.isin(events.external_id, ids)
    launch = events.launch
    chosen |= work & (launch >= 0) & np.isin(events.external_id[launch.clip(0)], ids)
    return np.flatnonzero(chosen & ~_named_by(events, strings, is_known_compute))


def _host_calls(events: Events, strings: list[str], *, beside_device: bool) -> NDArray[np.int64]:
    """Return the rows of the calls of backends that work on the host; in a trace with a device, only of those that
    never use it."""
    prefixes = _NEVER_ON_DEVICE if beside_device else _ON_HOST
    host = np.isin(events.category, (Category.CPU_OP, Category.USER_ANNOTATION))
    # nccl: ranges only enqueue a call; on a backend that works on the CPU they are the call itself.
    named = [
        c
        for c in np.unique(events.name[host]).tolist()
        if (m := _BACKEND.match(strings[c])) and m.group(1) in prefixes and is_communication(strings[c])
    ]
    return np.flatnonzero(host & np.isin(events.name, named))


def _to_host(events: Events, strings: list[str]) -> NDArray[np.bool_]:
    """Select copies from or to the host's memory, which libraries make for their set-up."""
    return _named_by(events, strings, lambda name: _HOST_COPY.search(name) is not None)


def _named_by(events: Events, strings: list[str], test: Callable[[str], bool]) -> NDArray[np.bool_]:
    passes = [c for c in np.unique(events.name).tolist() if test(strings[c])]
    return np.isin(events.name, passes)


def _kinds_of_names(events: Events, rows: NDArray[np.int64], found: list[Args | None]) -> dict[int, str]:
    """Return kernel name -> kind, if all kernels of the name with a known kind have the same.

    Kernels launched before the window have no arguments, while kernels of the same name inside it do. Sends and
    receives are one kernel.
    """
    said: dict[int, set[str]] = {}
    for row, call in zip(rows.tolist(), found, strict=True):
        if call is not None and _text(call.collective) and not _text(call.collective).lower().endswith("coalesced"):
            said.setdefault(int(events.name[row]), set()).add(_text(call.collective).lower())
    return {name: next(iter(kinds)) for name, kinds in said.items() if len(kinds) == 1 and not kinds & _MESSAGES.keys()}


def _by_kernel(
    events: Events, strings: list[str], rows: NDArray[np.int64], args: dict[int, Args], notes: list[Note]
) -> tuple[list[Args | None], dict[int, list[Args]], NDArray[np.int64]]:
    """Return the arguments of each kernel, the pieces of those that were issued as one (index into ``rows`` -> pieces),
    and the records that belong to no kernel."""
    operators = _records(events, strings, args)
    by_id = {int(events.external_id[i]): i for i in operators.tolist() if events.external_id[i] >= 0}
    found: list[Args | None] = []
    taken: set[int] = set()
    for row in rows.tolist():
        launch = int(events.launch[row])
        owner = by_id.get(int(events.external_id[row]))
        if owner is None and launch >= 0:
            owner = by_id.get(int(events.external_id[launch]))
            owner = _enclosing(events, operators, launch) if owner is None else owner
        if owner is not None:
            taken.add(owner)
        found.append(args.get(row) or (None if owner is None else args[owner]))
    bare = np.array([row for row, call in zip(rows.tolist(), found, strict=True) if call is None], np.int64)
    free = np.array([i for i in operators.tolist() if i not in taken], np.int64)
    issued = pieces_of(events, strings, bare, free)
    titles = titled(events, strings, bare)
    unsaid = [row for row in bare.tolist() if row not in issued and row not in titles]
    noted = of_kernels(events, rows, np.array(unsaid, np.int64), notes)
    pieces: dict[int, list[Args]] = {}
    for place, row in enumerate(rows.tolist()):
        if row in issued:
            pieces[place] = [args[i] for i in issued[row]]
            found[place] = merged(pieces[place])
        elif row in noted:
            pieces[place] = noted[row]
            found[place] = merged(pieces[place])
        elif row in titles:
            found[place] = titles[row]
    used = {i for rows_of in issued.values() for i in rows_of}
    return found, pieces, np.array([i for i in free.tolist() if i not in used], np.int64)


def _by_operator(
    events: Events,
    strings: list[str],
    rows: NDArray[np.int64],
    args: dict[int, Args],
    operators: NDArray[np.int64],
    notes: list[Note],
) -> list[Args | None]:
    """Return the arguments of each call of a backend on the host; ``operators``: records that belong to no kernel."""
    found: list[Args | None] = [args.get(row) for row in rows.tolist()]
    if None not in found:
        return found
    named = [_plain(kind_of_name(strings[events.name[row]])) for row in rows.tolist()]
    if not len(operators):
        noted = of_host_calls(events, strings, rows, named, notes)
        return [arguments or note for arguments, note in zip(found, noted, strict=True)]
    arguments = [args[i] for i in operators.tolist()]
    if named == [_plain(str(a.collective)) for a in arguments]:
        return list(arguments)  # the same calls in the same order: the k-th belongs to the k-th
    for place, row in enumerate(rows.tolist()):
        inside = operators[
            (events.tid[operators] == events.tid[row])
            & (events.start[operators] >= events.start[row])
            & (events.end[operators] <= events.end[row])
        ]
        if found[place] is None and len(inside):
            found[place] = args[int(inside[0])]
        elif found[place] is None:
            owner = _enclosing(events, operators, row)
            found[place] = None if owner is None else args[owner]
    return found


def _records(events: Events, strings: list[str], args: dict[int, Args]) -> NDArray[np.int64]:
    """Select the records of calls; those that only wait for a call are none."""
    chosen = (i for i in sorted(args) if strings[events.name[i]] == _RECORD)
    return np.array([i for i in chosen if _text(args[i].collective).lower() not in _NO_CALLS], np.int64)


def _enclosing(events: Events, operators: NDArray[np.int64], row: int) -> int | None:
    """Row of the innermost ``record_param_comms`` of the same thread that contains the start of ``row``."""
    before = operators[: np.searchsorted(events.start[operators], events.start[row], side="right")]
    for i in before[-64:][::-1].tolist():
        same = events.tid[i] == events.tid[row] and events.pid[i] == events.pid[row]
        if same and events.start[i] + events.duration[i] >= events.start[row]:
            return int(i)
    return None


def _group(call: Args, known: dict[str, Group]) -> Group | None:
    name = _text(call.group_name)
    configured = known.get(name)
    ranks = meta.rank_list(call.group_ranks)
    if not ranks and configured is not None:
        ranks = configured.ranks
    if not ranks and not name:
        return None
    if not name:
        same = [g for g in known.values() if g.ranks == ranks]
        name = same[0].name if len(same) == 1 else ""
        configured = same[0] if len(same) == 1 else None
    description = _text(call.group_description) or (configured.description if configured else "")
    return Group(name, description, ranks)


def _text(value: object) -> str:
    return "" if value is None or isinstance(value, (list, dict)) else str(value)[:200]


def _plain(kind: str) -> str:
    return kind.lower().replace("_", "")


def kind_of_name(name: str) -> str:
    """Return the kind of a call by the name of its kernel or backend operator, ``unknown`` if the name does not show
    it."""
    backend = _BACKEND.match(name)
    if backend:
        kind = backend.group(2).lower()
        return kind.replace("all_reduce", "allreduce").replace("all_gather", "allgather")
    lower = function(name).lower()
    own = next((kinds for kernels, kinds in _OWN_KINDS if kernels.search(function(name))), ())
    if kind := next((kind for part, kind in own if part in lower), None):
        return kind
    return next((kind for part, kind in _KERNEL_KINDS if part in lower), "unknown")
