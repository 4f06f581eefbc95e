"""Every table of the report is in ``TABLES``, and one that fails affects only its own field."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rankscope.analysis import pipeline
from rankscope.analysis.tables.base import Material, Table
from rankscope.analysis.tables.table import TABLES
from rankscope.records.report import ClusterReport
from rankscope.trace.files.load import load_traces

DATA = Path(__file__).parents[2] / "data" / "traces"
NOT_MEASURED = {
    "run",
    "verdict",
    "findings",
    "actions",
    "hang",
    "what_if",
    "throughput",
    "hta",
    "errors",
    "sources",
    "schema_version",
}
"""Fields that the pipeline fills itself: what was given, and what is concluded."""


def test_each_measured_field_of_the_report_has_one_table() -> None:
    fields = {field.name for field in dataclasses.fields(ClusterReport)}
    assert sorted(table.field for table in TABLES) == sorted(fields - NOT_MEASURED)


@pytest.mark.parametrize("field", [table.field for table in TABLES])
def test_a_table_that_fails_costs_its_own_field(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_material: Material):
        raise RuntimeError("no luck")

    made = {table.field: (lambda _m, table=table: [table.field]) for table in TABLES}
    lines = tuple(Table(name, fail if name == field else rows) for name, rows in made.items())
    monkeypatch.setattr(pipeline, "TABLES", lines)
    for concludes in ("diagnose", "add_between_windows"):
        monkeypatch.setattr(pipeline, concludes, lambda *_, **__: None)
    monkeypatch.setattr(pipeline, "_trains_on_cpus", lambda _: True)
    load = load_traces([DATA / "ddp_healthy"], workers=1, cache=False)
    load.traces = load.traces[:1]
    report = pipeline.analyze(load, hta=False)
    assert [(e.where, e.message) for e in report.errors] == [(field, "RuntimeError: no luck")]
    assert {name for name in made if getattr(report, name) == [name]} == set(made) - {field}
