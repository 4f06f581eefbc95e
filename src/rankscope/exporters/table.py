"""Table of all exporters. To add one, add a file to this folder, a line here, and an extra to pyproject.toml."""

from __future__ import annotations

from rankscope.exporters import mlflow, openmetrics, tensorboard, trackio, wandb
from rankscope.exporters.base import Exporter

__all__ = ["EXPORTERS"]

EXPORTERS: dict[str, Exporter] = {
    own.name: own
    for own in (openmetrics.EXPORTER, tensorboard.EXPORTER, mlflow.EXPORTER, wandb.EXPORTER, trackio.EXPORTER)
}
