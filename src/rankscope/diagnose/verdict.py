"""The first line of the report: one verdict, why, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.causes.table import DEVICE_CAUSES
from rankscope.causes.wording import SCENARIO, amount, describe, hours, parts
from rankscope.diagnose.base.late_sets import late_set
from rankscope.diagnose.base.reasons import reasons
from rankscope.diagnose.base.rule import Case
from rankscope.diagnose.rules.job.host_bound import idle_for_hosts
from rankscope.diagnose.rules.machine.contended import beside_contention, contended_verdict
from rankscope.diagnose.rules.ranks.missing_traces import verdict_beside_missing
from rankscope.diagnose.rules.table import advice_of
from rankscope.listing import some_ranks
from rankscope.records.evidence import Evidence, Suspect
from rankscope.records.report import Finding, Verdict
from rankscope.thresholds import LOSES, MATTERS

__all__ = ["judge"]

COMM_SHARE = 20.0
HOST_SHARE = 30.0
_BOUND_BY_COMPUTE = 100.0 - COMM_SHARE
"""Per cent of the step. All else together is less than what would be called a bound by communication."""
SLOW_LINK_ADVICE = [
    "Test the links of these ranks' hosts with nccl-tests (all_reduce_perf) and compare them with others'.",
    "Look for a port that runs below its rate (ibstat, ethtool, nvidia-smi nvlink -s).",
    "Compare NCCL_IB_HCA and NCCL_SOCKET_IFNAME on these hosts with those of others.",
]
RECORDING_SHARE = 10.0
"""Per cent of a recorded step. If recording adds more, the verdict says so beside the cost of a late host."""


def judge(case: Case, findings: Sequence[Finding]) -> Verdict:
    """Return the verdict of a run. It abstains where the evidence is thin, and says what would settle it.

    Args:
        case: the evidence, and which ranks were decided to hold the job back.
        findings: what the rules found, for the advice where no rank is to blame.
    """
    evidence = case.evidence
    thin = _thin(evidence)
    if thin is not None:
        return beside_contention(thin, evidence)
    if case.stragglers:
        return _straggler(case)
    if evidence.pipeline:
        return contended_verdict(evidence) or Verdict(
            kind="pipeline",
            confidence="medium",
            step_ms=evidence.step_ms,
            sentence="The ranks are pipeline stages that wait for each other by schedule; no rank is to blame.",
            why=[line for f in findings if f.kind == "pipeline_wait" for line in f.evidence],
            next=advice_of("pipeline_wait"),
        )
    return (
        verdict_beside_missing(case)
        or _slow_group(evidence)
        or contended_verdict(evidence)
        or _no_straggler(evidence, findings)
    )


def _slow_group(evidence: Evidence) -> Verdict | None:
    """A group that communicates over a slow link: no rank computes longer, and the ranks share the cost."""
    if not evidence.slow_groups:
        return None
    worst, step = evidence.slow_groups[0], evidence.whole_step_ms
    calls = " and ".join(kind.replace("_", "-") for kind in worst.kinds[:2])
    more = len(evidence.slow_groups) - 1
    better = (
        f"With the transfers of like groups the step takes {amount(max(step - worst.cost_ms, 0.0))} "
        f"(±{amount(worst.error_ms)})."
    )
    return Verdict(
        kind="comm_bound",
        confidence="medium",
        step_ms=evidence.step_ms,
        cost_ms_per_step=worst.cost_ms,
        cost_error_ms=worst.error_ms,
        sentence=f"A slow link holds the job back: {calls} of ranks {some_ranks(worst.ranks)} take {worst.ratio:.1f} "
        f"times as long as in like groups, which costs {amount(worst.cost_ms)} of each {amount(step)} step "
        f"({100 * worst.cost_ms / step:.0f} %).",
        why=[
            better,
            "Transfers are taken from the arrival of the last rank, so that nobody's lateness is in them.",
            *([f"{more} more group{'s' if more > 1 else ''} communicate slowly too."] if more else []),
        ],
        next=SLOW_LINK_ADVICE,
    )


def _why_unmatched(evidence: Evidence) -> str:
    reason, calls = next(iter(evidence.unmatched.items()), ("", 0))
    if not reason or reason == "recorded by some ranks only":
        return "The ranks' windows seem to cover different steps."
    return f"{calls} calls were not matched: {reason}."


def _thin(evidence: Evidence) -> Verdict | None:
    def abstain(sentence: str, why: list[str], then: list[str]) -> Verdict:
        return Verdict(kind="insufficient_data", step_ms=evidence.step_ms, sentence=sentence, why=why, next=then)

    lost = f" (missing: {some_ranks(evidence.missing)})" if evidence.missing else ""
    if len(evidence.ranks) < 2:
        return abstain(
            f"Not enough data for a verdict: {len(evidence.ranks)} rank left a usable trace{lost}.",
            ["A late rank can only be told by comparing ranks."],
            ["Record at least two ranks of the same steps."],
        )
    if not evidence.calls:
        return abstain(
            "Not enough data for a verdict: no collective was recognised as the same call on two ranks.",
            [evidence.refused or "The traces share no communication."],
            ["Record the same steps on all ranks, with communication in them."],
        )
    if evidence.matched_pct is not None and evidence.matched_pct < 50.0:
        return abstain(
            f"Not enough data for a verdict: only {evidence.matched_pct:.0f} % of the collectives could be matched.",
            [_why_unmatched(evidence)],
            [
                (
                    "Record the same steps on all ranks, with operators (ProfilerActivity.CPU), which name groups and "
                    "peers; sequence numbers (torch 2.12 and later) make matching safe."
                )
            ],
        )
    if evidence.refused is not None:
        return abstain(
            f"Not enough data for a verdict: {evidence.refused}.",
            ["The cost of a late rank is found by replaying whole steps."],
            ["Record with step marks (ProfilerStep), at least three steps in a window."],
        )
    if evidence.steps < 2:
        return abstain(
            "Not enough data for a verdict: the window holds one step.",
            ["One step does not tell a habit from chance."],
            ["Record at least three steps in a window."],
        )
    return None


def _how_often(suspect: Suspect, step_ms: float) -> str:
    hit = sum(gain > LOSES * step_ms for gain in suspect.gains_ms)
    steps = len(suspect.gains_ms)
    return "once in the recorded steps, by" if hit < 2 else f"in {hit} of {steps} recorded steps, by up to"


def _straggler(case: Case) -> Verdict:
    evidence, stragglers = case.evidence, case.stragglers
    first = stragglers[0]
    cause = describe(first.cause)
    step = (evidence.whole_step_ms if first.once else evidence.step_ms) or 0.0
    suspect = first.suspect
    ranks = [a.suspect.rank for a in stragglers]
    cost, error = suspect.cost_ms, suspect.error_ms
    together = late_set(evidence, stragglers)
    if together is not None:
        cost, error = together.cost_ms, together.error_ms
        costs = f"costs {amount(cost)} of each {amount(step)} step ({100 * cost / step:.0f} %)"
        sentence = f"{together.words} hold the job back: {cause.noun} {costs}."
        if first.cause == "unexplained":
            sentence = f"{together.words} hold the job back, which {costs}; {cause.phrase}."
    elif first.once:
        worst = max(suspect.gains_ms)
        sentence = (
            f"Rank {suspect.rank} held the job up {_how_often(suspect, step)} {amount(worst)}: "
            f"{cause.phrase} ({amount(cost)} per step over the window)."
        )
    else:
        sentence = (
            f"Rank {suspect.rank} holds the job back: {cause.phrase}, which costs {amount(cost)} "
            f"of each {amount(step)} step ({100 * cost / step:.0f} %)."
        )
    if len(stragglers) > 1 and together is None:
        others = "; ".join(
            f"rank {a.suspect.rank}: {describe(a.cause).noun}, {amount(a.suspect.cost_ms)}" for a in stragglers[1:4]
        )
        sentence += f" Others cost time too: {others}{' ...' if len(stragglers) > 4 else ''}."
    better = amount(max(step - cost, 0.0))
    also = f" (once rank {', '.join(map(str, suspect.beside[:8]))} is fixed)" if suspect.beside else ""
    why = [f"Without it the step takes {better} instead of {amount(step)} (±{amount(error)}){also}."]
    if together is not None:
        why = [
            (
                f"With all of them at the level of their peers the step takes {better} instead of {amount(step)} "
                f"(±{amount(error)}). What follows is said of rank {suspect.rank}, the costliest."
            )
        ]
    if first.once:
        why = [f"The steps lose {', '.join(amount(max(g, 0.0)) for g in suspect.gains_ms[:8])}."]
    named = suspect.explained.get(first.cause)
    if named is not None and suspect.excess_ms > 0:
        why.append(
            f"It does {amount(suspect.excess_ms)} per step more than its peers where it is late; "
            f"{amount(named)} of that is {cause.noun}."
        )
    elif suspect.explained:
        why.append(
            f"It does {amount(suspect.excess_ms)} per step more than its peers where it is late; leading: "
            f"{parts(suspect.explained)}."
        )
    why += reasons(case, suspect.rank, first.cause)
    gaining = sum(g > LOSES * step for g in suspect.gains_ms)
    why.append(f"{gaining} of {len(suspect.gains_ms)} recorded steps lose time to it.")
    if evidence.device and step:
        why.append(f"That is {100 * cost / step:.0f} % of the step{hours(cost, step, len(evidence.ranks))}.")
    if evidence.device and first.cause not in DEVICE_CAUSES and evidence.recording_pct >= RECORDING_SHARE:
        # input stalls claimed at 54.9 and 58.8 ms cost unprofiled jobs 36.6 and 64.4 ms (benchmarks/README.md)
        why.append(
            f"Recording adds {amount(evidence.recording_ms)} to a step; the cost in unrecorded steps may differ."
        )
    if suspect.caused_wait_ms > 0:
        why.append(f"The others' collectives wait {amount(suspect.caused_wait_ms)} per step for it.")
    return Verdict(
        kind="straggler",
        ranks=ranks,
        share_of_steps_pct=100.0 * gaining / len(suspect.gains_ms) if suspect.gains_ms else None,
        cause=first.cause,
        cost_ms_per_step=cost,
        cost_error_ms=error,
        confidence=first.confidence,
        step_ms=step,
        p_value=suspect.p_value,
        sentence=sentence,
        why=why,
        next=[*(together.advice if together is not None else ()), *cause.advice],
    )


def _level(evidence: Evidence, step: float) -> str:
    if evidence.compute_pct >= _BOUND_BY_COMPUTE:
        what = "devices" if evidence.device else "processors"
        return f"The {what} compute {evidence.compute_pct:.0f} % of each {amount(step)} step. No rank is to blame."
    return f"No rank is to blame: none holds the others back in the {amount(step)} step."


def _by_replay(asked: dict[str, float], step: float) -> str:
    """What the step would gain under other assumptions; what is worth less than one per cent of it is not told."""
    worth = [f"{SCENARIO[name]} {amount(ms)}" for name, ms in asked.items() if ms >= step / 100]
    if not worth:
        *most, last = (SCENARIO[name] for name in asked)
        listed = f"{', '.join(most)} or {last}" if most else last
        return f"By replay no step would gain 1 % from {listed}."
    return f"By replay each step would gain from: {', '.join(worth)}."


def _no_straggler(evidence: Evidence, findings: Sequence[Finding]) -> Verdict:
    step = evidence.step_ms or 0.0
    calm = "No rank costs the job step time beyond noise."
    gain = evidence.suspects[0].cost_ms if evidence.suspects else 0.0
    if 0 < gain < step / 100:
        calm = "No fix of a single rank would save 1 % of a step."
    elif gain > 0:
        calm = (
            f"Bringing rank {evidence.suspects[0].rank} to the level of its peers would save {amount(gain)} a step, "
            "less than noise or than what matters."
        )
    worth = [f for f in findings if len(f.ranks) > 1 or (f.cost_ms_per_step or 0.0) >= MATTERS * step]
    advice = [line for f in worth for line in f.advice[:1]]
    why = [calm]
    if evidence.visible_pct is not None:
        why.append(
            f"A device that is {evidence.visible_pct:.1f} % slower than the others in all steps would have shown; a "
            f"rank is named where it costs more than {100 * MATTERS:.0f} % of the step, error taken off."
        )
    if evidence.missing:
        why.append(f"Nothing is known of rank {some_ranks(evidence.missing)}: waiting for it counts as transfer.")
    if evidence.unsound:
        some = some_ranks(evidence.unsound)
        why.append(f"Nothing can be said of rank {some}: too many of its device records are missing from the trace.")
    asked = {name: ms for name, ms in evidence.what_if.items() if evidence.device or name != "no_host_overhead"}
    if asked:
        why.append(_by_replay(asked, step))
    whole = evidence.whole_step_ms
    transfer = 100.0 * evidence.transfer_ms / whole if whole else 0.0
    idle = 100.0 * evidence.host_ms / whole if whole else 0.0
    if transfer >= COMM_SHARE and evidence.device:
        return Verdict(
            kind="comm_bound",
            confidence="low" if evidence.missing or evidence.unsound else "medium",
            step_ms=step,
            sentence=f"Moving data between ranks takes {amount(evidence.transfer_ms)} of each {amount(whole)} step, "
            f"which no work hides ({transfer:.0f} %). No rank is to blame.",
            why=why,
            next=advice_of("comm_exposed"),
        )
    if evidence.device and idle >= HOST_SHARE:
        why.insert(0, idle_for_hosts(evidence))
    if evidence.device and evidence.own_host_pct >= HOST_SHARE:
        return Verdict(
            kind="host_bound",
            confidence="medium",
            step_ms=step,
            sentence=f"The devices stand idle {evidence.own_host_pct:.0f} % of each {amount(step)} step, because their "
            "hosts launch too slowly. No rank is to blame.",
            why=why,
            next=advice or advice_of("host_bound"),
        )
    return Verdict(
        kind="balanced",
        confidence="medium" if evidence.steps >= 3 and not (evidence.missing or evidence.unsound) else "low",
        step_ms=step,
        sentence=_level(evidence, step),
        why=[
            *why,
            (
                f"Compute {evidence.compute_pct:.0f} %, exposed communication {evidence.exposed_comm_pct:.0f} %, idle "
                f"{evidence.idle_pct:.0f} % of the window, on average over the ranks."
            ),
        ],
        next=advice,
    )
