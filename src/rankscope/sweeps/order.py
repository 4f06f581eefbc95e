"""The order of runs.

Repeats are interleaved, and each round reverses the order (1 2 3, 3 2 1, ...): a machine that becomes slower during the
sweep slows all settings equally over two rounds.
"""

from __future__ import annotations

from rankscope.records.sweep import SweepPlan

__all__ = ["order_in_words", "order_of"]


def order_of(settings: int, repeats: int) -> list[tuple[int, int]]:
    """Return setting and repeat of each run, both from 1 on, in the order in which they are run."""
    forward = range(1, settings + 1)
    return [
        (setting, repeat)
        for repeat in range(1, repeats + 1)
        for setting in (forward if repeat % 2 else reversed(forward))
    ]


def order_in_words(plan: SweepPlan) -> str:
    """Return the order, by the numbers of the settings."""
    forward = [str(setting.number) for setting in plan.settings]
    if len(forward) > 6:
        forward = [*forward[:2], "...", *forward[-1:]]
    rounds = [" ".join(forward if repeat % 2 else forward[::-1]) for repeat in range(1, plan.repeats + 1)]
    return ", ".join([*rounds[:4], *(["..."] if len(rounds) > 4 else [])])
