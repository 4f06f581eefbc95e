"""MLflow: metrics of the active run of the training thread."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from rankscope.agent.trackers.base import Log, Tracker

__all__ = ["TRACKER"]


def _opened() -> Log | None:
    mlflow = sys.modules.get("mlflow")
    run = mlflow.active_run() if mlflow is not None else None
    if mlflow is None or run is None:
        return None
    client, own = mlflow.MlflowClient(), run.info.run_id

    def log(numbers: Mapping[str, float], step: int) -> None:
        for name, value in numbers.items():
            client.log_metric(own, name, value, step=step)

    return log


TRACKER = Tracker("mlflow", _opened)
