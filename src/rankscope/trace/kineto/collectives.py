"""The table of communication calls: which events they are, and what their arguments say.

Arguments stand on the kernel when Kineto has them; else on the ``record_param_comms`` operator with the same
External id, or that encloses the launch; on a CPU-only trace on the one nested in (or paired with) the backend's
operator. Where nothing is said the group is unknown, never guessed, unless the rank is in one group only.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from rankscope.trace.columns import Category, Collectives, Events, Group
from rankscope.trace.kineto import meta, numbers
from rankscope.trace.kineto.events import NO_ARGS, Args
from rankscope.trace.libraries import LIBRARIES
from rankscope.trace.names import is_communication

__all__ = ["build_collectives"]

_RECORD = "record_param_comms"
_BACKEND = re.compile(rf"({'|'.join(row.prefix for row in LIBRARIES if row.prefix)}):(.+)")
_ON_HOST = {row.prefix for row in LIBRARIES if row.on_host}
_OWN_KINDS = tuple((re.compile(row.kernels, re.IGNORECASE), row.kinds) for row in LIBRARIES if row.kinds)
_KERNEL_KINDS = (
    ("reducescatter", "reduce_scatter"),
    ("reduce_scatter", "reduce_scatter"),
    ("allreduce", "allreduce"),
    ("all_reduce", "allreduce"),
    ("cross_device_reduce", "allreduce"),
    ("allgather", "allgather"),
    ("all_gather", "allgather"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("sendrecv", "sendrecv"),
    ("reduce", "reduce"),
)


def build_collectives(
    events: Events, strings: list[str], args: dict[int, Args], known: dict[str, Group]
) -> tuple[Collectives, list[Group]]:
    """Collectives of a rank and its groups.

    Args:
        events: all columns, ``launch`` included.
        strings: what name codes mean.
        args: event index -> arguments, for every event that names its collective.
        known: ``pg_config`` by group name.
    """
    rows, on_device = _calls(events, strings)
    found = _by_kernel(events, strings, rows, args) if on_device else _by_operator(events, strings, rows, args)
    kinds = _kinds_of_names(events, rows, found)
    # a rank that is in one group only can communicate in no other
    only = next(iter(known.values())) if len(known) == 1 else None
    groups: dict[tuple[str, tuple[int, ...]], int] = {}
    listed: list[Group] = []
    columns: list[tuple[str, int, int, str, int, int, str, int]] = []
    for row, said in zip(rows.tolist(), found, strict=True):
        name = int(events.name[row])
        call = said or NO_ARGS
        group = _group(call, known) or only
        index = -1
        if group is not None:
            index = groups.setdefault((group.name, group.ranks), len(listed))
            if index == len(listed):
                listed.append(group)
        seq, inputs, outputs, source, target = numbers.integers(
            [call.seq, call.in_elements, call.out_elements, call.source_rank, call.target_rank]
        ).tolist()
        peer = target if target >= 0 else source
        kind = _text(call.collective).lower() or kinds.get(name) or _kind_of_name(strings[name])
        columns.append((kind, index, seq, _text(call.comms_id), inputs, outputs, _text(call.dtype), peer))
    kind_, group_, seq_, comms_, in_, out_, dtype_, peer_ = zip(*columns, strict=True) if columns else ((),) * 8
    listed += [g for g in known.values() if (g.name, g.ranks) not in groups]
    return (
        Collectives(
            rows.astype(np.int32),
            list(kind_),
            np.array(group_, np.int32),
            np.array(seq_, np.int64),
            list(comms_),
            np.array(in_, np.int64),
            np.array(out_, np.int64),
            list(dtype_),
            np.clip(np.array(peer_, np.int64), -1, np.iinfo(np.int32).max).astype(np.int32),
        ),
        listed,
    )


def _calls(events: Events, strings: list[str]) -> tuple[NDArray[np.int64], bool]:
    kernels = events.category == Category.KERNEL
    named = [c for c in np.unique(events.name[kernels]).tolist() if is_communication(strings[c])]
    rows = np.flatnonzero(kernels & np.isin(events.name, named))
    if len(rows):
        return rows, True
    host = np.isin(events.category, (Category.CPU_OP, Category.USER_ANNOTATION))
    # nccl: ranges only enqueue; they are the call itself on a backend that works on the CPU
    named = [
        c
        for c in np.unique(events.name[host]).tolist()
        if (m := _BACKEND.match(strings[c])) and m.group(1) in _ON_HOST and is_communication(strings[c])
    ]
    return np.flatnonzero(host & np.isin(events.name, named)), False


def _kinds_of_names(events: Events, rows: NDArray[np.int64], found: list[Args | None]) -> dict[int, str]:
    """Kernel name -> kind, where all kernels of the name that say their kind say the same.

    Kernels launched before the window have no arguments; their twins inside it do.
    """
    said: dict[int, set[str]] = {}
    for row, call in zip(rows.tolist(), found, strict=True):
        if call is not None and _text(call.collective):
            said.setdefault(int(events.name[row]), set()).add(_text(call.collective).lower())
    return {name: next(iter(kinds)) for name, kinds in said.items() if len(kinds) == 1}


def _by_kernel(events: Events, strings: list[str], rows: NDArray[np.int64], args: dict[int, Args]) -> list[Args | None]:
    operators = _records(events, strings, args)
    by_id = {int(events.external_id[i]): args[i] for i in operators.tolist() if events.external_id[i] >= 0}
    found: list[Args | None] = []
    for row in rows.tolist():
        call = args.get(row) or by_id.get(int(events.external_id[row]))
        launch = int(events.launch[row])
        if call is None and launch >= 0:
            call = by_id.get(int(events.external_id[launch])) or _enclosing(events, operators, launch, args)
        found.append(call)
    return found


def _by_operator(
    events: Events, strings: list[str], rows: NDArray[np.int64], args: dict[int, Args]
) -> list[Args | None]:
    operators = _records(events, strings, args)
    found: list[Args | None] = [args.get(row) for row in rows.tolist()]
    if None not in found or not len(operators):
        return found
    named = [_plain(_kind_of_name(strings[events.name[row]])) for row in rows.tolist()]
    said = [args[i] for i in operators.tolist()]
    if named == [_plain(str(a.collective)) for a in said]:
        return list(said)  # the same calls in the same order: the k-th belongs to the k-th
    for place, row in enumerate(rows.tolist()):
        inside = operators[
            (events.tid[operators] == events.tid[row])
            & (events.start[operators] >= events.start[row])
            & (events.end[operators] <= events.end[row])
        ]
        if found[place] is None and len(inside):
            found[place] = args[int(inside[0])]
        elif found[place] is None:
            found[place] = _enclosing(events, operators, row, args)
    return found


def _records(events: Events, strings: list[str], args: dict[int, Args]) -> NDArray[np.int64]:
    return np.array([i for i in sorted(args) if strings[events.name[i]] == _RECORD], np.int64)


def _enclosing(events: Events, operators: NDArray[np.int64], row: int, args: dict[int, Args]) -> Args | None:
    """Innermost ``record_param_comms`` of the same thread that contains the start of ``row``."""
    before = operators[: np.searchsorted(events.start[operators], events.start[row], side="right")]
    for i in before[-64:][::-1].tolist():
        same = events.tid[i] == events.tid[row] and events.pid[i] == events.pid[row]
        if same and events.start[i] + events.duration[i] >= events.start[row]:
            return args[i]
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


def _kind_of_name(name: str) -> str:
    backend = _BACKEND.match(name)
    if backend:
        kind = backend.group(2).lower()
        return kind.replace("all_reduce", "allreduce").replace("all_gather", "allgather")
    lower = name.lower()
    own = next((kinds for kernels, kinds in _OWN_KINDS if kernels.search(name)), ())
    if kind := next((kind for part, kind in own if part in lower), None):
        return kind
    return next((kind for part, kind in _KERNEL_KINDS if part in lower), "unknown")
