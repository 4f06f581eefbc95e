"""Sets of ranks that share something that may be slow: a host or its parts, a process group, a place on every host."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.evidence import Place
from rankscope.records.rank import RankRecord
from rankscope.records.rows import RankSummary

__all__ = ["find_places"]


def find_places(
    windows: Sequence[WindowResult], ranks: Sequence[RankSummary], records: Sequence[RankRecord] = ()
) -> list[Place]:
    """Return the sets of at least two ranks with a usable trace, but not of all, in the order of preference for naming.

    Hosts and their parts come first (NUMA nodes, devices joined by NVLink). Process groups that the job named follow
    (``mesh_dp``: the ranks of one stage or of one tensor-parallel position) with a name that no other group has, and
    then the ranks with the same place on every host, which share a switch (a rail): by their network adapter, else by
    their position. Where groups share their name, as those of a dimension of a mesh do, the ranks with one position in
    all of them come next (a stage, a tensor-parallel position), and such a group last: its name does not tell which is
    meant. Of sets with the same ranks the first one is kept.
    """
    usable = sorted(r.rank for r in ranks if r.compute_pct is not None)
    hosts: dict[str, list[int]] = defaultdict(list)
    for row in sorted(ranks, key=lambda r: r.rank):
        if row.host is not None:
            hosts[row.host].append(row.rank)
    placed = {record.rank: record for record in records if record.place is not None}
    found = [Place(kind="host", name=host, ranks=members) for host, members in hosts.items()]
    found += _parts(placed)
    groups = _groups(windows)
    often = Counter(place.name for place in groups)
    found += [place for place in groups if often[place.name] == 1]
    if len(hosts) > 1:
        found += _adapters(placed)
    if len(hosts) > 1 and len({len(members) for members in hosts.values()}) == 1:
        by_position = enumerate(zip(*hosts.values(), strict=True))
        found += [Place(kind="rail", name=str(position), ranks=sorted(members)) for position, members in by_position]
    found += _positions(windows)
    found += [place for place in groups if often[place.name] > 1]
    kept: dict[tuple[int, ...], Place] = {}
    for place in found:
        place.ranks = [r for r in place.ranks if r in usable]
        if 1 < len(place.ranks) < len(usable):
            kept.setdefault(tuple(place.ranks), place)
    return list(kept.values())


def _parts(placed: dict[int, RankRecord]) -> list[Place]:
    nodes: dict[tuple[str, int], list[int]] = defaultdict(list)
    joined: dict[tuple[str, frozenset[str]], list[int]] = defaultdict(list)
    for rank, record in sorted(placed.items()):
        if record.place is not None and record.place.numa is not None:
            nodes[record.host, record.place.numa].append(rank)
        if record.place is not None and record.place.nvlink and record.device_uuid is not None:
            devices = {record.device_uuid, *record.place.nvlink}
            joined[record.host, frozenset(device.lower().removeprefix("gpu-") for device in devices)].append(rank)
    found = [
        Place(kind="numa", name=f"{node} of host {host}", ranks=members) for (host, node), members in nodes.items()
    ]
    return found + [Place(kind="nvlink", name=host, ranks=members) for (host, _), members in joined.items()]


def _adapters(placed: dict[int, RankRecord]) -> list[Place]:
    adapters: dict[str, list[int]] = defaultdict(list)
    for rank, record in sorted(placed.items()):
        if record.place is not None and len(record.place.nics) == 1:
            adapters[record.place.nics[0]].append(rank)
    return [Place(kind="adapter", name=name, ranks=members) for name, members in sorted(adapters.items())]


def _groups(windows: Sequence[WindowResult]) -> list[Place]:
    named = {
        (c.name, c.ranks)
        for window in windows
        for c in window.matched.channels
        if not c.point_to_point and any(letter.isalpha() for letter in c.name)
    }
    return [Place(kind="group", name=name, ranks=list(members)) for name, members in sorted(named)]


def _positions(windows: Sequence[WindowResult]) -> list[Place]:
    """Return the ranks with one position in each group of a dimension of the job's mesh: groups of one name and size of
    which no rank is in two, as ``init_device_mesh`` makes and describes them."""
    dimensions: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for group in {group for window in windows for view in window.views for group in view.trace.groups}:
        if group.described and len(group.ranks) > 1:
            dimensions[group.title].add(group.ranks)
    return [
        Place(kind="mesh", name=f"{position} of {name}", ranks=sorted(members))
        for name, groups in sorted(dimensions.items())
        if len(groups) > 1
        and len({len(ranks) for ranks in groups}) == 1
        and len(set().union(*groups)) == sum(map(len, groups))
        for position, members in enumerate(zip(*groups, strict=True))
    ]
