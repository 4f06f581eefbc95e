"""Cause: the host launches the same operators more slowly.

``analysis.stragglers.cost`` assigns it to extra host time between launches that no other cause explains.
"""

from __future__ import annotations

from rankscope.causes.base import Cause

__all__ = ["CAUSE"]

CAUSE = Cause(
    name="launch_bound",
    phrase="its host is slower at launching the same work",
    noun="slower launching",
    advice=(
        "Compare the CPUs there with those of the peers: clock, other processes, pinning (torchrun --numa-binding).",
        "Launch less on all ranks: torch.compile, CUDA graphs (mode='reduce-overhead'), fused or foreach optimizers.",
    ),
    check="launches as close to each other as on its peers",
    first_try="the host's CPU; fewer launches",
    needs=("cpu_op",),
    planted_by="",
    noisy=True,
    behind=("cpu_throttled",),
)
