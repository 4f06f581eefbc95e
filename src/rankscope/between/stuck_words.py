"""Descriptions of where a rank is, and of its calls."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.listing import some_ranks
from rankscope.records.running.hang import Call, RankState

__all__ = ["call_in_words", "doing", "named", "sent", "works"]

BUSY_S = 0.4
"""CPU time of a thread, in seconds, between two questions about 4 s apart, from which on it works; a waiting one uses
none."""
BUSY_SWITCHES = 5
"""Number of times that a thread began to wait between two questions, from which on it works. A DataLoader that waits
for its workers looks for them every 5 s."""

_PARTS = {
    "before": "between two steps",
    "forward": "in the forward",
    "backward": "in the backward",
    "after": "after the backward",
}
_STAGES = {
    "began": "before init_process_group",
    "rendezvous": "in init_process_group",
    "group": "before its first step",
}
_LIBRARIES = ("/torch/", "/site-packages/", "/dist-packages/", "/lib/python", "/rankscope/agent/", "<frozen")


def named(ranks: Sequence[int]) -> str:
    """Return ``Rank 1`` or ``Ranks 1, 2``."""
    return f"Rank{'s' if len(ranks) != 1 else ''} {some_ranks(sorted(ranks))}"


def call_in_words(call: Call, group: str) -> str:
    """Return for instance ``all_reduce number 57 of group default ([32, 8] Float)``."""
    shapes = ", ".join(str(shape) for shape in call.sizes[:2])
    sizes = f" ({' '.join(filter(None, (shapes, call.dtype)))})" if shapes else ""
    return f"{_operation(call)} number {call.seq:,} of group {group or 'default'}{sizes}"


def sent(call: Call) -> str:
    """Return for instance ``calls all_reduce of [32, 8]``."""
    shapes = ", ".join(str(shape) for shape in call.sizes[:2])
    return f"calls {_operation(call)}{f' of {shapes}' if shapes else ''}"


def _operation(call: Call) -> str:
    return call.name.rpartition(":")[2] or call.name


def works(state: RankState) -> bool:
    """Whether the main thread of a rank used its CPU between two questions, or waited for something many times."""
    return state.cpu_s >= BUSY_S or state.switches >= BUSY_SWITCHES


def doing(state: RankState) -> str:
    """Describe where the training thread of a rank is: part of the step, line of the script, innermost frame."""
    answer = state.answer
    if answer is None and state.state in ("", "Z", "X"):
        return "has ended"
    part = _PARTS.get(answer.part, "") if answer is not None and not state.stage else _STAGES.get(state.stage, "")
    stacks = answer.stacks if answer is not None else state.stacks
    frames = next((stack.frames for stack in stacks if stack.training), [])
    own = [frame for frame in frames if not any(library in frame for library in _LIBRARIES)]
    script = f"at {_short(own[-1])}" if own else ""
    inner = f"in {_short(frames[-1])}" if frames and (not own or frames[-1] != own[-1]) else ""
    silent = "does not answer" if answer is None and not state.stage else ""
    return ", ".join(filter(None, (silent, part, script, inner))) or "nothing is known of where it is"


def _short(frame: str) -> str:
    """Shorten a path to ``train.py:30 in fetch``."""
    return frame.rpartition("/")[2]
