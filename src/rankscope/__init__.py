"""Why is a distributed PyTorch job slow, which rank does it, and what would fixing it gain?

Importing has no effects and needs nothing but the standard library. A training script may call :func:`step` where
its steps cannot be seen from outside, and :func:`attach` where no command of rankscope can stand before it. A notebook
calls :func:`analyze`, :func:`load` and :func:`read_report`, which are loaded when they are first used. Everything else
is the command ``rankscope``.
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

    Needed only when the automatic detection miscounts (``rankscope config`` and the report say which detector
    counts). From the first call on, these calls alone count. Does nothing outside ``rankscope run``.
    """
    agent = sys.modules.get("rankscope.agent.session")
    if agent is not None:
        agent.user_step()


def latest() -> dict[str, float] | None:
    """How the job is doing now, in numbers for the script's own logger: ``wandb.log(rankscope.latest() or {})``.

    Of the ranks of this node, over their last 200 steps: ``rankscope/step_ms``, the median step; ``rankscope/own_ms``,
    the time before the ranks meet of the rank that has most, and ``rankscope/slowest_rank``, which one that is;
    ``rankscope/input_pct``, the largest share of the time spent in a data loader; ``rankscope/named_ranks``, how many
    ranks the step logs name; ``rankscope/step``, how far the last rank is.

    Returns:
        The numbers, which are renewed every two seconds; None outside of ``rankscope run`` and before there are any.
        Reads one small file on the node's own disk. Raises nothing.
    """
    agent = sys.modules.get("rankscope.agent.session")
    return agent.latest() if agent is not None else None


def attach(
    run_dir: Path | str | None = None, schedule: str | Mapping[str, int] | None = None, settings: Sequence[str] = ()
) -> Attached:
    """Record this process, if it turns out to be a rank of a training job; for what cannot be put under a command.

    Every rank calls it, before it makes its optimizers. Does nothing where the process is recorded already, under
    ``rankscope run`` or ``rankscope exec``, and where RANKSCOPE_DISABLE is set. Raises nothing: where it cannot record
    it warns, and the job goes on.

    Args:
        run_dir: the run directory, the same in all ranks. On several nodes a folder that all of them see. Default: the
            next free number below rankscope_runs.
        schedule: the name of a schedule (``short``), or its numbers (``{"skip_first": 5, "active": 3}``).
        settings: what else to change, as after ``-S``: ``["capture.record_shapes=true"]``.

    Returns:
        A handle whose ``close()`` ends recording, for a notebook whose process goes on; it is a context manager too.
    """
    from rankscope.agent.attach import attach as attach_here

    return attach_here(run_dir, schedule, settings)


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("rankscope.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
