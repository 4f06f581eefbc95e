"""Transfers that are not overlapped: begin them earlier, by the settings of the sharding wrapper, or gather parameters
once."""

from __future__ import annotations

from rankscope.diagnose.base.advice import Advice, at_most
from rankscope.diagnose.base.memory import fullest, size
from rankscope.diagnose.base.rule import Case
from rankscope.diagnose.base.transfers import begin_earlier
from rankscope.records.report import Action

__all__ = ["ADVICE", "KEPT"]


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    if evidence.pipeline or not evidence.calls:
        return []
    if not evidence.device and evidence.hosts == 1:
        # Nothing but the ranks' own processors moves this data: beside compute it takes their time all the same
        # (measured: a transfer of 5.2 of 47 ms, begun earlier, gained nothing).
        return []
    gains = [g for g in (evidence.overlap_gain_ms, evidence.network_gain_ms) if g is not None]
    # there is advice on the calls of these groups
    gains += [group.others_ms for group in (evidence.changes.tensor, evidence.changes.experts) if group is not None]
    gain = min([*gains, evidence.transfer_ms]) if gains else None
    return at_most(evidence, "hide_transfers", begin_earlier(evidence), gain, "communication hidden behind compute")


ADVICE = Advice(
    code="hide_transfers",
    find=_find,
    knobs={"hide_transfers": ("bucket_cap_mb", "static_graph", "backward_prefetch", "forward_prefetch")},
)


def _gather_once(case: Case) -> list[Action]:
    """Advise to keep parameters that FSDP2 gathers for the forward and again for the backward, if they fit."""
    evidence = case.evidence
    row = fullest(evidence.memory)
    free = row.device_bytes - row.peak_reserved_bytes if row is not None and row.device_bytes else None
    if not evidence.regather_ms or evidence.overlap_gain_ms is None:
        return []
    if free is not None and free < evidence.regather_bytes:
        return []
    known = "" if free is None else f", of which {size(free)} are free at the peak"
    much = f"{size(evidence.regather_bytes)} more" if evidence.regather_bytes else "more memory"
    text = (
        "Keep gathered parameters from the forward to the backward: fully_shard(..., reshard_after_forward=False). It "
        f"needs {much} on each {'device' if evidence.device else 'rank'}{known}."
    )
    gain = min(evidence.regather_ms, evidence.overlap_gain_ms)
    return at_most(evidence, "keep_gathered", text, gain, "all-gathers of each module a step: 1")


KEPT = Advice(code="keep_gathered", find=_gather_once, knobs={"keep_gathered": ("reshard_after_forward",)})
