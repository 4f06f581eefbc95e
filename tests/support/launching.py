"""Functions for tests that launch real commands."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from rankscope.records.codec import from_json
from rankscope.records.manifest import RunManifest
from rankscope.records.rank import RankRecord
from rankscope.records.report import ClusterReport
from rankscope.rundir.layout import RunDir

JOBS = Path(__file__).parent.parent / "dist" / "jobs"
RANKSCOPE = [sys.executable, "-m", "rankscope", "run"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
NOT_GIVEN_OUT = 15_000, 32_000
"""Ports below those of net.ipv4.ip_local_port_range, which the system does not assign."""
LIMIT_S = 500
"""Time limit of a launch, seconds. On a busy machine a launch may take a minute."""


@dataclass
class Launched:
    """A finished command."""

    code: int
    stdout: str
    stderr: str
    run: RunDir

    @property
    def manifest(self) -> RunManifest:
        return from_json(RunManifest, self.run.manifest.read_bytes())

    @property
    def report(self) -> ClusterReport:
        return from_json(ClusterReport, (self.run.report / "report.json").read_bytes())

    def records(self, attempt: int = 0, window: int = 0) -> list[RankRecord]:
        (found,) = [w for w in self.manifest.windows if (w.attempt, w.window) == (attempt, window)]
        return found.records


def flags_of(*settings: str) -> list[str]:
    """Return the settings, each after ``-S``."""
    return [word for setting in settings for word in ("-S", setting)]


def environment() -> dict[str, str]:
    """Return the environment of commands: without variables of an outer launcher, and with one thread per rank."""
    outer = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PYTHONPATH")
    kept = {key: value for key, value in os.environ.items() if key not in outer and not key.startswith("PET_")}
    return {**kept, "OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "6"}


def free_port() -> int:
    """Return a free port that the system assigns to no other process.

    A launch takes seconds to reach its rendezvous. Meanwhile another one's store may get a port that the system chose,
    and two nodes that meet there would wait for a rendezvous that never ends.
    """
    while True:
        port = random.SystemRandom().randrange(*NOT_GIVEN_OUT)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port


def must_tell(report: ClusterReport, kind: str, ranks: list[int], cause: str | None) -> None:
    """Assert kind, ranks and cause of a verdict. It must never name other ranks.

    Skips where it says otherwise, and that other processes took the CPUs of the ranks: then it may name nobody, or what
    the machine did to a rank.
    """
    verdict, findings = report.verdict, [(f.kind, f.ranks) for f in report.findings]
    assert set(verdict.ranks) <= set(ranks), (verdict.sentence, findings)
    told = (verdict.kind, sorted(verdict.ranks), verdict.cause)
    busy = "contended" in [verdict.kind, *(finding.kind for finding in report.findings)]
    if busy and told != (kind, ranks, cause):
        pytest.skip(f"no rank can be told beside what else runs here: {verdict.sentence}")
    assert told == (kind, ranks, cause), (verdict.sentence, findings)
