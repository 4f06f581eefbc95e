"""Whether two runs can be compared, and in which settings they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rankscope.compare.rows.work import PACE
from rankscope.compare.sides.noise import BETWEEN
from rankscope.compare.sides.side import Side, other_size
from rankscope.records.diff import DiffRow
from rankscope.records.rank_window import RankWindow
from rankscope.records.report import ClusterReport

__all__ = ["changed", "disturbed", "not_comparable", "other_job"]

LEAST_ALIKE = 0.5
"""Least share of the kinds of work (operator and shapes) that two runs of one model have in common. Below it, more of
their work is different than equal."""
LEAST_SAME_CALLS = 0.9
"""Least share of a step's calls that runs of different sizes have in common. One micro-batch more or less, of up to
nine, changes more of them; other shards of the same model change none."""
BUSY_PCT = 20.0
"""Per cent of ten seconds in which some task waited for a CPU; from here on the steps of a host-bound job follow the
load."""
OTHERS_PCT = 100 * BETWEEN["host_bound"]
"""Per cent of the job's CPUs that other processes may use, although tasks wait for a CPU. Threads get equal shares of a
CPU, so that others lengthen a step by this share at most: no more than runs of one program differ by."""
CONTENDED = "other load on the machine disturbed it"
DISTURBED = {"gpu_throttled": "a device was throttled", "cpu_throttled": "the CPU quota held it"}
"""Kinds of findings with which times depend more on the machine than on the program."""
SHARED_DEVICE = "contended-rank-"
"""Beginning of the ids of findings that another process uses a rank's device, or its cores."""


def not_comparable(before: Side, after: Side, *, scale: bool = False) -> list[str]:
    """Return why times of the two runs cannot show a change of the program, in words; empty if they can.

    Args:
        before: the older run.
        after: the newer one.
        scale: the number of ranks may differ.
    """
    return [
        *other_job(before, after, scale=scale),
        *disturbed(before.name, before.report),
        *disturbed(after.name, after.report),
    ]


def other_job(before: Side, after: Side, *, scale: bool = False) -> list[str]:
    """Return why the two are runs of different jobs, in words; with ``scale``, other than in their number of ranks."""
    found = []
    a, b = before.report.run, after.report.run
    sizes = other_size(before, after)
    if sizes is not None and not scale:
        found.append(f"{sizes} (diff --scale compares what each rank does)")
    elif sizes is not None:
        found += _other_share(before, after)
    if set(a.devices) != set(b.devices):
        found.append(f"other devices: {_listed(a.devices)} against {_listed(b.devices)}")
    ours, theirs = _communication(before), _communication(after)
    if sizes is not None and scale:
        ours, theirs = ({(kind, 0) for kind, _ in uses} for uses in (ours, theirs))
    if ours and theirs and not ours & theirs:
        found.append(f"other parallelism: {_listed(map(_said, ours))} against {_listed(map(_said, theirs))}")
    alike = _alike(before, after)
    if alike is not None and alike < LEAST_ALIKE:
        found.append(f"another model or batch: {100 * alike:.0f} % of the operators and their shapes are the same")
    return found


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(words)) or "none"


def _said(use: tuple[str, int]) -> str:
    return f"{use[0]} in groups of {use[1]}" if use[1] else use[0]


def _other_share(before: Side, after: Side) -> list[str]:
    """Return why a rank of one run does not have the same share of the work as one of a run of another size."""
    kinds = {kind for side in (before, after) for kind, _ in _communication(side)}
    if kinds & {"send", "recv"}:
        return ["which stage of a pipeline a rank has depends on the number of ranks"]
    calls = [{own.rank: _calls(own) for own in side.ranks if own.work.operator} for side in (before, after)]
    shares = {
        rank: (calls[0][rank] & calls[1][rank]).total() / (calls[0][rank] | calls[1][rank]).total()
        for rank in calls[0].keys() & calls[1].keys()
    }
    if not shares or max(shares.values()) >= LEAST_SAME_CALLS:
        return []
    rank = max(shares, key=lambda rank: shares[rank])
    one, other = (side[rank].total() for side in calls)
    return [f"another share of the work: rank {rank} makes {one:,} calls of operators a step against {other:,}"]


def _calls(own: RankWindow) -> Counter[str]:
    """Return the calls of each operator in a usual step; of kernels without one, by their name."""
    total = Counter[str]()
    for operator, name, count in zip(own.work.operator, own.work.name, own.work.count, strict=True):
        total[own.text(operator) or own.text(name)] += count
    steps = max(len(own.steps.number), 1)
    return Counter({name: round(count / steps) for name, count in total.items()})


