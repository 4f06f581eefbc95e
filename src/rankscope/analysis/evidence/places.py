"""Sets of ranks that share something that may be slow: a host, a process group, a position on every host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.evidence import Place
from rankscope.records.rows import RankSummary

__all__ = ["find_places"]


def find_places(windows: Sequence[WindowResult], ranks: Sequence[RankSummary]) -> list[Place]:
    """Return the sets of at least two ranks with a usable trace, but not of all, in the order of preference for naming.

    Hosts come first. Process groups that the job named follow (``mesh_dp``: the ranks of one stage or of one
    tensor-parallel position), and then the ranks with the same position on every host, which share a switch (a rail).
    """
    usable = sorted(r.rank for r in ranks if r.compute_pct is not None)
    hosts: dict[str, list[int]] = defaultdict(list)
    for row in sorted(ranks, key=lambda r: r.rank):
        if row.host is not None:
            hosts[row.host].append(row.rank)
    found = [Place(kind="host", name=host, ranks=members) for host, members in hosts.items()]
    found += _groups(windows)
    if len(hosts) > 1 and len({len(members) for members in hosts.values()}) == 1:
        by_position = enumerate(zip(*hosts.values(), strict=True))
        found += [Place(kind="rail", name=str(position), ranks=sorted(members)) for position, members in by_position]
    for place in found:
        place.ranks = [r for r in place.ranks if r in usable]
    return [place for place in found if 1 < len(place.ranks) < len(usable)]


def _groups(windows: Sequence[WindowResult]) -> list[Place]:
    named = {
        (c.name, c.ranks)
        for window in windows
        for c in window.matched.channels
        if not c.point_to_point and any(letter.isalpha() for letter in c.name)
    }
    return [Place(kind="group", name=name, ranks=list(members)) for name, members in sorted(named)]
