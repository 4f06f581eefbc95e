"""Contention: the job's threads were runnable, and no CPU was free for them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence

from rankscope.causes.wording import amount, step_time
from rankscope.diagnose.base.contention import by_others, is_contended, most_loaded
from rankscope.diagnose.base.decision import StragglerDecision, slowed_by_others
from rankscope.diagnose.base.rule import Case, Rule
from rankscope.records.evidence import Contention, Evidence, RankCpu
from rankscope.records.report import Finding, Verdict
from rankscope.statistics.thresholds import LEAST_COST, LOSES

__all__ = ["RULE", "beside_contention", "contended_verdict"]

_END_OTHERS = (
    "End the other processes, or give the job CPUs of its own (taskset, a cpuset, a node for itself).",
    "Then record again: `rankscope run` with the same command.",
)
_END_SHARING = (
    "End the other process on that device (nvidia-smi lists it), or give the job devices of its own.",
    "Then record again: `rankscope run` with the same command.",
)
_USE_FEWER = (
    "Use no more threads than CPUs, over all ranks: lower OMP_NUM_THREADS, or num_workers of the DataLoaders.",
    "Or start fewer ranks on this machine.",
)


def _find(case: Case) -> list[Finding]:
    evidence = case.evidence
    witness = evidence.contention
    shared = [_shared_finding(d, evidence) for d in slowed_by_others(evidence)]
    if witness is None or not is_contended(evidence):
        return shared
    others = by_others(evidence)
    return [
        *shared,
        Finding(
            id="contended",
            kind="contended",
            ranks=[r.rank for r in witness.ranks],
            cost_ms_per_step=witness.cost_ms,
            confidence="high" if others is not None else "medium",
            title="The machine was busy: " + _who(others),
            evidence=_lines(evidence, witness, {d.suspect.rank for d in case.stragglers}),
            advice=_advice(others),
        ),
    ]


def contended_verdict(evidence: Evidence) -> Verdict | None:
    """Return the verdict if no rank is late beyond what contention explains."""
    witness = evidence.contention
    if shared := slowed_by_others(evidence):
        return _shared_verdict(shared[0], evidence)
    if witness is None or not is_contended(evidence):
        return None
    step, cost, others = evidence.whole_step_ms, witness.cost_ms, by_others(evidence)
    spread = statistics.stdev(witness.gains_ms) / math.sqrt(len(witness.gains_ms)) if witness.gains_ms[1:] else cost
    return Verdict(
        kind="contended",
        confidence="high" if others is not None else "medium",
        step_ms=evidence.step_ms,
        cost_ms_per_step=cost,
        cost_error_ms=spread,
        share_of_steps_pct=100.0 * sum(g > LOSES * step for g in witness.gains_ms) / len(witness.gains_ms),
        sentence=f"The machine was busy: {_who(others)}. That costs {amount(cost)} of each {step_time(step)} step "
        f"({100 * cost / step:.0f} %); no rank is to blame.",
        why=_lines(evidence, witness),
        next=_advice(others),
    )


def beside_contention(abstained: Verdict, evidence: Evidence) -> Verdict:
    """Return a verdict that abstains, with what is known of the contention: without it there may be a verdict."""
    witness = evidence.contention
    if witness is None or not is_contended(evidence):
        return abstained
    others = by_others(evidence)
    abstained.why = [f"The machine was busy: {_who(others)}. {_lines(evidence, witness)[0]}", *abstained.why]
    abstained.next = [*_advice(others), *abstained.next]
    return abstained


def _shared_finding(decision: StragglerDecision, evidence: Evidence) -> Finding:
    suspect = decision.suspect
    return Finding(
        id=f"contended-rank-{suspect.rank}",
        kind="contended",
        ranks=[suspect.rank],
        cost_ms_per_step=suspect.cost_ms,
        confidence="medium",
        title=f"The machine was busy: {_sharing(decision, evidence)}",
        evidence=_shared_lines(decision, evidence),
        advice=list(_END_SHARING if evidence.device else _END_OTHERS),
    )


def _shared_verdict(decision: StragglerDecision, evidence: Evidence) -> Verdict:
    suspect, step = decision.suspect, evidence.step_ms or 0.0
    return Verdict(
        kind="contended",
        confidence="medium",
        step_ms=evidence.step_ms,
        cost_ms_per_step=suspect.cost_ms,
        cost_error_ms=suspect.error_ms,
        p_value=suspect.p_value,
        sentence=f"The machine was busy: {_sharing(decision, evidence)}. That costs {amount(suspect.cost_ms)} of each "
        f"{step_time(step)} step ({100 * suspect.cost_ms / step:.0f} %); no rank is to blame.",
        why=_shared_lines(decision, evidence),
        next=list(_END_SHARING if evidence.device else _END_OTHERS),
    )


def _sharing(decision: StragglerDecision, evidence: Evidence) -> str:
    rank = decision.suspect.rank
    return f"another process uses rank {rank}'s device" if evidence.device else f"others may use rank {rank}'s cores"


def _shared_lines(decision: StragglerDecision, evidence: Evidence) -> list[str]:
    rank = decision.suspect.rank
    longer = f"The same work takes {amount(decision.suspect.excess_ms)} per step longer there."
    witness = evidence.contention
    if not evidence.device and witness is not None and (cpu := witness.of(rank)) is not None:
        ran = amount(witness.beside_ms[cpu.host])
        beside = f"Processes outside the job ran {ran} of CPU per step on host {cpu.host}."
        return [longer, f"{beside} Threads that share a core are slower, and no count shows which do."]
    rows = {row.rank: row.other_processes or 0 for row in evidence.health}
    usual = statistics.median(count for other, count in rows.items() if other != rank)
    return [
        f"Processes that are not the job's have a context on its device: {rows[rank]}, on its peers' {usual:g}.",
        longer,
    ]


def _who(others: bool | None) -> str:
    return {
        True: "other processes took its CPUs",
        False: "the job has more threads than CPUs",
        None: "the job's threads waited for a CPU",
    }[others]


def _advice(others: bool | None) -> list[str]:
    return [*(_END_OTHERS if others is not False else ()), *(_USE_FEWER if not others else ())]


def _lines(evidence: Evidence, witness: Contention, named: Collection[int] = ()) -> list[str]:
    """Return the measurements; for a rank that seemed late and is not in ``named``, also why it is not named."""
    held = {r.rank: statistics.fmean(r.held_ms) for r in witness.ranks}
    most, least = max(held, key=lambda r: held[r]), min(held, key=lambda r: held[r])
    lines = [
        (
            f"Threads that could run waited for a CPU: {amount(held[least])} a step on rank {least}, "
            f"{amount(held[most])} on rank {most}; they ran {amount(_ran(witness.ranks))}."
        )
    ]
    lines += _own_threads(evidence, witness)
    host, _ = most_loaded(witness)
    if host in witness.others_ms and host in witness.cpus:
        cpus = witness.cpus[host]
        used = min(100 * witness.others_ms[host] / (cpus * evidence.whole_step_ms), 100.0)
        lines.append(f"Other processes used {used:.0f} % of the {cpus:g} CPUs of {host}.")
    least_ms = LEAST_COST * evidence.whole_step_ms
    late = [s for s in evidence.suspects if s.cost_ms >= least_ms and s.rank not in named]
    if late:
        lines.append(
            f"Rank {late[0].rank} looked {amount(late[0].cost_ms)} a step late; without the time it waited for a CPU "
            "that is within the scatter of its steps."
        )
    return lines


def _own_threads(evidence: Evidence, witness: Contention) -> list[str]:
    """Return lines on ranks whose script runs other threads during training that their peers do not run."""
    ran = {r.rank: statistics.fmean(r.script_ms) for r in witness.ranks if r.script_ms}
    usual = {rank: statistics.median([ms for r, ms in ran.items() if r != rank] or [0.0]) for rank in ran}
    return [
        f"Other threads of rank {rank}'s script used {amount(ms)} of CPU a step, its peers' {amount(usual[rank])}."
        for rank, ms in ran.items()
        if len(ran) > 1 and ms - usual[rank] >= LEAST_COST * evidence.whole_step_ms
    ]


def _ran(ranks: Sequence[RankCpu]) -> float:
    return statistics.fmean(statistics.fmean(r.cpu_ms) for r in ranks)


RULE = Rule(kind="contended", noun="a busy machine", advice=(*_END_OTHERS, *_USE_FEWER), find=_find)
