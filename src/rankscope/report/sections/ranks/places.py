"""Sets of ranks that share something which can be slow by itself: what they have in common, in the middle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import mean, median
from typing import NamedTuple

from rankscope.listing import some_ranks
from rankscope.records.report import ClusterReport
from rankscope.report.common.cells import Cell, Column, Row, Table, assemble, metric, numbers, text
from rankscope.report.common.metrics import Metric
from rankscope.report.common.section import Section, Variables, tables

__all__ = ["METRICS", "SECTION", "places"]

FEW_RANKS = 16
"""So many are looked over rank by rank, above in the page."""
SHOWN = 32

_MIDDLE = "Of each rank the median over its steps, then the median over the ranks of the place."
METRICS: dict[str, Metric] = {
    "place.cost_ms": Metric(
        "Places",
        "Cost",
        "ms per step",
        "What its ranks cost the job, by replay: of each rank the mean over its steps, then the median over the ranks.",
        "Ranks that are late together have nearly the same cost each, which is that of all of them.",
    ),
    "place.lateness_ms": Metric(
        "Places",
        "Late",
        "ms per step",
        f"How much later than the median of all ranks its ranks arrive at collectives, on average. {_MIDDLE}",
    ),
    "place.compute_ms": Metric("Places", "Compute", "ms per step", f"Compute on the device. {_MIDDLE}"),
    "place.others_compute_ms": Metric(
        "Places", "Compute elsewhere", "ms per step", "The same of all ranks that are not there."
    ),
    "place.wait_ms": Metric("Places", "Wait", "ms per step", f"Waiting of its ranks' collectives. {_MIDDLE}"),
}


class _Place(NamedTuple):
    kind: str
    name: str
    ranks: list[int]
    cost: float | None
    late: float | None
    compute: float
    elsewhere: float
    wait: float | None


def places(report: ClusterReport) -> Table:
    """One row a place, the costliest first; sets with the same ranks are one place."""
    rows = _measured(report)
    shown = sorted(rows, key=lambda p: (-(p.cost or 0.0), -(p.late or 0.0), p.kind, p.ranks))[:SHOWN]
    named = set(report.verdict.ranks)
    cells = assemble(
        [
            [text(p.kind) for p in shown],
            [text(p.name, 40) for p in shown],
            [Cell(some_ranks(p.ranks), p.ranks[0]) for p in shown],
            numbers([p.cost for p in shown]),
            numbers([p.late for p in shown]),
            numbers([p.compute for p in shown]),
            numbers([p.elsewhere for p in shown]),
            numbers([p.wait for p in shown]),
        ]
    )
    heads = [Column("What they share"), Column("Name"), Column("Ranks"), *(metric(own) for own in METRICS.values())]
    marks = ["named" if named and set(p.ranks) <= named else "" for p in shown]
    left = len(rows) - len(shown)
    note = f"{left} more places, which cost less, are left out." if left > 0 else ""
    return Table("places", heads, [Row(c, mark=m) for c, m in zip(cells, marks, strict=True)], note)


def _measured(report: ClusterReport) -> list[_Place]:
    cost: dict[int, list[float]] = defaultdict(list)
    late: dict[int, list[float]] = defaultdict(list)
    compute: dict[int, list[float]] = defaultdict(list)
    wait: dict[int, list[float]] = defaultdict(list)
    for row in report.steps:
        compute[row.rank].append(row.compute_ms)
        if row.cost_ms is not None:
            cost[row.rank].append(row.cost_ms)
        if row.lateness_ms is not None:
            late[row.rank].append(row.lateness_ms)
        if row.wait_ms is not None:
            wait[row.rank].append(row.wait_ms)
    costs = {rank: mean(values) for rank, values in cost.items()}
    middle = [{rank: median(values) for rank, values in of.items()} for of in (late, compute, wait)]
    found = []
    for kind, name, members in _joined(_sets(report)):
        ranks = [rank for rank in members if rank in middle[1]]
        if not 1 < len(ranks) < len(middle[1]):
            continue
        inside = set(ranks)
        others = [value for rank, value in middle[1].items() if rank not in inside]
        own = [[of[rank] for rank in ranks if rank in of] for of in middle]
        of_cost = [costs[rank] for rank in ranks if rank in costs]
        cost_ms, late_ms, wait_ms = (median(values) if values else None for values in (of_cost, own[0], own[2]))
        found.append(_Place(kind, name, ranks, cost_ms, late_ms, median(own[1]), median(others), wait_ms))
    return found


def _joined(sets: Sequence[tuple[str, str, Sequence[int]]]) -> list[tuple[str, str, Sequence[int]]]:
    """Return one set for all with the same ranks, with the kinds and names of all: a host, and its tensor-parallel
    group."""
    same: dict[tuple[int, ...], list[tuple[str, str]]] = defaultdict(list)
    for kind, name, members in sets:
        same[tuple(members)].append((kind, name))
    return [
        (", ".join(kind for kind, _ in named), ", ".join(name for _, name in named), members)
        for members, named in same.items()
    ]


def _sets(report: ClusterReport) -> list[tuple[str, str, Sequence[int]]]:
    """Hosts, places on every host (rails), and process groups that the job gave a name: stages, and positions in
    them."""
    hosts: dict[str, list[int]] = defaultdict(list)
    for row in sorted(report.ranks, key=lambda r: r.rank):
        if row.host is not None:
            hosts[row.host].append(row.rank)
    found: list[tuple[str, str, Sequence[int]]] = [("host", name, ranks) for name, ranks in hosts.items()]
    if len(hosts) > 1 and len({len(ranks) for ranks in hosts.values()}) == 1:
        found += [
            ("place on each host", str(n), sorted(own)) for n, own in enumerate(zip(*hosts.values(), strict=True))
        ]
    groups = {(r.group, tuple(r.ranks)) for r in report.groups if any(letter.isalpha() for letter in r.group)}
    return found + [("process group", name, ranks) for name, ranks in sorted(groups)]


def _build(report: ClusterReport) -> Variables | None:
    if len(report.ranks) <= FEW_RANKS:
        return None
    lead = (
        "Ranks that share a host, a place on every host (and so a switch), a stage or a position in a tensor-parallel "
        "group: where all of one are late together, look at what they share before the code."
    )
    table = places(report)
    return tables(lead, ("Places", table)) if table.rows else None


SECTION = Section("places", "Places", "Hosts, rails and positions", _build, METRICS, optional=True)
