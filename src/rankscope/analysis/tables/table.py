"""All tables of the report. To add one: a file beside the others, a field of ``ClusterReport``, and a line here."""

from __future__ import annotations

from rankscope.analysis.memory.rows import memory_rows
from rankscope.analysis.operators.efficiency import efficiency
from rankscope.analysis.tables import summary
from rankscope.analysis.tables.base import Material, Table
from rankscope.analysis.tables.critical_path import critical_path_row
from rankscope.analysis.tables.health import health_rows
from rankscope.analysis.tables.kernels import kernel_rows
from rankscope.analysis.tables.launch_queue import launch_queues
from rankscope.analysis.tables.modules import module_rows
from rankscope.analysis.tables.regions import region_rows
from rankscope.analysis.tables.run_info import complete_ranks
from rankscope.analysis.tables.run_steps import read_step_logs
from rankscope.records.report import ReportError
from rankscope.records.rows import Efficiency, MemoryRow

__all__ = ["TABLES"]


def _memory(material: Material) -> list[MemoryRow]:
    rows, faults = memory_rows(material.traces, material.snapshots)
    material.errors += [ReportError(where="memory", message=fault) for fault in faults]
    return rows


def _efficiency(material: Material) -> Efficiency | None:
    window = max(material.windows, key=lambda w: w.step_count, default=None)
    return efficiency(window.views, (window.step_ns or 0.0) / 1e6) if window is not None else None


TABLES: tuple[Table, ...] = (
    Table("ranks", lambda m: complete_ranks(summary.rank_summaries(m.windows), m.traces, m.manifest, m.sources)),
    Table("clock", lambda m: summary.clock_report(m.windows)),
    Table("collectives", lambda m: summary.collectives_report(m.windows)),
    Table("idle", lambda m: summary.idle_rows(m.windows)),
    Table("steps", lambda m: summary.step_rows(m.windows)),
    Table("groups", lambda m: summary.group_rows(m.windows)),
    Table("modules", lambda m: module_rows(m.windows)),
    Table("queues", lambda m: launch_queues(m.windows)),
    Table("regions", lambda m: region_rows(m.views)),
    Table("marks", lambda m: m.manifest.marks if m.manifest else []),
    Table("kernels", lambda m: kernel_rows(m.views)),
    Table("efficiency", _efficiency),
    Table("critical_path", lambda m: critical_path_row(m.windows)),
    Table("health", lambda m: health_rows(r for w in m.manifest.windows for r in w.records) if m.manifest else []),
    Table("memory", _memory),
    Table("pulse", lambda m: read_step_logs(m.step_logs, m.world_size)),
)
"""In the order in which they are computed; no table reads another."""
