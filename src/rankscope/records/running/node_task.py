"""Launcher to node helper and back: the task in a file of the spool, the job's end and messages in pipes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from rankscope.limits import Rank

__all__ = ["Begun", "HelperMessage", "HelperState", "JobEnd", "KeptTraces", "NodeTask", "ReduceTask", "ReducedRanks"]


@dataclass(kw_only=True)
class NodeTask:
    """All that a node's helper must know to claim the run directory and to finish the run without its launcher."""

    run_id: str | None
    """Name of the run; None: that of the run directory."""
    launch: str
    """An identifier that the launchers of one run share, and no others have."""
    alone: bool
    """Whether the launch is on one node and shares its run directory with no other launch."""
    run_dir: str | None
    """Absolute path; None: the next free number below ``base``."""
    base: str
    """Folder of runs without a directory of their own."""
    node: str | None
    """The node rank if the user numbered the nodes, else None."""
    launcher_pid: int
    argv: list[str]
    """Without secrets, like ``config``."""
    config: dict[str, Any]
    gather_timeout_s: float
    report: bool
    """Whether the node that writes the manifest also makes the report."""
    hta: bool
    report_timeout_s: float
    metrics: bool = False
    """Whether RUN/metrics.prom is written while the job runs."""
    encrypt: list[str] = field(default_factory=list)
    """Recipients of age for whom all files are encrypted that are placed in the run directory; empty: none are."""
    signing_key: str | None = None
    """File with the Ed25519 key that signs run.json."""
    keep: str = "all"
    """Which traces are placed: ``all``; with ``none`` only their columns; with ``suspects`` those of ranks that the
    verdict names, and of some others for comparison."""
    leave_free_bytes: int = 0
    """Bytes of the run directory's disk that traces must leave free."""
    most_bytes: int = 0
    """Largest size of the traces that this node places; 0: no limit."""
    store: str | None = None
    """URL of the run directory if it is in a store; ``run_dir`` is then this node's part of it, in the spool."""
    elastic: bool = False
    """Nodes may leave and come back while the job runs."""
    ends_with_ranks: bool = False
    """No launcher waits: each process of the job attached by itself, and the job is over when all of them have
    ended."""


@dataclass(kw_only=True)
class ReduceTask:
    """What one node recorded in one window, for the process that converts it to columns."""

    attempt: int
    window: int
    target: str
    """Path of the object."""
    ranks: list[int]
    names: list[str]
    """Names of the traces in the run directory."""
    traces: list[str]
    """Paths of the traces."""


@dataclass(kw_only=True)
class ReducedRanks:
    """Ranks whose columns are in an object."""

    ranks: list[int]


@dataclass(kw_only=True)
class KeptTraces:
    """Decided once, from the columns of all ranks, by the node that makes the report; all other nodes follow it."""

    ranks: list[Rank] | None = None
    """Ranks whose traces are kept; None: those of all ranks, because no verdict decides."""
    suspects: list[Rank] = field(default_factory=list)
    """Those of them that the verdict names; the others are kept for comparison."""
    why: str = ""
    """The reason, in words."""


@dataclass(kw_only=True)
class Begun:
    """Result of the ``rankscope exec`` that started a run on this node."""

    refused: str = ""
    """Why the run directory or the configuration cannot be used; no process starts then."""
    exit_code: int = 0
    """Exit code of each process in that case."""


@dataclass(kw_only=True)
class JobEnd:
    """How the job ended. Both fields are None if the launcher was killed and the end is unknown."""

    exit_code: int | None = None
    signal: int | None = None
    """The signal that stopped the launcher, if any."""


@dataclass(kw_only=True)
class HelperMessage:
    """One line from the helper, or from the process that makes the report, to the launcher.

    ======== ==============================================================================
    claimed  ``text``: the run directory; from now on traces go there
    refused  ``text``: why the run directory cannot be used
    alive    ``done``: bytes handled so far; that it grows says that the disk answers
    note     ``text``: for the person at the terminal
    waiting  ``text``: for what, while there is nothing else to report
    gathered ``text``: what was left in the spool and why, empty when nothing was
    manifest run.json is written, by this node or (``text``) by another
    begun    the report is being made
    bytes    ``text``: title, ``done`` of ``total`` bytes
    stages   ``total``: number of stages that follow
    stage    ``text``: what is done next
    report   ``text``: the ClusterReport as JSON, which is in the run directory if ``placed``
    lacking  ``text``: why there is no report
    keeping  the verdict is waited for and the traces that it names are placed, for up to ``total`` seconds
    done     nothing follows
    ======== ==============================================================================
    """

    kind: Literal[
        "claimed", "refused", "alive", "note", "waiting", "gathered", "manifest", "begun", "bytes", "stages", "stage",
        "report", "lacking", "keeping", "done",
    ]  # fmt: skip
    text: str = ""
    done: float = 0
    total: float = 0
    placed: bool = True


@dataclass(kw_only=True)
class HelperState:
    """A line of the file by which a node helper passes on to its successor what the spool does not show."""

    pid: int
    notes: list[str] = field(default_factory=list)
