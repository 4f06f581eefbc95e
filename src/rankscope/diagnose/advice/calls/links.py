"""Transfers that stay below what links can give, and calls that are too small to use them."""

from __future__ import annotations

from rankscope.diagnose.base.advice import Advice, at_most, in_range
from rankscope.diagnose.base.rule import Case
from rankscope.listing import some_ranks
from rankscope.records.changes import SmallCalls
from rankscope.records.evidence import Evidence
from rankscope.records.report import Action

__all__ = ["ADVICE", "SMALL"]


def _find_link(case: Case) -> list[Action]:
    evidence = case.evidence
    link = evidence.changes.link
    if link is None or evidence.slow_groups:  # of those the verdict says to test the link
        return []
    text = (
        f"Test the link, not the code: {link.kind.replace('_', '-')} of ranks {some_ranks(link.ranks)} moves "
        f"{link.best_gb_s:.0f} GB/s at best, {link.link} gives {link.link_gb_s:.0f}. NCCL_DEBUG=INFO shows the "
        "transport, nccl-tests the rate."
    )
    return in_range(evidence, "test_link", text, link, "bus bandwidth as in nccl-tests", link.ranks)


def _find_small(case: Case) -> list[Action]:
    """Advise to merge the small calls that cost most."""
    evidence = case.evidence
    small = max(evidence.changes.small_calls, key=lambda calls: calls.high_ms, default=None)
    if small is None or (not evidence.device and evidence.hosts == 1):
        return []  # on processors of one host calls are their own work, whatever their size
    text = (
        f"{_how(evidence, small)}: {small.calls:.0f} calls a step of {small.megabytes:.2g} MB take "
        f"{small.mean_us:.0f} µs each, {small.fixed_us:.0f} µs of it whatever their size."
    )
    check = f"{small.kind.replace('_', '-')} calls a step; GB/s"
    return at_most(evidence, "merge_calls", text, small.high_ms, check, small.ranks)


def _how(evidence: Evidence, small: SmallCalls) -> str:
    if "ddp" in evidence.uses and small.kind == "all_reduce":
        return "Reduce larger buckets (bucket_cap_mb of DDP, 25 by default)"
    if "fsdp2" in evidence.uses:
        return "Shard several blocks as one group, fully_shard([block, next_block])"
    if "fsdp1" in evidence.uses:
        return "Wrap several blocks as one unit"
    return "Flatten what is sent one after the other into one tensor"


ADVICE = Advice(code="test_link", find=_find_link)
SMALL = Advice(code="merge_calls", find=_find_small, knobs={"merge_calls": ("bucket_cap_mb",)})