def _communication(side: Side) -> set[tuple[str, int]]:
    """Return the kinds of collectives with the sizes of their groups."""
    return {
        (own.text(kind), size)
        for own in side.ranks
        for kind, size in set(zip(own.calls.kind, own.calls.size, strict=True))
    }


def _alike(before: Side, after: Side) -> float | None:
    """Return the share of common kinds of work, for the pair of ranks with the largest; None if unknown."""
    both = [{own.rank: own for own in side.ranks if own.work.operator} for side in (before, after)]
    shares: list[float] = []
    for rank in sorted(set(both[0]) & set(both[1])):
        one, other = _work(both[0][rank]), _work(both[1][rank])
        if not (any(shapes for _, shapes in one) and any(shapes for _, shapes in other)):
            one, other = {(name, "") for name, _ in one}, {(name, "") for name, _ in other}
        shares.append(len(one & other) / len(one | other))
        if shares[-1] == 1.0:
            break
    return max(shares, default=None)


def _work(own: RankWindow) -> set[tuple[str, str]]:
    kinds = set(zip(own.work.operator, own.work.name, own.work.shapes, strict=True))
    return {(own.text(operator) or own.text(name), own.text(shapes)) for operator, name, shapes in kinds}


def disturbed(name: str, report: ClusterReport) -> list[str]:
    """Return what slowed a run down besides its program, in sentences that begin with the run's name.

    A job with more threads than CPUs waits for itself: that repeats in the next run, and disturbs nothing.
    """
    kinds = {finding.kind for finding in report.findings} | {str(report.verdict.kind)}
    found = [f"{name}: {words}" for kind, words in DISTURBED.items() if kind in kinds]
    rows = [row for row in report.health if row.cpus is not None]
    shares = [row.others_cpu_pct for row in rows if row.others_cpu_pct is not None]
    alone = bool(shares) and len(shares) == len(rows) and max(shares) <= OTHERS_PCT
    shared = any(finding.id.startswith(SHARED_DEVICE) for finding in report.findings)
    if "contended" in kinds and (shared or not alone):
        found.insert(0, f"{name}: {CONTENDED}")
    pressure = max((row.pressure_cpu_pct for row in report.health if row.pressure_cpu_pct is not None), default=0.0)
    if pressure > BUSY_PCT and not alone:
        who = f", and other processes used {max(shares):.0f} % of the job's CPUs" if shares else ""
        found.append(
            f"{name}: tasks of its host waited for a CPU {pressure:.0f} % of the time (more than {BUSY_PCT:g}){who}"
        )
    return found


def other_pace(step: DiffRow, rows: Sequence[DiffRow]) -> list[str]:
    """Return, in words, that all kernels alike changed by as much as a step did: a difference that a clock or a
    neighbour makes as well as a program does."""
    pace = next((row for row in rows if row.name == PACE), None)
    if not step.told or step.change is None or pace is None or not pace.change or not pace.before:
        return []
    rest = step.change - pace.change
    if rest * step.change > 0 and abs(rest) > (step.noise or 0.0):
        return []
    percent = 100 * pace.change / pace.before
    alike = f"all kernels alike take {abs(percent):.0f} % {'longer' if percent > 0 else 'less'}"
    return [f"{alike}: another pace of the machine, or a setting for all of them (threads, clocks, versions)"]


def changed(before: Side, after: Side) -> list[str]:
    """Return the versions and settings that differ; those that are unknown for one of the runs are left out."""
    ours, theirs = before.report.run, after.report.run
    found = [
        f"{name} {ours.versions[name]} -> {theirs.versions[name]}"
        for name in sorted(set(ours.versions) & set(theirs.versions))
        if ours.versions[name] != theirs.versions[name]
    ]
    if ours.backend and theirs.backend and ours.backend != theirs.backend:
        found.append(f"backend {ours.backend} -> {theirs.backend}")
    if ours.command and theirs.command and ours.command != theirs.command:
        found.append("the command")
    for name, unit in (("power_limit_w", "W power limit"), ("sm_max_mhz", "MHz highest clock")):
        old, new = (sorted({getattr(row, name) for row in s.report.health} - {None}) for s in (before, after))
        if old and new and old != new:
            found.append(f"{', '.join(f'{n:g}' for n in old)} -> {', '.join(f'{n:g}' for n in new)} {unit}")
    return found
