"""TensorBoard: an event file with the numbers, and the report as text."""

from __future__ import annotations

from rankscope.exporters.base import Exporter, needed, run_name
from rankscope.report.notebook import Report

__all__ = ["EXPORTER"]


def _write(report: Report, destination: str, step: int) -> str:
    needed("tensorboard", "tensorboard")
    writer = needed("torch.utils.tensorboard", "tensorboard").SummaryWriter(f"{destination}/{run_name(report)}")
    try:
        for name, value in report.scalars().items():
            writer.add_scalar(name, value, step)
        writer.add_text("rankscope/report", report.to_markdown(), step)
    finally:
        writer.close()
    return str(writer.log_dir)


EXPORTER = Exporter(name="tensorboard", place="the folder that TensorBoard is given (--logdir)", write=_write)
