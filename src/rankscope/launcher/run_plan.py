"""Identity and location of a run. Every node of a run must reach the same result, so no clock is read.

Several launchers are one run if they share a rendezvous, independent of the name of a folder. A launch on one node is
alone by definition.
"""

from __future__ import annotations

import secrets
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from rankscope.config import ToolConfig
from rankscope.errors import ConfigError
from rankscope.rundir.urls import is_url, last_name

__all__ = ["RunPlan", "check", "name_of", "place_of"]

_NO_ID = "none"  # torchrun's default of --rdzv-id


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Name and location of a run, as far as the command line determines them."""

    run_id: str | None
    """None: the run directory's name."""
    run_dir: Path | None
    """None: the next free number below :data:`rankscope.rundir.layout.RUNS_FOLDER`."""
    node: str | None
    """The node rank if the user numbered the nodes, else None."""
    launch: str
    """Identity of the launch: that of the rendezvous, or one that no other launch has."""
    alone: bool
    """Whether the launch is on one node and shares its run directory with no other launch."""
    store: str | None = None
    """URL of the run directory, if it is in a store."""
    elastic: bool = False
    """Nodes may leave and come back while the job runs (``--nnodes 1:2``)."""


def check(torchrun: Namespace, config: ToolConfig) -> RunPlan:
    """Apply the rules; touches no file.

    Raises:
        ConfigError: several nodes that cannot know that they belong together.
    """
    run_id = torchrun.rdzv_id if torchrun.rdzv_id not in (None, "", _NO_ID) else None
    run_dir, store = place_of(config)
    least, most = _nodes(torchrun.nnodes)
    several = most > 1 and not torchrun.standalone
    if several and run_id is None:
        raise ConfigError(
            f"--nnodes {torchrun.nnodes} needs --rdzv-id: all nodes must name the same run. "
            "Add for instance --rdzv-id=$SLURM_JOB_ID on every node"
        )
    if several and run_dir is None and store is None:
        raise ConfigError(
            f"--nnodes {torchrun.nnodes} needs a run directory that all nodes see. "
            "Add -S run.dir=/shared/folder/NAME, or the URL of a store, the same on every node"
        )
    numbered = several and torchrun.rdzv_backend == "static"
    return RunPlan(
        run_id=run_id,
        run_dir=run_dir,
        node=str(torchrun.node_rank) if numbered else None,
        launch=f"rendezvous {run_id}" if several else f"launch {secrets.token_hex(16)}",
        alone=not several,
        store=store,
        elastic=several and least < most,
    )


def place_of(config: ToolConfig) -> tuple[Path | None, str | None]:
    """Return the folder, or the URL, that is configured for the run."""
    named = config.run.dir
    if named is not None and is_url(named):
        return None, named.rstrip("/")
    return (Path(named).absolute() if named else None), None


def name_of(run_dir: Path | None, store: str | None) -> str | None:
    """Return the last part of a run directory's path or URL; None if neither was given."""
    return run_dir.name if run_dir is not None else last_name(store or "") or None


def _nodes(nnodes: str) -> tuple[int, int]:
    from torch.distributed.run import parse_min_max_nnodes

    try:
        least, most = parse_min_max_nnodes(nnodes)
    except (ValueError, RuntimeError):
        return 1, 1  # torchrun refuses it with its own message
    return int(least), int(most)
