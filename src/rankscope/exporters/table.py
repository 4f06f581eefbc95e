"""All exporters. To add one: a file beside the others, a line here, and an extra of its name in pyproject.toml."""

from __future__ import annotations

from rankscope.exporters import mlflow, openmetrics, tensorboard, trackio, wandb
from rankscope.exporters.base import Exporter

__all__ = ["EXPORTERS"]

EXPORTERS: dict[str, Exporter] = {
    own.name: own
    for own in (openmetrics.EXPORTER, tensorboard.EXPORTER, mlflow.EXPORTER, wandb.EXPORTER, trackio.EXPORTER)
}
