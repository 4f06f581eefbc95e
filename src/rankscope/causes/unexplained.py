"""Cause: no other cause explains half of the extra time."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.causes.base import GARBAGE_COLLECTION, Cause, Facts

__all__ = ["CAUSE"]

_ADVICE = (
    (
        "Record again with stacks (-S capture=full, or with_stack=True of torch.profiler), and look at that part of "
        "the merged timeline."
    ),
)


def _advise(facts: Facts) -> Sequence[str]:
    if facts.line:
        return [f"Look at {facts.line}, in which most of its time passes, and at the merged timeline."]
    return ["Look at the stretch in the merged timeline (rankscope view)."] if facts.stacks else _ADVICE


CAUSE = Cause(
    name="unexplained",
    phrase="no single cause explains most of it",
    noun="no single cause",
    advice=_ADVICE,
    advise=_advise,
    check="its part of the timeline looks like that of its peers",
    first_try="record again with stacks (`-S capture=full`)",
    needs=(),
    planted_by="",
    noisy=True,
    behind=("gpu_throttled", "pcie_degraded", "cpu_throttled", GARBAGE_COLLECTION),
)
