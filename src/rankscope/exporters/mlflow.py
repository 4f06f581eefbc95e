"""MLflow: a run with the numbers as metrics, the verdict as tags, and the report's files as artifacts."""

from __future__ import annotations

import tempfile
from typing import Any

from rankscope.errors import ConfigError
from rankscope.exporters.base import Exporter, needed, run_name
from rankscope.report.notebook import Report

__all__ = ["EXPORTER"]

_LONGEST_TAG = 500


def _write(report: Report, destination: str, step: int) -> str:
    mlflow = needed("mlflow", "mlflow")
    try:
        return _log(mlflow.MlflowClient(tracking_uri=destination), report, destination, step)
    except mlflow.exceptions.MlflowException as error:
        raise ConfigError(f"MLflow does not take it at {destination}: {str(error)[:300]}") from error


def _log(client: Any, report: Report, destination: str, step: int) -> str:
    experiment = client.get_experiment_by_name("rankscope")
    number = experiment.experiment_id if experiment else client.create_experiment("rankscope")
    own = client.create_run(number, run_name=run_name(report)).info.run_id
    for name, value in report.scalars().items():
        client.log_metric(own, name, value, step=step)
    verdict = report.record.verdict
    client.set_tag(own, "rankscope.verdict", str(verdict.kind))
    client.set_tag(own, "rankscope.sentence", verdict.sentence[:_LONGEST_TAG])
    with tempfile.TemporaryDirectory() as folder:
        for path in report.save(folder).values():
            client.log_artifact(own, str(path), "rankscope")
    client.set_terminated(own)
    return f"run {own} in {destination}"


EXPORTER = Exporter(name="mlflow", place="a tracking URI: sqlite:///mlflow.db, or http://host:5000", write=_write)
