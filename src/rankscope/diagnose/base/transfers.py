"""Transfers that nothing hides: how to begin them earlier."""

from __future__ import annotations

from rankscope.records.evidence import Evidence

__all__ = ["begin_earlier"]


def begin_earlier(evidence: Evidence) -> str:
    """Return how this job can begin its transfers earlier, by the settings of the wrapper that it uses."""
    most = next(iter(evidence.modules), "")
    if "fsdp2" in evidence.uses and evidence.modules and all(name.endswith("(root)") for name in evidence.modules):
        return "Call fully_shard on each block, not on the whole model only: all parameters are gathered as one group."
    if "fsdp2" in evidence.uses:
        where = f" Most exposed: {most}." if most else ""
        return (
            "Begin transfers earlier: fully_shard on each block, set_modules_to_forward_prefetch and "
            f"set_modules_to_backward_prefetch.{where}"
        )
    if "fsdp1" in evidence.uses:
        return "Begin transfers earlier: wrap each block, backward_prefetch=BACKWARD_PRE, forward_prefetch=True."
    if "ddp" in evidence.uses:
        where = f" Most exposed: {most}." if most else ""
        if evidence.changes.small_calls:  # the buckets are too small already
            return f"Begin transfers earlier: static_graph=True, find_unused_parameters=False.{where}"
        return f"Begin transfers earlier: smaller last DDP bucket (bucket_cap_mb), static_graph=True.{where}"
    return (
        "Begin transfers earlier, beside compute that does not need them: asynchronous calls (async_op=True), waited "
        "for where they are used."
    )
