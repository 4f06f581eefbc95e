"""OpenMetrics text: a file for Prometheus' node_exporter, or for a push gateway.

Format: https://prometheus.io/docs/specs/om/open_metrics_spec/. It requires base units, so milliseconds are converted
to seconds, and percentages to ratios.
"""

from __future__ import annotations

from pathlib import Path

from rankscope.exporters.base import Exporter, run_name
from rankscope.report.notebook import Report
from rankscope.rundir.files import replace_text

__all__ = ["EXPORTER", "as_text"]

_UNITS = {"_ms": ("seconds", 1e-3), "_pct": ("ratio", 1e-2)}


def as_text(report: Report) -> str:
    """Return the numbers of a report as gauges, labelled with the name of the run."""
    label, text = _escaped(run_name(report)), ""
    for key, value in report.scalars().items():
        name, unit, factor = _unit(key.replace("/", "_"))
        text += f"# TYPE {name} gauge\n" + (f"# UNIT {name} {unit}\n" if unit else "")
        text += f'{name}{{run="{label}"}} {value * factor:.9g}\n'
    kind = _escaped(str(report.record.verdict.kind))
    text += f'# TYPE rankscope_verdict info\nrankscope_verdict_info{{run="{label}",kind="{kind}"}} 1\n'
    return text + "# EOF\n"


def _unit(name: str) -> tuple[str, str, float]:
    """Return the name with its base unit, the base unit, and the factor that converts a value to it."""
    for end, (unit, factor) in _UNITS.items():
        if name.endswith(end):
            return f"{name.removesuffix(end)}_{unit}", unit, factor
    return name, "", 1.0


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _write(report: Report, destination: str, _step: int) -> str:
    path = Path(destination)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, as_text(report))  # atomic, so that a collector never reads a partial file
    return str(path)


EXPORTER = Exporter(name="openmetrics", place="a file, for node_exporter one that ends in .prom", write=_write)
