"""Communication calls in which a rank waits, completed from the stack of its training thread.

torch's flight recorder has no sends and receives of gloo, no call that only uses the store (``new_group``,
``monitored_barrier``), and no root of a broadcast. Where a thread waits in such a function of
``torch.distributed.distributed_c10d``, its arguments are the local variables of that frame.

A thread that waits for a message of gloo that was begun by ``isend``, ``irecv`` or a batch is in ``Work.wait``, which
has no frame. The objects are local variables of its caller, and those of a batch, too (``P2POp``), which name the
peers; of other messages the peer stays unknown.

The recorder never notes that a send or receive of a batch has ended; the launch of the batch, which follows them, it
does note.
"""

from __future__ import annotations

import contextlib
import dis
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

_NOTHING = ("CACHE", "PRECALL")
"""Instructions of Python 3.11 that belong to a call."""

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
        innermost = frame
        while frame is not None:
            if frame.f_code.co_filename.replace("\\", "/").endswith(_FILE) and _taken(calls, frame, groups):
                return
            frame = frame.f_back
        if innermost is not None and _is_at_wait(innermost):
            _take_from_caller(calls, innermost)


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


def _is_at_wait(frame: Any) -> bool:
    """Whether the innermost Python frame is in a call of a method ``wait`` without a frame of its own."""
    before = [
        at for at in dis.get_instructions(frame.f_code) if at.offset <= frame.f_lasti and at.opname not in _NOTHING
    ]
    asked = [at for at in before[-3:] if at.opname in ("LOAD_METHOD", "LOAD_ATTR")]
    return bool(before) and before[-1].opname.startswith("CALL") and any(at.argval == "wait" for at in asked)


def _take_from_caller(calls: list[Call], frame: Any) -> None:
    """Add the message for which a thread waits by an object among the local variables of a frame. A collective has an
    entry in the recorder."""
    from torch.distributed import P2POp, Work

    if not calls or any(not call.done for call in calls):  # without a recorder it may be a collective
        return
    values = [value for value in frame.f_locals.values() if value is not None]
    lists = [value for value in values if isinstance(value, (list, tuple))]
    works = next((own for own in lists if own and all(isinstance(item, Work) for item in own)), None)
    works = works or [value for value in values if isinstance(value, Work)]
    of_batch = next((own for own in lists if len(own) == len(works) and all(isinstance(p, P2POp) for p in own)), None)
    # Each is waited for in turn, and none of gloo has ended before it was.
    at = next((number for number, work in enumerate(works) if not work.is_completed()), None)
    if at is None:
        return
    if of_batch is None:
        calls.append(_call(_name(None), "python:message", message=True))
    else:
        message = of_batch[at]
        name = "send" if message.op.__name__ == "isend" else "recv"
        calls.append(
            _call(
                _name(message.group),
                f"python:{name}",
                message=True,
                peer=int(message.peer),
                sizes=_sizes(message.tensor),
            )
        )


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
