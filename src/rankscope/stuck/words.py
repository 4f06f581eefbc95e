"""Descriptions of where a rank is, and of its calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from rankscope.listing import named_ranks
from rankscope.records.running.hang import Call, RankState

__all__ = ["call_in_words", "doing", "message_in_words", "named", "places", "sent", "works", "works_elsewhere"]

BUSY_S = 0.4
"""Time in which a thread ran or was ready to run, in seconds, between two questions about 4 s apart, from which on it
works; a waiting one has none."""
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
_KERNEL = {
    "*nanosleep": "asleep",
    "wait_for_partner": "opening a FIFO",
    "*pipe_read": "reading from a pipe",
    "*pipe_write": "writing to a full pipe",
    "n_tty_read": "waiting for a terminal",
    "do_wait": "waiting for a process that it has started",
    "*fuse_*": "waiting for a FUSE file system",
    "nfs*": "waiting for NFS",
    "rpc_wait*": "waiting for NFS",
    "ptlrpc*": "waiting for Lustre",
    "folio_wait*": "waiting for a disk",
    "io_schedule*": "waiting for a disk",
    "fcntl_setlk*": "waiting for a file lock",
    "locks_lock*": "waiting for a file lock",
}
"""Functions of the kernel in which a thread waits for something that explains it. Locks of a process and sockets, in
which ranks wait for each other, are none of them."""
_LIBRARIES = ("/torch/", "/site-packages/", "/dist-packages/", "/lib/python", "/rankscope/agent/", "<frozen")


def named(ranks: Sequence[int]) -> str:
    """Return ``Rank 1`` or ``Ranks 1, 2``."""
    return named_ranks(ranks).capitalize()


def call_in_words(call: Call, group: str) -> str:
    """Return for instance ``all_reduce number 57 of group default ([32, 8] Float)``."""
    shapes = ", ".join(str(shape) for shape in call.sizes[:2])
    sizes = f" ({' '.join(filter(None, (shapes, call.dtype)))})" if shapes else ""
    return f"{_operation(call)} number {call.seq:,} of group {group or 'default'}{sizes}"


def sent(call: Call, *, with_root: bool = False) -> str:
    """Return for instance ``calls all_reduce of [32, 8]``."""
    shapes = ", ".join(str(shape) for shape in call.sizes[:2])
    root = f" with rank {call.root} as its root" if with_root and call.root is not None else ""
    return f"calls {_operation(call)}{f' of {shapes}' if shapes else ''}{root}"


def message_in_words(call: Call) -> str:
    """Return ``to send to rank 1`` or ``to receive from rank 1``."""
    return f"to {'send to' if 'send' in call.name else 'receive from'} rank {call.peer}"


def _operation(call: Call) -> str:
    return call.name.rpartition(":")[2] or call.name


def works(state: RankState) -> bool:
    """Whether the main thread of a rank used its CPU between two questions, or waited for something many times."""
    return state.cpu_s >= BUSY_S or state.switches >= BUSY_SWITCHES


def works_elsewhere(state: RankState) -> bool:
    """Whether other threads of a rank, or processes that it has started, used a CPU between two questions."""
    return state.others_s >= BUSY_S


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
    silent = ""
    if answer is None and not state.stage:
        silent = "does not answer"
        if state.state and state.state not in "TtZX":
            silent += f" and {'computes' if works(state) else 'waits'} in native code that keeps Python's lock"
    return ", ".join(filter(None, (silent, part, script, inner, _outside(state)))) or "nothing is known of where it is"


def places(ranks: Mapping[int, RankState], but: Sequence[int]) -> list[str]:
    """Describe where all ranks but some are, with equal places grouped; at most four lines."""
    found: dict[str, list[int]] = defaultdict(list)
    for rank, state in ranks.items():
        if rank not in but:
            found[doing(state)].append(rank)
    return [f"{named(members)}: {place}." for place, members in list(found.items())[:4]]


def _outside(state: RankState) -> str:
    """Return what is seen of a rank from outside: what its main thread waits for, or that others work for it."""
    if works(state):
        return ""
    if works_elsewhere(state):
        return "while its other threads or processes that it started work"
    otherwise = "waiting for a disk or a network" if state.state == "D" else ""
    return next((words for name, words in _KERNEL.items() if fnmatchcase(state.kernel, name)), otherwise)


def _short(frame: str) -> str:
    """Shorten a path to ``train.py:30 in fetch``."""
    return frame.rpartition("/")[2]
