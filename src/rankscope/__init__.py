"""Why is a distributed PyTorch job slow, which rank does it, and what would fixing it gain?

Importing has no side effects and needs only the standard library. A training script may call :func:`step` if its steps
cannot be detected from outside, :func:`attach` if it cannot be started by a command of rankscope, and :func:`region`,
:func:`mark`, :func:`describe` and :func:`capture` to tell the report more. A notebook calls :func:`analyze`,
:func:`load` and :func:`read_report`, which are loaded when they are first used. Everything else is done by the command
``rankscope``.
"""

from __future__ import annotations

import sys

from rankscope.in_job import active, capture, describe, mark, region

TYPE_CHECKING = False  # every rank imports this module, and typing takes longer to import than it
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from rankscope import errors
    from rankscope.agent.attach import Attached
    from rankscope.api import (
        Diff,
        Estimate,
        Report,
        Traces,
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
    "Estimate",
    "Report",
    "Traces",
    "__version__",
    "active",
    "analyze",
    "attach",
    "capture",
    "check",
    "describe",
    "diff",
    "errors",
    "latest",
    "load",
    "load_traces",
    "mark",
    "read_manifest",
    "read_report",
    "read_sweep",
    "region",
    "step",
    "trace_handler",
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
    that a rank waits in collectives, %, and, after :func:`describe`, ``rankscope/tokens_per_s`` and
    ``rankscope/samples_per_s``.

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


def trace_handler(folder: Path | str) -> Callable[[Any], None]:
    """Write the traces of the script's own profiler so that ``rankscope analyze FOLDER`` reads them as they are.

    ``torch.profiler.profile(schedule=..., on_trace_ready=rankscope.trace_handler("traces"))``, on every rank. For jobs
    that profile themselves; under ``rankscope run`` it is not needed.

    The files are named by rank and step (``rank_3_step_20.pt.trace.json.gz``), contain rank, world size and host, are
    compressed at level 1, which takes an eighth of the time of PyTorch's own level 9, and appear when they are
    complete. Call ``profiler.step()`` in each step, because the report needs the marks of steps.

    Args:
        folder: is created if it does not exist; the same for all ranks.

    Returns:
        The function that the profiler calls with each of its recordings. It raises nothing: if the trace cannot be
        written, it warns, and the job continues.

    Raises:
        TypeError: ``folder`` is no path.
    """
    from rankscope.own_profiles import writer_of

    return writer_of(folder)


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        return import_module("rankscope.errors") if name == "errors" else getattr(import_module("rankscope.api"), name)
    near = ""
    if not name.startswith("_"):  # such names are asked for by tools, not by people
        from difflib import get_close_matches

        near = "".join(f"; did you mean {match!r}?" for match in get_close_matches(name, __all__, 1))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{near}")


def __dir__() -> list[str]:
    return sorted(__all__)
