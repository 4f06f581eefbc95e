"""What the replay itself is wrong by, by kind of mesh and cause: measured, and kept in a file beside this module.

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

__all__ = ["CAUSES", "LINK", "MESHES", "Cases", "errors_of", "mesh_of", "model_error"]

FILE = Path(__file__).with_name("model_error.json")
MESHES = ("one group", "grid", "stages", "ring", "experts")
"""One process group of all ranks; several groups a rank; pipeline stages; messages round a ring; all-to-all."""
LINK = "slow_link"
CAUSES = (*(cause.name for cause in OURS), LINK)
FEWEST = 20
"""Cases from which on the 19th of 20 is known: with fewer of them others of the same cause count as well, then all
others of the device, of the host, or of the network."""
INSIDE = 0.95
FLOOR = 0.05
"""No error is taken for smaller: most cases are simulated, and the simulator and the replay share their idea of how
streams and calls wait for each other."""

Cases = Mapping[str, Mapping[str, Sequence[float]]]
"""Kind of mesh -> cause -> what was said of a fault's cost over what was true, less 1."""


def mesh_of(matched: Matched, *, staged: bool) -> str:
    """Return which of :data:`MESHES` the calls of a window belong to; ``staged``: some ranks are pipeline stages."""
    if staged:
        return "stages"
    if "all_to_all" in matched.kind:
        return "experts"
    if any(channel.point_to_point for channel in matched.channels):
        return "ring"
    groups = {channel.ranks for channel in matched.channels}
    return "grid" if len(groups) > 1 else "one group"


def model_error(mesh: str, cause: str) -> float:
    """Return half the width of the 95 % interval that the model's error alone gives, as a share of the cost.

    A cause of another package is taken for the least known one of all.
    """
    table = _table()[mesh]
    return table[cause] if cause in table else max(table.values())


@cache
def _table() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads(FILE.read_text(encoding="utf-8"))["error"]
    return found


def errors_of(cases: Cases) -> dict[str, dict[str, float]]:
    """Return kind of mesh -> cause -> the error that 95 % of its cases do not exceed, for all kinds and causes."""
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
    """The smallest of the deviations that :data:`INSIDE` of them do not exceed; 0 of none."""
    return sorted(map(abs, off))[math.ceil(INSIDE * len(off)) - 1] if off else 0.0
