"""Each exporter, read back with the tool that it writes for."""

from __future__ import annotations

import gzip
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.cli import main
from rankscope.cli.verbs.reports.export import _NAMES
from rankscope.errors import ConfigError
from rankscope.exporters.openmetrics import as_text
from rankscope.exporters.table import EXPORTERS
from rankscope.exporters.trace_files import copy_traces
from rankscope.records.report import ClockReport, ClusterReport, CollectivesReport, RunInfo, Verdict
from rankscope.records.rows import RankSummary
from rankscope.report.notebook import Report

TRACES = Path(__file__).parents[2] / "data" / "traces" / "graph_healthy"


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


def test_wandb_reads_its_offline_run(report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed (rankscope[wandb])")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.chdir(tmp_path)
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    said = EXPORTERS["wandb"].write(report, str(tmp_path), 300)
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert said.startswith(f"{file.parent}; `wandb sync ")
    items: dict[str, str] = {}
    for data in _leveldb_log(file.read_bytes()):
        record = Record.FromString(data)
        for item in [*record.history.item, *record.summary.update]:
            items[item.key or "/".join(item.nested_key)] = item.value_json
    assert json.loads(items["rankscope/step_ms"]) == 125.0
    assert json.loads(items["training_step"]) == 300
    assert json.loads(items["rankscope/verdict"]) == "straggler"


def _leveldb_log(data: bytes) -> Iterator[bytes]:
    """Records of a log of LevelDB, behind the seven bytes by which W&B's begins: blocks of 32 KiB, of pieces with a
    checksum, a length and a kind (1 whole, 2 first, 3 middle, 4 last)."""
    place, record = 7, b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        if not kind:
            return
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


def test_trackio_reads_its_database(report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    storage = pytest.importorskip("trackio.sqlite_storage", reason="trackio is not installed (rankscope[trackio])")
    monkeypatch.setenv("TRACKIO_SERVER_URL", "http://nobody.invalid")
    from trackio.utils import TRACKIO_DIR

    report.record.run.run_id = "run_0001"
    said = EXPORTERS["trackio"].write(report, str(TRACKIO_DIR), 300)
    assert f"TRACKIO_DIR={TRACKIO_DIR}" in said
    (log,) = storage.SQLiteStorage.get_logs("rankscope", "run_0001")
    assert (log["rankscope/step_ms"], log["step"], log["rankscope/verdict"]) == (125.0, 300, "straggler")
    with pytest.raises(ConfigError, match="was loaded before"):
        EXPORTERS["trackio"].write(report, str(tmp_path / "other"), 0)


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb", "trackio"])
def test_without_the_package_the_error_says_what_to_install(
    name: str, report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"pip install 'rankscope\[{name}\]'"):
        EXPORTERS[name].write(report, str(tmp_path), 0)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A run directory: traces of two ranks, spaced as torch writes them, and the records beside them."""
    window = tmp_path / "run_0001" / "attempt_0" / "window_000"
    window.mkdir(parents=True)
    for rank in range(2):
        text = json.dumps(json.loads(gzip.decompress((TRACES / f"rank_{rank}.json.gz").read_bytes())))
        (window / f"rank_{rank:05d}.trace.json.gz").write_bytes(gzip.compress(text.encode(), 1))
        (window / f"rank_{rank:05d}.json").write_text(json.dumps({"rank": rank}, indent=1))
    return tmp_path / "run_0001"


def test_hta_opens_a_window(recorded: Path, tmp_path: Path) -> None:
    trace_file = pytest.importorskip("hta.common.trace_file")
    assert main(["export", str(recorded), "--to", "traces", "--output", str(tmp_path / "logs")]) == 0
    folder = tmp_path / "logs" / "run_0001_attempt_0_window_000"
    assert trace_file.get_trace_files(str(folder)) == {
        rank: str(folder / f"rank_{rank:05d}.pt.trace.json.gz") for rank in range(2)
    }
    for path in folder.iterdir():
        own = recorded / "attempt_0" / "window_000" / path.name.replace(".pt.trace", ".trace")
        assert path.read_bytes() == own.read_bytes()


def test_the_profiler_plugin_opens_a_window(recorded: Path, tmp_path: Path) -> None:
    loader = pytest.importorskip("torch_tb_profiler.profiler.loader")
    io = pytest.importorskip("torch_tb_profiler.io")
    (folder,) = copy_traces(recorded, "run_0001", tmp_path / "logs")
    run = loader.RunLoader(folder.name, str(folder), io.Cache(str(tmp_path / "cache"))).load()
    assert set(run.workers) >= {"rank_00000", "rank_00001"}


def test_a_run_without_traces_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").mkdir()
    assert main(["export", str(tmp_path / "run"), "--to", "traces", "--output", str(tmp_path / "logs")]) == 3
    assert "has no traces of its own to copy" in capsys.readouterr().err
