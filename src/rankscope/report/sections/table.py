"""The sections of the page below the verdict, in their order.

To add one: write a function that takes the report and returns the variables of its template, or None where there is
nothing to show; put the template ``templates/ANCHOR.html.j2`` beside the others (a section of tables only uses
``tables.html.j2``); add a line to :data:`SECTIONS`. Numbers are defined in ``metrics``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rankscope.records.report import ClusterReport
from rankscope.report.common import breakdown
from rankscope.report.common import wording as words
from rankscope.report.common.cells import Table
from rankscope.report.common.metrics import METRICS, Metric, hover
from rankscope.report.sections import collectives as calls
from rankscope.report.sections import findings as cards
from rankscope.report.sections import health, memory
from rankscope.report.sections import heatmap as heat
from rankscope.report.sections import measurements as tables
from rankscope.report.sections import run_steps as pulse
from rankscope.report.sections import time as bars
from rankscope.report.sections import trust as appendix

__all__ = ["SECTIONS", "Section"]

Variables = dict[str, Any]


class Section(NamedTuple):
    """One section. ``nav`` is its name in the page's head, ``title`` the heading, unless ``build`` returns others."""

    anchor: str
    nav: str
    title: str
    build: Callable[[ClusterReport], Variables | None]
    template: str = "tables.html.j2"


def _findings(report: ClusterReport) -> Variables | None:
    found = cards.cards(report)
    return {"cards": found} if found else None


def _gains(report: ClusterReport) -> Variables | None:
    lead = "By replay of the recorded steps, one assumption at a time: an upper bound for what each change can bring."
    return _tables(lead, ("Gains by replay", tables.gains(report))) if report.what_if else None


def _time(report: ClusterReport) -> Variables:
    shown = bars.bars(report)
    return {
        "bars": shown,
        "legend": bars.legend(shown),
        "idle": tables.idle(report),
        "device": "device" if words.has_accelerator(report) else "main thread",
        "many": len(shown) > words.FEW_RANKS,
    }


def _steps(report: ClusterReport) -> Variables | None:
    keys = {"compute": "compute_pct", "comm": "step.exposed_comm_ms", "copy": "memcpy_pct"}
    if heat.waits_for_input(report):
        keys |= {"input": "step.input_ms", "host": "host_ms"}
    else:
        keys["idle"] = "step.idle_ms"
    names = {"copy": "Copies and rest"}
    legend = [(key, names.get(key, breakdown.LEGEND[key][0]), hover(metric)) for key, metric in keys.items()]
    return {"legend": legend} if report.steps else None


def _pulse(report: ClusterReport) -> Variables | None:
    if report.pulse is None or not report.pulse.buckets:
        return None
    line = words.pulse_line(report)
    chart = pulse.chart(report.pulse)
    lead = "Step time of the whole last attempt, recorded or not, as each host saw it."
    if chart and chart["logarithmic"]:
        lead += " The scale is logarithmic."
    return {
        "lead": f"{lead} {line[0].upper()}{line[1:]}." if line else lead,
        "spoken": line or "",
        "chart": chart,
        "notes": report.pulse.notes,
        "table": pulse.rows(report),
    }


def _ranks(report: ClusterReport) -> Variables:
    return _tables("", ("Ranks", tables.ranks(report)))


def _groups(report: ClusterReport) -> Variables | None:
    lead = (
        "Wait is until the last rank arrives, transfer is after. Waiting is not cost: what it costs is in the verdict "
        "and the findings."
    )
    return _tables(lead, ("Process groups", calls.groups(report))) if report.groups else None


def _modules(report: ClusterReport) -> Variables | None:
    lead = "The same by FSDP module or DDP bucket, most exposed first: which part of the model the devices wait for."
    return _tables(lead, ("Modules and buckets", calls.modules(report))) if report.modules else None


def _queues(report: ClusterReport) -> Variables | None:
    lead = (
        "How far each host runs ahead of its device. A queue that runs dry means that the device waits for its host "
        "(host bound); a long one, that the host waits for its device."
    )
    return _tables(lead, ("Launch queues", tables.queues(report))) if report.queues else None


def _memory(report: ClusterReport) -> Variables | None:
    if not report.memory:
        return None
    lead = []
    if any(row.file for row in report.memory):
        lead.append("From PyTorch's memory history. The snapshots open in pytorch.org/memory_viz.")
    if not all(row.file for row in report.memory):
        lead.append(
            "Ranks without a snapshot: from the allocator's totals in their traces, which do not tell who holds the "
            "memory."
        )
    tables_of = ("Device memory", memory.memory(report)), ("Held at the peak", memory.frames(report))
    return _tables(" ".join(lead), *tables_of)


def _health(report: ClusterReport) -> Variables | None:
    lead = "Sampled once a second on each node, beside the job. What is clearly wrong is among the findings."
    found = _tables(lead, ("Ranks", health.devices(report)), ("Hosts", health.hosts(report)))
    return found if found["tables"] else None


def _kernels(report: ClusterReport) -> Variables | None:
    if not report.kernels:
        return None
    name = "Kernels" if words.has_accelerator(report) else "Operators"
    return _tables("", (name, tables.kernels(report))) | {"nav": name, "title": name}


def _trust(report: ClusterReport) -> Variables:
    return {
        "offsets": appendix.clock_offsets(report),
        "sources": appendix.sources(report),
        "hta": appendix.hta(report),
        "metrics": _definitions(report),
    }


def _definitions(report: ClusterReport) -> dict[str, Metric]:
    """Of what can be on this page: a job on CPUs has no link, no launch queue and no device memory."""
    optional = {
        "Launch queue": report.queues,
        "Device memory": report.memory,
        "Health": report.health,
        "Pulse": report.pulse,
    }
    without = {name for name, rows in optional.items() if not rows}
    accelerator = words.has_accelerator(report)
    return {
        key: metric
        for key, metric in METRICS.items()
        if metric.section not in without and (accelerator or not key.startswith("link_"))
    }


def _tables(lead: str, *found: tuple[str, Table]) -> Variables:
    return {"lead": lead, "tables": [(caption, table) for caption, table in found if table.rows]}


SECTIONS = (
    Section("findings", "Findings", "Findings", _findings, "findings.html.j2"),
    Section("time", "Time", "Where the time goes", _time, "time.html.j2"),
    Section("steps", "Steps", "Ranks by steps", _steps, "steps.html.j2"),
    Section("pulse", "Pulse", "Pulse of the run", _pulse, "pulse.html.j2"),
    Section("ranks", "Ranks", "Ranks", _ranks),
    Section("gains", "Gains", "What a change would gain", _gains),
    Section("groups", "Groups", "Process groups", _groups),
    Section("modules", "Modules", "Modules and buckets", _modules),
    Section("queues", "Host", "Host and launch queue", _queues),
    Section("memory", "Memory", "Device memory", _memory),
    Section("health", "Health", "Health of devices and hosts", _health),
    Section("kernels", "Kernels", "Kernels", _kernels),
    Section("trust", "Trust", "How far to trust this", _trust, "trust.html.j2"),
)
