"""Remainder of a spool when a run is finished: only what was placed is removed, and the rest is reported."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Mapping
from pathlib import Path

from rankscope.rundir.foreign import read_foreign
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool

__all__ = ["discard", "later", "left_in_words", "remove_incomplete", "remove_unannounced"]

_TRACES = ("trace_*.json", "kineto_*.json")
_PRECIOUS = (*_TRACES, "held_*", "window_*.json", "memory_*.pickle", "pulse_*", "steps_pulse_*")
_SHOWN = 3


def remove_unannounced(spool: Spool) -> list[str]:
    """Remove traces that no rank announced, since a rank announces a complete trace; return what was removed."""
    announced = set()
    for record in spool.records():
        with contextlib.suppress(Exception):  # a file that cannot be read announces nothing, and is kept
            record_fields = json.loads(read_foreign(record, 64 << 20))
            announced |= {Path(record_fields[key]).name for key in ("trace", "snapshot") if record_fields.get(key)}
    gone = []
    for pattern in _TRACES:
        for path in sorted(spool.path.glob(pattern)):
            if path.name not in announced:
                with contextlib.suppress(OSError):
                    size = path.stat().st_size
                    path.unlink()
                    gone.append(f"a trace was not kept, since its rank ended while it wrote it ({size / 1e6:.1f} MB)")
    return gone


def discard(spool: Spool, *, step_logs: bool = False) -> bool:
    """Remove the spool, file by file. Folders that hold recorded data are kept, and then the spool is too.

    Args:
        spool: of this node.
        step_logs: remove these too, if no window was recorded that they belong to.

    Returns:
        Whether it is gone.
    """
    if any(path for pattern in _PRECIOUS[: -2 if step_logs else None] for path in spool.path.glob(pattern)):
        return False
    for path in spool.path.iterdir():
        with contextlib.suppress(OSError):
            path.unlink()
    try:
        spool.path.rmdir()
    except OSError:
        return False
    return True


def left_in_words(spool: Spool, why: Mapping[str, str]) -> str:
    """Describe in one line what stays in a spool, why, and where.

    Args:
        spool: with the files that could not be placed.
        why: for each file that the helper tried to place, what went wrong.
    """
    kept = sorted({path for pattern in _PRECIOUS for path in spool.path.glob(pattern)})
    size = sum(path.stat().st_size for path in kept)
    names = ", ".join(path.name for path in kept[:_SHOWN]) + (
        f" and {len(kept) - _SHOWN} more" if len(kept) > _SHOWN else ""
    )
    reasons = "; ".join(dict.fromkeys(why.values()))
    sentence = f"{len(kept)} file(s) of {size / 1e6:.1f} MB stay in {spool.path} on {socket.gethostname()} ({names})"
    sentence = f"{reasons}: {sentence}" if reasons else sentence
    return f"{sentence}; {later(spool)}"


def later(spool: Spool) -> str:
    """Return how the files left in a spool get to their run directory, to be appended to a sentence."""
    return f"`rankscope gather {spool.path}` there places it, once the run directory can be written"


def remove_incomplete(run_dir: RunDir, pids: list[int]) -> None:
    """Remove the incomplete files of helpers of this node that died."""
    for pid in pids:
        for path in run_dir.path.glob(f"**/.*.{socket.gethostname()}.{pid}.tmp"):
            path.unlink(missing_ok=True)
