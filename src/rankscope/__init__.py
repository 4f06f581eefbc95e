"""Why is a distributed PyTorch job slow, which rank does it, and what would fixing it gain?

Importing has no side effects and needs only the standard library. A training script may call :func:`step` if its steps
cannot be detected from outside, and :func:`attach` if it cannot be started by a command of rankscope. A notebook calls
:func:`analyze`, :func:`load` and :func:`read_report`, which are loaded when they are first used. Everything else is
done by the command ``rankscope``.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # every rank imports this module, and typing takes longer to import than it
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from rankscope.agent.attach import Attached
    from rankscope.api import (
        Diff,
        Report,
        analyze,
        check,
        diff,
        load,
        load_traces,
        read_manifest,
        read_report,
        read_sweep,
    )

__all__ = [
    "Diff",
    "Report",
    "__version__",
    "analyze",
    "attach",
    "check",
    "diff",
    "latest",
    "load",
    "load_traces",
    "read_manifest",
    "read_report",
    "read_sweep",
    "step",
]

__version__ = "0.1.0"


def step() -> None:
    """Mark the end of a training step.

    Needed only if the automatic detection miscounts (``rankscope config`` and the report name the signal that counts
    steps). From the first call on, only these calls count. Does nothing in a process that is not recorded.
    """
    agent = sys.modules.get("rankscope.agent.session")
    if agent is not None:
        agent.user_step()


def latest() -> dict[str, float] | None:
    """Return current numbers of the job for the script's own logger: ``wandb.log(rankscope.latest() or {})``.

    They describe the ranks of this node over their last 200 steps: ``rankscope/step_ms``, the median step time, ms;
    ``rankscope/own_ms``, the largest time of a rank before the ranks synchronise, ms per step, and
    ``rankscope/slowest_rank``, the number of that rank; ``rankscope/input_pct``, the largest share of time in a data
    loader, %; ``rankscope/named_ranks``, the number of ranks that the step logs name as slow; ``rankscope/step``, the
    step of the rank that is furthest behind; where it is known, ``rankscope/wait_pct``, the largest share of time
    that a rank waits in collectives, %.

    Returns:
        The numbers, updated every two seconds; None in a process that is not recorded, and before the first update.
        Reads one small file on the node's own disk. Raises nothing.
    """
    agent = sys.modules.get("rankscope.agent.session")
    return agent.latest() if agent is not None else None


def attach(
    run_dir: Path | str | None = None, schedule: str | Mapping[str, int] | None = None, settings: Sequence[str] = ()
) -> Attached:
    """Record this process if it becomes a rank of a training job; for jobs that no command of rankscope can start.

    Every rank calls it, before it creates its optimizers. Does nothing if the process is recorded already, under
    ``rankscope run`` or ``rankscope exec``, or if RANKSCOPE_DISABLE is set. Raises nothing: if the process cannot be
    recorded, it warns, and the job continues.

    Args:
        run_dir: the run directory, the same in all ranks. On several nodes it is a folder that all nodes can access.
            Default: the next free number below rankscope_runs.
        schedule: the name of a schedule (``short``), or its numbers (``{"skip_first": 5, "active": 3}``).
        settings: further settings, as after ``-S``: ``["capture.record_shapes=true"]``.

    Returns:
        A handle whose ``close()`` ends recording, for a notebook whose process continues; it is a context manager, too.
    """
    from rankscope.agent.attach import attach as attach_here

    return attach_here(run_dir, schedule, settings)


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("rankscope.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
