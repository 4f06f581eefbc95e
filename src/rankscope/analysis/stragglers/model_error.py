"""Error of the replay itself, by kind of mesh and cause: measured, and kept in a file beside this module.

``model_error.json`` is written by ``benchmarks/truth.py --errors`` and ``benchmarks/planted.py --errors`` from jobs
whose faults cost a known time. It holds each case, the command that made it, and the errors that follow.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from rankscope.analysis.matching.collectives import Matched
from rankscope.causes.table import DEVICE_CAUSES, OURS

__all__ = ["CAUSES", "FLOOR", "LINK", "MESHES", "Cases", "errors_of", "mesh_of", "model_error"]

FILE = Path(__file__).with_name("model_error.json")
MESHES = ("one group", "grid", "stages", "ring", "experts")
"""One process group of all ranks; several groups a rank; pipeline stages; messages in a ring; all-to-all calls."""
LINK = "slow_link"
CAUSES = (*(cause.name for cause in OURS), LINK)
FEWEST = 20
"""Least number of cases for a 95 % quantile (the 19th of 20). With fewer, cases of the same cause on other meshes are
used, then all of the device, the host or the network, then all."""
INSIDE = 0.95
FLOOR = 0.05
"""Lower bound on the error. Most cases are simulated, and the simulator and the replay share their model of how streams
and calls wait for each other."""

Cases = Mapping[str, Mapping[str, Sequence[float]]]
"""Kind of mesh -> cause -> relative errors of the computed cost of a fault: computed over true cost, minus 1."""


def mesh_of(matched: Matched, *, staged: bool) -> str:
    """Return the kind of mesh (of :data:`MESHES`) of a window's calls; ``staged``: some ranks are pipeline stages."""
    if staged:
        return "stages"
    if "all_to_all" in matched.kind:
        return "experts"
    if any(channel.point_to_point for channel in matched.channels):
        return "ring"
    groups = {channel.ranks for channel in matched.channels}
    return "grid" if len(groups) > 1 else "one group"


def model_error(mesh: str, cause: str) -> float:
    """Return the half width of the 95 % confidence interval due to the model's error alone, as a share of the cost.

    For a cause from another package it is the largest of all.
    """
    table = _table()[mesh]
    return table[cause] if cause in table else max(table.values())


@cache
def _table() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads(FILE.read_text(encoding="utf-8"))["error"]
    return found


def errors_of(cases: Cases) -> dict[str, dict[str, float]]:
    """Return kind of mesh -> cause -> the error that 95 % of the cases do not exceed, for all kinds and causes."""
    return {mesh: {cause: _error(cases, mesh, cause) for cause in CAUSES} for mesh in MESHES}


def _error(cases: Cases, mesh: str, cause: str) -> float:
    def of(*causes: str) -> list[float]:
        return [off for each in cases.values() for name in causes for off in each.get(name, ())]

    own = list(cases.get(mesh, {}).get(cause, ()))
    side = [other for other in CAUSES if _side(other) == _side(cause)]
    known = next((some for some in (own, of(cause), of(*side)) if len(some) >= FEWEST), of(*CAUSES))
    return round(max(FLOOR, _quantile(known), _quantile(own)), 3)


def _side(cause: str) -> str:
    return "network" if cause == LINK else "device" if cause in DEVICE_CAUSES else "host"


def _quantile(off: Sequence[float]) -> float:
    """Return the smallest absolute deviation that the share :data:`INSIDE` of them does not exceed; 0 without any."""
    return sorted(map(abs, off))[math.ceil(INSIDE * len(off)) - 1] if off else 0.0
