"""Each exporter against the reader of the tool that it writes for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rankscope.cli import main
from rankscope.cli.verbs.export import _NAMES
from rankscope.errors import ConfigError
from rankscope.exporters.openmetrics import as_text
from rankscope.exporters.table import EXPORTERS
from rankscope.records.report import ClockReport, ClusterReport, CollectivesReport, RunInfo, Verdict
from rankscope.records.rows import RankSummary
from rankscope.report.notebook import Report


@pytest.fixture
def report() -> Report:
    shares = {"compute_pct": 60.0, "exposed_comm_pct": 25.0, "memcpy_pct": 0.0, "idle_pct": 15.0, "overlap_pct": 50.0}
    return Report(
        ClusterReport(
            run=RunInfo(source="run", run_id='a "b"\\c'),
            ranks=[RankSummary(rank=rank, **shares) for rank in range(2)],
            clock=ClockReport(method="none"),
            collectives=CollectivesReport(count=0, matched_pct=None, method="none"),
            verdict=Verdict(kind="straggler", ranks=[1], sentence="Rank 1.", step_ms=125.0, cost_ms_per_step=40.0),
        )
    )


def test_the_command_knows_every_exporter() -> None:
    assert tuple(EXPORTERS) == _NAMES


def test_openmetrics_is_read_by_prometheus_own_parser(report: Report) -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    families = {family.name: family for family in parser.text_string_to_metric_families(as_text(report))}
    (step,) = families["rankscope_step_seconds"].samples
    assert (step.value, step.labels) == (0.125, {"run": 'a "b"\\c'})
    assert families["rankscope_step_seconds"].unit == "seconds"
    assert families["rankscope_compute_ratio"].samples[0].value == 0.6
    assert families["rankscope_ranks"].samples[0].value == 2
    assert families["rankscope_verdict"].samples[0].labels["kind"] == "straggler"


def test_openmetrics_by_the_command(report: Report, tmp_path: Path) -> None:
    report.save(tmp_path / "report")
    assert main(["export", str(tmp_path), "--to", "openmetrics", "--output", str(tmp_path / "x" / "run.prom")]) == 0
    text = (tmp_path / "x" / "run.prom").read_text()
    assert text == as_text(report)
    assert text.endswith("# EOF\n")
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["run.prom"]


def test_tensorboard_reads_its_events(report: Report, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    report.record.run.run_id = "run_0001"
    folder = EXPORTERS["tensorboard"].write(report, str(tmp_path), 300)
    events = accumulator.EventAccumulator(folder)
    events.Reload()
    (event,) = events.Scalars("rankscope/step_ms")
    assert (event.value, event.step) == (125.0, 300)
    assert len(events.Tags()["scalars"]) == len(report.scalars())
    assert any("rankscope/report" in tag for tag in events.Tags()["tensors"])


def test_mlflow_has_the_run_with_its_files(report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "store").as_uri()
    EXPORTERS["mlflow"].write(report, uri, 300)
    client = mlflow.MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("rankscope").experiment_id])
    assert run.data.metrics["rankscope/step_ms"] == 125.0
    assert run.data.tags["rankscope.verdict"] == "straggler"
    assert {file.path for file in client.list_artifacts(run.info.run_id, "rankscope")} == {
        f"rankscope/report.{end}" for end in ("html", "json", "md")
    }


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_without_the_package_the_error_says_what_to_install(
    name: str, report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"pip install 'rankscope\[{name}\]'"):
        EXPORTERS[name].write(report, str(tmp_path), 0)
