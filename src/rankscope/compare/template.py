"""The usual step of one rank: its communication calls in order, and the rank's own work between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray

from rankscope.records.rank_window import RankWindow

__all__ = ["KINDS_OF_WORK", "Template", "call_keys", "make_template", "targets"]

F64 = NDArray[np.float64]
CallKey = tuple[str, int, int]
"""Kind, ranks of the group, bytes."""

KINDS_OF_WORK = ("host", "device", "transfer")
"""The work that a step consists of; waiting results from it."""


@dataclass(frozen=True, slots=True)
class Template:
    """Arrays have one entry per call of the step: work of the rank before it, and its transfer, ns."""

    keys: list[CallKey]
    work: dict[str, F64]
    """For each of :data:`KINDS_OF_WORK`: means over the steps."""


def call_keys(own: RankWindow) -> list[CallKey]:
    """Return the key of each call of a rank."""
    calls = own.calls
    return [(own.text(kind), size, n) for kind, size, n in zip(calls.kind, calls.size, calls.bytes, strict=True)]


def make_template(windows: Sequence[RankWindow]) -> Template | None:
    """Return the usual step over windows of one rank; None if none was replayed.

    Only steps with the most common sequence of calls are used. The first step of a window is left out if there are
    others, because recording began inside it.
    """
    steps: list[tuple[tuple[CallKey, ...], F64]] = []
    for own in windows:
        calls = own.calls
        if not calls.host_ns or not calls.transfer_ns:
            continue
        keys, place = call_keys(own), np.array(calls.step)
        table = np.array([calls.host_ns, calls.device_ns, calls.transfer_ns], np.float64)
        numbers = np.unique(place[place >= 0])
        for number in numbers[1:] if len(numbers) > 1 else numbers:
            of_step = np.flatnonzero(place == number)
            steps.append((tuple(keys[i] for i in of_step.tolist()), table[:, of_step]))
    if not steps:
        return None
    usual, _ = Counter(keys for keys, _ in steps).most_common(1)[0]
    mean = np.mean([table for keys, table in steps if keys == usual], axis=0)
    return Template(list(usual), dict(zip(KINDS_OF_WORK, mean, strict=True)))


def targets(template: Template, keys: Sequence[CallKey], own: dict[str, F64]) -> dict[str, F64]:
    """Return the template's work at the calls of another program's step.

    Calls are aligned by their keys. Where the programs differ, the work of a stretch is distributed in proportion to
    the other program's; work before a call that only one of them has is added to the next call that both have.

    Args:
        template: of the one program.
        keys: calls of a step of the other one.
        own: its work, one entry per call.
    """
    found = {kind: np.zeros(len(keys)) for kind in own}
    carried = dict.fromkeys(own, 0.0)
    blocks = SequenceMatcher(None, template.keys, list(keys), autojunk=False).get_opcodes()
    for tag, a, b, c, d in blocks:
        for kind, mine in own.items():
            theirs = template.work[kind][a:b]
            if tag == "equal":
                found[kind][c:d] = theirs
                if kind != "transfer":
                    found[kind][c] += carried[kind]
                    carried[kind] = 0.0
            elif c < d and mine[c:d].sum() > 0:
                found[kind][c:d] = mine[c:d] * (theirs.sum() / mine[c:d].sum())
            else:
                carried[kind] += float(theirs.sum())
    return found
