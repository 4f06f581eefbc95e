"""No rank is named."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.causes.wording import amount, share, step_time, with_error
from rankscope.diagnose.base.advice import MOST, NOTHING, in_words
from rankscope.diagnose.base.late_sets import LateSet, shared_place
from rankscope.diagnose.rules.table import advice_of
from rankscope.diagnose.verdicts.limit import by_replay, own_step, what_limits
from rankscope.diagnose.verdicts.smallest_fault import in_short, smallest_fault
from rankscope.diagnose.verdicts.step import DISTORTED
from rankscope.listing import counted, named_ranks, some_ranks
from rankscope.records.evidence import Evidence, GroupDelay
from rankscope.records.report import Action, Confidence, Verdict
from rankscope.statistics.thresholds import UNIFORM

__all__ = ["no_straggler", "slow_group"]

SLOW_LINK_ADVICE = [
    "Test the links of these ranks' hosts with nccl-tests (all_reduce_perf) and compare them with others'.",
    "Look for a port that runs below its rate (ibstat, ethtool, nvidia-smi nvlink -s).",
    "Compare NCCL_IB_HCA and NCCL_SOCKET_IFNAME on these hosts with those of others.",
]
BUSY_HOST = 50.0
"""Per cent of the time in which threads waited for a CPU; a slow rank can stay undetected in that."""


def slow_group(evidence: Evidence) -> Verdict | None:
    """Ranks that communicate over a slow link: no rank computes longer, and the ranks share the cost."""
    if not evidence.slow_groups:
        return None
    worst, step = evidence.slow_groups[0], evidence.step_ms or 0.0
    more, like = len(evidence.slow_groups) - 1, "pairs" if worst.pairs else "groups"
    cost = with_error(worst.cost_ms, worst.error_ms)
    return Verdict(
        kind="comm_bound",
        confidence="medium",
        step_ms=evidence.step_ms,
        cost_ms_per_step=worst.cost_ms,
        cost_error_ms=worst.error_ms,
        sentence=f"A slow link holds the job back: {cost} of each {step_time(step)} step "
        f"({share(worst.cost_ms, step)}). {_who_is_slow(worst)}.",
        why=[
            f"With the transfers of like {like} the step takes {amount(max(step - worst.cost_ms, 0.0))}.",
            "Transfers are taken from the arrival of the last rank, so that nobody's lateness is in them.",
            *_what_they_share(evidence, worst),
            *([f"{counted(more, 'more link')} {'are' if more > 1 else 'is'} slow too."] if more else []),
        ],
        next=SLOW_LINK_ADVICE,
    )


def _who_is_slow(worst: GroupDelay) -> str:
    if not worst.pairs:
        calls = " and ".join(kind.replace("_", "-") for kind in worst.kinds[:2])
        return (
            f"{calls.capitalize()} of ranks {some_ranks(worst.ranks)} take {worst.ratio:.1f} times as long as in like "
            "groups"
        )
    between = " and ".join(map(str, worst.ranks)) if len(worst.pairs) == 1 else some_ranks(worst.ranks)
    return f"Messages between ranks {between} take {worst.ratio:.1f} times as long as between like pairs of ranks"


def _what_they_share(evidence: Evidence, worst: GroupDelay) -> list[str]:
    ranks = worst.ranks
    if len(worst.pairs) > 1 and (common := set.intersection(*map(set, worst.pairs))):
        return [f"All of them are to or from rank {common.pop()}: look at its adapter first."]
    place = shared_place(evidence, sorted(ranks))
    if place is None or place.kind == "group":
        return []  # that they are a group has been said
    return [f"They are {LateSet(sorted(ranks), place, 0.0, 0.0).words.lower()}: look at what these share."]


def no_straggler(evidence: Evidence, actions: Sequence[Action]) -> Verdict:
    """State what limits the job, and that no rank does."""
    step = evidence.step_ms or 0.0
    limit = what_limits(evidence)
    why = [*limit.why, _why_nobody(evidence, step)]
    why += _slow_hosts(evidence) if limit.kind == "host_bound" else []
    if evidence.missing:
        why.append(f"Nothing is known of {named_ranks(evidence.missing)}, for which waiting counts as transfer.")
    if evidence.unsound:
        some = named_ranks(evidence.unsound)
        why.append(f"Nothing can be said of {some}: too many device records are missing from the trace.")
    asked = {name: ms for name, ms in evidence.what_if.items() if evidence.device or name != "no_host_overhead"}
    if asked:
        why.append(by_replay(asked, step))
    why.append(smallest_fault(evidence))
    advice = [in_words(action, own_step(evidence, limit)) for action in actions[:MOST]]
    confidence, sure = _confidence(evidence)
    return Verdict(
        kind=limit.kind,
        confidence=confidence,
        sure=sure,
        step_ms=step,
        sentence=f"{limit.sentence} No rank is to blame.",
        why=why,
        next=advice or ([NOTHING] if limit.kind == "balanced" else advice_of(limit.kind)),
    )


def _why_nobody(evidence: Evidence, step: float) -> str:
    gain, who = 0.0, None
    if evidence.suspects:
        who = evidence.suspects[0]
        gain = who.cost_ms
    if who is None or gain <= 0:
        return "No rank costs the job step time beyond noise."
    if gain < step / 100:
        return "No fix of a single rank would save 1 % of a step."
    return (
        f"Bringing rank {who.rank} to the level of its peers would save {with_error(gain, who.error_ms)} a step: not "
        "told from noise, or too little."
    )


def _slow_hosts(evidence: Evidence) -> list[str]:
    """Tell of hosts that are slower at everything, since their cost does not count that."""
    slow = [suspect for suspect in evidence.suspects if suspect.uniform > UNIFORM]
    return [
        f"Host work of rank {suspect.rank} takes {suspect.uniform:.2f} times as long as its peers', everywhere: taken "
        "for its machine (CPU clock, other processes), and not counted as a delay."
        for suspect in sorted(slow, key=lambda suspect: -suspect.uniform)[:1]
    ]


def _confidence(evidence: Evidence) -> tuple[Confidence, str]:
    if evidence.missing or evidence.unsound:
        gone = len(set(evidence.missing) | set(evidence.unsound))
        return "low", f"nothing is known of {gone} rank{'s' if gone > 1 else ''}"
    if evidence.steps < 3:
        return "low", f"only {evidence.steps} steps were recorded"
    if evidence.stacks:
        return "low", "Python's stacks were recorded, which slows hosts several times"
    if evidence.pressure_pct >= BUSY_HOST:
        return "low", f"threads waited for a CPU {evidence.pressure_pct:.0f} % of the time"
    if evidence.recording_pct >= 50.0 * DISTORTED:
        return "low", f"recording takes {evidence.recording_pct:.0f} % of the recorded steps"
    return "medium", f"{evidence.steps} steps; {in_short(evidence)}"
