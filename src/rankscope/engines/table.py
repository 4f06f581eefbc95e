"""Table of all engines. To add one, add a file with an ``ENGINE`` to this folder and a line here."""

from __future__ import annotations

from rankscope.engines import dask, local, mpi, ray
from rankscope.engines.base import Engine

__all__ = ["BY_NAME", "ENGINES"]

ENGINES: tuple[Engine, ...] = (local.ENGINE, dask.ENGINE, mpi.ENGINE, ray.ENGINE)

BY_NAME = {engine.name: engine for engine in ENGINES}
