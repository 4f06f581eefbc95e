"""Weights & Biases, offline: a run in a folder, which the user uploads with ``wandb sync``."""

from __future__ import annotations

import tempfile

from rankscope.errors import ConfigError
from rankscope.exporters.base import Exporter, needed, run_name
from rankscope.report.notebook import Report

__all__ = ["EXPORTER"]


def _write(report: Report, destination: str, step: int) -> str:
    wandb = needed("wandb", "wandb")
    settings = wandb.Settings(console="off", silent=True, save_code=False, disable_git=True, x_disable_stats=True)
    try:
        run = wandb.init(
            project="rankscope",
            name=run_name(report),
            dir=destination,
            mode="offline",
            settings=settings,
            config={"training_step": step},
        )
        try:
            run.log({**report.scalars(), "training_step": step})
            run.summary["rankscope/verdict"] = str(report.record.verdict.kind)
            run.summary["rankscope/sentence"] = report.record.verdict.sentence
            with tempfile.TemporaryDirectory() as folder:
                files = wandb.Artifact("rankscope-report", type="report")
                for path in report.save(folder).values():
                    files.add_file(str(path))
                run.log_artifact(files)
                place = str(run.dir)
                run.finish()
        finally:
            run.finish()
    except wandb.errors.Error as error:
        raise ConfigError(f"W&B does not take it in {destination}: {str(error)[:300]}") from error
    own = place.removesuffix("/files")
    return f"{own}; `wandb sync {own}` sends it"


EXPORTER = Exporter(name="wandb", place="a folder, for an offline run that `wandb sync` sends", write=_write)
