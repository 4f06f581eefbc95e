"""Table of all trackers. To add one, add a file to this folder, a line here, and its name to ``config.TRACKERS``."""

from __future__ import annotations

from rankscope.agent.trackers import mlflow, tensorboard, trackio, wandb
from rankscope.agent.trackers.base import Tracker

__all__ = ["TRACKERS"]

TRACKERS: dict[str, Tracker] = {
    own.name: own for own in (tensorboard.TRACKER, mlflow.TRACKER, wandb.TRACKER, trackio.TRACKER)
}
