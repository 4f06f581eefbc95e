"""No verdict, because the evidence is insufficient: states the actual reason, and what would decide it."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.diagnose.base.advice import MOST, NOTHING, in_words
from rankscope.diagnose.verdicts.ended_early import ended_early
from rankscope.diagnose.verdicts.limit import own_step, what_limits
from rankscope.listing import some_ranks
from rankscope.records.evidence import Evidence
from rankscope.records.report import Action, Verdict

__all__ = ["abstain"]

LEAST_MATCHED = 50.0
"""Per cent of the calls. With fewer matched calls, most of a step is not compared."""


def abstain(evidence: Evidence, actions: Sequence[Action]) -> Verdict | None:
    """Return the verdict if ranks cannot be compared, else None. A job of one rank still gets recommended actions."""
    if len(evidence.ranks) < 2:
        return _few_ranks(evidence, actions)
    if not evidence.calls:
        return _no_verdict(
            evidence,
            "no_collectives",
            "No verdict: no collective was recognised as the same call on two ranks.",
            ["The traces share no communication, or the names of its kernels are not known."],
            ["Record the same steps on all ranks, with communication in them."],
        )
    if evidence.matched_pct is not None and evidence.matched_pct < LEAST_MATCHED:
        return _no_verdict(
            evidence,
            "unmatched",
            f"No verdict: only {evidence.matched_pct:.0f} % of the collectives could be matched.",
            [_why_unmatched(evidence)],
            [
                (
                    "Record the same steps on all ranks, with operators (ProfilerActivity.CPU), which name groups and "
                    "peers; sequence numbers (torch 2.12 and later) make matching safe."
                )
            ],
        )
    if evidence.refused is not None:
        model = "replaying" in evidence.refused
        return _no_verdict(
            evidence,
            "model_fails" if model else "refused",
            f"No verdict: {evidence.refused}.",
            ["The cost of a late rank is found by replaying whole steps."],
            [
                "Record again, with a warm-up step before the window."
                if model
                else "Record with step marks (ProfilerStep), at least three steps in a window."
            ],
        )
    if evidence.steps < 2:
        return _no_verdict(
            evidence,
            "one_step",
            "No verdict: the window holds one step.",
            ["One step does not tell a habit from chance."],
            ["Record at least three steps in a window."],
        )
    return None


def _no_verdict(evidence: Evidence, reason: str, sentence: str, why: list[str], then: list[str]) -> Verdict:
    return Verdict(
        kind="insufficient_data", reason=reason, step_ms=evidence.step_ms, sentence=sentence, why=why, next=then
    )


def _few_ranks(evidence: Evidence, actions: Sequence[Action]) -> Verdict:
    world = evidence.world_size or len(evidence.ranks) + len(evidence.missing)
    if not evidence.ranks:
        return ended_early(evidence)
    limit = what_limits(evidence)
    if world == 1:
        alone = f"This job has one rank, so no rank can be late. {limit.sentence}"
        then = [in_words(action, own_step(evidence, limit)) for action in actions[:MOST]] or [NOTHING]
        return _no_verdict(evidence, "single_rank", alone, limit.why, then)
    rank = evidence.ranks[0]
    of = f" of {world}" if world > 1 else ""
    gone = f" ({len(evidence.missing)} missing: {some_ranks(evidence.missing)})" if evidence.missing else ""
    return _no_verdict(
        evidence,
        "one_of_many",
        f"No verdict: only rank {rank}{of} left a usable trace{gone}, and who is late needs the others.",
        [limit.sentence, *limit.why],
        ["Record at least two ranks of the same steps, and give the folder that holds all of their traces."],
    )


def _why_unmatched(evidence: Evidence) -> str:
    reason, calls = next(iter(evidence.unmatched.items()), ("", 0))
    if not reason or reason == "recorded by some ranks only":
        return "The ranks' windows seem to cover different steps."
    return f"{calls} calls were not matched: {reason}."
