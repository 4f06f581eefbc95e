"""The report from reduced traces equals that from the traces; damage affects only the damaged traces."""

from __future__ import annotations

import gzip
import shutil
import zipfile
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from rankscope import cli
from rankscope.analysis.pipeline import analyze
from rankscope.errors import AnalysisError, ConfigError
from rankscope.records.manifest import RunManifest
from rankscope.records.running.node_task import ReduceTask
from rankscope.reduced import reduce
from rankscope.reduced.collected import load_objects
from rankscope.reduced.of_node import reduce_window
from rankscope.reduced.reduce import Share, reduce_share, reduce_shares, shares_of
from rankscope.report.formats import json as contract
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record
from rankscope.trace.files import objects
from rankscope.trace.files.load import load_traces

pytestmark = pytest.mark.data

DATA = Path(__file__).parents[2] / "data"


def reduced(folder: Path, output: Path, count: int = 2) -> list[Path]:
    assert list(reduce_shares(shares_of([folder], str(output), objects=count))) == []
    return sorted(output.glob("*.columns"))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A recorded job of two ranks beside a file that is no trace."""
    folder = tmp_path / "job"
    shutil.copytree(DATA / "traces" / "ddp_dataloader_stall", folder)
    (folder / "notes.json").write_text('{"no": "trace"}')
    return folder


@pytest.mark.data
@pytest.mark.parametrize(
    "name",
    ["traces/ddp_slow_gpu", "traces/gloo_ddp_input", "cases/16_two_process_groups", "cases/13_foreign_files",
     "cases/26_repeat_cycles", "cases/11_no_distributed_info"],
)  # fmt: skip
def test_the_report_from_objects_is_that_from_the_traces(name: str, tmp_path: Path) -> None:
    folder = DATA / name
    whole = load_traces([folder], workers=1, cache=False)
    reduced(folder, tmp_path)
    again = load_objects([tmp_path])
    key = lambda source: source.path  # noqa: E731
    assert sorted(again.sources, key=key) == sorted(whole.sources, key=key)
    again.sources = whole.sources
    assert contract.render(analyze(again)) == contract.render(analyze(whole))


@pytest.mark.data
def test_a_run_directory_keeps_its_windows_and_its_manifest(tmp_path: Path) -> None:
    run = tmp_path / "run"
    window = run / "attempt_0" / "window_000"
    window.mkdir(parents=True)
    source = DATA / "runs" / "ddp_input"
    shutil.copy(source / "run.json", run)
    for trace in source.glob("*.gz"):
        shutil.copy(trace, window)
    manifest = read_record(RunManifest, run / "run.json")
    whole = contract.render(analyze(load_traces([run], workers=1, cache=False), manifest))
    reduced(run, tmp_path / "objects")
    assert contract.render(analyze(load_objects([tmp_path / "objects"]), manifest)) == whole


@pytest.mark.data
@pytest.mark.parametrize("whole", [[], [1]])
def test_of_a_run_that_keeps_columns_these_are_taken(whole: list[int], tmp_path: Path) -> None:
    """As with ``gather.keep=none``, and with ``suspects``, which keeps some of the traces."""
    run, packed = RunDir(tmp_path / "run"), DATA / "traces" / "ddp_slow_gpu"
    plain = [tmp_path / f"{rank}.json" for rank in (0, 1)]
    for rank, path in enumerate(plain):
        path.write_bytes(gzip.decompress((packed / f"rank_{rank}.json.gz").read_bytes()))
    names = [run.trace(0, 0, rank).name for rank in (0, 1)]
    target = run.columns(0, 0, "node")
    target.parent.mkdir(parents=True)
    task = ReduceTask(
        attempt=0, window=0, ranks=[0, 1], names=names, traces=[str(path) for path in plain], target=str(target)
    )
    assert reduce_window(task) == [0, 1]
    for rank in whole:
        shutil.copy(packed / f"rank_{rank}.json.gz", run.trace(0, 0, rank))
    expected = contract.render(analyze(load_traces([tmp_path / "run"], workers=1, cache=False)))
    made = reduced(tmp_path / "run", tmp_path / "objects", 2)
    assert len(made) == (2 if whole else 1)
    loaded = load_objects([tmp_path / "objects"])
    assert [trace.rank for trace in loaded.traces] == [0, 1]
    assert contract.render(analyze(loaded)) == expected


@pytest.mark.data
def test_a_merged_file_keeps_its_processes(job: Path, tmp_path: Path) -> None:
    path = tmp_path / "merged.columns"
    traces = load_traces([job], workers=1, cache=False).traces
    with objects.ObjectWriter.open(path) as writer:
        for trace in traces:
            trace.part = f"rank {trace.rank}"
        members = [writer.add(trace) for trace in traces]
        merged = objects.ReducedFile(path="/merged.json", name="merged.json", format="kineto", members=members)
        writer.contents.files = [merged]
    assert [(trace.rank, trace.part, trace.source) for trace in load_objects([path]).traces] == [
        (0, "rank 0", "/merged.json"), (1, "rank 1", "/merged.json"),
    ]  # fmt: skip


@pytest.mark.data
def test_a_damaged_member_costs_its_rank_only(job: Path, tmp_path: Path) -> None:
    (path,) = reduced(job, tmp_path / "objects", 1)
    with zipfile.ZipFile(path) as archive:
        about = archive.getinfo("000001.parquet")
    text = bytearray(path.read_bytes())
    text[about.header_offset + about.file_size // 2] ^= 0xFF
    path.write_bytes(text)
    loaded = load_objects([path])
    assert [trace.rank for trace in loaded.traces] == [0]
    (bad,) = [source for source in loaded.sources if source.status == "unusable"]
    assert bad.path.endswith("rank_1.json.gz")
    assert bad.rank == 1
    assert "000001.parquet is damaged" in (bad.reason or "")


@pytest.mark.data
def test_an_object_that_was_cut_off_is_refused_and_the_others_go_on(job: Path, tmp_path: Path) -> None:
    first, second = reduced(job, tmp_path / "objects")
    second.write_bytes(second.read_bytes()[:-100])
    loaded = load_objects([tmp_path / "objects"])
    assert [trace.rank for trace in loaded.traces] == [0]
    assert next(s.reason for s in loaded.sources if s.path == str(second)).startswith(f"{second}: not a whole object")
    assert first.exists()


@pytest.mark.data
def test_of_a_trace_in_two_objects_the_first_is_taken(job: Path, tmp_path: Path) -> None:
    (path,) = reduced(job, tmp_path / "objects", 1)
    shutil.copy(path, path.with_name("again.columns"))
    loaded = load_objects([tmp_path / "objects"])
    assert [trace.rank for trace in loaded.traces] == [0, 1]
    assert [s.status for s in loaded.sources if s.path.endswith(".gz")] == ["used", "used"]


@pytest.mark.data
def test_different_traces_with_the_same_path_on_two_nodes_are_both_used(job: Path, tmp_path: Path) -> None:
    here = job / "trace.json.gz"
    for node, rank in (("a", 0), ("b", 1)):
        here.write_bytes((DATA / "traces" / "ddp_dataloader_stall" / f"rank_{rank}.json.gz").read_bytes())
        reduce_share(Share((here,), str(tmp_path / "objects"), name=node))
    loaded = load_objects([tmp_path / "objects"])
    assert [trace.rank for trace in loaded.traces] == [0, 1]
    assert [(s.path, s.status) for s in loaded.sources] == [(str(here), "used")] * 2


@pytest.mark.data
def test_of_a_trace_that_one_object_holds_damaged_the_other_one_is_taken(job: Path, tmp_path: Path) -> None:
    (path,) = reduced(job, tmp_path / "objects", 1)
    shutil.copy(path, path.with_name("again.columns"))
    with zipfile.ZipFile(path) as archive:
        about = archive.getinfo("000001.parquet")
    text = bytearray(path.read_bytes())
    text[about.header_offset + about.file_size // 2] ^= 0xFF
    path.with_name("again.columns").write_bytes(text)  # the first by name
    loaded = load_objects([tmp_path / "objects"])
    assert [trace.rank for trace in loaded.traces] == [0, 1]


@pytest.mark.data
def test_objects_of_other_traces_are_made_again_and_those_beside_are_named(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "objects"
    reduced(DATA / "traces" / "ddp_slow_gpu", output, 2)
    assert cli.main(["reduce", str(job), "--output", str(output), "--objects", "1", "--workers", "1"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "also holds 2 other object(s)" in said
    again = ["reduce", str(job), "--output", str(output), "--objects", "2", "--workers", "1", "--resume"]
    assert cli.main(again) == 0
    assert "other object(s)" in capsys.readouterr().err
    (output / "share_00000_of_00001.columns").unlink()
    assert {Path(trace.source).parent for trace in load_objects([output]).traces} == {job}
    before = [path.stat().st_mtime_ns for path in sorted(output.iterdir())]
    assert cli.main(again) == 0
    assert [path.stat().st_mtime_ns for path in sorted(output.iterdir())] == before
    assert "other object(s)" not in capsys.readouterr().err


@pytest.mark.data
def test_another_version_is_refused(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = reduced(job, tmp_path / "objects", 1)
    monkeypatch.setattr(objects, "OBJECT_VERSION", 2)
    loaded = load_objects([path])
    assert loaded.traces == []
    assert "version 1." in (loaded.sources[0].reason or "")


def test_a_compressed_member_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.columns"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("contents.json", "{" + " " * 1_000_000 + "}")
    assert "no member that rankscope writes" in (load_objects([path]).sources[0].reason or "")


def test_a_share_that_fails_leaves_no_object_and_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(objects.ObjectWriter, "add", full)
    share = Share((DATA / "traces" / "ddp_slow_gpu",), str(tmp_path))
    assert list(reduce_shares([share])) == [(share, "OSError: [Errno 28] No space left on device")]
    assert list(tmp_path.iterdir()) == []


class Dying(Executor):
    """Its second task kills its process."""

    def __init__(self) -> None:
        self.asked = 0

    def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        future: Future[int] = Future()
        self.asked += 1
        if self.asked == 2:
            future.set_exception(BrokenProcessPool("a process died"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


@pytest.mark.data
def test_what_a_worker_leaves_undone_is_done_here(job: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    shares = shares_of([job], str(tmp_path / "objects"), objects=2)
    here: list[tuple[int, str]] = []
    made = reduce_shares(shares, Dying(), lambda done, of: told.append((done, of)), lambda *why: here.append(why))
    assert list(made) == []
    assert here == [(1, "BrokenProcessPool: a process died")]
    assert told[-1] == (2, 2)
    assert [trace.rank for trace in load_objects([tmp_path / "objects"]).traces] == [0, 1]


@pytest.mark.data
def test_the_verbs_give_the_same_report_in_shares(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "objects")
    for share in ("0/2", "1/2"):
        assert cli.main(["reduce", str(job), "--output", output, "--share", share]) == 0
    capsys.readouterr()
    assert cli.main(["cluster-report", output, "--format", "json"]) == 0
    from_objects = capsys.readouterr().out
    assert cli.main(["analyze", str(job), "--format", "json"]) == 0
    assert from_objects == capsys.readouterr().out


@pytest.mark.data
@pytest.mark.parametrize("where", ["folder", "memory"])
def test_two_nodes_with_one_host_name_do_not_overwrite_each_other(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "objects") if where == "folder" else f"memory://{tmp_path.name}"
    traces = DATA / "traces" / "ddp_dataloader_stall"
    nodes = []
    for rank in (0, 1, 1):  # the last one is repeated
        node = tmp_path / f"node{rank}"
        node.mkdir(exist_ok=True)
        shutil.copy(traces / f"rank_{rank}.json.gz", node)
        nodes.append(["reduce", str(node), "--output", output, "--share", "0/1"])
    assert [cli.main(node) for node in nodes] == [0, 0, 0]
    told = capsys.readouterr()
    names = [line.partition(".columns")[0] for line in told.out.splitlines()]
    assert names[1:] == [f"{names[0]}_2"] * 2
    assert "holds other traces and stays" in " ".join(told.err.split())
    assert [trace.rank for trace in load_objects([output]).traces] == [0, 1]
    if where == "folder":
        assert len(list((tmp_path / "objects").iterdir())) == 2


def test_what_the_verbs_refuse(tmp_path: Path) -> None:
    from rankscope.cli.verbs.reports.reduce import share_in

    assert share_in("7/8") == (7, 8)
    for text in ("8/8", "1", "a/b", "-1/2"):
        with pytest.raises(ConfigError, match="--share"):
            share_in(text)
    with pytest.raises(AnalysisError, match="rankscope reduce"):
        load_objects([tmp_path])


def test_an_object_is_of_every_so_manieth_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce, "FILES_AN_OBJECT", 1)
    folder = DATA / "traces" / "ddp_slow_gpu"
    assert [(s.number, s.of) for s in shares_of([folder], str(tmp_path))] == [(0, 2), (1, 2)]
    assert [(s.number, s.of) for s in shares_of([folder], str(tmp_path), objects=9)] == [(0, 2), (1, 2)]
    assert reduce_share(Share((folder,), str(tmp_path), 1, 2)) == 1
