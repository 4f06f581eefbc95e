"""Communication calls in which a rank waits, completed from the stack of its training thread.

torch's flight recorder has no sends and receives of gloo, no call that only uses the store (``new_group``,
``monitored_barrier``), and no root of a broadcast. Where a thread waits in such a function of
``torch.distributed.distributed_c10d``, its arguments are the local variables of that frame.

The recorder never notes that a send or receive of a batch has ended; the launch of the batch, which follows them, it
does note.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rankscope.records.running.hang import Call

__all__ = ["add_from_stack", "settle_messages"]

_FILE = "torch/distributed/distributed_c10d.py"
_MESSAGES = {"send": "dst", "recv": "src"}
_ROOTED = {"broadcast": "src", "scatter": "src", "reduce": "dst", "gather": "dst"}
_UNRECORDED = ("new_group", "split_group", "monitored_barrier")
"""All ranks have to enter them, and no recorder knows them."""

Groups = Mapping[str, Sequence[int]]
"""Name of each process group on this rank -> its ranks."""


def settle_messages(calls: Sequence[Call], groups: Groups) -> None:
    """Set the peers of recorded sends and receives, and whether those of batches have ended.

    Args:
        calls: of all groups, in order of issue; changed.
        groups: the process groups.
    """
    batch: dict[str, list[Call]] = {}
    for call in calls:
        name = call.name.rpartition(":")[2]
        if call.message:
            batch.setdefault(call.group, []).append(call)
            call.peer = _rank(groups, call.group, name.replace("<-", "->").rpartition("->")[2])
        elif name == "coalesced" and (messages := batch.pop(call.group, None)):
            call.message = True  # its number is that of the last collective, since it is none itself
            for message in messages:
                message.done = message.done or call.done
        else:
            batch.pop(call.group, None)


def add_from_stack(calls: list[Call], frame: Any, groups: Groups) -> None:
    """Add or complete the call in which a thread waits. Raises nothing.

    Args:
        calls: what the recorder has; changed.
        frame: the innermost frame of the thread.
        groups: the process groups.
    """
    with contextlib.suppress(Exception):  # another version of torch, or another function of that name
        while frame is not None:
            if frame.f_code.co_filename.replace("\\", "/").endswith(_FILE) and _taken(calls, frame, groups):
                return
            frame = frame.f_back


def _taken(calls: list[Call], frame: Any, groups: Groups) -> bool:
    """Whether the frame is of a function that is known here; its call is then in ``calls``."""
    function = frame.f_code.co_name
    if function not in (*_MESSAGES, *_ROOTED, *_UNRECORDED):
        return False
    values = frame.f_locals
    group = "" if function in ("new_group", "split_group") else _name(values.get("group"))
    group = group or _name(None)
    if function in _UNRECORDED:
        last = max((call.seq for call in calls if call.group == group and not call.message), default=0)
        if not any(call.group == group and not call.message and not call.done for call in calls):
            calls.append(_call(group, f"python:{function}", seq=last + 1))
        return True
    side = {**_MESSAGES, **_ROOTED}[function]
    other = values.get(side)
    if other is None:
        other = _rank(groups, group, values.get(f"group_{side}"))
    if function in _ROOTED:
        waits = [call for call in calls if call.group == group and not call.message and not call.done]
        if other is not None and waits and function in waits[-1].name:
            waits[-1].root = int(other)
    elif not any(call.message and not call.done for call in calls):
        peer = None if other is None else int(other)
        calls.append(_call(group, f"python:{function}", message=True, peer=peer, sizes=_sizes(values.get("tensor"))))
    return True


def _call(group: str, name: str, **more: Any) -> Call:
    return Call(**{"group": group, "seq": 0, "name": name, "done": False, "created_ns": time.time_ns(), **more})


def _sizes(tensor: Any) -> list[list[int]]:
    return [[int(length) for length in tensor.shape]] if hasattr(tensor, "shape") else []


def _name(group: Any) -> str:
    from torch.distributed import distributed_c10d

    default = distributed_c10d._get_default_group()  # noqa: SLF001 - no public way to the default group
    found = group if hasattr(group, "group_name") else default
    return str(found.group_name)


def _rank(groups: Groups, group: str, position: Any) -> int | None:
    """Return the rank at a position within a group; None if either is unknown."""
    try:
        return int(groups[group][int(position)])
    except (KeyError, IndexError, TypeError, ValueError):
        return None
