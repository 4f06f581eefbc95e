"""Cause: the same operators with the same shapes take longer.

It is the last cause of extra device work in the table, because it applies where neither the number of operators nor
their shapes differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.causes.base import Cause, Facts, WorkComparison, WorkExample

__all__ = ["CAUSE"]


def _more_work(_work: WorkComparison) -> bool:
    return True


_ADVICE = (
    "Look there for throttling, ECC errors or another process on the device (nvidia-smi -q -d CLOCK,PERFORMANCE).",
    "Move the rank to another device: a slowness that stays behind is the device's.",
    "On a CPU, record shapes (-S capture=shapes): without them a rank with more data looks the same.",
)


def _advise(facts: Facts) -> Sequence[str]:
    if facts.device:
        return _ADVICE[:2]
    shapes = [] if facts.shapes else [_ADVICE[2]]
    cpus = "Compare the CPUs there with those of the peers: clock, other processes, pinning (torchrun --numa-binding)."
    return [cpus, *shapes]


CAUSE = Cause(
    name="slow_compute",
    phrase="the same work takes longer there",
    noun="the same work taking longer",
    advice=_ADVICE,
    advise=_advise,
    check="the same kernels take as long as on its peers",
    first_try="the device: clocks, temperature, ECC, another process on it",
    needs=("cpu_op",),
    planted_by="demo: slow_compute",
    more_work=_more_work,
    noisy=True,
    behind=("gpu_throttled",),
    examples=(WorkExample(claims=True),),
)
