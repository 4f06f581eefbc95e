"""Contention: a rank that is late only because its threads did not get a CPU is not a straggler.

The scheduler counts for each rank how long its threads were runnable without running (``Evidence.contention``). Without
this time, a rank's remaining lateness is its own. That, compared with its scatter over the steps, decides whether the
rank is named. No threshold here depends on the load of a machine.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

from rankscope.causes.table import DEVICE_CAUSES, NOISY
from rankscope.records.evidence import Contention, Evidence, RankCpu, Suspect
from rankscope.statistics.chance import DEPENDENCE, student_quantile, student_tail
from rankscope.statistics.thresholds import LEAST_COST

__all__ = [
    "BY_SILENCE",
    "beyond_machine",
    "by_others",
    "is_contended",
    "is_machines",
    "most_loaded",
    "shares_cores",
    "shares_device",
    "without_machine",
]

SURE = 0.05
"""Probability, over all ranks together, that a rank is named because of noise."""
CONSISTENT = 0.5
"""Share of a rank's lateness that its own work must explain before its CPU time is compared."""
CORE_SHARE = 0.5
"""Least share of its speed that a thread keeps while another one runs on the same core: two threads of equal rank."""
BY_OTHERS = 0.5
"""Other processes are named if their CPU time is at least this share of the time that the job's threads waited: without
them the job would have had that CPU time."""
BY_SILENCE = frozenset({"host_pause"})
"""Causes that are recognised by the absence of events, which a thread without a CPU shows as well."""


def is_contended(evidence: Evidence) -> bool:
    """Return whether the job would gain, without contention, at least what a straggler must cost."""
    witness = evidence.contention
    return witness is not None and witness.cost_ms >= LEAST_COST * evidence.whole_step_ms > 0


def by_others(evidence: Evidence) -> bool | None:
    """Return whether processes outside the job used the CPUs of the host whose ranks waited most; None if unknown."""
    witness = evidence.contention
    if witness is None:
        return None
    host, held = most_loaded(witness)
    return None if host not in witness.others_ms else witness.others_ms[host] >= BY_OTHERS * held


def most_loaded(witness: Contention) -> tuple[str, float]:
    """Return the host whose ranks waited most for a CPU, and their total wait, ms per step."""
    hosts: dict[str, float] = {}
    for rank in witness.ranks:
        hosts[rank.host] = hosts.get(rank.host, 0.0) + statistics.fmean(rank.held_ms)
    return max(hosts.items(), key=lambda item: item[1])


def is_machines(evidence: Evidence, rank: int, more_ms: float) -> bool:
    """Return whether contention explains that a host spends ``more_ms`` per step more than its peers on something."""
    cpu = None if evidence.contention is None else evidence.contention.of(rank)
    return cpu is not None and is_contended(evidence) and more_ms <= statistics.fmean(cpu.held_ms)


def shares_device(evidence: Evidence, rank: int) -> bool:
    """Return whether processes outside the job use this rank's device, and fewer of them those of its peers."""
    rows = {row.rank: row.other_processes or 0 for row in evidence.health}
    others = [count for other, count in rows.items() if other != rank]
    return bool(others) and rows.get(rank, 0) > statistics.median(others)


def shares_cores(evidence: Evidence, suspect: Suspect) -> bool:
    """Return whether processes outside the job, on its host, may be why a rank without a device is slower.

    They need not take CPUs from its threads: two hardware threads share one core, and no count of the scheduler shows
    it. A thread is slowed for as long as they run beside it, by no more than half.
    """
    witness = evidence.contention
    cpu = None if witness is None else witness.of(suspect.rank)
    if witness is None or cpu is None or cpu.host not in witness.beside_ms:
        return False
    beside = min(witness.beside_ms[cpu.host], statistics.fmean(cpu.cpu_ms))
    return suspect.cost_ms <= (1.0 - CORE_SHARE) * beside


def without_machine(suspect: Suspect, evidence: Evidence) -> Suspect:
    """Return the candidate without all that contention can explain: each step's gain less the time on the run queue.

    Additional work of a device is not explained by its host's run queue.
    """
    cpu = None if evidence.contention is None else evidence.contention.of(suspect.rank)
    if cpu is None or not suspect.gains_ms or (evidence.device and _is_device_work(suspect)):
        return suspect
    held = cpu.held_ms
    if len(held) != len(suspect.gains_ms):
        held = [statistics.fmean(held)] * len(suspect.gains_ms)
    gains = [gain - wait for gain, wait in zip(suspect.gains_ms, held, strict=True)]
    chance = _chance(gains)
    return dataclasses.replace(
        suspect,
        cost_ms=statistics.fmean(gains),
        error_ms=math.hypot(suspect.error_ms, _interval(gains)),
        gains_ms=gains,
        p_value=suspect.p_value if chance is None else max(chance, suspect.p_value or 0.0),
    )


def _is_device_work(suspect: Suspect) -> bool:
    return bool(suspect.explained) and max(suspect.explained, key=lambda c: suspect.explained[c]) in DEVICE_CAUSES


def beyond_machine(suspect: Suspect, evidence: Evidence) -> Suspect | None:
    """Return the candidate as it would be without contention, or None if it would not be one.

    It is called if contention may explain the lateness. Three comparisons are made, each by Student's t over the steps:
    how much more than on the peers one cause takes that a trace shows by itself (waiting for input, compiling, ...);
    how much more CPU time the rank uses, if its operators differ from its peers'; and a lower bound of its own time,
    without run queue and waits. That the same work takes longer proves nothing: CPU time itself grows by 5 to 10 % next
    to other processes, which use caches and the cores' second threads.
    """
    witness = evidence.contention
    own = None if witness is None else witness.of(suspect.rank)
    if witness is None or own is None:
        return None
    peers = [r for r in witness.ranks if r is not own and len(r.held_ms) == len(own.held_ms)]
    if not peers:
        return None
    least = LEAST_COST * max(evidence.whole_step_ms - witness.cost_ms, 0.0)
    chance = SURE / len(witness.ranks)
    found = [
        *_by_causes(suspect, own, peers, least, chance),
        _by_work(suspect, own, peers, least, chance),
        _by_itself(suspect, own, peers, least, chance),
    ]
    late = [s for s in found if s is not None]
    # the one with the least scatter is the most exact
    return min(late, key=lambda s: s.p_value or 0.0) if late else None


def _by_itself(suspect: Suspect, own: RankCpu, peers: list[RankCpu], least: float, chance: float) -> Suspect | None:
    if not all(r.own_ms and r.least_ms for r in (own, *peers)) or suspect.excess_ms <= 0:
        return None
    # If a rank was delayed often, some waits for its peers are missed: its lower bound is compared with the upper
    # bounds of the peers.
    at_least = [min(pair) for pair in zip(own.own_ms, own.least_ms, strict=True)]
    at_most = [[max(pair) for pair in zip(p.own_ms, p.cpu_ms, strict=True)] for p in peers]
    more = _beyond(at_least, at_most)
    mean = statistics.fmean(more)
    # more CPU time is work, and time that is not CPU time is not
    work = statistics.fmean(_beyond(own.cpu_ms, [p.cpu_ms for p in peers])) >= mean / 2
    fitting = {c: ms for c, ms in suspect.explained.items() if c not in NOISY and (c in DEVICE_CAUSES) == work}
    total = sum(fitting.values())
    if total <= 0:
        return None
    found = _late(suspect, more, {c: ms * mean / total for c, ms in fitting.items()}, least, chance)
    if found is None:
        return None
    # The cost is between the lower bound and the likely value: the middle is reported, with half of the distance as
    # error.
    likely = _beyond(own.own_ms, [p.own_ms for p in peers])
    found.gains_ms = [(a + b) / 2 for a, b in zip(more, likely, strict=True)]
    found.cost_ms = found.excess_ms = statistics.fmean(found.gains_ms)
    found.error_ms = math.hypot(found.error_ms, (statistics.fmean(likely) - mean) / 2)
    found.explained = {c: ms * found.cost_ms / total for c, ms in fitting.items()}
    return found


def _by_causes(
    suspect: Suspect, own: RankCpu, peers: list[RankCpu], least: float, chance: float
) -> list[Suspect | None]:
    asked = [c for c, ms in own.named_ms.items() if sum(ms) > 0 and c not in NOISY]
    found: list[Suspect | None] = []
    for cause in asked:
        theirs = [p.named_ms.get(cause, [0.0] * len(p.held_ms)) for p in peers]
        if cause in BY_SILENCE:
            if own.own_ms:
                # anything that keeps a thread from running is silence: the rank's own time is more informative
                continue
            may_be = own.held_ms
        else:
            # The rank was delayed in it as often as its peers' work of the same duration would have been.
            usual = statistics.median(statistics.median(step) for step in zip(*theirs, strict=True))
            may_be = [usual * held / max(cpu, 1e-3) for held, cpu in zip(own.held_ms, own.cpu_ms, strict=True)]
        more = [ms - wait for ms, wait in zip(_beyond(own.named_ms[cause], theirs), may_be, strict=True)]
        found.append(_late(suspect, more, {cause: statistics.fmean(more)}, least, chance / len(asked)))
    return found


def _by_work(suspect: Suspect, own: RankCpu, peers: list[RankCpu], least: float, chance: float) -> Suspect | None:
    work = {c: ms for c, ms in suspect.explained.items() if c in DEVICE_CAUSES - NOISY}
    if not all(r.own_ms for r in (own, *peers)) or sum(work.values()) < CONSISTENT * suspect.excess_ms:
        return None  # with a device the work is not the CPU's
    if not work:
        return None
    more = _beyond(own.cpu_ms, [p.cpu_ms for p in peers])
    return _late(suspect, more, {max(work, key=lambda c: work[c]): statistics.fmean(more)}, least, chance)


def _late(
    suspect: Suspect, more: list[float], explained: dict[str, float], least: float, chance: float
) -> Suspect | None:
    """Return the candidate with ``more`` as its cost in each step, if that is significant and large enough."""
    p_value, mean = _chance(more), statistics.fmean(more)
    if p_value is None or p_value > chance or mean < least or mean <= 0:
        return None
    return dataclasses.replace(
        suspect,
        cost_ms=mean,
        error_ms=math.hypot(statistics.stdev(more) / math.sqrt(len(more)), suspect.model_error * mean),
        gains_ms=more,
        p_value=p_value,
        excess_ms=mean,
        explained=explained,
        beside=[],
    )


def _beyond(own: Sequence[float], peers: Sequence[Sequence[float]]) -> list[float]:
    return [mine - statistics.median(theirs) for mine, theirs in zip(own, zip(*peers, strict=True), strict=True)]


def _interval(values: Sequence[float]) -> float:
    """Half width of the 95 % confidence interval of the mean of successive steps; 0 for a single value."""
    count = len(values)
    if count < 2:
        return 0.0
    return statistics.stdev(values) * math.sqrt(DEPENDENCE / count) * student_quantile(0.025, count - 1)


def _chance(values: Sequence[float]) -> float | None:
    """One-sided p-value of a mean above 0 by Student's t; None for fewer than three values."""
    count = len(values)
    if count < 3:
        return None
    scatter = statistics.stdev(values) / math.sqrt(count)
    if scatter == 0:
        return 0.0 if values[0] > 0 else 1.0
    return student_tail(statistics.fmean(values) / scatter, count - 1)
